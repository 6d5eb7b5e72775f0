//! Failures without an answer: can the request have arrived?
//!
//! "Never sent" opens the safety gate for every request, so the client says it only where it is certain: no
//! connection was made, or the server itself says that it did not look. Everything else may have been
//! carried out: also "connection refused" by itself, which can end an established connection, too. A
//! GOAWAY proves nothing: it means "not looked at" for requests above its last id, but an HTTP/2
//! client shows it also for one below, and the two look the same.

use std::{error::Error, fmt, io, iter};

use onceward_core::retry::Class;

use crate::http::BoxError;

/// No answer within the time of the attempt.
#[derive(Debug)]
pub(super) struct TimedOut {
    pub(super) after: std::time::Duration,
    /// It was waiting for its turn, and nothing was sent.
    pub(super) unsent: bool,
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unsent {
            true => write!(f, "not sent within {:?}: the client was not ready", self.after),
            false => write!(f, "no answer within {:?}", self.after),
        }
    }
}

impl Error for TimedOut {}

#[derive(Debug)]
pub(super) struct CutShort(pub(super) BoxError);

impl fmt::Display for CutShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer was cut short")
    }
}

impl Error for CutShort {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

/// It failed, but perhaps not on its way to the server: the client followed a redirect, or a middleware
/// failed at something of its own.
#[derive(Debug)]
pub(super) struct Later(pub(super) BoxError);

impl fmt::Display for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Later {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

pub(crate) fn class(error: &(dyn Error + 'static)) -> Class {
    for cause in causes(error) {
        if cause.is::<CutShort>() || cause.is::<Later>() {
            return Class::Ambiguous;
        }
        if let Some(class) = timed_out(cause).or_else(|| of_hyper(cause)) {
            return class;
        }
    }
    Class::Ambiguous
}

fn timed_out(error: &(dyn Error + 'static)) -> Option<Class> {
    let late: &TimedOut = error.downcast_ref()?;
    Some(if late.unsent { Class::NeverSent { reused: false } } else { Class::Ambiguous })
}

#[cfg(feature = "hyper")]
fn of_hyper(error: &(dyn Error + 'static)) -> Option<Class> {
    use hyper_util::client::legacy;

    if error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect) {
        // DNS, TCP and TLS: no request before all of them are done.
        return Some(Class::NeverSent { reused: false });
    }
    if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled) {
        // The connection closed before hyper took the request from its queue.
        return Some(Class::NeverSent { reused: true });
    }
    let error: &h2::Error = error.downcast_ref()?;
    let refused =
        error.is_remote() && error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    refused.then_some(Class::NeverSent { reused: false })
}

#[cfg(not(feature = "hyper"))]
fn of_hyper(_: &(dyn Error + 'static)) -> Option<Class> {
    None
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| {
        // An I/O error made of another error shows only what is below that one.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source())
    })
}

/// A failure with everything that led to it, in one line.
pub(crate) fn text(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for cause in causes(error).map(ToString::to_string) {
        // Many errors repeat their cause.
        if !text.ends_with(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NEVER: Class = Class::NeverSent { reused: false };

    #[test]
    fn only_what_is_certain_was_never_sent() {
        for (kind, expected) in [
            (io::ErrorKind::ConnectionRefused, Class::Ambiguous),
            (io::ErrorKind::AddrNotAvailable, Class::Ambiguous),
            (io::ErrorKind::ConnectionReset, Class::Ambiguous),
            (io::ErrorKind::BrokenPipe, Class::Ambiguous),
            (io::ErrorKind::HostUnreachable, Class::Ambiguous),
            (io::ErrorKind::UnexpectedEof, Class::Ambiguous),
            (io::ErrorKind::TimedOut, Class::Ambiguous),
        ] {
            let error = io::Error::other(io::Error::from(kind));
            assert_eq!(class(&error), expected, "{kind:?}");
        }
        let after = Duration::from_secs(1);
        assert_eq!(class(&TimedOut { after, unsent: true }), NEVER);
        assert_eq!(class(&TimedOut { after, unsent: false }), Class::Ambiguous);
        let cut = CutShort(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        assert_eq!(class(&cut), Class::Ambiguous, "an answer had begun");
    }

    #[test]
    fn the_text_tells_every_cause_once() {
        let cut = CutShort(Box::new(io::Error::other("the peer went away")));
        assert_eq!(text(&cut), "the answer was cut short: the peer went away");
        assert_eq!(text(&io::Error::other(io::Error::other("x"))), "x");
    }

    /// What a client of HTTP/2 sees when the server resets its stream for this reason.
    #[cfg(feature = "hyper")]
    async fn reset(reason: h2::Reason) -> h2::Error {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            let mut server = h2::server::handshake(theirs).await.unwrap();
            while let Some(Ok((_, mut respond))) = server.accept().await {
                respond.send_reset(reason);
            }
        });
        let (mut client, connection) = h2::client::handshake(ours).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::post("http://a.example/").body(()).unwrap();
        let (response, _) = client.send_request(request, true).unwrap();
        response.await.unwrap_err()
    }

    #[cfg(feature = "hyper")]
    #[tokio::test]
    async fn a_stream_that_the_server_refused_was_never_looked_at() {
        let refused = io::Error::other(reset(h2::Reason::REFUSED_STREAM).await);
        assert_eq!(class(&refused), NEVER);
        let cancelled = io::Error::other(reset(h2::Reason::CANCEL).await);
        assert_eq!(class(&cancelled), Class::Ambiguous);
    }
}
