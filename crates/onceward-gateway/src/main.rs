//! The `onceward` command.

mod demo;
mod migrate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Makes writes safe to retry.
///
/// Start with `onceward demo`: it needs nothing and shows in five seconds what this is about. The
/// gateway and the other tools are not part of this version. See README.md for what works today.
#[derive(Parser)]
#[command(name = "onceward", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Options),
    Migrate(migrate::Options),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Demo(options) => demo::run(&options),
        Command::Migrate(options) => migrate::run(&options),
    }
}
