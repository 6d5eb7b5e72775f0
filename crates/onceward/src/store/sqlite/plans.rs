//! What SQLite says about how it answers a statement.

use rusqlite::Connection;

use super::schema::MIGRATIONS;

/// A database with all tables, and nothing in them.
pub(super) fn tables() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    for migration in MIGRATIONS {
        connection.execute_batch(migration).unwrap();
    }
    connection
}

/// The lines of a plan.
pub(super) fn plan(connection: &Connection, statement: &str) -> Vec<String> {
    let mut explained = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
    let parameters = explained.parameter_count();
    let nothing = rusqlite::params_from_iter((0..parameters).map(|_| rusqlite::types::Null));
    let details = explained.query_map(nothing, |row| row.get("detail")).unwrap();
    details.map(Result::unwrap).collect()
}
