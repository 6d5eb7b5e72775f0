//! Does charges on an SQLite store as it is told on stdin, so that tests can kill it anywhere.
//!
//! | line on stdin | what is done |
//! |---|---|
//! | `begin <key> [<bytes>]` | claims the key; an external effect happens now; says `begun <key>` |
//! | `end <key>` | stores the answer; a transactional effect happens in the same transaction |
//! | `run <key> [<bytes>]` | both |
//! | `retry <key>` | both, as a client that has got no answer and does not give up |
//!
//! | line on stdout | what it means |
//! |---|---|
//! | `ready` | the store is open: from now on it reads lines |
//! | `ack <key> <body>` | it was done by this command, and the answer is durable |
//! | `ran <key> <body>` | the same, for `retry` |
//! | `replay <key> <body>` | it had been done before, with this answer |
//! | `unknown <key>` | nobody knows whether it was done |
//! | `refused <key> <reason>` | it was not done |
//! | `unsettled <key> <reason>` | it was begun, and its end is not durable yet |
//! | `failed <reason>` | the store could not be opened, or a line means nothing |
//!
//! Each line is one write. The answer is different for each execution, so that two executions cannot
//! be taken for one. When stdin ends the store is closed.

mod operation;
mod transaction;

use std::{
    collections::HashMap,
    error::Error,
    fs::{File, OpenOptions},
    io::{self, BufRead as _, Write as _},
    path::PathBuf,
    time::Duration,
};

use clap::{Parser, ValueEnum};
use onceward::{
    Effect, Ending, Engine, Outcome, Verdict,
    protocol::{Claim, Settled},
    store::sqlite::SqliteStore,
};

use operation::{PADDING, request, shown};
use transaction::Charges;

#[derive(Parser)]
struct Arguments {
    /// The file of the store.
    #[arg(long)]
    database: PathBuf,
    /// The file to which external effects are appended; it knows no uniqueness.
    #[arg(long)]
    ledger: PathBuf,
    #[arg(long, value_enum)]
    effect: Kind,
    /// What a test must find out about.
    #[arg(long, value_enum)]
    bug: Option<Bug>,
    #[arg(long, default_value_t = 16 << 20)]
    reserve_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A line in the ledger.
    External,
    /// A row in the store's own file, in one transaction with the end of the record.
    Transactional,
}

/// A way to do a transactional charge wrongly.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Bug {
    /// The worker's own connection commits without waiting for the disk.
    Relaxed,
    /// The effect is committed before the end of the record.
    Apart,
    /// The charge is acknowledged before it is committed.
    Early,
}

/// Dropped in this order: the store's connection closes last.
struct Worker {
    kind: Kind,
    bug: Option<Bug>,
    charges: Charges,
    ledger: File,
    engine: Engine,
    store: SqliteStore,
    begun: HashMap<String, Begun>,
    executions: u32,
}

/// A charge between its claim and its end.
struct Begun {
    claim: Claim,
    body: String,
}

fn main() {
    // Where only ancestors may trace a process, the test must be let in.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
    let arguments = Arguments::parse();
    // A single thread without input and output of its own: it makes no system calls but these.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime can be built");
    if let Err(error) = runtime.block_on(work(&arguments)) {
        say(&format!("failed {error}"));
        std::process::exit(1);
    }
}

async fn work(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let mut worker = Worker::open(arguments)?;
    say("ready");
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let mut words = line.split(' ');
        let (Some(command), Some(key)) = (words.next(), words.next()) else { continue };
        let bytes = words.next().and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
        match command {
            "begin" => {
                if worker.begin(key, bytes).await {
                    say(&format!("begun {key}"));
                }
            }
            "end" => worker.end("ack", key).await,
            "run" | "retry" => {
                let word = if command == "run" { "ack" } else { "ran" };
                if worker.begin(key, bytes).await {
                    worker.end(word, key).await;
                }
            }
            _ => say(&format!("failed there is no command {command}")),
        }
    }
    Ok(())
}

