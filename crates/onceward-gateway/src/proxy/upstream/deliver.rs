//! One request to the upstream, over all its attempts. The library's driver repeats and hedges; what is here
//! sends, and keeps what the caller gets in the end.

use std::{sync::Arc, time::Duration};

use http::{Extensions, HeaderValue, Request, Response, request::Parts};
use hyper::body::Incoming;
use onceward::{
    Body,
    client::driver::{self, Attempts, End, Ended, Environment as _, HedgeEnd, Launch, Sender},
    protocol::Cause,
    retry::{Call, Class, Priority, Rules, Share, Stop, StopReason},
    server::{Errors, Problem},
    telemetry::{RejectReason, SentAs},
};
use tokio::time::Instant;

use super::{
    Lane, Line, Pending, SendFailure, Upstream,
    answers::{Answer, Answers},
    classify::RetrySafety,
    refusal::refusal,
    replayable::ReplayableRequest,
    shares::{HeldShare, Holder},
    state::{InFlight, UpstreamState, UpstreamStates},
};
use crate::{
    config::{Delivery, Fallback, RetryRule},
    identity::Origin,
    observe::metrics::{self, Hedged, UpstreamFailure},
    proxy::hints::{ATTEMPT, RequestHints},
};

/// How the gateway sends the requests of one route on; clones are the same.
#[derive(Clone)]
pub(crate) struct UpstreamPolicy {
    pub(crate) upstream: Upstream,
    pub(crate) timeout: Duration,
    pub(crate) fallback: Option<Arc<Fallback>>,
    pub(crate) priority: Priority,
    pub(crate) state: Arc<UpstreamState>,
    /// Those of all routes.
    answers: Answers,
    rules: Arc<Rules>,
    route: u32,
    share: Share,
    repeats: bool,
    /// The route has a limit of its own for requests at the upstream.
    pub(crate) is_limited: bool,
    pub(crate) is_unmatched: bool,
    /// The part of the places that one client may hold.
    peer_share: f64,
    pub(crate) errors: Errors,
}

/// An answer's head; its body is still on its way.
pub(crate) struct Delivered {
    pub(crate) response: Response<Incoming>,
    /// `None`: it is a failure, and gave its place back so that another attempt could be made.
    pub(crate) in_flight: Option<InFlight>,
    pub(crate) answer: Answer,
    pub(crate) class: Class,
    /// Why an earlier attempt may have been carried out.
    pub(crate) doubt: Option<Cause>,
}

pub(crate) enum Undelivered {
    /// The gateway sent nothing, for this reason; a later request may find it better.
    Rejected(RejectReason, Option<Duration>),
    Failed(SendFailure),
    /// What came of the last attempt proves nothing about an earlier one, which is in doubt for this cause.
    InDoubt(SendFailure, Cause),
    /// It is late, and still counts among the answers.
    Late(Pending, Answer),
}

/// What a policy is made of besides its route's delivery.
#[derive(Clone, Copy)]
pub(crate) struct OfRoute<'a> {
    /// `None`: it is for requests that no route speaks of.
    pub(crate) label: Option<&'a str>,
    pub(crate) timeout: Duration,
    pub(crate) peer_share: f64,
    pub(crate) errors: Errors,
}

impl UpstreamPolicy {
    pub(crate) fn new(
        upstream: &Upstream,
        states: &UpstreamStates,
        of_route: OfRoute<'_>,
        delivery: &Delivery,
    ) -> Result<Self, crate::proxy::BoxError> {
        let OfRoute { label, timeout, peer_share, errors } = of_route;
        let rules = delivery.rules(timeout)?;
        let (state, route) = states.of(upstream.address(), label, delivery);
        // One call by these rules can use all its attempts.
        state.target.with(|target| target.fit(&rules));
        Ok(Self {
            upstream: upstream.clone(),
            timeout,
            fallback: delivery.fallback.clone().map(Arc::new),
            priority: delivery.priority,
            state,
            answers: states.answers.clone(),
            rules: Arc::new(rules),
            route,
            share: Share::of(delivery.retry_share),
            repeats: delivery.retry != RetryRule::Off,
            is_limited: delivery.limit.is_some(),
            is_unmatched: label.is_none(),
            peer_share,
            errors,
        })
    }

    /// Sends a request, again where that is safe and worth it.
    pub(crate) async fn deliver(
        &self,
        request: ReplayableRequest,
        safety: &RetrySafety,
        hints: &RequestHints,
    ) -> Result<Delivered, Undelivered> {
        let call = self.call(safety, &request, hints);
        let holder = self.holder(request.origin(), request.is_arriving());
        let (share, answer) = self
            .admit(holder, safety.is_retry(hints))
            .map_err(|reason| self.rejected(reason, None))?;
        let until = Instant::now() + self.timeout;
        let mut delivery = UpstreamRequest {
            policy: self,
            request,
            safety,
            hints,
            holder,
            places: Some((Some(share), answer)),
            until,
            attempt_until: until,
            doubt: None,
        };
        let mut attempts = Attempts::new(&*self.state, &self.rules, &self.state.target, call);
        let End { stop, last } = driver::drive(&mut attempts, &mut delivery).await;
        let Some(last) = last else {
            let reason = stop.map_or(RejectReason::Other, rejection);
            return Err(self.rejected(reason, attempts.call().hint()));
        };
        if let Some(stop) = stop.filter(|_| last.observation.class.is_failure()) {
            metrics::UPSTREAM_GIVEN_UP.add(stop.reason());
        }
        ended(last, delivery.doubt)
    }

