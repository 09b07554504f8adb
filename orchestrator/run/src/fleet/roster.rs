//! All members behind one lock, the channel of events, and the sessions that are up.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use worker_protocol::{Hello, OrchestratorMessage, PROTOCOL_VERSION, Reject, StartAt, WorkerMessage};

use super::{
    barrier::StartPlan,
    clock::ClockOffset,
    disks,
    error::{CommandError, EnrolError, Missing},
    identity::{Stranger, recognise},
    member::{Link, Member, Received},
    refusals::Refusals,
    settings::{Expected, FleetEvent, FleetSettings, OUTBOUND_QUEUE},
};

/// Measurements of one clock that may wait for their turn.
const PROBE_REQUESTS: usize = 4;

/// What the fleet's tasks share.
pub(super) struct Shared {
    pub(super) settings: FleetSettings,
    /// Ends every task of the fleet.
    pub(super) cancel: CancellationToken,
    events: mpsc::Sender<FleetEvent>,
    roster: Mutex<Roster>,
    /// Counts changes of links and clocks, for those who wait for one.
    changes: watch::Sender<u64>,
}

/// The members and their sessions.
pub(super) struct Roster {
    seats: Vec<Seat>,
    refused: Refusals,
    shutting_down: bool,
    generations: u64,
}

struct Seat {
    member: Member,
    session: Option<SessionHandle>,
    /// Of the newest session, also when that is over.
    last_generation: u64,
}

/// How to reach a session's tasks.
struct SessionHandle {
    generation: u64,
    outbound: mpsc::Sender<Outbound>,
    probes: mpsc::Sender<oneshot::Sender<ClockOffset>>,
    cancel: CancellationToken,
}

/// Which session of which member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionId {
    seat: usize,
    generation: u64,
}

/// A session just admitted.
pub(super) struct Admitted {
    pub(super) id: SessionId,
    pub(super) worker: String,
    pub(super) outbound: mpsc::Receiver<Outbound>,
    pub(super) to_self: mpsc::Sender<Outbound>,
    pub(super) probes: mpsc::Receiver<oneshot::Sender<ClockOffset>>,
    pub(super) cancel: CancellationToken,
}

/// What a session's writer sends.
#[derive(Debug)]
pub(super) enum Outbound {
    /// A message.
    Message(OrchestratorMessage),
    /// A clock probe; the time of its departure goes back through the channel.
    Probe(u64, oneshot::Sender<u64>),
}

/// Why a message ends its session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SessionError {
    /// The caller does not take events.
    Slow,
    /// Another session of the same worker has taken over.
    Replaced,
    /// The worker broke the protocol.
    Violation(&'static str),
}

impl Shared {
    pub(super) fn new(settings: FleetSettings, events: mpsc::Sender<FleetEvent>) -> Self {
        let seats = settings.expected.iter().cloned().map(Seat::new).collect();
        let refused = Refusals::new(Instant::now());
        let roster = Roster { seats, refused, shutting_down: false, generations: 0 };
        Self {
            settings,
            cancel: CancellationToken::new(),
            events,
            roster: Mutex::new(roster),
            changes: watch::Sender::new(0),
        }
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Room for one event. An error where the caller takes none in time, or none ever again.
    async fn room(&self) -> Result<mpsc::Permit<'_, FleetEvent>, SessionError> {
        match tokio::time::timeout(self.settings.limits.event_timeout, self.events.reserve()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(SessionError::Slow),
        }
    }

    fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Writes a refusal down. Strangers may cause any number: too many in a short time are only counted, and an event takes the
    /// emptier half of the queue only, since the workers' events must find room.
    pub(super) fn refuse(&self, peer: &str, reason: &str) {
        let mut roster = self.roster();
        if let Some(reason) = roster.refused.add(peer, reason, Instant::now()) {
            tracing::warn!(peer, reason, "refused a worker connection");
            if self.events.capacity() > self.events.max_capacity() / 2 {
                let _ = self.events.try_send(FleetEvent::Refused { peer: peer.to_owned(), reason });
            }
        }
        drop(roster);
        self.changed();
    }

