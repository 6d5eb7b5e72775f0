use super::{super::plans, sql};

/// However many messages are stored or parked: nothing that a relay or a request waits for goes through all of
/// them, or sorts them.
#[test]
fn every_statement_finds_its_rows_by_an_index() {
    let connection = plans::tables();
    for statement in [
        sql::WAITING,
        sql::DUE,
        sql::CHAIN,
        sql::FRESH,
        sql::MESSAGE,
        sql::HAS_NO_LANE,
        sql::NO_LANE,
        sql::PARK,
        sql::PARK_AGAIN,
        sql::UNPARK,
        sql::HEAD,
        sql::CLEAR_OTHER_HEADS,
        sql::SET_HEAD,
        sql::LANE,
        sql::HELD_LANES,
        sql::STEP,
        sql::SWEEPABLE,
        sql::FORGET_PARKED,
        sql::LIST_PARKED,
        sql::SHOWN,
        sql::FIND,
        sql::LANES,
        sql::COUNT_AHEAD,
    ] {
        let plan = plans::plan(&connection, statement);
        assert!(!plan.is_empty(), "{statement}");
        for line in plan {
            let is_bounded = !line.contains("TEMP B-TREE")
                && (!line.starts_with("SCAN")
                    // Rows of sinks are few, and those of a subquery are bounded by it.
                    || line.contains("CONSTANT ROW")
                    || line.contains("onceward_sink")
                    || line.contains("subquery"));
            assert!(is_bounded, "{line}: {statement}");
        }
    }
}

/// A page of a list reads on where the one before ended, and stops when it is full.
#[test]
fn a_list_is_read_in_its_order() {
    let connection = plans::tables();
    for (statement, first) in [
        (sql::LIST, "SEARCH message USING INTEGER PRIMARY KEY (rowid>?)"),
        (sql::LIST_LANE, "SEARCH message USING INDEX onceward_message_lane (lane=? AND rowid>?)"),
    ] {
        let plan = plans::plan(&connection, statement);
        let sink = "SEARCH sink USING INTEGER PRIMARY KEY";
        assert_eq!(plan[0], first, "{statement}");
        assert!(plan[1].starts_with("SCAN sink") || plan[1].starts_with(sink), "{plan:?}");
        assert!(!plan.iter().any(|line| line.contains("TEMP B-TREE")), "{plan:?}");
    }
}
