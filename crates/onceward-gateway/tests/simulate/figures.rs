//! The published studies: what we promise, and that the policies beside us come out as published.

use serde_json::Value;

use crate::run::{CONTENTION, LAYERS, METASTABLE, OUTAGE, Rows, TAIL, number};

/// Within a part of what was published.
fn assert_about(row: &Value, field: &str, published: f64, part: f64) {
    let value = number(row, field);
    assert!((value - published).abs() <= published * part, "{published} expected: {row}");
}

#[test]
fn contention_of_100_clients_takes_at_most_800_calls_and_5_s() {
    let ours = CONTENTION.ours_at("clients", 100.0);
    assert!(number(ours, "calls") <= 800.0, "{ours}");
    assert!(number(ours, "time_s") <= 5.0, "{ours}");
}

#[test]
fn contention_comes_out_as_published_for_the_others() {
    for (policy, calls, seconds) in
        [("equal jitter", 805.0, 6.6), ("decorrelated", 995.0, 4.6), ("onceward", 794.0, 4.9)]
    {
        let row = CONTENTION.at(policy, "clients", 100.0);
        assert_about(row, "calls", calls, 0.03);
        assert_about(row, "time_s", seconds, 0.05);
    }
    assert_about(CONTENTION.at("no backoff", "clients", 100.0), "calls", 2398.0, 0.03);
    // Without jitter the crowd marches in step, and tower's calls jitter alike: ten times as slow.
    for policy in ["exponential", "tower"] {
        let row = CONTENTION.at(policy, "clients", 100.0);
        assert!(number(row, "time_s") > 50.0 && number(row, "calls") > 1600.0, "{row}");
    }
    let clients: Vec<f64> = CONTENTION.ours().iter().map(|row| number(row, "clients")).collect();
    let expected: Vec<f64> = (1..=19).map(|tens| f64::from(tens * 10)).collect();
    assert_eq!(clients, expected);
}

#[test]
fn outage_costs_at_most_2_percent_and_one_in_ten_failures_are_healed() {
    let down = OUTAGE.ours_at("failure_rate", 1.0);
    assert!(number(down, "load") <= 1.02, "{down}");
    assert_eq!(number(down, "success"), 0.0, "{down}");
    let tenth = OUTAGE.ours_at("failure_rate", 0.1);
    assert!(number(tenth, "success") >= 0.9998, "{tenth}");
}

#[test]
fn outage_comes_out_as_published_for_the_others() {
    for (policy, load) in [
        ("no retries", 1.0),
        ("plain retries", 4.0),
        ("tower", 2.0),
        ("AWS 2.0", 1.17),
        ("AWS 2.1", 1.06),
        ("gRPC", 1.01),
    ] {
        assert_about(OUTAGE.at(policy, "failure_rate", 1.0), "load", load, 0.01);
    }
    assert_about(OUTAGE.at("gRPC", "failure_rate", 0.1), "success", 0.947, 0.01);
    for policy in ["plain retries", "Finagle", "tower", "AWS 2.0", "AWS 2.1", "tower-resilience"] {
        let row = OUTAGE.at(policy, "failure_rate", 0.1);
        assert!(number(row, "success") > 0.9995, "{row}");
    }
}

#[test]
fn metastable_recovers_within_a_second_and_loses_little() {
    let ours = METASTABLE.ours();
    assert_eq!(ours.len(), 1, "{ours:?}");
    assert_eq!(ours[0]["recovered"], true, "{}", ours[0]);
    assert!(number(ours[0], "recovery_s") <= 1.0, "{}", ours[0]);
    assert!(number(ours[0], "success") >= 0.92, "{}", ours[0]);
}

#[test]
fn metastable_comes_out_as_published_for_the_others() {
    for policy in ["plain retries", "Finagle", "tower", "tower-resilience"] {
        let row = METASTABLE.of_policy(policy);
        assert_eq!((&row["recovered"], &row["recovery_s"]), (&false.into(), &Value::Null), "{row}");
        assert!(number(row, "success") < 0.1, "{row}");
    }
    for (policy, recovery, success) in [("no retries", 44.0, 0.54), ("AWS 2.1", 69.0, 0.33)] {
        let row = METASTABLE.of_policy(policy);
        assert_about(row, "recovery_s", recovery, 0.15);
        assert_about(row, "success", success, 0.25);
    }
    // Without the server's help we recover as well, but not within a second: the row says so.
    let alone = METASTABLE.of_policy("onceward, no drop");
    assert!(number(alone, "recovery_s") > 1.0 && alone["recovered"] == true, "{alone}");
}

