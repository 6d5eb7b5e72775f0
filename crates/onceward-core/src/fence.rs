//! The version of a record, and the id of the execution that it belongs to.

use core::fmt;

/// 128 bits, unique for ever: names the current version of a claim.
///
/// Ending a claim replaces its fence, so that whatever an earlier owner still sends misses. It is
/// random and not a counter of the row, because a counter restarts after a purge and would let a
/// zombie through.
///
/// ```
/// # use onceward_core::Fence;
/// assert_ne!(Fence::from_random([1; 16]), Fence::from_random([2; 16]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence([u8; 16]);

impl Fence {
    /// Makes a fence of fresh random bytes: never use the same twice, nor count up by yourself.
    #[must_use]
    pub const fn from_random(random: [u8; 16]) -> Self {
        Self(random)
    }

    /// The bytes, for storing.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The fence after this one: a request counts up, so that each of its claims has its own.
    pub(crate) const fn successor(self) -> Self {
        Self(u128::from_be_bytes(self.0).wrapping_add(1).to_be_bytes())
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Fence({})", uuid::Uuid::from_bytes(self.0).simple())
    }
}

/// The owner execution id: the `UUIDv7` of the claim that ran last.
///
/// ```
/// # use onceward_core::Execution;
/// let execution = Execution::from_bytes([0; 16]);
/// assert_eq!(execution.to_string(), "00000000-0000-0000-0000-000000000000");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Execution([u8; 16]);

impl Execution {
    /// Makes an execution id of a fresh UUID's bytes.
    #[must_use]
    pub const fn from_bytes(uuid: [u8; 16]) -> Self {
        Self(uuid)
    }

    /// The bytes, for storing.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The execution after this one: a request counts up, so that each of its claims has its own.
    pub(crate) const fn successor(self) -> Self {
        Self(u128::from_be_bytes(self.0).wrapping_add(1).to_be_bytes())
    }
}

impl fmt::Display for Execution {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        uuid::Uuid::from_bytes(self.0).fmt(formatter)
    }
}

impl fmt::Debug for Execution {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Execution({self})")
    }
}
