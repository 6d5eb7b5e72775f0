//! How many files and connections the process may have open, and what they are for.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the store, the log and the collector of traces need, and as many connections of operators.
const OWN: usize = 64;

/// No gateway serves more clients at once.
const MOST_CLIENTS: usize = 16_384;

/// Twice as many as there can be answers on their way.
const MOST_UPSTREAM: usize = 65_536;

/// The limit of this process. Clients, operators and the upstream have parts of it, so that none of
/// them can take a connection from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    limit: usize,
}

impl Descriptors {
    /// Raises the limit to what the process may have at most: the usual one is for programs that
    /// cannot count further.
    pub(crate) fn raise() -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: maximum, maximum };
        let limit = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => maximum,
            // The gateway serves with what there is, and warns the operator if that is little.
            Err(_) => current,
        };
        Self { limit: limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX) }
    }

    pub(crate) fn limit(self) -> usize {
        self.limit
    }

    fn own(self) -> usize {
        OWN.min(self.limit / 4)
    }

    pub(crate) fn operators(self) -> usize {
        self.own()
    }

    /// Connections to the upstream, and to the URLs of `authorize`, `reconcile` and `rebuild`.
    pub(crate) fn upstream(self) -> usize {
        ((self.limit - 2 * self.own()) / 3).min(MOST_UPSTREAM)
    }

    pub(crate) fn clients(self) -> usize {
        (self.limit - 2 * self.own() - self.upstream()).min(MOST_CLIENTS)
    }

    /// Answers on their way. Each has a connection to the upstream, and as many may be idle.
    pub(crate) fn answers(self, wanted: usize) -> usize {
        wanted.min(self.upstream() / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_never_more_than_the_whole() {
        for limit in [0, 1, 10, 64, 256, 1024, 4096, 20_000, 1 << 20, usize::MAX] {
            let descriptors = Descriptors { limit };
            let parts = [descriptors.own(), descriptors.operators(), descriptors.upstream()];
            let parts = parts.iter().sum::<usize>() + descriptors.clients();
            assert!(parts <= limit, "{parts} of {limit}");
            assert!(descriptors.answers(2048) <= 2048.min(descriptors.upstream()));
        }
        let usual = Descriptors { limit: 1 << 20 };
        assert_eq!((usual.clients(), usual.answers(2048)), (MOST_CLIENTS, 2048));
        let small = Descriptors { limit: 256 };
        assert_eq!((small.operators(), small.upstream(), small.clients()), (64, 42, 86));
    }
}
