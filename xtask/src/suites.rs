//! The suites: which test targets belong together, and what real thing each of them runs against.
//!
//! A new test target in a crate of the table joins that crate's suite by itself. A new engine is one
//! more row: a name, a rule that claims its targets (by the first word of their name, as `sqlite` and
//! `sqlite_store`), and a function that says what it was found to be, or why it is absent.

use std::any::Any;

use crate::package;
use crate::servers;
use crate::tools;
use crate::workspace::{Kind, TestTarget, Workspace};

pub(crate) struct Suite {
    /// How it is called on the command line and in the file of budgets.
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    /// Whether a test target belongs to this suite.
    pub(crate) claims: fn(&TestTarget) -> bool,
    /// What it runs against, as found on this machine now.
    pub(crate) against: fn(&Workspace) -> Against,
    pub(crate) load: Load,
    /// What of it belongs to a usual run; a long one takes all.
    pub(crate) usual: Part,
}

/// Some tests of a suite, by parts of their names.
pub(crate) struct Part {
    /// Empty: all.
    pub(crate) only: &'static [&'static str],
    pub(crate) without: &'static [&'static str],
    /// Also those that are marked as ignored.
    pub(crate) with_ignored: bool,
}

/// What the programs of a suite do most of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// They keep a core busy: one such program at a time.
    Computes,
    /// They wait for processes, disks and clocks: several at a time, with many tests each.
    Waits,
}

