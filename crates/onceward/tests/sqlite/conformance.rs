//! The SQLite store means what every store means, on a real file.

use onceward::conformance::block_on;

use crate::sqlite_files::Files;

fn files() -> Files {
    Files::with(|builder| builder)
}

onceward::protocol::store_conformance!(files(), block_on);
onceward::protocol::inspect_conformance!(files(), block_on);
onceward::protocol::spool_conformance!(files(), block_on);
onceward::driver_conformance!(files(), block_on);
