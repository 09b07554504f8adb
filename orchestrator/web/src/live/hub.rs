//! The run under way, for everybody who watches it: one bounded state, one message a second, replay for who was away.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use analysis::export::{EarlyEnd, Event, How};
use jiff::Timestamp;
use plan::{Schedule, Target, TestPlan};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;
use uuid::Uuid;

use super::beat::{Beat, CaseSecond, Health, LiveEnd, LiveProgress, SoFar};
use super::figures::{self, FIGURE_NAMES, Figures};
use super::heat::HeatWindow;
use super::history::{Bucket, Change, History};
use super::prospect::{self, Prospect};
use super::steps::{self, StepView};

/// Seconds that are kept one by one, beside the whole run in bounded steps.
pub(crate) const RECENT_SECONDS: usize = 300;
/// Messages that are kept for viewers who come back; who was away longer gets the whole state.
const REPLAYED_MESSAGES: usize = 60;
/// Messages that a slow viewer may lag behind before it gets the whole state.
const LAG_MESSAGES: usize = 32;
/// Lines of events that the page shows; the report has all of them.
pub(crate) const LOG_LINES: usize = 200;
/// Words of the guard that are shown beside the hosts, the last ones.
const GUARD_LINES: usize = 5;

/// The run under way in this process, or the last one.
#[derive(Debug)]
pub struct Hub {
    /// Tells this process's messages from those of an earlier one.
    epoch: u64,
    pub(super) viewers: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// None once the server stops: streams end then.
    sender: Option<broadcast::Sender<Arc<Message>>>,
    sequence: u64,
    replay: VecDeque<Arc<Message>>,
    run: Option<LiveRun>,
}

/// A message to all viewers.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) run: Uuid,
    pub(crate) sequence: u64,
    pub(crate) json: String,
}

#[derive(Debug)]
struct LiveRun {
    id: Uuid,
    name: String,
    began: Timestamp,
    steps: Vec<StepView>,
    progress: LiveProgress,
    history: History,
    recent: VecDeque<(u32, Figures)>,
    heat: HeatWindow,
    log: VecDeque<Event>,
    /// The place can tell the load of its hosts.
    tells_health: bool,
    health: Option<Health>,
    warnings: Vec<String>,
    guard: VecDeque<Event>,
    so_far: Option<SoFar>,
    end: Option<LiveEnd>,
    /// Somebody ends it early.
    ending: Option<EarlyEnd>,
}

/// What a viewer starts from.
pub(crate) struct Joined {
    /// Messages since then; none once the server stops.
    pub(crate) receiver: Option<broadcast::Receiver<Arc<Message>>>,
    /// What was missed, in order.
    pub(crate) missed: Vec<Arc<Message>>,
}

impl Default for Hub {
    fn default() -> Self {
        let state = State {
            sender: Some(broadcast::Sender::new(LAG_MESSAGES)),
            sequence: 0,
            replay: VecDeque::new(),
            run: None,
        };
        let epoch = Timestamp::now().as_millisecond().unsigned_abs();
        Self { epoch, viewers: AtomicUsize::new(0), state: Mutex::new(state) }
    }
}

impl Hub {
    /// A run begins; viewers of another one see its end.
    pub fn begin(&self, id: Uuid, began: Timestamp, plan: &TestPlan, schedule: &Schedule) {
        let mut state = self.lock();
        state.replay.clear();
        state.run = Some(LiveRun {
            id,
            name: plan.name.clone(),
            began,
            steps: steps::steps(plan, schedule),
            progress: LiveProgress { state: "planned".to_owned(), ..LiveProgress::default() },
            history: History::default(),
            recent: VecDeque::new(),
            heat: HeatWindow::default(),
            log: VecDeque::new(),
            tells_health: matches!(plan.target, Target::Proxmox(_)),
            health: None,
            warnings: Vec::new(),
            guard: VecDeque::new(),
            so_far: None,
            end: None,
            ending: None,
        });
        drop(state);
        self.send(|run, message| run.describe(message));
    }

    /// Something is new; about once a second.
    pub fn beat(&self, beat: Beat) {
        self.send(|run, message| run.take(beat, message));
    }

    /// Somebody asked run `id` to end early. Where another one is shown, its viewers are not told.
    pub fn ending(&self, id: Uuid, end: EarlyEnd) {
        self.send_of(id, |run, message| {
            run.ending = Some(end);
            message.insert("ending".to_owned(), run.ending_json());
        });
    }

