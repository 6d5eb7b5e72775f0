//! Who changed an operation in an exceptional way, and why.

use alloc::{string::String, vec::Vec};

use crate::{Digest, Execution, Store, StoreFuture, Timestamp, words::words};

/// Reads the notes that swaps and purges left, oldest first.
///
/// ```
/// use onceward_core::{Digest, StoreError, Trail};
///
/// async fn tell(store: &dyn Trail, id: &Digest) -> Result<(), StoreError> {
///     for entry in store.trail(id).await? {
///         println!("{} by {:?}", entry.note.kind.as_str(), entry.note.actor);
///     }
///     Ok(())
/// }
/// ```
pub trait Trail: Store {
    /// All entries of one operation, also after it was swept or purged.
    fn trail<'a>(&'a self, id: &'a Digest) -> StoreFuture<'a, Vec<TrailEntry>>;
}

/// A note with the store's time of it.
///
/// ```
/// use onceward_core::TrailEntry;
///
/// fn line(entry: &TrailEntry) -> String {
///     let actor = entry.note.actor.as_deref().unwrap_or("the protocol");
///     format!("{}: {} by {actor}", entry.at.unix_micros(), entry.note.kind.as_str())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrailEntry {
    /// When the store wrote it.
    pub at: Timestamp,
    /// What it says.
    pub note: Note,
}

/// An entry of the trail: who changed an operation in an exceptional way, and why.
///
/// Claims, completions and replays leave no entry; take-overs, releases, unknown outcomes and
/// everything that an operator does leave one.
///
/// ```
/// use onceward_core::{Execution, Note, NoteKind};
///
/// let by_hand = Note {
///     actor: Some("ada".into()),
///     reason: Some("the provider confirms that nothing was charged".into()),
///     ..Note::of_protocol(NoteKind::Purge, Execution::from_bytes([0; 16]))
/// };
/// # let _ = by_hand;
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// What happened.
    pub kind: NoteKind,
    /// The execution that the record had before.
    pub execution: Execution,
    /// The operator; `None`: the protocol itself.
    pub actor: Option<String>,
    /// Why, in a person's words.
    pub reason: Option<String>,
}

impl Note {
    /// An entry that the protocol itself makes.
    #[must_use]
    pub fn of_protocol(kind: NoteKind, execution: Execution) -> Self {
        Self { kind, execution, actor: None, reason: None }
    }
}

words! {
    /// The kinds of trail entries.
    ///
    /// ```
    /// use onceward_core::NoteKind;
    ///
    /// // A store keeps the word and reads it back.
    /// let stored = NoteKind::TakeOver.as_str();
    /// assert_eq!(NoteKind::ALL.into_iter().find(|kind| kind.as_str() == stored), Some(NoteKind::TakeOver));
    /// ```
    #[non_exhaustive]
    pub enum NoteKind {
        /// A claim past its lease was taken over.
        TakeOver = "take_over",
        /// A claim was given back.
        Release = "release",
        /// The outcome was declared unknown.
        Unknown = "unknown",
        /// An unknown outcome was resolved.
        Resolve = "resolve",
        /// The record was deleted by an operator.
        Purge = "purge",
        /// An operator said that the store's clock is right: of no operation, see the admin API.
        TrustClock = "trust_clock",
        /// An operator removed a sink: of no operation, see the admin API.
        RemoveSink = "remove_sink",
    }
}
