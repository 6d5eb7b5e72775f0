//! The outbox and the inbox in PostgreSQL.
//!
//! Messages are an append-only table; nothing is changed in it before a sweep. A relay reads what a younger snapshot
//! sees and an older one does not, so that no late commit is skipped and no open transaction is waited for. Which
//! snapshots, and how far between them, is in the steps of a lane; all of it is in the functions of
//! `migrations/postgres`, because it is several statements each, and each must be one round trip.

mod commit;
mod cursor;
mod idle;
mod inside;
mod inspect;
mod rebase;
mod rows;
mod settle;
mod sql;
#[cfg(feature = "sqlx")]
mod sqlx;
mod take;

use std::{sync::Arc, time::Duration};

use onceward_core::{
    StoreError, StoreFuture,
    message::{
        Lane, LeaseRequest, Page, Position, Queue, RelayId, Settled, Settlement, SinkId, SinkName,
        StartFrom, Sweep,
    },
};
use uuid::Uuid;

pub use rebase::{Rebase, Rebased};

use super::{
    PostgresStore,
    error::{Trouble, store_error},
    link::{ConnectOptions, Link, Parameters, ReconnectingLink},
    rows::{Interval, micros},
    sql::Query,
    sweep::check_clock,
};
use cursor::LanePlace;
use idle::IdleLanes;

/// How many connections relays share. Each lane has one of them, so that its statements come in their order, and
/// commits of different lanes are written to disk together.
const CONNECTIONS: usize = 4;

/// What relays of this process share.
pub(super) struct Relays {
    /// Opened when a relay needs them.
    links: [ReconnectingLink; CONNECTIONS],
    idle: IdleLanes,
}

impl Relays {
    pub(super) fn new(how: &Arc<ConnectOptions>) -> Self {
        let links = std::array::from_fn(|_| ReconnectingLink::new(how));
        Self { links, idle: IdleLanes::default() }
    }

    async fn link_of(&self, lane: Lane) -> Result<Arc<Link>, StoreError> {
        self.links[usize::from(lane.number()) % CONNECTIONS].link().await
    }

    async fn any_link(&self) -> Result<Arc<Link>, StoreError> {
        self.links[0].link().await
    }
}

fn uuid_of(relay: RelayId) -> Uuid {
    Uuid::from_bytes(*relay.as_bytes())
}

fn lane_number(lane: Lane) -> i16 {
    i16::from(lane.number())
}

/// Calls a function, and believes its answer when the change is where the server promises it to be.
async fn change(
    link: &Link,
    query: &Query,
    parameters: Parameters<'_>,
) -> Result<Vec<tokio_postgres::Row>, StoreError> {
    link.write(query, parameters).await.map_err(Trouble::into_error)
}

impl Queue for PostgresStore {
    fn open_sink<'a>(&'a self, name: &'a SinkName, from: StartFrom) -> StoreFuture<'a, SinkId> {
        Box::pin(async move {
            self.check_takes_messages()?;
            let is_from_oldest = from == StartFrom::Oldest;
            let link = self.inner.relays.any_link().await?;
            let opened = change(&link, &sql::OPEN_SINK, &[&name.as_str(), &is_from_oldest]).await?;
            rows::one(&opened).map(SinkId)
        })
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> StoreFuture<'a, Vec<Position>> {
        Box::pin(async move {
            self.check_takes_messages()?;
            let LeaseRequest { sink, relay, lease } = request;
            let (id, lease) = (uuid_of(*relay), Interval(micros(*lease)));
            let link = self.inner.relays.any_link().await?;
            let held = change(&link, &sql::LEASE, &[&sink.0, &id, &lease]).await?;
            let held = held.iter().map(|row| {
                let (position, idle_from) = rows::held_position(row, *sink, *relay)?;
                self.inner.relays.idle.note(&position, idle_from);
                Ok(position)
            });
            held.collect()
        })
    }

    fn give_back(&self, sink: SinkId, relay: RelayId) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.check_takes_messages()?;
            let link = self.inner.relays.any_link().await?;
            change(&link, &sql::GIVE_BACK, &[&sink.0, &uuid_of(relay)]).await.map(drop)
        })
    }

    fn waiting<'a>(&'a self, positions: &'a [Position]) -> StoreFuture<'a, Vec<Lane>> {
        Box::pin(async move {
            self.check_takes_messages()?;
            if positions.is_empty() {
                return Ok(Vec::new());
            }
            let places: Vec<_> = positions
                .iter()
                .map(|position| {
                    let place = LanePlace::read(&position.cursor)?;
                    Ok(self.inner.relays.idle.ask_from(position, place))
                })
                .collect::<Result<_, StoreError>>()?;
            let sinks: Vec<_> = positions.iter().map(|position| position.sink.0).collect();
            let lanes: Vec<_> =
                positions.iter().map(|position| lane_number(position.lane)).collect();
            let bases: Vec<_> = places.iter().map(|place| place.base.as_str()).collect();
            let floors: Vec<_> = places.iter().map(|place| place.floor).collect();
            let opened: Vec<_> = places.iter().map(|place| place.target.is_some()).collect();
            let link = self.inner.relays.any_link().await?;
            let waiting =
                link.read(&sql::WAITING, &[&sinks, &lanes, &bases, &floors, &opened]).await?;
            waiting.iter().map(|row| rows::lane(row, 0)).collect()
        })
    }

    fn take<'a>(&'a self, position: &'a Position, limit: u32) -> StoreFuture<'a, Page> {
        Box::pin(self.take_page(position, limit))
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> StoreFuture<'a, Settled> {
        Box::pin(self.settle_lane(settlement))
    }

    fn sweep(&self, retain: Duration, limit: u32) -> StoreFuture<'_, Sweep> {
        Box::pin(self.sweep_messages(retain, limit))
    }
}

impl PostgresStore {
    async fn sweep_messages(&self, retain: Duration, limit: u32) -> Result<Sweep, StoreError> {
        self.check_takes_messages()?;
        let retain = Interval(micros(retain));
        let link = self.operator_link().await?;
        check_clock(&link, &self.inner.codec).await?;
        let mut sweep = Sweep::default();
        let (mut lane, mut behind): (Option<i16>, i64) = (Some(0), 0);
        while let Some(from) = lane
            && sweep.messages < limit
        {
            let most = i32::try_from(limit - sweep.messages).unwrap_or(i32::MAX).min(SWEEP_STEP);
            let swept = change(&link, &sql::SWEEP, &[&retain, &most, &from, &behind]).await?;
            let Some(row) = swept.first() else { break };
            let taken = || Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?));
            let taken: Result<(_, _, i32, i32), tokio_postgres::Error> = taken();
            let (next, place, messages, steps) = taken.map_err(|error| store_error(&error))?;
            (lane, behind) = (next, place);
            sweep.messages += messages.unsigned_abs();
            sweep.steps += steps.unsigned_abs();
        }
        Ok(sweep)
    }
}

/// How many messages one statement deletes.
const SWEEP_STEP: i32 = 2_000;
