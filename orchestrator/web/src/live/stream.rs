//! The live feed as server-sent events: a browser reconnects by itself and says which message it had last.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use tokio::sync::broadcast::{self, error::RecvError};
use uuid::Uuid;

use super::hub::{Hub, Message};

/// Streams at a time: each holds a connection and some messages.
const MAX_VIEWERS: usize = 64;
/// A comment is sent after so long a silence, so that nothing on the way takes the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Between two looks at whether the viewer is still logged in.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// What a browser waits for before it reconnects.
const RETRY: Duration = Duration::from_secs(2);

/// A place among the viewers; it is free again when the stream is dropped.
struct Seat(Arc<Hub>);

impl Seat {
    fn take(hub: &Arc<Hub>) -> Option<Self> {
        let taken = hub
            .viewers
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |viewers| (viewers < MAX_VIEWERS).then_some(viewers + 1));
        taken.is_ok().then(|| Self(Arc::clone(hub)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.viewers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether the viewer may still see it.
pub(crate) type Still = Pin<Box<dyn Future<Output = bool> + Send>>;

struct Viewer {
    hub: Arc<Hub>,
    still: Box<dyn Fn() -> Still + Send>,
    asked: Instant,
    run: Uuid,
    waiting: VecDeque<Event>,
    receiver: Option<broadcast::Receiver<Arc<Message>>>,
    _seat: Seat,
}

/// The feed of run `run` from the message after `last` on, while `still` says so; none where there are too many viewers.
pub(crate) fn feed(
    hub: Arc<Hub>,
    run: Uuid,
    last: Option<&str>,
    still: Box<dyn Fn() -> Still + Send>,
) -> Option<Sse<impl Stream<Item = Result<Event, Infallible>> + use<>>> {
    let seat = Seat::take(&hub)?;
    let (joined, fresh) = hub.join(run, last);
    let mut viewer =
        Viewer { hub, still, asked: Instant::now(), run, waiting: VecDeque::new(), receiver: fresh, _seat: seat };
    match joined {
        Some(joined) => {
            viewer.receiver = joined.receiver;
            viewer.waiting = joined.missed.iter().map(|message| viewer.event(message)).collect();
        }
        None => viewer.whole(),
    }
    let events = stream::unfold(viewer, |mut viewer| async move {
        let event = viewer.next().await?;
        Some((Ok(event), viewer))
    });
    Some(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

impl Viewer {
    fn event(&self, message: &Message) -> Event {
        Event::default().id(self.hub.event_id(message.sequence)).retry(RETRY).data(&message.json)
    }

    /// The whole state as the next event: `gone` where the run is not under way in this process.
    fn whole(&mut self) {
        let event = match self.hub.snapshot(self.run) {
            Some(whole) => Event::default().event("whole").id(whole.event_id).retry(RETRY).data(whole.json),
            None => {
                self.receiver = None;
                Event::default().event("gone").data("{}")
            }
        };
        self.waiting.push_back(event);
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.asked.elapsed() >= ASK_AGAIN {
                self.asked = Instant::now();
                if !(self.still)().await {
                    return None;
                }
            }
            match self.receiver.as_mut()?.recv().await {
                Ok(message) if message.run == self.run => return Some(self.event(&message)),
                Ok(_) | Err(RecvError::Lagged(_)) => self.whole(),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn always() -> Box<dyn Fn() -> Still + Send> {
        Box::new(|| Box::pin(std::future::ready(true)))
    }

    #[tokio::test]
    async fn seats_are_bounded_and_given_back() {
        let hub = Arc::new(Hub::default());
        let seats: Vec<Seat> = std::iter::from_fn(|| Seat::take(&hub)).take(MAX_VIEWERS + 1).collect();
        assert_eq!(seats.len(), MAX_VIEWERS);
        assert!(feed(Arc::clone(&hub), Uuid::nil(), None, always()).is_none());
        drop(seats);
        assert!(feed(hub, Uuid::nil(), None, always()).is_some());
    }
}
