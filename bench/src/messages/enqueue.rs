//! What a message adds to a transaction that inserts one row, by the ways in which it can be enqueued.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use onceward::outbox::{NewMessage, Outbox, PreparedOutbox};
use onceward::store::postgres::PostgresStore;
use tokio::task::JoinSet;
use tokio_postgres::{Client, Statement};

use crate::{
    Failure,
    measure::median,
    messages::{
        own::{AGGREGATES, Own, connect},
        peers::{Peer, PeerName},
    },
    postgres::{
        script::{CENTS, CUSTOMER, INSERT_CHARGE},
        site::{BenchDatabase, Cpu, Site},
    },
};

/// Connections that make transactions.
pub(crate) const CLIENTS: [usize; 2] = [1, 16];

/// Until everybody is connected and has plans.
const WARM_UP: Duration = Duration::from_millis(500);

/// graphile-worker's own function, prepared as a careful user prepares it.
const ADD_JOB: &str = "SELECT graphile_worker.add_job('bench', $1::text::json)";

/// How a message comes into the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// It does not.
    None,
    /// `Outbox::enqueue`, and then the commit.
    Enqueue,
    /// `Outbox::enqueue_and_commit`, also behind a pooler.
    WithCommit,
    /// The same, prepared for the connection.
    Prepared,
    /// `add_job` of graphile-worker, prepared, and then the commit.
    Graphile,
}

impl Form {
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::None => "no message",
            Self::Enqueue => "`enqueue`, then the commit",
            Self::WithCommit => "`enqueue_and_commit`",
            Self::Prepared => "**`enqueue_and_commit`, prepared**",
            Self::Graphile => "graphile-worker's `add_job`, prepared",
        }
    }
}

/// One turn.
#[derive(Clone, Copy)]
struct Turn {
    /// Transactions in a second.
    rate: f64,
    /// For each transaction.
    cpu: Option<Cpu>,
}

/// Transactions of so many clients, in one form.
pub(crate) struct Row {
    pub(crate) clients: usize,
    pub(crate) form: Form,
    /// By rounds: without a message, and with one.
    turns: Vec<(Turn, Turn)>,
}

impl Row {
    /// How much longer a transaction with a message takes.
    pub(crate) fn added(&self) -> Option<f64> {
        median(self.turns.iter().map(|(without, with)| without.rate / with.rate - 1.0))
    }

    pub(crate) fn without(&self) -> Option<f64> {
        median(self.turns.iter().map(|turn| turn.0.rate))
    }

    pub(crate) fn with(&self) -> Option<f64> {
        median(self.turns.iter().map(|turn| turn.1.rate))
    }

    /// Processor time that a message adds, in microseconds.
    pub(crate) fn cpu_added(&self, whose: impl Fn(&Cpu) -> Duration) -> Option<f64> {
        let micros = |turn: &Turn| Some(whose(&turn.cpu?).as_secs_f64() * 1e6);
        median(
            self.turns.iter().filter_map(|(without, with)| Some(micros(with)? - micros(without)?)),
        )
    }
}

pub(crate) fn run(
    site: &Site,
    peers: &[Peer],
    rounds: u32,
    turn: Duration,
) -> Result<Vec<Row>, Failure> {
    let own = Own::new(site)?;
    let graphile = peers.iter().find(|peer| peer.name == PeerName::GraphileWorker);
    let mut forms = vec![Form::Prepared, Form::WithCommit, Form::Enqueue];
    forms.extend(graphile.map(|_| Form::Graphile));
    let place = |form| match (form, graphile) {
        (Form::Graphile, Some(peer)) => &peer.place,
        _ => &own.place,
    };
    let rows = forms.iter().flat_map(|form| CLIENTS.map(|clients| (*form, clients)));
    let mut rows: Vec<_> =
        rows.map(|(form, clients)| Row { clients, form, turns: Vec::new() }).collect();
    for round in 0..rounds {
        for row in &mut rows {
            let turn = |form| transactions(site, &own, place(row.form), row.clients, form, turn);
            // Who is first changes, because the table grows.
            let turns = match round % 2 {
                0 => (turn(Form::None)?, turn(row.form)?),
                _ => {
                    let with = turn(row.form)?;
                    (turn(Form::None)?, with)
                }
            };
            row.turns.push(turns);
        }
    }
    if let Some(peer) = graphile {
        peer.place.sql("DELETE FROM graphile_worker._private_jobs")?;
    }
    Ok(rows)
}

