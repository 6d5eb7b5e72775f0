//! Messages as columns and columns as messages: the same in every SQL store.

use std::time::Duration;

use onceward_core::{
    Digest, StoreError, Timestamp,
    message::{
        Aggregate, Message, MessageFilter, MessageId, MessageState, Parking, RepairKind, SinkName,
        Topic,
    },
};

/// The numbers of what became of a parked message, as in the schemas. Those below `SCHEDULED` block their aggregate.
pub(crate) mod parked {
    pub(crate) const WAITING: i64 = 0;
    pub(crate) const HELD: i64 = 1;
    pub(crate) const DEAD: i64 = 2;
    pub(crate) const SCHEDULED: i64 = 3;
    pub(crate) const SKIPPED: i64 = 4;
    pub(crate) const EXPIRED: i64 = 5;
    pub(crate) const DISCARDED: i64 = 6;
    /// No message has it.
    #[cfg(feature = "sqlite")]
    pub(crate) const NONE: i64 = -1;
}

/// What a parked message becomes, as columns; a wait is counted from the change on.
pub(crate) struct ParkedColumns<'a> {
    pub(crate) state: i64,
    pub(crate) attempts: u32,
    pub(crate) wait: Option<Duration>,
    pub(crate) why: &'a str,
}

impl<'a> ParkedColumns<'a> {
    /// `None`: it was delivered, and nothing is kept.
    pub(crate) fn of(parking: &'a Parking) -> Option<Self> {
        let (state, attempts, wait, why) = match parking {
            Parking::Delivered => return None,
            Parking::Waiting { attempts, wait, why } => {
                (parked::WAITING, *attempts, Some(*wait), &**why)
            }
            Parking::Scheduled => (parked::SCHEDULED, 0, None, ""),
            Parking::Held { attempts, why } => (parked::HELD, *attempts, None, &**why),
            Parking::Dead { attempts, why, is_skipped: false } => {
                (parked::DEAD, *attempts, None, &**why)
            }
            Parking::Dead { attempts, why, is_skipped: true } => {
                (parked::SKIPPED, *attempts, None, &**why)
            }
            Parking::Expired => (parked::EXPIRED, 0, None, ""),
        };
        Some(Self { state, attempts, wait, why })
    }
}

/// What a number of the schema means to operators.
pub(crate) fn state_of(number: i64) -> Result<MessageState, StoreError> {
    Ok(match number {
        parked::WAITING => MessageState::Waiting,
        parked::HELD => MessageState::Held,
        parked::DEAD | parked::SKIPPED => MessageState::Dead,
        parked::SCHEDULED => MessageState::Scheduled,
        parked::EXPIRED => MessageState::Expired,
        parked::DISCARDED => MessageState::Discarded,
        _ => {
            return Err(StoreError::Newer(format!(
                "a message is in state {number}, which this software does not know; finish the upgrade of this \
                 process"
            )));
        }
    })
}

/// A message and a sink, in the order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListPlace {
    pub(crate) seq: i64,
    pub(crate) sink: i16,
}

impl ListPlace {
    /// Where a page goes on behind another one.
    pub(crate) fn after(filter: &MessageFilter) -> Result<Self, StoreError> {
        let Some(after) = &filter.after else { return Ok(Self::default()) };
        let numbers = after.split_once('.').map(|(seq, sink)| (seq.parse(), sink.parse()));
        match numbers {
            Some((Ok(seq), Ok(sink))) => Ok(Self { seq, sink }),
            _ => Err(StoreError::Refused(format!(
                "{after:?} is not where a page of this list ended; begin again without it"
            ))),
        }
    }

    /// What the next page is asked for with.
    pub(crate) fn text(self) -> String {
        format!("{}.{}", self.seq, self.sink)
    }
}

/// How many messages one page of a list has.
pub(crate) fn page_length(filter: &MessageFilter) -> u32 {
    match filter.limit {
        0 => 100,
        limit => limit.min(MessageFilter::MAX_PAGE),
    }
}

/// The name of a sink, as it is stored.
pub(crate) fn sink_name(text: &str) -> Result<SinkName, StoreError> {
    SinkName::new(text).map_err(|_| damaged("a sink"))
}

/// How much of what operators did to one message is shown.
pub(crate) const MAX_TRAIL: i64 = 1000;

/// What an entry of the trail says was done.
pub(crate) fn kind_of(word: &str) -> Result<RepairKind, StoreError> {
    RepairKind::parse(word).ok_or_else(|| {
        StoreError::Newer(format!(
            "the trail has an entry of the kind {word:?}, which this software does not know; finish the upgrade of \
             this process"
        ))
    })
}

/// A message as a driver gives it.
pub(crate) struct MessageColumns {
    pub(crate) id: Vec<u8>,
    pub(crate) topic: String,
    pub(crate) aggregate: String,
    pub(crate) at: Timestamp,
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) operation: Option<Vec<u8>>,
    pub(crate) trace: Option<String>,
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
}

impl MessageColumns {
    /// The message, if a producer could have written it.
    pub(crate) fn message(self) -> Result<Message, StoreError> {
        let id = self.id.try_into().map(MessageId::from_bytes).map_err(|_| damaged("an id"))?;
        let operation = self.operation.map(Vec::try_into).transpose();
        Ok(Message {
            id,
            topic: Topic::new(&self.topic).map_err(|_| damaged("a topic"))?,
            aggregate: Aggregate::new(&self.aggregate).map_err(|_| damaged("an aggregate"))?,
            body: self.body,
            headers: headers_of(&self.headers).ok_or_else(|| damaged("headers"))?,
            at: self.at,
            not_before: self.not_before,
            expires_at: self.expires_at,
            operation: operation.map_err(|_| damaged("an operation"))?.map(Digest),
            trace: self.trace,
        })
    }
}

/// Header lines as JSON: `[["name", "value"], …]`.
pub(crate) fn headers_text(headers: &[(String, String)]) -> String {
    let lines = headers.iter().map(|(name, value)| serde_json::json!([name, value]));
    serde_json::Value::Array(lines.collect()).to_string()
}

fn headers_of(text: &str) -> Option<Vec<(String, String)>> {
    match text {
        "[]" => Some(Vec::new()),
        _ => serde_json::from_str(text).ok(),
    }
}

/// Nothing that this software enqueues.
pub(crate) fn damaged(what: &str) -> StoreError {
    StoreError::Unusable(format!(
        "a message has {what} that no producer could enqueue; its lane stands still and nothing is lost: \
         look at the table of messages, and restore or correct what was changed there"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_lines_are_read_back() {
        let line = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        for headers in [vec![], vec![line("a", "\"1\"\\"), line("a", "\u{e4}\t")]] {
            assert_eq!(headers_of(&headers_text(&headers)), Some(headers));
        }
        assert_eq!(headers_of("[[\"a\"]]"), None);
    }
}
