//! One call while it runs: what the decision is told, and what the report will say.

use std::{mem, sync::Arc, time::Duration};

use http::{Request, Response, request::Parts};
use onceward_core::retry::{
    self, Action, Call, Class, Context, Method, Moment, Observation, Permit, Priority, Stop,
    StopReason,
};
use tokio::time::{sleep, timeout};

use super::{
    AnswerBody, Attempt, BoxError, CallError, Event, Incoming, Report, Retry, Route, Within,
    answer::{self, About, Ended},
    body::Replay,
    credentials,
    exchange::{Exchange, Sent},
    key,
    target::TargetHandle,
};
use crate::{
    AttemptHeaders,
    telemetry::{self, ClientAttempt, ClientEnd, ClientStop},
};

pub(super) struct Run<'a> {
    pub(super) retry: &'a Retry,
    pub(super) parts: Parts,
    pub(super) method: Method,
    body: Replay,
    call: Call,
    target: Arc<TargetHandle>,
    priority: Priority,
    start: Moment,
    /// Read once after everything that takes time, and not at every step.
    now: Moment,
    report: Report,
    /// How many requests were sent, hedges included.
    sent: u32,
    /// An attempt was let go, and nobody was told yet how it ended.
    running: bool,
    /// Another attempt was decided on and perhaps paid for, and has not begun.
    decided: bool,
    /// It was written down before it was sent.
    kept: bool,
    /// It was written down before this call: then others may have sent it.
    resumed: bool,
}

impl<'a> Run<'a> {
    pub(super) fn new(retry: &'a Retry, mut parts: Parts, body: Replay, start: Moment) -> Self {
        let options = retry.options();
        let method = Method::of(parts.method.as_str());
        let incoming = parts.extensions.get::<Incoming>().copied().or(options.incoming);
        let own = parts.extensions.get::<Priority>().copied();
        let priority = own.or(incoming.and_then(|incoming| incoming.priority));
        let priority = priority.unwrap_or(options.priority);
        let mut call = Call::new(retry.rules(), method, start).priority(priority);
        if key::provide(&mut parts.headers, &parts.method, options.keys) {
            call = call.keyed();
        }
        if body.is_gone() {
            call = call.body_gone();
        }
        if options.refresh.is_some() {
            call = call.refreshable();
        }
        if let Some(Within(time)) = parts.extensions.get() {
            call = call.within(*time, start);
        }
        if let Some(Route(route)) = parts.extensions.get() {
            call = call.route(*route);
        }
        if let Some(incoming) = incoming {
            if incoming.attempt > 1 {
                call = call.nested();
            }
            if let Some(left) = incoming.remaining() {
                call = call.within(left, retry.now());
            }
        }
        let now = retry.now();
        let target = retry.known(&parts.uri, &parts.headers, now);
        let report =
            Report { key: key::own(&parts.headers), once: body.is_gone(), ..Report::default() };
        Self {
            retry,
            parts,
            method,
            body,
            call,
            target,
            priority,
            start,
            now,
            report,
            sent: 0,
            running: false,
            decided: false,
            kept: false,
            resumed: false,
        }
    }

    /// Persists the call, if somebody wants that, before anything is sent.
    pub(super) async fn remember(&mut self) -> Result<(), CallError> {
        let Some(remember) = &self.retry.options().remember else { return Ok(()) };
        let refuse = |words: &str| Err(CallError::new(Report::default(), Some(words.into())));
        let (key, body) = match (&self.report.key, &self.body) {
            (Some(key), Replay::Whole(body, _)) => (key, body),
            (Some(_), _) => {
                return refuse("its body is a stream or too long (`max_body`) to be written down");
            }
            (None, _) if self.method == Method::Other => {
                return refuse("only a call with a key can be written down and resumed");
            }
            (None, _) => return Ok(()),
        };
        let mut keep = remember.keep(key, &self.parts, body);
        let forget = remember.forget(key, &self.parts);
        let kept = timeout(self.call.remaining(self.now), &mut keep).await;
        self.tick();
        match kept {
            Ok(Ok(new)) => {
                self.kept = true;
                self.resumed = !new;
                if !new {
                    // What was sent before may have happened, whatever is answered now.
                    self.with(|context, _, _| context.doubt());
                }
                Ok(())
            }
            Ok(Err(error)) => Err(CallError::new(Report::default(), Some(error))),
            Err(_) => {
                // It is told that nothing was sent: then nothing may be sent after a restart either.
                tokio::spawn(async move {
                    if keep.await.is_ok_and(|new| new) {
                        forget.await;
                    }
                });
                let stop = Some(Stop::Failed(StopReason::Deadline));
                let key = self.report.key.clone();
                Err(CallError::new(Report { stop, key, ..Report::default() }, None))
            }
        }
    }

