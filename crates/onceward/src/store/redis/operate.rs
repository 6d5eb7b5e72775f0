//! What only operators ask: what the clock shows, which rights are missing, and the end of everything.

use onceward_core::{StoreError, Timestamp};
use redis::{Cmd, Pipeline, Value};

use super::{
    RedisStore,
    error::{Trouble, Why},
    link::{Node, Question},
    rows,
    servers::Line,
};

/// How many keys are looked at in one go.
const STEP: usize = 1000;

impl RedisStore {
    /// What the server's clock shows, by which leases and retentions are counted.
    pub async fn server_time(&self) -> Result<Timestamp, StoreError> {
        self.now().await
    }

    /// How many replicas a change waits for before it is called made.
    #[must_use]
    pub fn awaited_replicas(&self) -> u32 {
        let wait = self.inner.servers.how.wait;
        wait.replicas.max(wait.logs.map_or(0, |(_, replicas)| replicas))
    }

    /// Which of the commands that the store needs its user may not run, on these keys; changes nothing.
    pub async fn lacking_rights(&self) -> Result<Vec<String>, StoreError> {
        let (servers, keys) = (&self.inner.servers, self.keys());
        let fill = |command: &mut Cmd| {
            let record = keys.record(&onceward_core::Digest([0; 32]));
            command.arg(2).arg(record).arg(keys.open(0)).arg(keys.channel());
        };
        let rights = &self.inner.scripts.rights;
        let lacking = match rights.ask_whole(servers, (0, Line::Operators), fill).await {
            // Without these no script runs, so that it cannot be asked for more.
            Err(Trouble { why: Why::NotAllowed, words, .. }) => return Ok(vec![words]),
            asked => asked?,
        };
        let mut names = Vec::new();
        for name in rows::several(lacking)? {
            names.push(
                String::from_utf8_lossy(&rows::bytes(name)?.unwrap_or_default()).into_owned(),
            );
        }
        Ok(names)
    }

    /// Deletes everything whose name begins with the prefix of this store, also what is running, and gives how many
    /// keys that were: for tests and demonstrations. Needs the right to `SCAN`.
    pub async fn erase(&self) -> Result<u64, StoreError> {
        let mut erased = 0;
        for node in self.inner.servers.primaries().await? {
            let mut cursor = b"0".to_vec();
            loop {
                let (next, keys) = self.scan(&node, &cursor).await?;
                erased += self.unlink(&node, &keys).await?;
                if next == b"0" {
                    break;
                }
                cursor = next;
            }
        }
        Ok(erased)
    }

    async fn scan(
        &self,
        node: &Node,
        cursor: &[u8],
    ) -> Result<(Vec<u8>, Vec<Vec<u8>>), StoreError> {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(self.keys().pattern()).arg("COUNT").arg(STEP);
        let how = &self.inner.servers.how;
        let answers = node.ask(how, how.connections, Question::One(&command)).await?;
        let mut parts = rows::several(answers.into_iter().next().unwrap_or_default())?.into_iter();
        let next = rows::bytes(parts.next().unwrap_or_default())?.unwrap_or_default();
        let mut keys = Vec::new();
        for key in rows::several(parts.next().unwrap_or(Value::Nil))? {
            keys.extend(rows::bytes(key)?);
        }
        Ok((next, keys))
    }

    /// One by one: in a cluster they are in several slots.
    async fn unlink(&self, node: &Node, keys: &[Vec<u8>]) -> Result<u64, StoreError> {
        if keys.is_empty() {
            return Ok(0);
        }
        let mut pipeline = Pipeline::with_capacity(keys.len());
        for key in keys {
            pipeline.cmd("UNLINK").arg(key);
        }
        let how = &self.inner.servers.how;
        let answers = node.ask(how, how.connections, Question::Several(&pipeline)).await?;
        let mut count = 0;
        for answer in &answers {
            count += rows::number(answer)?;
        }
        Ok(u64::try_from(count).unwrap_or_default())
    }
}