    /// Run `id` has ended. Where another one has begun since, its viewers are not told.
    pub fn end(&self, id: Uuid, end: LiveEnd) {
        self.send_of(id, |run, message| {
            let now = run.now();
            let done = if end.state == "done" { run.steps.len() } else { run.progress.step_index };
            let mut changed = steps::advance(&mut run.steps, done, now);
            if let Some(step) = run.steps.get_mut(done) {
                step.ended.get_or_insert(now);
                changed.push(done);
            }
            run.steps_into(message, &changed);
            message.insert("end".to_owned(), json!(end));
            run.end = Some(end);
        });
    }

    /// The server stops: every stream ends.
    pub fn close(&self) {
        self.lock().sender = None;
    }

    /// Id of the run that the hub shows, and whether it goes on.
    #[must_use]
    pub fn shows(&self) -> Option<(Uuid, bool)> {
        self.lock().run.as_ref().map(|run| (run.id, run.end.is_none()))
    }

    /// How far run `id` is; none where the hub does not show it.
    #[must_use]
    pub fn progress(&self, id: Uuid) -> Option<LiveProgress> {
        self.lock().run.as_ref().filter(|run| run.id == id).map(|run| run.progress.clone())
    }

    /// How run `id` is being ended early; none where the hub does not show it, or nobody asked for it.
    #[must_use]
    pub fn ended_by(&self, id: Uuid) -> Option<EarlyEnd> {
        self.lock().run.as_ref().filter(|run| run.id == id)?.ending.clone()
    }

    /// What ending run `id` now does; none where the hub does not show it, or it has ended.
    #[must_use]
    pub fn prospect(&self, id: Uuid, how: How) -> Option<Prospect> {
        self.lock().going_on(id).map(|run| run.prospect(how))
    }

    /// Why asking run `id` to end so changes nothing any more; none where it does, or the hub does not show it.
    #[must_use]
    pub fn no_more(&self, id: Uuid, how: How) -> Option<String> {
        let state = self.lock();
        let run = state.going_on(id)?;
        match &run.ending {
            Some(end) if end.how == How::Cancel && how == How::Stop => {
                Some(format!("{} has cancelled the run: a stop changes nothing any more.", end.by))
            }
            _ if prospect::is_ending(&run.steps, &run.progress) => Some(prospect::ENDS_ALREADY.to_owned()),
            _ => None,
        }
    }

    /// The figures so far of the case of run `id` that goes on; none where the hub does not show it, or between cases.
    #[must_use]
    pub fn so_far(&self, id: Uuid) -> Option<SoFar> {
        self.lock().run.as_ref().filter(|run| run.id == id)?.so_far.clone()
    }

    /// The whole state of run `id`; none where the hub does not show it.
    pub(crate) fn snapshot(&self, id: Uuid) -> Option<Snapshot> {
        let state = self.lock();
        let run = state.run.as_ref().filter(|run| run.id == id)?;
        let event_id = self.event_id(state.sequence);
        let mut message = Map::new();
        message.insert("id".to_owned(), Value::String(event_id.clone()));
        run.describe(&mut message);
        Some(Snapshot {
            event_id,
            sequence: state.sequence,
            json: Value::Object(message).to_string(),
            name: run.name.clone(),
            began: run.began,
            steps: run.steps.clone(),
            progress: run.progress.clone(),
            log: run.log.iter().cloned().collect(),
            tells_health: run.tells_health,
            health: run.health.clone(),
            warnings: run.warnings.clone(),
            guard: run.guard.iter().cloned().collect(),
            end: run.end.clone(),
            ending: run.ending.clone(),
            prospects: [How::Stop, How::Cancel].map(|how| run.prospect(how).words),
        })
    }

    /// Joins the viewers. `last` is the id of the last message that the viewer has; none or an unknown one means that it needs the
    /// whole state first, and the answer is none.
    pub(crate) fn join(
        &self,
        id: Uuid,
        last: Option<&str>,
    ) -> (Option<Joined>, Option<broadcast::Receiver<Arc<Message>>>) {
        let state = self.lock();
        let receiver = state.sender.as_ref().map(broadcast::Sender::subscribe);
        match last.and_then(|last| self.sequence_of(last)).and_then(|last| state.since(id, last)) {
            Some(missed) => (Some(Joined { receiver, missed }), None),
            None => (None, receiver),
        }
    }

