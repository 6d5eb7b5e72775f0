//! Which lanes of a sink this process works: leased, renewed, watched while idle, given back.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use onceward_core::{
    StoreError,
    message::{Lane, LeaseRequest, Position},
    retry::Moment,
};
use tokio::{
    sync::watch,
    task::{Id, JoinError, JoinSet},
    time::{sleep_until, timeout},
};

use super::{
    lane::{LaneEnd, LaneRun},
    lease::LaneLease,
    shared::{RelayRun, SinkRun, TROUBLE},
};
use crate::{
    crashpoint,
    engine::injected,
    telemetry::{QueueCall, event},
};

/// How often idle lanes are asked about: at once after there was something, and ever more seldom after that, by an
/// eighth each time. Some thirty questions, of which each costs the outbox a tenth of a millisecond, follow a message.
const PROBES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// The lanes of one sink.
pub(super) struct SinkLanes {
    run: Arc<RelayRun>,
    sink: Arc<SinkRun>,
    held: BTreeMap<Lane, HeldLane>,
    tasks: JoinSet<Done>,
    /// Which lane, and which tenure of it, a task works.
    working: HashMap<Id, (Lane, u64)>,
    tenures: u64,
    last_begun: Option<Lane>,
    is_renewing: bool,
    is_probing: bool,
    /// It was woken while a question was under way, whose answer may be older than what woke it.
    is_woken: bool,
    renew_at: Moment,
    probe_at: Moment,
    probe_wait: Duration,
}

/// A lane from its take-over to its loss.
struct HeldLane {
    tenure: u64,
    lease: Arc<LaneLease>,
    /// `None`: it is worked.
    idle: Option<Position>,
}

enum Done {
    Renewed { asked: Moment, answer: Result<Vec<Position>, StoreError> },
    Probed(Result<Vec<Lane>, StoreError>),
    Worked(LaneEnd),
}

impl SinkLanes {
    pub(super) fn new(run: Arc<RelayRun>, sink: Arc<SinkRun>) -> Self {
        let now = run.now();
        Self {
            run,
            sink,
            held: BTreeMap::new(),
            tasks: JoinSet::new(),
            working: HashMap::new(),
            tenures: 0,
            last_begun: None,
            is_renewing: false,
            is_probing: false,
            is_woken: false,
            renew_at: now,
            probe_at: now,
            probe_wait: PROBES.0,
        }
    }

    pub(super) async fn run(
        mut self,
        mut stop: watch::Receiver<bool>,
        mut woken: watch::Receiver<()>,
    ) {
        while !*stop.borrow() {
            let now = self.run.now();
            self.renew(now);
            self.probe(now);
            let idle_until = self.run.at(self.next_step(now));
            tokio::select! {
                Some(done) = self.tasks.join_next_with_id() => self.take(done),
                () = sleep_until(idle_until) => {}
                _ = woken.changed() => self.woken(),
                _ = stop.changed() => {}
            }
        }
        self.give_back().await;
    }

    fn woken(&mut self) {
        self.probe_at = Moment::ZERO;
        self.is_woken = self.is_probing;
    }

    fn renew(&mut self, now: Moment) {
        if self.is_renewing || now < self.renew_at {
            return;
        }
        self.is_renewing = true;
        self.renew_at = now + self.run.lease / 3;
        let request =
            LeaseRequest { sink: self.sink.id, relay: self.run.id, lease: self.run.lease };
        let run = self.run.clone();
        self.tasks.spawn(async move {
            let lease = run.ask(QueueCall::Lease, run.queue.lease(&request));
            let answer = crashpoint!("relay.lease", lease.await, injected());
            Done::Renewed { asked: now, answer }
        });
    }

    /// Asks which idle lanes have something, in one question.
    fn probe(&mut self, now: Moment) {
        if self.is_probing || now < self.probe_at || !self.may_begin(now) {
            return;
        }
        let is_valid = |held: &&HeldLane| held.lease.is_valid(now);
        let idle = self.held.values().filter(is_valid).filter_map(|held| held.idle.clone());
        let idle: Vec<Position> = idle.collect();
        if idle.is_empty() {
            return;
        }
        self.is_probing = true;
        let run = self.run.clone();
        self.tasks.spawn(async move {
            Done::Probed(run.ask(QueueCall::Waiting, run.queue.waiting(&idle)).await)
        });
    }

    /// Whether a lane may begin to be worked. While the sink is suspected to be down, one at a time.
    fn may_begin(&self, now: Moment) -> bool {
        let is_resting = now < self.sink.health.until();
        self.sink.numbers.is_paused(is_resting);
        let is_alone = self.working.is_empty();
        self.run.is_open() && !is_resting && (is_alone || !self.sink.is_suspect(now))
    }

    /// When something is to be done again, if nothing happens before.
    fn next_step(&self, now: Moment) -> Moment {
        let probe_at = self.probe_at.max(self.sink.health.until());
        // What keeps a probe from being made now ends with a task, or at the latest with a renewal.
        let probe_at = if probe_at <= now { Moment::MAX } else { probe_at };
        let renew_at = if self.is_renewing { Moment::MAX } else { self.renew_at };
        probe_at.min(renew_at).min(now + self.run.lease / 3)
    }

