//! Claim, effect and end in one transaction of the handler's own: no claim is seen before it ends.

use std::{
    fmt,
    future::Future,
    mem,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{Request as HttpRequest, Response, request::Parts};
use onceward_core::{BoxFuture, OperationId, Replay, Request, Stored, Verdict};
use tokio::{sync::oneshot, time::timeout_at};
use tracing::Instrument as _;

use super::{
    admit,
    capture::Captured,
    execute::{self, Served},
    fingerprint::ReadRequest,
    recall::{self, Recalled},
    respond, settle, shed, unknown,
};
#[cfg(feature = "postgres")]
use crate::store::postgres::OwnTransaction;
use crate::{
    CommitError,
    engine::{Transaction, open::Slot},
    http::Incoming,
    server::{
        Body, Claim, Completed, Deadline, Idempotency, IntoAnswer, PeerMemory, Problem, WholeBody,
    },
    telemetry::Answered,
};

/// A request that is not claimed yet: its handler does that in its own transaction.
///
/// In the extensions of requests to a layer that is
/// [`deferred`](crate::server::IdempotencyBuilder::deferred), and an axum extractor. `Option<Deferred>` is
/// for routes where the key is optional.
///
/// ```
/// use onceward::server::Deferred;
///
/// /// A column with this, unique, makes your business row the source of truth.
/// fn names_it_for_ever(deferred: &Deferred) -> String {
///     deferred.operation().digest().to_string()
/// }
/// ```
#[derive(Clone)]
pub struct Deferred {
    inner: Arc<Inner>,
}

struct Inner {
    idempotency: Idempotency,
    request: Request,
    deadline: Deadline,
    memory: PeerMemory,
    incoming: Option<Incoming>,
    progress: Mutex<DeferredProgress>,
}

/// How far it has come.
enum DeferredProgress {
    /// The handler has not asked yet.
    Open,
    /// The handler has asked; or it has left before there was an answer.
    Asked,
    /// This request ran. Whether that was committed is in the record.
    Run(Claim),
    /// It did not run, because it has run before.
    Replay(Arc<Recalled>),
    /// It may not run.
    Refused(Problem),
}

/// Why a request does not run.
enum DeferredRefusal {
    Replay(Replay),
    Unknown(Box<Stored>),
    Refusal(Problem),
}

impl Deferred {
    fn new(idempotency: &Idempotency, request: Request, parts: &Parts) -> Self {
        let memory = idempotency.memory_for(parts);
        let deadline = Deadline::within(request.terms.max_run());
        let idempotency = idempotency.clone();
        let (incoming, progress) = (shed::incoming(parts), Mutex::new(DeferredProgress::Open));
        Self {
            inner: Arc::new(Inner { idempotency, request, deadline, memory, incoming, progress }),
        }
    }

    /// What is run.
    #[must_use]
    pub fn operation(&self) -> &OperationId {
        &self.inner.request.operation
    }

    /// Claims the operation inside this transaction, runs the effect in it, and commits both with
    /// the answer: the last thing that a handler does.
    ///
    #[cfg_attr(feature = "postgres", doc = "```")]
    #[cfg_attr(not(feature = "postgres"), doc = "```ignore")]
    /// use axum::http::StatusCode;
    /// use onceward::{CommitError, server::{Completed, Deferred}};
    /// use tokio_postgres::Client;
    ///
    /// async fn charge(shop: &mut Client, deferred: Deferred, cents: i32) -> Result<Completed, CommitError> {
    ///     let transaction = shop.transaction().await?;
    ///     let effect = deferred.run_in(transaction, |shop| Box::pin(async move {
    ///         shop.execute("INSERT INTO charge (cents) VALUES ($1)", &[&cents]).await?;
    ///         Ok((StatusCode::CREATED, format!("charged {cents}")))
    ///     }));
    ///     effect.await
    /// }
    /// ```
    ///
    /// A duplicate does not run the effect: it gets the answer of the first run, or a refusal, and its
    /// transaction is rolled back. Return what you get from this; see [`Completed::is_first`] for
    /// what else shall be done only once. If the effect gives an error, nothing is committed and the
    /// key is as free as before.
    #[expect(clippy::manual_async_fn, reason = "so that it says that it can be sent")]
    pub fn run_in<T, A, E>(
        &self,
        mut transaction: T,
        effect: impl for<'t> FnOnce(&'t mut T) -> BoxFuture<'t, Result<A, E>> + Send,
    ) -> impl Future<Output = Result<Completed, E>> + Send
    where
        T: Transaction,
        A: IntoAnswer,
        E: From<CommitError>,
    {
        async move {
            let (claim, _slot) = match self.claim_in(&mut transaction).await? {
                Ok(claimed) => claimed,
                Err(met) => {
                    drop(transaction);
                    return Ok(self.tell(met).await);
                }
            };
            let answer = effect(&mut transaction).await?.into_answer();
            Ok(claim.commit_answer(transaction, answer).await?)
        }
    }

    /// The same on a connection of tokio-postgres without a transaction: one is begun with the claim, in
    /// one round trip. The end and the commit are another one, so that it is three with one statement
    /// of your own.
    ///
    /// ```
    /// # use axum::http::StatusCode;
    /// # use onceward::{CommitError, server::{Completed, Deferred}};
    /// # use tokio_postgres::Client;
    /// async fn charge(shop: &mut Client, deferred: Deferred, cents: i32) -> Result<Completed, CommitError> {
    ///     let effect = deferred.run_on(shop, |shop| Box::pin(async move {
    ///         shop.execute("INSERT INTO charge (cents) VALUES ($1)", &[&cents]).await?;
    ///         Ok((StatusCode::CREATED, format!("charged {cents}")))
    ///     }));
    ///     effect.await
    /// }
    /// ```
    #[cfg(feature = "postgres")]
    pub fn run_on<'c, A, E>(
        &self,
        client: &'c mut tokio_postgres::Client,
        effect: impl for<'t> FnOnce(&'t mut OwnTransaction<'c>) -> BoxFuture<'t, Result<A, E>> + Send,
    ) -> impl Future<Output = Result<Completed, E>> + Send
    where
        A: IntoAnswer,
        E: From<CommitError>,
    {
        self.run_in(OwnTransaction::new(client), effect)
    }

    /// Inner `Err`: the operation has run before, or must not run; the caller rolls the transaction back.
    async fn claim_in<T: Transaction>(
        &self,
        transaction: &mut T,
    ) -> Result<Result<(Claim, Slot), DeferredRefusal>, CommitError> {
        let Inner { idempotency, request, deadline, memory, .. } = &*self.inner;
        if !self.is_asked_first() {
            return Err(CommitError::Twice);
        }
        let patience = idempotency.options().chosen.deferred.unwrap_or_default();
        let verdict = idempotency.engine().admit_in(request.clone(), transaction, patience).await?;
        Ok(Err(match verdict {
            Verdict::Run(claim) => match self.may_run(&claim) {
                Err(problem) => DeferredRefusal::Refusal(problem),
                Ok(slot) => {
                    let claim = Claim::new(idempotency.clone(), claim, (*deadline, memory.clone()));
                    self.becomes(DeferredProgress::Run(claim.clone()));
                    return Ok(Ok((claim, slot)));
                }
            },
            Verdict::Replay(replay) => DeferredRefusal::Replay(replay),
            Verdict::Busy { retry_after } => {
                DeferredRefusal::Refusal(admit::in_progress().retry_after(retry_after))
            }
            Verdict::Mismatch => {
                DeferredRefusal::Refusal(admit::key_reused().status(idempotency.options().mismatch))
            }
            Verdict::ClockSuspect => DeferredRefusal::Refusal(admit::clock_suspect()),
            Verdict::Unknown(None) => DeferredRefusal::Refusal(admit::outcome_unknown(None)),
            Verdict::Unknown(Some(stored)) => DeferredRefusal::Unknown(stored),
        }))
    }

    fn may_run(&self, claim: &onceward_core::Claim) -> Result<Slot, Problem> {
        let Inner { idempotency, incoming, .. } = &*self.inner;
        if admit::is_stale(idempotency, claim) {
            return Err(admit::key_expired());
        }
        idempotency.options().traffic.admit(*incoming, claim.is_repeat())?;
        admit::slot(idempotency, claim.operation().scope()).ok_or_else(admit::too_many_open)
    }

    /// What a duplicate gets, when its transaction is over.
    async fn tell(&self, met: DeferredRefusal) -> Completed {
        let Inner { idempotency, request, memory, .. } = &*self.inner;
        let id = request.operation.digest();
        let found = match met {
            DeferredRefusal::Refusal(problem) => Err(problem),
            DeferredRefusal::Replay(replay) => {
                recall::recall(idempotency, id, replay, memory.clone()).await
            }
            DeferredRefusal::Unknown(stored) => {
                let route = (idempotency, idempotency.options());
                match unknown::resolve(route, id, Some(&request.operation), &stored).await {
                    true => Err(admit::in_progress().retry_after(Duration::from_secs(1))),
                    false => Err(admit::outcome_unknown(Some(&stored))),
                }
            }
        };
        // The layer sends it whole, if this caller may see it; the handler need not.
        let response = match &found {
            Err(problem) => problem.clone().of(id).into_response(),
            Ok(recalled) => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = recalled.status;
                response
            }
        };
        self.becomes(match found {
            Ok(recalled) => DeferredProgress::Replay(Arc::new(recalled)),
            Err(problem) => DeferredProgress::Refused(problem),
        });
        Completed::of_another(response)
    }

    fn is_asked_first(&self) -> bool {
        let mut progress = self.progress();
        let is_first = matches!(*progress, DeferredProgress::Open);
        if is_first {
            *progress = DeferredProgress::Asked;
        }
        is_first
    }

    fn progress(&self) -> MutexGuard<'_, DeferredProgress> {
        self.inner.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives what it was before.
    fn becomes(&self, progress: DeferredProgress) -> DeferredProgress {
        mem::replace(&mut *self.progress(), progress)
    }
}

