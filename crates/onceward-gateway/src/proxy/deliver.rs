//! One call to the upstream, over all its attempts. What to do after each says the core's [`decide`];
//! what is here sends, waits, and keeps what the caller gets in the end.

use std::{pin::pin, sync::Arc, time::Duration};

use http::{HeaderValue, Request, Response, request::Parts};
use hyper::body::Incoming;
use onceward::{
    Cause,
    retry::{Action, Call, Class, Go, Priority, Rules, Share, Stop, Why, decide},
    server::{Body, Code, Errors, Problem},
    telemetry::{self, GivenUp, Hedged, Sending, TurnedAway, UpstreamFailure},
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    answers::{Answer, Answers},
    forward::refusal,
    judge::{Judged, Stakes},
    parcel::Parcel,
    room::{Flight, Inside, Room, Rooms},
    shares::Holder,
    upstream::{Failure, Lane, Line, Pending, Upstream},
    wishes::{ATTEMPT, Wishes},
};
use crate::{
    config::{Delivery, Fallback, RetryRule},
    identity::Origin,
};

/// How the requests of one route are sent on; clones are the same.
#[derive(Clone)]
pub(crate) struct Way {
    pub(super) upstream: Upstream,
    pub(super) timeout: Duration,
    pub(super) fallback: Option<Arc<Fallback>>,
    pub(super) priority: Priority,
    pub(super) room: Arc<Room>,
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
    pub(super) flight: Option<Flight>,
    pub(super) answer: Answer,
    pub(super) class: Class,
    /// Why an earlier attempt may have been carried out.
    pub(super) doubt: Option<Cause>,
}

/// There is no answer.
pub(super) enum Undelivered {
    /// Nothing was sent, for this reason; perhaps it is better after that time.
    TurnedAway(TurnedAway, Option<Duration>),
    Failed(Failure),
    /// What came of the last attempt proves nothing about an earlier one, which is in doubt for this cause.
    InDoubt(Failure, Cause),
    /// It is late, and still counts among the answers.
    Late(Pending, Answer),
}

/// What one attempt came to, with its place at the upstream.
type Attempted = (Result<Response<Incoming>, Failure>, Flight);

/// A call, and what the room still has to hear of it.
struct Trying<'a> {
    way: &'a Way,
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

