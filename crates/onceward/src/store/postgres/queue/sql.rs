//! The calls of the functions that relays use. The functions are in `migrations/postgres/0008_sinks.sql` and
//! `0009_relays.sql`: several statements each, in one round trip and with plans of their own.

use tokio_postgres::types::Type;

use super::super::sql::{Query, types};

pub(super) static OPEN_SINK: Query =
    Query { text: "SELECT onceward.open_sink($1, $2)", types: types![TEXT, BOOL], slot: 14 };

pub(super) static LEASE: Query = Query {
    text: "SELECT * FROM onceward.lease($1, $2, $3)",
    types: types![INT2, UUID, INTERVAL],
    slot: 15,
};

pub(super) static GIVE_BACK: Query =
    Query { text: "SELECT onceward.give_back($1, $2)", types: types![INT2, UUID], slot: 16 };

pub(super) static WAITING: Query = Query {
    text: "SELECT onceward.waiting($1, $2, $3, $4, $5)",
    types: types![INT2_ARRAY, INT2_ARRAY, TEXT_ARRAY, INT8_ARRAY, BOOL_ARRAY],
    slot: 17,
};

pub(super) static TAKE: Query = Query {
    text: "SELECT * FROM onceward.take($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    types: types![INT2, INT2, INT8, UUID, TEXT, INT8, TEXT, INT8, INT8, INT4],
    slot: 18,
};

pub(super) static SETTLE: Query = Query {
    text: "
        SELECT * FROM onceward.settle_lane(
            $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
    types: types![
        INT2,
        INT2,
        UUID,
        INT8,
        UUID,
        UUID,
        TEXT,
        INT8,
        INT8_ARRAY,
        UUID_ARRAY,
        BOOL_ARRAY,
        INT2_ARRAY,
        INT4_ARRAY,
        INTERVAL_ARRAY,
        TEXT_ARRAY
    ],
    slot: 19,
};

pub(super) static SWEEP: Query = Query {
    text: "SELECT * FROM onceward.sweep_messages($1, $2, $3, $4)",
    types: types![INTERVAL, INT4, INT2, INT8],
    slot: 20,
};

pub(super) static REPAIR: Query = Query {
    text: "SELECT onceward.repair_message($1, $2, $3, $4, $5, $6)",
    types: types![TEXT, UUID, TEXT, UUID, TEXT, TEXT],
    slot: 21,
};

pub(super) static REMOVE_SINK: Query =
    Query { text: "SELECT onceward.remove_sink($1)", types: types![TEXT], slot: 22 };
