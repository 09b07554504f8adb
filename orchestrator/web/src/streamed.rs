//! Answers that are sent while they are made: what is large is never whole in memory, and its first bytes come at once.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures_util::stream;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, timeout, timeout_at};

use crate::Error;
use crate::problem::Problem;

/// Bytes of a piece.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait to be sent.
const PIECES: usize = 8;
/// All of it: 28 kB a second for the 50 MB of a run of a day.
const PATIENCE: Patience = Patience { piece: Duration::from_secs(60), whole: Duration::from_secs(30 * 60) };
/// Downloads at a time: each holds a thread, and a run in memory.
const PLACES: usize = 4;
/// The longest wait for a place; then the client is asked to come back.
const TURN_PATIENCE: Duration = Duration::from_secs(5);

/// How long a client may take: it holds a thread meanwhile.
#[derive(Debug, Clone, Copy)]
struct Patience {
    piece: Duration,
    whole: Duration,
}

/// The places for downloads.
#[derive(Debug)]
pub(crate) struct Downloads(Arc<Semaphore>);

/// One of them, for as long as an answer is made and sent.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

impl Default for Downloads {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PLACES)))
    }
}

impl Downloads {
    /// A place, to be taken before the run is read.
    ///
    /// # Errors
    /// [`Problem::many_downloads`] where none is free within a few seconds.
    pub(crate) async fn take(&self) -> Result<Place, Problem> {
        match timeout(TURN_PATIENCE, Arc::clone(&self.0).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Place { _permit: permit }),
            _ => Err(Problem::many_downloads()),
        }
    }
}

/// A body of what `write` writes, on a thread for blocking work. Where that fails, the connection breaks off, so that a part is not
/// taken for the whole.
pub(crate) fn streamed(place: Place, write: impl FnOnce(&mut dyn Write) -> Result<(), Error> + Send + 'static) -> Body {
    streamed_within(PATIENCE, place, write)
}

fn streamed_within(
    patience: Patience,
    place: Place,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Error> + Send + 'static,
) -> Body {
    let (sender, receiver) = mpsc::channel(PIECES);
    let runtime = Handle::current();
    let until = Instant::now() + patience.whole;
    let pieces = Pieces { sender: sender.clone(), runtime: runtime.clone(), patience: patience.piece, until };
    tokio::task::spawn_blocking(move || {
        let _kept = place;
        let mut out = io::BufWriter::with_capacity(PIECE_BYTES, pieces);
        let written = write(&mut out).and_then(|()| Ok(out.flush()?));
        if let Err(error) = written {
            tracing::warn!(%error, "an answer was broken off");
            // Whoever asked may be gone.
            let _ = runtime.block_on(timeout(patience.piece, sender.send(Err(io::Error::other(error)))));
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
    /// For each.
    patience: Duration,
    /// When all must have been taken.
    until: Instant,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The buffer before this hands large texts on whole.
        let bytes = &bytes[..bytes.len().min(PIECE_BYTES)];
        let until = self.until.min(Instant::now() + self.patience);
        match self.runtime.block_on(timeout_at(until, self.sender.send(Ok(bytes.to_vec())))) {
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
    use futures_util::StreamExt as _;
    use tokio::time::sleep;

    use super::*;

    /// Far above every limit under test, on a busy machine.
    const BOUND: Duration = Duration::from_secs(60);

    async fn place() -> Place {
        Downloads::default().take().await.unwrap()
    }

    #[tokio::test]
    async fn all_of_it_comes_in_order() {
        let body = streamed(place().await, |to| {
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
        let body = streamed(place().await, |to| {
            to.write_all(&[7; 200_000])?;
            Err(io::Error::other("no more").into())
        });
        assert!(to_bytes(body, 1 << 20).await.is_err());
    }

    #[tokio::test]
    async fn nothing_is_made_for_who_is_gone() {
        let (ended, end) = tokio::sync::oneshot::channel();
        let body = streamed(place().await, move |to| {
            let written = (0..1_000).try_for_each(|_| to.write_all(&[7; PIECE_BYTES]));
            ended.send(written.is_err()).unwrap_or_default();
            Ok(())
        });
        drop(body);
        assert!(timeout(BOUND, end).await.unwrap().unwrap(), "64 MB were written to nobody");
    }

    #[tokio::test]
    async fn places_are_bounded_and_given_back_by_who_takes_nothing_or_too_little() {
        let long = Duration::from_secs(3600);
        let short = Duration::from_millis(300);
        let downloads = Downloads::default();
        let endless = |to: &mut dyn Write| loop {
            to.write_all(&[7; PIECE_BYTES])?;
        };
        let mut idle = Vec::new();
        for _ in 1..PLACES {
            let patience = Patience { piece: short, whole: long };
            idle.push(streamed_within(patience, downloads.take().await.unwrap(), endless));
        }
        // This one takes a piece now and then, each within its time.
        let patience = Patience { piece: long, whole: short };
        let mut trickling = streamed_within(patience, downloads.take().await.unwrap(), endless).into_data_stream();
        let trickle = async {
            while let Some(Ok(_)) = trickling.next().await {
                sleep(short / 10).await;
            }
        };
        timeout(BOUND, trickle).await.expect("it goes on though its time is over");
        let free = async {
            while downloads.0.available_permits() < PLACES {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(BOUND, free).await.expect("a place is held for who takes nothing");
        let all: Vec<Place> = futures_util::future::join_all((0..PLACES).map(|_| downloads.take()))
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert!(downloads.take().await.is_err(), "{} places", all.len());
    }
}
