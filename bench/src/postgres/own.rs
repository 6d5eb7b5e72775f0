//! The record in the user's own transaction: a row of the business and the end of its claim, one commit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use onceward::{Ending, Engine, Request, Verdict};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls, Statement};

use crate::{
    Failure,
    load::{self, Work, answer},
    postgres::{
        pgbench::Ran,
        script::{CENTS, CUSTOMER, INSERT_CHARGE},
        site::Lanes,
        turns::Arena,
    },
};

/// Which form of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A claim that everybody sees, and then `commit`.
    Commit,
    /// Claim, row and end in one transaction.
    OneTransaction,
}

/// How long a claim waits for another transaction that makes the same one: here there is none, but new
/// pages of the table are waited for in the same way.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs it for the time of a turn, each client on a connection of its own.
pub(crate) fn run(arena: &Arena<'_>, form: Form, clients: usize) -> Result<Ran, Failure> {
    let runtime = &arena.site.runtime;
    let engine = Engine::new(arena.place.store(arena.site, Lanes::USUAL)?);
    let stopped = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let shop = runtime.block_on(Shop::open(arena.place.url(), engine.clone()))?;
        let (stopped, numbers) = (stopped.clone(), arena.numbers.clone());
        let task = async move {
            let (mut shop, work, mut ended) = (shop, Work::default(), Vec::new());
            while !stopped.load(Ordering::Relaxed) {
                let request = work.request(numbers.fetch_add(1, Ordering::Relaxed));
                match form {
                    Form::Commit => shop.commit(request).await?,
                    Form::OneTransaction => shop.one_transaction(request).await?,
                }
                ended.push(Instant::now());
            }
            Ok::<_, Failure>(ended)
        };
        tasks.spawn_on(task, runtime.handle());
    }
    let window = arena.window();
    stopped.store(true, Ordering::Relaxed);
    let mut ended = Vec::new();
    for of_task in runtime.block_on(tasks.join_all()) {
        ended.append(&mut of_task?);
    }
    drop(engine);
    Ok(window.rate(&ended))
}

/// A connection of the business.
struct Shop {
    client: Client,
    insert: Statement,
    engine: Engine,
}

impl Shop {
    async fn open(url: &str, engine: Engine) -> Result<Self, Failure> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        let insert = client.prepare(INSERT_CHARGE).await?;
        Ok(Self { client, insert, engine })
    }

    async fn commit(&mut self, request: Request) -> Result<(), Failure> {
        let claim = loop {
            match self.engine.admit(request.clone()).await? {
                Verdict::Run(claim) => break claim,
                Verdict::Busy { .. } => load::was_held(),
                other => {
                    return Err(format!("a fresh key was not given a claim: {other:?}").into());
                }
            }
        };
        let transaction = self.client.transaction().await?;
        transaction.execute(&self.insert, &[&CUSTOMER, &CENTS]).await?;
        Ok(self.engine.commit(&claim, transaction, Ending::Succeeded(answer())).await?)
    }

    async fn one_transaction(&mut self, request: Request) -> Result<(), Failure> {
        let begun = self.engine.begin_in(request, &mut self.client, CLAIM_TIMEOUT).await?;
        let (transaction, Verdict::Run(claim)) = begun else {
            return Err("a fresh key was not given a claim".into());
        };
        transaction.execute(&self.insert, &[&CUSTOMER, &CENTS]).await?;
        Ok(self.engine.commit(&claim, transaction, Ending::Succeeded(answer())).await?)
    }
}
