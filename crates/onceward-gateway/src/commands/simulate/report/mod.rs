//! Tables for people: what is to be seen, what the study says, and whether we hold what we promise.

mod published;

use std::fmt::Write as _;

use super::{Options, Scenario, row::Row};
use crate::commands::terminal::columns;
use published::study;

pub(super) fn words(options: &Options, rows: &[Row]) -> String {
    let scenario = options.scenario;
    let (title, observation) = heading(scenario);
    let mut words = format!("{title} (seed {})\n{observation}\n\n", options.seed);
    let table = match scenario {
        Scenario::Contention => contention(rows),
        Scenario::Outage => outage(rows),
        Scenario::Metastable => metastable(rows),
        Scenario::Tail => tail(rows),
        Scenario::Layers => layers(rows),
    };
    words.push_str(&table.text());
    words.push('\n');
    for promise in promises(scenario, options.attempts, rows) {
        let verdict = if promise.held { "held" } else { "MISSED" };
        write!(words, "\n{}: {verdict}", promise.words).expect("text takes whatever is written");
    }
    words.push('\n');
    if options.service_time {
        words.push_str(WITH_SERVICE_TIME);
    }
    words
}

/// What is said below a verdict that was not promised.
const WITH_SERVICE_TIME: &str = "
Our figures are promised for a server that answers when a request's turn comes; here its work takes time
as well. A queue that drops only what has expired then serves what is about to expire: hardly anything
succeeds during the brown-out, some breakers open, and they stay open for some seconds after it.
";

fn heading(scenario: Scenario) -> (&'static str, &'static str) {
    match scenario {
        Scenario::Contention => (
            "contention: clients that write the same row, each until it has won",
            "Without chance in the waits clients collide again and again; full jitter needs few calls and little time.",
        ),
        Scenario::Outage => (
            "outage: 100 clients, 10 requests a second each, some attempts fail",
            "A retry helps where few attempts fail; where all fail it is only load, and a budget must end it.",
        ),
        Scenario::Metastable => (
            "metastable: 850 of 1,000 requests a second, 10 s at a fifth of the capacity",
            "The server is whole again after 10 s; clients that keep it busy with requests for which none waits any more stay down.",
        ),
        Scenario::Tail => (
            "tail: one answer in forty takes 0.2 to 2 s, the others about 8 ms",
            "A second request after a while overtakes the late one; when every answer becomes late, it must not double the load.",
        ),
        Scenario::Layers => (
            "layers: five services, one behind the other, on a dead backend",
            "Retries of layers multiply, unless each layer stops when it cannot help and leaves a retry to the layer that made it.",
        ),
    }
}

/// The policy comes first, the numbers then, and the study last.
struct Table(Vec<Vec<String>>);

impl Table {
    fn new(numbers: &[&str]) -> Self {
        let head = ["policy"].iter().chain(numbers).chain(&[" study"]);
        Self(vec![head.map(|name| (*name).to_owned()).collect()])
    }

    fn add(
        &mut self,
        policy: &str,
        ours: bool,
        numbers: impl IntoIterator<Item = String>,
        study: &str,
    ) {
        let mark = if ours { "→ " } else { "  " };
        let (policy, study) = (format!("{mark}{policy}"), format!(" {study}"));
        self.0.push([policy].into_iter().chain(numbers).chain([study]).collect());
    }

    fn text(&self) -> String {
        columns(&self.0, 1..self.0[0].len() - 1)
    }
}

fn contention(rows: &[Row]) -> Table {
    let mut table = Table::new(&["calls, n = 10", "50", "100", "190", "seconds, n = 100", "190"]);
    for policy in policies(rows) {
        let at = |clients| find(rows, |row| row.policy == policy && row.clients == Some(clients));
        let calls = [10, 50, 100, 190].map(|clients| number(at(clients).calls, 0));
        let times = [100, 190].map(|clients| number(at(clients).time_s, 1));
        let cells = calls.into_iter().chain(times);
        table.add(policy, at(100).ours, cells, study("contention", policy));
    }
    table
}

fn outage(rows: &[Row]) -> Table {
    let columns = ["load at 10 %", "50 %", "100 %", "success at 10 %", "50 %"];
    let mut table = Table::new(&columns);
    for policy in policies(rows) {
        let at = |rate| find(rows, |row| row.policy == policy && row.failure_rate == Some(rate));
        let loads = [0.1, 0.5, 1.0].map(|rate| number(at(rate).load, 2));
        let successes = [number(at(0.1).success, 5), number(at(0.5).success, 3)];
        let cells = loads.into_iter().chain(successes);
        table.add(policy, at(0.1).ours, cells, study("outage", policy));
    }
    table
}

fn metastable(rows: &[Row]) -> Table {
    let mut table = Table::new(&["recovery, s", "success", "worst second after", "load"]);
    for row in rows {
        let recovery = match row.recovered {
            Some(false) => "never".to_owned(),
            _ => number(row.recovery_s, 1),
        };
        let cells = [recovery, number(row.success, 3), number(row.goodput, 3), number(row.load, 2)];
        table.add(&row.policy, row.ours, cells, study("metastable", &row.policy));
    }
    table
}

