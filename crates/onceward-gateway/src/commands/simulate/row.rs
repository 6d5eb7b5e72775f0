//! What a run gave: one row for each policy and setting.

use serde::Serialize;

/// A field that does not apply is null in JSON and left out for people.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    pub(super) policy: String,
    /// The shipped code as a whole: rules, client and server half.
    pub(super) ours: bool,
    pub(super) clients: Option<u32>,
    pub(super) calls: Option<f64>,
    pub(super) time_s: Option<f64>,
    pub(super) failure_rate: Option<f64>,
    pub(super) load: Option<f64>,
    pub(super) success: Option<f64>,
    /// Null also where the server never recovered; `recovered` tells the two apart.
    pub(super) recovery_s: Option<f64>,
    pub(super) recovered: Option<bool>,
    /// Of the arrivals from one second after the trigger on, the share that succeeded, at its worst.
    pub(super) goodput: Option<f64>,
    pub(super) p999_ms: Option<f64>,
    /// Requests sent on top, as a share: 0.025 is 2.5 %.
    pub(super) extra: Option<f64>,
    /// The same in the worst ten seconds.
    pub(super) extra_worst_10s: Option<f64>,
    pub(super) amplification: Option<f64>,
    pub(super) shift_ms: Option<f64>,
}

impl Row {
    pub(super) fn new(policy: &str, ours: bool) -> Self {
        Self { policy: policy.to_owned(), ours, ..Self::default() }
    }
}

pub(super) struct Findings {
    pub(super) rows: Vec<Row>,
    pub(super) charts: Vec<super::chart::Chart>,
}