    /// Some time has passed.
    pub(super) fn tick(&mut self) {
        self.now = self.retry.now();
    }

    pub(super) fn remaining(&self) -> Duration {
        self.call.remaining(self.now)
    }

    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method fits one lifetime only"
    )]
    pub(super) fn begin(&mut self) -> Result<Permit, Stop> {
        self.decided = false;
        let permit = self.with(|context, now, random| context.begin(now, random))?;
        self.running = true;
        Ok(permit)
    }

    /// Sends the request once more.
    pub(super) fn launch<X: Exchange>(
        &mut self,
        exchange: &mut X,
        time: Duration,
        hedge: bool,
    ) -> impl Future<Output = Ended<X::Body>> + Send + use<X> {
        let flight = self.target.flight();
        self.sent += 1;
        telemetry::CLIENT_ATTEMPTS.add(match (hedge, self.sent) {
            (true, _) => ClientAttempt::Hedge,
            (false, 1) => ClientAttempt::First,
            (false, _) => ClientAttempt::Retry,
        });
        let mut parts = self.parts.clone();
        if self.retry.options().headers {
            let said = AttemptHeaders {
                attempt: Some(self.sent),
                time: Some(time.max(Duration::from_millis(1))),
                priority: Some(self.priority),
            };
            said.write(&mut parts.headers);
        }
        let body = self.body.next().expect("a body that is gone is not sent again");
        let about = About {
            number: self.sent,
            hedge,
            started: self.now.saturating_sub(self.start),
            begun: self.now,
            timeout: time,
            flight,
            retry: self.retry.clone(),
            uri: self.parts.uri.clone(),
        };
        let key = self.report.key();
        self.retry.tell(Event::Began { attempt: self.sent, hedge, timeout: time, key });
        let sent = Sent::default();
        let answer = exchange.send(Request::from_parts(parts, body), sent.clone());
        answer::one(answer, sent, about)
    }

    pub(super) fn may_hedge(&mut self) -> bool {
        self.tick();
        self.with(|context, now, _| context.hedge(now))
    }

    /// It may have been carried out by a request whose answer is not the one that is taken.
    pub(super) fn doubt(&mut self) {
        self.with(|context, _, _| context.doubt());
    }

    pub(super) fn hedge_won(&mut self) {
        self.with(|context, _, _| context.hedge_won());
    }

    /// One of two requests failed, and the other one goes on.
    pub(super) fn hedge_failed(&mut self, attempt: Attempt, observation: Observation) {
        self.tick();
        self.with(|context, now, random| context.hedge_failed(observation, now, random));
        self.note(attempt);
    }

    /// An attempt has ended: what to do now?
    pub(super) fn decide(
        &mut self,
        mut attempt: Attempt,
        observation: Observation,
        at: Moment,
    ) -> Action {
        self.running = false;
        self.now = self.now.max(at);
        let action = self.learn(observation);
        if let Action::Attempt { wait } = action {
            attempt.wait = Some(wait);
        }
        self.note(attempt);
        action
    }

    /// The status URL was asked.
    pub(super) fn polled(&mut self, observation: Observation) -> Action {
        self.tick();
        self.report.polls += 1;
        self.learn(observation)
    }

    fn learn(&mut self, observation: Observation) -> Action {
        let action =
            self.with(|context, now, random| retry::decide(context, observation, now, random));
        self.decided = matches!(action, Action::Attempt { .. });
        action
    }

    fn note(&mut self, attempt: Attempt) {
        if self.retry.is_observed() {
            let budget_left = self.budget_left();
            self.retry.tell(Event::Ended { attempt: &attempt, budget_left });
        }
        self.report.attempts.push(attempt);
    }

    pub(super) async fn wait(&mut self, wait: Duration) {
        self.retry.tell(Event::Waiting { wait, budget_left: self.budget_left() });
        if !wait.is_zero() {
            sleep(wait).await;
        }
        self.tick();
    }

    /// Asks for new credentials, as long as there is time for another attempt.
    pub(super) async fn refresh(&mut self) -> Result<(), Stop> {
        self.retry.tell(Event::Refreshing);
        let doubtful = self.call.is_ambiguous() && self.method != Method::Safe;
        let refused = if doubtful { Stop::Unknown } else { Stop::Failed };
        let Some(refresh) = &self.retry.options().refresh else {
            return Err(refused(StopReason::Unauthorised));
        };
        let refreshed = timeout(self.remaining(), refresh(self.parts.uri.clone())).await;
        self.tick();
        match refreshed {
            Ok(Ok(fresh)) => {
                credentials::replace(&mut self.parts.headers, fresh);
                Ok(())
            }
            Ok(Err(_)) => Err(refused(StopReason::Unauthorised)),
            Err(_) => Err(refused(StopReason::Deadline)),
        }
    }

    /// The end: an answer with its report, or the report alone.
    pub(super) async fn finish<B>(
        mut self,
        stop: Option<Stop>,
        reply: Option<Result<Response<AnswerBody<B>>, BoxError>>,
    ) -> Result<Response<AnswerBody<B>>, CallError> {
        self.count(stop);
        let reached = reply.as_ref().and_then(|reply| reply.as_ref().ok()).map(Response::status);
        if self.kept && self.is_known(stop, reached) {
            Box::pin(self.forget()).await;
        }
        let mut report = mem::take(&mut self.report);
        report.stop = stop;
        report.hint = self.call.hint();
        report.ambiguous = self.call.is_ambiguous();
        report.unprotected = self.call.is_unprotected();
        report.total = self.now.saturating_sub(self.start);
        if let Some(stop) = stop {
            self.retry.tell(Event::Stopped { stop });
            if let Some(mut instead) = self.instead(stop, &report) {
                report.fallback = true;
                instead.extensions_mut().insert(report);
                return Ok(instead.map(AnswerBody::from));
            }
        }
        match reply {
            Some(Ok(mut response)) => {
                response.extensions_mut().insert(report);
                Ok(response)
            }
            Some(Err(error)) => Err(CallError::new(report, Some(error))),
            None => Err(CallError::new(report, None)),
        }
    }

    /// Whether nobody has to ask again what became of it.
    fn is_known(&self, stop: Option<Stop>, reached: Option<http::StatusCode>) -> bool {
        // An operation that runs may be interrupted, and a redirect says that it is elsewhere.
        let accepted =
            self.report.attempts.last().is_some_and(|last| last.class == Class::Accepted);
        let moved = reached.is_some_and(|status| matches!(status.as_u16(), 301 | 302 | 307 | 308));
        match stop {
            None => !accepted && !moved,
            Some(Stop::Failed(reason)) => reason.is_answer() || (self.sent == 0 && !self.resumed),
            // To send it again would be another run, so it is not kept for that.
            Some(Stop::Unknown(_)) => self.call.is_unprotected(),
        }
    }

    /// Removes what was written down; nobody waits for that beyond the deadline.
    async fn forget(&mut self) {
        let (Some(remember), Some(key)) = (&self.retry.options().remember, &self.report.key) else {
            return;
        };
        let forgotten = tokio::spawn(remember.forget(key, &self.parts));
        let _ = timeout(self.remaining(), forgotten).await;
    }

    fn instead(&self, stop: Stop, report: &Report) -> Option<Response<bytes::Bytes>> {
        let options = self.retry.options();
        let may = self.method == Method::Safe || options.fallback_for_writes;
        let fallback = options.fallback.as_ref().filter(|_| may && !stop.reason().is_answer())?;
        fallback(report)
    }

    fn count(&self, stop: Option<Stop>) {
        telemetry::CLIENT_CALLS.add(match stop {
            None => ClientEnd::Succeeded,
            Some(Stop::Failed(_)) => ClientEnd::Failed,
            Some(Stop::Unknown(_)) => ClientEnd::Unknown,
        });
        if let Some(stop) = stop {
            telemetry::CLIENT_STOPS.add(ClientStop::of(stop.reason()));
        }
    }

    fn budget_left(&self) -> Option<u32> {
        self.target.with(|target| target.budget_left())
    }

    fn with<T>(&mut self, ask: impl FnOnce(&mut Context<'_>, Moment, u64) -> T) -> T {
        let (rules, call) = (self.retry.rules(), &mut self.call);
        let (now, random) = (self.now, self.retry.chance());
        self.target.with(|target| ask(&mut Context { rules, call, target }, now, random))
    }
}

impl Drop for Run<'_> {
    /// Nobody waits for the answer any more: what the attempt was given for trial is given back, and
    /// the price of one that was not made.
    fn drop(&mut self) {
        if mem::take(&mut self.running) {
            self.with(|context, _, _| context.abandon());
        } else if mem::take(&mut self.decided) {
            self.with(|context, _, _| context.forgo());
        }
    }
}
