//! The `onceward` command.

mod admin;
mod commands;
mod config;
mod descriptors;
mod identity;
mod kept;
mod observe;
mod proxy;
mod records;
mod redact;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use commands::{
    call, check, demo, doctor, init, keys, messages, migrate, probe, relay, serve, simulate,
};

/// A request makes and frees about a hundred small things, on one thread and on others.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Makes writes safe to retry.
///
/// Start with `onceward demo`: it needs nothing and shows in five seconds what this is about. Then
/// `onceward serve` puts a gateway in front of an API in any language.
#[derive(Parser)]
#[command(name = "onceward", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Call(Box<call::Options>),
    Check(check::Options),
    Demo(demo::Options),
    Doctor(doctor::Options),
    Init(init::Options),
    Keys(Box<keys::Options>),
    Messages(Box<messages::Options>),
    Migrate(migrate::Options),
    Probe(Box<probe::Options>),
    Relay(relay::Options),
    Serve(serve::Options),
    Simulate(simulate::Options),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Call(options) => call::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Init(options) => init::run(&options),
        Command::Keys(options) => keys::run(&options),
        Command::Messages(options) => messages::run(&options),
        Command::Migrate(options) => migrate::run(&options),
        Command::Probe(options) => probe::run(&options),
        Command::Relay(options) => relay::run(&options),
        Command::Serve(options) => serve::run(&options),
        Command::Simulate(options) => simulate::run(&options),
    }
}
