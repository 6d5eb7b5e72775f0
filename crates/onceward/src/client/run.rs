//! One call while it runs: how the client sends, and what its report will say.

use std::{mem, time::Duration};

use http::{Request, Response, StatusCode, request::Parts};
use onceward_core::retry::{Action, Call, Class, Method, Moment, Priority, Stop, StopReason};
use tokio::time::timeout;

use super::{
    Attempt, CallError, Event, Incoming, Report, Retry, Route, Within,
    adapters::exchange::{Exchange, Sent},
    attempt::{self, AttemptPlan, Replied},
    credentials,
    driver::{Attempts, End, Ended, Environment as _, HedgeEnd, Launch, ReplayableBody, Sender},
    follow, key,
};
use crate::{
    http::AttemptHeaders,
    telemetry::{self, CallEnd},
};

pub(super) struct Run<'a, X> {
    pub(super) retry: &'a Retry,
    pub(super) exchange: &'a mut X,
    pub(super) parts: Parts,
    body: ReplayableBody,
    method: Method,
    priority: Priority,
    start: Moment,
    pub(super) report: Report,
    kept: bool,
    /// It was written down before this call: then others may have sent it.
    resumed: bool,
}

impl<'a, X: Exchange> Run<'a, X> {
    pub(super) fn new(
        retry: &'a Retry,
        exchange: &'a mut X,
        (mut parts, body): (Parts, ReplayableBody),
        start: Moment,
    ) -> (Self, Call) {
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
        if !body.is_kept() {
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
        let (key, sent_once) = (key::own(&parts.headers), !body.is_kept());
        let report = Report { key, sent_once, ..Report::default() };
        let (kept, resumed) = (false, false);
        let run =
            Self { retry, exchange, parts, body, method, priority, start, report, kept, resumed };
        (run, call)
    }

    pub(super) async fn remember(
        &mut self,
        attempts: &mut Attempts<'_, Retry>,
    ) -> Result<(), CallError> {
        let Some(remember) = &self.retry.options().remember else { return Ok(()) };
        let refuse = |words: &str| Err(CallError::new(Report::default(), Some(words.into())));
        let (key, body) = match (&self.report.key, &self.body) {
            (Some(key), ReplayableBody::Whole(body, _)) => (key, body),
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
        let kept = timeout(attempts.remaining(), &mut keep).await;
        attempts.tick();
        match kept {
            Ok(Ok(new)) => {
                self.kept = true;
                self.resumed = !new;
                if !new {
                    // The earlier request may have happened, whatever the server answers now.
                    attempts.doubt();
                }
                Ok(())
            }
            Ok(Err(error)) => Err(CallError::new(Report::default(), Some(error))),
            Err(_) => {
                // The caller gets "nothing was sent": so nothing may be sent after a restart either.
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

    fn note(&mut self, attempt: Attempt, attempts: &Attempts<'_, Retry>) {
        if self.retry.is_observed() {
            let budget_left = budget_left(attempts);
            self.retry.tell(Event::Ended { attempt: &attempt, budget_left });
        }
        self.report.attempts.push(attempt);
    }

    /// The end: an answer with its report, or the report alone.
    pub(super) async fn finish(
        mut self,
        attempts: &Attempts<'_, Retry>,
        end: End<Replied<X::Body>>,
    ) -> Result<Response<super::AnswerBody<X::Body>>, CallError> {
        let (stop, reply) = (end.stop, end.last.map(|ended| ended.reply.answer));
        count(stop);
        let reached = reply.as_ref().and_then(|reply| reply.as_ref().ok()).map(Response::status);
        if self.kept && self.is_known(attempts, stop, reached) {
            Box::pin(self.forget(attempts)).await;
        }
        let mut report = mem::take(&mut self.report);
        let call = attempts.call();
        report.stop = stop;
        report.hint = call.hint();
        report.ambiguous = call.is_ambiguous();
        report.unprotected = call.is_unprotected();
        report.total = attempts.now().saturating_sub(self.start);
        if let Some(stop) = stop {
            self.retry.tell(Event::Stopped { stop });
            if let Some(mut instead) = self.instead(stop, &report) {
                report.fallback = true;
                instead.extensions_mut().insert(report);
                return Ok(instead.map(super::AnswerBody::from));
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

    /// Whether the caller does not have to ask again what became of it.
    fn is_known(
        &self,
        attempts: &Attempts<'_, Retry>,
        stop: Option<Stop>,
        reached: Option<StatusCode>,
    ) -> bool {
        // An operation that runs may be interrupted, and a redirect says that it is elsewhere.
        let accepted =
            self.report.attempts.last().is_some_and(|last| last.class == Class::Accepted);
        let moved = reached.is_some_and(|status| matches!(status.as_u16(), 301 | 302 | 307 | 308));
        match stop {
            None => !accepted && !moved,
            Some(Stop::Failed(reason)) => {
                reason.is_answer() || (attempts.sent() == 0 && !self.resumed)
            }
            // To send it again would be another run, so it is not kept for that.
            Some(Stop::Unknown(_)) => attempts.call().is_unprotected(),
        }
    }

    /// Removes what was written down; the caller does not wait for that beyond the deadline.
    async fn forget(&mut self, attempts: &Attempts<'_, Retry>) {
        let (Some(remember), Some(key)) = (&self.retry.options().remember, &self.report.key) else {
            return;
        };
        let forgotten = tokio::spawn(remember.forget(key, &self.parts));
        let _ = timeout(attempts.remaining(), forgotten).await;
    }

    fn instead(&self, stop: Stop, report: &Report) -> Option<Response<bytes::Bytes>> {
        let options = self.retry.options();
        let may = self.method == Method::Safe || options.fallback_for_writes;
        let fallback = options.fallback.as_ref().filter(|_| may && !stop.reason().is_answer())?;
        fallback(report)
    }
}

impl<'a, X: Exchange> Sender for Run<'a, X> {
    type Environment = Retry;
    type Reply = Replied<X::Body>;

    fn launch(
        &mut self,
        launch: Launch,
        _: &Attempts<'_, Retry>,
    ) -> impl Future<Output = Ended<Replied<X::Body>>> + Send + use<'a, X> {
        telemetry::CLIENT_ATTEMPTS.add(launch.sent_as);
        let mut parts = self.parts.clone();
        if self.retry.options().headers {
            let own = AttemptHeaders {
                attempt: Some(launch.number),
                time: Some(launch.timeout.max(Duration::from_millis(1))),
                priority: Some(self.priority),
            };
            own.write(&mut parts.headers);
        }
        let body = self.body.next_body().expect("a body that is gone is not sent again");
        let hedge = launch.sent_as == telemetry::SentAs::Hedge;
        let (attempt, timeout, key) = (launch.number, launch.timeout, self.report.key.as_ref());
        self.retry.tell(Event::Began { attempt, hedge, timeout, key });
        let sent = Sent::default();
        let started = launch.at.saturating_sub(self.start);
        let plan =
            AttemptPlan { launch, started, retry: self.retry.clone(), uri: parts.uri.clone() };
        let answer = self.exchange.send(Request::from_parts(parts, body), sent.clone());
        attempt::one(answer, sent, plan)
    }

    fn hedged(&mut self, end: HedgeEnd<Replied<X::Body>>, attempts: &Attempts<'_, Retry>) {
        if let HedgeEnd::Won(Some(failed)) | HedgeEnd::Failed(failed) = end {
            failed.reply.attempt.into_iter().for_each(|attempt| self.note(attempt, attempts));
        }
    }

    fn decided(
        &mut self,
        ended: &mut Ended<Replied<X::Body>>,
        action: Action,
        attempts: &Attempts<'_, Retry>,
    ) {
        let Some(mut attempt) = ended.reply.attempt.take() else { return };
        if let Action::Attempt { wait } = action {
            attempt.wait = Some(wait);
        }
        self.note(attempt, attempts);
    }

    fn waiting(&mut self, wait: Duration, attempts: &Attempts<'_, Retry>) {
        self.retry.tell(Event::Waiting { wait, budget_left: budget_left(attempts) });
    }

    /// An answer that the caller does not read would keep its connection from the next attempt. What is
    /// left is why there was none, for the case that no other attempt is allowed.
    fn keep(&mut self, ended: Ended<Replied<X::Body>>) -> Option<Ended<Replied<X::Body>>> {
        Some(ended).filter(|ended| ended.reply.answer.is_err())
    }

    async fn follow(
        &mut self,
        ended: &mut Ended<Replied<X::Body>>,
        attempts: &mut Attempts<'_, Retry>,
        wait: Duration,
    ) -> Action {
        let status = ended.reply.answer.as_ref().ok();
        let status = status.and_then(|reply| follow::location(reply.headers(), &self.parts.uri));
        let status = status.expect("an answer without a status URL is not followed");
        follow::until_ended(self, attempts, status, wait).await
    }

    /// Asks for new credentials, as long as there is time for another attempt.
    async fn refresh(&mut self, attempts: &mut Attempts<'_, Retry>) -> Result<(), Stop> {
        self.retry.tell(Event::Refreshing);
        let doubtful = attempts.call().is_ambiguous() && self.method != Method::Safe;
        let refused = if doubtful { Stop::Unknown } else { Stop::Failed };
        let Some(refresh) = &self.retry.options().refresh else {
            return Err(refused(StopReason::Unauthorised));
        };
        let refreshed = timeout(attempts.remaining(), refresh(self.parts.uri.clone())).await;
        attempts.tick();
        match refreshed {
            Ok(Ok(fresh)) => {
                credentials::replace(&mut self.parts.headers, fresh);
                Ok(())
            }
            Ok(Err(_)) => Err(refused(StopReason::Unauthorised)),
            Err(_) => Err(refused(StopReason::Deadline)),
        }
    }
}

fn count(stop: Option<Stop>) {
    telemetry::CLIENT_CALLS.add(match stop {
        None => CallEnd::Succeeded,
        Some(Stop::Failed(_)) => CallEnd::Failed,
        Some(Stop::Unknown(_)) => CallEnd::Unknown,
    });
    if let Some(stop) = stop {
        telemetry::CLIENT_STOPS.add(stop.reason());
    }
}

fn budget_left(attempts: &Attempts<'_, Retry>) -> Option<u32> {
    attempts.with_target(|target| target.budget_left())
}
