//! Customers who ask until they get an answer, whatever the servers do meanwhile.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use onceward::{
    CommitError, Effect, Ending, Engine, Outcome, Verdict,
    protocol::{Claim, Settled, StoredBody},
    store::postgres::PostgresStore,
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_postgres::{Client, NoTls};

use crate::pair::asked;

/// What a charge is, without any constraint: two rows are two effects.
pub(crate) const LEDGER: &str = "CREATE TABLE ledger (key text NOT NULL, execution text NOT NULL)";

/// What the header `Onceward-Execution` would hold is made of digest and execution.
const COMPLETE: &str = "SELECT onceward.complete(
    translate(encode($1, 'base64'), '+/=', '-_') || '.' || $2, 201, '[]', convert_to($2, 'UTF8'))";

/// How a charge and its record get into one transaction.
#[derive(Clone, Copy)]
enum CommitMethod {
    /// By the engine.
    Rust,
    /// By the SQL function, as in any other language.
    Sql,
}

/// How long a customer's own transaction may take.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct Till {
    pub(crate) engine: Engine,
    url: String,
    pub(crate) observed: Arc<Observed>,
}

/// What customers were told, and what was done outside of the database.
#[derive(Default)]
pub(crate) struct Observed {
    /// Every answer that somebody was given, by the key that was asked with.
    pub(crate) answers: Mutex<HashMap<String, Vec<String>>>,
    /// How often the effect outside was had.
    pub(crate) outside: Mutex<HashMap<String, u32>>,
    count: AtomicUsize,
    closed: AtomicBool,
}

impl Observed {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits until so many more answers were given.
    pub(crate) fn wait_for_more(&self, more: usize) {
        let (wanted, started) = (self.count() + more, Instant::now());
        while self.count() < wanted {
            let waited = started.elapsed();
            assert!(waited < Duration::from_secs(120), "only {} answers of {wanted}", self.count());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Nobody asks anything new from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    fn answered(&self, key: &str, answer: String) {
        self.answers.lock().unwrap().entry(key.to_owned()).or_default().push(answer);
        self.count.fetch_add(1, Ordering::SeqCst);
    }
}

impl Till {
    pub(crate) async fn open(url: &str) -> Self {
        let store = PostgresStore::connect(url).await.unwrap();
        Self { engine: Engine::new(store), url: url.to_owned(), observed: Arc::default() }
    }

    /// Customers in pairs, who ask with the same keys; returns when the till is closed and the last of them
    /// has an answer.
    pub(crate) async fn serve(&self, pairs: usize) {
        let mut customers = JoinSet::new();
        for pair in 0..pairs {
            for method in [CommitMethod::Rust, CommitMethod::Sql] {
                customers.spawn(self.clone().charge_on(format!("inside-{pair}"), method));
                customers.spawn(self.clone().ship_on(format!("outside-{pair}")));
            }
        }
        while let Some(ended) = customers.join_next().await {
            ended.unwrap();
        }
    }

    /// One key after the other, each until there is an answer.
    async fn charge_on(self, name: String, method: CommitMethod) {
        let mut connection = None;
        for number in 0.. {
            let key = format!("{name}-{number}");
            while !self.charge(&mut connection, &key, method).await {
                sleep(Duration::from_millis(50)).await;
            }
            if self.observed.closed.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Asks once for a charge in the till's own database; whether there was an answer.
    async fn charge(
        &self,
        connection: &mut Option<Client>,
        key: &str,
        method: CommitMethod,
    ) -> bool {
        match self.engine.admit(asked(Effect::Transactional, key)).await {
            Ok(Verdict::Run(claim)) => {
                let receipt = claim.execution().to_string();
                let paying = self.pay(connection, key, &claim, method);
                let paid = timeout(TRANSACTION_TIMEOUT, paying).await;
                let committed = matches!(paid, Ok(Ok(())));
                if paid.is_err() {
                    // The server hangs, and what becomes of the commit is not known; asking again tells.
                    *connection = None;
                }
                if committed {
                    self.observed.answered(key, receipt);
                }
                committed
            }
            Ok(Verdict::Replay(replay)) => {
                self.observed.answered(key, text(replay.outcome));
                true
            }
            // A charge in the same transaction as its record is never of unknown outcome.
            Ok(verdict @ (Verdict::Unknown(_) | Verdict::Mismatch)) => panic!("{key}: {verdict:?}"),
            Ok(Verdict::Busy { .. } | Verdict::ClockSuspect) | Err(_) => false,
        }
    }

    /// The charge and its record in one transaction.
    async fn pay(
        &self,
        connection: &mut Option<Client>,
        key: &str,
        claim: &Claim,
        method: CommitMethod,
    ) -> Result<(), CommitError> {
        let receipt = claim.execution().to_string();
        let transaction = self.connected(connection).await?.transaction().await?;
        let insert = "INSERT INTO ledger (key, execution) VALUES ($1, $2)";
        transaction.execute(insert, &[&key, &receipt]).await?;
        match method {
            CommitMethod::Rust => {
                let ending = Ending::Succeeded(Outcome::inline(201, receipt.into_bytes()));
                self.engine.commit(claim, transaction, ending).await
            }
            CommitMethod::Sql => {
                let id = asked(Effect::Transactional, key).operation.digest();
                transaction.execute(COMPLETE, &[&id.0.as_slice(), &receipt]).await?;
                Ok(transaction.commit().await?)
            }
        }
    }

    async fn ship_on(self, name: String) {
        for number in 0.. {
            let key = format!("{name}-{number}");
            while !self.ship(&key).await {
                sleep(Duration::from_millis(50)).await;
            }
            if self.observed.closed.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Asks once for something outside of the database; whether there was an answer, or never will be.
    async fn ship(&self, key: &str) -> bool {
        match self.engine.admit(asked(Effect::External, key)).await {
            Ok(Verdict::Run(claim)) => {
                *self.observed.outside.lock().unwrap().entry(key.to_owned()).or_default() += 1;
                let receipt = claim.execution().to_string();
                let ending = Ending::Succeeded(Outcome::inline(201, receipt.clone().into_bytes()));
                let settled = self.engine.settle(claim, ending).await;
                let stored = matches!(settled, Ok(Settled::Stored { .. }));
                if stored {
                    self.observed.answered(key, receipt);
                }
                stored
            }
            Ok(Verdict::Replay(replay)) => {
                self.observed.answered(key, text(replay.outcome));
                true
            }
            // Honest: whoever did it has not said in time how it ended.
            Ok(Verdict::Unknown(_)) => true,
            Ok(Verdict::Mismatch) => panic!("{key} was used for one thing only"),
            Ok(Verdict::Busy { .. } | Verdict::ClockSuspect) | Err(_) => false,
        }
    }

    /// The customer's own connection, made again when it is lost.
    async fn connected<'a>(
        &self,
        connection: &'a mut Option<Client>,
    ) -> Result<&'a mut Client, tokio_postgres::Error> {
        if connection.as_ref().is_none_or(Client::is_closed) {
            let (client, driver) = tokio_postgres::connect(&self.url, NoTls).await?;
            tokio::spawn(driver);
            *connection = Some(client);
        }
        Ok(connection.as_mut().expect("it was made just now"))
    }
}

pub(crate) fn text(outcome: Outcome) -> String {
    match outcome.body {
        StoredBody::Inline(bytes) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?} was never stored"),
    }
}