    /// The id of a message, as the viewer gives it back.
    pub(crate) fn event_id(&self, sequence: u64) -> String {
        format!("{}-{sequence}", self.epoch)
    }

    fn sequence_of(&self, id: &str) -> Option<u64> {
        let (epoch, sequence) = id.split_once('-')?;
        (epoch.parse() == Ok(self.epoch)).then_some(())?;
        sequence.parse().ok()
    }

    /// Tells a change of the run that is shown, whichever that is.
    fn send(&self, change: impl FnOnce(&mut LiveRun, &mut Map<String, Value>)) {
        self.send_where(|_| true, change);
    }

    /// Tells a change of run `id`; nothing where another one is shown.
    fn send_of(&self, id: Uuid, change: impl FnOnce(&mut LiveRun, &mut Map<String, Value>)) {
        self.send_where(|run| run.id == id, change);
    }

    fn send_where(
        &self,
        is_it: impl FnOnce(&LiveRun) -> bool,
        change: impl FnOnce(&mut LiveRun, &mut Map<String, Value>),
    ) {
        let mut state = self.lock();
        let sequence = state.sequence + 1;
        let Some(run) = state.run.as_mut().filter(|run| is_it(run)) else { return };
        let mut message = Map::new();
        change(run, &mut message);
        message.insert("now".to_owned(), super::history::shorten_time(run.now()).into());
        let message = Arc::new(Message { run: run.id, sequence, json: Value::Object(message).to_string() });
        state.sequence = sequence;
        state.replay.push_back(Arc::clone(&message));
        if state.replay.len() > REPLAYED_MESSAGES {
            state.replay.pop_front();
        }
        // Nobody may be watching.
        let _ = state.sender.as_ref().map(|sender| sender.send(message));
    }

    /// A panic elsewhere leaves figures for a person, nothing that must hold together.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Run `id`, where it is shown and has not ended.
    fn going_on(&self, id: Uuid) -> Option<&LiveRun> {
        self.run.as_ref().filter(|run| run.id == id && run.end.is_none())
    }

    /// The messages after `last`; none where some of them are not kept any more, or are about another run.
    fn since(&self, id: Uuid, last: u64) -> Option<Vec<Arc<Message>>> {
        self.run.as_ref().filter(|run| run.id == id)?;
        let oldest = self.replay.front().map_or(self.sequence + 1, |message| message.sequence);
        (last + 1 >= oldest && last <= self.sequence)
            .then(|| self.replay.iter().filter(|message| message.sequence > last).cloned().collect())
    }
}

/// What the page shows before its script runs.
pub(crate) struct Snapshot {
    /// Id of the message that it holds the place of.
    pub(crate) event_id: String,
    pub(crate) sequence: u64,
    /// Everything, as the page's script takes it.
    pub(crate) json: String,
    pub(crate) name: String,
    pub(crate) began: Timestamp,
    pub(crate) steps: Vec<StepView>,
    pub(crate) progress: LiveProgress,
    pub(crate) log: Vec<Event>,
    pub(crate) tells_health: bool,
    pub(crate) health: Option<Health>,
    pub(crate) warnings: Vec<String>,
    pub(crate) guard: Vec<Event>,
    pub(crate) end: Option<LiveEnd>,
    pub(crate) ending: Option<EarlyEnd>,
    /// What a stop and a cancellation would do.
    pub(crate) prospects: [String; 2],
}

impl LiveRun {
    /// Seconds since the run began.
    fn now(&self) -> f64 {
        Timestamp::now().duration_since(self.began).as_secs_f64().max(0.0)
    }

    /// Everything, as the first message to a viewer.
    fn describe(&self, message: &mut Map<String, Value>) {
        let recent: Vec<Value> = self.recent.iter().map(|(at, figures)| second_json(*at, figures)).collect();
        let whole = json!({
            "now": super::history::shorten_time(self.now()),
            "run": { "id": self.id, "name": self.name, "began": self.began.as_millisecond(), "steps": self.steps },
            "names": FIGURE_NAMES,
            "progress": self.progress,
            "history": self.history,
            "recent": recent,
            "heat": self.heat.map(),
            "log": self.log,
            "tells_health": self.tells_health,
            "health": self.health,
            "warnings": self.warnings,
            "guard": self.guard,
            "ending": self.ending_json(),
            "prospects": self.prospects_json(),
            "end": self.end,
        });
        if let Value::Object(whole) = whole {
            message.extend(whole);
        }
    }

