//! Whether what consumers applied is what producers committed: each once, in order per aggregate.

use std::collections::BTreeMap;

/// What producers did and what consumers did, each in the order in which it was committed.
///
/// ```
/// use testbed::{Complaint, MessageHistory};
///
/// let sent = |body: &str| ("order-7".to_owned(), body.to_owned());
/// let committed = vec![sent("1"), sent("2")];
/// let history = MessageHistory { committed, applied: vec![sent("1")], ..MessageHistory::default() };
/// assert_eq!(history.complaints(), [Complaint::Lost("2".to_owned())]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct MessageHistory {
    /// Aggregate and body of each message of a committed transaction.
    pub committed: Vec<(String, String)>,
    /// The bodies of messages whose transactions were rolled back.
    pub aborted: Vec<String>,
    /// Aggregate and body of each effect.
    pub applied: Vec<(String, String)>,
}

/// What should not be, with the body of the message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Complaint {
    /// It was committed, and no consumer applied it.
    Lost(String),
    /// It was applied more than once.
    Twice(String),
    /// Before one of the same aggregate that was committed earlier.
    TooEarly(String),
    /// Its transaction was rolled back.
    Aborted(String),
    /// Nobody sent it.
    Unknown(String),
}

impl MessageHistory {
    /// Everything that should not be; empty if all is well.
    #[must_use]
    pub fn complaints(&self) -> Vec<Complaint> {
        let places: BTreeMap<&str, usize> = self
            .committed
            .iter()
            .enumerate()
            .map(|(place, (_, body))| (body.as_str(), place))
            .collect();
        let mut times: BTreeMap<&str, u32> = BTreeMap::new();
        let mut newest: BTreeMap<&str, usize> = BTreeMap::new();
        let mut complaints = Vec::new();
        for (aggregate, body) in &self.applied {
            let Some(place) = places.get(body.as_str()) else {
                let is_aborted = self.aborted.contains(body);
                let complaint = if is_aborted { Complaint::Aborted } else { Complaint::Unknown };
                complaints.push(complaint(body.clone()));
                continue;
            };
            let count = times.entry(body).or_default();
            *count += 1;
            if *count > 1 {
                complaints.push(Complaint::Twice(body.clone()));
                continue;
            }
            // The newest one of the aggregate came before one that is older.
            let before = newest.entry(aggregate).or_insert(*place);
            if *before > *place {
                complaints.push(Complaint::TooEarly(self.committed[*before].1.clone()));
            }
            *before = (*before).max(*place);
        }
        let lost = places.keys().filter(|body| !times.contains_key(**body));
        complaints.extend(lost.map(|body| Complaint::Lost((*body).to_owned())));
        complaints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(applied: &[&str]) -> Vec<Complaint> {
        let pairs = |bodies: &[&str]| {
            let pair = |body: &&str| (body[..1].to_owned(), (*body).to_owned());
            bodies.iter().map(pair).collect::<Vec<_>>()
        };
        let committed = pairs(&["a1", "b1", "a2", "b2"]);
        let aborted = vec!["a9".to_owned()];
        MessageHistory { committed, aborted, applied: pairs(applied) }.complaints()
    }

    #[test]
    fn each_kind_of_mistake_is_seen() {
        use Complaint::{Aborted, Lost, TooEarly, Twice, Unknown};
        assert!(history(&["b1", "a1", "a2", "b2"]).is_empty(), "aggregates have no order");
        assert_eq!(history(&["a1", "b1", "b2"]), [Lost("a2".into())]);
        assert_eq!(history(&["a1", "b1", "a2", "b1", "b2"]), [Twice("b1".into())]);
        assert_eq!(history(&["a2", "a1", "b1", "b2"]), [TooEarly("a2".into())]);
        assert_eq!(history(&["a1", "a9", "a2", "b1", "b2"]), [Aborted("a9".into())]);
        assert_eq!(history(&["a1", "a2", "b1", "b2", "c1"]), [Unknown("c1".into())]);
    }
}
