//! Which answers requests with a key got, for each route.

use std::{
    collections::HashMap,
    fmt,
    sync::{LazyLock, PoisonError, RwLock},
};

use super::{
    Begun, SECONDS, event,
    metric::{is_on, registered},
};
use crate::server::Code;
use http::StatusCode;
use onceward_core::Digest;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts};

static REQUESTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    let about = "Requests by route and by the answer that they got.";
    let options = Opts::new("onceward_requests_total", about);
    registered(IntCounterVec::new(options, &["route", "result"]))
});

static DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    let about = "How long requests with a key took until their answer began.";
    let options = HistogramOpts::new("onceward_request_duration_seconds", about);
    registered(HistogramVec::new(options.buckets(SECONDS.to_vec()), &["route"]))
});

const OTHER: &str = "other";

/// Which answer a request got; in the extensions of the layer's answers.
///
/// ```
/// use onceward::{server::Code, telemetry::Answered};
///
/// assert_eq!(Answered::Replayed.as_str(), "replayed");
/// assert_eq!(Answered::Refused(Code::KeyReused).as_str(), "key-reused");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answered {
    /// The answer of the execution that it started.
    First,
    /// The stored answer.
    Replayed,
    /// The stored answer, after it waited for it.
    Waited,
    /// 202: it runs.
    Accepted,
    /// The answer of a service that ran without a record, because the store was down.
    Unprotected,
    /// The answer of a service that ran without a key.
    Passed,
    /// A refusal.
    Refused(Code),
}

impl Answered {
    /// The word for it in metrics, logs and traces: a refusal has its code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Replayed => "replayed",
            Self::Waited => "waited",
            Self::Accepted => "accepted",
            Self::Unprotected => "unprotected",
            Self::Passed => "passed",
            Self::Refused(code) => code.as_str(),
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        use Answered::{Accepted, First, Passed, Refused, Replayed, Unprotected, Waited};
        let answers = [First, Replayed, Waited, Accepted, Unprotected, Passed];
        answers.into_iter().chain(Code::ALL.into_iter().map(Refused))
    }

    fn index(self) -> usize {
        match self {
            Self::First => 0,
            Self::Replayed => 1,
            Self::Waited => 2,
            Self::Accepted => 3,
            Self::Unprotected => 4,
            Self::Passed => 5,
            Self::Refused(code) => 6 + code as usize,
        }
    }
}

/// Where the requests of a route are counted. Cheap to copy.
///
/// Their number is bounded: the requests of all further routes are counted as `other`.
///
/// ```
/// use onceward::telemetry::{Answered, Route};
///
/// let route = Route::named("POST /charges");
/// route.count(Answered::Replayed);
/// let line = "onceward_requests_total{result=\"replayed\",route=\"POST /charges\"} 1\n";
/// assert!(onceward::telemetry::prometheus().contains(line));
/// ```
#[derive(Clone, Copy)]
pub struct Route(&'static Counted);

struct Counted {
    name: String,
    /// One for each answer.
    requests: Box<[IntCounter]>,
    duration: Histogram,
}

impl Route {
    /// How many routes have numbers of their own.
    pub const MAX: usize = 200;

    /// The route of this name; what is counted for it stays, also when the route is gone.
    #[must_use]
    pub fn named(name: &str) -> Self {
        if name == OTHER {
            return Self::other();
        }
        let known = ROUTES.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(route) = known.get(name) {
            return *route;
        }
        drop(known);
        let mut known = ROUTES.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= Self::MAX && !known.contains_key(name) {
            return Self::other();
        }
        // Leaked, and bounded: a route that is counted once is shown for ever.
        *known.entry(name.to_owned()).or_insert_with(|| Self(Box::leak(Counted::new(name))))
    }

    /// Where everything is counted that has no name of its own.
    #[must_use]
    pub fn other() -> Self {
        static COUNTED: LazyLock<Box<Counted>> = LazyLock::new(|| Counted::new(OTHER));
        Self(&COUNTED)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// Counts a request that was not timed.
    pub fn count(self, answered: Answered) {
        if is_on() {
            self.0.requests[answered.index()].inc();
        }
    }

    pub(crate) fn count_timed(self, answered: Answered, begun: Begun) {
        self.count(answered);
        begun.observe(&self.0.duration);
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Route({:?})", self.name())
    }
}

impl Counted {
    fn new(name: &str) -> Box<Self> {
        let requests = Answered::all()
            .map(|answered| REQUESTS.with_label_values(&[name, answered.as_str()]))
            .collect();
        let duration = DURATION.with_label_values(&[name]);
        Box::new(Self { name: name.to_owned(), requests, duration })
    }
}

/// Read for each request whose route only its router knows.
static ROUTES: LazyLock<RwLock<HashMap<String, Route>>> = LazyLock::new(RwLock::default);

/// One event for each request with a key, at level `info`.
pub(crate) fn log_request(
    route: Route,
    answered: Answered,
    begun: Begun,
    operation: Option<Digest>,
    attempt: Option<u32>,
    status: StatusCode,
) {
    tracing::info!(
        target: event::REQUEST_TARGET,
        event = event::REQUEST,
        route = route.name(),
        result = answered.as_str(),
        status = status.as_u16(),
        operation = operation.map(tracing::field::display),
        attempt,
        duration_ms = begun.elapsed().map(|elapsed| elapsed.as_secs_f64() * 1000.0),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_number_of_routes_is_bounded() {
        for number in 0..Route::MAX + 50 {
            Route::named(&format!("route {number}")).count(Answered::First);
        }
        assert_eq!(Route::named("one more").name(), OTHER);
        let text = crate::telemetry::prometheus();
        let first = text.lines().filter(|line| line.contains("{result=\"first\""));
        assert_eq!(first.count(), Route::MAX + 1);
    }

    #[test]
    fn every_answer_has_its_own_place_and_word() {
        let places: HashSet<usize> = Answered::all().map(Answered::index).collect();
        let words: HashSet<&str> = Answered::all().map(Answered::as_str).collect();
        let number = Answered::all().count();
        assert_eq!((places.len(), words.len()), (number, number));
        assert!(places.into_iter().all(|place| place < number));
    }
}
