//! Several processes on one file, and processes that are killed: real ones, of this very program.

use std::{
    env,
    io::{BufRead, Write},
    path::Path,
    process::Command,
    sync::Arc,
};

use onceward::{
    Effect, Ending, Engine, Key, OperationId, OperationName, Outcome, Request, Scope, Status,
    Store, Terms, Verdict,
    protocol::{Found, Settled},
    store::sqlite::SqliteStore,
};
use testbed::Process;

pub(crate) const ROLE: &str = "ONCEWARD_TEST_ROLE";
pub(crate) const FILE: &str = "ONCEWARD_TEST_FILE";
const KEYS: u32 = 500;

fn request(number: u32) -> Request {
    let key = Key::new(&format!("key-{number}")).unwrap();
    let name = OperationName::new("pay").unwrap();
    Request {
        operation: OperationId::new(Scope::of("tenant", "acme").unwrap(), name, key),
        fingerprints: onceward::Fingerprint::from_parts(1, [1; 32]).into(),
        terms: Terms::of(Effect::External).build().unwrap(),
    }
}

fn answer(number: u32) -> Outcome {
    Outcome::inline(201, number.to_string().into_bytes())
}

fn child(role: &str, path: &Path) -> Process {
    child_of("processes::a_child_of_another_test", role, path)
}

/// Starts this program again; it runs this test alone, in that role.
pub(crate) fn child_of(test: &str, role: &str, path: &Path) -> Process {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    Process::start(command.env(ROLE, role).env(FILE, path)).unwrap()
}

/// What a child has for its parent; the test harness prints other lines, and may begin the first.
pub(crate) fn lines(child: &Process) -> impl Iterator<Item = String> {
    let lines = std::iter::from_fn(|| child.stdout.next_line().unwrap());
    lines.filter_map(|line| line.split_once("> ").map(|(_, said)| said.to_owned()))
}

pub(crate) fn say(line: impl std::fmt::Display) {
    let mut output = std::io::stdout().lock();
    // The parent may have killed the one it reads from; there is nobody left to tell.
    let _ = writeln!(output, "> {line}").and_then(|()| output.flush());
}

/// Does nothing unless another test has started this program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_of_another_test() {
    let (Ok(role), Ok(path)) = (env::var(ROLE), env::var(FILE)) else { return };
    let engine = match role.as_str() {
        "migrate" => {
            // Both children wait for the word, so that they migrate at the same moment.
            say("ready");
            std::io::stdin().lock().read_line(&mut String::new()).unwrap();
            Engine::new(SqliteStore::open(&path).unwrap())
        }
        _ => Engine::new(SqliteStore::open(&path).unwrap()),
    };
    match role.as_str() {
        "migrate" => say("migrated"),
        "claim" => claim_all(&engine).await,
        "write" => write_for_ever(&engine).await,
        other => panic!("no role {other}"),
    }
}

async fn claim_all(engine: &Engine) {
    let engine = Arc::new(engine.clone());
    let tasks = (0..KEYS).map(|number| {
        let engine = engine.clone();
        tokio::spawn(async move {
            match engine.admit(request(number)).await.unwrap() {
                Verdict::Run(_) => say(number),
                Verdict::Busy { .. } => {}
                other => panic!("{other:?}"),
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

/// Says what was acknowledged, and only then.
async fn write_for_ever(engine: &Engine) {
    let tasks = (0..32).map(|lane| {
        let engine = engine.clone();
        tokio::spawn(async move {
            for number in (lane..1_000_000).step_by(32) {
                let Ok(Verdict::Run(claim)) = engine.admit(request(number)).await else {
                    panic!("nobody else writes");
                };
                say(format_args!("claimed {number}"));
                let settled = engine.settle(claim, Ending::Succeeded(answer(number))).await;
                assert!(matches!(settled, Ok(Settled::Stored { .. })));
                say(format_args!("ended {number}"));
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

#[test]
fn two_processes_migrate_at_once() {
    for _ in 0..5 {
        let directory = testbed::directory();
        let path = directory.path().join("onceward.db");
        let children = [(); 3].map(|()| child("migrate", &path));
        for child in &children {
            assert_eq!(lines(child).next().as_deref(), Some("ready"));
        }
        for child in &children {
            child.tell("go");
        }
        for child in &children {
            assert_eq!(lines(child).next().as_deref(), Some("migrated"));
            assert!(child.wait_for_end().unwrap().success());
        }
        let connection = rusqlite::Connection::open(&path).unwrap();
        let applied: u32 = connection
            .query_row("SELECT count(*) FROM onceward_schema", (), |row| row.get(0))
            .unwrap();
        let known = SqliteStore::builder(&path).tables().unwrap().known;
        assert_eq!(applied, known, "each is applied once");
    }
}

#[test]
fn of_two_processes_one_runs_each_operation() {
    let directory = testbed::directory();
    let path = directory.path().join("onceward.db");
    let children = [(); 2].map(|()| child("claim", &path));
    let mut claimed: Vec<u32> = Vec::new();
    for child in &children {
        claimed.extend(lines(child).map(|line| line.parse::<u32>().unwrap()));
        assert!(child.wait_for_end().unwrap().success());
    }
    claimed.sort_unstable();
    assert_eq!(claimed, (0..KEYS).collect::<Vec<_>>(), "each exactly once");
}

/// What a process was told before it was killed is there, again and again on the same file.
#[tokio::test]
async fn what_was_acknowledged_survives_kill_9() {
    let directory = testbed::directory();
    for round in 0..5 {
        let path = directory.path().join(format!("{round}.db"));
        let child = child("write", &path);
        let mut told: Vec<String> = lines(&child).take(300 * (round + 1)).collect();
        child.kill().unwrap();
        told.extend(lines(&child).filter(|line| line.split(' ').count() == 2));

        let store = SqliteStore::open(&path).unwrap();
        for line in &told {
            let (word, number) = line.split_once(' ').unwrap();
            let Ok(number) = number.parse::<u32>() else { continue };
            let found = store.get(&request(number).operation.digest()).await.unwrap();
            let Found::Record(stored) = found else { panic!("`{line}` was told: {found:?}") };
            let expected: &[Status] = match word {
                "claimed" => &[Status::InProgress, Status::Succeeded],
                _ => &[Status::Succeeded],
            };
            assert!(expected.contains(&stored.status()), "`{line}`: {stored:?}");
        }
    }
}
