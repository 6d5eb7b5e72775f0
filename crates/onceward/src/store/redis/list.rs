//! Lists records by what they mean: the sets of all partitions are merged, a bounded number of records at a time.
//!
//! The order is that of the time at which a record may be swept, which is the time of its claim plus the same lengths
//! for all records on the same terms. The end of a claim does not change it.

use onceward_core::{
    Cursor, Digest, Filter, Found, Listed, OperationId, Order, Page, Status, StoreError, Timestamp,
};
use redis::{Cmd, Value};

use super::{
    RedisStore,
    keys::{digest, partition},
    rows,
};

/// How many records one page looks at.
pub(super) const WINDOW: usize = 4096;

/// How many records are read in one go.
const STEP: usize = 128;

/// From which size on a page is full: large answers must not fill the memory.
const MAX_PAGE_BYTES: usize = 64 << 20;

/// Which of the two sets of each partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sets {
    Open,
    Ended,
    Both,
}

impl Sets {
    fn of(status: Option<Status>) -> Self {
        match status {
            Some(
                Status::InProgress
                | Status::Interrupted
                | Status::Unknown
                | Status::FailedRetryable,
            ) => Self::Open,
            Some(Status::Succeeded | Status::FailedFinal | Status::Released) => Self::Ended,
            // An expired one may have failed so that it may be run again.
            _ => Self::Both,
        }
    }
}

/// A place in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListPosition {
    pub(super) at: i64,
    pub(super) id: Digest,
}

impl ListPosition {
    pub(super) fn cursor(self) -> Cursor {
        Cursor(format!("{}.{}", self.at, self.id))
    }

    pub(super) fn read(text: &str) -> Result<Self, StoreError> {
        let parsed = || {
            let (at, id) = text.split_once('.')?;
            Some(Self { at: at.parse().ok()?, id: id.parse().ok()? })
        };
        parsed().ok_or_else(|| {
            StoreError::Unusable(format!("{text:?} is not where a page of this store ended"))
        })
    }

    fn is_behind(self, other: Self, order: Order) -> bool {
        match order {
            Order::OldestFirst => self > other,
            Order::NewestFirst => self < other,
        }
    }
}

/// What follows in the order of the list.
pub(super) struct Window {
    pub(super) places: Vec<ListPosition>,
    /// Nothing comes after them.
    pub(super) is_last: bool,
}

/// A record that was looked at; `None`: its set names it, and it is gone.
pub(super) struct Looked {
    pub(super) place: ListPosition,
    pub(super) found: Option<Found>,
    pub(super) bytes: usize,
}