    /// Whether a request may be sent more than once, so that it has to be kept.
    pub(crate) fn may_repeat(&self) -> bool {
        self.repeats || self.hedges()
    }

    fn hedges(&self) -> bool {
        self.rules.hedge().is_some()
    }

    /// Why an operation with a key would not be run, before anything is written for it.
    pub(crate) fn rejects(&self, parts: &Parts) -> Option<Problem> {
        let hints = parts.extensions.get::<RequestHints>();
        let reason = match hints.is_some_and(RequestHints::is_over) {
            true => Some(RejectReason::Deadline),
            false => self.is_shut(origin(&parts.extensions)),
        };
        reason.map(|reason| refusal(reason, None))
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

    /// Takes a request's places before it is sent, and counts the client's own retries.
    fn admit(&self, holder: Holder, is_retry: bool) -> Result<(HeldShare, Answer), RejectReason> {
        let share = self.state.admit(holder, (self.route, self.share), is_retry)?;
        Ok((share, self.answers.take(holder)?))
    }

    pub(crate) fn rejected(&self, reason: RejectReason, hint: Option<Duration>) -> Undelivered {
        self.state.counts.reject();
        metrics::REJECTED.add(reason);
        Undelivered::Rejected(reason, hint)
    }

    fn call(
        &self,
        safety: &RetrySafety,
        request: &ReplayableRequest,
        hints: &RequestHints,
    ) -> Call {
        let now = self.state.now();
        let call = Call::new(&self.rules, safety.method(), now);
        let call = call.route(self.route).priority(hints.priority(self.priority));
        let call = if safety.is_repeatable() { call.keyed() } else { call };
        let call = if hints.is_retry() { call.nested() } else { call };
        let call = if request.is_kept() { call } else { call.body_gone() };
        // Nothing is begun when its client or its claim has no time left.
        let bounds = [hints.left(), safety.time_left()];
        bounds.into_iter().flatten().fold(call, |call, left| call.within(left, now))
    }

    /// Whether an attempt that is made again may have been carried out. An upstream that answers with a
    /// client error has not done it; of two requests at once it may so refuse one because of the other.
    fn leaves_doubt(&self, ended: &Ended<Reply>) -> bool {
        let is_refused =
            matches!(&ended.reply.result, Ok(response) if response.status().is_client_error());
        let is_unsent = matches!(ended.observation.class, Class::NeverSent { .. });
        !is_unsent && (!is_refused || self.hedges())
    }
}

/// Where a request comes from: the gateway has noted it before the layer.
pub(crate) fn origin(extensions: &Extensions) -> Origin {
    extensions.get().copied().unwrap_or(Origin { address: None, connection: None })
}

struct Reply {
    result: Result<Response<Incoming>, SendFailure>,
    in_flight: Option<InFlight>,
    answer: Answer,
    patience: Duration,
}

/// A request to the upstream, as the driver sends it.
struct UpstreamRequest<'a> {
    policy: &'a UpstreamPolicy,
    request: ReplayableRequest,
    safety: &'a RetrySafety,
    hints: &'a RequestHints,
    holder: Holder,
    /// The places of the next request; a missing share is taken with the launch.
    places: Option<(Option<HeldShare>, Answer)>,
    /// When the last attempt has to be answered.
    until: Instant,
    /// When this attempt has to be answered.
    attempt_until: Instant,
    /// An earlier attempt that may have been carried out, and why.
    doubt: Option<(SendFailure, Cause)>,
}

impl UpstreamRequest<'_> {
    fn patience(&mut self, launch: &Launch) -> Duration {
        let now = Instant::now();
        if launch.sent_as != SentAs::Hedge {
            let whole = self.policy.rules.attempt_timeout();
            self.attempt_until = now + self.safety.patience(launch.timeout, whole, self.until);
        }
        self.attempt_until.saturating_duration_since(now)
    }

    fn pack(&mut self, launch: &Launch, answer: &Answer, patience: Duration) -> Request<Body> {
        let mut request = self.request.request(answer);
        request.extensions_mut().insert(Line::of(answer.number()));
        let headers = request.headers_mut();
        self.hints.tell(headers, patience, self.policy.priority);
        // With a key it is the record's count, which is there already.
        if self.safety.lane() == Lane::Other {
            let tries = self.hints.attempt.saturating_add(launch.number - 1);
            if self.hints.counts || tries > 1 {
                headers.insert(ATTEMPT, HeaderValue::from(tries));
            }
        }
        request
    }
}

impl<'a> Sender for UpstreamRequest<'a> {
    type Environment = UpstreamState;
    type Reply = Reply;

