//! One call to the upstream, over all its attempts. What to do after each says the core's [`decide`];
//! what is here sends, waits, and keeps what the caller gets in the end.

use std::{pin::pin, sync::Arc, time::Duration};

use http::{HeaderValue, Request, Response, request::Parts};
use hyper::body::Incoming;
use onceward::{
    Cause,
    retry::{Action, Call, Class, Permit, Priority, Rules, Share, Stop, StopReason, decide},
    server::{Body, Code, Errors, Problem},
    telemetry::{self, GivenUp, Hedged, RejectReason, Sending, UpstreamFailure},
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    answers::{Answer, Answers},
    classify::{Classified, RetrySafety},
    forward::refusal,
    hints::{ATTEMPT, RequestHints},
    replayable::ReplayableRequest,
    shares::Holder,
    state::{InFlightPermit, Inside, UpstreamState, UpstreamStates},
    upstream::{Lane, Line, Pending, SendFailure, Upstream},
};
use crate::{
    config::{Delivery, Fallback, RetryRule},
    identity::Origin,
};

/// How the requests of one route are sent on; clones are the same.
#[derive(Clone)]
pub(crate) struct UpstreamPolicy {
    pub(super) upstream: Upstream,
    pub(super) timeout: Duration,
    pub(super) fallback: Option<Arc<Fallback>>,
    pub(super) priority: Priority,
    pub(super) state: Arc<UpstreamState>,
    /// Those of all routes.
    answers: Answers,
    rules: Arc<Rules>,
    route: u32,
    share: Share,
    repeats: bool,
    hedges: bool,
    /// How many may be at the upstream was said for this route.
    pub(super) is_limited: bool,
    pub(super) is_unmatched: bool,
    /// The part of the places that one client may hold.
    peer_share: f64,
    /// How its refusals are written.
    pub(super) errors: Errors,
}

/// An answer's head; what comes behind it still flies.
pub(super) struct Delivered {
    pub(super) response: Response<Incoming>,
    /// `None`: it is a failure, and gave its place back so that another attempt could be made.
    pub(super) flight: Option<InFlightPermit>,
    pub(super) answer: Answer,
    pub(super) class: Class,
    /// Why an earlier attempt may have been carried out.
    pub(super) doubt: Option<Cause>,
}

/// There is no answer.
pub(super) enum Undelivered {
    /// Nothing was sent, for this reason; perhaps it is better after that time.
    RejectReason(RejectReason, Option<Duration>),
    Failed(SendFailure),
    /// What came of the last attempt proves nothing about an earlier one, which is in doubt for this cause.
    InDoubt(SendFailure, Cause),
    /// It is late, and still counts among the answers.
    Late(Pending, Answer),
}

/// What one attempt came to, with its place at the upstream.
type Attempted = (Result<Response<Incoming>, SendFailure>, InFlightPermit);

/// A call, and what the room still has to hear of it.
struct Trying<'a> {
    way: &'a UpstreamPolicy,
    call: Call,
    phase: Phase,
    holder: Holder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// An attempt has begun.
    Running,
    /// Another attempt is paid for.
    Waiting,
}

/// What a way is made of besides how its requests are delivered.
#[derive(Clone, Copy)]
pub(super) struct OfRoute<'a> {
    /// `None`: it is for requests that no route speaks of.
    pub(super) label: Option<&'a str>,
    pub(super) timeout: Duration,
    pub(super) peer_share: f64,
    pub(super) errors: Errors,
}

impl UpstreamPolicy {
    pub(super) fn new(
        upstream: &Upstream,
        upstream_states: &UpstreamStates,
        of_route: OfRoute<'_>,
        delivery: &Delivery,
    ) -> Result<Self, super::BoxError> {
        let OfRoute { label, timeout, peer_share, errors } = of_route;
        let rules = delivery.rules(timeout)?;
        let (state, route) = upstream_states.of(upstream.address(), label, delivery);
        state.fit(&rules);
        Ok(Self {
            upstream: upstream.clone(),
            timeout,
            fallback: delivery.fallback.clone().map(Arc::new),
            priority: delivery.priority,
            state,
            answers: upstream_states.answers.clone(),
            rules: Arc::new(rules),
            route,
            share: Share::of(delivery.retry_share),
            repeats: delivery.retry != RetryRule::Off,
            hedges: delivery.hedge,
            is_limited: delivery.limit.is_some(),
            is_unmatched: label.is_none(),
            peer_share,
            errors,
        })
    }

