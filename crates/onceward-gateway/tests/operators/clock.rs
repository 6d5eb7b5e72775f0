//! A clock that jumps while the gateway runs: what is refused, who is told, and what ends it.
//!
//! The gateway is the real process, under a wall clock that the test sets (`clock.c`).

use std::{fs, path::PathBuf, process::Command, sync::OnceLock};

use serde_json::json;

use crate::gateway_support::{
    Call, Finished, Gateway, Plan, Reply, Upstream, command, eventually, route,
};

const DAY: i64 = 24 * 3600;
const TOKENS: [(&str, &str); 2] =
    [("read", "token-of-the-reader"), ("purge", "token-of-the-purger")];

/// A gateway whose clock can be set, and the same again after a restart.
struct Rig {
    upstream: Upstream,
    plan: Plan,
    gateway: Gateway,
}

impl Rig {
    /// `None`, loudly, where there is no compiler for C or no `LD_PRELOAD`.
    fn start() -> Option<Self> {
        let library = library()?;
        let upstream = Upstream::any();
        let lines = TOKENS.map(|(role, _)| {
            format!("{role}r = {{ token_env = \"TOKEN_{role}\", role = \"{role}\" }}\n")
        });
        let text = format!(
            "admin = \"{}\"\n{}[admin_tokens]\n{}",
            testbed::free_address().unwrap(),
            route("lease = \"200ms\"\nmax_run = \"1s\"\nretain = \"24h\""),
            lines.concat()
        );
        let plan = TOKENS.iter().fold(Plan::new(&upstream.url(), &text), |plan, (role, token)| {
            plan.variable(&format!("TOKEN_{role}"), token)
        });
        let wall = plan.directory.path().join("wall-clock");
        let plan = plan
            .variable("LD_PRELOAD", library.to_str().unwrap())
            .variable("WALL_CLOCK", wall.to_str().unwrap());
        fs::write(wall, "0").unwrap();
        let gateway = plan.start();
        Some(Self { upstream, plan, gateway })
    }

    /// By so many seconds more than the real time.
    fn set_clock(&self, ahead: i64) {
        let directory = self.plan.directory.path();
        fs::write(directory.join("next"), ahead.to_string()).unwrap();
        fs::rename(directory.join("next"), directory.join("wall-clock")).unwrap();
    }

    async fn pay(&self, key: &str) -> Reply {
        let call = Call::post("/pay").key(key).header("x-api-key", "alice");
        self.gateway.send(&call.json(json!({"amount": 5}))).await
    }

    async fn is_suspect(&self, key: &str) -> Reply {
        let reply = self.pay(key).await;
        assert_eq!(reply.problem(), (503, "clock-suspect".into()), "{reply:?}");
        reply
    }

    async fn read(&self, path: &str) -> Reply {
        let token = format!("Bearer {}", TOKENS[0].1);
        self.gateway.ask(&Call::new("GET", path).header("authorization", token)).await
    }

    async fn metric(&self, name: &str) -> u64 {
        let reply = self.read("/metrics").await;
        let line = reply.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("there is no {name}")).parse().unwrap()
    }

    /// The doctor beside the gateway, with these of its tokens.
    fn doctor(&self, more: &[&str], roles: &[&str]) -> Finished {
        let mut command = command(&["doctor"]);
        command.args(more).current_dir(self.plan.directory.path());
        command.env("USER", "ada").env_remove("SUDO_USER").env_remove("ONCEWARD_ADMIN_TOKEN");
        let tokens = TOKENS.iter().filter(|(role, _)| roles.contains(role));
        command.envs(tokens.map(|(role, token)| (format!("TOKEN_{role}"), token)));
        Finished::of(&mut command)
    }

    /// What the doctor says about the clock: severity and how to mend it.
    fn found(&self, code: &str) -> Option<(String, String)> {
        let document = self.doctor(&["--json"], &["read", "purge"]).json();
        let found = document["findings"].as_array().unwrap().iter();
        let one = found.into_iter().find(|one| one["code"] == code)?.clone();
        let text = |name: &str| one[name].as_str().unwrap().to_owned();
        Some((text("severity"), text("mend")))
    }
}