/// Runs the handler, detached from its client, and answers by what its transaction has become.
pub(crate) async fn answer<S, B>(
    idempotency: &Idempotency,
    request: Request,
    mut parts: Parts,
    held: ReadRequest,
    service: S,
) -> Result<(Answered, Response<Body>), Problem>
where
    S: Served<B>,
    B: WholeBody,
{
    let tracked = idempotency.engine().enter().map_err(|error| admit::refused(&error))?;
    let deferred = Deferred::new(idempotency, request, &parts);
    let until = deferred.inner.deadline.instant();
    let asked = parts.clone();
    parts.extensions.insert(deferred.clone());
    let (body, room) = held.open();
    let request = HttpRequest::from_parts(parts, body);
    let (client, running) = oneshot::channel();
    let (idempotency, memory) = (idempotency.clone(), deferred.inner.memory.clone());
    let execution = async move {
        let (mut client, mut room) = (Some(client), Some(room));
        let captured = {
            let run = execute::run((&idempotency, &memory), || true, service, request);
            let mut run = pin!(execute::no_answer_if_it_panics(Box::pin(run)));
            match timeout_at(until, run.as_mut()).await {
                Ok(captured) => captured,
                Err(_) => {
                    execute::tell(&mut client, Err(execute::overdue(&idempotency)));
                    drop(room.take());
                    run.await
                }
            }
        };
        drop(room);
        let answer = deferred.end(captured, &asked).await;
        drop(tracked);
        execute::tell(&mut client, answer);
    };
    tokio::spawn(execution.in_current_span());
    running.await.unwrap_or_else(|_| Err(respond::shutting_down()))
}

impl Deferred {
    /// What the client gets: by what was committed, whatever the handler returns.
    async fn end(
        &self,
        captured: Captured,
        asked: &Parts,
    ) -> Result<(Answered, Response<Body>), Problem> {
        let (idempotency, id) = (&self.inner.idempotency, self.operation().digest());
        match self.becomes(DeferredProgress::Asked) {
            DeferredProgress::Run(claim) => {
                let answer = settle::settle_run_in(idempotency, &claim, captured).await?;
                Ok((Answered::First, answer))
            }
            DeferredProgress::Replay(recalled) => {
                let answer = respond::replay(idempotency, id, asked, &recalled).await?;
                Ok((Answered::Replayed, answer))
            }
            DeferredProgress::Refused(problem) => Err(problem),
            DeferredProgress::Open | DeferredProgress::Asked => {
                Ok((Answered::First, settle::uncommitted(captured)?))
            }
        }
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Deferred")
            .field("operation", self.operation())
            .finish_non_exhaustive()
    }
}