    /// Takes a worker with a valid token in, or says why not.
    pub(super) async fn admit(&self, hello: Hello) -> Result<Admitted, Reject> {
        // Enrolled, and either the loss of a job with the process before or the failure of one that was not kept.
        let room = tokio::time::timeout(self.settings.limits.event_timeout, self.events.reserve_many(2)).await;
        let Ok(Ok(room)) = room else { return Err(reject("the orchestrator is busy; try again".to_owned(), false)) };
        let mut roster = self.roster();
        let seat = roster.judge(&hello)?;
        let member = &roster.seats[seat].member;
        let same_process = member.is_same_process(&hello);
        let resumed = same_process && !matches!(member.link, Link::Lost(_));
        let lost = roster.seats[seat].displace(same_process);
        let catch_up = roster.seats[seat].member.enrol(hello.clone(), Instant::now());
        let admitted = roster.open_session(seat, &self.cancel);
        let enrolled = FleetEvent::Enrolled { worker: admitted.worker.clone(), hello: Box::new(hello), resumed };
        let events = lost.into_iter().chain([enrolled]).chain(catch_up.event);
        room.zip(events).for_each(|(room, event)| room.send(event));
        let shutdown = roster.shutting_down.then_some(OrchestratorMessage::Shutdown);
        for message in catch_up.messages.into_iter().chain(shutdown) {
            roster.seats[seat].say(message);
        }
        drop(roster);
        self.changed();
        Ok(admitted)
    }

    /// Hands a worker's message on. Room for its event is found first, so that nothing is marked as told and then lost.
    pub(super) async fn receive(&self, session: SessionId, message: WorkerMessage) -> Result<(), SessionError> {
        let room = self.room().await?;
        let mut roster = self.roster();
        let seat = roster.seat_of(session).ok_or(SessionError::Replaced)?;
        match seat.member.receive(message) {
            Received::Event(event) => room.send(event),
            Received::Answer(answer) => seat.say(answer),
            Received::Known => (),
            Received::Violation(what) => return Err(SessionError::Violation(what)),
        }
        Ok(())
    }

    pub(super) fn record_path_mtu(&self, session: SessionId, bytes: u32) {
        if let Some(seat) = self.roster().seat_of(session) {
            seat.member.path_mtu_bytes = Some(bytes);
        }
    }

    pub(super) fn record_offset(&self, session: SessionId, offset: ClockOffset) {
        if let Some(seat) = self.roster().seat_of(session) {
            seat.member.clock.record(offset);
        }
        self.changed();
    }

    /// The session is over. Answers whether its worker is now away (and not already served by a later session).
    pub(super) async fn end_session(&self, session: SessionId, why: &str) -> bool {
        let room = self.room_for_ever().await;
        let mut roster = self.roster();
        let shutting_down = roster.shutting_down;
        let Some(seat) = roster.seat_of(session) else { return false };
        seat.session = None;
        let away = seat.member.link == Link::Up;
        if away {
            seat.member.link = Link::Away;
            let event = FleetEvent::Disconnected { worker: seat.member.name().to_owned(), why: why.to_owned() };
            room.into_iter().for_each(|room| room.send(event.clone()));
        }
        drop(roster);
        self.changed();
        away && !shutting_down
    }

    /// Gives a worker up that has been away since `session`.
    pub(super) async fn lose_if_away(&self, session: SessionId, why: String) {
        let room = self.room_for_ever().await;
        let mut roster = self.roster();
        let last = roster.seats[session.seat].last_generation == session.generation;
        if !last || roster.seats[session.seat].member.link != Link::Away || roster.shutting_down {
            return;
        }
        let lost = roster.seats[session.seat].member.lose(why);
        room.into_iter().for_each(|room| room.send(lost.clone()));
        drop(roster);
        self.changed();
    }

    /// Gives a worker up whose process or machine is known to be gone.
    pub(super) async fn lose(&self, worker: &str, why: String) -> Result<(), CommandError> {
        let room = self.room_for_ever().await;
        let mut roster = self.roster();
        let shutting_down = roster.shutting_down;
        let seat = roster.seat_named(worker)?;
        if shutting_down || matches!(seat.member.link, Link::Lost(_)) {
            return Ok(());
        }
        seat.hang_up();
        let lost = seat.member.lose(why);
        room.into_iter().for_each(|room| room.send(lost.clone()));
        drop(roster);
        self.changed();
        Ok(())
    }

