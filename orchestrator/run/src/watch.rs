//! Looking after the place while workers are under load: whether they run and where, whether the load does harm, what hosts do.
//!
//! The looks go on beside the job and never hold it up; what they find comes out of one bounded channel.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use hypervisor::{Breach, CreatedWorker, HostSample, Hypervisor, WorkerState};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// Between two looks at the workers, where the place knows anything new by then.
pub const OBSERVE_INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks of the guard. With an answer within 5 s, a breach stops the load within 15 s: a look takes no longer than its slowest
/// answer.
pub const GUARD_INTERVAL: Duration = Duration::from_secs(10);
/// How long the load goes on while the guard cannot look: longer than a cluster's pause when a node fails.
pub const GUARD_BLIND_LIMIT: Duration = Duration::from_secs(60);
/// Between two samples of the hosts' load.
pub const HOST_SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// News that wait to be taken.
pub(crate) const MAX_NEWS: usize = 64;

/// How often the place is looked at under load, and how long it may be silent; the defaults are the constants of this module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchTimes {
    /// Between two looks at the workers.
    pub observe: Duration,
    /// Between two looks of the guard.
    pub guard: Duration,
    /// How long the load goes on while the guard cannot look.
    pub blind: Duration,
    /// Between two samples of the hosts' load.
    pub hosts: Duration,
}

impl WatchTimes {
    /// Between two looks at the workers of a place.
    pub(crate) fn observe_at(&self, hypervisor: &dyn Hypervisor) -> Duration {
        self.observe.max(hypervisor.staleness())
    }
}

impl Default for WatchTimes {
    fn default() -> Self {
        Self { observe: OBSERVE_INTERVAL, guard: GUARD_INTERVAL, blind: GUARD_BLIND_LIMIT, hosts: HOST_SAMPLE_INTERVAL }
    }
}

/// What was found.
#[derive(Debug, PartialEq)]
pub(crate) enum News {
    /// A worker's process or machine has ended; said once.
    Ended { worker: String, why: String },
    /// A worker is on another host than before.
    Moved { worker: String, host: String },
    /// Something about the watch itself that a person should know.
    Watch(String),
    /// The load must stop, and why.
    Harm(String),
    /// The hosts' load.
    Hosts(HostSample),
}

/// The looks at one place during one job.
pub(crate) struct Watch<'a> {
    hypervisor: &'a dyn Hypervisor,
    workers: Vec<CreatedWorker>,
    times: WatchTimes,
    samples_hosts: bool,
    news: mpsc::Sender<News>,
    /// Stops the load at once.
    stop: Box<dyn Fn() + Send + Sync + 'a>,
}

impl<'a> Watch<'a> {
    /// Looks after these workers; the hosts' load is sampled where it is to be kept.
    pub(crate) fn new(
        hypervisor: &'a dyn Hypervisor,
        workers: Vec<CreatedWorker>,
        times: WatchTimes,
        samples_hosts: bool,
        news: mpsc::Sender<News>,
    ) -> Self {
        Self { hypervisor, workers, times, samples_hosts, news, stop: Box::new(|| {}) }
    }

    /// With what stops the load as soon as harm is known, before anybody is told.
    pub(crate) fn stopping(self, stop: impl Fn() + Send + Sync + 'a) -> Self {
        Self { stop: Box::new(stop), ..self }
    }

    /// Goes on until it is dropped.
    pub(crate) async fn run(&self) -> Infallible {
        tokio::join!(self.observe(), self.guard(), self.sample_hosts()).0
    }

    async fn tell(&self, news: News) {
        // Whoever took the news is gone: then this is dropped at once.
        let _ = self.news.send(news).await;
    }

    async fn observe(&self) -> Infallible {
        let mut seen = Seen::of(&self.workers);
        let mut silent = false;
        loop {
            match self.hypervisor.observe(&self.workers).await {
                Ok(observed) => {
                    silent = false;
                    for news in seen.news(&self.workers, observed) {
                        self.tell(news).await;
                    }
                }
                Err(error) if !silent => {
                    silent = true;
                    self.tell(News::Watch(format!("the place does not tell whether the workers run: {error}"))).await;
                }
                Err(_) => {}
            }
            sleep(self.times.observe_at(self.hypervisor)).await;
        }
    }

