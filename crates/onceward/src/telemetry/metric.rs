//! Metrics of the crate `prometheus`, with a handle for each series that is made once.
//!
//! Counting takes no look-up, no lock and no allocation.

use std::{
    marker::PhantomData,
    sync::{
        LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
    core::{
        AtomicU64, Collector, GenericGauge, GenericGaugeVec, Metric, MetricVec, MetricVecBuilder,
    },
};

static IS_OFF: AtomicBool = AtomicBool::new(false);

/// Stops counting, so that its cost can be measured. Called before anything else, or gauges are wrong.
#[doc(hidden)]
pub fn disable() {
    IS_OFF.store(true, Ordering::Relaxed);
}

pub(super) fn is_on() -> bool {
    !IS_OFF.load(Ordering::Relaxed)
}

/// Where all metrics are that [`prometheus`](super::prometheus) shows: a process can add its own.
///
/// ```
/// let orders = prometheus::IntCounter::new("shop_orders_total", "Orders.")?;
/// onceward::telemetry::registry().register(Box::new(orders.clone()))?;
/// orders.inc();
/// assert!(onceward::telemetry::prometheus().contains("shop_orders_total 1\n"));
/// # Ok::<(), prometheus::Error>(())
/// ```
#[must_use]
pub fn registry() -> &'static Registry {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::new);
    &REGISTRY
}

pub(super) fn registered<C: Collector + Clone + 'static>(metric: prometheus::Result<C>) -> C {
    let metric = metric.expect("names of metrics and labels are literals of the right form");
    registry().register(Box::new(metric.clone())).expect("each metric is declared once");
    metric
}

/// The labels of a metric: a closed set, so that each series has its handle from the start.
///
/// [`labels!`](crate::telemetry::labels) declares an enumeration that is one label.
///
/// ```
/// use onceward::telemetry::{Labels, RejectReason, SentAs};
///
/// assert_eq!(SentAs::series()[SentAs::Hedge.index()], [("kind", "hedge")]);
/// assert_eq!(<(SentAs, RejectReason)>::COUNT, SentAs::COUNT * RejectReason::COUNT);
/// ```
pub trait Labels: Copy {
    /// How many series there are.
    const COUNT: usize;

    /// The names and values of the labels of each series.
    fn series() -> Vec<Vec<(&'static str, &'static str)>>;

    /// The place of this one among the series.
    fn index(self) -> usize;
}

impl Labels for () {
    const COUNT: usize = 1;

    fn series() -> Vec<Vec<(&'static str, &'static str)>> {
        vec![Vec::new()]
    }

    fn index(self) -> usize {
        0
    }
}

impl<A: Labels, B: Labels> Labels for (A, B) {
    const COUNT: usize = A::COUNT * B::COUNT;

    fn series() -> Vec<Vec<(&'static str, &'static str)>> {
        let pairs = |a: Vec<_>| B::series().into_iter().map(move |b| [a.clone(), b].concat());
        A::series().into_iter().flat_map(pairs).collect()
    }

    fn index(self) -> usize {
        self.0.index() * B::COUNT + self.1.index()
    }
}

/// Declares enumerations whose variants are the values of one label: see [`metrics!`](crate::metrics).
#[doc(hidden)]
#[macro_export]
macro_rules! labels {
    ($($(#[$about:meta])* $visible:vis enum $name:ident: $label:literal {
        $($(#[$doc:meta])* $variant:ident = $value:literal),* $(,)?
    })*) => { $(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visible enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            const ALL: &[Self] = &[$(Self::$variant),*];

            /// The value of the label.
            #[must_use]
            $visible fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $value),* }
            }
        }

        impl $crate::telemetry::Labels for $name {
            const COUNT: usize = Self::ALL.len();

            fn series() -> Vec<Vec<(&'static str, &'static str)>> {
                Self::ALL.iter().map(|value| vec![($label, value.as_str())]).collect()
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    )* };
}
#[doc(inline)]
pub use labels;

/// Declares metrics, each with its meaning, its type and its name, and a function that shows them all.
///
/// The page of [`telemetry`](crate::telemetry) has an example.
#[doc(hidden)]
#[macro_export]
macro_rules! metrics {
    ($show:ident: $(
        #[doc = $about:literal]
        $metric:ident: $kind:ty = $name:literal $(, $bounds:expr)?;
    )*) => {
        $(
            #[doc = $about]
            pub(crate) static $metric: ::std::sync::LazyLock<$kind> =
                ::std::sync::LazyLock::new(|| <$kind>::new($name, $about.trim() $(, $bounds)?));
        )*

        /// Shows all of them, also those that were not counted yet.
        pub(crate) fn $show() {
            $(::std::sync::LazyLock::force(&$metric);)*
        }
    };
}
#[doc(inline)]
pub use metrics;

