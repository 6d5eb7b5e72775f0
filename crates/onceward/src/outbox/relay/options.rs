//! How a relay is put together, and what does not fit together.

use std::{collections::BTreeSet, error::Error, fmt, sync::Arc, time::Duration};

use onceward_core::{
    message::{DeadLetters, InspectQueue, Message, SinkName, StartFrom},
    retry::{Backoff, Rules},
};
use tokio::sync::watch;

use super::{Relay, SinkPlan};
use crate::outbox::{Attempt, DeliverySpan, Sink, spans::BeginSpan};

/// What becomes of topics that no sink of this relay takes.
///
/// ```
/// use onceward::outbox::OtherTopics;
///
/// assert_eq!(OtherTopics::default(), OtherTopics::Die);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherTopics {
    /// Their messages become dead letters of the sink that was named first, and are counted.
    #[default]
    Die,
    /// Other relays on this outbox have sinks for them: this one passes them by.
    Pass,
}

/// How one sink of a relay differs from the others.
///
/// ```
/// use onceward::outbox::{DeadLetters, SinkOptions, StartFrom};
///
/// let options = SinkOptions::default()
///     .in_flight(8)
///     .from(StartFrom::Oldest)
///     .dead_letters(DeadLetters::Skip);
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "options are given to a sink"]
pub struct SinkOptions {
    rules: Option<Rules>,
    in_flight: Option<u32>,
    from: StartFrom,
    dead_letters: DeadLetters,
}

impl SinkOptions {
    /// By which rules messages are sent again, if not by those of the relay.
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = Some(rules);
        self
    }

    /// How many messages may be on their way to it at once, of all aggregates together: 64, if not said otherwise.
    pub fn in_flight(mut self, messages: u32) -> Self {
        self.in_flight = Some(messages);
        self
    }

    /// Where it begins if the outbox does not know it: with what commits from now on, if not said otherwise.
    pub fn from(mut self, from: StartFrom) -> Self {
        self.from = from;
        self
    }

    /// Whether dead letters block the later messages of their aggregates: they do, if not said otherwise.
    pub fn dead_letters(mut self, dead_letters: DeadLetters) -> Self {
        self.dead_letters = dead_letters;
        self
    }
}

/// A relay that is being put together.
///
#[cfg_attr(feature = "reqwest", doc = "```")]
#[cfg_attr(not(feature = "reqwest"), doc = "```ignore")]
/// use std::{sync::Arc, time::Duration};
/// use onceward::{message::InspectQueue, outbox::{HttpSink, Relay}};
///
/// fn relay(queue: Arc<dyn InspectQueue>) -> Result<Relay, Box<dyn std::error::Error>> {
///     let billing = HttpSink::new("https://billing.example/events")?;
///     let relay = Relay::builder(queue)
///         .sink("billing", billing)
///         .retain(Duration::from_secs(14 * 86_400))
///         .build()?;
///     Ok(relay)
/// }
/// ```
#[must_use = "a relay is made by `build`"]
pub struct RelayBuilder {
    queue: Arc<dyn InspectQueue>,
    sinks: Vec<(String, Arc<dyn Sink>, SinkOptions)>,
    rules: Rules,
    lease: Duration,
    retain: Duration,
    drain: Duration,
    other_topics: OtherTopics,
    spans: Option<BeginSpan>,
}

/// As many messages are on their way to one sink at once.
const IN_FLIGHT: u32 = 64;

impl RelayBuilder {
    pub(super) fn new(queue: Arc<dyn InspectQueue>) -> Self {
        Self {
            queue,
            sinks: Vec::new(),
            rules: Relay::rules(),
            lease: Relay::LEASE,
            retain: Relay::RETAIN,
            drain: Relay::DRAIN,
            other_topics: OtherTopics::default(),
            spans: None,
        }
    }

    /// Adds a sink. The outbox keeps its place under this name.
    pub fn sink(self, name: &str, sink: impl Sink) -> Self {
        self.sink_with(name, sink, SinkOptions::default())
    }

    /// Adds a sink with options of its own.
    pub fn sink_with(mut self, name: &str, sink: impl Sink, options: SinkOptions) -> Self {
        self.sinks.push((name.to_owned(), Arc::new(sink), options));
        self
    }

    /// By which rules messages are sent again: see [`Relay::rules`].
    ///
    /// A message that failed as often as they have attempts is a dead letter. Their deadline is the longest wait
    /// before another attempt; their limit of calls in flight is not used.
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// After how long other relays take over the lanes of one that does not answer: 10 s, if not said otherwise.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long messages are kept after they were enqueued, if every sink has them: 7 days, if not said otherwise.
    ///
    /// Messages that wait, are held or are dead are kept however old they are.
    pub fn retain(mut self, retain: Duration) -> Self {
        self.retain = retain;
        self
    }

    /// For how long attempts that are under way at shutdown are waited for: 20 s, if not said otherwise.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// What becomes of topics that no sink of this relay takes.
    pub fn other_topics(mut self, other_topics: OtherTopics) -> Self {
        self.other_topics = other_topics;
        self
    }

    /// Begins a span for each attempt, as a child of the message's `trace`. Without this, sinks pass on the
    /// producer's `traceparent` as it is.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use onceward::{message::InspectQueue, outbox::{Attempt, DeliverySpan, Message, Relay, RelayBuilder, Sent}};
    ///
    /// fn begin(message: &Message, attempt: &Attempt) -> DeliverySpan {
    ///     let (own, topic) = (child_of(message.trace.as_deref()), message.topic.clone());
    ///     let number = attempt.number;
    ///     DeliverySpan::new(own, move |sent: &Sent| println!("send {topic}, attempt {number}: {sent:?}"))
    /// }
    /// # fn child_of(parent: Option<&str>) -> String { parent.unwrap_or_default().into() }
    ///
    /// fn traced(queue: Arc<dyn InspectQueue>) -> RelayBuilder {
    ///     Relay::builder(queue).spans(begin)
    /// }
    /// ```
    pub fn spans(
        mut self,
        begin: impl Fn(&Message, &Attempt) -> DeliverySpan + Send + Sync + 'static,
    ) -> Self {
        self.spans = Some(Arc::new(begin));
        self
    }

