//! `onceward simulate` as a process, and what it printed.

use std::sync::LazyLock;

use serde_json::Value;

use crate::command::{Finished, run};

pub(crate) fn simulate(arguments: &[&str]) -> Finished {
    run(&[&["simulate"], arguments].concat())
}

/// The rows of one run.
pub(crate) struct Rows(Vec<Value>);

/// Each scenario runs once for all tests of this program.
pub(crate) static CONTENTION: LazyLock<Rows> = LazyLock::new(|| Rows::of(&["contention"]));
pub(crate) static OUTAGE: LazyLock<Rows> = LazyLock::new(|| Rows::of(&["outage"]));
pub(crate) static OUTAGE_OF_3: LazyLock<Rows> =
    LazyLock::new(|| Rows::of(&["outage", "--attempts", "3"]));
pub(crate) static METASTABLE: LazyLock<Rows> = LazyLock::new(|| Rows::of(&["metastable"]));
pub(crate) static TAIL: LazyLock<Rows> = LazyLock::new(|| Rows::of(&["tail"]));
pub(crate) static LAYERS: LazyLock<Rows> = LazyLock::new(|| Rows::of(&["layers"]));

impl Rows {
    pub(crate) fn of(arguments: &[&str]) -> Self {
        let output = simulate(&[arguments, &["--json"]].concat());
        assert!(output.is_success(), "{}", output.stderr);
        let document = output.json();
        assert_eq!(document["scenario"], arguments[0]);
        Self(document["rows"].as_array().unwrap().clone())
    }

    pub(crate) fn all(&self) -> &[Value] {
        &self.0
    }

    /// The row of a policy, where this field has this value.
    pub(crate) fn at(&self, policy: &str, field: &str, value: f64) -> &Value {
        let of = |row: &&Value| row["policy"] == policy && row[field].as_f64() == Some(value);
        self.0.iter().find(of).unwrap_or_else(|| panic!("{policy} has no {field} {value}"))
    }

    /// The only row of a policy.
    pub(crate) fn of_policy(&self, policy: &str) -> &Value {
        let rows: Vec<_> = self.0.iter().filter(|row| row["policy"] == policy).collect();
        assert_eq!(rows.len(), 1, "{policy}: {rows:?}");
        rows[0]
    }

    /// The rows that are marked as ours.
    pub(crate) fn ours(&self) -> Vec<&Value> {
        self.0.iter().filter(|row| row["ours"] == true).collect()
    }

    pub(crate) fn ours_at(&self, field: &str, value: f64) -> &Value {
        let ours = self.at("onceward", field, value);
        assert_eq!(ours["ours"], true);
        ours
    }
}

/// A number of a row, which must be there.
pub(crate) fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("no {field}: {row}"))
}
