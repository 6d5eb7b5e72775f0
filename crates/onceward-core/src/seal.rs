//! How a store hides what it keeps: the answers, and nothing that it must compare or count with.

use alloc::vec::Vec;

/// Seals bytes so that only the holder of a key can read them, or change them unnoticed.
///
/// What the bytes are *about* (which record, which chunk) comes from both callers and is not stored: what
/// was sealed about one thing cannot be opened as another. Randomness is the implementation's own.
///
/// ```
/// use onceward_core::Seal;
///
/// /// Hides nothing, but shows what a seal does. `onceward::seal::Keyring` is one in earnest.
/// struct Label;
///
/// impl Seal for Label {
///     fn seal(&self, plain: &[u8], about: &[u8]) -> Vec<u8> {
///         [about, plain].concat()
///     }
///     fn open(&self, sealed: &[u8], about: &[u8]) -> Option<Vec<u8>> {
///         sealed.strip_prefix(about).map(<[u8]>::to_vec)
///     }
/// }
///
/// let sealed = Label.seal(b"paid", b"charge 7");
/// assert_eq!(Label.open(&sealed, b"charge 7").as_deref(), Some(&b"paid"[..]));
/// assert_eq!(Label.open(&sealed, b"refund 7"), None);
/// ```
pub trait Seal: Send + Sync + 'static {
    /// Seals bytes about something. The same bytes are sealed differently each time.
    fn seal(&self, plain: &[u8], about: &[u8]) -> Vec<u8>;

    /// The bytes again; `None`: sealed with a key that is not at hand, changed, or about something
    /// else.
    fn open(&self, sealed: &[u8], about: &[u8]) -> Option<Vec<u8>>;
}
