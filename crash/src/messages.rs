//! A shop that enqueues, a relay and a consumer with a ledger: processes that a test kills anywhere.
//!
//! The producer commits orders, each with its messages; every fifth one is rolled back. The relay sends them over
//! HTTP. The consumer asks its inbox, and writes what is new into its ledger.

mod consumer;
mod order;
mod place;
mod producer;
mod relay;

use std::net::SocketAddr;

pub use order::Order;
pub use place::Place;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a process is started with.
#[derive(Clone, Debug, clap::Parser)]
pub struct Arguments {
    /// What it does.
    #[arg(long, value_enum)]
    pub role: Role,
    /// A file of SQLite, or the address of a database: the shop's, or the consumer's own.
    #[arg(long)]
    pub place: Place,
    /// Where the consumer listens.
    #[arg(long)]
    pub consumer: Option<SocketAddr>,
    /// Which producer it is: each has orders and aggregates of its own.
    #[arg(long, default_value_t = 0)]
    pub producer: i64,
    /// Up to which order a producer goes on.
    #[arg(long, default_value_t = 5)]
    pub orders: i64,
    /// Among how many aggregates a producer's orders are distributed.
    #[arg(long, default_value_t = 2)]
    pub aggregates: i64,
    /// Lets a relay end when everything is delivered.
    #[arg(long)]
    pub drain: bool,
    /// Of a thousand answers, so many are lost, so many attempts fail, and so many messages are sent twice.
    #[arg(long, default_value_t = 0)]
    pub faults: u32,
    /// How long the consumer takes for a message, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pub slow: u64,
    /// A mistake that the checker must find.
    #[arg(long, value_enum)]
    pub bug: Option<Bug>,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Commits orders with their messages, and ends.
    Produce,
    /// Delivers.
    Relay,
    /// Applies.
    Consume,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Produce, Self::Relay, Self::Consume];

    /// As it is written on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Relay => "relay",
            Self::Consume => "consume",
        }
    }
}

/// A mistake on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Bug {
    /// The producer enqueues in a transaction of its own, before that of the order.
    EnqueuesApart,
    /// The sink says that it has a message before the consumer got it.
    AcceptsEarly,
    /// The consumer answers before it has committed.
    AnswersEarly,
    /// The consumer commits the receipt before the effect.
    ReceiptApart,
    /// The consumer applies what its inbox has seen before.
    NoInbox,
}

/// Runs until its work is done, its standard input ends, or it is killed.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    // It ends with the test that started it, also when that is killed.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
    // One thread for all else, so that every run passes the same points.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match arguments.role {
            Role::Produce => producer::produce(arguments).await,
            Role::Relay => relay::deliver(arguments).await,
            Role::Consume => consumer::consume(arguments).await,
        }
    })
}
