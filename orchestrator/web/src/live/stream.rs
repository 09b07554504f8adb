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
    /// The last message that it has, one by one or as part of the whole.
    told: u64,
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
    let mut viewer = Viewer {
        hub,
        still,
        asked: Instant::now(),
        run,
        waiting: VecDeque::new(),
        told: 0,
        receiver: fresh,
        _seat: seat,
    };
    match joined {
        Some(joined) => {
            viewer.receiver = joined.receiver;
            viewer.waiting = joined.missed.iter().map(|message| viewer.event(message)).collect();
            viewer.told = joined.missed.last().map_or(0, |message| message.sequence);
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
            Some(whole) => {
                self.told = whole.sequence;
                Event::default().event("whole").id(whole.event_id).retry(RETRY).data(whole.json)
            }
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
                // The whole has it already.
                Ok(message) if message.sequence <= self.told => {}
                Ok(message) if message.run == self.run => return Some(self.event(&message)),
                Ok(_) | Err(RecvError::Lagged(_)) => self.whole(),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;
    use futures_util::StreamExt as _;
    use jiff::Timestamp;
    use serde_json::Value;

    use super::*;
    use crate::live::Beat;

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

    /// Begins a run and sends a message for each of `lines` at once, an event in each.
    fn begun() -> (Arc<Hub>, Uuid, impl Fn(std::ops::Range<u32>)) {
        let (hub, id) = (Arc::new(Hub::default()), Uuid::now_v7());
        let plan = plan::parse("demo", plan::DEMO_PLAN, &plan::Profiles::shipped()).unwrap();
        hub.begin(id, Timestamp::now(), &plan, &plan::schedule(&plan, plan::FillRate::assumed()));
        let speaker = Arc::clone(&hub);
        let say = move |lines: std::ops::Range<u32>| {
            for line in lines {
                let at = Timestamp::now();
                let event = analysis::export::Event { at, level: "info".into(), message: format!("line {line}") };
                speaker.beat(Beat { events: vec![event], ..Beat::default() });
            }
        };
        (hub, id, say)
    }

    /// The lines that a page shows after some messages of the feed: the whole replaces what it had, others add to it.
    fn shown(text: &str) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for message in text.split("\n\n").filter(|message| !message.is_empty()) {
            let data = message.lines().find_map(|line| line.strip_prefix("data:")).unwrap();
            let data: Value = serde_json::from_str(data).unwrap();
            let whole = message.lines().any(|line| line.trim_end() == "event: whole");
            let list = if whole { &data["log"] } else { &data["events"] };
            let new = list.as_array().into_iter().flatten().map(|event| event["message"].as_str().unwrap().to_owned());
            if whole {
                lines.clear();
            }
            lines.extend(new);
        }
        lines
    }

    #[tokio::test]
    async fn who_lagged_behind_is_told_nothing_twice() {
        let (hub, id, say) = begun();
        let feed = feed(Arc::clone(&hub), id, None, always()).unwrap();
        let mut body = feed.into_response().into_body().into_data_stream();
        let mut text = String::new();
        let mut next = async |text: &mut String| {
            text.push_str(std::str::from_utf8(&body.next().await.unwrap().unwrap()).unwrap());
        };
        next(&mut text).await;
        // More than a viewer may lag behind: some are lost, the last ones wait for it.
        say(0..100);
        next(&mut text).await;
        say(100..102);
        while !text.contains("line 101\"") {
            next(&mut text).await;
        }
        let lines = shown(&text);
        let all: Vec<String> = (0..102).map(|line| format!("line {line}")).collect();
        assert_eq!(lines, all);
    }
}