/// The series of one metric.
///
/// ```
/// use onceward::telemetry::{Family, Labels};
///
/// fn count_twice<L: Labels>(counters: &Family<prometheus::IntCounter, L>, labels: L) {
///     counters.add_many(labels, 2);
/// }
/// ```
#[derive(Debug)]
pub struct Family<M, L> {
    series: Box<[M]>,
    labels: PhantomData<L>,
}

/// Numbers that only grow.
pub type Counters<L = ()> = Family<IntCounter, L>;
/// Numbers that go up and down.
pub type Levels<L = ()> = Family<GenericGauge<AtomicU64>, L>;
/// How values spread over buckets.
pub type Histograms<L = ()> = Family<Histogram, L>;

impl<M: Metric, L: Labels> Family<M, L> {
    fn registered<B, O>(
        create: fn(O, &[&str]) -> prometheus::Result<MetricVec<B>>,
        options: O,
    ) -> Self
    where
        B: MetricVecBuilder<M = M> + 'static,
    {
        let all = L::series();
        let names: Vec<_> = all[0].iter().map(|(name, _)| *name).collect();
        let family = registered(create(options, &names));
        let values = all.iter().map(|labels| labels.iter().map(|(_, value)| *value).collect());
        let series = values.map(|values: Vec<_>| family.with_label_values(&values)).collect();
        Self { series, labels: PhantomData }
    }

    fn of(&self, labels: L) -> &M {
        &self.series[labels.index()]
    }
}

impl<L: Labels> Counters<L> {
    #[doc(hidden)]
    #[must_use]
    pub fn new(name: &str, about: &str) -> Self {
        Self::registered(IntCounterVec::new, Opts::new(name, about))
    }

    /// Counts one more.
    pub fn add(&self, labels: L) {
        self.add_many(labels, 1);
    }

    /// Counts so many more.
    pub fn add_many(&self, labels: L, number: u64) {
        if is_on() {
            self.of(labels).inc_by(number);
        }
    }

    /// How many were counted since the process started.
    #[must_use]
    pub fn get(&self, labels: L) -> u64 {
        self.of(labels).get()
    }
}

impl<L: Labels> Levels<L> {
    #[doc(hidden)]
    #[must_use]
    pub fn new(name: &str, about: &str) -> Self {
        Self::registered(GenericGaugeVec::new, Opts::new(name, about))
    }

    /// Sets the level of one series.
    pub fn set_of(&self, labels: L, level: u64) {
        self.of(labels).set(level);
    }

    pub(crate) fn raise_of(&self, labels: L, by: u64) {
        if is_on() {
            self.of(labels).add(by);
        }
    }

    pub(crate) fn lower_of(&self, labels: L, by: u64) {
        if is_on() {
            self.of(labels).sub(by);
        }
    }
}

impl Levels {
    /// Sets the level.
    pub fn set(&self, level: u64) {
        self.set_of((), level);
    }

    /// Up by one, and down again when the guard is dropped.
    pub fn hold(&'static self) -> LevelGuard {
        self.raise_of((), 1);
        LevelGuard(self)
    }
}

/// One of a gauge's level: see [`Levels::hold`](Family::hold).
#[derive(Debug)]
#[must_use = "the gauge is lowered when this is dropped"]
pub struct LevelGuard(&'static Levels);

impl Drop for LevelGuard {
    fn drop(&mut self) {
        self.0.lower_of((), 1);
    }
}

/// The bounds of durations.
pub const SECONDS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    10.0, 30.0,
];

impl<L: Labels> Histograms<L> {
    #[doc(hidden)]
    #[must_use]
    pub fn new(name: &str, about: &str, bounds: &[f64]) -> Self {
        Self::registered(
            HistogramVec::new,
            HistogramOpts::new(name, about).buckets(bounds.to_vec()),
        )
    }

    #[cfg(any(feature = "sqlite", feature = "tower"))]
    pub(crate) fn observe(&self, labels: L, value: u64) {
        if is_on() {
            self.of(labels).observe(value as f64);
        }
    }

    /// Counts the time since then.
    pub fn since(&self, labels: L, begun: Begun) {
        begun.observe(self.of(labels));
    }
}

/// When something began whose duration is counted.
#[derive(Clone, Copy, Debug)]
pub struct Begun(Option<Instant>);

impl Begun {
    /// Begins now.
    #[must_use]
    pub fn now() -> Self {
        Self(is_on().then(Instant::now))
    }

    /// How long ago that was; nothing if nothing is counted.
    pub(super) fn elapsed(self) -> Option<Duration> {
        self.0.map(|begun| begun.elapsed())
    }

    pub(super) fn observe(self, histogram: &Histogram) {
        if let Some(elapsed) = self.elapsed() {
            histogram.observe(elapsed.as_secs_f64());
        }
    }
}