    fn launch(
        &mut self,
        launch: Launch,
        attempts: &Attempts<'_, UpstreamState>,
    ) -> impl Future<Output = Ended<Reply>> + Send + use<'a> {
        let (policy, safety) = (self.policy, self.safety);
        let (share, answer) =
            self.places.take().expect("a request has its places before it is sent");
        let share = share.unwrap_or_else(|| policy.state.shares.take(self.holder));
        let patience = self.patience(&launch);
        let request = self.pack(&launch, &answer, patience);
        policy.state.counts.sent(launch.sent_as);
        metrics::UPSTREAM_ATTEMPTS.add(launch.sent_as);
        let may_wait = self.doubt.is_some() && attempts.call().attempts() < policy.rules.attempts();
        // In a box: it is the largest part of a request, and would be moved again and again.
        let sending = Box::pin(policy.upstream.send(safety.lane(), request, patience));
        async move {
            let in_flight = InFlight::new(launch.permit, share);
            let result = sending.await;
            let classified = safety.classify(&result, &policy.rules, may_wait);
            // What failed leaves its place before the core looks how full it is.
            let in_flight = classified.is_good().then_some(in_flight);
            let reply = Reply { result, in_flight, answer, patience };
            let (observation, is_last) = (classified.observation, classified.is_last);
            Ended { reply, observation, at: policy.state.now(), is_last }
        }
    }

    fn may_hedge(&mut self) -> bool {
        self.places = self.policy.answers.take(self.holder).ok().map(|answer| (None, answer));
        self.places.is_some()
    }

    fn without_hedge(&mut self) {
        self.places = None;
    }

    fn hedged(&mut self, end: HedgeEnd<Reply>, _: &Attempts<'_, UpstreamState>) {
        metrics::UPSTREAM_HEDGES.add(match end {
            HedgeEnd::Lost => Hedged::Lost,
            HedgeEnd::Won(_) => Hedged::Won,
            HedgeEnd::Failed(_) => Hedged::Failed,
        });
    }

    /// Whether the request could not be sent, or its client broke off or is in a hurry.
    fn is_by_caller(&self, ended: &Ended<Reply>) -> bool {
        let patience = ended.reply.patience;
        match &ended.reply.result {
            Err(SendFailure::TimedOut(_)) => {
                let is_hurried =
                    patience < self.policy.rules.attempt_timeout() && self.hints.is_over();
                (self.safety.is_safe() && is_hurried) || self.request.kept_waiting(patience)
            }
            result => matches!(
                result,
                Err(SendFailure::NotSent(UpstreamFailure::Malformed, _) | SendFailure::BrokenOff(_))
            ),
        }
    }

    /// The client gets the upstream's own words if no other attempt is allowed.
    fn keep(&mut self, mut ended: Ended<Reply>) -> Option<Ended<Reply>> {
        // Or with a small limit a retry would stand in its own way, also one that waits for an owner.
        ended.reply.in_flight = None;
        // The next answer is one with this one.
        self.places = Some((None, ended.reply.answer.clone()));
        Some(ended)
    }

    /// The claim may have been taken over, or this process may have been stopped for a while.
    fn may_go_on(&mut self) -> bool {
        !self.safety.time_left().is_some_and(|left| left.is_zero())
    }

    fn again(&mut self, before: Ended<Reply>) {
        if self.doubt.is_none() && self.policy.leaves_doubt(&before) {
            self.doubt = Some(in_doubt(before.reply));
        }
    }
}

/// Why an attempt leaves doubt: also a server that answers with an error may have carried it out.
fn in_doubt(reply: Reply) -> (SendFailure, Cause) {
    match reply.result {
        Ok(response) => {
            let reason = "an earlier attempt was answered with an error".to_owned();
            (SendFailure::MaybeSent(reason), Cause::Answered(response.status().as_u16()))
        }
        Err(failure @ SendFailure::TimedOut(_)) => {
            (failure, Cause::NoAnswer { within: reply.patience, awaited_until: None })
        }
        Err(failure) => (failure, Cause::ConnectionLost),
    }
}

/// What the caller gets: a failure that proves nothing counts more than a later one that does.
fn ended(
    last: Ended<Reply>,
    doubt: Option<(SendFailure, Cause)>,
) -> Result<Delivered, Undelivered> {
    let (class, Reply { result, in_flight, answer, .. }) = (last.observation.class, last.reply);
    match (result, doubt) {
        (Ok(response), doubt) => {
            let doubt = doubt.map(|(_, cause)| cause);
            Ok(Delivered { response, in_flight, answer, class, doubt })
        }
        (Err(SendFailure::TimedOut(Some(pending))), _) => Err(Undelivered::Late(pending, answer)),
        (Err(SendFailure::NotSent(..)), Some((failure, cause))) => {
            Err(Undelivered::InDoubt(failure, cause))
        }
        (Err(failure), _) => Err(Undelivered::Failed(failure)),
    }
}

fn rejection(stop: Stop) -> RejectReason {
    match stop.reason() {
        StopReason::Deadline => RejectReason::Deadline,
        StopReason::Breaker => RejectReason::Breaker,
        StopReason::Limit => RejectReason::Limit,
        StopReason::Shed => RejectReason::Shed,
        _ => RejectReason::Other,
    }
}
