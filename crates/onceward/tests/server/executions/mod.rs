//! Handlers, clients and stores that fail at every step, and what becomes of the operation.

mod answers;
mod charges;
mod failing_store;
mod late;
mod leaving;
mod machinery;
mod no_answer;
mod overdue;
mod processes;
mod run_again;
