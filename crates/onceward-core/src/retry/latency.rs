//! How long answers take of late: enough to say after which time one is late.
//!
//! A histogram with sixteen steps to a doubling, over the last one to two thousand answers. Both
//! halves are counted together, and the older is dropped when the newer is full: a target that
//! becomes slower for all calls counts as slower within seconds, and is not hedged for ever.

use alloc::{vec, vec::Vec};
use core::time::Duration;

/// The finest difference it keeps is 16 µs, the longest 2³¹ µs, which is half an hour.
const FIRST: u32 = 4;
const LAST: u32 = 31;
const STEPS: u32 = 16;
const BUCKETS: usize = ((LAST - FIRST) * STEPS) as usize;
/// A half is full with so many samples.
const HALF: u32 = 1_000;
/// The asked-for quantile is worked out anew after so many samples.
const AFRESH: u32 = 32;

#[derive(Clone, Debug)]
pub(super) struct Latency {
    quantile: f64,
    newer: Vec<u32>,
    older: Vec<u32>,
    counts: (u32, u32),
    known: Option<Duration>,
}

impl Latency {
    pub(super) fn new(quantile: f64) -> Self {
        let empty = vec![0; BUCKETS];
        Self { quantile, newer: empty.clone(), older: empty, counts: (0, 0), known: None }
    }

    /// One answer took this long, or at least this long when the caller gave up.
    pub(super) fn add(&mut self, took: Duration) {
        self.newer[bucket(took)] += 1;
        self.counts.0 += 1;
        if self.counts.0 >= HALF {
            core::mem::swap(&mut self.newer, &mut self.older);
            self.newer.fill(0);
            self.counts = (0, self.counts.0);
        }
        if self.counts.0.is_multiple_of(AFRESH) {
            self.known = self.find();
        }
    }

    /// The quantile, if there are that many samples.
    pub(super) fn quantile(&self, least: u32) -> Option<Duration> {
        if self.counts.0 + self.counts.1 < least { None } else { self.known }
    }

    fn find(&self) -> Option<Duration> {
        let all = self.counts.0 + self.counts.1;
        let wanted = f64::from(all) * self.quantile;
        let mut sum = 0;
        for (bucket, (newer, older)) in self.newer.iter().zip(&self.older).enumerate() {
            sum += newer + older;
            if f64::from(sum) >= wanted {
                return Some(upper_edge(bucket));
            }
        }
        None
    }
}

fn bucket(took: Duration) -> usize {
    let micros = (took.as_micros() as u64).clamp(1 << FIRST, (1 << LAST) - 1);
    let octave = micros.ilog2();
    let step = (micros >> (octave - FIRST)) as u32 - STEPS;
    ((octave - FIRST) * STEPS + step) as usize
}

fn upper_edge(bucket: usize) -> Duration {
    let bucket = bucket as u32;
    let micros = u64::from(STEPS + bucket % STEPS + 1) << (bucket / STEPS);
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_lies_below_its_upper_edge_by_at_most_a_sixteenth() {
        for micros in (0..36).flat_map(|power| [1_u64 << power, (1 << power) + 1, 3 << power]) {
            let took = Duration::from_micros(micros.clamp(16, (1 << LAST) - 1));
            let edge = upper_edge(bucket(Duration::from_micros(micros)));
            assert!(took < edge && edge <= took.mul_f64(1.07), "{micros} µs: {edge:?}");
        }
    }

    #[test]
    fn the_quantile_follows_a_shift_of_everything() {
        let mut latency = Latency::new(0.95);
        for sample in 0..4_000_u64 {
            latency.add(Duration::from_micros(1_000 + sample % 1_000));
        }
        let before = latency.quantile(100).unwrap();
        assert!((1_900..2_100).contains(&before.as_micros()), "{before:?}");
        for sample in 0..2_000_u64 {
            latency.add(Duration::from_micros(201_000 + sample % 1_000));
        }
        let after = latency.quantile(100).unwrap();
        assert!((200_000..215_000).contains(&after.as_micros()), "{after:?}");
    }

    #[test]
    fn few_samples_say_nothing() {
        let mut latency = Latency::new(0.95);
        for _ in 0..99 {
            latency.add(Duration::from_millis(5));
        }
        assert_eq!(latency.quantile(100), None);
    }
}