    /// Ends with the first harm: the load stops then, and nothing more is to be said.
    async fn guard(&self) -> Infallible {
        let mut answered = Instant::now();
        let mut blind: Option<String> = None;
        loop {
            let asked = Instant::now();
            let limit = answered + self.times.blind;
            let why = match timeout_at(limit, self.hypervisor.guard(&self.workers)).await {
                Ok(Ok(breaches)) if breaches.is_empty() => {
                    answered = Instant::now();
                    if blind.take().is_some() {
                        self.tell(News::Watch("the guard can look at the place again".to_owned())).await;
                    }
                    sleep_until(asked + self.times.guard).await;
                    continue;
                }
                Ok(Ok(breaches)) => return self.harm(in_words(&breaches)).await,
                Ok(Err(error)) => error.to_string(),
                Err(_) => blind.clone().unwrap_or_else(|| "it does not answer".to_owned()),
            };
            if blind.is_none() {
                let seconds = self.times.blind.as_secs_f64();
                let text =
                    format!("the guard cannot look at the place ({why}); after {seconds} s of that the load stops");
                self.tell(News::Watch(text)).await;
            }
            if Instant::now() >= limit {
                let seconds = self.times.blind.as_secs_f64();
                return self
                    .harm(format!("blind: nobody could look for {seconds} s whether the load does harm: {why}"))
                    .await;
            }
            blind = Some(why);
            sleep_until(limit.min(asked + self.times.guard)).await;
        }
    }

    async fn harm(&self, why: String) -> Infallible {
        (self.stop)();
        self.tell(News::Harm(why)).await;
        pending().await
    }

    async fn sample_hosts(&self) -> Infallible {
        if !self.samples_hosts {
            return pending().await;
        }
        let mut silent = false;
        loop {
            let asked = Instant::now();
            match self.hypervisor.sample_hosts(&self.workers).await {
                Ok(Some(sample)) => {
                    silent = false;
                    self.tell(News::Hosts(sample)).await;
                }
                // This place cannot tell, and will not later.
                Ok(None) => return pending().await,
                Err(error) if !silent => {
                    silent = true;
                    self.tell(News::Watch(format!("the hosts' load is not known: {error}"))).await;
                }
                Err(_) => {}
            }
            sleep_until(asked + self.times.hosts).await;
        }
    }
}

/// `LIMIT: message`, several separated by `; `.
fn in_words(breaches: &[Breach]) -> String {
    let words = breaches.iter().map(|breach| format!("{}: {}", breach.limit, breach.message));
    words.collect::<Vec<_>>().join("; ")
}

/// What is known of the workers, so that each change is said once.
struct Seen {
    /// Host that each worker was last seen on, by name; none where the place has one host.
    hosts: BTreeMap<String, Option<String>>,
    ended: Vec<String>,
}

impl Seen {
    fn of(workers: &[CreatedWorker]) -> Self {
        let hosts = workers.iter().map(|worker| (worker.spec.name.clone(), worker.spec.host.clone()));
        Self { hosts: hosts.collect(), ended: Vec::new() }
    }

