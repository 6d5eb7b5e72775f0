//! `examples/scheduled_jobs`: several schedulers and relays, and the job of each slot of time runs once.

use std::path::Path;

use rusqlite::Connection;
use testbed::Process;

use crate::pages::{Example, has_python};

/// `None`, loudly, if this machine cannot run it.
fn example() -> Option<Example> {
    has_python("the example scheduled_jobs").then(|| Example::new("scheduled_jobs", &["3003"]))
}

/// A program of the example, run to its end: its status, and what it said.
fn python(example: &Example, arguments: &[&str]) -> (Option<i32>, String) {
    let process = Process::start(example.command("python3").arg("-B").args(arguments)).unwrap();
    let ended = process.wait_for_end().unwrap();
    let said = process.stdout.text();
    eprintln!("{arguments:?}: {ended}\n{said}{}", process.stderr.text());
    (ended.code(), said)
}

/// The number in a line of the ledger.
fn count(said: &str, what: &str) -> u32 {
    let line = said.lines().find_map(|line| line.strip_prefix(what)).expect("the ledger says it");
    let number: String = line.trim_start().chars().take_while(char::is_ascii_digit).collect();
    number.parse().unwrap()
}

/// The page ends everything at once, and schedulers look ahead: what was due after that did not run.
fn forget_what_is_due_without_a_relay(example: &Example) {
    let file = Connection::open(example.file("schedule.db")).unwrap();
    let runs = example.file("runs.db");
    file.execute("ATTACH ?1 AS worker", [runs.to_str().unwrap()]).unwrap();
    let oldest = "SELECT min(slot) FROM attempt WHERE slot NOT IN (SELECT slot FROM worker.run)";
    let oldest: i64 = file.query_row(oldest, [], |row| row.get(0)).unwrap();
    for table in ["attempt", "worker.run"] {
        file.execute(&format!("DELETE FROM {table} WHERE slot >= ?1"), [oldest]).unwrap();
    }
}

fn change(file: &Path, statement: &str) {
    let changed = Connection::open(file).unwrap().execute(statement, []).unwrap();
    assert_eq!(changed, 1, "{statement}");
}

#[test]
fn the_page_says_what_happens_and_the_ledger_is_right() {
    let Some(example) = example() else { return };
    let said = example.walk_readme(&[]);
    let (_, run) = said.rsplit_once("kill -9 relay 2").unwrap();
    assert!(count(run, "refused") > 0, "schedulers that never met prove nothing");
    assert!(count(run, "repeats") > 0, "a run in which nothing was repeated proves nothing");
    forget_what_is_due_without_a_relay(&example);
    let ledger = || python(&example, &["ledger.py", "schedule.db", "runs.db", "1000"]);
    let change = |statement: &str| change(&example.file("runs.db"), statement);
    assert_eq!(ledger().0, Some(0));
    // Every mistake that the example is there to avoid, in what the page has left.
    let assert_found = |mistake: &str, found: &str| {
        change(mistake);
        let (status, said) = ledger();
        assert_eq!(status, Some(1), "{mistake}: {said}");
        assert!(said.contains(found), "{mistake}: {said}");
    };
    assert_found(
        "INSERT INTO run SELECT slot, ran_at FROM run WHERE rowid = (SELECT min(rowid) FROM run)",
        "ran 2 times",
    );
    change("DELETE FROM run WHERE rowid = (SELECT max(rowid) FROM run)");
    assert_found("INSERT INTO run VALUES (5000, 5000)", "slot 5000 was never scheduled");
    change("DELETE FROM run WHERE slot = 5000");
    let oldest = "WHERE slot = (SELECT min(slot) FROM run)";
    assert_found(&format!("UPDATE run SET ran_at = ran_at - 60000 {oldest}"), "too soon");
    change(&format!("UPDATE run SET ran_at = ran_at + 60000 {oldest}"));
    assert_eq!(ledger().0, Some(0), "all is mended");
    assert_found(&format!("DELETE FROM run {oldest}"), "ran 0 times");
}

/// The run kills relays, and a worker whose receipts are worth nothing is found out.
#[test]
fn a_worker_that_forgets_is_found_out() {
    let Some(example) = example() else { return };
    let file = example.file("worker.py");
    let text = std::fs::read_to_string(&file).unwrap();
    let receipt = "is_new = db.execute(RECEIPT";
    assert!(text.contains(receipt));
    std::fs::write(&file, text.replace(receipt, "is_new = True or db.execute(RECEIPT")).unwrap();
    let (status, said) = python(&example, &["run.py", "12"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("ran 2 times") && said.ends_with("the ledger is wrong\n"), "{said}");
}

/// The statement of the worker is that of the documentation.
#[test]
fn the_receipt_is_that_of_the_page() {
    let page = include_str!("../../../../../docs/messages.md");
    let worker = include_str!("../../../../../examples/scheduled_jobs/worker.py");
    let (_, receipt) = worker.split_once("RECEIPT = \"\"\"\n").unwrap();
    let (receipt, _) = receipt.split_once("\"\"\"").unwrap();
    assert!(page.contains(receipt), "{receipt}");
}
