//! What kind of world one history plays in, drawn from its seed.

use std::{ops::RangeInclusive, time::Duration};

use fastrand::Rng;
use onceward::{Effect, Terms};

use crate::sabotage::Sabotage;

/// What the effects of this history really are, whatever their route says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    External,
    Transactional,
    Repeatable,
}

/// How often the way to the store does what, in percent of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weather {
    pub(crate) fails: u8,
    pub(crate) loses: u8,
    pub(crate) late: u8,
    pub(crate) slow: u8,
}

impl Weather {
    pub(crate) const CALM: Self = Self { fails: 0, loses: 0, late: 0, slow: 60 };
    const RAIN: Self = Self { fails: 5, loses: 6, late: 4, slow: 50 };
    const STORM: Self = Self { fails: 15, loses: 18, late: 12, slow: 45 };
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) nature: Nature,
    pub(crate) terms: Terms,
    /// Retention is over at times. Otherwise it outlasts every history.
    pub(crate) forgets: bool,
    pub(crate) keys: u8,
    pub(crate) processes: usize,
    pub(crate) clients: usize,
    pub(crate) rounds: usize,
    /// Between the rounds so much time passes that a sweep finds something to delete.
    pub(crate) night: bool,
    pub(crate) weather: Weather,
}

impl Settings {
    pub(crate) fn draw(rng: &mut Rng, sabotage: Option<Sabotage>) -> Self {
        let nature = nature(rng, sabotage);
        let lease = millis(pick(rng, &[100, 300, 1000, 1000, 2000]));
        let forgets = percent(rng, 35);
        let retain = match forgets {
            true => lease.max(millis(rng.u64(1000..=6000))),
            false => Duration::from_secs(24 * 3600),
        };
        let effect = match (sabotage, nature) {
            (Some(Sabotage::ExternalCalledTransactional), _) => Effect::Transactional,
            (Some(Sabotage::DownstreamForgets), _) => Effect::Repeatable { within: retain },
            (_, Nature::External) => Effect::External,
            (_, Nature::Transactional) => Effect::Transactional,
            // Over soon, or not before a night.
            (_, Nature::Repeatable) if rng.bool() => Effect::Repeatable { within: millis(600_000) },
            (_, Nature::Repeatable) => Effect::Repeatable { within: millis(rng.u64(1000..=8000)) },
        };
        let terms = Terms::of(effect).lease(lease).retain(retain).build().expect("valid terms");
        let rounds = if percent(rng, 30) { 2 } else { 1 };
        Self {
            nature,
            terms,
            forgets,
            keys: if percent(rng, 70) { 1 } else { 2 },
            processes: rng.usize(2..=3),
            clients: rng.usize(2..=5),
            rounds,
            night: percent(rng, 35),
            weather: pick(rng, &[Weather::CALM, Weather::RAIN, Weather::RAIN, Weather::STORM]),
        }
    }

    pub(crate) fn lease(&self) -> Duration {
        self.terms.lease()
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.weather == Weather::CALM
    }
}

fn nature(rng: &mut Rng, sabotage: Option<Sabotage>) -> Nature {
    let drawn = pick(rng, &[Nature::External, Nature::Transactional, Nature::Repeatable]);
    match sabotage {
        Some(Sabotage::ExternalCalledTransactional) => Nature::External,
        Some(Sabotage::EffectOutsideCommit | Sabotage::DoubtCalledFailure) => Nature::Transactional,
        Some(Sabotage::DownstreamForgets) => Nature::Repeatable,
        _ => drawn,
    }
}

pub(crate) fn percent(rng: &mut Rng, chance: u8) -> bool {
    rng.u8(0..100) < chance
}

pub(crate) fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.usize(..choices.len())]
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A duration between two, in whole milliseconds, as the timers count.
pub(crate) fn between(rng: &mut Rng, range: RangeInclusive<Duration>) -> Duration {
    let as_millis = |duration: &Duration| duration.as_millis() as u64;
    millis(rng.u64(as_millis(range.start())..=as_millis(range.end())))
}
