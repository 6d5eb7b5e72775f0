//! Handlers, clients and stores that fail at every step, and what becomes of the operation.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod server_support;

#[path = "server_executions/answers.rs"]
mod answers;
#[path = "server_executions/bench.rs"]
mod bench;
#[path = "server_executions/failing_store.rs"]
mod failing_store;
#[path = "server_executions/leaving.rs"]
mod leaving;
#[path = "server_executions/machinery.rs"]
mod machinery;
#[path = "server_executions/no_answer.rs"]
mod no_answer;
#[path = "server_executions/overdue.rs"]
mod overdue;
#[path = "server_executions/processes.rs"]
mod processes;
#[path = "server_executions/run_again.rs"]
mod run_again;
