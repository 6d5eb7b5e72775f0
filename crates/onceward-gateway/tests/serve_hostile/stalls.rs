//! Clients of HTTP/2 that ask for answers and grant no window for them.

use std::{
    net::{IpAddr, SocketAddr},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use bytes::Bytes;
use h2::{
    RecvStream,
    client::{ResponseFuture, SendRequest},
};
use http::Request;
use tokio::{
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use crate::{
    gateway_support::{
        Call, Gateway, Plan, TEST_TIMEOUT, Upstream, Version, eventually, route_for,
    },
    large_upstream,
    shares::connect,
};

const ATTACKER: [u8; 4] = [127, 0, 0, 1];
const OTHER: [u8; 4] = [127, 0, 0, 2];

/// With a listener that tells figures, and with these options.
fn plan(upstream: &str, options: &str) -> Plan {
    let route = route_for("POST /pay", "scope = [\"global\"]\n");
    Plan::new(upstream, &format!("admin = \"127.0.0.1:0\"\n{options}\n{route}"))
}

/// Asks for so many answers, and takes none of them; says how many were refused.
async fn take_nothing(
    sender: &SendRequest<Bytes>,
    count: usize,
    path: &str,
) -> (Vec<RecvStream>, usize) {
    let (mut asked, mut held, mut refused) = (Vec::new(), Vec::new(), 0);
    for _ in 0..count {
        let mut sender = sender.clone().ready().await.unwrap();
        let request = Request::get(format!("http://gateway{path}")).body(()).unwrap();
        asked.push(sender.send_request(request, true).unwrap().0);
    }
    for answer in asked {
        let (head, body) = head_of(answer).await;
        refused += usize::from(head == 503);
        held.push(body);
    }
    (held, refused)
}

async fn head_of(answer: ResponseFuture) -> (u16, RecvStream) {
    let answer = timeout(TEST_TIMEOUT, answer).await.expect("no answer").unwrap();
    (answer.status().as_u16(), answer.into_body())
}

/// What others get meanwhile: with and without a key, soon.
async fn assert_served(gateway: &Gateway, from: [u8; 4]) {
    static KEYS: AtomicU32 = AtomicU32::new(0);
    let mut others = connect(gateway.address, from, 65_535).await;
    let pay = Call::post("/pay").key(&KEYS.fetch_add(1, Ordering::Relaxed).to_string());
    for call in [Call::new("GET", "/other"), pay, Call::post("/other")] {
        let request = call.request("http://gateway").map(|_| ());
        let (answer, _) = others.send_request(request, true).unwrap();
        let (status, mut body) = head_of(answer).await;
        let said = timeout(TEST_TIMEOUT, body.data()).await.expect("no answer");
        assert_eq!(status, 200, "{call:?}: {said:?}");
        others = others.ready().await.unwrap();
    }
}

/// Operators get in and see what happens.
async fn assert_watched(gateway: &Gateway) {
    for path in ["/ready", "/metrics", "/v1/operations"] {
        assert_eq!(gateway.ask(&Call::new("GET", path)).await.status, 200, "{path}");
    }
}

#[test]
fn answers_that_are_not_taken_hold_few_connections_and_not_for_long() {
    crate::run(async {
        let (upstream, load) = large_upstream::start(Version::Http1).await;
        let options = "client_timeout = \"3s\"\nmax_answers = 64";
        let gateway = plan(&format!("http://{upstream}"), options).start();
        let (mut held, mut refused) = (Vec::new(), 0);
        for window in [0, 0, 1, 1000] {
            let sender = connect(gateway.address, ATTACKER, window).await;
            let (streams, more) = take_nothing(&sender, 50, "/large").await;
            refused += more;
            held.push((sender, streams));
        }
        assert!(load.most() <= 16, "{} at once: one client has a quarter", load.most());
        assert!(refused > 100, "{refused} were refused");
        assert_served(&gateway, OTHER).await;
        assert_watched(&gateway).await;
        eventually("the upstream is left alone", || async { load.now() == 0 }).await;
        let reset = gateway.metric("onceward_gateway_streams_reset_total").await;
        assert!(reset >= 16, "{reset} streams were reset");
        assert_eq!(gateway.metric("onceward_gateway_upstream_answers").await, 0);
        // Their connections live, and serve who takes answers.
        for (sender, streams) in held {
            for mut stream in streams {
                while let Some(data) = timeout(TEST_TIMEOUT, stream.data()).await.expect("no end") {
                    if let Err(error) = data {
                        assert!(error.is_reset(), "{error}");
                        break;
                    }
                }
            }
            let mut sender = sender.ready().await.unwrap();
            let other = Request::get("http://gateway/other").body(()).unwrap();
            assert_eq!(head_of(sender.send_request(other, true).unwrap().0).await.0, 200);
        }
    });
}

#[test]
fn stored_answers_that_are_not_taken_are_freed_in_time() {
    crate::run(async {
        let upstream = Upstream::any();
        let gateway = plan(&upstream.url(), "client_timeout = \"1s\"").start();
        let pay = Call::post("/pay").key("k").told(serde_json::json!({"size": 60_000}));
        assert_eq!(gateway.send(&pay).await.status, 201);
        let buffered = || gateway.metric("onceward_buffered_bytes");
        for window in [0, 1, 20_000, 59_999] {
            let sender = connect(gateway.address, ATTACKER, window).await;
            let mut held = Vec::new();
            for _ in 0..20 {
                let mut sender = sender.clone().ready().await.unwrap();
                let request = pay.request("http://gateway").map(|_| ());
                let (status, body) = head_of(sender.send_request(request, true).unwrap().0).await;
                assert_eq!(status, 201);
                held.push(body);
            }
            assert!(buffered().await > 0, "they are held");
            eventually("all is given back", || async { buffered().await == 0 }).await;
        }
    });
}

#[test]
fn a_connection_to_the_upstream_is_not_held_by_one_client() {
    crate::run(async {
        let (upstream, load) = large_upstream::start(Version::Http2).await;
        let gateway = plan(&format!("h2c://{upstream}"), "").start();
        // As many streams as the upstream allows on two connections.
        let streams = large_upstream::STREAMS as usize;
        let mut held = Vec::new();
        for _ in 0..2 {
            let sender = connect(gateway.address, ATTACKER, 0).await;
            held.push((take_nothing(&sender, streams, "/large").await, sender));
        }
        assert_eq!(load.now(), 2 * streams);
        assert_served(&gateway, OTHER).await;
        assert_served(&gateway, ATTACKER).await;
        assert_watched(&gateway).await;
    });
}

#[test]
fn answers_with_keys_hold_no_streams_that_others_need() {
    crate::run(async {
        let (upstream, load) = large_upstream::start(Version::Http2).await;
        let options = "scope = [\"global\"]\nmax_response = \"64KiB\"\n";
        let route = route_for("POST /large", options);
        let gateway = plan(&format!("h2c://{upstream}"), &route).start();
        // Too large to be kept, so that they are passed on as they come.
        let count = large_upstream::STREAMS as usize;
        let sender = connect(gateway.address, ATTACKER, 0).await;
        let mut held = Vec::new();
        for number in 0..count {
            let mut sender = sender.clone().ready().await.unwrap();
            let call = Call::post("/large").key(&number.to_string());
            let request = call.request("http://gateway").map(|_| ());
            held.push(sender.send_request(request, true).unwrap().0);
        }
        let mut bodies = Vec::new();
        for answer in held {
            let (status, body) = head_of(answer).await;
            assert_eq!(status, 200);
            bodies.push(body);
        }
        assert_eq!(load.now(), count);
        assert_served(&gateway, OTHER).await;
        assert_served(&gateway, ATTACKER).await;
        drop(bodies);
    });
}

#[test]
fn an_upload_ends_with_its_answer() {
    crate::run(async {
        let (upstream, load) = large_upstream::start(Version::Http2).await;
        let gateway = plan(&format!("h2c://{upstream}"), "client_timeout = \"1s\"").start();
        let mut sender = connect(gateway.address, ATTACKER, 0).await;
        let request = Request::post("http://gateway/large").body(()).unwrap();
        let (answer, mut upload) = sender.send_request(request, false).unwrap();
        upload.send_data(Bytes::from_static(b"x"), false).unwrap();
        let (status, mut answer) = head_of(answer).await;
        assert_eq!(status, 200);
        // Its client goes on sending, and takes nothing.
        eventually("the upstream is left alone", || {
            let _ = upload.send_data(Bytes::from_static(b"x"), false);
            std::future::ready(load.now() == 0)
        })
        .await;
        let end = timeout(TEST_TIMEOUT, answer.data()).await.expect("no end");
        assert!(end.is_some_and(|end| end.is_err_and(|error| error.is_reset())));
        let answers = || gateway.metric("onceward_gateway_upstream_answers");
        eventually("it counts no longer", || async { answers().await == 0 }).await;
    });
}

/// Connections from an address on which nothing is said.
async fn crowd(gateway: SocketAddr, from: [u8; 4], count: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((IpAddr::from(from), 0).into()).unwrap();
        streams.push(socket.connect(gateway).await.unwrap());
    }
    streams
}

/// The same gateway, with so many file descriptors: as the shell sets a soft limit and a hard one.
fn with_descriptors(plan: &Plan, limits: &str) -> Gateway {
    let command = plan.command();
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{limits}; exec \"$0\" \"$@\""));
    shell.arg(command.get_program()).args(command.get_args());
    shell.current_dir(plan.directory.path());
    plan.start_by(&mut shell)
}

