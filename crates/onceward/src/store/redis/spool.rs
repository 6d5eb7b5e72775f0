//! Large answers, in chunks beside their record: a hash for each, which goes with its record.

use onceward_core::{Spool, SpoolId, StoreFuture};
use redis::Cmd;

use super::{RedisStore, keys::partition, link::Question, rows, servers::Line};

impl Spool for RedisStore {
    fn put<'a>(&'a self, id: &'a SpoolId, index: u32, chunk: &'a [u8]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let bytes = self.inner.codec.seal_chunk(id, index, chunk);
            let (keys, operation) = (self.keys(), &id.operation);
            let to = (partition(operation), Line::Operators);
            let fill = |command: &mut Cmd| {
                command.arg(2).arg(keys.chunks(operation, id.fence)).arg(keys.record(operation));
                command.arg(index).arg(bytes.as_ref()).arg(id.fence.as_bytes());
            };
            let put = &self.inner.scripts.put_chunk;
            put.run(&self.inner.servers, to, bytes.len() + 256, fill).await.map(drop)
        })
    }

    fn chunk<'a>(&'a self, id: &'a SpoolId, index: u32) -> StoreFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let mut command = redis::cmd("HGET");
            command.arg(self.keys().chunks(&id.operation, id.fence)).arg(index);
            let to = partition(&id.operation);
            let asked = self.inner.servers.ask(to, Line::Operators, Question::One(&command)).await;
            let bytes = rows::bytes(asked?.pop().unwrap_or_default())?;
            Ok(bytes.map(|bytes| self.inner.codec.open_chunk(id, index, bytes)))
        })
    }

    fn discard<'a>(&'a self, id: &'a SpoolId) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut command = redis::cmd("UNLINK");
            command.arg(self.keys().chunks(&id.operation, id.fence));
            let to = partition(&id.operation);
            let asked = self.inner.servers.ask(to, Line::Operators, Question::One(&command)).await;
            Ok(asked.map(drop)?)
        })
    }
}