    /// What ending it now does.
    fn prospect(&self, how: How) -> Prospect {
        prospect::prospect(how, &self.steps, &self.progress, Timestamp::now())
    }

    /// How it is being ended early: `{how, words}`, or null.
    fn ending_json(&self) -> Value {
        self.ending.as_ref().map_or(Value::Null, |end| json!({ "how": end.how, "words": prospect::ending(end) }))
    }

    /// What a stop and a cancellation would do, in words.
    fn prospects_json(&self) -> Value {
        let words = |how| self.prospect(how).words;
        json!({ "stop": words(How::Stop), "cancel": words(How::Cancel) })
    }

    fn take(&mut self, beat: Beat, message: &mut Map<String, Value>) {
        if let Some(progress) = beat.progress {
            let now = self.now();
            let changed = steps::advance(&mut self.steps, progress.step_index, now);
            self.steps_into(message, &changed);
            message.insert("progress".to_owned(), json!(progress));
            self.progress = progress;
            message.insert("prospects".to_owned(), self.prospects_json());
        }
        if let Some(layout) = beat.layout {
            self.heat.begin(layout);
            self.so_far = None;
        }
        self.so_far = beat.so_far.or(self.so_far.take());
        if let Some(health) = beat.health {
            message.insert("health".to_owned(), json!(health));
            self.health = Some(health);
        }
        if let Some(warnings) = beat.warnings {
            message.insert("warnings".to_owned(), json!(warnings));
            self.warnings = warnings;
        }
        let figures = |second: &CaseSecond| {
            let (reads, writes) = second.asked;
            second.second.as_ref().map(|second| figures::of_case(second, reads, writes))
        };
        let fresh: Vec<(u32, Option<Figures>)> = beat
            .seconds
            .iter()
            .map(|second| (second.at, figures(second)))
            .chain(beat.fill.map(|(at, mib_per_s)| (at, Some(figures::of_fill(mib_per_s)))))
            .collect();
        let beaten = beat.seconds.iter().any(|second| !second.disks.is_empty());
        beat.seconds
            .into_iter()
            .filter(|second| !second.disks.is_empty())
            .for_each(|second| self.heat.add(second.at, second.disks));
        if beaten {
            message.insert("heat".to_owned(), json!(self.heat.map()));
        }
        self.series_into(message, &fresh);
        if !beat.events.is_empty() {
            message.insert("events".to_owned(), json!(beat.events));
            self.heed_guard(&beat.events, message);
            self.log.extend(beat.events);
            self.log.drain(..self.log.len().saturating_sub(LOG_LINES));
        }
    }

    fn heed_guard(&mut self, events: &[Event], message: &mut Map<String, Value>) {
        let of_guard = |event: &&Event| event.level != "info" && event.message.contains("guard");
        let before = self.guard.len();
        self.guard.extend(events.iter().filter(of_guard).cloned());
        if self.guard.len() > before {
            self.guard.drain(..self.guard.len().saturating_sub(GUARD_LINES));
            message.insert("guard".to_owned(), json!(self.guard));
        }
    }

    fn steps_into(&self, message: &mut Map<String, Value>, changed: &[usize]) {
        let times: Vec<Value> = changed
            .iter()
            .filter_map(|index| Some(json!([index, self.steps.get(*index)?.began, self.steps.get(*index)?.ended])))
            .collect();
        if !times.is_empty() {
            message.insert("steps".to_owned(), Value::Array(times));
        }
    }

    /// New seconds one by one, but for those that are missing, and the buckets of the whole run that they changed: all where it was folded.
    fn series_into(&mut self, message: &mut Map<String, Value>, fresh: &[(u32, Option<Figures>)]) {
        if fresh.is_empty() {
            return;
        }
        let mut folded = false;
        let mut changed: BTreeMap<u32, Bucket> = BTreeMap::new();
        for (at, figures) in fresh {
            match self.history.add(*at, figures.as_ref()) {
                Change::Folded => folded = true,
                Change::Bucket(place) => {
                    let bucket = self.history.buckets[place].clone();
                    changed.insert(bucket.index, bucket);
                }
            }
            self.recent.extend(figures.map(|figures| (*at, figures)));
        }
        self.recent.drain(..self.recent.len().saturating_sub(RECENT_SECONDS));
        let seconds: Vec<Value> =
            fresh.iter().filter_map(|(at, figures)| Some(second_json(*at, figures.as_ref()?))).collect();
        message.insert("seconds".to_owned(), Value::Array(seconds));
        if folded {
            message.insert("history".to_owned(), json!(self.history));
        } else {
            message.insert("buckets".to_owned(), json!(changed.values().collect::<Vec<_>>()));
        }
    }
}

