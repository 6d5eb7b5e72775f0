//! Rules 23 and 24: who may see a replay, problem documents, and the claim as an extractor.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use axum::{Router, body::Body, routing::any};
use http::{Request, request::Parts};
use onceward::{
    Effect, Execution, Profile, Scope, Store as _,
    protocol::{Fence, Found, Record},
    server::{Claim, Code, Errors, IdempotencyBuilder, Problem},
    store::Change,
};

use crate::{
    fixture::{
        Fixture, HOUR, KEY, SECOND, answering, ask, get, operation_of, payment, preferring, start,
        text, told, with,
    },
    server_support::{Gate, Pieces, broken, post, send},
};

/// A layer that asks before each replay whether the caller may still see it.
fn revocable(asked: &Arc<AtomicUsize>) -> impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder {
    let asked = asked.clone();
    move |options| {
        options.authorize_replay(move |request: &Parts| {
            asked.fetch_add(1, Ordering::SeqCst);
            let revoked = request.headers.contains_key("x-revoked");
            async move { !revoked }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn rule_23_a_replay_is_authorised_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let (fixture, gate) = (Fixture::new(revocable(&asked)), Gate::closed());
    let app = fixture.gated(&gate);
    let running = start(&app, payment());
    gate.reached().await;
    let waiter = start(&app, preferring("wait=5"));
    let revoked_waiter = start(&app, with(preferring("wait=5"), "x-revoked", b"1"));
    crate::fixture::settle_down().await;
    assert_eq!(asked.load(Ordering::SeqCst), 0, "there is nothing to see yet");
    gate.open();
    assert_eq!(told(&running.await.unwrap()), "201 receipt 1");
    assert_eq!(told(&waiter.await.unwrap()), "201 receipt 1 replayed");
    let refused = revoked_waiter.await.unwrap();
    assert_eq!(told(&refused), "403 replay-forbidden");
    assert_eq!(asked.load(Ordering::SeqCst), 2, "the first answer is the runner's own");
    let revoked = with(payment(), "x-revoked", b"1");
    let refused = send(&app, revoked).await;
    assert_eq!(told(&refused), "403 replay-forbidden");
    assert!(!refused.text().contains("receipt"));
    assert_eq!(ask(&app, payment()).await, "201 receipt 1 replayed", "the record is untouched");
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test]
async fn rule_23_where_a_result_is_is_told_only_to_those_who_may_see_it() {
    let fixture = Fixture::new(|options| revocable(&Arc::default())(options).max_inline(1));
    let app = fixture.app(answering(&fixture.ledger, |_| {
        let mut answer = text(201, "large");
        answer.headers_mut().insert("location", "/payments/7".parse().unwrap());
        answer
    }));
    send(&app, payment()).await;
    let refused = send(&app, with(payment(), "x-revoked", b"1")).await;
    assert_eq!(
        (told(&refused).as_str(), refused.header("location")),
        ("403 replay-forbidden", None)
    );
    assert_eq!(ask(&app, payment()).await, "409 result-unavailable");
}

#[tokio::test]
async fn rule_23_what_stands_outside_of_the_layer_never_binds_a_key() {
    let fixture = Fixture::new(|options| options);
    let gate = async |request: axum::extract::Request, next: axum::middleware::Next| match request
        .headers()
        .contains_key("x-signed-in")
    {
        true => next.run(request).await,
        false => text(401, "sign in"),
    };
    let app = fixture.paying().layer(axum::middleware::from_fn(gate));
    let signed_in = || with(payment(), "x-signed-in", b"1");
    assert_eq!(ask(&app, payment()).await, "401 sign in");
    assert_eq!(ask(&app, signed_in()).await, "201 receipt 1");
    assert_eq!(ask(&app, payment()).await, "401 sign in", "a replay passes the same gate");
    assert_eq!(ask(&app, signed_in()).await, "201 receipt 1 replayed");
}

/// `told` checks every member of every problem against the contract; here each of them is provoked.
#[tokio::test(start_paused = true)]
async fn rule_24_every_refusal_is_a_whole_problem_document() {
    let mut codes = BTreeSet::new();
    let mut refused = |told: String| {
        codes.insert(told.split_once(' ').unwrap().1.to_owned());
        told
    };
    let keyless = || Request::post("/pay").body(Body::empty()).unwrap();

    let fixture = Fixture::new(|options| options.require_key().max_request(16).max_inline(8));
    let app = fixture.paying();
    assert_eq!(refused(ask(&app, keyless()).await), "400 key-missing");
    assert_eq!(refused(ask(&app, post("/pay", "a,b", "")).await), "400 key-invalid");
    assert_eq!(refused(ask(&app, with(payment(), "x-caller", b"")).await), "401 scope-missing");
    assert_eq!(refused(ask(&app, post("/pay", KEY, [0; 17].to_vec())).await), "413 body-too-large");
    let cut = post("/pay", KEY, Body::new(Pieces::of(["a"]).then(broken())));
    let cut = send(&app, cut).await;
    assert_eq!(refused(told(&cut)), "400 request-malformed");
    assert!(!cut.text().contains("again"), "it is not retryable, and says nothing else: {cut:?}");
    assert_eq!(ask(&app, post("/pay", KEY, "a")).await, "201 receipt 1");
    assert_eq!(refused(ask(&app, post("/pay", KEY, "b")).await), "422 key-reused");
    assert_eq!(refused(ask(&app, post("/pay", KEY, "a")).await), "409 result-unavailable");
    let nothing = get(&format!("/.onceward/operations/{}", "A".repeat(43)));
    assert_eq!(refused(ask(&app, nothing).await), "404 operation-not-found");
    fixture.idempotency.engine().drain(SECOND).await;
    assert_eq!(refused(ask(&app, post("/pay", "new", "")).await), "503 overloaded");

    let revocable = |options| revocable(&Arc::default())(options);
    let fixture = Fixture::new(|options| revocable(options).refuse_stale_keys().max_open(1));
    let gate = Gate::closed();
    let app = fixture.gated(&gate);
    let stale = "00000000-0000-7000-8000-000000000000";
    assert_eq!(refused(ask(&app, post("/pay", stale, "")).await), "400 key-expired");
    let running = start(&app, payment());
    gate.reached().await;
    assert_eq!(refused(ask(&app, payment()).await), "409 in-progress");
    assert_eq!(refused(ask(&app, post("/pay", "new", "")).await), "429 too-many-open");
    gate.open();
    running.await.unwrap();
    let revoked = with(payment(), "x-revoked", b"1");
    assert_eq!(refused(ask(&app, revoked).await), "403 replay-forbidden");

    for (effect, first, retry) in [
        (Effect::External, "504 outcome-unknown", "409 outcome-unknown"),
        (Effect::Repeatable { within: HOUR }, "502 upstream-failed", "502 upstream-failed"),
    ] {
        let fixture = Fixture::new(|options| options.effect(effect));
        let app = fixture.app(answering(&fixture.ledger, |_| {
            text(200, Body::new(Pieces::of(["a"]).then(broken())))
        }));
        assert_eq!(refused(ask(&app, payment()).await), first);
        assert_eq!(refused(ask(&app, payment()).await), retry);
    }
    let fixture = Fixture::new(|options| options.effect(Effect::Transactional));
    assert_eq!(refused(ask(&fixture.paying(), payment()).await), "500 not-committed");
    assert_eq!(refused(lease_lost().await), "409 lease-lost");
    let app = Router::new().route("/pay", any(async |_: Claim| "claimed"));
    assert_eq!(refused(ask(&app, payment()).await), "500 misconfigured");
    let store = Arc::new(crate::server_support::store());
    let idempotency = crate::server_support::layer(store.clone()).build().unwrap();
    let app = Router::new().route("/pay", any(async || "")).layer(idempotency);
    store.set_down(true);
    assert_eq!(refused(ask(&app, payment()).await), "503 store-unavailable");
    let fixture = Fixture::new(|options| options);
    let app = fixture.paying();
    assert_eq!(ask(&app, payment()).await, "201 receipt 1");
    fixture.clock.jump_micros(48 * 3600 * 1_000_000);
    assert_eq!(refused(ask(&app, payment()).await), "503 clock-suspect");

    // What a proxy behind the layer says.
    let unreachable =
        async || Problem::new(Code::UpstreamUnreachable, "nothing was sent; try again later");
    let app = Router::new().route("/pay", any(unreachable));
    assert_eq!(refused(ask(&app, payment()).await), "502 upstream-unreachable");
    for (code, expected) in [
        (Code::RetryBudgetExhausted, "429 retry-budget-exhausted"),
        (Code::DeadlineExceeded, "504 deadline-exceeded"),
        (Code::RouteMissing, "404 route-missing"),
    ] {
        let refusal = async move || Problem::new(code, "nothing was sent; try again later");
        let app = Router::new().route("/pay", any(refusal));
        assert_eq!(refused(ask(&app, payment()).await), expected);
    }

    let all: BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str().to_owned()).collect();
    assert_eq!(codes, all, "each was provoked");
}

/// Another execution takes over while the handler runs.
async fn lease_lost() -> String {
    let fixture = Fixture::new(|options| options);
    let store = fixture.store.clone();
    let app = fixture.app(any(async move |claim: Claim| {
        let (expected, change) = (Some(claim.fence()), claim.renew());
        let (fence, execution) = (Fence::from_random([7; 16]), Execution::from_bytes([7; 16]));
        let next = Record { fence, execution, ..change.next };
        store.swap(&Change { expected, next, ..change }).await.unwrap();
        text(201, "never seen")
    }));
    let reply = send(&app, payment()).await;
    assert_eq!(reply.header("retry-after"), Some("1"));
    let stored = fixture.record(&reply).await;
    assert_eq!(stored.record.fence, Fence::from_random([7; 16]), "the other's record is untouched");
    told(&reply)
}

#[tokio::test]
async fn rule_24_refusals_before_an_operation_is_known_name_none() {
    let fixture = Fixture::new(IdempotencyBuilder::require_key);
    let app = fixture.paying();
    for request in [
        Request::post("/pay").body(Body::empty()).unwrap(),
        post("/pay", "a,b", ""),
        with(payment(), "x-caller", b""),
    ] {
        let reply = send(&app, request).await;
        assert!(reply.status.is_client_error());
        assert_eq!((operation_of(&reply), reply.json().get("operation")), (None, None));
    }
}

#[tokio::test]
async fn rule_24_extractors_and_status_routes_refuse_as_their_layer_does() {
    let fixture = Fixture::new(|options| options.errors(Errors::Stripe));
    let needing = fixture.app(any(async |claim: Claim| claim.attempt().to_string()));
    let keyless = Request::post("/pay").body(Body::from("{}")).unwrap();
    for (request, status, code) in [
        (keyless, 400, "key-missing"),
        (get("/.onceward/operations?operation=POST%20%2Fpay&key=none"), 404, "operation-not-found"),
        (get("/.onceward/operations?operation=pay"), 400, "request-malformed"),
        (get("/.onceward/operations/none"), 404, "operation-not-found"),
    ] {
        let reply = send(&needing, request).await;
        let code_of = reply.json()["error"]["code"].clone();
        assert_eq!((reply.status.as_u16(), code_of), (status, code.into()), "{reply:?}");
    }
    let deferring = Fixture::new(|options| options.errors(Errors::Stripe));
    let wrong = deferring.app(any(async |_: onceward::server::Deferred| ""));
    let reply = send(&wrong, payment()).await;
    assert_eq!(reply.json()["error"]["code"], "misconfigured", "{reply:?}");
}

type Claims = Arc<Mutex<Vec<Option<Claim>>>>;

#[tokio::test]
async fn rule_24_the_claim_extractors_say_what_is_wrong() {
    let keyless = || Request::post("/pay").body(Body::from("{}")).unwrap();
    let fixture = Fixture::new(|options| options);
    let needing = fixture.app(any(async |claim: Claim| claim.attempt().to_string()));
    assert_eq!(ask(&needing, payment()).await, "200 1");
    assert_eq!(ask(&needing, keyless()).await, "400 key-missing");
    assert_eq!(ask(&needing, get("/pay")).await, "400 key-missing", "a GET is not covered");

    let optional = fixture.app(any(async |claim: Option<Claim>| claim.is_some().to_string()));
    assert_eq!(ask(&optional, post("/pay", "new", "")).await, "200 true");
    assert_eq!(ask(&optional, keyless()).await, "200 false");

    let needing = Router::new().route("/pay", any(async |_: Claim| ""));
    let optional = Router::new().route("/pay", any(async |_: Option<Claim>| ""));
    for bare in [needing, optional] {
        for request in [payment(), keyless()] {
            let reply = send(&bare, request).await;
            assert_eq!(told(&reply), "500 misconfigured");
            assert!(reply.text().contains(".layer(idempotency)"), "{}", reply.text());
        }
    }
}

/// The service under two layers, by mistake.
fn doubly_layered(fixture: &Fixture) -> Router {
    fixture.paying().layer(fixture.idempotency.clone())
}

#[tokio::test]
async fn rule_24_two_layers_around_one_route_are_refused() {
    let fixture = Fixture::new(|options| options);
    let app = doubly_layered(&fixture);
    let reply = send(&app, payment()).await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (500, "misconfigured"));
    assert!(reply.text().contains("two idempotency layers"), "{}", reply.text());
    assert_eq!(fixture.ledger.len(), 0);
    let keyless = Request::post("/pay").body(Body::empty()).unwrap();
    assert_eq!(ask(&app, keyless).await, "201 receipt 1", "without a key both let it pass");
}

/// Nothing was run, and a refusal of our own is nobody's answer: a retry after the repair runs.
#[tokio::test]
async fn rule_24_a_refusal_of_our_own_is_never_kept() {
    let fixture = Fixture::new(|options| options);
    assert_eq!(send(&doubly_layered(&fixture), payment()).await.code(), "misconfigured");
    let repaired = send(&fixture.paying(), payment()).await;
    assert_eq!((repaired.status.as_u16(), repaired.is_replay()), (201, false));
}

#[tokio::test]
async fn rule_24_a_claim_gives_keys_that_are_stable_over_attempts() {
    let fixture = Fixture::new(|options| options.effect(Effect::Repeatable { within: HOUR }));
    let claims = Claims::default();
    let claiming = claims.clone();
    let app = fixture.app(any(async move |claim: Claim| {
        claiming.lock().unwrap().push(Some(claim));
        text(500, "")
    }));
    send(&app, payment()).await;
    send(&app, payment()).await;
    send(&app, with(payment(), "x-caller", b"ada")).await;
    let claims: Vec<_> = claims.lock().unwrap().iter().flatten().cloned().collect();
    let [first, second, other] = &claims[..] else { panic!("three runs") };
    assert_eq!((first.attempt(), second.attempt(), other.attempt()), (1, 2, 1));
    assert_ne!(first.execution(), second.execution());
    assert_eq!(first.id(), second.id());
    assert_eq!(first.key_for("card.charge"), second.key_for("card.charge"));
    let mut keys = BTreeSet::new();
    for claim in [first, other] {
        keys.extend(["card.charge", "mail.send", ""].map(|effect| claim.key_for(effect)));
    }
    assert_eq!(keys.len(), 6, "each effect of each operation has its own");
    assert!(first.time_left() > 500 * SECOND && !first.is_lost());
}

#[tokio::test]
async fn what_would_run_is_turned_away_unclaimed_and_a_replay_is_not() {
    let is_down = Arc::new(AtomicBool::new(false));
    let down = is_down.clone();
    let fixture = Fixture::new(|options| {
        options.reject(move |_| {
            let text = "the ledger is down; try again later";
            down.load(Ordering::Relaxed).then(|| Problem::new(Code::Overloaded, text))
        })
    });
    let app = fixture.paying();
    assert_eq!(ask(&app, payment()).await, "201 receipt 1");
    is_down.store(true, Ordering::Relaxed);
    assert_eq!(ask(&app, payment()).await, "201 receipt 1 replayed");
    let refused = send(&app, post("/pay", "new", "")).await;
    assert_eq!(told(&refused), "503 overloaded");
    let id = refused.header("onceward-operation").unwrap().parse().unwrap();
    assert_eq!(fixture.store.get(&id).await.unwrap(), Found::Nothing, "nothing was claimed");
    is_down.store(false, Ordering::Relaxed);
    assert_eq!(ask(&app, post("/pay", "new", "")).await, "201 receipt 2");
}

/// The SDKs look for `error`; without it they take a refusal for a success.
#[tokio::test(start_paused = true)]
async fn rule_24_refusals_may_have_stripes_shape() {
    type Choose = fn(IdempotencyBuilder) -> IdempotencyBuilder;
    let choices: [(Choose, u16); 3] = [
        (|options| options.profile(Profile::Stripe), 400),
        (|options| options.errors(Errors::Stripe), 400),
        (|options| options.errors(Errors::Stripe).mismatch_status(422), 422),
    ];
    for (choose, mismatch) in choices {
        let (fixture, gate) =
            (Fixture::new(|options| choose(options).require_key()), Gate::closed());
        let app = fixture.gated(&gate);
        let running = start(&app, payment());
        gate.reached().await;
        let keyless = Request::post("/pay").body(Body::empty()).unwrap();
        for (request, status, code, retry) in [
            (payment(), 409, "idempotency_key_in_use", "true"),
            (post("/pay", KEY, "{}"), mismatch, "key-reused", "false"),
            (keyless, 400, "key-missing", "false"),
        ] {
            let reply = send(&app, request).await;
            let error = &reply.json()["error"];
            assert_eq!((reply.status.as_u16(), error["code"].as_str()), (status, Some(code)));
            assert_eq!(error["type"], "idempotency_error", "{error}");
            assert!(error["message"].as_str().unwrap().len() > 20, "{error}");
            assert!(error["doc_url"].as_str().unwrap().starts_with("https://"), "{error}");
            assert_eq!(reply.header("content-type"), Some("application/json"));
            assert_eq!(reply.header("stripe-should-retry"), Some(retry), "{code}");
        }
        gate.open();
        assert_eq!(running.await.unwrap().status, 201);
        assert_eq!(fixture.ledger.len(), 1);
    }
}

#[tokio::test]
async fn rule_24_a_401_says_how_to_sign_in_and_why_if_that_is_chosen() {
    const SHOP: &str = "Cookie realm=\"shop\"";
    for (challenge, is_told) in [("Bearer", false), (SHOP, true)] {
        let nobody = |_: &Parts| Err::<Scope, _>("the session of user 7 has ended");
        let fixture = Fixture::new(|options| match is_told {
            true => options.scope(nobody).tell_scope_errors().challenge(SHOP),
            false => options.scope(nobody),
        });
        let app = fixture.paying();
        let status = get(&format!("/.onceward/operations/{}", "A".repeat(43)));
        for request in [payment(), status] {
            let reply = send(&app, request).await;
            assert_eq!(told(&reply), "401 scope-missing");
            assert_eq!(reply.header("www-authenticate"), Some(challenge));
            assert_eq!(reply.text().contains("user 7"), is_told, "{}", reply.text());
        }
    }
    let wrong =
        Fixture::new(|options| options).idempotency.with(|options| options.challenge("a\nb"));
    assert!(wrong.unwrap_err().to_string().contains("`challenge`"));
}

/// The layer writes the refusal of a service inside of it, as long as it is not kept.
#[tokio::test]
async fn rule_24_a_refusal_from_inside_names_the_operation() {
    for (code, is_named) in [(Code::Overloaded, true), (Code::KeyInvalid, false)] {
        let fixture = Fixture::new(|options| options);
        let app = fixture.app(answering(&fixture.ledger, move |_| {
            let problem = Problem::new(code, "the ledger behind this service is away for a while");
            let mut response = problem.clone().into_response().map(Body::new);
            response.extensions_mut().insert(problem);
            response
        }));
        let reply = send(&app, payment()).await;
        let operation = reply.json()["operation"].as_str().map(str::to_owned);
        assert_eq!(operation.is_some(), is_named, "{code:?}: what is kept is sent as it is kept");
        if is_named {
            assert_eq!(operation.as_deref(), operation_of(&reply));
        }
    }
}
