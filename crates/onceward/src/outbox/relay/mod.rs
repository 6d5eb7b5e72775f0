//! The relay: leases lanes of the outbox, and delivers what is in them.
//!
//! Read it in this order: `sink_lanes.rs` (which lanes this process works, for one sink), `lane.rs` (the pages of
//! one lane), `flight.rs` (one attempt), `settle.rs` (how a page ends, also if its answer is lost), `health.rs` (when a sink is left alone).
//! What a page and a failure mean is decided by the core: `LaneWork` and `decide_delivery`.

mod flight;
mod health;
mod lane;
mod lease;
mod options;
mod page;
mod settle;
mod shared;
mod sink_lanes;
mod upkeep;

use std::{error::Error, fmt, future::Future, sync::Arc, time::Duration};

use onceward_core::{
    StoreError,
    message::{DeadLetters, InspectQueue, SinkName, StartFrom},
    retry::Rules,
};
use tokio::{sync::watch, task::JoinSet};

use super::{Sink, spans::BeginSpan};
pub use options::{OtherTopics, RelayBuildError, RelayBuilder, SinkOptions};
use shared::RelayRun;
use sink_lanes::SinkLanes;

/// Delivers what is in an outbox: to each of its sinks, in order per aggregate, until it was accepted.
///
/// Several relays on one outbox share its lanes, and take over those of one that died. A relay that is
/// dropped while it runs is like one that died: what it had sent and not written down is sent again.
///
/// ```
/// use std::sync::Arc;
/// use onceward::{message::InspectQueue, outbox::{Relay, RelayError, Sink}};
///
/// async fn deliver(queue: Arc<dyn InspectQueue>, billing: impl Sink) -> Result<(), RelayError> {
///     let relay = Relay::builder(queue).sink("billing", billing).build().expect("one sink, and the usual rules");
///     relay.run(async { stopped().await }).await
/// }
/// # async fn stopped() {}
/// ```
pub struct Relay {
    queue: Arc<dyn InspectQueue>,
    sinks: Arc<[Arc<SinkPlan>]>,
    lease: Duration,
    retain: Duration,
    drain: Duration,
    other_topics: OtherTopics,
    spans: Option<BeginSpan>,
    woken: watch::Sender<()>,
}

/// One sink, as it was asked for.
struct SinkPlan {
    name: SinkName,
    sink: Arc<dyn Sink>,
    rules: Rules,
    in_flight: u32,
    from: StartFrom,
    dead_letters: DeadLetters,
}

impl Relay {
    /// How many sinks a relay can have.
    pub const MAX_SINKS: usize = 64;
    /// After how long other relays take over, if not said otherwise.
    pub const LEASE: Duration = Duration::from_secs(10);
    /// The shortest lease.
    pub const MIN_LEASE: Duration = Duration::from_secs(1);
    /// The longest lease.
    pub const MAX_LEASE: Duration = Duration::from_secs(600);
    /// How long messages are kept, if not said otherwise.
    pub const RETAIN: Duration = Duration::from_secs(7 * 86_400);
    /// For how long attempts are waited for at shutdown, if not said otherwise.
    pub const DRAIN: Duration = Duration::from_secs(20);

    /// Begins a relay on this outbox.
    pub fn builder(queue: Arc<dyn InspectQueue>) -> RelayBuilder {
        RelayBuilder::new(queue)
    }

    /// By which rules messages are sent again, if not said otherwise: 20 attempts of 15 s, with full jitter up
    /// to a second before the second and up to an hour before the last; a sink that asks for a longer wait gets
    /// 3 h at most.
    ///
    /// ```
    /// use onceward::outbox::Relay;
    ///
    /// let rules = Relay::rules().to_builder().attempts(5).build()?;
    /// assert_eq!(rules.attempts(), 5);
    /// # Ok::<(), onceward::retry::RulesError>(())
    /// ```
    #[must_use]
    pub fn rules() -> Rules {
        options::rules()
    }

    /// The outbox that it works on.
    #[must_use]
    pub fn queue(&self) -> &Arc<dyn InspectQueue> {
        &self.queue
    }

    /// The names of its sinks.
    pub fn sinks(&self) -> impl Iterator<Item = &SinkName> {
        self.sinks.iter().map(|plan| &plan.name)
    }

    /// Wakes it when something was committed, so that it need not find out by asking.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(self.woken.clone())
    }

    /// Delivers until `shutdown` ends; then lets attempts under way end, writes down what became of them, and
    /// gives its lanes back.
    ///
    /// An outbox that does not answer, or must not be relayed at the moment, is asked again and again.
    ///
    /// # Errors
    ///
    /// The outbox cannot be used as it is, and asking again does not help. Nothing was sent.
    pub async fn run(&self, shutdown: impl Future<Output = ()> + Send) -> Result<(), RelayError> {
        let run = Arc::new(RelayRun::new(self));
        let stop = watch::Sender::new(false);
        let work = self.work(&run, &stop);
        let (mut shutdown, mut work) = (std::pin::pin!(shutdown), std::pin::pin!(work));
        tokio::select! {
            ended = &mut work => return ended,
            () = &mut shutdown => { stop.send_replace(true); }
        }
        work.await
    }

    async fn work(
        &self,
        run: &Arc<RelayRun>,
        stop: &watch::Sender<bool>,
    ) -> Result<(), RelayError> {
        let mut sinks = Vec::new();
        for plan in self.sinks.iter() {
            let Some(sink) = run.open(plan, stop.subscribe()).await? else { return Ok(()) };
            sinks.push(sink);
        }
        // An outbox that must not be relayed says so before anything is sent.
        upkeep::look(run, &sinks).await;
        let mut lanes = JoinSet::new();
        for sink in &sinks {
            let sink_lanes = SinkLanes::new(run.clone(), sink.clone());
            lanes.spawn(sink_lanes.run(stop.subscribe(), self.woken.subscribe()));
        }
        let mut upkeep = JoinSet::new();
        upkeep.spawn(upkeep::sweep(run.clone(), self.retain));
        upkeep.spawn(upkeep::watch(run.clone(), sinks));
        while let Some(ended) = lanes.join_next().await {
            if let Err(error) = ended {
                // Only a mistake of ours ends one of them before its time.
                std::panic::resume_unwind(error.into_panic());
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.sinks().map(SinkName::as_str).collect();
        formatter.debug_struct("Relay").field("sinks", &names).finish_non_exhaustive()
    }
}

/// Wakes a relay of this process: a courtesy after a commit. Cheap to clone.
///
/// A relay that no process wakes finds new messages within 100 ms.
///
/// ```
/// use onceward::outbox::Relay;
///
/// fn committed(relay: &Relay) {
///     relay.waker().wake();
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Waker(watch::Sender<()>);

impl Waker {
    /// Something was committed.
    pub fn wake(&self) {
        self.0.send_replace(());
    }
}

/// Why a relay cannot run: asking again does not help.
///
/// ```
/// use onceward::{StoreError, outbox::{RelayError, SinkName}};
///
/// let error = RelayError {
///     sink: SinkName::new("billing")?,
///     error: StoreError::Unusable("the server is a read-only standby".into()),
/// };
/// assert!(error.to_string().contains("standby"));
/// # Ok::<(), onceward::outbox::MessageError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayError {
    /// The sink whose place could not be found.
    pub sink: SinkName,
    /// What the outbox said.
    pub error: StoreError,
}

impl fmt::Display for RelayError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sink, error } = self;
        write!(
            formatter,
            "the relay cannot find the place of `{sink}` in the outbox, and nothing was sent: {error}"
        )
    }
}

impl Error for RelayError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}