/// `[second, figure, …]` in the order of [`FIGURE_NAMES`].
fn second_json(at: u32, figures: &Figures) -> Value {
    let values = figures.iter().map(|value| value.map(super::history::shorten).into());
    std::iter::once(Value::from(at)).chain(values).collect()
}

#[cfg(test)]
mod tests {
    use analysis::export::{HostLoad, Ops, Second, SecondOp};

    use super::*;
    use crate::live::heat::DiskBeat;

    fn started() -> (Hub, Uuid) {
        let (hub, id) = (Hub::default(), Uuid::now_v7());
        let plan = plan::parse("demo", plan::DEMO_PLAN, &plan::Profiles::shipped()).unwrap();
        let schedule = plan::schedule(&plan, plan::FillRate::assumed());
        hub.begin(id, Timestamp::now(), &plan, &schedule);
        (hub, id)
    }

    fn second(at: u32) -> Beat {
        let op = SecondOp { iops: 10.0, mib_per_s: 1.0, mean_us: 5.0, p50_us: 4.0, p99_us: 7.0, max_us: 8.0 };
        let disks = [("w1".to_owned(), vec![DiskBeat { count: 10, sum_ns: 50_000, max_ns: 8_000, errors: 0 }])];
        let second = Second { t: at, read: Some(op), write: None };
        let second = CaseSecond { at, second: Some(second), asked: (true, false), disks: disks.into() };
        Beat { seconds: vec![second], ..Beat::default() }
    }

    fn whole(hub: &Hub, id: Uuid) -> Value {
        serde_json::from_str(&hub.snapshot(id).unwrap().json).unwrap()
    }

    #[test]
    fn a_day_of_seconds_leaves_a_state_of_bounded_size() {
        let (hub, id) = started();
        hub.beat(Beat { layout: Some(vec![("w1".into(), vec!["d1".into()])]), ..Beat::default() });
        for at in 0..86_400 {
            hub.beat(second(at));
        }
        for line in 0..1_000 {
            let event = Event { at: Timestamp::now(), level: "info".into(), message: format!("line {line}") };
            hub.beat(Beat { events: vec![event], ..Beat::default() });
        }
        let state = whole(&hub, id);
        assert_eq!(state["recent"].as_array().unwrap().len(), RECENT_SECONDS);
        assert_eq!(state["recent"][RECENT_SECONDS - 1][0], 86_399);
        assert_eq!(state["log"].as_array().unwrap().len(), LOG_LINES);
        assert_eq!(state["log"][LOG_LINES - 1]["message"], "line 999");
        assert_eq!(state["heat"]["rows"][0]["cells"][0][2], 5.0);
        let size = state.to_string().len();
        assert!(size < 160 << 10, "{size} bytes");
        assert!(hub.lock().replay.len() <= REPLAYED_MESSAGES);
    }

    #[test]
    fn hosts_warnings_and_the_guard_are_told_and_kept_within_bounds() {
        let (hub, id) = started();
        assert!(whole(&hub, id)["health"].is_null() && whole(&hub, id)["tells_health"] == false, "the demo is local");
        let host = |cpu| HostLoad {
            host: "pve1".into(),
            cpu_percent: Some(cpu),
            memory_used_bytes: None,
            memory_bytes: None,
            io_pressure_percent: None,
            io_wait_percent: None,
        };
        for cpu in [10.0, 20.0] {
            let health = Health { at: Timestamp::now(), hosts: vec![host(cpu)], storage: None };
            hub.beat(Beat { health: Some(health), warnings: Some(vec!["w1 was moved".into()]), ..Beat::default() });
        }
        let event = |level: &str, message: String| Event { at: Timestamp::now(), level: level.into(), message };
        let guard = (0..9).map(|number| event("warning", format!("the guard cannot look {number}")));
        let others = [event("info", "the guard can look again".into()), event("error", "no disk".into())];
        hub.beat(Beat { events: guard.chain(others).collect(), ..Beat::default() });
        hub.beat(Beat::default());
        let state = whole(&hub, id);
        assert_eq!(state["health"]["hosts"][0]["cpu_percent"], 20.0);
        assert_eq!(state["warnings"], json!(["w1 was moved"]));
        let guard: Vec<&str> =
            state["guard"].as_array().unwrap().iter().filter_map(|event| event["message"].as_str()).collect();
        assert_eq!(guard.len(), GUARD_LINES);
        assert_eq!(guard[GUARD_LINES - 1], "the guard cannot look 8");
    }

