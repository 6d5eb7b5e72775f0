//! What a person or a program sees who types `onceward simulate`.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::run::{LAYERS, METASTABLE, onceward, text};

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_gives_others() {
    for scenario in ["layers", "metastable"] {
        let first = onceward(&[scenario, "--seed", "5", "--json"]);
        let again = onceward(&[scenario, "--seed", "5", "--json"]);
        assert_eq!(text(&first.stdout), text(&again.stdout));
        let other = onceward(&[scenario, "--seed", "6", "--json"]);
        assert_ne!(text(&first.stdout), text(&other.stdout));
        let seed = |output: &[u8]| serde_json::from_slice::<Value>(output).unwrap()["seed"].clone();
        assert_eq!((seed(&first.stdout), seed(&other.stdout)), (5.into(), 6.into()));
    }
}

#[test]
fn every_row_has_every_field_and_null_where_it_does_not_apply() {
    let expected: BTreeSet<&str> = "policy ours clients calls time_s failure_rate load success \
        recovery_s p999_ms extra amplification shift_ms"
        .split(' ')
        .filter(|word| !word.is_empty())
        .collect();
    for row in LAYERS.all().iter().chain(METASTABLE.all()) {
        let row = row.as_object().unwrap();
        let found: BTreeSet<&str> = row.keys().map(String::as_str).collect();
        assert!(found.is_superset(&expected), "{row:?}");
        assert_eq!(row["p999_ms"], Value::Null);
    }
}

#[test]
fn tables_are_for_people_and_give_way_to_json() {
    let plain = onceward(&["layers"]);
    let words = text(&plain.stdout);
    for part in ["→ onceward", "plain retries", "243.00", "promised at most 1.2: held"] {
        assert!(words.contains(part), "no {part:?}: {words}");
    }
    let json = onceward(&["layers", "--json"]);
    assert_eq!(text(&json.stderr), words);
    serde_json::from_slice::<Value>(&json.stdout).unwrap();
}

#[test]
fn charts_are_written_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let charts = directory.path().join("new/charts");
    let output = onceward(&["metastable", "--json", "--svg", charts.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice::<Value>(&output.stdout).unwrap();
    for name in ["metastable-load", "metastable-goodput", "metastable-latency"] {
        let path = charts.join(format!("{name}.svg"));
        assert!(text(&output.stderr).contains(&format!("wrote {}", path.display())));
        let svg = fs::read_to_string(&path).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{name}");
        let lines = svg.matches("class=\"line").count();
        // One on the paper and one in the legend for each policy.
        assert_eq!(lines, 2 * METASTABLE.all().len(), "{name}");
        assert!(svg.contains("prefers-color-scheme: dark") && !svg.contains("NaN"), "{name}");
    }
}

#[test]
fn a_directory_that_cannot_be_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let output = onceward(&["layers", "--svg", file.join("charts").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("was not written"), "{}", text(&output.stderr));
}

#[test]
fn wrong_words_are_refused_with_what_is_right() {
    let unknown = onceward(&["contentoin"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("'contention'"), "{}", text(&unknown.stderr));
    let attempts = onceward(&["tail", "--attempts", "3"]);
    assert_eq!((attempts.status.code(), attempts.stdout.len()), (Some(2), 0));
    assert!(text(&attempts.stderr).contains("leave --attempts out"));
    let service = onceward(&["layers", "--service-time"]);
    assert_eq!((service.status.code(), service.stdout.len()), (Some(2), 0));
    let help = text(&onceward(&["--help"]).stdout);
    for part in ["contention", "outage", "metastable", "tail", "layers", "--svg", "Examples:"] {
        assert!(help.contains(part), "no {part:?}: {help}");
    }
}

/// The page shows every chart that the scenarios draw, and no other.
#[test]
fn the_page_shows_the_charts() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let page = fs::read_to_string(format!("{root}/simulate.md")).unwrap();
    let shown: BTreeSet<String> = page
        .split("](charts/")
        .skip(1)
        .map(|rest| rest.split(')').next().unwrap().to_owned())
        .collect();
    let there: BTreeSet<String> = fs::read_dir(format!("{root}/charts"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(shown, there);
    assert_eq!(there.len(), 10, "{there:?}");
}
