//! A store that seals means what every store means.

use std::sync::Arc;

use onceward::{
    conformance::{Driven, Faulty, block_on},
    seal::Keyring,
};

use crate::sqlite_files::Files;

fn sealed() -> Files {
    Files::with(|builder| builder.seal(Arc::new(Keyring::new([1; 32]))))
}

onceward::core::store_conformance!(sealed(), block_on);
onceward::core::inspect_conformance!(sealed(), block_on);
onceward::core::spool_conformance!(sealed(), block_on);

/// Of the drivers, what reaches the store: a change, and the same change once more after its reply was lost.
/// The faults that are injected before a call reaches it are the same for every store.
mod driven {
    use super::*;

    onceward::core::store_conformance!(Driven::over(sealed(), None), block_on);
}

mod driven_over_lost_replies {
    use super::*;

    onceward::core::store_conformance!(
        Driven::over(sealed(), Some(Faulty::LosesReplies)),
        block_on
    );
}