    /// Room for an event that must be told, however long the caller takes; none once the fleet or the caller is gone.
    async fn room_for_ever(&self) -> Option<mpsc::Permit<'_, FleetEvent>> {
        tokio::select! {
            room = self.events.reserve() => room.ok(),
            () = self.cancel.cancelled() => None,
        }
    }

    /// Records a command with the member and tells its session, where one is up.
    pub(super) fn command(
        &self,
        worker: &str,
        record: impl FnOnce(&mut Member) -> Result<OrchestratorMessage, CommandError>,
    ) -> Result<(), CommandError> {
        let mut roster = self.roster();
        let seat = roster.seat_named(worker)?;
        let message = record(&mut seat.member)?;
        seat.say(message);
        Ok(())
    }

    /// Asks a member whether it could take a command.
    pub(super) fn command_check(
        &self,
        worker: &str,
        check: impl FnOnce(&mut Member) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        check(&mut self.roster().seat_named(worker)?.member)
    }

    /// Starts all or none.
    pub(super) fn start_together(&self, plan: &StartPlan) -> Result<(), CommandError> {
        let mut roster = self.roster();
        for planned in &plan.workers {
            roster.seat_named(&planned.worker)?.member.check_startable(plan.job)?;
        }
        for planned in &plan.workers {
            let seat = roster.seat_named(&planned.worker)?;
            let start = StartAt { job: plan.job, worker_ns: planned.worker_ns };
            let message = seat.member.start_at(start)?;
            seat.say(message);
        }
        Ok(())
    }

    /// Looks at a member.
    pub(super) fn look<T>(&self, worker: &str, look: impl FnOnce(&Member) -> T) -> Result<T, CommandError> {
        Ok(look(&self.roster().seat_named(worker)?.member))
    }

    /// Looks at all members, in the order of [`FleetSettings::expected`].
    pub(super) fn look_at_all<T>(&self, look: impl FnMut(&Member) -> T) -> Vec<T> {
        self.roster().seats.iter().map(|seat| &seat.member).map(look).collect()
    }

    /// Asks a worker's session for a new measurement of its clock.
    pub(super) fn ask_probe(&self, worker: &str) -> Result<oneshot::Receiver<ClockOffset>, CommandError> {
        let mut roster = self.roster();
        let seat = roster.seat_named(worker)?;
        seat.member.reachable()?;
        let no_clock = |why| CommandError::NoClock { worker: worker.to_owned(), why };
        let session = seat.session.as_ref().ok_or_else(|| no_clock("it is away"))?;
        let (answer, measured) = oneshot::channel();
        session.probes.try_send(answer).map_err(|_| no_clock("too many measurements are waiting"))?;
        Ok(measured)
    }

    /// Tells every worker, now or when it comes back, to end.
    pub(super) fn shut_down(&self) {
        let mut roster = self.roster();
        roster.shutting_down = true;
        roster.seats.iter().for_each(|seat| seat.say(OrchestratorMessage::Shutdown));
    }

    /// Who is missing, and whether waiting may help; none where everybody is here and their clocks are known.
    pub(super) fn missing(&self, waited_seconds: f64) -> Option<(EnrolError, bool)> {
        let roster = self.roster();
        let mut hopeless = false;
        let mut missing = Vec::new();
        for member in roster.seats.iter().map(|seat| &seat.member) {
            let why = match (&member.link, &member.refusal) {
                (Link::Up, _) if member.clock.latest().is_some() => continue,
                (Link::Up, _) => Some("its clock is not measured yet".to_owned()),
                // Whoever was refused for good ends: that is the reason, not its end.
                (link, Some((why, permanent))) => {
                    hopeless |= *permanent || matches!(link, Link::Lost(_));
                    Some(why.clone())
                }
                (Link::Lost(why), None) => {
                    hopeless = true;
                    Some(why.clone())
                }
                (Link::Away, None) => Some("its session broke off".to_owned()),
                (Link::Never, None) => None,
            };
            let refused = member.refusal.is_some();
            missing.push(Missing { worker: member.name().to_owned(), why, refused });
        }
        let refused = roster.refused.kept();
        (!missing.is_empty()).then_some((EnrolError { missing, refused, waited_seconds }, hopeless))
    }
}

