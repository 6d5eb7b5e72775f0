//! What a store finds under a digest, and why it may not be able to read it.

use alloc::boxed::Box;

use crate::{Fence, Stored, words::words};

/// What is stored under a digest.
///
/// ```
/// use onceward_core::{Digest, Found, Status, Store, StoreError};
///
/// async fn status(store: &dyn Store, id: &Digest) -> Result<Option<Status>, StoreError> {
///     Ok(match store.get(id).await? {
///         Found::Nothing => None,
///         Found::Record(stored) => Some(stored.status()),
///         Found::Unreadable { .. } => Some(Status::Unknown),
///     })
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// This record.
    Record(Box<Stored>),
    /// A record that cannot be read: its outcome is unknown, and it is not absent.
    Unreadable {
        /// The fence, which is kept outside the checksum.
        fence: Fence,
        /// What keeps it from being read.
        why: Unreadable,
    },
}

words! {
    /// Why a record cannot be read.
    ///
    /// ```
    /// use onceward_core::Unreadable;
    ///
    /// assert_eq!(Unreadable::Sealed.as_str(), "sealed");
    /// ```
    pub enum Unreadable {
        /// It does not match its checksum.
        Damaged = "damaged",
        /// Its answer was sealed with a key that is not at hand here, or changed by software without it.
        Sealed = "sealed",
    }
}
