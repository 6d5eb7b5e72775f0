//! What must be true when all clients have ended, counted by key and not by totals.

use std::{collections::HashMap, fmt};

use super::{clients::Receipt, ledger::Charge};

/// What must never happen to a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Finding {
    pub(super) wrong: Wrong,
    pub(super) key: String,
    pub(super) times: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wrong {
    ChargedOften,
    /// The tap has an answer or gave up, and the ledger does not know it.
    NeverCharged,
    OtherAmount,
    NeverAnswered,
    /// Two answers of the tap differ, or one is not what the upstream had said.
    OtherAnswer,
    OtherAmountAccepted,
    NoTap,
}

pub(super) fn verify(receipts: &[Receipt], ledger: &[Charge]) -> Vec<Finding> {
    let mut charges: HashMap<&str, Vec<&Charge>> = HashMap::new();
    for charge in ledger {
        charges.entry(&charge.key).or_default().push(charge);
    }
    let mut findings = Vec::new();
    for receipt in receipts {
        let charged = charges.remove(receipt.key.as_str()).unwrap_or_default();
        examine(receipt, &charged, &mut findings);
    }
    let foreign = charges.into_iter().map(|(key, charged)| Finding {
        wrong: Wrong::NoTap,
        key: key.to_owned(),
        times: charged.len(),
    });
    findings.extend(foreign);
    findings
}

fn examine(receipt: &Receipt, charged: &[&Charge], findings: &mut Vec<Finding>) {
    let of_the_upstream = |answer| charged.first().is_none_or(|charge| charge.answer == answer);
    let in_ledger = match charged {
        [] => Some(Wrong::NeverCharged),
        [charge] if charge.cents != receipt.cents => Some(Wrong::OtherAmount),
        [_] => None,
        _ => Some(Wrong::ChargedOften),
    };
    let answered = match &receipt.answer {
        None => Some(Wrong::NeverAnswered),
        Some(answer) if receipt.other_answers > 0 || !of_the_upstream(answer) => {
            Some(Wrong::OtherAnswer)
        }
        Some(_) => None,
    };
    let accepted = receipt.other_amount_accepted.then_some(Wrong::OtherAmountAccepted);
    let wrong = [in_ledger, answered, accepted].into_iter().flatten();
    let (key, times) = (&receipt.key, charged.len());
    findings.extend(wrong.map(|wrong| Finding { wrong, key: key.clone(), times }));
}

impl fmt::Display for Wrong {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ChargedOften => "charged more than once",
            Self::NeverCharged => "never charged",
            Self::OtherAmount => "charged with another amount",
            Self::NeverAnswered => "never answered",
            Self::OtherAnswer => "answered differently from time to time",
            Self::OtherAmountAccepted => "accepted for another amount under the same key",
            Self::NoTap => "charged without a tap",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wrong, key, times } = self;
        match wrong {
            Wrong::ChargedOften => write!(formatter, "{key} {times} times"),
            _ => formatter.write_str(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn charge(key: &str, answer: &'static str) -> Charge {
        let answer = Bytes::from_static(answer.as_bytes());
        Charge { key: key.into(), caller: "client-1".into(), cents: 500, answer }
    }

    fn receipt(key: &str, answer: &'static str) -> Receipt {
        Receipt {
            key: key.into(),
            cents: 500,
            answer: Some(Bytes::from_static(answer.as_bytes())),
            other_answers: 0,
            other_amount_accepted: false,
        }
    }

    fn finding(wrong: Wrong, key: &str, times: usize) -> Finding {
        Finding { wrong, key: key.into(), times }
    }

    #[test]
    fn one_charge_for_every_tap_is_as_it_should_be() {
        let receipts = [receipt("a", "ch_1"), receipt("b", "ch_2")];
        assert_eq!(verify(&receipts, &[charge("b", "ch_2"), charge("a", "ch_1")]), []);
    }

    #[test]
    fn a_doubled_ledger_is_found_also_when_the_totals_agree() {
        let receipts = [receipt("a", "ch_1"), receipt("b", "ch_2")];
        let findings = verify(&receipts, &[charge("a", "ch_1"), charge("a", "ch_3")]);
        let expected = [finding(Wrong::ChargedOften, "a", 2), finding(Wrong::NeverCharged, "b", 0)];
        assert_eq!(findings, expected);
    }

    #[test]
    fn an_answer_that_changes_is_found() {
        let ledger = [charge("a", "ch_1")];
        let expected = [finding(Wrong::OtherAnswer, "a", 1)];
        assert_eq!(verify(&[receipt("a", "ch_2")], &ledger), expected);
        let changing = Receipt { other_answers: 1, ..receipt("a", "ch_1") };
        assert_eq!(verify(&[changing], &ledger), expected);
    }

    #[test]
    fn everything_else_that_must_not_happen_is_found() {
        let ledger = [charge("a", "ch_1"), charge("x", "ch_9")];
        let odd = Receipt {
            cents: 550,
            answer: None,
            other_amount_accepted: true,
            ..receipt("a", "ch_1")
        };
        let expected = [
            finding(Wrong::OtherAmount, "a", 1),
            finding(Wrong::NeverAnswered, "a", 1),
            finding(Wrong::OtherAmountAccepted, "a", 1),
            finding(Wrong::NoTap, "x", 1),
        ];
        assert_eq!(verify(&[odd], &ledger), expected);
    }
}