impl Worker {
    fn open(arguments: &Arguments) -> Result<Self, Box<dyn Error>> {
        let Arguments { database, ledger, effect, bug, reserve_bytes } = arguments;
        let builder = SqliteStore::builder(database).reserve_bytes(*reserve_bytes);
        let (builder, synchronous) = match bug {
            Some(Bug::Relaxed) => (builder.accept_relaxed_transactions(), "normal"),
            _ => (builder, "full"),
        };
        let store = builder.open()?;
        Ok(Self {
            kind: *effect,
            bug: *bug,
            engine: Engine::new(store.clone()),
            ledger: OpenOptions::new().append(true).create(true).open(ledger)?,
            charges: Charges::open(store.path(), synchronous)?,
            store,
            begun: HashMap::new(),
            executions: 0,
        })
    }

    /// Claims the key; `false`: it is not to be run, and why was said.
    async fn begin(&mut self, key: &str, bytes: usize) -> bool {
        let effect = match self.kind {
            Kind::External => Effect::External,
            Kind::Transactional => Effect::Transactional,
        };
        let Some(claim) = self.claim(key, effect).await else { return false };
        self.executions += 1;
        let mut body = format!("{}-{}", std::process::id(), self.executions);
        body.extend(std::iter::repeat_n(PADDING, bytes));
        if self.kind == Kind::External {
            let line = format!("{key} {}\n", shown(&answer(&body)));
            let written = self.ledger.write_all(line.as_bytes());
            written.and_then(|()| self.ledger.sync_data()).expect("the ledger can be written");
        }
        self.begun.insert(key.to_owned(), Begun { claim, body });
        true
    }

    async fn claim(&self, key: &str, effect: Effect) -> Option<Claim> {
        loop {
            match self.engine.admit(request(key, effect)).await {
                Ok(Verdict::Run(claim)) => return Some(claim),
                // Asked again sooner than a polite client would, because tests must be fast.
                Ok(Verdict::Busy { .. }) => tokio::time::sleep(Duration::from_millis(10)).await,
                Ok(Verdict::Replay(replay)) => {
                    say(&format!("replay {key} {}", shown(&replay.outcome)));
                    return None;
                }
                Ok(Verdict::Unknown(_)) => {
                    say(&format!("unknown {key}"));
                    return None;
                }
                Ok(Verdict::Mismatch) => panic!("there is one fingerprint"),
                Ok(Verdict::ClockSuspect) => panic!("nobody sets the clock"),
                Err(error) => {
                    say(&format!("refused {key} {error}"));
                    return None;
                }
            }
        }
    }

    /// Ends what was begun, and acknowledges it only if the end is durable.
    async fn end(&mut self, word: &str, key: &str) {
        let Some(Begun { claim, body }) = self.begun.remove(key) else {
            return say(&format!("failed {key} was not begun"));
        };
        let answer = answer(&body);
        let acknowledgement = format!("{word} {key} {}", shown(&answer));
        let ended = match self.kind {
            Kind::External => self.settle(claim, answer).await,
            Kind::Transactional => self.charge_and_complete(&claim, key, &answer, &acknowledgement),
        };
        match ended {
            Ok(()) if self.bug == Some(Bug::Early) => {}
            Ok(()) => say(&acknowledgement),
            Err(reason) => say(&format!("unsettled {key} {reason}")),
        }
    }

    async fn settle(&self, claim: Claim, answer: Outcome) -> Result<(), String> {
        match self.engine.settle(claim, Ending::Succeeded(answer)).await {
            Ok(Settled::Stored { .. }) => Ok(()),
            Ok(Settled::FencedOff(found)) => Err(format!("fenced off by {found:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn charge_and_complete(
        &self,
        claim: &Claim,
        key: &str,
        answer: &Outcome,
        acknowledgement: &str,
    ) -> Result<(), String> {
        if self.bug == Some(Bug::Early) {
            say(acknowledgement);
        }
        if self.bug == Some(Bug::Apart) {
            self.charges.charge(key, answer)?;
            return self.charges.complete(&self.store, claim, answer);
        }
        self.charges.charge_and_complete(&self.store, claim, key, answer)
    }
}

fn answer(body: &str) -> Outcome {
    Outcome::inline(201, body.as_bytes().to_vec())
}

/// Says a line with a single write, which a trace shows as such.
fn say(line: &str) {
    let line = format!("{}\n", line.replace('\n', " "));
    // Nobody may be left to listen; what was done stays done.
    let _ = rustix::io::write(io::stdout(), line.as_bytes());
}
