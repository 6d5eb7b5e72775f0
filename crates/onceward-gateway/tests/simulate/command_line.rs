//! What a person or a program sees who types `onceward simulate`.

use std::{collections::BTreeSet, fs, sync::LazyLock};

use serde_json::Value;
use tempfile::TempDir;

use crate::command::Finished;
use crate::run::{LAYERS, METASTABLE, simulate};

/// A run with a seed of its own and charts, which is long enough to be made once for all tests.
static DRAWN: LazyLock<(Finished, TempDir)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let charts = directory.path().join("new/charts");
    let charts = charts.to_str().unwrap();
    (simulate(&["metastable", "--seed", "5", "--json", "--svg", charts]), directory)
});

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let [layers, again] = [0; 2].map(|_| simulate(&["layers", "--seed", "5", "--json"]));
    assert_eq!(layers.stdout, again.stdout);
    // That it also draws charts changes nothing.
    let metastable = simulate(&["metastable", "--seed", "5", "--json"]);
    assert_eq!(metastable.stdout, DRAWN.0.stdout);
}

#[test]
fn another_seed_gives_other_rows() {
    let metastable = DRAWN.0.json();
    assert_eq!(metastable["seed"], 5);
    assert_ne!(metastable["rows"].as_array().unwrap(), METASTABLE.all());
    let layers = simulate(&["layers", "--seed", "5", "--json"]).json();
    assert_eq!(layers["seed"], 5);
    assert_ne!(layers["rows"].as_array().unwrap(), LAYERS.all());
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
    let plain = simulate(&["layers"]);
    let words = &plain.stdout;
    for part in ["→ onceward", "plain retries", "243.00", "promised at most 1.2: held"] {
        assert!(words.contains(part), "no {part:?}: {words}");
    }
    let json = simulate(&["layers", "--json"]);
    // On a busy machine it says before that how far it is.
    assert!(json.stderr.ends_with(words), "{json}");
    json.json();
}

#[test]
fn charts_are_written_and_named() {
    let (output, directory) = &*DRAWN;
    let charts = directory.path().join("new/charts");
    assert!(output.is_success(), "{}", output.stderr);
    output.json();
    for name in ["metastable-load", "metastable-goodput", "metastable-latency"] {
        let path = charts.join(format!("{name}.svg"));
        assert!(output.stderr.contains(&format!("wrote {}", path.display())));
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
    let output = simulate(&["layers", "--svg", file.join("charts").to_str().unwrap()]);
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("was not written"), "{}", output.stderr);
}

#[test]
fn wrong_words_are_refused_with_what_is_right() {
    let unknown = simulate(&["contentoin"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.stderr.contains("'contention'"), "{}", unknown.stderr);
    let attempts = simulate(&["tail", "--attempts", "3"]);
    assert_eq!((attempts.code, attempts.stdout.len()), (2, 0));
    assert!(attempts.stderr.contains("leave --attempts out"));
    let service = simulate(&["layers", "--service-time"]);
    assert_eq!((service.code, service.stdout.len()), (2, 0));
    let help = simulate(&["--help"]).stdout;
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
