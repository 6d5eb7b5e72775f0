//! An upstream that writes down, by key, what it was asked and what it did; it does it with its 201.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, Response},
    routing::post,
};
use testbed::Gate;

#[derive(Clone)]
pub(crate) struct Ledger {
    pub(crate) address: SocketAddr,
    accounts: Accounts,
}

/// What became of one key.
#[derive(Clone)]
pub(crate) struct Account {
    pub(crate) asked: u32,
    pub(crate) effects: u32,
    gate: Gate,
}

type Accounts = Arc<Mutex<BTreeMap<String, Account>>>;

impl Ledger {
    /// `/busy` answers 503 when a key comes for the first time; `/slow` takes two seconds, and until
    /// it is let on.
    pub(crate) async fn start() -> Self {
        let accounts = Accounts::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/busy", post(busy)).route("/slow", post(slow));
        tokio::spawn(axum::serve(listener, app.with_state(accounts.clone())).into_future());
        Self { address, accounts }
    }

    pub(crate) fn account(&self, key: &str) -> Account {
        write(&self.accounts, key, |account| account.clone())
    }

    /// Lets the slow one on, now or when it comes.
    pub(crate) fn let_on(&self, key: &str) {
        self.account(key).gate.open();
    }
}

impl Account {
    fn new() -> Self {
        Self { asked: 0, effects: 0, gate: Gate::closed() }
    }

    /// What the 201 says.
    pub(crate) fn receipt(&self, key: &str) -> String {
        format!("receipt {} of {key}", self.effects)
    }
}

impl std::fmt::Display for Account {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "asked {} times, with {} effects", self.asked, self.effects)
    }
}

/// Does this to the account of the key.
fn write<T>(accounts: &Accounts, key: &str, what: impl FnOnce(&mut Account) -> T) -> T {
    let mut accounts = accounts.lock().unwrap();
    what(accounts.entry(key.to_owned()).or_insert_with(Account::new))
}

/// The key of a request, which is written down.
fn asked(accounts: &Accounts, headers: &HeaderMap) -> (String, Account) {
    let key = headers["idempotency-key"].to_str().unwrap().trim_matches('"').to_owned();
    let account = write(accounts, &key, |account| {
        account.asked += 1;
        account.clone()
    });
    (key, account)
}

fn done(accounts: &Accounts, key: &str) -> Response<Body> {
    let receipt = write(accounts, key, |account| {
        account.effects += 1;
        account.receipt(key)
    });
    Response::builder().status(201).body(Body::from(receipt)).unwrap()
}

async fn busy(State(accounts): State<Accounts>, headers: HeaderMap) -> Response<Body> {
    let (key, account) = asked(&accounts, &headers);
    if account.asked == 1 {
        let response = Response::builder().status(503).header("retry-after", "1");
        return response.body(Body::from("come back")).unwrap();
    }
    done(&accounts, &key)
}

async fn slow(State(accounts): State<Accounts>, headers: HeaderMap) -> Response<Body> {
    let (key, account) = asked(&accounts, &headers);
    tokio::time::sleep(Duration::from_secs(2)).await;
    account.gate.pass().await;
    done(&accounts, &key)
}
