//! `onceward probe` as a process, and what it said.

use std::process::Command;

use serde_json::Value;

use crate::{
    gateway_support::{self, Finished},
    server::Server,
};

/// The two callers that the servers of these tests know.
pub(crate) const CALLERS: [&str; 2] = ["alice-secret", "bob-secret"];
pub(crate) const DATA: &str = r#"{"to": "ada", "cents": 500}"#;

/// Runs it with these arguments.
pub(crate) fn onceward_probe(arguments: &[&str]) -> Finished {
    Finished::of(&mut command(arguments))
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    gateway_support::command(&[&["probe"], arguments].concat())
}

/// A request for a payment, by two callers, as quickly as the machine can.
pub(crate) fn probe(url: &str, more: &[&str]) -> Finished {
    let credentials = CALLERS.map(|caller| format!("X-Api-Key: {caller}"));
    let mut arguments = vec![url, "--json", "--rate", "1000", "--patience", "3"];
    for credential in &credentials {
        arguments.extend(["--credential", credential]);
    }
    for usual in [["--data", DATA], ["--timeout", "10"]] {
        if !more.contains(&usual[0]) {
            arguments.extend(usual);
        }
    }
    arguments.extend(more);
    onceward_probe(&arguments)
}

/// The same, with the server's own count.
pub(crate) fn probe_counted(server: &Server, more: &[&str]) -> Finished {
    let count = server.url("/count");
    let counted = [&["--count-url", &count, "--count-json", "/total"], more].concat();
    probe(&server.url("/payments"), &counted)
}

/// What a probe has found.
impl Finished {
    pub(crate) fn checks(&self) -> Vec<Value> {
        self.json()["checks"].as_array().unwrap().clone()
    }

    /// The checks with this result.
    pub(crate) fn ids(&self, result: &str) -> Vec<String> {
        let checks = self.checks();
        let checks = checks.iter().filter(|check| check["result"] == result);
        checks.map(|check| check["id"].as_str().unwrap().to_owned()).collect()
    }

    /// These failures and no other, and an exit code that fits the worst of them.
    pub(crate) fn assert_fails(&self, what: &str, expected: &[&str]) {
        let failures: Vec<Value> =
            self.checks().into_iter().filter(|check| check["result"] == "fail").collect();
        let mut ids = self.ids("fail");
        let mut expected = expected.to_vec();
        ids.sort_unstable();
        expected.sort_unstable();
        assert_eq!(ids, expected, "{what}: {failures:#?}");
        let worst = failures.iter().map(|failure| match failure["severity"].as_str().unwrap() {
            "info" => 0,
            "minor" => 3,
            "major" => 4,
            "critical" => 5,
            other => panic!("{what}: a severity of {other}"),
        });
        let least = i32::from(self.json()["score"].is_null());
        assert_eq!(self.code, worst.max().unwrap_or(0).max(least), "{what}: {self}");
        for failure in &failures {
            for member in ["title", "detail", "harm", "fix"] {
                let text = failure[member].as_str().unwrap();
                assert!(!text.trim().is_empty(), "{what}: no {member} in {failure}");
            }
        }
    }

    /// No failure, the full score, and nothing skipped but these.
    pub(crate) fn assert_perfect(&self, what: &str, skipped: &[&str]) {
        self.assert_fails(what, &[]);
        assert_eq!(self.json()["score"], 100, "{what}");
        assert_eq!(self.ids("skip"), skipped, "{what}: {self}");
    }
}