fn tail(rows: &[Row]) -> Table {
    let columns = ["p99.9, ms", "extra, %", "+200 ms: p99.9", "extra, %", "in the worst 10 s"];
    let mut table = Table::new(&columns);
    for policy in policies(rows) {
        let at = |shift| find(rows, |row| row.policy == policy && row.shift_ms == Some(shift));
        let percent = |share: Option<f64>| number(share.map(|share| share * 100.0), 2);
        let (calm, shifted) = (at(0.0), at(200.0));
        let cells = [
            number(calm.p999_ms, 0),
            percent(calm.extra),
            number(shifted.p999_ms, 0),
            percent(shifted.extra),
            percent(shifted.extra_worst_10s),
        ];
        table.add(policy, calm.ours, cells, study("tail", policy));
    }
    table
}

fn layers(rows: &[Row]) -> Table {
    let mut table = Table::new(&["requests to the backend for each"]);
    for row in rows {
        let cells = [number(row.amplification, 2)];
        table.add(&row.policy, row.ours, cells, study("layers", &row.policy));
    }
    table
}

/// What we promise of ourselves, and whether it is so in these rows.
struct Promise {
    words: String,
    held: bool,
}

fn promises(scenario: Scenario, attempts: Option<u32>, rows: &[Row]) -> Vec<Promise> {
    let mut promises = Vec::new();
    let mut promise = |value: Option<f64>, places, what: &str, bound: &str, held: bool| {
        let words = format!("onceward: {} {what}; promised {bound}", number(value, places));
        promises.push(Promise { words, held });
    };
    let ours = |of: &dyn Fn(&Row) -> bool| find(rows, |row| row.ours && of(row));
    match scenario {
        Scenario::Contention => {
            let row = ours(&|row| row.clients == Some(100));
            promise(row.calls, 0, "calls of 100 clients", "at most 800", most(row.calls, 800.0));
            promise(row.time_s, 2, "s", "at most 5", most(row.time_s, 5.0));
        }
        Scenario::Outage => {
            let down = ours(&|row| row.failure_rate == Some(1.0));
            let what = "attempts for each request at 100 % failure";
            promise(down.load, 2, what, "at most 1.02", most(down.load, 1.02));
            let success = ours(&|row| row.failure_rate == Some(0.1)).success;
            if let Some((bound, least)) = match attempts {
                None | Some(4) => Some(("at least 0.9998", 0.9998)),
                Some(3) => Some(("at least 0.998", 0.998)),
                Some(_) => None,
            } {
                let held = success.is_some_and(|success| success >= least);
                promise(success, 5, "succeed at 10 % failure", bound, held);
            }
        }
        Scenario::Metastable => {
            let row = ours(&|_| true);
            let held = row.recovered == Some(true) && most(row.recovery_s, 1.0);
            promise(row.recovery_s, 1, "s to recover", "at most 1", held);
            let held = row.success.is_some_and(|success| success >= 0.92);
            promise(row.success, 3, "succeed over the run", "at least 0.92", held);
        }
        Scenario::Tail => {
            let calm = |ours: bool| {
                find(rows, |row| {
                    row.shift_ms == Some(0.0)
                        && (row.ours == ours)
                        && (ours || row.extra == Some(0.0))
                })
            };
            let (without, with) = (calm(false), calm(true));
            let times = without.p999_ms.zip(with.p999_ms).map(|(without, with)| without / with);
            let held = times.is_some_and(|times| times >= 20.0);
            promise(times, 0, "times lower at p99.9", "at least 20", held);
            let percent = |row: &Row| row.extra.map(|share| share * 100.0);
            let extra = percent(&with);
            promise(extra, 2, "% extra", "at most 2.5", most(extra, 2.5));
            let extra = percent(&ours(&|row| row.shift_ms == Some(200.0)));
            promise(extra, 2, "% extra when all is 200 ms later", "at most 5", most(extra, 5.0));
        }
        Scenario::Layers => {
            let times = ours(&|_| true).amplification;
            promise(times, 2, "requests to the backend for each", "at most 1.2", most(times, 1.2));
        }
    }
    promises
}

fn most(value: Option<f64>, most: f64) -> bool {
    value.is_some_and(|value| value <= most)
}

fn find(rows: &[Row], of: impl Fn(&Row) -> bool) -> Row {
    rows.iter().find(|row| of(row)).cloned().unwrap_or_default()
}

/// Each once, in the order in which they come.
fn policies(rows: &[Row]) -> Vec<&str> {
    let mut policies: Vec<&str> = Vec::new();
    for row in rows {
        if !policies.contains(&row.policy.as_str()) {
            policies.push(&row.policy);
        }
    }
    policies
}

fn number(value: Option<f64>, places: usize) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.places$}"))
}
