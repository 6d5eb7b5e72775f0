//! What the tests on Redis share: a bench whose stores have a prefix each.

use std::{future::Future, sync::Arc, time::Duration};

use onceward::{
    Digest,
    conformance::spawn,
    protocol::conformance::Bench,
    store::redis::{RedisStore, RedisStoreBuilder},
};
use redis::{FromRedisValue, aio::MultiplexedConnection};
use testbed::{RedisInstallation, RedisServer};

/// How the stores of a bench are opened.
pub(crate) type Options = fn(RedisStoreBuilder) -> RedisStoreBuilder;

/// Each store has its own prefix on a server that it shares with others.
#[derive(Clone)]
pub(crate) struct Redis {
    address: Arc<str>,
    /// The servers themselves, where the address names sentinels or a cluster.
    servers: Arc<[String]>,
    options: Options,
}

impl Redis {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(options: Options) -> Self {
        let address = testbed::redis();
        Self { options, ..Self::at(address, vec![address.to_owned()]) }
    }

    pub(crate) fn at(address: &str, servers: Vec<String>) -> Self {
        Self { address: address.into(), servers: servers.into(), options: |builder| builder }
    }

    async fn connect(&self, address: &str) -> RedisStore {
        let builder = RedisStore::builder(address).unwrap().accept_relaxed();
        (self.options)(builder).open().await.unwrap()
    }
}

/// An address with a prefix that no other test has.
pub(crate) fn with_prefix(address: &str) -> String {
    let mark = if address.contains('?') { '&' } else { '?' };
    format!("{address}{mark}prefix=onceward-test-{:012x}", fastrand::u64(..1 << 48))
}

/// What the keys of a store begin with.
pub(crate) fn prefix(store: &RedisStore) -> String {
    let address = store.address().to_string();
    let (_, prefix) = address.split_once("prefix=").unwrap();
    prefix.split('&').next().unwrap().to_owned()
}

/// A connection of the test's own.
pub(crate) async fn connection(server: &str) -> MultiplexedConnection {
    let client = redis::Client::open(server).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// Asks a server for something.
pub(crate) async fn ask<T: FromRedisValue>(server: &str, command: &redis::Cmd) -> T {
    command.query_async(&mut connection(server).await).await.unwrap()
}

/// The name of a key of an operation: `r` its record, `t` its trail.
pub(crate) fn key(store: &RedisStore, kind: char, id: &Digest) -> Vec<u8> {
    let start = format!("{}:{{{:02x}}}:{kind}", prefix(store), id.0[0]);
    [start.as_bytes(), &id.0[1..]].concat()
}

/// The name of a set of the partition of an operation: `o` open records, `e` ended ones.
pub(crate) fn set(store: &RedisStore, kind: char, id: &Digest) -> Vec<u8> {
    format!("{}:{{{:02x}}}:{kind}", prefix(store), id.0[0]).into_bytes()
}

/// Makes a record older, as if its times had been read some time ago.
pub(crate) async fn age(servers: &[String], store: &RedisStore, id: &Digest, by: Duration) {
    let mut command = redis::cmd("EVAL");
    command.arg(include_str!("age.lua")).arg(3).arg(key(store, 'r', id));
    command.arg(set(store, 'o', id)).arg(set(store, 'e', id)).arg(&id.0[1..]);
    command.arg(u64::try_from(by.as_micros()).unwrap());
    for server in servers {
        // Only the primary of its slot takes it.
        if let Ok(1) = command.query_async::<i64>(&mut connection(server).await).await {
            return;
        }
    }
    panic!("no server has the record {id}");
}

impl Bench for Redis {
    type Store = RedisStore;

    async fn open(&self) -> RedisStore {
        self.connect(&with_prefix(&self.address)).await
    }

    async fn reopen(&self, store: RedisStore) -> Option<RedisStore> {
        let prefix = prefix(&store);
        drop(store);
        let mark = if self.address.contains('?') { '&' } else { '?' };
        Some(self.connect(&format!("{}{mark}prefix={prefix}", self.address)).await)
    }

    async fn age(&self, store: &RedisStore, id: &Digest, by: Duration) {
        age(&self.servers, store, id, by).await;
    }

    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        spawn(task)
    }
}

/// A server of the test's own, and a bench on it.
pub(crate) fn private(settings: &[(&str, &str)]) -> (RedisServer, Redis) {
    let server = RedisServer::start(&RedisInstallation::preferred().unwrap(), settings).unwrap();
    let bench = Redis::at(&server.url(), vec![server.url()]);
    (server, bench)
}
