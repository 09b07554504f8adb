//! Answers that are sent while they are made: what is large is never whole in memory, and its first bytes come at once.

use std::io::{self, Write};
use std::time::Duration;

use axum::body::Body;
use futures_util::stream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::Error;

/// Bytes of a piece.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait to be sent.
const PIECES: usize = 8;
/// How long a client may take for a piece: it holds a thread meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// A body of what `write` writes, on a thread for blocking work. Where that fails, the connection breaks off, so that a part is not
/// taken for the whole.
pub(crate) fn streamed(write: impl FnOnce(&mut dyn Write) -> Result<(), Error> + Send + 'static) -> Body {
    let (sender, receiver) = mpsc::channel(PIECES);
    let (pieces, runtime) = (Pieces { sender: sender.clone(), runtime: Handle::current() }, Handle::current());
    tokio::task::spawn_blocking(move || {
        let mut out = io::BufWriter::with_capacity(PIECE_BYTES, pieces);
        let written = write(&mut out).and_then(|()| Ok(out.flush()?));
        if let Err(error) = written {
            tracing::warn!(%error, "an answer was broken off");
            // Whoever asked may be gone.
            let _ = runtime.block_on(timeout(PATIENCE, sender.send(Err(io::Error::other(error)))));
        }
    });
    Body::from_stream(stream::unfold(receiver, |mut receiver| async move {
        let piece: Result<Vec<u8>, io::Error> = receiver.recv().await?;
        Some((piece, receiver))
    }))
}

/// Hands pieces on to the connection.
struct Pieces {
    sender: mpsc::Sender<Result<Vec<u8>, io::Error>>,
    runtime: Handle,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.runtime.block_on(timeout(PATIENCE, self.sender.send(Ok(bytes.to_vec())))) {
            Ok(Ok(())) => Ok(bytes.len()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    #[tokio::test]
    async fn all_of_it_comes_in_order() {
        let body = streamed(|to| {
            for number in 0..100_000_u32 {
                to.write_all(&number.to_le_bytes())?;
            }
            Ok(())
        });
        let bytes = to_bytes(body, 1 << 20).await.unwrap();
        assert_eq!(bytes.len(), 400_000);
        let (words, _) = bytes.as_chunks::<4>();
        assert!(words.iter().map(|word| u32::from_le_bytes(*word)).eq(0..100_000));
    }

    #[tokio::test]
    async fn what_fails_is_broken_off() {
        let body = streamed(|to| {
            to.write_all(&[7; 200_000])?;
            Err(io::Error::other("no more").into())
        });
        assert!(to_bytes(body, 1 << 20).await.is_err());
    }

    #[tokio::test]
    async fn nothing_is_made_for_who_is_gone() {
        let (ended, end) = tokio::sync::oneshot::channel();
        let body = streamed(move |to| {
            let written = (0..1_000).try_for_each(|_| to.write_all(&[7; PIECE_BYTES]));
            ended.send(written.is_err()).unwrap_or_default();
            Ok(())
        });
        drop(body);
        assert!(timeout(PATIENCE, end).await.unwrap().unwrap(), "64 MB were written to nobody");
    }
}
