//! Why a layer was not built.

use std::fmt;

use onceward_core::{OperationNameError, PolicyError, TermsError};

/// Why a layer was not built. Nothing is served with options that do not fit together.
///
/// ```
/// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
/// # let store = MemoryStore::not_durable();
/// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
/// let error = Idempotency::builder(store, scope).methods([http::Method::GET]).build().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "`methods`: GET changes nothing: choose of POST, PATCH, PUT, DELETE"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionsError {
    /// Lease, retention and their kin.
    Terms(TermsError),
    /// What a reply means.
    Policy(PolicyError),
    /// The operation's name.
    Name(OperationNameError),
    /// Any other option.
    Option {
        /// Which one.
        option: &'static str,
        /// What is wrong with it and what to do.
        text: String,
    },
}

impl fmt::Display for OptionsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Terms(error) => error.fmt(formatter),
            Self::Policy(error) => error.fmt(formatter),
            Self::Name(error) => write!(formatter, "`operation`: {error}"),
            Self::Option { option, text } => write!(formatter, "`{option}`: {text}"),
        }
    }
}

impl std::error::Error for OptionsError {}
