//! What tests of all crates share: programs beside a test, and private servers.
//!
//! A [`Process`] is any program that a test starts, listens to, signals and kills.
//!
//! Servers are started on free loopback ports, in a temporary directory, and stopped.
//!
//! A test asks for a database of its own and gets the address of one:
//!
//! ```no_run
//! let database = testbed::postgres().database();
//! assert_eq!(database.sql("SELECT 1 + 1"), "2");
//! println!("{}", database.url());
//! ```
//!
//! A test that kills its server starts a [`Server`] for itself, and standbys for it.
//!
//! Nothing outlives the program that started it, also when that is killed: see [`Home`]. Starting gives a
//! `Result`, because a machine may lack what it takes; everything that is asked of a running server panics
//! when it fails, because the test that asked cannot go on.

mod account;
#[cfg(feature = "http")]
mod body;
mod client;
mod directory;
#[cfg(feature = "http")]
mod gate;
mod home;
mod installation;
mod messages;
mod patroni;
mod pgbouncer;
mod port;
mod process;
mod redis;
#[cfg(feature = "http")]
mod reply;
mod server;
mod shared;
mod small_disk;
mod tool;
mod url;

#[cfg(feature = "http")]
pub use self::body::{Broken, Piece, Pieces, Pipe, broken, data, trailers};
pub use self::client::Database;
pub use self::directory::directory;
#[cfg(feature = "http")]
pub use self::gate::Gate;
pub use self::home::Home;
pub use self::installation::Installation;
pub use self::messages::{Complaint, MessageHistory};
pub use self::patroni::Patroni;
pub use self::pgbouncer::{PgBouncer, pgbouncer_version};
pub use self::port::free_address;
pub use self::process::{Output, Process, cpu_time_with_ended};
pub use self::redis::{
    RedisCluster, RedisInstallation, RedisReply, RedisSentinels, RedisServer, RedisWatch, redis,
};
#[cfg(feature = "http")]
pub use self::reply::Reply;
pub use self::server::{Server, multi_host_url};
pub use self::shared::{SharedServer, pgbouncer, postgres};
pub use self::small_disk::SmallDisk;
pub use self::tool::{TEST_TIMEOUT, Trouble};
pub use rustix::process::Signal;

/// The variable with the address of an existing server, whose databases tests then use.
///
/// Its role must be allowed to create databases.
pub const POSTGRES: &str = "ONCEWARD_TEST_POSTGRES";

/// The variable with the address of an existing server of version 18, for the second run of the same tests.
pub const POSTGRES_18: &str = "ONCEWARD_TEST_POSTGRES_18";

/// The variable with the directory of the PostgreSQL programs that private servers are started from.
pub const POSTGRES_BIN: &str = "ONCEWARD_TEST_POSTGRES_BIN";

/// The variable with the address of an existing `PgBouncer` before the server of [`POSTGRES`].
pub const PGBOUNCER: &str = "ONCEWARD_TEST_PGBOUNCER";

/// The variable with the address of an existing Redis or Valkey server, whose keys tests then use.
///
/// Tests begin the names of their keys with `onceward-test-`.
pub const REDIS: &str = "ONCEWARD_TEST_REDIS";

/// The variable with the server program that private servers of Redis or Valkey are started from.
pub const REDIS_BIN: &str = "ONCEWARD_TEST_REDIS_BIN";