    fn take(&mut self, done: Result<(Id, Done), JoinError>) {
        match done {
            Ok((_, Done::Renewed { asked, answer })) => self.renewed(asked, answer),
            Ok((_, Done::Probed(answer))) => self.probed(answer),
            Ok((id, Done::Worked(end))) => self.worked(id, end),
            // An outbox panicked: what it was asked is asked anew, from what is stored.
            Err(error) => match self.working.remove(&error.id()) {
                Some((lane, tenure)) => self.forget(lane, tenure),
                None => {
                    (self.is_renewing, self.is_probing) = (false, false);
                    self.probe_at = self.run.now() + TROUBLE;
                }
            },
        }
        self.sink.numbers.holds(self.held.len());
    }

    /// Takes the lanes that are ours now. A lease counts from before it was asked for.
    fn renewed(&mut self, asked: Moment, answer: Result<Vec<Position>, StoreError>) {
        self.is_renewing = false;
        let now = self.run.now();
        let Ok(positions) = answer else {
            self.renew_at = now + TROUBLE.min(self.run.lease / 6);
            return;
        };
        let until = asked + self.run.lease;
        let mut before = std::mem::take(&mut self.held);
        for position in positions {
            let lane = position.lane;
            let held = match before.remove(&lane) {
                Some(held) if held.lease.extend(until, now) => held.moved_to(position),
                Some(held) => {
                    held.lease.lose();
                    self.taken_over(position, until)
                }
                None => self.taken_over(position, until),
            };
            self.held.insert(lane, held);
        }
        for (lane, lost) in before {
            lost.lease.lose();
            tracing::debug!(
                event = event::LANE_LOST,
                sink = self.sink.name(),
                lane = lane.number()
            );
        }
    }

    fn taken_over(&mut self, position: Position, until: Moment) -> HeldLane {
        self.tenures += 1;
        self.probe_at = Moment::ZERO;
        let lease = Arc::new(LaneLease::until(until));
        HeldLane { tenure: self.tenures, lease, idle: Some(position) }
    }

    fn probed(&mut self, answer: Result<Vec<Lane>, StoreError>) {
        self.is_probing = false;
        let now = self.run.now();
        let Ok(lanes) = answer else {
            (self.probe_at, self.is_woken) = (now + TROUBLE, false);
            return;
        };
        // In turn, because a sink that is suspected to be down gets one lane's message as its probe.
        let (earlier, later): (Vec<_>, Vec<_>) =
            lanes.into_iter().partition(|lane| Some(*lane) <= self.last_begun);
        for lane in later.into_iter().chain(earlier) {
            if self.may_begin(now) {
                self.begin(lane);
            }
        }
        if std::mem::take(&mut self.is_woken) {
            return;
        }
        // Until a lane that has begun now moves on.
        self.probe_at = now + self.probe_wait;
        self.probe_wait = (self.probe_wait * 9 / 8).min(PROBES.1);
    }

    fn begin(&mut self, lane: Lane) {
        // An earlier tenure may still write down what it did: what it has sent is not to be sent again.
        if self.working.values().any(|(working, _)| *working == lane) {
            return;
        }
        let Some(held) = self.held.get_mut(&lane) else { return };
        let Some(position) = held.idle.take() else { return };
        let (run, sink, lease) = (self.run.clone(), self.sink.clone(), held.lease.clone());
        let work = LaneRun { run, sink, lease }.work(position);
        let task = self.tasks.spawn(async { Done::Worked(work.await) });
        self.working.insert(task.id(), (lane, held.tenure));
        self.last_begun = Some(lane);
    }

    fn worked(&mut self, id: Id, end: LaneEnd) {
        let Some((lane, tenure)) = self.working.remove(&id) else { return };
        let now = self.run.now();
        let position = match end {
            LaneEnd::Idle { position, has_moved } => {
                if has_moved {
                    self.probe_wait = PROBES.0;
                    self.probe_at = self.probe_at.min(now + PROBES.0);
                }
                position
            }
            LaneEnd::Troubled(position) => {
                self.probe_at = now + TROUBLE;
                position
            }
            LaneEnd::Lost => return self.forget(lane, tenure),
        };
        if let Some(held) = self.held.get_mut(&lane) {
            let is_newer = held.idle.as_ref().is_none_or(|idle| idle.step < position.step);
            if held.tenure == tenure || is_newer {
                held.idle = Some(position);
            }
        }
    }

    /// What is stored says whether it is ours: the next renewal brings it back, if it is.
    fn forget(&mut self, lane: Lane, tenure: u64) {
        if self.held.get(&lane).is_some_and(|held| held.tenure == tenure) {
            self.held.remove(&lane);
            self.renew_at = self.renew_at.min(self.run.now() + TROUBLE.min(self.run.lease / 6));
        }
    }

    /// Lets what is under way end, for as long as the relay may take, and gives the lanes back.
    async fn give_back(mut self) {
        self.run.end();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(self.run.drain, ended).await.is_err() {
            tracing::warn!(
                event = event::LANE_LOST,
                sink = self.sink.name(),
                "attempts did not end in time; whoever takes these lanes over sends their messages again"
            );
            self.tasks.shutdown().await;
        }
        let given_back = self.run.queue.give_back(self.sink.id, self.run.id);
        // If that fails, the lanes are free when their lease is over.
        let given_back = self.run.ask(QueueCall::GiveBack, given_back);
        let _ = crashpoint!("relay.give_back", given_back.await, injected());
        self.sink.numbers.holds(0);
    }
}

impl HeldLane {
    /// A renewal says where an idle lane is: an operator may have changed it.
    fn moved_to(mut self, position: Position) -> Self {
        if self.idle.as_ref().is_some_and(|idle| idle.step < position.step) {
            self.idle = Some(position);
        }
        self
    }
}