/// With few descriptors there are few answers: those that are late are listened for by a part of them.
#[test]
fn late_answers_leave_room_for_those_in_time() {
    crate::run(async {
        let upstream = Upstream::any();
        let route = route_for("POST /pay", "scope = [\"global\"]\ntimeout = \"300ms\"\n");
        let plan = Plan::new(&upstream.url(), &format!("admin = \"127.0.0.1:0\"\n{route}"));
        let gateway = with_descriptors(&plan, "ulimit -n 256");
        for number in 0..25 {
            let call = Call::post("/pay").key(&format!("late-{number}"));
            let late = gateway.send(&call.told(serde_json::json!({"gate": "never"}))).await;
            assert_eq!(late.problem(), (504, "outcome-unknown".into()), "request {number}");
        }
        let answers = gateway.metric("onceward_gateway_upstream_answers").await;
        assert!((1..=5).contains(&answers), "{answers} of 21");
        assert_eq!(gateway.send(&Call::post("/pay").key("k")).await.status, 201);
        assert_eq!(gateway.send(&Call::new("GET", "/other")).await.status, 201);
    });
}

#[test]
fn a_soft_limit_of_descriptors_is_raised_to_the_hard_one() {
    crate::run(async {
        let (upstream, _) = large_upstream::start(Version::Http1).await;
        let plan = plan(&format!("http://{upstream}"), "");
        let gateway = with_descriptors(&plan, "ulimit -Sn 128; ulimit -Hn 1024");
        // More than the soft limit; less than the share of one client of the hard one.
        let crowd = crowd(gateway.address, ATTACKER, 200).await;
        let connections = || gateway.metric("onceward_gateway_connections");
        eventually("all have come", || async { connections().await >= 200 }).await;
        assert_eq!(gateway.metric("onceward_gateway_connections_refused_total").await, 0);
        assert_served(&gateway, OTHER).await;
        drop(crowd);
    });
}

