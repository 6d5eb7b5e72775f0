//! What metrics and a doctor ask for: how much is open, how old, how much memory there is.

use onceward_core::{Order, StoreError, Timestamp};

use super::{
    RedisStore,
    condition::words,
    link::Question,
    list::{Looked, Sets},
    rows,
};
use crate::store::Census;

/// How far ahead the place of a record may be that will be swept one day: no retention is so long.
const LAST_SWEEP_MICROS: i64 = 20 * 365 * 86_400 * 1_000_000;

impl RedisStore {
    /// Counts what is open and looks how much memory the servers use: for metrics and health checks.
    ///
    /// `file_bytes` is the memory of all primaries, and `free_bytes` what is left of `maxmemory`.
    pub async fn census(&self) -> Result<Census, StoreError> {
        let most = Census::MAX_COUNTED as usize;
        let mut census =
            Census { is_complete: self.count_open().await? <= most, ..Census::default() };
        let window = self.window(Sets::Open, Order::OldestFirst, None, most).await?;
        for places in window.places.chunks(512) {
            for Looked { found, .. } in self.look(places).await? {
                if let Some(found) = found {
                    census.count(&found);
                }
            }
        }
        census.last_write = self.last_write().await?;
        self.count_memory(&mut census).await?;
        Ok(census)
    }

    async fn count_open(&self) -> Result<usize, StoreError> {
        let questions: Vec<_> = (0..=u8::MAX)
            .map(|partition| {
                let mut command = redis::cmd("ZCARD");
                command.arg(self.keys().open(partition));
                (partition, command)
            })
            .collect();
        let mut count: i64 = 0;
        for answer in self.inner.servers.ask_each(&questions).await? {
            count += rows::number(&answer)?;
        }
        Ok(usize::try_from(count).unwrap_or_default())
    }

    /// When the record was written that comes last in the order of lists.
    async fn last_write(&self) -> Result<Option<Timestamp>, StoreError> {
        let horizon = self.now().await?.unix_micros().saturating_add(LAST_SWEEP_MICROS);
        let from = super::list::ListPosition { at: horizon, id: onceward_core::Digest([0xff; 32]) };
        let latest = self.window(Sets::Both, Order::NewestFirst, Some(from), 1).await?;
        let Some(looked) = self.look(&latest.places).await?.into_iter().next() else {
            return Ok(None);
        };
        Ok(match looked.found {
            Some(onceward_core::Found::Record(stored)) => Some(stored.updated_at),
            _ => None,
        })
    }

    async fn count_memory(&self, census: &mut Census) -> Result<(), StoreError> {
        let servers = &self.inner.servers;
        for node in servers.primaries().await? {
            let mut command = redis::cmd("INFO");
            command.arg("memory");
            let line = servers.how.connections;
            let answers = node.ask(&servers.how, line, Question::One(&command)).await?;
            let info = words(&answers.into_iter().next().unwrap_or_default());
            let number = |name: &str| info.get(name).and_then(|text| text.parse::<u64>().ok());
            let used = number("used_memory").unwrap_or_default();
            census.file_bytes = census.file_bytes.saturating_add(used);
            // 0: as much as there is, which the server does not know.
            if let Some(most) = number("maxmemory").filter(|most| *most > 0) {
                let left = most.saturating_sub(used);
                census.free_bytes =
                    Some(census.free_bytes.unwrap_or_default().saturating_add(left));
            }
        }
        Ok(())
    }
}
