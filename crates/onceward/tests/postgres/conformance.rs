//! The PostgreSQL store means what every store means, on a real server.

use onceward::conformance::{Driven, Faulty, block_on};

use crate::support::Postgres;

onceward::core::store_conformance!(Postgres::new(), block_on);
onceward::core::inspect_conformance!(Postgres::new(), block_on);
onceward::core::spool_conformance!(Postgres::new(), block_on);

/// Of the drivers, what reaches the store: a change, and the same change once more after its reply was lost.
/// The faults that are injected before a call reaches it are the same for every store, and the files of
/// SQLite and the store in memory have them all.
mod driven {
    use super::*;

    onceward::core::store_conformance!(Driven::over(Postgres::new(), None), block_on);
}

mod driven_over_lost_replies {
    use super::*;

    onceward::core::store_conformance!(
        Driven::over(Postgres::new(), Some(Faulty::LosesReplies)),
        block_on
    );
}
