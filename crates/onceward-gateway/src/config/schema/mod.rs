//! What can be said: the sections of the file and the options of a route.

pub(super) mod addresses;
pub(super) mod backoff;
pub(super) mod delivery;
pub(super) mod encryption;
pub(super) mod key;
pub(super) mod kinds;
pub(super) mod limits;
pub(super) mod options;
pub(super) mod origins;
pub(super) mod pattern;
pub(super) mod postgres;
pub(super) mod process;
pub(super) mod redis;
pub(super) mod routes;
pub(super) mod scope;
pub(super) mod sections;
pub(super) mod sinks;
pub(super) mod statuses;
pub(super) mod store;
pub(super) mod table;
pub(super) mod transactional;