fn library() -> Option<PathBuf> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let (made, library) =
            (place.join(format!("{}.so", std::process::id())), place.join("wall-clock.so"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/operators/clock.c");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O2", "-o"]).arg(&made).arg(source);
        match cfg!(target_os = "linux") && compile.status().is_ok_and(|status| status.success()) {
            // At once: other programs of tests may be using it.
            true => fs::rename(made, &library).ok().map(|()| library),
            false => {
                eprintln!("SKIPPED: a clock that jumps: cc makes no library for LD_PRELOAD here");
                None
            }
        }
    };
    LIBRARY.get_or_init(make).clone()
}

#[tokio::test]
async fn what_a_jump_lets_expire_is_refused_until_the_clock_is_back() {
    let Some(rig) = Rig::start() else { return };
    assert_eq!(rig.pay("a").await.status, 201);
    assert_eq!(rig.read("/v1/clock").await.json(), json!({"suspect": false, "ahead_seconds": 0}));
    assert_eq!(rig.found("clock-suspect"), None);

    rig.set_clock(2 * DAY);
    let reply = rig.is_suspect("a").await;
    let problem = reply.json();
    assert_eq!((&problem["retryable"], &problem["safe_new_key"]), (&true.into(), &false.into()));
    assert_eq!(reply.header("retry-after"), Some("10"));
    rig.is_suspect("a").await;
    assert_eq!(rig.upstream.count().await, 1, "also after the alarm it is not run again");
    assert_eq!(rig.metric("onceward_alarms_total{event=\"clock_jumped\"}").await, 1);
    assert!(rig.metric("onceward_clock_ahead_seconds").await.abs_diff(2 * 24 * 3600) < 5);
    let clock = rig.read("/v1/clock").await.json();
    assert_eq!(clock["suspect"], true);
    assert!(clock["ahead_seconds"].as_u64().unwrap().abs_diff(2 * 24 * 3600) < 5, "{clock}");
    let listed = rig.read("/v1/operations?state=clock_suspect").await.json();
    assert_eq!(listed["operations"].as_array().unwrap().len(), 1, "{listed}");
    let (severity, mend) = rig.found("clock-suspect").unwrap();
    assert_eq!(severity, "problem");
    let command = "onceward doctor --config onceward.toml --clock-is-right --reason";
    assert!(mend.contains(command), "{mend}");
    assert_eq!(rig.pay("new").await.status, 201, "what is new is served");
    assert_eq!(rig.read("/ready").await.status, 200);

    rig.set_clock(0);
    let reply = rig.pay("a").await;
    assert!(reply.status == 201 && reply.is_replay(), "{reply:?}");
    assert_eq!(rig.read("/v1/clock").await.json()["suspect"], false);
    assert_eq!(rig.upstream.count().await, 2);
}

