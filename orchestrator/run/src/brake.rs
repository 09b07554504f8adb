//! Ending a run before its plan is through.

use analysis::export::{EarlyEnd, How};
use jiff::Timestamp;
use tokio::sync::watch;

/// Asks a run that goes on to end early, once or twice: a stop may be followed by a cancellation. Clones ask the same run.
#[derive(Debug, Clone)]
pub struct Brake {
    asked: watch::Sender<Option<EarlyEnd>>,
}

impl Default for Brake {
    fn default() -> Self {
        Self { asked: watch::Sender::new(None) }
    }
}

impl Brake {
    /// Ends the run once the case that is being measured has its whole result; at once where none is. `by` is a person, for a person.
    pub fn stop(&self, by: &str) {
        self.ask(How::Stop, by);
    }

    /// Ends the run now.
    pub fn cancel(&self, by: &str) {
        self.ask(How::Cancel, by);
    }

    /// One of the two. Who asked first stays, but for a cancellation after a stop.
    pub fn ask(&self, how: How, by: &str) {
        self.asked.send_if_modified(|asked| {
            let news = match asked.as_ref().map(|before| before.how) {
                None => true,
                Some(before) => before == How::Stop && how == How::Cancel,
            };
            if news {
                *asked = Some(EarlyEnd { how, by: by.to_owned(), at: Timestamp::now(), not_run: Vec::new() });
            }
            news
        });
    }

    /// What was asked last, if anything was.
    #[must_use]
    pub fn asked(&self) -> Option<EarlyEnd> {
        self.asked.borrow().clone()
    }

    /// Waits until one of the two is asked for.
    pub(crate) async fn pulled(&self) -> EarlyEnd {
        self.wait(|_| true).await
    }

    /// Waits until the run is cancelled.
    pub(crate) async fn cancelled(&self) -> EarlyEnd {
        self.wait(|end| end.how == How::Cancel).await
    }

    /// Waits until something else than `before` is asked for.
    pub(crate) async fn news(&self, before: Option<&EarlyEnd>) -> EarlyEnd {
        self.wait(|end| Some(end) != before).await
    }

    async fn wait(&self, wanted: impl Fn(&EarlyEnd) -> bool) -> EarlyEnd {
        let mut asked = self.asked.subscribe();
        let found = asked.wait_for(|asked| asked.as_ref().is_some_and(&wanted)).await;
        match found.ok().and_then(|found| found.clone()) {
            Some(end) => end,
            // The sender is in `self`.
            None => std::future::pending().await,
        }
    }
}

/// What a run's end says of it: `stopped by alice`.
pub(crate) fn said(end: &EarlyEnd) -> String {
    let word = match end.how {
        How::Stop => "stopped",
        How::Cancel => "cancelled",
    };
    format!("{word} by {}", end.by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stop_may_become_a_cancellation_and_nothing_else_changes() {
        let brake = Brake::default();
        assert_eq!(brake.asked(), None);
        brake.stop("alice");
        brake.stop("bob");
        let first = brake.pulled().await;
        assert_eq!((first.how, said(&first).as_str()), (How::Stop, "stopped by alice"));
        let again = brake.clone();
        let cancelled = tokio::spawn(async move { again.cancelled().await });
        brake.cancel("carol");
        let second = cancelled.await.unwrap();
        assert_eq!((second.how, said(&second).as_str()), (How::Cancel, "cancelled by carol"));
        assert_eq!(brake.news(Some(&first)).await, second);
        brake.stop("dave");
        brake.cancel("erin");
        assert_eq!(brake.asked(), Some(second));
    }
}
