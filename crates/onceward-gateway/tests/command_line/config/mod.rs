//! `onceward check` and `onceward init`: what a person reads who has written a configuration.

mod check;
mod identity;
mod init;
mod origins;
mod places;
mod protection;
mod routes;
mod support;
mod values;