    /// Whether a request may be sent more than once, so that it has to be kept.
    pub(super) fn may_repeat(&self) -> bool {
        self.repeats || self.hedges
    }

    /// Why an operation with a key would not be run, before anything is written for it.
    pub(super) fn rejects(&self, parts: &Parts) -> Option<Problem> {
        let hints = parts.extensions.get::<RequestHints>();
        let reason = match hints.is_some_and(RequestHints::is_over) {
            true => Some(RejectReason::Deadline),
            false => self.is_shut(origin(&parts.extensions)),
        };
        reason.map(|reason| refusal(reason, None))
    }

    /// Counts what was turned away so.
    pub(super) fn count_turned_away(&self, code: Code, origin: Origin) {
        let reason = match code {
            Code::DeadlineExceeded => Some(RejectReason::Deadline),
            Code::Overloaded => self.is_shut(origin),
            _ => None,
        };
        if let Some(reason) = reason {
            self.state.enter().counts.rejected += 1;
            telemetry::REJECTED.add(reason);
        }
    }

    /// Why a request with its body would not be let through now.
    fn is_shut(&self, origin: Origin) -> Option<RejectReason> {
        let holder = self.holder(origin, false);
        self.state.is_shut(&holder).or_else(|| self.answers.is_shut(&holder))
    }

    fn holder(&self, origin: Origin, is_arriving: bool) -> Holder {
        let (peer_share, is_unmatched) = (self.peer_share, self.is_unmatched);
        Holder { origin, peer_share, is_unmatched, is_arriving }
    }

    fn call(
        &self,
        safety: &RetrySafety,
        replayable: &ReplayableRequest,
        hints: &RequestHints,
    ) -> Call {
        let now = self.state.now();
        let call = Call::new(&self.rules, safety.method(), now);
        let call = call.route(self.route).priority(hints.priority(self.priority));
        let call = if safety.is_repeatable() { call.keyed() } else { call };
        let call = if hints.is_retry() { call.nested() } else { call };
        let call = if replayable.is_kept() { call } else { call.body_gone() };
        // Nothing is begun when its client or its claim has no time left.
        let bounds = [hints.left(), safety.time_left()];
        bounds.into_iter().flatten().fold(call, |call, left| call.within(left, now))
    }

    /// Sends it, again where that is safe and worth it.
    pub(super) async fn deliver(
        &self,
        mut replayable: ReplayableRequest,
        safety: &RetrySafety,
        hints: &RequestHints,
    ) -> Result<Delivered, Undelivered> {
        let call = self.call(safety, &replayable, hints);
        let until = Instant::now() + self.timeout;
        let holder = self.holder(replayable.origin(), replayable.is_arriving());
        let mut trying = Trying { way: self, call, phase: Phase::Idle, holder };
        let (permit, flight) = trying.begin_first(safety.is_retry(hints))?;
        let mut next = (permit, flight);
        let mut doubt: Option<(SendFailure, Cause)> = None;
        loop {
            let (permit, flight) = next;
            let patience = safety.patience(permit.timeout, self.rules.attempt_timeout(), until);
            let attempt = Attempt { safety, hints, patience, hedge_after: permit.hedge_after };
            let (result, flight) = trying.attempt(&mut replayable, &attempt, flight).await;
            let may_wait = doubt.is_some() && trying.call.attempts() < self.rules.attempts();
            let (classified, answer) =
                (safety.classify(&result, &self.rules, may_wait), flight.answer.clone());
            let is_of_client = match &result {
                Err(SendFailure::TimedOut(_)) => {
                    let is_hurried = patience < self.rules.attempt_timeout() && hints.is_over();
                    (safety.is_safe() && is_hurried) || replayable.kept_waiting(patience)
                }
                result => is_of_client(result),
            };
            if is_of_client {
                trying.abandon();
                return ended(result, (Some(flight), answer), classified, doubt);
            }
            // Or with a small limit a retry would stand in its own way.
            let flight = classified.is_good().then_some(flight);
            let Some(wait) = trying.decide(classified) else {
                return ended(result, (flight, answer), classified, doubt);
            };
            drop(flight);
            sleep(wait).await;
            // It may have been taken over, or this process may have been stopped for a while.
            if safety.time_left().is_some_and(|left| left.is_zero()) {
                return ended(result, (None, answer), classified, doubt);
            }
            match trying.begin(answer.clone()) {
                Ok(begun) => next = begun,
                Err(_) => return ended(result, (None, answer), classified, doubt),
            }
            if doubt.is_none() && self.leaves_doubt(&result, classified) {
                doubt = Some(in_doubt(result, patience));
            }
        }
    }
}