/// Nothing is promised for a server whose work takes time, but this much is so: nobody who retries, or
/// does not, fares better without the server's help.
#[test]
fn metastable_with_service_time_is_harder_and_still_ends() {
    let rows = Rows::of(&["metastable", "--service-time"]);
    let ours = rows.of_policy("onceward");
    assert!(ours["recovered"] == true && number(ours, "recovery_s") < 15.0, "{ours}");
    assert!(
        number(ours, "success") < number(METASTABLE.of_policy("onceward"), "success"),
        "{ours}"
    );
    for policy in ["plain retries", "tower", "AWS 2.1", "no retries", "gRPC"] {
        let row = rows.of_policy(policy);
        assert!(number(row, "success") < number(ours, "success") - 0.2, "{row}");
    }
}

#[test]
fn tail_is_twenty_times_lower_for_few_extra_requests() {
    let without = TAIL.at("no hedges", "shift_ms", 0.0);
    let ours = TAIL.ours_at("shift_ms", 0.0);
    assert!(number(without, "p999_ms") >= 20.0 * number(ours, "p999_ms"), "{without} {ours}");
    assert!(number(ours, "extra") <= 0.025, "{ours}");
    assert!(number(ours, "extra") > 0.02, "nearly every late answer is hedged: {ours}");
    let shifted = TAIL.ours_at("shift_ms", 200.0);
    assert!(number(shifted, "extra") <= 0.05, "{shifted}");
    // What nothing bounds doubles the load, at least for a while.
    assert!(number(TAIL.at("tower", "shift_ms", 200.0), "extra_worst_10s") > 0.9);
    assert!(number(TAIL.at("tower-resilience", "shift_ms", 200.0), "extra") > 1.0);
}

#[test]
fn five_layers_do_not_multiply() {
    let ours = LAYERS.ours();
    assert_eq!(ours.len(), 1, "{ours:?}");
    let times = number(ours[0], "amplification");
    assert!(times > 0.0 && times <= 1.2, "{}", ours[0]);
    assert_eq!(number(LAYERS.of_policy("plain retries"), "amplification"), 243.0);
    assert_eq!(number(LAYERS.of_policy("no retries"), "amplification"), 1.0);
}

/// Promises do not hang on one seed.
#[test]
#[ignore = "long: thirty runs of the simulator"]
fn the_figures_hold_for_other_seeds() {
    for seed in ["2", "3", "4", "5", "6", "7"] {
        let of = |scenario: &str| Rows::of(&[scenario, "--seed", seed]);
        let contention = of("contention");
        let ours = contention.ours_at("clients", 100.0);
        assert!(number(ours, "calls") <= 800.0 && number(ours, "time_s") <= 5.0, "{seed}: {ours}");
        let outage = of("outage");
        assert!(number(outage.ours_at("failure_rate", 1.0), "load") <= 1.02, "{seed}");
        assert!(number(outage.ours_at("failure_rate", 0.1), "success") >= 0.9998, "{seed}");
        let metastable = of("metastable");
        let ours = metastable.of_policy("onceward");
        assert!(number(ours, "recovery_s") <= 1.0, "{seed}: {ours}");
        assert!(number(ours, "success") >= 0.92, "{seed}: {ours}");
        let tail = of("tail");
        let (without, ours) =
            (tail.at("no hedges", "shift_ms", 0.0), tail.ours_at("shift_ms", 0.0));
        assert!(number(without, "p999_ms") >= 20.0 * number(ours, "p999_ms"), "{seed}: {ours}");
        assert!(number(ours, "extra") <= 0.025, "{seed}: {ours}");
        assert!(number(tail.ours_at("shift_ms", 200.0), "extra") <= 0.05, "{seed}");
        assert!(number(of("layers").of_policy("onceward"), "amplification") <= 1.2, "{seed}");
    }
}
