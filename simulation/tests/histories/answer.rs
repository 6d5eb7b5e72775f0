//! What a client hears, and how answers are told apart.

use onceward::{Outcome, protocol::StoredBody};

/// What one attempt of a client ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Done; bound for the retention.
    Ok(Receipt),
    /// Refused for good; bound for the retention.
    Refused(Receipt),
    /// This claim did nothing; the client may try again.
    Retryable {
        claim: usize,
    },
    Busy,
    Mismatch,
    Unknown,
    LeaseLost,
    /// Nothing was run.
    Unavailable,
    /// The client gave up, or the connection broke.
    Nothing,
}

impl Answer {
    /// The answer that a stored outcome stands for.
    pub(crate) fn of(outcome: &Outcome) -> Self {
        let receipt = Receipt::read(outcome);
        if outcome.status == Receipt::DONE { Self::Ok(receipt) } else { Self::Refused(receipt) }
    }

    pub(crate) fn is_last_word(self) -> bool {
        matches!(self, Self::Ok(_) | Self::Refused(_) | Self::Mismatch | Self::Unknown)
    }
}

/// The body of every outcome: who made it, for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) key: u8,
    pub(crate) fingerprint: u8,
    /// The number of the claim that made it.
    pub(crate) claim: usize,
    /// The number of the result downstream, where there is one.
    pub(crate) result: u32,
}

impl Receipt {
    const DONE: u16 = 201;
    const REFUSED: u16 = 402;

    pub(crate) fn done(self) -> Outcome {
        Outcome::inline(Self::DONE, self.write())
    }

    pub(crate) fn refused(self) -> Outcome {
        Outcome::inline(Self::REFUSED, self.write())
    }

    fn write(self) -> Vec<u8> {
        let mut bytes = vec![self.key, self.fingerprint];
        bytes.extend_from_slice(&(self.claim as u32).to_be_bytes());
        bytes.extend_from_slice(&self.result.to_be_bytes());
        bytes
    }

    fn read(outcome: &Outcome) -> Self {
        let StoredBody::Inline(bytes) = &outcome.body else { panic!("outcomes are inline") };
        let number = |at: usize| {
            let bytes: [u8; 4] = bytes[at..at + 4].try_into().expect("four bytes");
            u32::from_be_bytes(bytes)
        };
        Self { key: bytes[0], fingerprint: bytes[1], claim: number(2) as usize, result: number(6) }
    }
}