pub(crate) enum Against {
    /// Described for the summary; say plainly when it is not a real server.
    Present(String),
    /// Servers that run while the suite does.
    Servers(Servers),
    /// It is there and does not work: the suite has failed.
    Broken(String),
    /// The suite is skipped, and the summary says so by name: the engine, and the reason.
    Absent { engine: &'static str, reason: String },
}

/// What was started for a suite, or found running.
pub(crate) struct Servers {
    /// Described for the summary.
    pub(crate) words: String,
    /// What the test programs are told.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// What somebody has to set who repeats a test alone, when these servers have ended.
    pub(crate) repeat: Vec<(&'static str, String)>,
    /// They end when this is dropped.
    pub(crate) running: Vec<Box<dyn Any + Send + Sync>>,
}

impl Servers {
    /// Nothing was started.
    pub(crate) fn none(words: String) -> Self {
        Self { words, environment: Vec::new(), repeat: Vec::new(), running: Vec::new() }
    }
}

const ALL: Part = Part { only: &[], without: &[], with_ignored: false };

/// Without faults that are injected before a call reaches the store: they are the same for every store,
/// and the usual run has them on SQLite and in memory.
const WITHOUT_FAULTS_BEFORE_THE_STORE: Part = Part {
    only: &[],
    without: &["driven_over_failed_calls", "driven_over_held_records"],
    with_ignored: false,
};

pub(crate) const SUITES: [Suite; 18] = [
    Suite {
        id: "core",
        name: "protocol core",
        claims: |target| target.package == "onceward-core" && !target.is_test("model"),
        against: |_| no_server(),
        load: Load::Computes,
        usual: ALL,
    },
    Suite {
        id: "model",
        name: "model",
        claims: |target| target.package == "onceward-core" && target.is_test("model"),
        against: |_| no_server(),
        load: Load::Computes,
        usual: ALL,
    },
    Suite {
        id: "library",
        name: "library and drivers, memory store",
        claims: |target| {
            target.package == "onceward"
                && !is_server(target)
                && !is_sqlite(target)
                && !is_postgres(target)
                && !is_redis(target)
                && !is_failover(target)
        },
        against: |_| Against::Present("memory store (not durable)".to_owned()),
        load: Load::Waits,
        usual: ALL,
    },
    Suite {
        id: "server",
        name: "server layer",
        claims: |target| target.package == "onceward" && is_server(target),
        against: |_| {
            let text = "axum and hyper on loopback sockets, memory store (not durable)";
            Against::Present(text.to_owned())
        },
        load: Load::Waits,
        usual: ALL,
    },
    Suite {
        id: "simulation",
        name: "simulation",
        claims: |target| target.package == "onceward-simulation",
        against: |_| no_server(),
        load: Load::Computes,
        usual: ALL,
    },
    Suite {
        id: "sqlite",
        name: "SQLite store",
        claims: |target| target.package == "onceward" && is_sqlite(target),
        against: sqlite,
        load: Load::Waits,
        usual: ALL,
    },
    Suite {
        id: "crash",
        name: "crash proof",
        claims: |target| {
            target.package == "onceward-crash" && !needs_strace(target) && !is_postgres(target)
        },
        against: |workspace| {
            let sqlite = sqlite_version(workspace);
            let words = format!("service processes, kill -9, SQLite {sqlite}");
            with_redis(&words, servers::redis(workspace))
        },
        load: Load::Waits,
        usual: ALL,
    },
    Suite {
        id: "crash-syscalls",
        name: "crash proof, system calls",
        claims: |target| target.package == "onceward-crash" && needs_strace(target),
        against: strace,
        load: Load::Waits,
        usual: ALL,
    },
    Suite {
        id: "command-line",
        name: "command line",
        claims: |target| {
            target.package == "onceward-gateway"
                && !target.is_test("simulate")
                && !is_gateway(target)
                && !is_probe(target)
                && !is_operators(target)
                && !needs_python(target)
                && !is_postgres(target)
                && !is_redis(target)
                && !is_failover(target)
        },
        against: |workspace| {
            let text = "the built command; its demo on loopback sockets, with SQLite";
            Against::Present(format!("{text}; {}", package::installers(workspace)))
        },
        load: Load::Waits,
        usual: ALL,
    },
    Suite {
        id: "simulate",
        name: "retry storms",
        claims: |target| target.package == "onceward-gateway" && target.is_test("simulate"),
        against: |_| Against::Present("the built command, on virtual time".to_owned()),
        load: Load::Computes,
        usual: ALL,
    },
    Suite {
        id: "gateway",
        name: "gateway",
        claims: |target| target.package == "onceward-gateway" && is_gateway(target),
        against: |workspace| {
            let upstreams = ["python3", "node", "nginx"].map(tools::program).join(", ");
            let clients = [
                tools::stripe(workspace),
                tools::clients(workspace),
                tools::quickstarts(workspace),
                tools::h2spec(workspace),
            ];
            let clients = clients.join(", ");
            Against::Present(format!("gateway processes before hyper, {upstreams}; {clients}"))
        },
        load: Load::Waits,
        usual: ALL,
    },
    Suite {
        id: "probe",
        name: "probe",
        claims: |target| target.package == "onceward-gateway" && is_probe(target),
        against: |_| {
            let text = "the built command against axum servers with known faults, and the gateway";
            Against::Present(text.to_owned())
        },
        load: Load::Waits,
        usual: ALL,
    },
    Suite {
        id: "operators",
        name: "operators",
        claims: |target| target.package == "onceward-gateway" && is_operators(target),
        against: |_| {
            let text = "gateway processes, their listener for operators, the built command, SQLite";
            Against::Present(format!("{text}; examples in {}", tools::program("python3")))
        },
        load: Load::Waits,
        usual: ALL,
    },
    Suite {
        id: "operators-openapi",
        name: "operators, as others read them",
        claims: |target| target.package == "onceward-gateway" && needs_python(target),
        against: |workspace| match tools::python(workspace) {
            Ok(versions) => Against::Present(versions),
            Err(reason) => Against::Absent { engine: "schemathesis", reason },
        },
        load: Load::Waits,
        usual: ALL,
    },
    Suite {
        id: "postgres",
        name: "PostgreSQL",
        claims: is_postgres,
        against: servers::postgres,
        load: Load::Waits,
        usual: WITHOUT_FAULTS_BEFORE_THE_STORE,
    },
    Suite {
        id: "redis",
        name: "Redis",
        claims: is_redis,
        against: servers::redis,
        load: Load::Waits,
        usual: WITHOUT_FAULTS_BEFORE_THE_STORE,
    },
    Suite {
        id: "failover",
        name: "PostgreSQL, failing servers",
        claims: is_failover,
        against: servers::failing_postgres,
        load: Load::Waits,
        usual: ALL,
    },
    Suite {
        id: "tooling",
        name: "tooling",
        claims: |target| {
            ["xtask", "onceward-bench", "testbed"].contains(&target.package.as_str())
                && !is_postgres(target)
                && !is_redis(target)
                && !is_failover(target)
        },
        against: |_| no_server(),
        load: Load::Waits,
        usual: ALL,
    },
];

/// Suites that run the targets of another one once more, against another version: what depends on the
/// version in a usual run, all of it in a long one.
pub(crate) const REPEATS: [Suite; 2] = [
    Suite {
        id: "postgres-18",
        name: "PostgreSQL 18",
        claims: |target| is_postgres(target) || is_failover(target),
        against: servers::postgres_18,
        load: Load::Waits,
        usual: Part {
            only: &[
                "conformance::",
                "functions::",
                "open::",
                "operations::",
                "serve::services::",
                "synchronous::",
            ],
            without: &["driven", "driver", "over_the_wire"],
            with_ignored: false,
        },
    },
    Suite {
        id: "valkey-9",
        name: "Valkey 9",
        claims: is_redis,
        against: servers::valkey,
        load: Load::Waits,
        // All of its own; the drivers are the same.
        usual: Part { only: &[], without: &["driven", "driver"], with_ignored: false },
    },
];

/// Clusters and sentinels start six servers for a test.
const TOPOLOGIES: Part = Part { only: &["topologies::"], without: &[], with_ignored: true };

/// Suites for which several servers of an engine are started; they run when they are named, or with `--engines`.
pub(crate) const ENGINES: [Suite; 2] = [
    Suite {
        id: "redis-topologies",
        name: "Redis, clusters and sentinels",
        claims: is_redis,
        against: servers::redis,
        load: Load::Waits,
        usual: TOPOLOGIES,
    },
    Suite {
        id: "valkey-topologies",
        name: "Valkey, clusters and sentinels",
        claims: is_redis,
        against: servers::valkey,
        load: Load::Waits,
        usual: TOPOLOGIES,
    },
];

/// Every suite, also those that a run has only when it is asked for them.
pub(crate) fn known() -> impl Iterator<Item = &'static Suite> {
    all().chain(&ENGINES)
}

/// Every suite of a usual run, the repeated ones last.
pub(crate) fn all() -> impl Iterator<Item = &'static Suite> {
    SUITES.iter().chain(&REPEATS)
}

