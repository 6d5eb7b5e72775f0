//! The answer, the record and the effect in one commit: what a handler calls at its end.
//!
//! Whatever a handler does after this, the layer reads the record and sends what was committed: see
//! `settle`.

#[cfg(feature = "sqlite")]
use std::task::{Context, Poll, Waker};
use std::{future::Future, time::Duration};

use bytes::Bytes;
use http::{Response, StatusCode};
use onceward_core::{
    Ending, Meaning, Outcome, Replay, Settlement, SpoolId, StoreError, Transactional as _,
};
use tokio::time::timeout;

use super::{
    Body, BoxError, Claim, Code, Problem,
    steps::{
        capture, keep,
        recall::CHUNK,
        settle::{self, not_durable_yet},
    },
};
use crate::{
    CommitError,
    engine::{Transaction, fresh_fence},
    http::ByteBody,
    telemetry::event,
};

impl Claim {
    /// Begins a transaction in the database where the record is, when it is its turn.
    ///
    /// SQLite has one writer at a time: transactions that are begun here wait in line with those of
    /// the store, and begin with the write lock (`BEGIN IMMEDIATE`). All other writes wait until this
    /// transaction ends: do slow work before.
    #[cfg(all(feature = "sqlx", feature = "sqlite"))]
    pub async fn begin(
        &self,
        pool: &sqlx::SqlitePool,
    ) -> Result<crate::store::sqlite::OwnTransaction, CommitError> {
        let store = self.engine().store_of::<crate::store::sqlite::SqliteStore>()?;
        Ok(store.begin(pool).await?)
    }

    /// Ends the operation with this answer and commits: effect, record and answer together, or
    /// nothing of it. The last thing that a handler of a transactional effect does.
    ///
    /// Any status is bound: 2xx and 3xx as success, all others as final failure. To leave the key
    /// usable, roll back and return the answer without this.
    ///
    /// If the commit fails, the record is read to learn
    /// whether it was done; after an error nothing was, except for [`CommitError::Doubtful`].
    ///
    #[cfg_attr(all(feature = "sqlx", feature = "sqlite"), doc = "```")]
    #[cfg_attr(not(all(feature = "sqlx", feature = "sqlite")), doc = "```ignore")]
    /// use axum::{extract::State, http::StatusCode};
    /// use onceward::{CommitError, server::{Claim, Completed}};
    /// use sqlx::SqlitePool;
    ///
    /// async fn charge(State(shop): State<SqlitePool>, claim: Claim, cents: String) -> Result<Completed, CommitError> {
    ///     let mut transaction = claim.begin(&shop).await?;
    ///     let insert = sqlx::query("INSERT INTO charge (cents) VALUES (?1)").bind(&cents);
    ///     insert.execute(&mut *transaction).await?;
    ///     claim.commit(transaction, (StatusCode::CREATED, format!("charged {cents}"))).await
    /// }
    /// ```
    pub fn commit<T: Transaction>(
        &self,
        transaction: T,
        answer: impl IntoAnswer,
    ) -> impl Future<Output = Result<Completed, CommitError>> + Send {
        self.commit_answer(transaction, answer.into_answer())
    }

    pub(super) async fn commit_answer<T: Transaction>(
        &self,
        mut transaction: T,
        response: Response<impl ByteBody>,
    ) -> Result<Completed, CommitError> {
        let (end, completed) = End::soon(self, response).await?;
        let (outcome, fence) = (end.outcome.clone(), end.id.fence);
        let settlement = self.keep_in(&mut transaction, end).await?;
        // Dropping this future does not take a commit back.
        self.sent(true);
        let committed = self.engine().commit_with(self, transaction, settlement).await;
        self.sent(matches!(committed, Err(CommitError::Doubtful(_))));
        let at = committed?;
        self.keep_end(at.map(|completed_at| {
            let expires_at = Some(completed_at.plus(self.terms().retain()));
            Replay { outcome, fence, completed_at, expires_at }
        }));
        Ok(completed)
    }

    /// Proposes this answer as the operation's end; the handler commits by itself.
    ///
    #[cfg_attr(all(feature = "sqlx", feature = "sqlite"), doc = "```")]
    #[cfg_attr(not(all(feature = "sqlx", feature = "sqlite")), doc = "```ignore")]
    /// # use onceward::{CommitError, server::{Claim, Completed}};
    /// # async fn charge(shop: sqlx::SqlitePool, claim: Claim) -> Result<Completed, CommitError> {
    /// let mut transaction = claim.begin(&shop).await?;
    /// let completed = claim.complete_in(&mut transaction, "charged").await?;
    /// sqlx::query("INSERT INTO charge (cents) VALUES (500)").execute(&mut *transaction).await?;
    /// transaction.commit().await?;                        // this decides
    /// Ok(completed)
    /// # }
    /// ```
    ///
    /// Return what you get from this after the commit. After an error the transaction must be rolled
    /// back: the claim may be over, and then another execution has the right to the effect.
    pub fn complete_in<T: Transaction>(
        &self,
        transaction: &mut T,
        answer: impl IntoAnswer,
    ) -> impl Future<Output = Result<Completed, CommitError>> + Send {
        let response = answer.into_answer();
        async move {
            let (end, completed) = End::soon(self, response).await?;
            let settlement = self.keep_in(transaction, end).await?;
            self.engine().propose_in(self, transaction, settlement).await?;
            Ok(completed)
        }
    }

