//! The `onceward` command.

use clap::Parser;

/// Makes writes safe to retry.
///
/// This version holds the protocol core and the embedded store as libraries; the gateway and the
/// tools are not part of it yet. See README.md for what works today.
#[derive(Parser)]
#[command(name = "onceward", version, arg_required_else_help = true)]
struct Arguments {}

fn main() {
    let Arguments {} = Arguments::parse();
}