impl UpstreamPolicy {
    /// Whether an attempt that is made again may have been carried out. An upstream that answers with a
    /// client error has not done it; of two requests at once it may so refuse one because of the other.
    fn leaves_doubt(
        &self,
        result: &Result<Response<Incoming>, SendFailure>,
        classified: Classified,
    ) -> bool {
        let is_refused = matches!(result, Ok(response) if response.status().is_client_error());
        let is_unsent = matches!(classified.observation.class, Class::NeverSent { .. });
        !is_unsent && (!is_refused || self.hedges)
    }
}

/// Where a request comes from; it was found out before its layer saw it.
pub(super) fn origin(extensions: &http::Extensions) -> Origin {
    extensions.get().copied().unwrap_or(Origin { address: None, connection: None })
}

/// Whether the request could not be sent, or its client broke off: that says nothing about the upstream.
fn is_of_client(result: &Result<Response<Incoming>, SendFailure>) -> bool {
    matches!(
        result,
        Err(SendFailure::NotSent(UpstreamFailure::Malformed, _) | SendFailure::BrokenOff(_))
    )
}

/// An attempt after which another one is made. Also a server that answers with an error may have done it.
fn in_doubt(
    result: Result<Response<Incoming>, SendFailure>,
    patience: Duration,
) -> (SendFailure, Cause) {
    match result {
        Ok(response) => {
            let reason = "an earlier attempt was answered with an error".to_owned();
            (SendFailure::MaybeSent(reason), Cause::Answered(response.status().as_u16()))
        }
        Err(failure @ SendFailure::TimedOut(_)) => {
            (failure, Cause::NoAnswer { within: patience, awaited_until: None })
        }
        Err(failure) => (failure, Cause::ConnectionLost),
    }
}

/// What the caller gets: a failure that proves nothing counts more than a later one that does.
fn ended(
    result: Result<Response<Incoming>, SendFailure>,
    (flight, answer): (Option<InFlightPermit>, Answer),
    classified: Classified,
    doubt: Option<(SendFailure, Cause)>,
) -> Result<Delivered, Undelivered> {
    match (result, doubt) {
        (Ok(response), doubt) => {
            let doubt = doubt.map(|(_, cause)| cause);
            Ok(Delivered { response, flight, answer, class: classified.observation.class, doubt })
        }
        (Err(SendFailure::TimedOut(Some(pending))), _) => Err(Undelivered::Late(pending, answer)),
        (Err(SendFailure::NotSent(..)), Some((failure, cause))) => {
            Err(Undelivered::InDoubt(failure, cause))
        }
        (Err(failure), _) => Err(Undelivered::Failed(failure)),
    }
}

/// One attempt, as it is to be made.
struct Attempt<'a> {
    safety: &'a RetrySafety,
    hints: &'a RequestHints,
    patience: Duration,
    hedge_after: Option<Duration>,
}

