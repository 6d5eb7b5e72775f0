//! What every outbox and every inbox must do, with producers on tokio-postgres and on sqlx.

use std::{future::Future, marker::PhantomData, time::Duration};

use onceward::{
    StoreError,
    conformance::{block_on, spawn},
    message::{Enqueue as _, MessageId, NewMessage, Receive as _},
    protocol::conformance::{Bench, InboxBench, QueueBench},
    store::postgres::PostgresStore,
};
use sqlx::Connection as _;
use tokio_postgres::Client;

use crate::support::{Postgres, connect};

/// Each queue has its own database.
struct Databases<D> {
    postgres: Postgres,
    _driver: PhantomData<D>,
}

impl<D> Clone for Databases<D> {
    fn clone(&self) -> Self {
        Self { postgres: self.postgres.clone(), _driver: PhantomData }
    }
}

impl<D> Databases<D> {
    fn new() -> Self {
        Self { postgres: Postgres::new(), _driver: PhantomData }
    }

    fn url(&self, store: &PostgresStore) -> String {
        self.postgres.database(store).url().to_owned()
    }
}

/// How a producer reaches the database.
trait Driver: Send + Sync + 'static {
    type Connection: Send;

    fn connect(url: &str) -> impl Future<Output = Self::Connection> + Send;
    fn execute(
        connection: &mut Self::Connection,
        text: &'static str,
    ) -> impl Future<Output = ()> + Send;
    fn enqueue(
        store: &PostgresStore,
        connection: &mut Self::Connection,
        message: &NewMessage,
    ) -> impl Future<Output = Result<MessageId, StoreError>> + Send;
    fn first_time(
        store: &PostgresStore,
        connection: &mut Self::Connection,
        receipt: (&str, &str, Duration),
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

struct WithTokio;

impl Driver for WithTokio {
    /// Its transactions borrow it, and could not be handed from task to task.
    type Connection = Client;

    async fn connect(url: &str) -> Client {
        connect(url).await
    }

    async fn execute(client: &mut Client, text: &'static str) {
        client.batch_execute(text).await.unwrap();
    }

    async fn enqueue(
        store: &PostgresStore,
        client: &mut Client,
        message: &NewMessage,
    ) -> Result<MessageId, StoreError> {
        store.enqueue_in(client, message).await
    }

    async fn first_time(
        store: &PostgresStore,
        client: &mut Client,
        (consumer, message, retain): (&str, &str, Duration),
    ) -> Result<bool, StoreError> {
        store.first_time_in(client, consumer, message, retain).await
    }
}

struct WithSqlx;

impl Driver for WithSqlx {
    type Connection = sqlx::PgConnection;

    async fn connect(url: &str) -> sqlx::PgConnection {
        sqlx::PgConnection::connect(url).await.unwrap()
    }

    async fn execute(connection: &mut sqlx::PgConnection, text: &'static str) {
        sqlx::query(text).execute(connection).await.unwrap();
    }

    async fn enqueue(
        store: &PostgresStore,
        connection: &mut sqlx::PgConnection,
        message: &NewMessage,
    ) -> Result<MessageId, StoreError> {
        store.enqueue_in(connection, message).await
    }

    async fn first_time(
        store: &PostgresStore,
        connection: &mut sqlx::PgConnection,
        (consumer, message, retain): (&str, &str, Duration),
    ) -> Result<bool, StoreError> {
        store.first_time_in(connection, consumer, message, retain).await
    }
}

impl<D: Driver> QueueBench for Databases<D> {
    type Queue = PostgresStore;
    type Transaction = D::Connection;

    async fn open(&self) -> PostgresStore {
        self.postgres.open().await
    }

    async fn reopen(&self, queue: PostgresStore) -> Option<PostgresStore> {
        self.postgres.reopen(queue).await
    }

    async fn another(&self, queue: &PostgresStore) -> PostgresStore {
        PostgresStore::connect(&self.url(queue)).await.unwrap()
    }

    async fn age(&self, queue: &PostgresStore, by: Duration) {
        let by = format!("{} * interval '1 microsecond'", by.as_micros());
        let text = format!(
            "UPDATE onceward.message SET at = at - {by}, not_before = not_before - {by},
                 expires_at = expires_at - {by};
             UPDATE onceward.parked SET at = at - {by}, due = due - {by}, try_at = try_at - {by};
             UPDATE onceward.step SET at = at - {by};
             UPDATE onceward.lane SET until = until - {by};
             UPDATE onceward.relay SET until = until - {by};
             UPDATE onceward.inbox SET received_at = received_at - {by}, expires_at = expires_at - {by}"
        );
        connect(&self.url(queue)).await.batch_execute(&text).await.unwrap();
    }

    fn is_concurrent(&self) -> bool {
        true
    }

    async fn begin(&self, queue: &PostgresStore) -> D::Connection {
        let mut connection = D::connect(&self.url(queue)).await;
        D::execute(&mut connection, "BEGIN").await;
        connection
    }

    async fn enqueue(
        &self,
        queue: &PostgresStore,
        transaction: &mut D::Connection,
        message: &NewMessage,
    ) -> Result<MessageId, StoreError> {
        D::enqueue(queue, transaction, message).await
    }

    async fn commit(&self, mut transaction: D::Connection) {
        D::execute(&mut transaction, "COMMIT").await;
    }

    async fn roll_back(&self, mut transaction: D::Connection) {
        D::execute(&mut transaction, "ROLLBACK").await;
    }

    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        spawn(task)
    }
}

impl<D: Driver> InboxBench for Databases<D> {
    async fn first_time(
        &self,
        queue: &PostgresStore,
        transaction: &mut D::Connection,
        consumer: &str,
        message: &str,
        retain: Duration,
    ) -> Result<bool, StoreError> {
        D::first_time(queue, transaction, (consumer, message, retain)).await
    }
}

onceward::protocol::queue_conformance!(Databases::<WithTokio>::new(), block_on);
onceward::protocol::inbox_conformance!(Databases::<WithTokio>::new(), block_on);

/// In transaction mode: each transaction may have another connection.
mod behind_pgbouncer {
    use onceward::{protocol::conformance, store::postgres::PostgresStoreBuilder};

    use super::*;

    macro_rules! behind_pgbouncer {
        ($($case:ident)*) => { $(
            #[test]
            fn $case() {
                let postgres = Postgres::with(PostgresStoreBuilder::unprepared)
                    .through(|database| testbed::pgbouncer().url_of(database));
                let bench = Databases::<WithTokio> { postgres, _driver: PhantomData };
                block_on(conformance::$case(&bench));
            }
        )* };
    }

    behind_pgbouncer! {
        committed_messages_are_taken_once_and_in_order
        late_commits_are_found_though_later_ones_were_taken
        of_racing_producers_everything_is_taken_once_and_in_order
        of_50_settlements_one_is_made
        racing_relays_never_hold_the_same_lane
        a_parked_message_stops_its_aggregate_only
        an_operators_step_lets_the_relay_propose_again
        a_sweep_deletes_what_every_sink_has_passed
    }
}

mod with_sqlx {
    use super::*;

    onceward::protocol::inbox_conformance!(Databases::<WithSqlx>::new(), block_on);
}
