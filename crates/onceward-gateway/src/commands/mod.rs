//! The commands, one file or folder each: what they are asked, and what they do with it.

mod arguments;
pub(super) mod call;
pub(super) mod check;
pub(super) mod demo;
pub(super) mod doctor;
pub(super) mod init;
pub(super) mod keys;
pub(super) mod messages;
pub(super) mod migrate;
pub(super) mod probe;
mod process;
pub(super) mod relay;
pub(super) mod serve;
pub(super) mod simulate;
mod terminal;