/// What stands in the way of running every test target exactly once; empty when nothing does.
pub(crate) fn misassigned(suites: &[Suite], targets: &[TestTarget]) -> Vec<String> {
    targets.iter().filter_map(|target| problem_with(suites, target)).collect()
}

fn problem_with(suites: &[Suite], target: &TestTarget) -> Option<String> {
    let claimants: Vec<_> =
        suites.iter().filter(|suite| (suite.claims)(target)).map(|suite| suite.name).collect();
    let label = target.label();
    match claimants.as_slice() {
        [_] => None,
        [] => Some(format!(
            "{label}: no suite runs this test target; add it to a suite in xtask/src/suites.rs"
        )),
        several => Some(format!(
            "{label}: more than one suite runs this test target ({}); let one of them leave it in xtask/src/suites.rs",
            several.join(", ")
        )),
    }
}

fn is_server(target: &TestTarget) -> bool {
    target.kind == Kind::Integration && target.name.starts_with("server")
}

fn is_sqlite(target: &TestTarget) -> bool {
    target.kind == Kind::Integration && target.name.starts_with("sqlite")
}

fn is_postgres(target: &TestTarget) -> bool {
    target.kind == Kind::Integration && target.name.starts_with("postgres")
}

fn is_redis(target: &TestTarget) -> bool {
    target.kind == Kind::Integration && target.name.starts_with("redis")
}

/// The tests that start servers for themselves, and kill them.
fn is_failover(target: &TestTarget) -> bool {
    target.kind == Kind::Integration && target.name.starts_with("failover")
}

fn is_gateway(target: &TestTarget) -> bool {
    target.kind == Kind::Integration && target.name.starts_with("serve")
}

fn is_probe(target: &TestTarget) -> bool {
    target.kind == Kind::Integration && target.name.starts_with("probe")
}

fn is_operators(target: &TestTarget) -> bool {
    target.kind == Kind::Integration && target.name.starts_with("operators")
}

/// The tests that run tools of the Python environment.
fn needs_python(target: &TestTarget) -> bool {
    target.kind == Kind::Integration && target.name == "admin_openapi"
}

/// The tests that stop a process at its system calls, fail them, or write them down.
fn needs_strace(target: &TestTarget) -> bool {
    target.kind == Kind::Integration
        && ["disk", "fsync_before_reply", "power_loss", "syscalls"].contains(&target.name.as_str())
}

fn no_server() -> Against {
    Against::Present("no server".to_owned())
}

fn sqlite(workspace: &Workspace) -> Against {
    let version = sqlite_version(workspace);
    Against::Present(format!("SQLite {version}, embedded, file in a temporary directory"))
}

fn sqlite_version(workspace: &Workspace) -> String {
    workspace.sqlite_version().unwrap_or_else(|| "of unknown version".to_owned())
}

fn strace(workspace: &Workspace) -> Against {
    match tools::strace() {
        Ok(version) => {
            let sqlite = sqlite_version(workspace);
            with_redis(&format!("{version}, SQLite {sqlite}"), servers::redis(workspace))
        }
        Err(reason) => Against::Absent { engine: "strace", reason },
    }
}

