//! What is let go first when there is too much: the least important, and then by degrees.
//!
//! Four classes, which travel with the request, and inside a class a level by chance: without it a
//! whole class would stop at one instant, the load would fall, the class would come back at one
//! instant, and so on.

use super::random::Random;

/// How important a call is, as in `Onceward-Priority`.
///
/// ```
/// use onceward_core::retry::Priority;
///
/// assert_eq!(Priority::default(), Priority::NORMAL);
/// assert_eq!(Priority::parse("3"), Some(Priority::HIGHEST));
/// assert_eq!(Priority::parse("urgent"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// Work in the background: no person waits for it.
    pub const LOWEST: Self = Self(0);
    /// A person waits, and would come back tomorrow.
    pub const LOW: Self = Self(1);
    /// What is not said to be anything else.
    pub const NORMAL: Self = Self(2);
    /// What must go through if anything does.
    pub const HIGHEST: Self = Self(3);

    /// One of `0` to `3`, as in the header.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim_ascii() {
            "0" => Some(Self::LOWEST),
            "1" => Some(Self::LOW),
            "2" => Some(Self::NORMAL),
            "3" => Some(Self::HIGHEST),
            _ => None,
        }
    }

    /// Its number: 0 is the lowest, 3 the highest.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::NORMAL
    }
}

/// A priority with its level inside the class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rank {
    pub(super) priority: Priority,
    /// In `0 .. 1`: the higher, the longer it is kept.
    pub(super) level: f64,
}

impl Rank {
    pub(super) fn new(priority: Priority, random: &mut Random) -> Self {
        Self { priority, level: random.unit() }
    }
}
