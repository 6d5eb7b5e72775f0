//! Where lanes were found to have nothing more.

use std::{collections::HashMap, sync::Mutex};

use onceward_core::{
    Fence,
    message::{Lane, Position, SinkId},
};

use super::cursor::LanePlace;

/// How far lanes had nothing to take when they were leased, so that asking again looks at less.
///
/// It is only asked from there: a page is read, and a lane settled, from where the lane is in the database.
#[derive(Default)]
pub(super) struct IdleLanes(Mutex<HashMap<(SinkId, Lane), Idle>>);

struct Idle {
    /// At which step.
    fence: Fence,
    base: String,
    floor: i64,
}

impl IdleLanes {
    /// `place` and its floor: `None`, the lane has something to take.
    pub(super) fn note(&self, position: &Position, place: Option<(String, i64)>) {
        let mut idle = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match place {
            Some((base, floor)) => {
                let fence = position.fence;
                idle.insert((position.sink, position.lane), Idle { fence, base, floor });
            }
            None => {
                idle.remove(&(position.sink, position.lane));
            }
        }
    }

    /// From where on the lane may have something to take.
    pub(super) fn ask_from(&self, position: &Position, place: LanePlace) -> LanePlace {
        let idle = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match idle.get(&(position.sink, position.lane)) {
            Some(idle) if idle.fence == position.fence && place.target.is_none() => {
                LanePlace { base: idle.base.clone(), floor: idle.floor, ..place }
            }
            _ => place,
        }
    }
}
