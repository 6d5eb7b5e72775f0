//! Our own gateway has the full score.

use std::thread;

use crate::{
    gateway_support::{Certificates, Finished, Gateway, Plan, Upstream, route},
    run::{command, probe},
};

/// The upstream takes a moment, and answers with bytes that are no text.
const TOLD: &str =
    r#"x-do: {"delay": 0.03, "size": 300, "headers": [["link", "<a>"], ["link", "<b>"]]}"#;

fn assert_perfect(profile: &str, lines: &str, skipped: &[&str]) {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(lines));
    let url = format!("http://{}/pay", gateway.address);
    let count = format!("{}/count", upstream.url());
    let counted = ["--count-url", &count, "--count-json", "/total", "--header", TOLD];
    let probed = probe(&url, &[&counted[..], &["--profile", profile]].concat());
    // No request fails there.
    probed.assert_perfect(lines, &[skipped, &["error-status"]].concat());
}

#[test]
fn the_gateway_has_the_full_score_in_every_profile() {
    thread::scope(|scope| {
        for (profile, lines, skipped) in [
            ("onceward", "", &["retry-after"][..]),
            ("onceward", "in_flight = \"conflict\"", &[]),
            ("onceward", "in_flight = \"accepted\"", &[]),
            ("onceward", "max_request = \"8MiB\"", &["retry-after"]),
            ("onceward", "key = \"required\"\nin_flight = \"conflict\"", &[]),
            ("ietf", "", &[]),
            ("stripe", "profile = \"stripe\"", &[]),
        ] {
            scope.spawn(move || assert_perfect(profile, lines, skipped));
        }
    });
}

#[test]
fn the_gateway_has_the_full_score_where_duplicates_wait() {
    let wait = "in_flight = \"wait\"\nwait = \"10s\"";
    let stripe = format!("{wait}\nprofile = \"stripe\"");
    thread::scope(|scope| {
        scope.spawn(|| assert_perfect("onceward", wait, &["retry-after"]));
        scope.spawn(|| assert_perfect("ietf", wait, &[]));
        scope.spawn(|| assert_perfect("stripe", &stripe, &[]));
    });
}

#[test]
fn an_api_with_tls_is_probed_if_its_certificate_is_trusted() {
    let upstream = Upstream::any();
    let text = format!("[tls]\ncert = \"server.pem\"\nkey = \"server.key\"\n{}", route(""));
    let plan = Plan::new(&upstream.url(), &text);
    let directory = plan.directory.clone();
    if Certificates::make(directory.path(), &[]).is_none() {
        return;
    }
    let gateway = plan.start();
    let url = format!("https://{}/pay", gateway.address);
    let arguments = [&url, "--data", "{}", "--credential", "X-Api-Key: a", "--only", "once"];
    let authority = directory.path().join("ca.pem");
    let trusting = Finished::of(command(&arguments).env("SSL_CERT_FILE", authority));
    assert_eq!(trusting.code, 0, "{trusting}");
    let wary =
        Finished::of(command(&arguments).env("SSL_CERT_FILE", directory.path().join("none")));
    assert_eq!(wary.code, 1, "{wary}");
    assert!(wary.stderr.contains("https://") && wary.stdout.is_empty(), "{wary}");
}
