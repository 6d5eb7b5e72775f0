//! A shop whose charges and records are in one SQLite file and end in one commit.
//!
//! Whatever a handler does: nobody is told of success without the effect, and nobody who asks with the
//! same key has it twice.

mod answers;
mod begin;
mod cancelled;
mod doubt;
mod engine;
mod kept;
mod migrations;
mod misuse;
mod processes;
mod redacted;
mod shop;
