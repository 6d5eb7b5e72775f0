//! The eight traps of the contract, through a router and, where it is about bytes, a real socket.

mod fixture;
mod trap_1;
mod trap_2;
mod trap_3;
mod trap_4;
mod trap_5;
mod trap_6;
mod trap_7;
mod trap_8;