#[test]
fn clients_cannot_take_the_descriptors_of_operators() {
    crate::run(async {
        let (upstream, load) = large_upstream::start(Version::Http1).await;
        let plan = plan(&format!("http://{upstream}"), "");
        let gateway = with_descriptors(&plan, "ulimit -n 256");
        let mut early = connect(gateway.address, OTHER, 65_535).await;
        let sender = connect(gateway.address, ATTACKER, 0).await;
        let held = take_nothing(&sender, 200, "/large").await;
        assert!(load.most() <= 5, "{} at once", load.most());
        assert_served(&gateway, OTHER).await;
        let refused = "onceward_gateway_connections_refused_total";
        let first = crowd(gateway.address, ATTACKER, 100).await;
        eventually("one client has its share", || async { gateway.metric(refused).await > 40 })
            .await;
        assert_served(&gateway, OTHER).await;
        // Together they have all that clients may have, and wait for more.
        let mut others = Vec::new();
        for last in 3..5 {
            others.push(crowd(gateway.address, [127, 0, 0, last], 50).await);
        }
        let connections = || gateway.metric("onceward_gateway_connections");
        eventually("clients have all they may have", || async { connections().await >= 86 }).await;
        assert_watched(&gateway).await;
        let other = Request::get("http://gateway/other").body(()).unwrap();
        let (answer, _) = early.send_request(other, true).unwrap();
        assert_eq!(head_of(answer).await.0, 200, "who was there before is served");
        let said = gateway.said_so_far();
        assert!(
            said.contains("may open only 256 files") && !said.contains("could not be accepted")
        );
        drop((first, others, held, sender));
        assert_served(&gateway, OTHER).await;
        gateway.assert_well();
    });
}