/// Transactions in a second, and what each costs.
fn transactions(
    site: &Site,
    own: &Own,
    place: &BenchDatabase,
    clients: usize,
    form: Form,
    turn: Duration,
) -> Result<Turn, Failure> {
    let (stopped, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (stopped, count) = (stopped.clone(), count.clone());
        let (url, outbox) = (place.url().to_owned(), Outbox::new(own.store.clone()));
        let task = async move {
            let mut producer = Producer::new(&url, outbox, form).await?;
            while !stopped.load(Ordering::Relaxed) {
                producer.transaction().await?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, Failure>(())
        };
        tasks.spawn_on(task, site.runtime.handle());
    }
    std::thread::sleep(WARM_UP);
    let (begun, before, used) = (Instant::now(), count.load(Ordering::Relaxed), site.cpu());
    std::thread::sleep(turn);
    let done = (count.load(Ordering::Relaxed) - before) as f64;
    let rate = done / begun.elapsed().as_secs_f64();
    let cpu = site.cpu().zip(used).map(|(now, before)| now.since(before));
    let each = |time: Duration| time.div_f64(done.max(1.0));
    let cpu = cpu.map(|cpu| Cpu { server: each(cpu.server), client: each(cpu.client) });
    stopped.store(true, Ordering::Relaxed);
    for ended in site.runtime.block_on(tasks.join_all()) {
        ended?;
    }
    Ok(Turn { rate, cpu })
}

/// One connection that makes transactions.
struct Producer {
    client: Client,
    insert: Statement,
    outbox: Outbox<PostgresStore>,
    form: Form,
    prepared: Option<PreparedOutbox>,
    add_job: Option<Statement>,
}

impl Producer {
    async fn new(url: &str, outbox: Outbox<PostgresStore>, form: Form) -> Result<Self, Failure> {
        let client = connect(url).await?;
        let insert = client.prepare(INSERT_CHARGE).await?;
        let (mut prepared, mut add_job) = (None, None);
        match form {
            Form::Prepared => prepared = Some(outbox.prepare(&client).await?),
            Form::Graphile => add_job = Some(client.prepare(ADD_JOB).await?),
            Form::None | Form::Enqueue | Form::WithCommit => {}
        }
        Ok(Self { client, insert, outbox, form, prepared, add_job })
    }

    async fn transaction(&mut self) -> Result<(), Failure> {
        let Self { client, insert, outbox, form, prepared, add_job } = self;
        if matches!(form, Form::WithCommit | Form::Prepared) {
            let transaction = outbox.queue().begin(client).await?;
            transaction.execute(&*insert, &[&CUSTOMER, &CENTS]).await?;
            let messages = [message()?];
            match prepared {
                Some(prepared) => prepared.enqueue_and_commit(transaction, &messages).await?,
                None => outbox.enqueue_and_commit(transaction, &messages).await?,
            };
            return Ok(());
        }
        let mut transaction = client.transaction().await?;
        transaction.execute(&*insert, &[&CUSTOMER, &CENTS]).await?;
        if *form == Form::Enqueue {
            outbox.enqueue(&mut transaction, message()?).await?;
        }
        if let Some(add_job) = add_job {
            let body = format!(r#"{{"n":0,"pad":"{}"}}"#, "x".repeat(84));
            transaction.execute(&*add_job, &[&body]).await?;
        }
        Ok(transaction.commit().await?)
    }
}

fn message() -> Result<NewMessage, Failure> {
    let message = NewMessage::new("charge.made", vec![b'x'; 100])?;
    Ok(message.aggregate(&format!("order-{}", fastrand::u64(..AGGREGATES)))?)
}
