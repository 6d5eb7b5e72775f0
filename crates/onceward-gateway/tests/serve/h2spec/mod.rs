//! HTTP/2 as h2spec asks for it, frame by frame.

use std::{fs, process::Stdio};

use tokio::{process::Command, time::timeout};

use crate::{
    gateway_support::{Gateway, TEST_TIMEOUT, Upstream, route},
    installed,
};

/// How many rules this version of h2spec asks for.
const RULES: usize = 145;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2spec_finds_nothing_to_complain_about() {
    let go = installed::tools().join("go");
    let known = fs::read_to_string(go.join("h2spec.txt")).unwrap_or_default();
    if known != include_str!("go/go.sum") {
        eprintln!("SKIPPED: h2spec is not here; `cargo xtask test` installs it where there is go");
        return;
    }
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    let report = gateway.directory.path().join("report.xml");
    let mut command = Command::new(go.join("bin/h2spec"));
    command.args(["--host", &gateway.address.ip().to_string(), "--timeout", "10"]);
    command.args(["--port", &gateway.address.port().to_string(), "--junit-report"]).arg(&report);
    command.stdout(Stdio::null()).kill_on_drop(true);
    let ended = timeout(TEST_TIMEOUT, command.status()).await.expect("h2spec hangs").unwrap();
    let report = fs::read_to_string(report).unwrap();
    let cases: Vec<&str> = report.split("<testcase ").skip(1).collect();
    let is_wrong =
        |case: &&&str| ["<error>", "<failure", "<skipped"].iter().any(|it| case.contains(it));
    let wrong: Vec<_> = cases.iter().filter(is_wrong).collect();
    assert!(ended.success() && wrong.is_empty(), "{wrong:#?}");
    assert_eq!(cases.len(), RULES, "{report}");
    gateway.assert_well();
}
