//! QEMU's machine protocol, as far as it is used: a command, and whether it was taken.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// QEMU answers within this, or is taken for hung.
const ANSWER_BOUND: Duration = Duration::from_secs(5);
/// Longest line that is read, bytes.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// Most events that are passed over while waiting for an answer.
const MAX_EVENTS: usize = 10_000;

/// Connects, gives one command and waits until it is taken.
pub(super) async fn command(socket: &Path, name: &str) -> Result<(), String> {
    match timeout(ANSWER_BOUND, talk(socket, name)).await {
        Ok(answer) => answer.map_err(|error| format!("{name}: {error}")),
        Err(_) => Err(format!("{name}: QEMU did not answer within {} s", ANSWER_BOUND.as_secs())),
    }
}

async fn talk(socket: &Path, name: &str) -> Result<(), String> {
    let stream = UnixStream::connect(socket).await.map_err(|error| error.to_string())?;
    let mut stream = BufReader::new(stream);
    // The greeting.
    line(&mut stream).await?;
    for command in ["qmp_capabilities", name] {
        let text = format!("{}\n", json!({ "execute": command }));
        stream.get_mut().write_all(text.as_bytes()).await.map_err(|error| error.to_string())?;
        answer(&mut stream).await?;
    }
    Ok(())
}

async fn answer(stream: &mut BufReader<UnixStream>) -> Result<(), String> {
    for _ in 0..MAX_EVENTS {
        let said = line(stream).await?;
        if let Some(error) = said.get("error") {
            return Err(error["desc"].as_str().unwrap_or("refused").to_owned());
        }
        if said.get("return").is_some() {
            return Ok(());
        }
    }
    Err("QEMU says other things and does not answer".into())
}

async fn line(stream: &mut BufReader<UnixStream>) -> Result<Value, String> {
    let mut text = Vec::new();
    stream.take(MAX_LINE_BYTES).read_until(b'\n', &mut text).await.map_err(|error| error.to_string())?;
    if text.is_empty() {
        return Err("QEMU closed its monitor".into());
    }
    serde_json::from_slice(&text).map_err(|error| format!("QEMU said what is no JSON: {error}"))
}