    /// Writes what is too large for the record, and says how the claim shall end.
    async fn keep_in<T: Transaction>(
        &self,
        transaction: &mut T,
        end: End,
    ) -> Result<Settlement, CommitError> {
        let store = self.engine().store_of::<T::Store>()?;
        for (index, chunk) in end.chunks() {
            let put = store.put_in(transaction.connection(), &end.id, index, chunk);
            put.await.map_err(CommitError::NotCommitted)?;
        }
        Ok(end.settlement(self))
    }
}

#[cfg(feature = "sqlite")]
mod blocking {
    use super::{Claim, CommitError, Completed, End, IntoAnswer, Settlement, at_once};
    use crate::{
        engine::commit::rolled_back_unless_ok,
        store::sqlite::{BlockingTransaction, OwnBlockingTransaction, SqliteStore},
    };

    impl Claim {
        /// [`begin`](Self::begin) for a connection of rusqlite; call it where blocking is allowed.
        pub fn begin_blocking<'c>(
            &self,
            connection: &'c mut rusqlite::Connection,
        ) -> Result<OwnBlockingTransaction<'c>, CommitError> {
            Ok(self.engine().store_of::<SqliteStore>()?.begin_blocking(connection)?)
        }

        /// [`commit`](Self::commit) for a transaction of rusqlite; call it where blocking is allowed.
        ///
        /// ```
        /// use onceward::{CommitError, server::{Claim, Completed}};
        /// use rusqlite::Connection;
        ///
        /// fn charge(shop: &mut Connection, claim: &Claim, cents: u32) -> Result<Completed, CommitError> {
        ///     let transaction = claim.begin_blocking(shop)?;
        ///     transaction.execute("INSERT INTO charge (cents) VALUES (?1)", [cents])?;
        ///     claim.commit_blocking(transaction, format!("charged {cents}"))
        /// }
        /// ```
        pub fn commit_blocking(
            &self,
            transaction: impl BlockingTransaction,
            answer: impl IntoAnswer,
        ) -> Result<Completed, CommitError> {
            let kept = self.end_at_once(answer).and_then(|(end, completed)| {
                Ok((self.keep_in_blocking(&transaction, end)?, completed))
            });
            let (settlement, completed) = rolled_back_unless_ok(&transaction, kept)?;
            self.engine().commit_with_blocking(self, transaction, settlement)?;
            Ok(completed)
        }

        /// [`complete_in`](Self::complete_in) for a transaction of rusqlite.
        pub fn complete_in_blocking(
            &self,
            transaction: &impl BlockingTransaction,
            answer: impl IntoAnswer,
        ) -> Result<Completed, CommitError> {
            let (end, completed) = self.end_at_once(answer)?;
            let settlement = self.keep_in_blocking(transaction, end)?;
            self.engine().propose_in_blocking(self, transaction, settlement)?;
            Ok(completed)
        }

        /// The answers of blocking code are whole; one that comes in pieces is not waited for.
        fn end_at_once(&self, answer: impl IntoAnswer) -> Result<(End, Completed), CommitError> {
            at_once(End::of(self, answer.into_answer())).unwrap_or(Err(CommitError::AnswerBroke))
        }

        fn keep_in_blocking(
            &self,
            transaction: &impl BlockingTransaction,
            end: End,
        ) -> Result<Settlement, CommitError> {
            let store = self.engine().store_of::<SqliteStore>()?;
            for (index, chunk) in end.chunks() {
                let put = store.put_in_blocking(transaction.connection(), &end.id, index, chunk);
                put.map_err(CommitError::NotCommitted)?;
            }
            Ok(end.settlement(self))
        }
    }
}

