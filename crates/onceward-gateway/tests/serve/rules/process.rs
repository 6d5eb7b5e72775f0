//! The gateway as a process: it is told anew, it stops, and it is not alone.

use std::{process::Command, time::Duration};

use serde_json::json;
use testbed::Process;

use crate::{
    gateway_support::{
        Call, Certificates, Gateway, Link, Plan, Signal, Upstream, Version, command, free_address,
        route, route_for, upstreams,
    },
    rules::pay,
};

#[tokio::test]
async fn sighup_reads_the_routes_again_and_keeps_connections() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    let new = pay("k").retarget("POST", "/new");
    let mut links = Vec::new();
    for version in Version::BOTH {
        let mut link = Link::open(gateway.address, version).await;
        assert_eq!(link.send(&new).await.header("onceward-operation"), None);
        links.push(link);
    }
    let running = gateway.begin(&pay("k").told(json!({"gate": "g"})));
    upstream.arrival(3).await;
    let old = gateway.configuration();
    gateway.reload(&(old.clone() + &route_for("POST /new", "")));
    gateway.wait_for("read again");
    for link in &mut links {
        let reply = link.send(&new).await;
        assert_eq!(reply.status, 201);
        assert!(reply.header("onceward-operation").is_some(), "the new route is live");
    }
    upstream.open("g").await;
    assert_eq!(running.await.unwrap().status, 201);
    assert!(gateway.send(&pay("k")).await.is_replay(), "what was known is still known");

    gateway.reload("upstream = 7\n[[rout]]\n");
    let said = gateway.wait_for("the old routes stay");
    assert!(said.contains("rout"), "{said}");
    for link in &mut links {
        assert!(link.send(&new).await.is_replay());
    }
    gateway.reload(&format!("accept_identity_change = true\n{old}"));
    gateway.wait_for("read again");
    let reply = links[0].send(&new).await;
    assert_eq!(reply.header("onceward-operation"), None, "the route is gone");
}

