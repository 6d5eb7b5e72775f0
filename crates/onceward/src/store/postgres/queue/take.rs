//! One page of a lane.

use std::time::SystemTime;

use onceward_core::{
    StoreError,
    message::{Due, Fresh, Page, Place, Position},
};
use tokio_postgres::Row;

use super::{
    super::{
        PostgresStore,
        error::store_error,
        link::Parameters,
        rows::{timestamp, uuid_of},
    },
    change,
    cursor::{LanePlace, Target},
    lane_number, rows, sql,
};

impl PostgresStore {
    pub(super) async fn take_page(
        &self,
        position: &Position,
        limit: u32,
    ) -> Result<Page, StoreError> {
        self.check_takes_messages()?;
        let place = LanePlace::read(&position.cursor)?;
        let limit = limit.clamp(1, MAX_PAGE);
        let step = i64::try_from(position.step).unwrap_or(i64::MAX);
        let target = place.target.as_ref().map(|target| target.snapshot.as_str());
        let next_floor = place.target.as_ref().and_then(|target| target.floor);
        // One more, to see whether there are more.
        let most = i32::try_from(limit).unwrap_or(i32::MAX).saturating_add(1);
        let link = self.inner.relays.link_of(position.lane).await?;
        let (sink, lane, fence) =
            (position.sink.0, lane_number(position.lane), uuid_of(position.fence));
        let parameters: Parameters<'_> = &[
            &sink,
            &lane,
            &step,
            &fence,
            &place.base,
            &place.floor,
            &target,
            &next_floor,
            &place.done,
            &most,
        ];
        let taken = change(&link, &sql::TAKE, parameters).await?;
        let Some((head, rows)) = taken.split_first() else {
            return Err(StoreError::Unusable("a page of the outbox has no head".to_owned()));
        };
        page(place, head, rows, limit as usize)
    }
}

/// The longest page.
const MAX_PAGE: u32 = 10_000;

fn page(place: LanePlace, head: &Row, rows: &[Row], limit: usize) -> Result<Page, StoreError> {
    let failed = |error: tokio_postgres::Error| store_error(&error);
    let snapshot: Option<String> = head.try_get(0).map_err(failed)?;
    let floor = head.try_get(1).map_err(failed)?;
    let read_at: SystemTime = head.try_get(2).map_err(failed)?;
    let picked: i64 = rows.first().map_or(Ok(0), |row| row.try_get(3)).map_err(failed)?;
    let mut page = Page {
        read_at: timestamp(read_at),
        fresh: Vec::new(),
        due: Vec::new(),
        opened: place.cursor(),
        end: place.cursor(),
        is_full: usize::try_from(picked).is_ok_and(|picked| picked > rows.len().min(limit)),
    };
    for row in rows.iter().take(limit) {
        let place = Place(row.try_get(4).map_err(failed)?);
        let attempts: Option<i32> = row.try_get(5).map_err(failed)?;
        let message = rows::message(row, 7)?;
        match attempts {
            Some(attempts) => {
                let attempts = attempts.unsigned_abs();
                page.due.push(Due { place, message, attempts });
            }
            None => {
                let is_blocked = row.try_get(6).map_err(failed)?;
                page.fresh.push(Fresh { place, message, is_blocked });
            }
        }
    }
    // Without a target nothing new was looked at.
    let Some(snapshot) = snapshot else { return Ok(page) };
    let opened = LanePlace { target: Some(Target { snapshot, floor }), ..place };
    page.opened = opened.cursor();
    page.end = match (page.is_full, page.fresh.last()) {
        (false, _) => opened.past().cursor(),
        (true, Some(last)) => LanePlace { done: last.place.0, ..opened }.cursor(),
        (true, None) => opened.cursor(),
    };
    Ok(page)
}
