//! Messages and the commit that sends them, in one round trip.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use onceward_core::{StoreError, message::NewMessage};
use tokio_postgres::{Client, Statement, error::SqlState};

use super::{
    super::{OwnTransaction, PostgresStore, commit_error},
    inside::{ENQUEUE, ENQUEUE_TYPES, EnqueueCall, call_error, send_enqueue},
};
use crate::{
    engine::{CommitError, commit::is_refusal},
    message::MessageId,
};

type Sending<'a> = Pin<Box<dyn Future<Output = Result<(), tokio_postgres::Error>> + Send + 'a>>;

impl PostgresStore {
    /// Begins a transaction on this connection that can end with
    /// [`Outbox::enqueue_and_commit`](crate::outbox::Outbox::enqueue_and_commit).
    ///
    /// ```
    /// use onceward::store::postgres::PostgresStore;
    /// use tokio_postgres::{Client, Error};
    ///
    /// async fn order(store: &PostgresStore, client: &mut Client) -> Result<(), Error> {
    ///     let shop = store.begin(client).await?;
    ///     shop.execute("INSERT INTO orders (id) VALUES (7)", &[]).await?;
    ///     shop.commit().await
    /// }
    /// ```
    pub async fn begin<'c>(
        &self,
        client: &'c mut Client,
    ) -> Result<OwnTransaction<'c>, tokio_postgres::Error> {
        // Rolled back when it is dropped, whatever becomes of the answer.
        let transaction = OwnTransaction::begun(client);
        transaction.batch_execute("BEGIN").await?;
        Ok(transaction)
    }

    /// Prepares the call of `onceward.enqueue` on a connection.
    pub(crate) async fn prepare_enqueue(&self, client: &Client) -> Result<Statement, StoreError> {
        self.check_takes_messages()?;
        let prepared = client.prepare_typed(ENQUEUE, &ENQUEUE_TYPES).await;
        prepared.map_err(|error| call_error(&error))
    }

    /// Sends messages, and the commit right behind them. If one is refused, the server makes a rollback of the commit.
    pub(crate) async fn enqueue_and_commit(
        &self,
        transaction: OwnTransaction<'_>,
        prepared: Option<&Statement>,
        messages: &[NewMessage],
    ) -> Result<Vec<MessageId>, CommitError> {
        let (client, calls) =
            self.calls(&transaction, messages).map_err(CommitError::NotCommitted)?;
        let mut sent: Vec<Sent<'_>> = Vec::with_capacity(calls.len());
        for call in &calls {
            let one = Sent::now(Box::pin(send_enqueue(client, prepared, call)));
            if let Sent::Answered(Err(error)) = &one {
                // It did not leave this process: a commit must not either. The transaction is dropped.
                return Err(CommitError::NotCommitted(call_error(error)));
            }
            sent.push(one);
        }
        let commit: Sending<'_> = Box::pin(client.batch_execute("COMMIT"));
        let commit = Sent::now(commit);
        for one in sent {
            if let Err(error) = one.answer().await {
                return Err(refused(&error));
            }
        }
        commit.answer().await.map_err(CommitError::from)?;
        let ids = calls.iter().map(|call| MessageId::from_bytes(call.id.into_bytes())).collect();
        transaction.ended();
        Ok(ids)
    }

    fn calls<'a>(
        &self,
        transaction: &'a OwnTransaction<'_>,
        messages: &'a [NewMessage],
    ) -> Result<(&'a Client, Vec<EnqueueCall<'a>>), StoreError> {
        self.check_takes_messages()?;
        let calls = messages.iter().map(EnqueueCall::of).collect::<Result<_, _>>()?;
        Ok((transaction.opened()?, calls))
    }
}

/// A statement that was given to the connection, or was answered by it at once.
enum Sent<'a> {
    Waiting(Sending<'a>),
    Answered(Result<(), tokio_postgres::Error>),
}

impl<'a> Sent<'a> {
    /// The driver sends when it is polled for the first time.
    fn now(mut sending: Sending<'a>) -> Self {
        match sending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Self::Waiting(sending),
            Poll::Ready(answer) => Self::Answered(answer),
        }
    }

    async fn answer(self) -> Result<(), tokio_postgres::Error> {
        match self {
            Self::Waiting(sending) => sending.await,
            Self::Answered(answer) => answer,
        }
    }
}

/// What the error of a message means that has a commit behind it.
fn refused(error: &tokio_postgres::Error) -> CommitError {
    let code = error.code().map(SqlState::code);
    match code {
        Some(code) if is_refusal(code) => CommitError::NotCommitted(call_error(error)),
        // The server did not say what became of it.
        _ => CommitError::Doubtful(commit_error(error)),
    }
}
