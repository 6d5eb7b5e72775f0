//! What a message adds to a transaction that inserts one row.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use onceward::outbox::{NewMessage, Outbox};
use tokio::task::JoinSet;

use crate::{
    Failure,
    measure::median,
    messages::own::{AGGREGATES, Own, connect},
    postgres::{
        script::{CENTS, CUSTOMER, INSERT_CHARGE},
        site::Site,
    },
};

/// Connections that make transactions.
const CLIENTS: [usize; 2] = [1, 16];

/// Until everybody is connected and has plans.
const WARM_UP: Duration = Duration::from_millis(500);

/// Transactions of so many clients, with and without a message.
pub(crate) struct Row {
    pub(crate) clients: usize,
    /// Transactions in a second, by rounds: without, with.
    pub(crate) turns: Vec<(f64, f64)>,
}

impl Row {
    /// How much longer a transaction with a message takes.
    pub(crate) fn added(&self) -> Option<f64> {
        median(self.turns.iter().map(|(without, with)| without / with - 1.0))
    }

    pub(crate) fn without(&self) -> Option<f64> {
        median(self.turns.iter().map(|turn| turn.0))
    }

    pub(crate) fn with(&self) -> Option<f64> {
        median(self.turns.iter().map(|turn| turn.1))
    }
}

pub(crate) fn run(site: &Site, rounds: u32, turn: Duration) -> Result<Vec<Row>, Failure> {
    let own = Own::new(site)?;
    let mut rows: Vec<_> =
        CLIENTS.map(|clients| Row { clients, turns: Vec::new() }).into_iter().collect();
    for round in 0..rounds {
        for row in &mut rows {
            let rate = |has_message| transactions(site, &own, row.clients, has_message, turn);
            // Who is first changes, because the table grows.
            let turn = match round % 2 {
                0 => (rate(false)?, rate(true)?),
                _ => {
                    let with = rate(true)?;
                    (rate(false)?, with)
                }
            };
            row.turns.push(turn);
        }
    }
    Ok(rows)
}

/// Transactions in a second.
fn transactions(
    site: &Site,
    own: &Own,
    clients: usize,
    has_message: bool,
    turn: Duration,
) -> Result<f64, Failure> {
    let (stopped, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (stopped, count) = (stopped.clone(), count.clone());
        let (url, outbox) = (own.place.url().to_owned(), Outbox::new(own.store.clone()));
        let task = async move {
            let mut client = connect(&url).await?;
            let insert = client.prepare(INSERT_CHARGE).await?;
            while !stopped.load(Ordering::Relaxed) {
                let mut transaction = client.transaction().await?;
                transaction.execute(&insert, &[&CUSTOMER, &CENTS]).await?;
                if has_message {
                    let message = NewMessage::new("charge.made", vec![b'x'; 100])?;
                    let whose = format!("order-{}", fastrand::u64(..AGGREGATES));
                    outbox.enqueue(&mut transaction, message.aggregate(&whose)?).await?;
                }
                transaction.commit().await?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, Failure>(())
        };
        tasks.spawn_on(task, site.runtime.handle());
    }
    std::thread::sleep(WARM_UP);
    let (begun, before) = (Instant::now(), count.load(Ordering::Relaxed));
    std::thread::sleep(turn);
    let done = count.load(Ordering::Relaxed) - before;
    let rate = done as f64 / begun.elapsed().as_secs_f64();
    stopped.store(true, Ordering::Relaxed);
    for ended in site.runtime.block_on(tasks.join_all()) {
        ended?;
    }
    Ok(rate)
}