    #[test]
    fn a_second_without_the_cluster_is_a_gap_and_the_disks_of_it_are_shown() {
        let (hub, id) = started();
        hub.beat(Beat { layout: Some(vec![("w1".into(), vec!["d1".into()])]), ..Beat::default() });
        hub.beat(second(0));
        let mut gap = second(1);
        gap.seconds[0].second = None;
        hub.beat(gap);
        let state = whole(&hub, id);
        assert_eq!(state["recent"].as_array().unwrap().len(), 1);
        assert_eq!((&state["heat"]["seconds"], &state["heat"]["newest"]), (&json!(2), &json!(1)));
        let missing = |bucket: usize| state["history"]["buckets"][bucket].as_array().unwrap().last().unwrap().clone();
        assert_eq!((missing(0), missing(1)), (json!(0), json!(1)));
    }

    #[test]
    fn the_figures_so_far_are_of_the_case_under_way() {
        let (hub, id) = started();
        let so_far = |ordinal| SoFar { ordinal, workers: 2, seconds: 5, ops: Ops::default() };
        hub.beat(Beat { layout: Some(Vec::new()), so_far: Some(so_far(0)), ..Beat::default() });
        hub.beat(Beat::default());
        assert_eq!(hub.so_far(id), Some(so_far(0)));
        assert_eq!(hub.so_far(Uuid::nil()), None);
        hub.beat(Beat { layout: Some(Vec::new()), ..Beat::default() });
        assert_eq!(hub.so_far(id), None, "the next case has none yet");
    }

    #[test]
    fn who_was_away_gets_what_was_missed_or_the_whole() {
        let (hub, id) = started();
        for at in 0..10 {
            hub.beat(second(at));
        }
        let last = whole(&hub, id)["id"].as_str().unwrap().to_owned();
        hub.beat(second(10));
        hub.beat(second(11));
        let (joined, _) = hub.join(id, Some(&last));
        let missed = joined.unwrap().missed;
        assert_eq!(missed.len(), 2);
        let first: Value = serde_json::from_str(&missed[0].json).unwrap();
        assert_eq!(first["seconds"][0][0], 10);
        for unknown in [None, Some("1-3"), Some("x"), Some(&*hub.event_id(99))] {
            assert!(hub.join(id, unknown).0.is_none(), "{unknown:?}");
        }
        assert!(hub.join(Uuid::nil(), Some(&last)).0.is_none(), "another run");
        for at in 12..100 {
            hub.beat(second(at));
        }
        assert!(hub.join(id, Some(&last)).0.is_none(), "away for too long");
    }

    #[test]
    fn a_new_run_is_told_from_the_one_before() {
        let (hub, old) = started();
        let last = whole(&hub, old)["id"].as_str().unwrap().to_owned();
        let plan = plan::parse("demo", plan::DEMO_PLAN, &plan::Profiles::shipped()).unwrap();
        let new = Uuid::now_v7();
        hub.begin(new, Timestamp::now(), &plan, &plan::schedule(&plan, plan::FillRate::assumed()));
        assert!(hub.snapshot(old).is_none());
        assert!(hub.join(old, Some(&last)).0.is_none());
        assert_eq!(hub.shows(), Some((new, true)));
        let failed = || LiveEnd { state: "failed".into(), reason: Some("no disk".into()) };
        hub.end(old, failed());
        assert_eq!(hub.shows(), Some((new, true)), "the end of the one before comes late");
        hub.end(new, failed());
        assert_eq!(hub.shows(), Some((new, false)));
        let state = whole(&hub, new);
        assert_eq!(state["end"]["reason"], "no disk");
        assert!(state["run"]["steps"][1]["began"].is_null(), "what was not reached did not begin");
    }

    #[tokio::test]
    async fn closing_ends_every_stream() {
        let (hub, id) = started();
        let (_, receiver) = hub.join(id, None);
        let mut receiver = receiver.unwrap();
        hub.close();
        assert!(matches!(receiver.recv().await, Err(broadcast::error::RecvError::Closed)));
        assert!(hub.join(id, None).1.is_none());
    }
}
