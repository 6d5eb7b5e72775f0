//! Numbers that a process counts about itself, in statics: no registry, no lock, no allocation.

use std::{
    fmt::{self, Write as _},
    marker::PhantomData,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Instant,
};

use super::text;

static IS_OFF: AtomicBool = AtomicBool::new(false);

/// Stops counting, so that its cost can be measured. Called before anything else, or gauges are wrong.
#[doc(hidden)]
pub fn disable() {
    IS_OFF.store(true, Ordering::Relaxed);
}

pub(crate) fn is_on() -> bool {
    !IS_OFF.load(Ordering::Relaxed)
}

/// The labels of a family: a closed set, so that every series has its place from the start.
pub trait Labels: Copy + Sync {
    /// How many series there are.
    const COUNT: usize;

    /// The place of this one among them.
    fn index(self) -> usize;

    /// Writes the labels of the series at this place, as `name="value"`.
    fn write(index: usize, text: &mut String);
}

impl Labels for () {
    const COUNT: usize = 1;

    fn index(self) -> usize {
        0
    }

    fn write(_: usize, _: &mut String) {}
}

impl<A: Labels, B: Labels> Labels for (A, B) {
    const COUNT: usize = A::COUNT * B::COUNT;

    fn index(self) -> usize {
        self.0.index() * B::COUNT + self.1.index()
    }

    fn write(index: usize, text: &mut String) {
        A::write(index / B::COUNT, text);
        text.push(',');
        B::write(index % B::COUNT, text);
    }
}

/// An enumeration whose variants are the values of one label.
macro_rules! labels {
    ($($(#[$about:meta])* $name:ident is $label:literal {
        $($(#[$doc:meta])* $variant:ident = $value:literal,)*
    })*) => { $(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            const VALUES: &[&str] = &[$($value),*];

            /// The value of the label.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                Self::VALUES[self as usize]
            }
        }

        impl $crate::telemetry::Labels for $name {
            const COUNT: usize = Self::VALUES.len();

            fn index(self) -> usize {
                self as usize
            }

            fn write(index: usize, text: &mut String) {
                $crate::telemetry::text::write_label(text, $label, Self::VALUES[index]);
            }
        }
    )* };
}
pub(super) use labels;

/// What one series is made of.
pub trait Series: Sync {
    /// The word of the exposition format for it.
    const KIND: &'static str;
    /// As it is when the process starts.
    const NEW: Self;

    /// Whether nothing was ever counted, and an empty series says nothing.
    fn is_left_out(&self) -> bool {
        false
    }

    /// Writes its samples.
    fn write(&self, text: &mut String, name: &str, labels: &str);
}

/// Series of one name, one for each value of its labels.
///
/// ```
/// use onceward::telemetry;
///
/// telemetry::OPERATOR_CHANGES.add(telemetry::OperatorChange::Resolve);
/// telemetry::STORE_FILE_BYTES.set(4096);
/// assert!(telemetry::prometheus().contains("onceward_store_file_bytes 4096\n"));
/// ```
pub struct Family<S, L, const N: usize> {
    name: &'static str,
    about: &'static str,
    series: [S; N],
    labels: PhantomData<L>,
}

impl<S: Series, L: Labels, const N: usize> Family<S, L, N> {
    pub(super) const fn new(name: &'static str, about: &'static str) -> Self {
        const { assert!(N == L::COUNT, "one series for each value") };
        Self { name, about, series: [const { S::NEW }; N], labels: PhantomData }
    }

    fn of(&self, labels: L) -> &S {
        &self.series[labels.index()]
    }
}

impl<S, L, const N: usize> fmt::Debug for Family<S, L, N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// A family, whatever it is made of.
pub(super) trait Metric: Sync {
    fn name(&self) -> &'static str;
    fn write(&self, text: &mut String);
}

impl<S: Series, L: Labels, const N: usize> Metric for Family<S, L, N> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn write(&self, text: &mut String) {
        text::write_head(text, self.name, S::KIND, self.about);
        let mut labels = String::new();
        for (index, series) in self.series.iter().enumerate() {
            if !series.is_left_out() {
                labels.clear();
                L::write(index, &mut labels);
                series.write(text, self.name, &labels);
            }
        }
    }
}

/// A number that only grows.
#[derive(Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, number: u64) {
        if is_on() {
            self.0.fetch_add(number, Ordering::Relaxed);
        }
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Series for Counter {
    const KIND: &'static str = "counter";
    const NEW: Self = Self(AtomicU64::new(0));

    fn write(&self, text: &mut String, name: &str, labels: &str) {
        text::write_sample(text, name, labels, self.get());
    }
}

impl<L: Labels, const N: usize> Family<Counter, L, N> {
    /// Counts one more.
    pub fn add(&self, labels: L) {
        self.of(labels).add(1);
    }

    /// Counts so many more.
    pub fn add_many(&self, labels: L, number: u64) {
        self.of(labels).add(number);
    }

    /// How many were counted since the process started.
    #[must_use]
    pub fn get(&self, labels: L) -> u64 {
        self.of(labels).get()
    }
}

/// A number that goes up and down.
#[derive(Debug)]
pub struct Level(AtomicU64);

impl Series for Level {
    const KIND: &'static str = "gauge";
    const NEW: Self = Self(AtomicU64::new(0));

    fn write(&self, text: &mut String, name: &str, labels: &str) {
        text::write_sample(text, name, labels, self.0.load(Ordering::Relaxed));
    }
}