impl Trying<'_> {
    /// The first attempt: also the client's own retries are counted here.
    fn begin_first(&mut self, is_retry: bool) -> Result<(Permit, InFlightPermit), Undelivered> {
        let now = self.way.state.now();
        let mut inside = self.way.state.enter();
        if !inside.admits(self.way.route, self.way.share, is_retry, now) {
            return Err(not_begun(&mut inside, RejectReason::RetryShare, None));
        }
        if !inside.has_share(&self.holder) {
            return Err(not_begun(&mut inside, RejectReason::Share, None));
        }
        let taken = self.way.answers.take(self.holder);
        let answer = taken.map_err(|reason| not_begun(&mut inside, reason, None))?;
        let begun = inside.context(&self.way.rules, &mut self.call).begin(now, fastrand::u64(..));
        match begun {
            Ok(permit) => {
                inside.counts.attempts += 1;
                let flight = self.way.state.flight(&mut inside, self.holder, answer);
                drop(inside);
                self.started(Sending::First);
                Ok((permit, flight))
            }
            Err(stop) => Err(not_begun(&mut inside, rejected(stop), self.call.hint())),
        }
    }

    /// Another attempt, after its wait; its answer is one with that of the one before.
    fn begin(&mut self, answer: Answer) -> Result<(Permit, InFlightPermit), Stop> {
        let now = self.way.state.now();
        let mut inside = self.way.state.enter();
        let begun = inside.context(&self.way.rules, &mut self.call).begin(now, fastrand::u64(..));
        match begun {
            Ok(permit) => {
                inside.counts.attempts += 1;
                inside.counts.retries += 1;
                let flight = self.way.state.flight(&mut inside, self.holder, answer);
                drop(inside);
                self.started(Sending::Retry);
                Ok((permit, flight))
            }
            Err(stop) => {
                drop(inside);
                self.phase = Phase::Idle;
                telemetry::UPSTREAM_GIVEN_UP.add(given_up(stop.reason()));
                Err(stop)
            }
        }
    }

    fn started(&mut self, kind: Sending) {
        self.phase = Phase::Running;
        telemetry::UPSTREAM_ATTEMPTS.add(kind);
    }

    /// How long to wait before the next attempt; `None`: there is none.
    fn decide(&mut self, classified: Classified) -> Option<Duration> {
        if classified.is_last {
            self.call = self.call.clone().last();
        }
        let (state, random) = (&self.way.state, fastrand::u64(..));
        let now = state.now();
        let mut inside = state.enter();
        let mut context = inside.context(&self.way.rules, &mut self.call);
        let action = decide(&mut context, classified.observation, now, random);
        drop(inside);
        self.phase = Phase::Idle;
        match action {
            Action::Attempt { wait } => {
                self.phase = Phase::Waiting;
                Some(wait)
            }
            Action::Stop(stop) if classified.observation.class.is_failure() => {
                telemetry::UPSTREAM_GIVEN_UP.add(given_up(stop.reason()));
                None
            }
            _ => None,
        }
    }

    /// One attempt, and perhaps a second one beside it.
    async fn attempt(
        &mut self,
        replayable: &mut ReplayableRequest,
        attempt: &Attempt<'_>,
        flight: InFlightPermit,
    ) -> Attempted {
        let Some(after) = attempt.hedge_after.filter(|_| self.way.hedges && replayable.is_kept())
        else {
            let request = self.pack(replayable, attempt, &flight.answer);
            let sent = self.way.upstream.send(attempt.safety.lane(), request, attempt.patience);
            return (sent.await, flight);
        };
        // In a box: few are hedged, and the others shall not carry it along.
        Box::pin(self.attempt_or_hedge(replayable, attempt, flight, after)).await
    }

    async fn attempt_or_hedge(
        &mut self,
        replayable: &mut ReplayableRequest,
        attempt: &Attempt<'_>,
        flight: InFlightPermit,
        after: Duration,
    ) -> Attempted {
        let (way, safety) = (self.way, attempt.safety);
        let request = self.pack(replayable, attempt, &flight.answer);
        let mut first = pin!(way.upstream.send(safety.lane(), request, attempt.patience));
        if let Ok(answer) = timeout(after, first.as_mut()).await {
            return (answer, flight);
        }
        let Some(second_flight) = self.hedge() else { return (first.await, flight) };
        let rest = Attempt { patience: attempt.patience.saturating_sub(after), ..*attempt };
        let request = self.pack(replayable, &rest, &second_flight.answer);
        let mut second = pin!(way.upstream.send(safety.lane(), request, rest.patience));
        tokio::select! {
            answer = first.as_mut() => {
                if safety.classify(&answer, &way.rules, false).is_good() {
                    telemetry::UPSTREAM_HEDGES.add(Hedged::Lost);
                    return (answer, flight);
                }
                // The second may still make it good.
                let other = second.await;
                match self.hedge_is_taken(safety.classify(&other, &way.rules, false)) {
                    true => (other, second_flight),
                    false => (answer, flight),
                }
            }
            other = second.as_mut() => match self.hedge_is_taken(safety.classify(&other, &way.rules, false)) {
                true => (other, second_flight),
                false => (first.await, flight),
            },
        }
    }

    /// Leave for a second request beside the first.
    fn hedge(&mut self) -> Option<InFlightPermit> {
        let answer = self.way.answers.take(self.holder).ok()?;
        let now = self.way.state.now();
        let mut inside = self.way.state.enter();
        let may = inside.context(&self.way.rules, &mut self.call).hedge(now);
        may.then(|| {
            inside.counts.attempts += 1;
            inside.counts.hedges += 1;
            telemetry::UPSTREAM_ATTEMPTS.add(Sending::Hedge);
            self.way.state.flight(&mut inside, self.holder, answer)
        })
    }

    /// What the second request came to; one that failed changes nothing.
    fn hedge_is_taken(&mut self, classified: Classified) -> bool {
        let now = self.way.state.now();
        let mut inside = self.way.state.enter();
        let mut context = inside.context(&self.way.rules, &mut self.call);
        match classified.is_good() {
            true => context.hedge_won(),
            false => context.hedge_failed(classified.observation, now, fastrand::u64(..)),
        }
        drop(inside);
        let result = if classified.is_good() { Hedged::Won } else { Hedged::Failed };
        telemetry::UPSTREAM_HEDGES.add(result);
        classified.is_good()
    }

    /// The request of one attempt.
    fn pack(
        &self,
        replayable: &mut ReplayableRequest,
        attempt: &Attempt<'_>,
        answer: &Answer,
    ) -> Request<Body> {
        let mut request = replayable.request(answer);
        request.extensions_mut().insert(Line::of(answer.number()));
        let headers = request.headers_mut();
        attempt.hints.tell(headers, attempt.patience, self.way.priority);
        // With a key it is the record's count, which is there already.
        if attempt.safety.lane() == Lane::Other {
            let tries =
                attempt.hints.attempt.saturating_add(self.call.attempts().saturating_sub(1));
            if attempt.hints.counts || tries > 1 {
                headers.insert(ATTEMPT, HeaderValue::from(tries));
            }
        }
        request
    }

    fn abandon(&mut self) {
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        if phase == Phase::Idle {
            return;
        }
        let mut inside = self.way.state.enter();
        let mut context = inside.context(&self.way.rules, &mut self.call);
        match phase {
            Phase::Waiting => context.forgo(),
            Phase::Idle | Phase::Running => context.abandon(),
        }
    }
}

