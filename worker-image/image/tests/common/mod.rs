//! The test image, and a listener in the orchestrator's place. Also used by the tests of the provider that boots it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Plain emulation on a busy machine; a boot takes 6 to 20 s on an idle one.
pub(crate) const BOOT_BOUND: Duration = Duration::from_secs(150);

/// Why boot tests cannot run here, if so.
pub(crate) fn lacking(more: &[&str]) -> Option<String> {
    if let Some(missing) = worker_image::build::missing_tools(true) {
        return Some(missing.to_string());
    }
    let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
    if qemu.is_err() {
        return Some(
            "no qemu-system-x86_64; on Debian: apt-get install --no-install-recommends qemu-system-x86".into(),
        );
    }
    more.iter().find(|path| !Path::new(path).exists()).map(|path| format!("no {path}"))
}

/// Runs the build script with the agent's stand-in; answers its report.
pub(crate) fn build_image(out: &Path, more: &[&str]) -> serde_json::Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|dir| dir.join("Cargo.lock").exists()).unwrap();
    let script = root.join("worker-image/image/build");
    let output = Command::new(script).args(["--stand-in", "--json", "--out"]).arg(out).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The test image, built once a test program.
pub(crate) fn image() -> &'static (PathBuf, serde_json::Value) {
    static IMAGE: OnceLock<(PathBuf, serde_json::Value)> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stand-in.iso");
        let report = build_image(&path, &[]);
        (path, report)
    })
}

/// A listener in the orchestrator's place, at 10.0.2.2 for a VM with user-mode networking.
pub(crate) struct Orchestrator {
    listener: TcpListener,
}

impl Orchestrator {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener }
    }

    pub(crate) fn url(&self) -> String {
        format!("wss://10.0.2.2:{}/api/worker/v1/session", self.listener.local_addr().unwrap().port())
    }

    /// Waits for the next report and answers it with an order.
    pub(crate) fn answer(&self, console: impl Fn() -> String, order: &str) -> String {
        let bound = Instant::now() + BOOT_BOUND;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => return exchange(stream, order),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
            assert!(Instant::now() < bound, "no request within {BOOT_BOUND:?}; console:\n{}", console());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn exchange(stream: TcpStream, order: &str) -> String {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut reader = BufReader::new(stream);
    let mut bytes = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => bytes = value.parse().unwrap(),
            None if line.trim().is_empty() => break,
            _ => {}
        }
    }
    let mut body = vec![0; bytes];
    reader.read_exact(&mut body).unwrap();
    write!(reader.get_mut(), "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{order}").unwrap();
    String::from_utf8(body).unwrap()
}
