//! The operating guide, held against what there is.

const GUIDE: &str = include_str!("../../../../../docs/operating.md");
const METRICS: &str = include_str!("../../../../../docs/metrics.md");

/// What begins like a metric and is a view.
const VIEW: &str = "onceward_operations";

/// The words of a text that begin like a metric.
fn metrics(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|word| word.starts_with("onceward_") && *word != VIEW)
}

#[test]
fn its_alerts_name_only_metrics_that_exist() {
    let known: Vec<_> = metrics(METRICS).collect();
    let named: Vec<_> = metrics(GUIDE).collect();
    assert!(named.len() > 15, "{named:?}");
    for name in named {
        assert!(known.contains(&name.trim_end_matches("_bucket")), "{name}");
    }
}

#[test]
fn its_alarms_are_those_that_are_raised() {
    let (_, table) = GUIDE.split_once("## Alerts").unwrap();
    let rows = table.lines().skip_while(|line| !line.starts_with("| event")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let mut named: Vec<_> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    let counted = onceward::telemetry::prometheus();
    let counted = counted.lines().filter(|line| line.starts_with("onceward_alarms_total{"));
    let mut raised: Vec<_> = counted.filter_map(|line| line.split('"').nth(1)).collect();
    named.sort_unstable();
    raised.sort_unstable();
    assert_eq!(named, raised);
}
