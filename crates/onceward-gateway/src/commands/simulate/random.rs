//! Randomness of a run: seeded, and its own for every row, so that no row depends on another.

use std::f64::consts::TAU;

use super::agenda::{Nanos, from_ms};

pub(super) struct Random {
    generator: fastrand::Rng,
    /// Box–Muller makes two numbers at once.
    second: Option<f64>,
}

impl Random {
    /// `stream` tells the rows of one seed apart.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        // Neighbouring seeds must not give neighbouring streams, so both are mixed first.
        let mixed =
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03);
        Self { generator: fastrand::Rng::with_seed(mixed), second: None }
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.generator.u64(..)
    }

    /// At least 0 and less than 1.
    pub(super) fn unit(&mut self) -> f64 {
        self.generator.f64()
    }

    pub(super) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    pub(super) fn up_to(&mut self, most: Nanos) -> Nanos {
        (most as f64 * self.unit()) as Nanos
    }

    fn normal(&mut self) -> f64 {
        if let Some(second) = self.second.take() {
            return second;
        }
        // 1 − u is never 0, whose logarithm is no number.
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let (sine, cosine) = (TAU * self.unit()).sin_cos();
        self.second = Some(radius * sine);
        radius * cosine
    }

    /// A delay of the normal distribution; a negative one is turned round, as the study does.
    pub(super) fn normal_ms(&mut self, mean: f64, deviation: f64) -> Nanos {
        from_ms((mean + deviation * self.normal()).abs())
    }

    pub(super) fn log_normal_ms(&mut self, median: f64, sigma: f64) -> Nanos {
        from_ms(median * (sigma * self.normal()).exp())
    }

    /// The gaps of a Poisson process, or service times without memory.
    pub(super) fn exponential(&mut self, mean: Nanos) -> Nanos {
        (-(1.0 - self.unit()).ln() * mean as f64).round() as Nanos
    }

    pub(super) fn shuffle<T>(&mut self, cards: &mut [T]) {
        self.generator.shuffle(cards);
    }
}

/// Says yes exactly `hits` times in every `size` draws, in random order.
///
/// A figure such as "at most 2.5 % extra" can then be read off a run of any length, instead of off the
/// luck of its draws.
pub(super) struct Deck {
    cards: Vec<bool>,
    drawn: usize,
}

impl Deck {
    pub(super) fn new(hits: usize, size: usize) -> Self {
        Self { cards: (0..size).map(|card| card < hits).collect(), drawn: size }
    }

    pub(super) fn draw(&mut self, random: &mut Random) -> bool {
        if self.drawn == self.cards.len() {
            random.shuffle(&mut self.cards);
            self.drawn = 0;
        }
        self.drawn += 1;
        self.cards[self.drawn - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::super::agenda::ms;
    use super::*;

    fn moments(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let draws: Vec<f64> = (0..100_000).map(|_| draw()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        (mean, variance.sqrt())
    }

    #[test]
    fn distributions_have_their_moments() {
        let mut random = Random::new(7, 0);
        let (mean, deviation) = moments(|| ms(random.normal_ms(10.0, 2.0)));
        assert!((mean - 10.0).abs() < 0.05 && (deviation - 2.0).abs() < 0.05, "{mean} {deviation}");
        let (mean, deviation) = moments(|| random.exponential(1_000_000) as f64 / 1e6);
        assert!((mean - 1.0).abs() < 0.02 && (deviation - 1.0).abs() < 0.02, "{mean} {deviation}");
        let (mean, deviation) = moments(|| (ms(random.log_normal_ms(8.0, 0.3)) / 8.0).ln());
        assert!(mean.abs() < 0.01 && (deviation - 0.3).abs() < 0.01, "{mean} {deviation}");
    }

    #[test]
    fn a_deck_keeps_its_share_in_every_round() {
        let mut random = Random::new(7, 0);
        let mut deck = Deck::new(25, 1000);
        for _ in 0..5 {
            assert_eq!((0..1000).filter(|_| deck.draw(&mut random)).count(), 25);
        }
    }

    #[test]
    fn streams_of_one_seed_differ() {
        assert_ne!(Random::new(1, 0).bits(), Random::new(1, 1).bits());
        assert_ne!(Random::new(1, 0).bits(), Random::new(2, 0).bits());
        assert_eq!(Random::new(1, 3).bits(), Random::new(1, 3).bits());
    }
}