impl<L: Labels, const N: usize> Family<Level, L, N> {
    /// Sets the level of one series.
    pub fn set_of(&self, labels: L, level: u64) {
        self.of(labels).0.store(level, Ordering::Relaxed);
    }

    pub(crate) fn raise_of(&self, labels: L, by: u64) {
        if is_on() {
            self.of(labels).0.fetch_add(by, Ordering::Relaxed);
        }
    }

    pub(crate) fn lower_of(&self, labels: L, by: u64) {
        if is_on() {
            self.of(labels).0.fetch_sub(by, Ordering::Relaxed);
        }
    }
}

impl Family<Level, (), 1> {
    /// Sets the level.
    pub fn set(&self, level: u64) {
        self.set_of((), level);
    }

    /// What it is now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.of(()).0.load(Ordering::Relaxed)
    }

    /// Up by so much, and down again when the guard is dropped.
    pub fn hold(&'static self, by: u64) -> Held {
        self.raise_of((), by);
        Held { gauge: self, by }
    }
}

/// A part of a gauge's level: see [`Family::hold`].
#[derive(Debug)]
#[must_use = "the gauge is lowered when this is dropped"]
pub struct Held {
    gauge: &'static Family<Level, (), 1>,
    by: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gauge.lower_of((), self.by);
    }
}

/// What a histogram counts, and between which bounds.
pub trait Scale: Sync {
    /// The upper bounds of its buckets, ascending, in the unit that is counted in.
    const BOUNDS: &'static [u64];
    /// How many of them are one of the unit that is shown.
    const PER_UNIT: u64;
}

/// The most bounds that a scale may have.
const MAX_BOUNDS: usize = 16;

/// Counted in nanoseconds, shown in seconds.
#[derive(Debug)]
pub struct Seconds;

impl Scale for Seconds {
    const BOUNDS: &'static [u64] = &[
        100_000,
        250_000,
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        25_000_000,
        50_000_000,
        100_000_000,
        250_000_000,
        500_000_000,
        1_000_000_000,
        2_500_000_000,
        10_000_000_000,
        30_000_000_000,
    ];
    const PER_UNIT: u64 = 1_000_000_000;
}

/// From a few bytes to the largest answer that is kept.
#[derive(Debug)]
pub struct Bytes;

impl Scale for Bytes {
    const BOUNDS: &'static [u64] = &[
        256,
        1 << 10,
        4 << 10,
        16 << 10,
        64 << 10,
        256 << 10,
        1 << 20,
        4 << 20,
        16 << 20,
        64 << 20,
    ];
    const PER_UNIT: u64 = 1;
}

/// How many at once.
#[derive(Debug)]
pub struct Number;

impl Scale for Number {
    const BOUNDS: &'static [u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
    const PER_UNIT: u64 = 1;
}

/// How values spread over buckets. The number of all is the sum of the buckets.
#[derive(Debug)]
pub struct Histogram<U> {
    /// One for each bound, and one for what is above the last.
    buckets: [AtomicU64; MAX_BOUNDS + 1],
    sum: AtomicU64,
    scale: PhantomData<U>,
}

impl<U: Scale> Histogram<U> {
    fn observe(&self, value: u64) {
        let bucket = U::BOUNDS.partition_point(|bound| *bound < value);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    fn counts(&self) -> impl Iterator<Item = u64> {
        self.buckets[..=U::BOUNDS.len()].iter().map(|bucket| bucket.load(Ordering::Relaxed))
    }
}

impl<U: Scale> Series for Histogram<U> {
    const KIND: &'static str = "histogram";
    const NEW: Self = {
        assert!(U::BOUNDS.len() <= MAX_BOUNDS, "there is a bucket for each bound");
        Self {
            buckets: [const { AtomicU64::new(0) }; MAX_BOUNDS + 1],
            sum: AtomicU64::new(0),
            scale: PhantomData,
        }
    };

    fn is_left_out(&self) -> bool {
        self.counts().all(|count| count == 0)
    }

    fn write(&self, text: &mut String, name: &str, labels: &str) {
        let shown = |value: u64| value as f64 / U::PER_UNIT as f64;
        let comma = if labels.is_empty() { "" } else { "," };
        let bounds = U::BOUNDS.iter().map(|bound| shown(*bound).to_string());
        let mut all = 0;
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(self.counts()) {
            all += count;
            // Writing to a String never fails.
            let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {all}");
        }
        let sum = shown(self.sum.load(Ordering::Relaxed));
        text::write_sample(text, &format!("{name}_sum"), labels, sum);
        text::write_sample(text, &format!("{name}_count"), labels, all);
    }
}

impl<U: Scale, L: Labels, const N: usize> Family<Histogram<U>, L, N> {
    #[cfg(any(feature = "sqlite", feature = "tower"))]
    pub(crate) fn observe(&self, labels: L, value: u64) {
        if is_on() {
            self.of(labels).observe(value);
        }
    }
}

impl<L: Labels, const N: usize> Family<Histogram<Seconds>, L, N> {
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
    #[cfg(feature = "tower")]
    pub(super) fn elapsed_ms(self) -> Option<f64> {
        self.0.map(|begun| begun.elapsed().as_secs_f64() * 1000.0)
    }

    pub(super) fn observe(self, histogram: &Histogram<Seconds>) {
        if let Some(begun) = self.0 {
            let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            histogram.observe(nanos);
        }
    }
}
