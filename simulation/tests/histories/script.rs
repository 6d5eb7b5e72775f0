//! What an execution is going to do, drawn when it starts.

use std::time::Duration;

use crate::{
    settings::{Nature, between, millis, percent},
    world::World,
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    pub(crate) part: Part,
    /// Before the effect.
    pub(crate) before: Duration,
    /// Between the effect and the end.
    pub(crate) after: Duration,
    pub(crate) renews: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Succeed,
    Refuse,
    Retry,
    Release,
    /// Ends as unknown.
    Doubt {
        effect: bool,
    },
    /// Ends as unknown, goes on, and tells the truth later.
    TruthLater {
        effect: bool,
    },
    /// No answer and no end, as after a panic.
    Vanish {
        effect: bool,
    },
}

impl Script {
    pub(crate) fn draw(world: &World) -> Self {
        if world.is_healed() {
            let part = Part::Succeed;
            return Self { part, before: millis(5), after: Duration::ZERO, renews: true };
        }
        let settings = &world.settings;
        world.draw(|rng| {
            let part = match rng.u8(0..100) {
                0..62 => Part::Succeed,
                62..70 => Part::Refuse,
                70..78 => Part::Retry,
                78..84 => Part::Release,
                84..89 => Part::Doubt { effect: rng.bool() },
                89..94 => Part::TruthLater { effect: rng.bool() },
                _ => Part::Vanish { effect: rng.bool() },
            };
            let (lease, renews) = (settings.lease(), percent(rng, 60));
            let mut duration = || match rng.u8(0..100) {
                0..40 => Duration::ZERO,
                40..80 => between(rng, Duration::ZERO..=lease),
                // It sleeps over a night. A provider's memory is shorter than that.
                99 if !renews && settings.nature != Nature::Repeatable => Duration::from_secs(4000),
                _ => between(rng, Duration::ZERO..=lease * 4),
            };
            Self { part, before: duration(), after: duration(), renews }
        })
    }
}
