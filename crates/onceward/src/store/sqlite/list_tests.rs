use super::super::{
    plans::{self, plan},
    sql,
    sql::places,
};

#[test]
fn every_list_is_answered_by_an_index_in_its_order() {
    let connection = plans::tables();
    for (statement, index) in [
        (places::ALL, "INTEGER PRIMARY KEY (rowid>?)"),
        (places::ALL_NEWEST, "INTEGER PRIMARY KEY (rowid<?)"),
        (places::OF_STATE, "COVERING INDEX onceward_record_state (state=? AND rowid>?)"),
        (places::OF_STATE_NEWEST, "COVERING INDEX onceward_record_state (state=? AND rowid<?)"),
        (places::EXPIRED, "INDEX onceward_record_expiry (expires_at>? AND expires_at<?)"),
        (places::EXPIRED_NEWEST, "INDEX onceward_record_expiry (expires_at>? AND expires_at<?)"),
        (places::OLDER, "COVERING INDEX onceward_record_started (started_at>? AND started_at<?)"),
        (places::OLDER_NEWEST, "COVERING INDEX onceward_record_started (started_at<?)"),
        (places::BLOCK_AFTER, "COVERING INDEX onceward_record_group (<expr>>?)"),
        (places::BLOCK_BEFORE, "COVERING INDEX onceward_record_group (<expr><?)"),
        (
            places::OPERATION_AFTER,
            "COVERING INDEX onceward_record_group (<expr>=? AND operation>?)",
        ),
        (places::OF_OPERATION, "COVERING INDEX onceward_record_group (<expr>=? AND operation=?)"),
        (
            places::OF_GROUP,
            "COVERING INDEX onceward_record_group (<expr>=? AND operation=? AND scope=?)",
        ),
        (places::GROUPS, "COVERING INDEX onceward_record_group (<expr>=?)"),
        (places::OF_DIGEST, "COVERING INDEX onceward_record_digest (digest=?)"),
        (sql::LIST_ROW, "INTEGER PRIMARY KEY (rowid=?)"),
        (sql::OPEN, "INDEX onceward_record_state (state<?)"),
        (sql::SWEEPABLE, "INDEX onceward_record_expiry (expires_at>? AND expires_at<?)"),
    ] {
        let found = plan(&connection, statement);
        assert_eq!(found, [format!("SEARCH onceward_record USING {index}")], "{statement}");
    }
}
