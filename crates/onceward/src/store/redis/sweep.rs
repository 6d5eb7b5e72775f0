//! Deletes what is over, by the sets, a few thousand records at a time.

use onceward_core::{Digest, StoreError};
use redis::Cmd;

use super::{
    RedisStore,
    keys::{PARTITIONS, digest, member},
    link::Question,
    rows::{self, fence_in},
    servers::Line,
};
use crate::clock::{SUSPICION_HOLDS, Suspicion, suspected_elsewhere};

/// How many records one script deletes: others wait for it.
const STEP: usize = 100;

/// How many are looked at in one go.
const LOOK: usize = 4_000;

impl RedisStore {
    pub(super) async fn sweep_all(&self, limit: u32) -> Result<u32, StoreError> {
        self.check_clock().await?;
        let (mut deleted, mut left) = (0, limit as usize);
        while left > 0 {
            let step = left.min(LOOK);
            let (due, are_all) = self.due(step).await?;
            deleted += self.delete_due(&due).await?;
            left -= due.len().min(left);
            // Members that are none of ours stay, and are no reason to look for ever.
            if are_all || due.is_empty() {
                break;
            }
        }
        Ok(deleted)
    }

    /// Which records may be over, at most so many, and whether these are all.
    async fn due(&self, most: usize) -> Result<(Vec<Digest>, bool), StoreError> {
        let now = self.now().await?.unix_micros();
        let of_each = most.div_ceil(PARTITIONS / 8);
        let mut questions = Vec::with_capacity(2 * PARTITIONS);
        for partition in 0..=u8::MAX {
            for key in [self.keys().open(partition), self.keys().ended(partition)] {
                let mut command = redis::cmd("ZRANGE");
                command.arg(key).arg("-inf").arg(now).arg("BYSCORE");
                command.arg("LIMIT").arg(0).arg(of_each);
                questions.push((partition, command));
            }
        }
        let answers = self.inner.servers.ask_each(&questions).await?;
        let (mut due, mut are_all) = (Vec::new(), true);
        for ((partition, _), answer) in questions.iter().zip(answers) {
            let members = rows::several(answer)?;
            are_all &= members.len() < of_each;
            for found in members {
                let found = rows::bytes(found)?.unwrap_or_default();
                due.extend(digest(*partition, &found));
            }
        }
        are_all &= due.len() <= most;
        due.truncate(most);
        Ok((due, are_all))
    }

    /// Deletes those of them that are over, and puts the others where they belong.
    async fn delete_due(&self, due: &[Digest]) -> Result<u32, StoreError> {
        let mut deleted = 0;
        for of_partition in due.chunk_by(|one, other| one.0[0] == other.0[0]) {
            for part in of_partition.chunks(STEP) {
                deleted += self.sweep_some(part).await?;
            }
        }
        Ok(deleted)
    }

    /// Removes entries of the sets whose records are gone: native expiry took them, or a person.
    pub(super) async fn trim(&self, gone: &[Digest]) -> Result<(), StoreError> {
        self.delete_due(gone).await.map(drop)
    }

    /// Some records of one partition.
    async fn sweep_some(&self, ids: &[Digest]) -> Result<u32, StoreError> {
        let (keys, servers) = (self.keys(), &self.inner.servers);
        let Some(first) = ids.first() else { return Ok(0) };
        let partition = first.0[0];
        let heads: Vec<(u8, Cmd)> = ids
            .iter()
            .map(|id| {
                let mut command = redis::cmd("GETRANGE");
                command.arg(keys.record(id)).arg(0).arg(rows::HEAD_BYTES - 1);
                (partition, command)
            })
            .collect();
        let mut fences = Vec::with_capacity(ids.len());
        for head in servers.ask_each(&heads).await? {
            fences.push(fence_in(&rows::bytes(head)?.unwrap_or_default()));
        }
        let fill = |command: &mut Cmd| {
            command.arg(2 + 2 * ids.len()).arg(keys.open(partition)).arg(keys.ended(partition));
            for (id, fence) in ids.iter().zip(&fences) {
                command.arg(keys.record(id)).arg(keys.chunks(id, *fence));
            }
            for (id, fence) in ids.iter().zip(&fences) {
                command.arg(member(id)).arg(fence.as_bytes());
            }
        };
        let script = &self.inner.scripts.sweep;
        let swept =
            script.run(servers, (partition, Line::Operators), 256 * ids.len(), fill).await?;
        Ok(u32::try_from(rows::number(&swept)?).unwrap_or_default())
    }

    /// Refuses to sweep while this process or another one suspects the server's clock.
    async fn check_clock(&self) -> Result<(), StoreError> {
        self.look_at_clock().await?;
        let suspicion = self.inner.codec.watch().check_for_sweep();
        let (key, now) = (self.keys().suspected(), self.now().await?.unix_micros());
        if suspicion.is_err() {
            let mut command = redis::cmd("SET");
            command.arg(key).arg(now);
            self.inner.servers.ask(0, Line::Operators, Question::One(&command)).await?;
            return suspicion;
        }
        let mut command = redis::cmd("GET");
        command.arg(key);
        let answer = self.inner.servers.ask(0, Line::Operators, Question::One(&command)).await?;
        let suspected = rows::bytes(answer.into_iter().next().unwrap_or_default())?;
        let suspected = suspected.and_then(|text| String::from_utf8_lossy(&text).parse().ok());
        let holds = SUSPICION_HOLDS.as_micros();
        // A suspicion from before the clock went back is in the future.
        match suspected.is_some_and(|at: i64| u128::from(at.abs_diff(now)) < holds) {
            true => Err(suspected_elsewhere()),
            false => Ok(()),
        }
    }

    /// Asks what the clocks of the servers show, and compares them with ours that no operator sets. After a failover
    /// too: the clock of another server is another one.
    pub(super) async fn look_at_clock(&self) -> Result<Option<Suspicion>, StoreError> {
        let servers = &self.inner.servers;
        let mut suspicion = None;
        for node in servers.primaries().await? {
            let command = redis::cmd("TIME");
            let line = servers.how.connections;
            let answers = node.ask(&servers.how, line, Question::One(&command)).await?;
            let shown = rows::time(answers.into_iter().next().unwrap_or_default())?;
            suspicion = self.inner.codec.watch().observe(shown).or(suspicion);
        }
        Ok(suspicion)
    }
}
