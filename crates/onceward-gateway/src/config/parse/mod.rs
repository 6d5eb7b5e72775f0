//! How it is read: the file, the environment and the command line, with the place of each word.

pub(super) mod load;
pub(super) mod reader;
pub(super) mod source;
pub(super) mod units;
