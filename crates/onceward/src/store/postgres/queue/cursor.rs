//! A place in a lane as text.

use onceward_core::{StoreError, message::Cursor};

/// A place in a lane: see the table `onceward.step`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LanePlace {
    pub(super) base: String,
    pub(super) floor: i64,
    pub(super) target: Option<Target>,
    pub(super) done: i64,
}

/// Up to which snapshot a lane is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) snapshot: String,
    /// `None`: it is not known, and the floor before holds.
    pub(super) floor: Option<i64>,
}

impl LanePlace {
    pub(super) fn read(cursor: &Cursor) -> Result<Self, StoreError> {
        let parsed = || {
            let parts: Vec<_> = cursor.as_str().split(';').collect();
            let [base, floor, target, next_floor, done] = parts[..] else { return None };
            let number = |text: &str| match text {
                "" => Some(None),
                text => text.parse::<i64>().ok().map(Some),
            };
            let next_floor = number(next_floor)?;
            let target = (!target.is_empty())
                .then(|| Target { snapshot: target.to_owned(), floor: next_floor });
            Some(Self {
                base: base.to_owned(),
                floor: number(floor)??,
                target,
                done: number(done)??,
            })
        };
        parsed().ok_or_else(|| {
            StoreError::Unusable(format!("{:?} is no place in this outbox", cursor.as_str()))
        })
    }

    pub(super) fn cursor(&self) -> Cursor {
        let Self { base, floor, target, done } = self;
        let snapshot = target.as_ref().map_or("", |target| &target.snapshot);
        let next_floor = target.as_ref().and_then(|target| target.floor);
        let next_floor = next_floor.map(|floor| floor.to_string()).unwrap_or_default();
        Cursor::new(&format!("{base};{floor};{snapshot};{next_floor};{done}"))
    }

    /// Behind everything that the target sees.
    pub(super) fn past(&self) -> Self {
        match self.target.clone() {
            Some(Target { snapshot, floor }) => {
                Self { base: snapshot, floor: floor.unwrap_or(self.floor), target: None, done: 0 }
            }
            None => self.clone(),
        }
    }

    /// Whether what was read at this place, up to this target, is what is to be done at another place.
    pub(super) fn is_at(&self, other: &Self, target: Option<&str>) -> bool {
        let of_other = other.target.as_ref().map(|target| target.snapshot.as_str());
        self.base == other.base
            && self.done == other.done
            && (target.is_none() || target == of_other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_back() {
        let target = Some(Target { snapshot: "7:9:7,8".to_owned(), floor: Some(5) });
        let place = LanePlace { base: "1:1:".to_owned(), floor: 0, target, done: 4 };
        let unknown = Some(Target { snapshot: "7:9:".to_owned(), floor: None });
        for place in [place.clone(), place.past(), LanePlace { target: unknown, ..place }] {
            assert_eq!(LanePlace::read(&place.cursor()), Ok(place));
        }
        for text in ["", "42", "1:1:;x;;;0", "1:1:;0;;"] {
            assert!(LanePlace::read(&Cursor::new(text)).is_err(), "{text}");
        }
    }
}