    fn news(&mut self, workers: &[CreatedWorker], observed: Vec<hypervisor::Observed>) -> Vec<News> {
        let mut news = Vec::new();
        for (worker, observed) in workers.iter().map(|worker| worker.spec.name.clone()).zip(observed) {
            if let (Some(host), Some(before)) = (observed.host, self.hosts.get_mut(&worker))
                && before.as_ref() != Some(&host)
            {
                *before = Some(host.clone());
                news.push(News::Moved { worker: worker.clone(), host });
            }
            if let WorkerState::Ended(why) = observed.state
                && !self.ended.contains(&worker)
            {
                self.ended.push(worker.clone());
                news.push(News::Ended { worker, why });
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hypervisor::{
        Bootstrap, BoxFuture, Deployment, Finding, HypervisorError, Inventory, Journal, JournalEntry, LeftAlone,
        Observed, WorkerSpec,
    };
    use tokio::time::timeout;

    use super::*;

    /// What the guard answers at each look, the last for ever.
    type Looks = Vec<Result<Vec<&'static str>, &'static str>>;

    /// A place that answers what it is told to.
    #[derive(Default)]
    struct Scripted {
        guard: Looks,
        /// The guard's call of this number never returns.
        hangs_at: Option<usize>,
        observed: Vec<Result<Vec<Observed>, &'static str>>,
        hosts: Vec<Result<Option<HostSample>, &'static str>>,
        looks: AtomicUsize,
        looked_at_workers: AtomicUsize,
        sampled: AtomicUsize,
    }

    fn nth<T: Clone>(all: &[T], counter: &AtomicUsize) -> Option<T> {
        let number = counter.fetch_add(1, Ordering::Relaxed);
        all.get(number).or(all.last()).cloned()
    }

    fn error(text: &str) -> HypervisorError {
        HypervisorError::Unexpected(text.into())
    }

    impl Hypervisor for Scripted {
        fn inventory(&self) -> BoxFuture<'_, Result<Inventory, HypervisorError>> {
            Box::pin(async { Ok(Inventory::default()) })
        }

        fn preflight<'a>(&'a self, _: &'a Deployment) -> BoxFuture<'a, Result<Vec<Finding>, HypervisorError>> {
            Box::pin(async { Ok(Vec::new()) })
        }

        fn create_worker<'a>(
            &'a self,
            _: &'a WorkerSpec,
            _: &'a dyn Journal,
        ) -> BoxFuture<'a, Result<CreatedWorker, HypervisorError>> {
            Box::pin(async { Err(error("nothing is created here")) })
        }

        fn start_worker<'a>(
            &'a self,
            _: &'a CreatedWorker,
            _: &'a Bootstrap,
            _: &'a dyn Journal,
        ) -> BoxFuture<'a, Result<(), HypervisorError>> {
            Box::pin(async { Ok(()) })
        }

        fn stop_worker<'a>(
            &'a self,
            _: &'a CreatedWorker,
            _: &'a dyn Journal,
        ) -> BoxFuture<'a, Result<(), HypervisorError>> {
            Box::pin(async { Ok(()) })
        }

        fn observe<'a>(&'a self, _: &'a [CreatedWorker]) -> BoxFuture<'a, Result<Vec<Observed>, HypervisorError>> {
            Box::pin(async { nth(&self.observed, &self.looked_at_workers).unwrap_or(Ok(Vec::new())).map_err(error) })
        }

        fn guard<'a>(&'a self, _: &'a [CreatedWorker]) -> BoxFuture<'a, Result<Vec<Breach>, HypervisorError>> {
            Box::pin(async {
                if self.hangs_at == Some(self.looks.load(Ordering::Relaxed)) {
                    return pending().await;
                }
                let breach = |limit: &str| Breach { limit: limit.into(), message: "beyond it".into() };
                let answer = nth(&self.guard, &self.looks).unwrap_or(Ok(Vec::new()));
                answer.map(|limits| limits.into_iter().map(breach).collect()).map_err(error)
            })
        }

        fn sample_hosts<'a>(
            &'a self,
            _: &'a [CreatedWorker],
        ) -> BoxFuture<'a, Result<Option<HostSample>, HypervisorError>> {
            Box::pin(async { nth(&self.hosts, &self.sampled).unwrap_or(Ok(None)).map_err(error) })
        }

        fn destroy<'a>(
            &'a self,
            _: &'a [JournalEntry],
            _: &'a dyn Journal,
        ) -> BoxFuture<'a, Result<Vec<LeftAlone>, HypervisorError>> {
            Box::pin(async { Ok(Vec::new()) })
        }

        fn describe(&self) -> BoxFuture<'_, serde_json::Value> {
            Box::pin(async { serde_json::Value::Null })
        }
    }

    fn worker(name: &str, host: &str) -> CreatedWorker {
        let spec = WorkerSpec { name: name.into(), host: Some(host.into()), ..WorkerSpec::default() };
        CreatedWorker { spec, disks: Vec::new(), id: name.into(), mac: None }
    }

    fn on(host: &str, state: WorkerState) -> Observed {
        Observed { state, host: Some(host.into()), sent_bytes: None }
    }

    /// Quick looks: the order of the news is what is looked at.
    const QUICK: WatchTimes = WatchTimes {
        observe: Duration::from_millis(10),
        guard: Duration::from_millis(20),
        blind: Duration::from_millis(500),
        hosts: Duration::from_millis(10),
    };

    /// The first news, at most so many, and whatever comes within a while after them.
    async fn news(place: &Scripted, times: WatchTimes, count: usize) -> Vec<News> {
        let (sender, mut receiver) = mpsc::channel(MAX_NEWS);
        let workers = vec![worker("w1", "pve1"), worker("w2", "pve2")];
        let watch = Watch::new(place, workers, times, true, sender);
        let mut all = Vec::new();
        let take = async {
            while all.len() < count {
                all.extend(timeout(Duration::from_secs(60), receiver.recv()).await.expect("news in time"));
            }
            while let Ok(Some(more)) = timeout(Duration::from_millis(300), receiver.recv()).await {
                all.push(more);
            }
        };
        tokio::select! { never = watch.run() => match never {}, () = take => () }
        all
    }

    #[tokio::test]
    async fn a_breach_is_said_once_and_nothing_is_asked_after_it() {
        let place = Scripted { guard: vec![Ok(vec![]), Ok(vec!["min_free_percent", "quorum"])], ..Scripted::default() };
        let said = news(&place, QUICK, 1).await;
        assert_eq!(said, [News::Harm("min_free_percent: beyond it; quorum: beyond it".into())]);
        assert_eq!(place.looks.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_breach_is_found_in_time() {
        // A look ends before the next is due, so that a breach is read by one that begins within the interval; where the cluster answers
        // within 5 s, that one tells it by then, whatever else hangs.
        let look = hypervisor::proxmox::Timing::default();
        assert!(look.look <= GUARD_INTERVAL && look.known_breach <= Duration::from_secs(5));
        assert!(GUARD_INTERVAL + look.known_breach <= Duration::from_secs(15));
        let times = WatchTimes::default();
        assert_eq!((times.guard, times.blind, times.hosts), (GUARD_INTERVAL, GUARD_BLIND_LIMIT, HOST_SAMPLE_INTERVAL));
    }

    #[tokio::test]
    async fn a_guard_that_is_blind_for_a_while_says_so_and_sees_again() {
        let guard = vec![Ok(vec![]), Err("no route"), Err("no route"), Ok(vec![])];
        let place = Scripted { guard, ..Scripted::default() };
        // So that a machine that is busy does not make it a breach.
        let patient = WatchTimes { blind: Duration::from_secs(60), ..QUICK };
        let said = news(&place, patient, 2).await;
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            matches!(&said[0], News::Watch(text) if text.contains("no route") && text.contains("60 s")),
            "{said:?}"
        );
        assert!(matches!(&said[1], News::Watch(text) if text.contains("again")), "{said:?}");
    }

    #[tokio::test]
    async fn a_guard_that_stays_blind_stops_the_load_at_its_limit() {
        let place = Scripted { guard: vec![Ok(vec![]), Err("no route")], ..Scripted::default() };
        let began = Instant::now();
        let said = news(&place, QUICK, 2).await;
        let why = "blind: nobody could look for 0.5 s whether the load does harm: no route";
        assert_eq!((said.len(), &said[1]), (2, &News::Harm(why.into())), "{said:?}");
        assert!(began.elapsed() >= QUICK.blind, "not before its limit");
        // A call that never returns is no excuse.
        let place = Scripted { hangs_at: Some(1), guard: vec![Ok(vec![])], ..Scripted::default() };
        let said = news(&place, QUICK, 2).await;
        assert!(matches!(said.last(), Some(News::Harm(why)) if why.contains("does not answer")), "{said:?}");
    }

    #[tokio::test]
    async fn moves_and_ends_are_said_once_and_what_cannot_be_told_is_no_end() {
        let running = WorkerState::Running;
        let ended = WorkerState::Ended("VM 9000 is stopped".into());
        let place = Scripted {
            observed: vec![
                Ok(vec![on("pve1", running.clone()), on("pve2", running.clone())]),
                Ok(vec![on("pve1", running.clone()), on("pve3", running.clone())]),
                Ok(vec![on("pve1", WorkerState::Unknown), on("pve3", running)]),
                Err("no route"),
                Ok(vec![on("pve1", ended), on("pve3", WorkerState::Unknown)]),
            ],
            ..Scripted::default()
        };
        let said = news(&place, QUICK, 3).await;
        let moved = News::Moved { worker: "w2".into(), host: "pve3".into() };
        let ended = News::Ended { worker: "w1".into(), why: "VM 9000 is stopped".into() };
        assert_eq!((&said[0], &said[2]), (&moved, &ended), "{said:?}");
        assert!(matches!(&said[1], News::Watch(text) if text.contains("no route")), "{said:?}");
        assert_eq!(said.len(), 3, "{said:?}");
    }

    #[tokio::test]
    async fn hosts_are_sampled_again_and_again_and_not_asked_where_the_place_cannot_tell() {
        let sample = HostSample { hosts: Vec::new(), storage_health: None };
        let hosts = vec![Ok(Some(sample.clone())), Err("no route"), Err("no route"), Ok(Some(sample)), Ok(None)];
        let place = Scripted { hosts, ..Scripted::default() };
        let said = news(&place, QUICK, 3).await;
        let kinds: Vec<bool> = said.iter().map(|news| matches!(news, News::Hosts(_))).collect();
        assert_eq!(kinds, [true, false, true], "the silence is said once: {said:?}");
        assert_eq!(
            place.sampled.load(Ordering::Relaxed),
            5,
            "nothing is asked once the place says that it cannot tell"
        );
    }
}
