//! The consumer: an HTTP server before the loop of an inbox, and a ledger in the same database.

use std::{cell::RefCell, path::PathBuf, rc::Rc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use onceward::{
    crashpoint,
    inbox::{Applied, ConsumeError, Consumer, Delivery, Inbox, Incoming, Poison},
    store::{postgres::PostgresStore, sqlite::SqliteStore},
};
use rusqlite::Connection;
use tokio::{
    net::TcpListener,
    sync::{Mutex, mpsc, oneshot},
    time::sleep,
};
use tokio_postgres::Client;

use super::{Arguments, Bug, Failure, Place, place};

/// What a message says, and whose it is.
type Event = (String, String);

/// As the inbox knows it.
const NAME: &str = "ledger";

const ENTRY: &str = "INSERT INTO ledger (aggregate, body) VALUES ($1, $2)";

/// Serves until it is killed. Says `listening on <address>` when it is ready.
pub(super) async fn consume(arguments: &Arguments) -> Result<(), Failure> {
    let address = arguments.consumer.ok_or("a consumer needs --consumer")?;
    let (arrived, deliveries) = mpsc::channel(1);
    let app = Router::new().route("/events", post(receive));
    let app = app.with_state(Server { arrived, bug: arguments.bug });
    let listener = TcpListener::bind(address).await?;
    let (slow, bug) = (Duration::from_millis(arguments.slow), arguments.bug);
    let work: std::pin::Pin<Box<dyn Future<Output = ()>>> = match &arguments.place {
        Place::Sqlite(path) => Box::pin(on_sqlite(Sqlite::open(path, bug)?, slow, deliveries)),
        Place::Postgres(url) => {
            Box::pin(on_postgres(Postgres::open(url, bug).await?, slow, deliveries))
        }
    };
    say(&format!("listening on {address}"))?;
    tokio::select! {
        () = work => Ok(()),
        served = async { axum::serve(listener, app).await } => Ok(served?),
    }
}

fn say(line: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

#[derive(Clone)]
struct Server {
    arrived: mpsc::Sender<Delivery<Event>>,
    bug: Option<Bug>,
}

/// Says `asked`, and answers when the loop has acknowledged the delivery.
async fn receive(State(server): State<Server>, headers: HeaderMap, body: String) -> StatusCode {
    let _ = say("asked");
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let event = (text("onceward-aggregate").to_owned(), body);
    let (acknowledge, acknowledged) = oneshot::channel();
    let delivery = Delivery::new(text("idempotency-key"), event, move || async move {
        acknowledge.send(()).map_err(|()| ConsumeError::from("the relay has gone"))
    });
    if server.arrived.send(delivery).await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    if server.bug == Some(Bug::AnswersEarly) {
        return StatusCode::NO_CONTENT;
    }
    let answered = acknowledged.await.map(|()| StatusCode::NO_CONTENT).map_err(drop);
    crashpoint!("consumer.answer", answered, ()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
}

async fn no_dead_letters(poison: Poison<Event>) -> Result<(), ConsumeError> {
    Err(format!("{} was given up: {}", poison.id, poison.why).into())
}

fn consumer<S>(store: S) -> Consumer<S> {
    // No message is wrong; a fault is of the test.
    Consumer::new(Inbox::new(store), NAME).attempts(1_000)
}

#[derive(Clone)]
struct Sqlite {
    store: SqliteStore,
    connection: Rc<RefCell<Connection>>,
    bug: Option<Bug>,
}

async fn on_sqlite(ledger: Sqlite, slow: Duration, deliveries: mpsc::Receiver<Delivery<Event>>) {
    let apply = |incoming| {
        let ledger = ledger.clone();
        async move {
            sleep(slow).await;
            ledger.apply(incoming)
        }
    };
    consumer(ledger.store.clone()).run(deliveries, apply, no_dead_letters).await;
}

impl Sqlite {
    fn open(path: &PathBuf, bug: Option<Bug>) -> Result<Self, Failure> {
        let connection = Rc::new(RefCell::new(place::connection(path)?));
        Ok(Self { store: place::sqlite(path)?, connection, bug })
    }

    fn apply(&self, mut incoming: Incoming<Event, SqliteStore>) -> Result<Applied, ConsumeError> {
        let mut connection = self.connection.borrow_mut();
        let mut transaction = self.store.begin_blocking(&mut connection)?;
        let is_first = incoming.first_time_blocking(&transaction)?;
        if self.bug == Some(Bug::ReceiptApart) {
            transaction.commit()?;
            transaction = self.store.begin_blocking(&mut connection)?;
        }
        if is_first || self.bug == Some(Bug::NoInbox) {
            let (aggregate, body) = incoming.message();
            let broken = || rusqlite::Error::InvalidQuery;
            let entry = (aggregate, body);
            crashpoint!("ledger.write", transaction.execute(ENTRY, entry), broken())?;
        }
        incoming.commit_blocking(transaction)
    }
}

#[derive(Clone)]
struct Postgres {
    store: PostgresStore,
    client: Rc<Mutex<Client>>,
    bug: Option<Bug>,
}

async fn on_postgres(
    ledger: Postgres,
    slow: Duration,
    deliveries: mpsc::Receiver<Delivery<Event>>,
) {
    let apply = |incoming| {
        let ledger = ledger.clone();
        async move {
            sleep(slow).await;
            ledger.apply(incoming).await
        }
    };
    consumer(ledger.store.clone()).run(deliveries, apply, no_dead_letters).await;
}

impl Postgres {
    async fn open(url: &str, bug: Option<Bug>) -> Result<Self, Failure> {
        let client = Rc::new(Mutex::new(place::client(url).await?));
        Ok(Self { store: PostgresStore::connect(url).await?, client, bug })
    }

    async fn apply(
        &self,
        mut incoming: Incoming<Event, PostgresStore>,
    ) -> Result<Applied, ConsumeError> {
        let mut client = self.client.lock().await;
        let mut transaction = client.transaction().await?;
        let is_first = incoming.first_time(&mut transaction).await?;
        if is_first || self.bug == Some(Bug::NoInbox) {
            let (aggregate, body) = incoming.message();
            let entry = async {
                Ok::<_, ConsumeError>(transaction.execute(ENTRY, &[aggregate, body]).await?)
            };
            crashpoint!("ledger.write", entry.await, "broken".into())?;
        }
        incoming.commit(transaction).await
    }
}
