//! A call that ended without an answer.

use std::{error::Error, fmt};

use onceward_core::retry::Stop;

use super::{BoxError, Report, failure};

/// No answer: what happened, whether it may have happened, and what to do.
///
/// ```
/// use onceward::client::CallError;
///
/// fn tell(error: &CallError) {
///     if error.is_unknown() {
///         // It may have happened. Send it again with the same key, never with a new one.
///         println!("unknown; the key is {:?}", error.report().key());
///     }
/// }
/// ```
#[derive(Debug)]
pub struct CallError {
    // In a box: errors are returned by value through every layer.
    inner: Box<(Report, Option<BoxError>)>,
}

impl CallError {
    pub(super) fn new(report: Report, source: Option<BoxError>) -> Self {
        Self { inner: Box::new((report, source)) }
    }

    /// What the call did.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.inner.0
    }

    /// Whether the operation may have happened.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.report().stop.is_some_and(Stop::is_unknown)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (report, source) = &*self.inner;
        let Some(stop) = report.stop else {
            let cause = source.as_ref().map(|source| failure::text(&**source));
            return write!(f, "the request was not sent: {}", cause.unwrap_or_default());
        };
        match report.attempts.len() {
            0 => f.write_str("nothing was sent")?,
            1 => f.write_str("no answer after 1 attempt")?,
            attempts => write!(f, "no answer after {attempts} attempts")?,
        }
        write!(f, ": {}", stop.reason())?;
        if let Some(last) = report.attempts.last() {
            write!(f, "; the last one: {last}")?;
        }
        match (stop, report.key_digest().filter(|_| !report.unprotected)) {
            (Stop::Failed(_), _) => f.write_str("; it did not happen, as far as is known")?,
            (Stop::Unknown(_), None) => {
                f.write_str("; it may have happened: look before you send it again")?;
            }
            (Stop::Unknown(_), Some(digest)) => write!(
                f,
                "; it may have happened: send it again with the same key ({digest}), never with a new one"
            )?,
        }
        match report.hint {
            Some(hint) => write!(f, ", and not before {} s", hint.as_secs().max(1)),
            None => Ok(()),
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.inner.1.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}
