//! What clients hear, checked at the moment they hear it.

use crate::{
    answer::{Answer, Receipt},
    book::{Book, Ended},
    checks::{I2, I3, I8, I9, I10, I14},
    settings::Nature,
    tally::Event,
};

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) client: usize,
    pub(crate) key: u8,
    pub(crate) fingerprint: u8,
    /// When the attempt began.
    pub(crate) asked: u64,
}

/// What one client heard so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OnEnded {
    generation: usize,
}

/// The first bound answer for a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    moment: u64,
    ok: bool,
    receipt: Receipt,
}

impl Book {
    /// A client hears an answer. `remembered`: the retention outlasts the history.
    pub(crate) fn hear(&mut self, asker: Asker, answer: Answer, remembered: bool) {
        self.count_answer(answer);
        match answer {
            Answer::Ok(receipt) => self.hear_bound(asker, true, receipt),
            Answer::Refused(receipt) => self.hear_bound(asker, false, receipt),
            Answer::Retryable { claim } => self.claims[claim].denied = true,
            Answer::Mismatch => self.hear_mismatch(asker),
            _ => {}
        }
        if remembered {
            self.compare_with_first(asker, answer);
        }
    }

    fn count_answer(&mut self, answer: Answer) {
        self.count(match answer {
            Answer::Ok(_) => Event::Ok,
            Answer::Refused(_) => Event::Refused,
            Answer::Retryable { .. } => Event::Retryable,
            Answer::Busy => Event::Busy,
            Answer::Mismatch => Event::Mismatch,
            Answer::Unknown => Event::Unknown,
            Answer::LeaseLost => Event::LeaseLost,
            Answer::Unavailable => Event::Unavailable,
            Answer::Nothing => Event::NoAnswer,
        });
    }

    fn hear_bound(&mut self, asker: Asker, ok: bool, receipt: Receipt) {
        let Receipt { claim, .. } = receipt;
        let client = asker.client;
        if receipt.key != asker.key {
            self.violate(I10, format!("client {client} got the answer of another's key"));
        }
        if receipt.fingerprint != asker.fingerprint {
            self.violate(I9, format!("client {client} got the answer to another request"));
        }
        let ended = if ok { Ended::Succeeded } else { Ended::Refused };
        if !self.claims[claim].endings.contains(&ended) {
            self.violate(I14, format!("the answer of #{claim} was sent before it was durable"));
        }
        let generation = self.claims[claim].generation;
        self.hear_of_generation(generation, ok, receipt);
        if generation < self.heard[client].generation {
            self.violate(I3, format!("client {client} got an answer older than the one before"));
        }
        self.heard[client].generation = generation;
    }

    fn hear_of_generation(&mut self, number: usize, ok: bool, receipt: Receipt) {
        let generation = &mut self.generations[number];
        let first = *generation.answer.get_or_insert((ok, receipt));
        let effects = generation.effects;
        let repeated = self.nature == Nature::Repeatable && generation.remembered && effects == 0;
        if first != (ok, receipt) {
            self.violate(I3, format!("generation {number}: first {first:?}, then {receipt:?}"));
        }
        if ok && effects != 1 && !repeated {
            self.violate(I2, format!("generation {number}: ok with {effects} effects"));
        }
        if !ok && effects > 0 {
            self.violate(I8, format!("generation {number}: refused with {effects} effects"));
        }
    }

    fn hear_mismatch(&mut self, asker: Asker) {
        let others = self.generations.iter().filter(|generation| {
            generation.key == asker.key && generation.fingerprint != asker.fingerprint
        });
        if others.count() == 0 {
            self.violate(I9, format!("client {} mismatched with nobody", asker.client));
        }
    }

    /// Once a bound answer was heard, whoever asks after that hears the same or is refused. This
    /// looks at clients alone and knows nothing of claims and generations.
    fn compare_with_first(&mut self, asker: Asker, answer: Answer) {
        let moment = self.next_moment();
        let bound = match answer {
            Answer::Ok(receipt) => Some(Bound { moment, ok: true, receipt }),
            Answer::Refused(receipt) => Some(Bound { moment, ok: false, receipt }),
            _ => None,
        };
        let slot = &mut self.bound[usize::from(asker.key)];
        let Some(first) = *slot else {
            *slot = bound;
            return;
        };
        let same = match (bound, answer) {
            (Some(bound), _) => (bound.ok, bound.receipt) == (first.ok, first.receipt),
            (None, Answer::Unavailable | Answer::Nothing) => true,
            (None, _) if asker.asked < first.moment => true,
            (None, Answer::Mismatch) => first.receipt.fingerprint != asker.fingerprint,
            (None, _) => false,
        };
        if !same {
            self.violate(I3, format!("first {:?}, then {answer:?}", first.receipt));
        }
    }
}