impl Drop for Trying<'_> {
    /// Its client is gone, or its claim: nobody will say how the attempt ended, or begin another one.
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Counts a request that is not sent.
fn not_begun(inside: &mut Inside, reason: RejectReason, hint: Option<Duration>) -> Undelivered {
    inside.counts.rejected += 1;
    telemetry::REJECTED.add(reason);
    Undelivered::RejectReason(reason, hint)
}

fn rejected(stop: Stop) -> RejectReason {
    match stop.reason() {
        StopReason::Deadline => RejectReason::Deadline,
        StopReason::Breaker => RejectReason::Breaker,
        StopReason::Limit => RejectReason::Limit,
        StopReason::Shed => RejectReason::Shed,
        _ => RejectReason::Other,
    }
}

fn given_up(reason: StopReason) -> GivenUp {
    match reason {
        StopReason::Answered => GivenUp::Answered,
        StopReason::Unsafe => GivenUp::Unsafe,
        StopReason::BodyGone => GivenUp::BodyGone,
        StopReason::Nested => GivenUp::Nested,
        StopReason::Attempts => GivenUp::Attempts,
        StopReason::Deadline => GivenUp::Deadline,
        StopReason::Budget => GivenUp::Budget,
        StopReason::Breaker => GivenUp::Breaker,
        StopReason::Shed => GivenUp::Shed,
        _ => GivenUp::Other,
    }
}
