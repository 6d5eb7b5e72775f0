//! `onceward demo`, as a person or a script meets it: the real program, real sockets.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "gateway_support/command.rs"]
mod command;
mod demo_support;
#[path = "gateway_support/reply.rs"]
mod reply;

use std::{
    collections::HashMap,
    process::Stdio,
    time::{Duration, Instant},
};

use demo_support::{Curl, Demo, number};
use serde_json::Value;

#[test]
fn every_tap_is_charged_once_and_nothing_is_left_behind() {
    let ended = Demo::start(&["--once", "--seconds", "1", "--clients", "8"]).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let [taps, requests, executions, replays, conflicts, charges] =
        ["taps", "requests", "executions", "replays", "conflicts", "charges"]
            .map(|name| number(&ended.stdout, name));
    assert!(taps > 0 && requests > taps && replays > 0, "{ended:?}");
    assert_eq!((executions, charges), (taps, taps), "{ended:?}");
    assert!(conflicts < requests, "{ended:?}");
    assert!(ended.stdout.contains("Not one twice, not one lost."), "{ended:?}");
    assert!(!ended.stdout.contains('\x1b'), "no terminal, no control characters: {ended:?}");
    assert_eq!(ended.left_behind, 0, "the temporary directory is removed");
    assert_eq!(ended.still_running, [""; 0], "no gateway stays");
}

#[test]
fn a_gateway_is_killed_and_comes_back_as_another_process() {
    let demo = Demo::start(&["--json", "--seconds", "2", "--clients", "24"]);
    let killed = demo.listen("gateway B killed (process ");
    let is_there = |gateways: &[String], process: &str| {
        gateways.iter().any(|line| line.split(' ').next() == Some(process))
    };
    let process = killed.split_once("(process ").unwrap().1.split(',').next().unwrap();
    assert!(!is_there(&demo.gateways(), process), "{killed} {:?}", demo.gateways());
    demo.listen("# 5. ");
    let gateways = demo.gateways();
    demo.interrupt();
    let ended = demo.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");

    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    let next_process = document["kill"]["next_process"].to_string();
    assert_eq!(document["kill"]["process"].to_string(), process);
    assert!(gateways.len() == 2 && is_there(&gateways, &next_process), "{gateways:?}");
    assert!(document["kill"]["away_ms"].as_u64().unwrap() >= 1000, "{document}");
    let killed = format!(" s (process {process}) and back ");
    assert!(ended.stderr.contains(&killed), "{ended:?}");
    assert_eq!(document["charges"], document["taps"]);
    for name in ["left_by_the_kill", "broken_off", "otherwise"] {
        assert!(document["reconciled"][name].is_u64(), "{name} in {document}");
    }
}

#[test]
fn a_killed_demo_leaves_no_gateway_behind() {
    let demo = Demo::start(&["--once", "--seconds", "60"]);
    demo.read_until("  1 s: ", 0);
    assert_eq!(demo.gateways().len(), 2);
    demo.kill();
    let ended = demo.end();
    assert_eq!((ended.code, ended.still_running), (None, Vec::new()));
}

#[test]
fn settings_for_another_gateway_do_not_reach_those_of_the_demo() {
    let variables = [("ONCEWARD_UPSTREAM", "http://127.0.0.1:1"), ("ONCEWARD_LISTEN", "nowhere")];
    let ended = Demo::start_with(&["--once", "--seconds", "1"], &variables).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn without_onceward_the_same_taps_are_charged_twice_and_that_is_found() {
    let ended = Demo::start(&["--unprotected", "--seconds", "1"]).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(number(&ended.stdout, "charges") > number(&ended.stdout, "taps"), "{ended:?}");
    assert!(ended.stdout.contains("taps were charged more than once"), "{ended:?}");
    assert!(!ended.stdout.contains("Not one twice"), "{ended:?}");
}

#[test]
fn json_is_for_programs_and_the_rest_for_people() {
    let arguments = ["--once", "--json", "--seconds", "1", "--clients", "4", "--seed", "42"];
    let ended = Demo::start(&arguments).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&document["seed"], &document["protected"]), (&42.into(), &true.into()));
    assert_eq!(document["findings"], Value::Array(Vec::new()));
    let names = ["taps", "requests", "lost", "unready", "conflicts", "unknown", "refused"];
    for name in names.into_iter().chain(["replays", "executions", "charges"]) {
        assert_eq!(document[name], number(&ended.stderr, name), "{name} in {ended:?}");
    }
}

#[test]
fn what_it_says_to_try_works_until_it_is_interrupted() {
    let demo = Demo::start(&["--seconds", "1", "--clients", "4"]);
    let text = demo.read_until("# 5. ", 1);
    let curls = Curl::all(&text);
    assert_eq!(curls.len(), 5, "{text}");

    let first = curls[0].send();
    assert_eq!(first.status, 201, "{first:?}");
    assert!(!first.is_replay(), "{first:?}");

    assert_ne!(curls[0].server(), curls[1].server(), "the other gateway");
    let again = curls[1].send();
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert!(again.is_replay(), "{again:?}");

    let other_amount = curls[2].send();
    assert_eq!(other_amount.problem(), (422, "key-reused".into()), "{other_amount:?}");

    let status = curls[3].send();
    assert_eq!(status.status, 200, "{status:?}");
    assert_eq!(status.json()["operation"].as_str(), first.header("onceward-operation"));
    assert_eq!(
        (&status.json()["state"], &status.json()["status"]),
        (&"succeeded".into(), &201.into())
    );

    let charges = curls[4].send();
    assert_eq!(
        (&charges.json()["count"], &charges.json()["total_cents"]),
        (&1.into(), &500.into()),
        "{charges:?}"
    );
    assert_eq!(charges.json()["charges"][0], first.json());

    demo.interrupt();
    let ended = demo.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("Everything that ran is settled"), "{ended:?}");
    assert_eq!(ended.left_behind, 0, "the temporary directory is removed");
    assert_eq!(ended.still_running, [""; 0], "no gateway stays");
}

#[test]
fn nobody_is_served_who_does_not_say_who_is_calling() {
    let demo = Demo::start(&["--seconds", "1", "--clients", "1"]);
    let text = demo.read_until("# 5. ", 1);
    for mut curl in Curl::all(&text) {
        curl.headers =
            HashMap::from_iter(curl.headers.into_iter().filter(|(name, _)| name != "X-Api-Key"));
        assert_eq!(curl.send().status, 401, "{curl:?}");
    }
    demo.interrupt();
    assert_eq!(demo.end().code, Some(0));
}

#[test]
fn an_interrupted_demo_has_proven_nothing_and_says_so() {
    let begun = Instant::now();
    let demo = Demo::start(&["--once", "--seconds", "60"]);
    demo.read_until("  1 s: ", 0);
    demo.interrupt();
    let ended = demo.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("stopped before the end"), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(60), "it does not go on for its 60 s");
    assert_eq!(ended.left_behind, 0, "the temporary directory is removed");
    assert_eq!(ended.still_running, [""; 0], "no gateway stays");
}

#[test]
fn an_output_that_is_closed_is_a_clear_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = Demo::run_into(&["--once", "--seconds", "1"], Stdio::from(writer));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.starts_with("error: the output cannot be written"), "{ended:?}");
    assert_eq!((ended.left_behind, ended.still_running), (0, Vec::new()));
}
