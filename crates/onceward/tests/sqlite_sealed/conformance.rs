//! A store that seals means what every store means.

use std::sync::Arc;

use onceward::{conformance::block_on, seal::Keyring};

use crate::sqlite_files::Files;

fn sealed() -> Files {
    Files::with(|builder| builder.seal(Arc::new(Keyring::new([1; 32]))))
}

onceward::protocol::store_conformance!(sealed(), block_on);
onceward::protocol::inspect_conformance!(sealed(), block_on);
onceward::protocol::spool_conformance!(sealed(), block_on);
onceward::driver_conformance!(sealed(), block_on);