#[cfg(feature = "sqlite")]
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut context = Context::from_waker(Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// How long the body of an answer may take to come: on SQLite no other transaction can write meanwhile.
const AT_ONCE: Duration = Duration::from_secs(1);

/// How an operation ends in a commit: what is kept of its answer, and under which fence.
struct End {
    id: SpoolId,
    outcome: Outcome,
    /// What is kept beside the record, because it is too large for it.
    large: Bytes,
}

impl End {
    /// Reads the answer to its end, for a moment: the only write lock is held meanwhile.
    async fn soon(
        claim: &Claim,
        response: Response<impl ByteBody>,
    ) -> Result<(Self, Completed), CommitError> {
        timeout(AT_ONCE, Self::of(claim, response)).await.unwrap_or(Err(CommitError::AnswerBroke))
    }

    async fn of(
        claim: &Claim,
        response: Response<impl ByteBody>,
    ) -> Result<(Self, Completed), CommitError> {
        let idempotency = claim.idempotency();
        let captured = capture::capture(idempotency, claim.memory(), response).await;
        if captured.head().is_none() {
            return Err(CommitError::AnswerBroke);
        }
        let id = SpoolId { operation: claim.id(), fence: fresh_fence() };
        let (mut outcome, large) = keep::outcome(idempotency, &captured);
        let options = idempotency.options();
        let large = large.filter(|_| options.chosen.spool.is_some() && options.beside.is_some());
        if let Some(bytes) = &large {
            outcome.body = keep::spooled(bytes);
        }
        let completed = settle::passed_on(captured);
        let end = Self { id, outcome, large: large.unwrap_or_default() };
        let response = completed.ok_or(CommitError::AnswerBroke)?;
        Ok((end, Completed { response, is_first: true }))
    }

    fn chunks(&self) -> impl Iterator<Item = (u32, &[u8])> {
        (0..).zip(self.large.chunks(CHUNK))
    }

    fn settlement(self, claim: &Claim) -> Settlement {
        let ending = match self.outcome.status {
            200..400 => Ending::Succeeded(self.outcome),
            _ => Ending::FailedFinal(self.outcome),
        };
        claim.settle(ending, self.id.fence)
    }
}

/// The answer that a claim was completed with, for the handler to return.
///
/// What the client gets is what was committed, whatever is done to this on its way out. An answer
/// that was committed but not kept (too large, or [`NotKept`](super::NotKept)) is sent as it is.
///
/// In axum it is a response; elsewhere it becomes one:
///
/// ```
/// use onceward::{Body, server::Completed};
///
/// fn respond(completed: Completed) -> http::Response<Body> {
///     completed.into()
/// }
/// ```
#[must_use = "the handler returns it"]
#[derive(Debug)]
pub struct Completed {
    response: Response<Body>,
    is_first: bool,
}

impl Completed {
    /// Its status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Whether it is the answer of this very run. Always, but for a duplicate under
    /// [`Deferred::run_in`](super::Deferred::run_in), which gets an earlier answer or a refusal.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.is_first
    }

    pub(super) fn of_another(response: Response<Body>) -> Self {
        Self { response, is_first: false }
    }
}

impl From<Completed> for Response<Body> {
    fn from(completed: Completed) -> Self {
        completed.response
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Completed {
    fn into_response(self) -> axum::response::Response {
        self.response.map(axum::body::Body::new)
    }
}

/// What can be committed as an answer: an `http::Response`, and with feature `axum` everything that
/// a handler of axum can return.
///
/// ```
/// use onceward::{Body, server::IntoAnswer};
///
/// let answer = http::Response::new(Body::from("charged")).into_answer();
/// assert_eq!(answer.status(), 200);
/// ```
pub trait IntoAnswer {
    /// The answer's body.
    type Body: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;

    /// The HTTP answer.
    fn into_answer(self) -> Response<Self::Body>;
}

#[cfg(feature = "axum")]
impl<A: axum::response::IntoResponse> IntoAnswer for A {
    type Body = axum::body::Body;

    fn into_answer(self) -> Response<Self::Body> {
        self.into_response()
    }
}

#[cfg(not(feature = "axum"))]
impl<B> IntoAnswer for Response<B>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Body = B;

    fn into_answer(self) -> Self {
        self
    }
}

/// The refusal that a handler returns after this; the layer looks at the record all the same.
impl From<CommitError> for Problem {
    fn from(error: CommitError) -> Self {
        tracing::warn!(event = event::NOT_COMMITTED, %error, "an operation did not end in its transaction");
        match error {
            CommitError::LeaseLost => settle::lease_lost(),
            CommitError::Doubtful(_) => not_durable_yet(),
            CommitError::NotOpen => {
                let text = "the service went on after its transaction was over, and Onceward cannot know \
                            what it wrote since then; ask with the same key, never with a new one";
                Self::new(Code::OutcomeUnknown, text).status(StatusCode::GATEWAY_TIMEOUT)
            }
            CommitError::NotCommitted(StoreError::Unusable(_))
            | CommitError::Twice
            | CommitError::Savepoint
            | CommitError::WrongStore => {
                let text = "the service ends its operations in a wrong way, and its log says which; ask \
                            with the same key, never with a new one";
                Self::new(Code::Misconfigured, text)
            }
            CommitError::NotCommitted(_) | CommitError::AnswerBroke => {
                let text = "nothing was committed; send the same request with the same key";
                Self::new(Code::NotCommitted, text)
                    .status(StatusCode::SERVICE_UNAVAILABLE)
                    .retry_after(Duration::from_secs(1))
            }
        }
    }
}

/// In the extensions of a refusal that the library itself made: what it means for the operation,
/// if the record is still open. Its status is no answer of the service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused(pub(super) Meaning);

impl From<CommitError> for Response<Body> {
    fn from(error: CommitError) -> Self {
        let meaning = match error {
            CommitError::NotOpen => Meaning::Unknown,
            _ => Meaning::FailedRetryable,
        };
        let problem = Problem::from(error);
        let mut response = problem.clone().into_response();
        response.extensions_mut().insert(problem);
        response.extensions_mut().insert(Refused(meaning));
        response
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for CommitError {
    fn into_response(self) -> axum::response::Response {
        Response::<Body>::from(self).map(axum::body::Body::new)
    }
}