impl Way {
    pub(super) fn new(
        upstream: &Upstream,
        rooms: &Rooms,
        of_route: OfRoute<'_>,
        delivery: &Delivery,
    ) -> Result<Self, super::Failure> {
        let OfRoute { label, timeout, peer_share, errors } = of_route;
        let rules = delivery.rules(timeout)?;
        let (room, route) = rooms.of(upstream.address(), label, delivery);
        room.fit(&rules);
        Ok(Self {
            upstream: upstream.clone(),
            timeout,
            fallback: delivery.fallback.clone().map(Arc::new),
            priority: delivery.priority,
            room,
            answers: rooms.answers.clone(),
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
    pub(super) fn turns_away(&self, parts: &Parts) -> Option<Problem> {
        let wishes = parts.extensions.get::<Wishes>();
        let why = match wishes.is_some_and(Wishes::is_over) {
            true => Some(TurnedAway::Deadline),
            false => self.is_shut(origin(&parts.extensions)),
        };
        why.map(|why| refusal(why, None))
    }

    /// Counts what was turned away so.
    pub(super) fn count_turned_away(&self, code: Code, origin: Origin) {
        let why = match code {
            Code::DeadlineExceeded => Some(TurnedAway::Deadline),
            Code::Overloaded => self.is_shut(origin),
            _ => None,
        };
        if let Some(why) = why {
            self.room.enter().counts.turned_away += 1;
            telemetry::TURNED_AWAY.add(why);
        }
    }

    /// Why a request with its body would not be let through now.
    fn is_shut(&self, origin: Origin) -> Option<TurnedAway> {
        let holder = self.holder(origin, false);
        self.room.is_shut(&holder).or_else(|| self.answers.is_shut(&holder))
    }

    fn holder(&self, origin: Origin, is_arriving: bool) -> Holder {
        let (peer_share, is_unmatched) = (self.peer_share, self.is_unmatched);
        Holder { origin, peer_share, is_unmatched, is_arriving }
    }

    fn call(&self, stakes: &Stakes, parcel: &Parcel, wishes: &Wishes) -> Call {
        let now = self.room.now();
        let call = Call::new(&self.rules, stakes.method(), now);
        let call = call.route(self.route).priority(wishes.priority(self.priority));
        let call = if stakes.is_repeatable() { call.keyed() } else { call };
        let call = if wishes.is_retry() { call.nested() } else { call };
        let call = if parcel.is_kept() { call } else { call.body_gone() };
        // Nothing is begun when its client or its claim has no time left.
        let bounds = [wishes.left(), stakes.time_left()];
        bounds.into_iter().flatten().fold(call, |call, left| call.within(left, now))
    }

    /// Sends it, again where that is safe and worth it.
    pub(super) async fn deliver(
        &self,
        mut parcel: Parcel,
        stakes: &Stakes,
        wishes: &Wishes,
    ) -> Result<Delivered, Undelivered> {
        let call = self.call(stakes, &parcel, wishes);
        let until = Instant::now() + self.timeout;
        let holder = self.holder(parcel.origin(), parcel.is_arriving());
        let mut trying = Trying { way: self, call, phase: Phase::Idle, holder };
        let (go, flight) = trying.begin_first(stakes.is_retry(wishes))?;
        let mut next = (go, flight);
        let mut doubt: Option<(Failure, Cause)> = None;
        loop {
            let (go, flight) = next;
            let patience = stakes.patience(go.timeout, self.rules.attempt_timeout(), until);
            let attempt = Attempt { stakes, wishes, patience, hedge_after: go.hedge_after };
            let (result, flight) = trying.attempt(&mut parcel, &attempt, flight).await;
            let may_wait = doubt.is_some() && trying.call.attempts() < self.rules.attempts();
            let (judged, answer) =
                (stakes.judge(&result, &self.rules, may_wait), flight.answer.clone());
            let is_of_client = match &result {
                Err(Failure::TimedOut(_)) => {
                    let is_hurried = patience < self.rules.attempt_timeout() && wishes.is_over();
                    (stakes.is_safe() && is_hurried) || parcel.kept_waiting(patience)
                }
                result => is_of_client(result),
            };
            if is_of_client {
                trying.abandon();
                return ended(result, (Some(flight), answer), judged, doubt);
            }
            // Or with a small limit a retry would stand in its own way.
            let flight = judged.is_good().then_some(flight);
            let Some(wait) = trying.decide(judged) else {
                return ended(result, (flight, answer), judged, doubt);
            };
            drop(flight);
            sleep(wait).await;
            // It may have been taken over, or this process may have been stopped for a while.
            if stakes.time_left().is_some_and(|left| left.is_zero()) {
                return ended(result, (None, answer), judged, doubt);
            }
            match trying.begin(answer.clone()) {
                Ok(begun) => next = begun,
                Err(_) => return ended(result, (None, answer), judged, doubt),
            }
            if doubt.is_none() && self.leaves_doubt(&result, judged) {
                doubt = Some(in_doubt(result, patience));
            }
        }
    }
}

impl Way {
    /// Whether an attempt that is made again may have been carried out. An upstream that answers with a
    /// client error has not done it; of two requests at once it may so refuse one because of the other.
    fn leaves_doubt(&self, result: &Result<Response<Incoming>, Failure>, judged: Judged) -> bool {
        let is_refused = matches!(result, Ok(response) if response.status().is_client_error());
        let is_unsent = matches!(judged.seen.class, Class::NeverSent { .. });
        !is_unsent && (!is_refused || self.hedges)
    }
}

/// Where a request comes from; it was found out before its layer saw it.
pub(super) fn origin(extensions: &http::Extensions) -> Origin {
    extensions.get().copied().unwrap_or(Origin { address: None, connection: None })
}

/// Whether the request could not be sent, or its client broke off: that says nothing about the upstream.
fn is_of_client(result: &Result<Response<Incoming>, Failure>) -> bool {
    matches!(result, Err(Failure::NotSent(UpstreamFailure::Malformed, _) | Failure::BrokenOff(_)))
}

/// An attempt after which another one is made. Also a server that answers with an error may have done it.
fn in_doubt(result: Result<Response<Incoming>, Failure>, patience: Duration) -> (Failure, Cause) {
    match result {
        Ok(response) => {
            let reason = "an earlier attempt was answered with an error".to_owned();
            (Failure::MaybeSent(reason), Cause::Answered(response.status().as_u16()))
        }
        Err(failure @ Failure::TimedOut(_)) => {
            (failure, Cause::NoAnswer { within: patience, awaited_until: None })
        }
        Err(failure) => (failure, Cause::ConnectionLost),
    }
}

/// What the caller gets: a failure that proves nothing counts more than a later one that does.
fn ended(
    result: Result<Response<Incoming>, Failure>,
    (flight, answer): (Option<Flight>, Answer),
    judged: Judged,
    doubt: Option<(Failure, Cause)>,
) -> Result<Delivered, Undelivered> {
    match (result, doubt) {
        (Ok(response), doubt) => {
            let doubt = doubt.map(|(_, cause)| cause);
            Ok(Delivered { response, flight, answer, class: judged.seen.class, doubt })
        }
        (Err(Failure::TimedOut(Some(pending))), _) => Err(Undelivered::Late(pending, answer)),
        (Err(Failure::NotSent(..)), Some((failure, cause))) => {
            Err(Undelivered::InDoubt(failure, cause))
        }
        (Err(failure), _) => Err(Undelivered::Failed(failure)),
    }
}

/// One attempt, as it is to be made.
struct Attempt<'a> {
    stakes: &'a Stakes,
    wishes: &'a Wishes,
    patience: Duration,
    hedge_after: Option<Duration>,
}

impl Trying<'_> {
    /// The first attempt: also the client's own retries are counted here.
    fn begin_first(&mut self, is_retry: bool) -> Result<(Go, Flight), Undelivered> {
        let now = self.way.room.now();
        let mut inside = self.way.room.enter();
        if !inside.admits(self.way.route, self.way.share, is_retry, now) {
            return Err(not_begun(&mut inside, TurnedAway::RetryShare, None));
        }
        if !inside.has_share(&self.holder) {
            return Err(not_begun(&mut inside, TurnedAway::Share, None));
        }
        let taken = self.way.answers.take(self.holder);
        let answer = taken.map_err(|why| not_begun(&mut inside, why, None))?;
        let begun = inside.context(&self.way.rules, &mut self.call).begin(now, fastrand::u64(..));
        match begun {
            Ok(go) => {
                inside.counts.attempts += 1;
                let flight = self.way.room.flight(&mut inside, self.holder, answer);
                drop(inside);
                self.started(Sending::First);
                Ok((go, flight))
            }
            Err(stop) => Err(not_begun(&mut inside, turned_away(stop), self.call.hint())),
        }
    }

    /// Another attempt, after its wait; its answer is one with that of the one before.
    fn begin(&mut self, answer: Answer) -> Result<(Go, Flight), Stop> {
        let now = self.way.room.now();
        let mut inside = self.way.room.enter();
        let begun = inside.context(&self.way.rules, &mut self.call).begin(now, fastrand::u64(..));
        match begun {
            Ok(go) => {
                inside.counts.attempts += 1;
                inside.counts.retries += 1;
                let flight = self.way.room.flight(&mut inside, self.holder, answer);
                drop(inside);
                self.started(Sending::Retry);
                Ok((go, flight))
            }
            Err(stop) => {
                drop(inside);
                self.phase = Phase::Idle;
                telemetry::UPSTREAM_GIVEN_UP.add(given_up(stop.why()));
                Err(stop)
            }
        }
    }

    fn started(&mut self, kind: Sending) {
        self.phase = Phase::Running;
        telemetry::UPSTREAM_ATTEMPTS.add(kind);
    }

    /// How long to wait before the next attempt; `None`: there is none.
    fn decide(&mut self, judged: Judged) -> Option<Duration> {
        if judged.is_last {
            self.call = self.call.clone().last();
        }
        let (room, random) = (&self.way.room, fastrand::u64(..));
        let now = room.now();
        let mut inside = room.enter();
        let mut context = inside.context(&self.way.rules, &mut self.call);
        let action = decide(&mut context, judged.seen, now, random);
        drop(inside);
        self.phase = Phase::Idle;
        match action {
            Action::Attempt { wait } => {
                self.phase = Phase::Waiting;
                Some(wait)
            }
            Action::Stop(stop) if judged.seen.class.is_failure() => {
                telemetry::UPSTREAM_GIVEN_UP.add(given_up(stop.why()));
                None
            }
            _ => None,
        }
    }

    /// One attempt, and perhaps a second one beside it.
    async fn attempt(
        &mut self,
        parcel: &mut Parcel,
        attempt: &Attempt<'_>,
        flight: Flight,
    ) -> Attempted {
        let Some(after) = attempt.hedge_after.filter(|_| self.way.hedges && parcel.is_kept())
        else {
            let request = self.pack(parcel, attempt, &flight.answer);
            let sent = self.way.upstream.send(attempt.stakes.lane(), request, attempt.patience);
            return (sent.await, flight);
        };
        // In a box: few are hedged, and the others shall not carry it along.
        Box::pin(self.attempt_or_hedge(parcel, attempt, flight, after)).await
    }

    async fn attempt_or_hedge(
        &mut self,
        parcel: &mut Parcel,
        attempt: &Attempt<'_>,
        flight: Flight,
        after: Duration,
    ) -> Attempted {
        let (way, stakes) = (self.way, attempt.stakes);
        let request = self.pack(parcel, attempt, &flight.answer);
        let mut first = pin!(way.upstream.send(stakes.lane(), request, attempt.patience));
        if let Ok(answer) = timeout(after, first.as_mut()).await {
            return (answer, flight);
        }
        let Some(second_flight) = self.hedge() else { return (first.await, flight) };
        let rest = Attempt { patience: attempt.patience.saturating_sub(after), ..*attempt };
        let request = self.pack(parcel, &rest, &second_flight.answer);
        let mut second = pin!(way.upstream.send(stakes.lane(), request, rest.patience));
        tokio::select! {
            answer = first.as_mut() => {
                if stakes.judge(&answer, &way.rules, false).is_good() {
                    telemetry::UPSTREAM_HEDGES.add(Hedged::Lost);
                    return (answer, flight);
                }
                // The second may still make it good.
                let other = second.await;
                match self.hedge_is_taken(stakes.judge(&other, &way.rules, false)) {
                    true => (other, second_flight),
                    false => (answer, flight),
                }
            }
            other = second.as_mut() => match self.hedge_is_taken(stakes.judge(&other, &way.rules, false)) {
                true => (other, second_flight),
                false => (first.await, flight),
            },
        }
    }

    /// Leave for a second request beside the first.
    fn hedge(&mut self) -> Option<Flight> {
        let answer = self.way.answers.take(self.holder).ok()?;
        let now = self.way.room.now();
        let mut inside = self.way.room.enter();
        let may = inside.context(&self.way.rules, &mut self.call).hedge(now);
        may.then(|| {
            inside.counts.attempts += 1;
            inside.counts.hedges += 1;
            telemetry::UPSTREAM_ATTEMPTS.add(Sending::Hedge);
            self.way.room.flight(&mut inside, self.holder, answer)
        })
    }

    /// What the second request came to; one that failed changes nothing.
    fn hedge_is_taken(&mut self, judged: Judged) -> bool {
        let now = self.way.room.now();
        let mut inside = self.way.room.enter();
        let mut context = inside.context(&self.way.rules, &mut self.call);
        match judged.is_good() {
            true => context.hedge_won(),
            false => context.hedge_failed(judged.seen, now, fastrand::u64(..)),
        }
        drop(inside);
        let result = if judged.is_good() { Hedged::Won } else { Hedged::Failed };
        telemetry::UPSTREAM_HEDGES.add(result);
        judged.is_good()
    }

    /// The request of one attempt.
    fn pack(&self, parcel: &mut Parcel, attempt: &Attempt<'_>, answer: &Answer) -> Request<Body> {
        let mut request = parcel.request(answer);
        request.extensions_mut().insert(Line::of(answer.number()));
        let lines = request.headers_mut();
        attempt.wishes.tell(lines, attempt.patience, self.way.priority);
        // With a key it is the record's count, which is there already.
        if attempt.stakes.lane() == Lane::Other {
            let tries =
                attempt.wishes.attempt.saturating_add(self.call.attempts().saturating_sub(1));
            if attempt.wishes.counts || tries > 1 {
                lines.insert(ATTEMPT, HeaderValue::from(tries));
            }
        }
        request
    }

    fn abandon(&mut self) {
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        if phase == Phase::Idle {
            return;
        }
        let mut inside = self.way.room.enter();
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
fn not_begun(inside: &mut Inside, why: TurnedAway, hint: Option<Duration>) -> Undelivered {
    inside.counts.turned_away += 1;
    telemetry::TURNED_AWAY.add(why);
    Undelivered::TurnedAway(why, hint)
}

fn turned_away(stop: Stop) -> TurnedAway {
    match stop.why() {
        Why::Deadline => TurnedAway::Deadline,
        Why::Breaker => TurnedAway::Breaker,
        Why::Limit => TurnedAway::Limit,
        Why::Shed => TurnedAway::Shed,
        _ => TurnedAway::Other,
    }
}

fn given_up(why: Why) -> GivenUp {
    match why {
        Why::Answered => GivenUp::Answered,
        Why::Unsafe => GivenUp::Unsafe,
        Why::BodyGone => GivenUp::BodyGone,
        Why::Nested => GivenUp::Nested,
        Why::Attempts => GivenUp::Attempts,
        Why::Deadline => GivenUp::Deadline,
        Why::Budget => GivenUp::Budget,
        Why::Breaker => GivenUp::Breaker,
        Why::Shed => GivenUp::Shed,
        _ => GivenUp::Other,
    }
}
