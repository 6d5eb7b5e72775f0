//! HTTP/2 as h2spec asks for it, frame by frame.

use std::{fs, process::Stdio};

use tokio::{process::Command, time::timeout};

use crate::{
    gateway_support::{Gateway, TEST_TIMEOUT, Upstream, route},
    installed,
};

/// Whose connection does not begin as HTTP/2 does gets an answer of HTTP/1.1, with which it is closed:
/// both are spoken on one port.
const ANSWERED: &str = "Sends invalid connection preface";

#[tokio::test]
#[ignore = "long: compiles h2spec"]
async fn h2spec_finds_nothing_but_that_http_1_is_spoken_too() {
    let package = "github.com/summerwind/h2spec/cmd/h2spec";
    let Some(program) = installed::go("h2spec/go", package, "h2spec") else {
        eprintln!("SKIPPED: h2spec: there is no go on this machine");
        return;
    };
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    let report = gateway.directory.path().join("report.xml");
    let mut command = Command::new(program);
    command.args(["--host", &gateway.address.ip().to_string(), "--timeout", "10"]);
    command.args(["--port", &gateway.address.port().to_string(), "--junit-report"]).arg(&report);
    command.stdout(Stdio::null()).kill_on_drop(true);
    // It fails, because of the one.
    timeout(TEST_TIMEOUT, command.status()).await.expect("h2spec hangs").unwrap();
    let report = fs::read_to_string(report).unwrap();
    let cases: Vec<&str> = report.split("<testcase ").skip(1).collect();
    let wrong = cases.iter().filter(|case| case.contains("<error>") || case.contains("<failure"));
    let wrong: Vec<_> = wrong.collect();
    assert!(cases.len() > 140, "{report}");
    assert!(wrong.iter().all(|case| case.contains(ANSWERED)), "{wrong:#?}");
    gateway.assert_well();
}
