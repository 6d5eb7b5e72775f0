//! Side-by-side benchmarks: `cargo xtask bench --help`.
//!
//! `store.rs` is the plan of a run; `load.rs` makes the work; `measure.rs` reads what it cost;
//! `append_log.rs` is the bound that the stores are compared with; `report.rs` writes the result.
//! `layer.rs` is the plan of the other benchmark, of the server layer: `requests.rs` makes its work,
//! `instructions.rs` and `waiters.rs` read what it cost. `gateway.rs` is the plan of the third, of the
//! gateway as a process among others: `gateway/subjects.rs` and `gateway/peers.rs` start them,
//! `gateway/client.rs` asks them, `gateway/result.rs` writes the result. `operators.rs` is the fourth, of lists
//! and look-ups. `postgres.rs` is the plan of the fifth: `postgres/turns.rs` is who is measured beside
//! `pgbench`, `postgres/site.rs` the server. `retry.rs` is the sixth: what a decision and the retrying layer cost.
//! `messages.rs` is the seventh, of the outbox and its relay: `messages/own.rs` is our own, `messages/peers.rs` the others.
//! `redis.rs` is the eighth: `redis/turns.rs` measures the store beside `redis/bare.rs`, which sends the same commands.

mod append_log;
mod gateway;
mod instructions;
mod layer;
mod load;
mod lookups;
mod machine;
mod measure;
mod messages;
mod operators;
mod options;
mod pairs;
mod postgres;
mod progress;
mod redis;
mod reopen;
mod report;
mod requests;
mod retry;
mod start;
mod store;
mod subject;
mod sweep;
mod verdict;
mod waiters;

use std::{error::Error, process::ExitCode};

use clap::{Parser, Subcommand};

/// What went wrong, in words; a benchmark has no one to handle it but its reader.
type Failure = Box<dyn Error + Send + Sync>;

/// Side-by-side benchmarks of Onceward.
#[derive(Parser)]
#[command(name = "onceward-bench", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand)]
enum Benchmark {
    Store(options::Arguments),
    #[command(hide = true)]
    StoreVictim(reopen::VictimArguments),
    Layer(layer::Arguments),
    #[command(hide = true)]
    LayerRequests(instructions::RequestsArguments),
    Operators(operators::Arguments),
    Gateway(gateway::Arguments),
    Postgres(postgres::Arguments),
    Messages(messages::Arguments),
    Redis(redis::Arguments),
    Retry(retry::Arguments),
    #[command(hide = true)]
    GatewayUpstream(gateway::UpstreamArguments),
    #[command(hide = true)]
    GatewayBare(gateway::BareArguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().benchmark {
        Benchmark::Store(arguments) => store::run(&arguments),
        Benchmark::StoreVictim(arguments) => reopen::be_the_victim(&arguments),
        Benchmark::Layer(arguments) => layer::run(&arguments),
        Benchmark::LayerRequests(arguments) => instructions::make_requests(&arguments),
        Benchmark::Operators(arguments) => operators::run(&arguments),
        Benchmark::Gateway(arguments) => gateway::run(&arguments),
        Benchmark::Postgres(arguments) => postgres::run(&arguments),
        Benchmark::Messages(arguments) => messages::run(&arguments),
        Benchmark::Redis(arguments) => redis::run(&arguments),
        Benchmark::Retry(arguments) => retry::run(&arguments),
        Benchmark::GatewayUpstream(arguments) => gateway::be_the_upstream(&arguments),
        Benchmark::GatewayBare(arguments) => gateway::be_the_bare_proxy(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nthe benchmark broke off: {failure}");
            ExitCode::FAILURE
        }
    }
}
