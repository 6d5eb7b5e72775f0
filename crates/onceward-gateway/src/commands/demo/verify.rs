//! What must be true when everybody has gone home, counted by key and not by totals.

use std::{collections::HashMap, fmt};

use super::{clients::Receipt, ledger::Charge};

/// Something that must never happen, the worst first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Finding {
    /// The tap's key is in the ledger more than once.
    ChargedOften { key: String, times: usize },
    /// The tap has an answer or gave up, and the ledger does not know it.
    NeverCharged { key: String },
    /// Another amount was charged than was ordered.
    OtherAmount { key: String },
    /// The tap was never answered.
    NeverAnswered { key: String },
    /// Two answers of the tap differ, or one is not what the upstream had said.
    OtherAnswer { key: String },
    /// The same key was accepted for another amount.
    OtherAmountAccepted { key: String },
    /// A charge that no tap asked for.
    NobodysCharge { key: String },
}

/// Compares what the clients know with what the upstream did.
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
    findings.extend(charges.into_keys().map(|key| Finding::NobodysCharge { key: key.to_owned() }));
    findings
}

fn examine(receipt: &Receipt, charged: &[&Charge], findings: &mut Vec<Finding>) {
    let key = || receipt.key.clone();
    match charged {
        [] => findings.push(Finding::NeverCharged { key: key() }),
        [charge] if charge.cents != receipt.cents => {
            findings.push(Finding::OtherAmount { key: key() });
        }
        [_] => {}
        _ => findings.push(Finding::ChargedOften { key: key(), times: charged.len() }),
    }
    match &receipt.answer {
        None => findings.push(Finding::NeverAnswered { key: key() }),
        Some(answer) => {
            let is_the_upstreams = charged.first().is_none_or(|charge| charge.answer == answer);
            if receipt.other_answers > 0 || !is_the_upstreams {
                findings.push(Finding::OtherAnswer { key: key() });
            }
        }
    }
    if receipt.other_amount_accepted {
        findings.push(Finding::OtherAmountAccepted { key: key() });
    }
}

impl Finding {
    /// What it has in common with others of its kind.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::ChargedOften { .. } => "charged more than once",
            Self::NeverCharged { .. } => "never charged",
            Self::OtherAmount { .. } => "charged with another amount",
            Self::NeverAnswered { .. } => "never answered",
            Self::OtherAnswer { .. } => "answered differently from time to time",
            Self::OtherAmountAccepted { .. } => "accepted for another amount under the same key",
            Self::NobodysCharge { .. } => "charged, though nobody had tapped",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ChargedOften { key, times } => write!(formatter, "{key} {times} times"),
            Self::NeverCharged { key }
            | Self::OtherAmount { key }
            | Self::NeverAnswered { key }
            | Self::OtherAnswer { key }
            | Self::OtherAmountAccepted { key }
            | Self::NobodysCharge { key } => formatter.write_str(key),
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

    #[test]
    fn one_charge_for_every_tap_is_as_it_should_be() {
        let receipts = [receipt("a", "ch_1"), receipt("b", "ch_2")];
        assert_eq!(verify(&receipts, &[charge("b", "ch_2"), charge("a", "ch_1")]), []);
    }

    #[test]
    fn a_doubled_ledger_is_found_also_when_the_totals_agree() {
        let receipts = [receipt("a", "ch_1"), receipt("b", "ch_2")];
        let findings = verify(&receipts, &[charge("a", "ch_1"), charge("a", "ch_3")]);
        let expected = [
            Finding::ChargedOften { key: "a".into(), times: 2 },
            Finding::NeverCharged { key: "b".into() },
        ];
        assert_eq!(findings, expected);
    }

    #[test]
    fn an_answer_that_changes_is_found() {
        let ledger = [charge("a", "ch_1")];
        let expected = [Finding::OtherAnswer { key: "a".into() }];
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
        let key = || "a".to_owned();
        let expected = [
            Finding::OtherAmount { key: key() },
            Finding::NeverAnswered { key: key() },
            Finding::OtherAmountAccepted { key: key() },
            Finding::NobodysCharge { key: "x".into() },
        ];
        assert_eq!(verify(&[odd], &ledger), expected);
    }
}
