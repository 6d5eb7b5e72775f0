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
use onceward_core::{BoxFuture, Found, OperationId, Replay, Request, Verdict};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};
use tracing::Instrument as _;

use super::{
    Body, Claim, Code, Completed, Idempotency, IntoAnswer, Problem, WholeBody, admit,
    capture::Captured,
    execute::{self, Served},
    fingerprint::Held,
    recall::{self, Recalled},
    respond, settle, unknown,
};
use crate::{CommitError, Transaction, open::Slot, telemetry::Answered};

/// A request that is not claimed yet: its handler does that in its own transaction.
///
/// In the extensions of requests to a layer that is
/// [`deferred`](super::IdempotencyBuilder::deferred), and an axum extractor. `Option<Deferred>` is
/// for routes where the key is optional.
#[derive(Clone)]
pub struct Deferred {
    inner: Arc<Inner>,
}

struct Inner {
    idempotency: Idempotency,
    request: Request,
    asked_at: Instant,
    fate: Mutex<Fate>,
}

/// How far it has come.
enum Fate {
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

impl Deferred {
    fn new(idempotency: &Idempotency, request: Request) -> Self {
        let (idempotency, asked_at) = (idempotency.clone(), Instant::now());
        let fate = Mutex::new(Fate::Open);
        Self { inner: Arc::new(Inner { idempotency, request, asked_at, fate }) }
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
            let Some((claim, _slot)) = self.claim_in(&mut transaction).await? else {
                drop(transaction);
                return Ok(self.recall().await);
            };
            let answer = effect(&mut transaction).await?.into_answer();
            Ok(claim.commit_answer(transaction, answer).await?)
        }
    }

    /// `None`: it has run before, or must not run; the transaction must be rolled back.
    async fn claim_in<T: Transaction>(
        &self,
        transaction: &mut T,
    ) -> Result<Option<(Claim, Slot)>, CommitError> {
        let Inner { idempotency, request, asked_at, .. } = &*self.inner;
        if !matches!(self.becomes(Fate::Asked), Fate::Open) {
            return Err(CommitError::Twice);
        }
        let patience = idempotency.options().deferred.unwrap_or_default();
        let verdict = idempotency.engine().admit_in(request.clone(), transaction, patience).await?;
        let fate = match verdict {
            Verdict::Run(claim) if admit::is_stale(idempotency, &claim) => {
                Fate::Refused(admit::key_expired())
            }
            Verdict::Run(claim) => match admit::slot(idempotency, claim.operation().scope()) {
                None => Fate::Refused(admit::too_many_open()),
                Some(slot) => {
                    let claim = Claim::new(idempotency.clone(), claim, *asked_at);
                    self.becomes(Fate::Run(claim.clone()));
                    return Ok(Some((claim, slot)));
                }
            },
            Verdict::Busy { retry_after } => {
                Fate::Refused(admit::in_progress().retry_after(retry_after))
            }
            Verdict::Mismatch => {
                Fate::Refused(admit::key_reused().status(idempotency.options().mismatch))
            }
            Verdict::Unknown(None) => Fate::Refused(admit::outcome_unknown()),
            // What was met is only a hint: it is read again when the transaction is over.
            Verdict::Replay(_) | Verdict::Unknown(Some(_)) => return Ok(None),
        };
        self.becomes(fate);
        Ok(None)
    }

    /// Reads what was met inside the transaction, by the store's own rules of when to believe it.
    async fn recall(&self) -> Completed {
        if matches!(*self.fate(), Fate::Asked) {
            let fate = match self.read().await {
                Ok(recalled) => Fate::Replay(Arc::new(recalled)),
                Err(problem) => Fate::Refused(problem),
            };
            self.becomes(fate);
        }
        let response = match &*self.fate() {
            Fate::Refused(problem) => problem.clone().of(self.operation().digest()).into_response(),
            Fate::Replay(recalled) => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = recalled.status;
                response
            }
            _ => settle::lease_lost().into_response(),
        };
        Completed::of_another(response)
    }

    async fn read(&self) -> Result<Recalled, Problem> {
        let Inner { idempotency, request, .. } = &*self.inner;
        let id = request.operation.digest();
        let Ok(found) = idempotency.engine().read(&id).await else {
            let text = "its answer cannot be read now; ask again with the same key";
            return Err(Problem::new(Code::StoreUnavailable, text).retry_after(SOON));
        };
        let Found::Record(stored) = found else {
            return Err(admit::in_progress().retry_after(SOON));
        };
        let replay = match Replay::of((*stored).clone()) {
            Some(replay) => replay,
            None => {
                let route = (idempotency, idempotency.options());
                let resolved = unknown::resolve(route, id, Some(&request.operation), &stored).await;
                return Err(match resolved {
                    true => admit::in_progress().retry_after(SOON),
                    false => admit::outcome_unknown(),
                });
            }
        };
        recall::recall(idempotency, id, replay).await
    }

    fn fate(&self) -> MutexGuard<'_, Fate> {
        self.inner.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives what it was before.
    fn becomes(&self, fate: Fate) -> Fate {
        mem::replace(&mut *self.fate(), fate)
    }
}

const SOON: Duration = Duration::from_secs(1);

/// Runs the handler, detached from its client, and tells what its transaction has become.
pub(super) async fn answer<S, B>(
    idempotency: &Idempotency,
    request: Request,
    mut parts: Parts,
    held: Held,
    service: S,
) -> Result<(Answered, Response<Body>), Problem>
where
    S: Served<B>,
    B: WholeBody,
{
    let tracked = idempotency.engine().enter().map_err(|error| admit::refused(&error))?;
    let until = Instant::now() + idempotency.options().terms.max_run();
    let deferred = Deferred::new(idempotency, request);
    let asked = parts.clone();
    parts.extensions.insert(deferred.clone());
    let (body, room) = held.open();
    let request = HttpRequest::from_parts(parts, body);
    let (client, running) = oneshot::channel();
    let idempotency = idempotency.clone();
    let execution = async move {
        let (mut client, mut room) = (Some(client), Some(room));
        let captured = {
            let run = Box::pin(execute::run(&idempotency, || true, service, request));
            let mut run = pin!(execute::no_answer_if_it_panics(run));
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
    /// What the client is told: by what was committed, whatever the handler says.
    async fn end(
        &self,
        captured: Captured,
        asked: &Parts,
    ) -> Result<(Answered, Response<Body>), Problem> {
        let (idempotency, id) = (&self.inner.idempotency, self.operation().digest());
        match self.becomes(Fate::Asked) {
            Fate::Run(claim) => {
                let answer = settle::settle_run_in(idempotency, &claim, captured).await?;
                Ok((Answered::First, answer))
            }
            Fate::Replay(recalled) => {
                let answer = respond::replay(idempotency, id, asked, &recalled).await?;
                Ok((Answered::Replayed, answer))
            }
            Fate::Refused(problem) => Err(problem),
            Fate::Open | Fate::Asked => Ok((Answered::First, settle::uncommitted(captured)?)),
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
