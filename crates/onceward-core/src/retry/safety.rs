//! The safety gate: may this request be sent a second time at all?
//!
//! Everything else in this module is about when and how often. This is about whether: a request that
//! may have been carried out is sent again only if a second run does no harm, which its method
//! promises (RFC 9110, 9.2) or its key. There is no setting that opens this gate.

use super::Class;

/// What the method of a request promises.
///
/// ```
/// use onceward_core::retry::{Class, Method};
///
/// assert_eq!(Method::of("GET"), Method::Safe);
/// assert_eq!(Method::of("DELETE"), Method::Idempotent);
/// let post = Method::of("POST");
/// assert!(!post.may_repeat(false, Class::Ambiguous), "it may have been carried out");
/// assert!(post.may_repeat(true, Class::Ambiguous), "the key makes it one operation");
/// assert!(post.may_repeat(false, Class::NeverSent { reused: false }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// It changes nothing.
    Safe,
    /// Doing it twice is doing it once.
    Idempotent,
    /// Every time counts.
    Other,
}

impl Method {
    /// The promise of a method by its name; an unknown name promises nothing.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "GET" | "HEAD" | "OPTIONS" | "TRACE" | "QUERY" => Self::Safe,
            "PUT" | "DELETE" => Self::Idempotent,
            _ => Self::Other,
        }
    }

    /// Whether a request of this method may be sent again after an attempt that ended so.
    #[must_use]
    pub fn may_repeat(self, keyed: bool, class: Class) -> bool {
        self != Self::Other || keyed || matches!(class, Class::NeverSent { .. })
    }
}