#[tokio::test]
async fn an_operators_word_ends_it_and_is_in_the_trail() {
    let Some(rig) = Rig::start() else { return };
    assert_eq!(rig.pay("a").await.status, 201);
    rig.set_clock(2 * DAY);
    rig.is_suspect("a").await;

    let word = ["--clock-is-right", "--reason", "a snapshot was restored"];
    let told = rig.doctor(&word[..1], &["purge"]);
    assert!(told.code == 2 && told.stderr.contains("--reason <TEXT>"), "{told}");
    for (roles, expected) in [
        (&["read"][..], "the role of `readr/ada` is `read`, and this needs `purge`"),
        (&[], "--token-env names"),
    ] {
        let told = rig.doctor(&word, roles);
        assert!(told.code == 1 && told.stderr.contains(expected), "{roles:?}: {told}");
    }
    rig.is_suspect("a").await;

    let told = rig.doctor(&word, &["read", "purge"]);
    assert!(told.is_success() && told.stdout.contains("it had gone 2d ahead"), "{told}");
    let reference = told.stdout.trim().rsplit(' ').next().unwrap().to_owned();
    let shown = rig.read(&format!("/v1/operations/{reference}")).await.json();
    let last = shown["trail"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["kind"], &last["actor"]), (&"trust_clock".into(), &"purger/ada".into()));
    assert_eq!(last["reason"], "a snapshot was restored");
    let reply = rig.pay("a").await;
    assert!(reply.status == 201 && !reply.is_replay(), "{reply:?}");
    assert_eq!(rig.upstream.count().await, 2, "it may run again");
    let counted = "onceward_operator_changes_total{action=\"trust_clock\"}";
    assert_eq!(rig.metric(counted).await, 1);
    assert_eq!(rig.found("clock-suspect"), None);
    assert_eq!(rig.found("identity-changed"), None, "its trail is of no route");

    let again = rig.doctor(&[&word[..], &["--json"]].concat(), &["purge"]).json();
    assert_eq!(again["was_ahead_seconds"], 0);
    assert_eq!(again["operation"], reference);
}

#[tokio::test]
async fn a_restart_trusts_the_clock_that_it_finds() {
    let Some(mut rig) = Rig::start() else { return };
    assert_eq!(rig.pay("a").await.status, 201);
    rig.set_clock(2 * DAY);
    rig.is_suspect("a").await;
    rig.gateway.signal(testbed::Signal::TERM);
    assert!(rig.gateway.wait_for_end().success());

    let word = ["--clock-is-right", "--reason", "x"];
    let told = rig.doctor(&word, &["purge"]);
    assert!(told.code == 1 && told.stderr.contains("is the gateway running"), "{told}");
    rig.gateway = rig.plan.start();
    let reply = rig.pay("a").await;
    assert!(reply.status == 201 && !reply.is_replay(), "{reply:?}");
    assert_eq!(rig.upstream.count().await, 2);
}

#[tokio::test]
async fn a_full_disk_is_not_ready_and_says_which_option_helps() {
    let disk = match testbed::SmallDisk::mount(32 << 20) {
        Ok(disk) => disk,
        Err(reason) => {
            eprintln!("SKIPPED: a full disk is not ready: {reason}");
            return;
        }
    };
    let upstream = Upstream::any();
    let text = format!("admin = \"127.0.0.1:0\"\n{}", route(""));
    let store = format!("sqlite://{}", disk.path().join("onceward.db").display());
    let gateway = Plan::new(&upstream.url(), &text).store(&store).start();
    let ready = async || gateway.ask(&Call::new("GET", "/ready")).await;
    let pay = Call::post("/pay").key("k").header("x-api-key", "alice").json(json!({"amount": 5}));
    assert_eq!(ready().await.status, 200);

    assert!(disk.take(20 << 20), "less than the reserve is left");
    let reply = ready().await;
    let reason = reply.json()["reason"].as_str().unwrap().to_owned();
    assert!(reply.status == 503 && reply.json()["ready"] == false, "{reply:?}");
    assert!(reason.contains("free some space"), "{reason}");
    assert_eq!(gateway.send(&pay).await.problem(), (503, "store-unavailable".into()));
    assert_eq!(upstream.count().await, 0);
    // What it names is an option, and `onceward init` writes it.
    let option = reason.rsplit_once("in `").unwrap().1.trim_end_matches('`');
    let directory = tempfile::tempdir().unwrap();
    let written = Finished::of(command(&["init"]).current_dir(directory.path()));
    assert!(written.is_success(), "{written}");
    let written = fs::read_to_string(directory.path().join("onceward.toml")).unwrap();
    let names = |line: &str| line.trim_start_matches('#').starts_with(&format!("{option} = "));
    assert!(written.lines().any(names), "{option}: {written}");

    disk.empty();
    assert_eq!(ready().await.status, 200);
    eventually("there is room", async || gateway.send(&pay).await.status == 201).await;
}