impl RedisStore {
    pub(super) async fn list_page(&self, filter: &Filter) -> Result<Page, StoreError> {
        let mut after =
            filter.after.as_ref().map(|Cursor(text)| ListPosition::read(text)).transpose()?;
        let limit = filter.limit.clamp(1, Filter::MAX_PAGE) as usize;
        if let Some(id) = exactly(filter) {
            return self.list_one(filter, id).await;
        }
        let sets = Sets::of(filter.status);
        let (mut page, mut bytes, mut looked_at) = (Page { listed: Vec::new(), next: None }, 0, 0);
        let mut gone = Vec::new();
        'page: loop {
            let wanted = if is_selective(filter) { WINDOW / 4 } else { limit };
            let window = self.window(sets, filter.order, after, wanted).await?;
            for places in window.places.chunks(STEP) {
                for Looked { place, found, bytes: size } in self.look(places).await? {
                    after = Some(place);
                    bytes += size;
                    looked_at += 1;
                    match found {
                        None => gone.push(place.id),
                        Some(found) if is_wanted(filter, &found) => {
                            page.listed.push(Listed { id: place.id, found });
                        }
                        Some(_) => {}
                    }
                    if page.listed.len() == limit || bytes > MAX_PAGE_BYTES {
                        break 'page;
                    }
                }
            }
            if window.is_last {
                after = None;
                break;
            }
            if looked_at >= WINDOW {
                break;
            }
        }
        page.next = after.map(ListPosition::cursor);
        self.trim(&gone).await?;
        Ok(page)
    }

    async fn list_one(&self, filter: &Filter, id: Digest) -> Result<Page, StoreError> {
        let found = self.read(&id).await?;
        let listed = Some(Listed { id, found });
        let listed =
            listed.filter(|listed| filter.after.is_none() && is_wanted(filter, &listed.found));
        Ok(Page { listed: listed.into_iter().collect(), next: None })
    }

    /// The next places of all partitions, at most so many.
    pub(super) async fn window(
        &self,
        sets: Sets,
        order: Order,
        after: Option<ListPosition>,
        wanted: usize,
    ) -> Result<Window, StoreError> {
        // Places are spread evenly, so a few of each set will do.
        let mut of_each = wanted / 64 + 4;
        loop {
            let questions = self.questions(sets, order, after, of_each);
            let answers = self.inner.servers.ask_each(&questions).await?;
            let (mut places, mut edge) = (Vec::new(), None::<ListPosition>);
            for ((partition, _), answer) in questions.iter().zip(answers) {
                let found = places_in(*partition, answer)?;
                if found.len() == of_each
                    && let Some(last) = found.last()
                    && edge.is_none_or(|edge| edge.is_behind(*last, order))
                {
                    edge = Some(*last);
                }
                let is_next =
                    |place: &ListPosition| after.is_none_or(|after| place.is_behind(after, order));
                places.extend(found.into_iter().filter(is_next));
            }
            places.retain(|place| edge.is_none_or(|edge| !place.is_behind(edge, order)));
            if places.is_empty() && edge.is_some() {
                // Many at the very same moment.
                of_each *= 4;
                continue;
            }
            places.sort_unstable();
            // A record that ended between the two questions is in both answers.
            places.dedup();
            if order == Order::NewestFirst {
                places.reverse();
            }
            let is_last = edge.is_none() && places.len() <= wanted;
            places.truncate(wanted);
            return Ok(Window { places, is_last });
        }
    }

    /// Open ones first: what ends meanwhile is seen twice, and never missed.
    fn questions(
        &self,
        sets: Sets,
        order: Order,
        after: Option<ListPosition>,
        of_each: usize,
    ) -> Vec<(u8, Cmd)> {
        let mut questions = Vec::with_capacity(512);
        for partition in 0..=u8::MAX {
            let (open, ended) = (self.keys().open(partition), self.keys().ended(partition));
            let keys = match sets {
                Sets::Open => vec![open],
                Sets::Ended => vec![ended],
                Sets::Both => vec![open, ended],
            };
            for key in keys {
                let mut command = redis::cmd("ZRANGE");
                command.arg(key);
                match (order, after) {
                    (Order::OldestFirst, None) => command.arg("-inf").arg("+inf"),
                    (Order::OldestFirst, Some(after)) => command.arg(after.at).arg("+inf"),
                    (Order::NewestFirst, None) => command.arg("+inf").arg("-inf"),
                    (Order::NewestFirst, Some(after)) => command.arg(after.at).arg("-inf"),
                };
                command.arg("BYSCORE");
                if order == Order::NewestFirst {
                    command.arg("REV");
                }
                command.arg("LIMIT").arg(0).arg(of_each).arg("WITHSCORES");
                questions.push((partition, command));
            }
        }
        questions
    }

    /// Reads the records at some places.
    pub(super) async fn look(&self, places: &[ListPosition]) -> Result<Vec<Looked>, StoreError> {
        let mut questions = Vec::with_capacity(places.len() + 1);
        for ListPosition { id, .. } in places {
            let mut command = redis::cmd("GET");
            command.arg(self.keys().record(id));
            questions.push((partition(id), command));
        }
        let mut answers = self.inner.servers.ask_each(&questions).await?;
        let read_at = self.now().await?;
        let looked = places.iter().zip(answers.drain(..)).map(|(place, answer)| {
            let value = rows::bytes(answer)?;
            let bytes = value.as_ref().map_or(0, Vec::len);
            let found =
                value.map(|value| rows::row(value, read_at)?.look(&place.id, &self.inner.codec));
            Ok(Looked { place: *place, found: found.transpose()?, bytes })
        });
        looked.collect()
    }

    /// What the clock of the first partition's server shows.
    pub(super) async fn now(&self) -> Result<Timestamp, StoreError> {
        let answers = self.inner.servers.ask_each(&[(0, redis::cmd("TIME"))]).await?;
        rows::time(answers.into_iter().next().unwrap_or_default())
    }
}

/// Members and scores, one behind the other.
fn places_in(partition: u8, answer: Value) -> Result<Vec<ListPosition>, StoreError> {
    let values = rows::several(answer)?;
    let mut places = Vec::with_capacity(values.len() / 2);
    for pair in values.chunks_exact(2) {
        let [Value::BulkString(member), score] = pair else {
            return Err(rows::unexpected(&pair[0]));
        };
        // What others put there is no place of a record; the count still tells whether there are more.
        let id = digest(partition, member).unwrap_or(Digest([partition; 32]));
        places.push(ListPosition { at: rows::score(score)?, id });
    }
    Ok(places)
}

/// Whether most records may be passed over.
fn is_selective(filter: &Filter) -> bool {
    filter.status.is_some()
        || filter.scope.is_some()
        || filter.operation.is_some()
        || filter.key.is_some()
        || filter.older.is_some()
}

/// The digest, where scope, operation and key are given.
fn exactly(filter: &Filter) -> Option<Digest> {
    let (scope, operation, key) =
        (filter.scope.clone()?, filter.operation.clone()?, filter.key.clone()?);
    Some(OperationId::new(scope, operation, key).digest())
}

/// A list without a status shows what cannot be read; so does a list of unknown outcomes.
fn is_wanted(filter: &Filter, found: &Found) -> bool {
    match found {
        Found::Record(stored) => filter.matches(stored),
        Found::Unreadable { .. } => {
            filter.key.is_none() && filter.status.is_none_or(|status| status == Status::Unknown)
        }
        Found::Nothing => false,
    }
}
