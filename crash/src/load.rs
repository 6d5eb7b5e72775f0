//! A world to crash: services on one database, clients that insist, and books that cannot lie.

mod books;
mod client;
mod killer;
mod tally;
mod world;

pub use books::Books;
pub use client::{Addresses, Clients, insist};
pub use killer::{Killed, Killer};
pub use tally::Tally;
pub use world::{Conclusion, World, order};