/// A listener and a store that are in use cannot be replaced, and nobody shall believe they were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sighup_says_what_counts_only_after_a_restart() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    let old = gateway.configuration();
    let moved = old.replace(".db\"", "-elsewhere.db\"");
    assert_ne!(old, moved);
    gateway.reload(&moved);
    gateway.wait_for("another `store` counts only after a restart");
    gateway.wait_for("read again");
    assert_eq!(gateway.send(&pay("k")).await.status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_lets_what_is_under_way_end() {
    for upstream in upstreams() {
        let text = route("");
        let gateway = Gateway::start(&upstream, &text);
        let mut idle = Link::open(gateway.address, Version::Http1).await;
        idle.send(&Call::new("GET", "/idle")).await;
        let http1 = gateway.begin(&pay("k").told(json!({"gate": "g"})));
        let address = gateway.address;
        let http2 = tokio::spawn(async move {
            let call = pay("k2").told(json!({"gate": "g"}));
            Link::open(address, Version::Http2).await.send(&call).await
        });
        upstream.arrival(3).await;
        gateway.signal(Signal::TERM);
        // Nobody new is served while the others end.
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        upstream.open("g").await;
        let first = http1.await.unwrap();
        assert_eq!((first.status, http2.await.unwrap().status), (201, 201));
        let ended = gateway.wait_for_end();
        assert!(ended.success(), "{ended:?}");
        let next = Plan::new(&upstream.url(), &text).beside(&gateway).start();
        let again = next.send(&pay("k")).await;
        assert_eq!((again.is_replay(), &again.body), (true, &first.body));
        assert!(next.send(&pay("k2")).await.is_replay());
        assert_eq!(upstream.count_at("/pay").await, 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_settles_what_its_client_does_not_wait_for() {
    let upstream = Upstream::any();
    let text = route("in_flight = \"async\"");
    let gateway = Gateway::start(&upstream, &text);
    let accepted = gateway.send(&pay("k").told(json!({"gate": "g"}))).await;
    assert_eq!(accepted.status, 202);
    upstream.arrival(1).await;
    gateway.signal(Signal::TERM);
    upstream.open("g").await;
    assert!(gateway.wait_for_end().success());
    let next = Plan::new(&upstream.url(), &text).beside(&gateway).start();
    assert!(next.send(&pay("k")).await.is_replay());
    assert_eq!(upstream.count().await, 1);
}

#[tokio::test]
async fn two_gateways_on_one_store_run_a_request_once() {
    for upstream in upstreams() {
        let text = route("in_flight = \"wait\"\nwait = \"20s\"");
        let first = Gateway::start(&upstream, &text);
        let second = Plan::new(&upstream.url(), &text).beside(&first).start();
        for key in 0..5 {
            let call = pay(&format!("k-{key}")).told(json!({"delay": 0.05}));
            let calls = (0..10).map(|index| [&first, &second][index % 2].begin(&call));
            let mut bodies = Vec::new();
            let mut replays = 0;
            for call in calls.collect::<Vec<_>>() {
                let reply = call.await.unwrap();
                assert_eq!(reply.status, 201, "{reply:?}");
                replays += usize::from(reply.is_replay());
                bodies.push(reply.body);
            }
            bodies.dedup();
            assert_eq!((replays, bodies.len()), (9, 1));
        }
        assert_eq!(upstream.count().await, 5);

        let call = pay("waiting").told(json!({"gate": "g"}));
        let runner = first.begin(&call);
        upstream.arrival(6).await;
        let waiter = second.begin(&call);
        upstream.open("g").await;
        let (ran, waited) = (runner.await.unwrap(), waiter.await.unwrap());
        assert_eq!((ran.is_replay(), waited.is_replay()), (false, true));
        assert_eq!(ran.body, waited.body);
        assert_eq!(upstream.count().await, 6);
    }
}

#[tokio::test]
async fn with_tls_both_versions_are_offered() {
    let upstream = Upstream::any();
    let text = format!("[tls]\ncert = \"server.pem\"\nkey = \"server.key\"\n{}", route(""));
    let plan = Plan::new(&upstream.url(), &text);
    if Certificates::make(plan.directory.path(), &[]).is_none() {
        return;
    }
    let gateway = plan.start();
    for version in Version::BOTH {
        let config = Certificates::client(gateway.directory.path(), None);
        let mut link = Link::open_tls(gateway.address, version, config).await;
        let call = pay(&format!("{version:?}"));
        assert_eq!(link.send(&call).await.status, 201);
        assert!(link.send(&call).await.is_replay());
        assert_eq!(link.send(&call.without_key()).await.status, 201);
    }
    assert_eq!(upstream.count().await, 4);
    let forwarded = upstream.last_lines("x-forwarded-proto").await;
    assert_eq!(forwarded, ["https"]);
}

#[tokio::test]
async fn without_a_route_everything_is_covered() {
    let upstream = Upstream::any();
    let text = "[defaults]\nscope = [\"secret:x-api-key\"]\nauthorize = \"none\"\n";
    let gateway = Gateway::start(&upstream, text);
    let any = Call::new("PATCH", "/v1/things/7?a=1").key("k").header("x-api-key", "alice");
    assert_eq!(gateway.send(&any).await.status, 201);
    assert!(gateway.send(&any).await.is_replay());
    assert_eq!(upstream.count().await, 1);
}

#[tokio::test]
async fn the_usual_file_is_read_and_the_log_says_so() {
    let upstream = Upstream::any();
    let plan = Plan::new(&upstream.url(), &route(""));
    plan.command();
    let mut serve = command(&["serve"]);
    let gateway = plan.start_by(serve.current_dir(plan.directory.path()));
    assert!(gateway.said_so_far().contains("the configuration is ./onceward.toml"));
    assert_eq!(gateway.send(&pay("k")).await.status, 201);
    // It is read again, and flags win over it.
    gateway.reload("no configuration");
    gateway.wait_for("the old routes stay");
    gateway.reload(&plan.text);
    gateway.wait_for("the routes were read again");
    drop(gateway);
    let mut serve = command(&["serve", "--store", "sqlite://other.db"]);
    let gateway = plan.start_by(serve.current_dir(plan.directory.path()));
    assert!(gateway.said_so_far().contains("other.db"));
}

#[tokio::test]
async fn flags_alone_need_no_file() {
    let (upstream, directory) = (Upstream::any(), tempfile::tempdir().unwrap());
    let flags = ["--scope", "secret:x-api-key", "--authorize", "none", "--listen", "127.0.0.1:0"];
    let mut serve = command(&["serve", "--upstream", &upstream.url()]);
    let serve = Process::start(serve.args(flags).current_dir(directory.path())).unwrap();
    let address = serve.stderr.wait_for_address().unwrap();
    assert!(!serve.stderr.text().contains("onceward.toml"), "{}", serve.stderr.text());
    let mut link = Link::open(address, Version::Http1).await;
    assert_eq!(link.send(&pay("k")).await.status, 201);
}

/// Whoever collects the log may die. That must not change what a failure means.
#[tokio::test]
async fn a_log_that_nobody_reads_makes_no_outcome_unknown() {
    let nobody = free_address().unwrap();
    let plan = Plan::new(&format!("http://{nobody}"), &route(""));
    let serve = plan.command();
    // The reader leaves when it has what it looks for, so the log goes nowhere from then on.
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\" 2>&1 >/dev/null | grep -m 1 'listening on'", "sh"]);
    shell.arg(serve.get_program()).args(serve.get_args());
    shell.current_dir(serve.get_current_dir().unwrap());
    let shell = Process::start(&mut shell).unwrap();
    let address = shell.stdout.wait_for_address().unwrap();
    for number in 0..5 {
        let mut link = Link::open(address, Version::Http1).await;
        let reply = link.send(&pay(&format!("k{number}"))).await;
        assert_eq!(reply.problem(), (502, "upstream-unreachable".into()));
    }
}

#[tokio::test]
async fn a_reload_does_not_make_a_plain_connection_a_secure_one() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    if Certificates::make(gateway.directory.path(), &[]).is_none() {
        return;
    }
    let tls = "[tls]\ncert = \"server.pem\"\nkey = \"server.key\"\n[[route]]";
    gateway.reload(&gateway.configuration().replacen("[[route]]", tls, 1));
    gateway.wait_for("another `[tls]` counts only after a restart");
    gateway.wait_for("the routes were read again");
    assert_eq!(gateway.send(&pay("k")).await.status, 201);
    assert_eq!(upstream.last_lines("x-forwarded-proto").await, ["http"]);
    assert!(upstream.last_lines("forwarded").await[0].ends_with(";proto=http"));
}

#[tokio::test]
async fn an_address_that_another_program_has_is_named_with_its_option() {
    let (taken, upstream) = (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), Upstream::any());
    let address = taken.local_addr().unwrap().to_string();
    for option in ["listen", "admin"] {
        let mut plan = Plan::new(&upstream.url(), &route(""));
        plan.text = match option {
            "listen" => plan.text.replacen("127.0.0.1:0", &address, 1),
            _ => format!("admin = \"{address}\"\n{}", plan.text),
        };
        let said = plan.refusal();
        for word in ["another program", &address, &format!("(`{option}`)")] {
            assert!(said.contains(word), "{word:?} is not said: {said}");
        }
    }
}