impl Roster {
    /// The seat of a worker that may come in.
    fn judge(&mut self, hello: &Hello) -> Result<usize, Reject> {
        let expected = self.seats.iter().map(|seat| &seat.member.expected);
        let at = recognise(expected, hello).map_err(|stranger| reject(self.describe(&stranger, hello), true))?;
        let member = &mut self.seats[at].member;
        if member.is_same_process(hello) {
            return Ok(at);
        }
        if member.link == Link::Up {
            let name = member.name();
            let reason =
                format!("another worker with the identity of {name} has a session; it is refused until that ends");
            return Err(reject(reason, false));
        }
        if let Some(mismatch) = disks::mismatch(&member.expected.disks, hello) {
            member.refusal = Some((mismatch.clone(), true));
            return Err(reject(mismatch, true));
        }
        Ok(at)
    }

    fn describe(&self, stranger: &Stranger, hello: &Hello) -> String {
        let macs = shown(&hello.macs.join(", "));
        let with_macs = if macs.is_empty() { String::new() } else { format!(" or MAC address {macs}") };
        let name = |place: usize| self.seats[place].member.name();
        match *stranger {
            Stranger::Unknown => {
                format!("no worker with UUID {:?}{with_macs} belongs to this fleet", shown(&hello.uuid))
            }
            Stranger::Torn(by_uuid, by_mac) => format!(
                "its UUID {:?} is that of {}, but a MAC address of {macs} is that of {}",
                shown(&hello.uuid),
                name(by_uuid),
                name(by_mac),
            ),
            Stranger::Copy(place) => format!(
                "its UUID {:?} is that of {}, but of its MAC addresses {macs} none is",
                shown(&hello.uuid),
                name(place)
            ),
            Stranger::TwoAtOnce(one, other) => {
                format!("its MAC addresses {macs} are those of {} and of {}", name(one), name(other))
            }
        }
    }

    fn open_session(&mut self, at: usize, fleet: &CancellationToken) -> Admitted {
        self.generations += 1;
        let generation = self.generations;
        let (outbound_in, outbound) = mpsc::channel(OUTBOUND_QUEUE);
        let (probes_in, probes) = mpsc::channel(PROBE_REQUESTS);
        let cancel = fleet.child_token();
        let seat = &mut self.seats[at];
        seat.last_generation = generation;
        seat.session = Some(SessionHandle {
            generation,
            outbound: outbound_in.clone(),
            probes: probes_in,
            cancel: cancel.clone(),
        });
        let id = SessionId { seat: at, generation };
        let worker = seat.member.name().to_owned();
        Admitted { id, worker, outbound, to_self: outbound_in, probes, cancel }
    }

    fn seat_of(&mut self, session: SessionId) -> Option<&mut Seat> {
        let up = |seat: &&mut Seat| seat.session.as_ref().is_some_and(|up| up.generation == session.generation);
        self.seats.get_mut(session.seat).filter(up)
    }

    fn seat_named(&mut self, worker: &str) -> Result<&mut Seat, CommandError> {
        let named = self.seats.iter_mut().find(|seat| seat.member.name() == worker);
        named.ok_or_else(|| CommandError::UnknownWorker(worker.to_owned()))
    }
}

impl Seat {
    fn new(expected: Expected) -> Self {
        Self { member: Member::new(expected), session: None, last_generation: 0 }
    }

    /// Makes place for a new session: ends an older one of the same process, and gives up what another process held.
    fn displace(&mut self, same_process: bool) -> Option<FleetEvent> {
        self.hang_up();
        let restarted = !same_process && self.member.link == Link::Away;
        let why = "it came back as another process (restarted)";
        restarted.then(|| self.member.lose(why.to_owned()))
    }

    fn hang_up(&mut self) {
        if let Some(session) = self.session.take() {
            session.cancel.cancel();
        }
    }

    /// Queues a message; a session whose queue is full ends, and the worker is told when it is back.
    fn say(&self, message: OrchestratorMessage) {
        let Some(session) = &self.session else { return };
        if session.outbound.try_send(Outbound::Message(message)).is_err() {
            tracing::warn!(worker = self.member.name(), "the worker does not take messages; its session ends");
            session.cancel.cancel();
        }
    }
}

/// A refusal of this orchestrator.
pub(super) fn reject(reason: String, permanent: bool) -> Reject {
    Reject { protocol_version: PROTOCOL_VERSION, reason, permanent }
}

/// What a stranger sent, short enough for a log.
fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}