    /// The relay, if its options fit together.
    ///
    /// # Errors
    ///
    /// They do not; the error says which, and what to do.
    pub fn build(self) -> Result<Relay, RelayBuildError> {
        let mut sinks = Vec::with_capacity(self.sinks.len());
        let mut names = BTreeSet::new();
        for (text, sink, options) in self.sinks {
            let name = SinkName::new(&text).map_err(|_| RelayBuildError::Name(text.clone()))?;
            if !names.insert(text) {
                return Err(RelayBuildError::NamedTwice(name));
            }
            let rules = options.rules.unwrap_or_else(|| self.rules.clone());
            let longest = longest_delivery(&rules);
            if self.retain < longest {
                return Err(RelayBuildError::Retention { name, retain: self.retain, longest });
            }
            let in_flight = options.in_flight.unwrap_or(IN_FLIGHT);
            if in_flight == 0 {
                return Err(RelayBuildError::NothingInFlight(name));
            }
            let SinkOptions { from, dead_letters, .. } = options;
            sinks.push(Arc::new(SinkPlan { name, sink, rules, in_flight, from, dead_letters }));
        }
        if sinks.is_empty() {
            return Err(RelayBuildError::NoSink);
        }
        if sinks.len() > Relay::MAX_SINKS {
            return Err(RelayBuildError::TooManySinks(sinks.len()));
        }
        if !(Relay::MIN_LEASE..=Relay::MAX_LEASE).contains(&self.lease) {
            return Err(RelayBuildError::Lease(self.lease));
        }
        Ok(Relay {
            queue: self.queue,
            sinks: sinks.into(),
            lease: self.lease,
            retain: self.retain,
            drain: self.drain,
            other_topics: self.other_topics,
            spans: self.spans,
            woken: watch::Sender::new(()),
        })
    }
}

impl fmt::Debug for RelayBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.sinks.iter().map(|(name, ..)| name.as_str()).collect();
        formatter.debug_struct("RelayBuilder").field("sinks", &names).finish_non_exhaustive()
    }
}

/// 20 attempts of 15 s, a second to an hour apart.
pub(super) fn rules() -> Rules {
    let backoff = Backoff::Full { base: Duration::from_secs(1), cap: Duration::from_secs(3_600) };
    let rules = Rules::patient()
        .to_builder()
        .attempts(20)
        .attempt_timeout(Duration::from_secs(15))
        .deadline(Duration::from_secs(3 * 3_600))
        .backoff(backoff);
    rules.build().expect("the numbers above fit together")
}

/// If every attempt times out and every wait is the longest.
fn longest_delivery(rules: &Rules) -> Duration {
    rules.attempt_timeout().saturating_add(rules.deadline()).saturating_mul(rules.attempts())
}

/// Why a relay cannot be as it was put together.
///
/// ```
/// use onceward::outbox::RelayBuildError;
///
/// let error = RelayBuildError::NoSink;
/// assert!(error.to_string().contains("no sink"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelayBuildError {
    /// It has no sink.
    NoSink,
    /// It has more sinks than [`Relay::MAX_SINKS`].
    TooManySinks(usize),
    /// This cannot be the name of a sink.
    Name(String),
    /// Two sinks have this name.
    NamedTwice(SinkName),
    /// No message may be on its way to this sink.
    NothingInFlight(SinkName),
    /// No relay can use a lease of this length.
    Lease(Duration),
    /// Messages would be deleted that may still be on their way.
    Retention {
        /// To this sink.
        name: SinkName,
        /// So long are messages kept.
        retain: Duration,
        /// So long may it take until a message is delivered or dead.
        longest: Duration,
    },
}

impl fmt::Display for RelayBuildError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSink => formatter.write_str(
                "the relay has no sink, so that nothing would be delivered: add one with `sink`",
            ),
            Self::TooManySinks(number) => write!(
                formatter,
                "the relay has {number} sinks, and takes at most {}: divide them among several relays, with \
                 `OtherTopics::Pass`",
                Relay::MAX_SINKS
            ),
            Self::Name(name) => write!(
                formatter,
                "a sink cannot be called {name:?}: its name has 1 to 255 bytes and no control characters"
            ),
            Self::NamedTwice(name) => write!(
                formatter,
                "two sinks are called `{name}`, and the outbox keeps one place for that name, so that each message \
                 would go to one of them by chance: give them different names"
            ),
            Self::NothingInFlight(name) => write!(
                formatter,
                "no message may be in flight to `{name}`, so that nothing would be delivered: allow at least one, or \
                 leave the sink out"
            ),
            Self::Lease(lease) => write!(
                formatter,
                "a lease of {lease:?} is outside {:?} to {:?}: shorter ones are lost whenever a process pauses for a \
                 moment, and after a crash nothing is delivered until longer ones are over",
                Relay::MIN_LEASE,
                Relay::MAX_LEASE
            ),
            Self::Retention { name, retain, longest } => write!(
                formatter,
                "messages are kept for {retain:?}, and by the rules of `{name}` it may take {longest:?} until one is \
                 delivered or dead, so that consumers that remember ids for as long as messages are kept could \
                 take a repeat for a new message: retain them for longer, or allow fewer attempts or a shorter \
                 deadline"
            ),
        }
    }
}

impl Error for RelayBuildError {}
