//! Messages that leave with a commit, and messages that came.

mod conformance;
mod connections;
mod damage;
mod inbox;
mod plain_sql;
mod processes;
mod support;
mod transactions;