/// Adds a server for the tests that take one; without it they are left out, and say so.
fn with_redis(words: &str, redis: Against) -> Against {
    match redis {
        Against::Servers(servers) => {
            let words = format!("{words}, {}", servers.words);
            Against::Servers(Servers { words, ..servers })
        }
        Against::Absent { reason, .. } => Against::Present(format!("{words}; no Redis: {reason}")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::root;

    fn target(package: &str, kind: Kind, name: &str) -> TestTarget {
        TestTarget {
            package: package.into(),
            kind,
            name: name.into(),
            manifest: "Cargo.toml".into(),
        }
    }

    fn suite_of(target: &TestTarget) -> &'static str {
        assert_eq!(misassigned(&SUITES, std::slice::from_ref(target)), [""; 0]);
        SUITES.iter().find(|suite| (suite.claims)(target)).unwrap().name
    }

    #[test]
    fn targets_find_their_suite() {
        use Kind::{Binary, Integration, Library};
        for (package, kind, name, suite) in [
            ("onceward-core", Library, "onceward_core", "protocol core"),
            ("onceward-core", Integration, "wire", "protocol core"),
            ("onceward-core", Integration, "model", "model"),
            ("onceward", Library, "onceward", "library and drivers, memory store"),
            ("onceward", Integration, "memory", "library and drivers, memory store"),
            ("onceward", Integration, "server", "server layer"),
            ("onceward", Integration, "server_rules", "server layer"),
            ("onceward-simulation", Integration, "histories", "simulation"),
            ("onceward", Integration, "sqlite", "SQLite store"),
            ("onceward", Integration, "sqlite_store", "SQLite store"),
            ("onceward-crash", Library, "onceward_crash", "crash proof"),
            ("onceward-crash", Integration, "load", "crash proof"),
            ("onceward-crash", Integration, "fsync_before_reply", "crash proof, system calls"),
            ("onceward-crash", Integration, "syscalls", "crash proof, system calls"),
            ("onceward-crash", Integration, "postgres_crash", "PostgreSQL"),
            ("onceward-gateway", Binary, "onceward", "command line"),
            ("onceward-gateway", Integration, "command_line", "command line"),
            ("onceward-gateway", Integration, "simulate", "retry storms"),
            ("onceward-gateway", Integration, "serve", "gateway"),
            ("onceward-gateway", Integration, "serve_hostile", "gateway"),
            ("onceward-gateway", Integration, "probe", "probe"),
            ("onceward-gateway", Integration, "operators", "operators"),
            ("onceward-gateway", Integration, "admin_openapi", "operators, as others read them"),
            ("onceward-bench", Binary, "onceward-bench", "tooling"),
            ("onceward-bench", Integration, "postgres_messages", "PostgreSQL"),
            ("xtask", Binary, "xtask", "tooling"),
            ("testbed", Library, "testbed", "tooling"),
            ("testbed", Integration, "postgres_servers", "PostgreSQL"),
            ("onceward", Integration, "postgres", "PostgreSQL"),
            ("onceward-gateway", Integration, "postgres", "PostgreSQL"),
            ("onceward", Integration, "failover", "PostgreSQL, failing servers"),
        ] {
            assert_eq!(suite_of(&target(package, kind, name)), suite, "{package} {name}");
        }
    }

    #[test]
    fn a_repeated_suite_runs_what_another_one_runs() {
        let postgres = target("onceward", Kind::Integration, "postgres");
        assert!(REPEATS.iter().any(|suite| (suite.claims)(&postgres)));
        let wire = target("onceward-core", Kind::Integration, "wire");
        assert!(!REPEATS.iter().any(|suite| (suite.claims)(&wire)));
    }

    #[test]
    fn a_target_without_a_suite_is_named() {
        let stray = target("onceward-shop", Kind::Integration, "checkout");
        let problems = misassigned(&SUITES, &[stray]);
        assert!(
            problems[0].starts_with("onceward-shop tests/checkout.rs: no suite"),
            "{problems:?}"
        );
    }

    #[test]
    fn a_target_in_two_suites_is_named() {
        let greedy = || Suite {
            id: "greedy",
            name: "greedy",
            claims: |_| true,
            against: |_| no_server(),
            load: Load::Waits,
            usual: ALL,
        };
        let both = [greedy(), greedy()];
        let problems = misassigned(&both, &[target("a", Kind::Library, "a")]);
        assert!(problems[0].contains("more than one suite"), "{problems:?}");
    }

    #[test]
    fn every_test_target_of_this_workspace_is_in_exactly_one_suite() {
        let workspace = Workspace::read(&root().unwrap()).unwrap();
        assert_eq!(misassigned(&SUITES, &workspace.test_targets()), [""; 0]);
    }
}
