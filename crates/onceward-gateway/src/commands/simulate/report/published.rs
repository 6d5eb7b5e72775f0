//! What was published, or measured earlier with the published set-up, for the policies beside us.

/// What there is for this policy; nothing if there is nothing.
pub(crate) fn study(scenario: &str, policy: &str) -> &'static str {
    match (scenario, policy) {
        ("contention", "no backoff") => "2,398 calls",
        ("contention", "exponential") => "1,656 calls, 54.5 s",
        ("contention", "tower") => "1,657 calls, 55.4 s",
        ("contention", "equal jitter") => "805 calls, 6.6 s",
        ("contention", "decorrelated") => "995 calls, 4.6 s",
        ("contention", "onceward") => "full jitter 794 calls, 4.9 s",
        ("outage", "plain retries") => "4.00 / 1.000",
        ("outage", "Finagle" | "tower") => "2.00 / 1.000",
        ("outage", "AWS 2.0") => "1.17 / 1.000",
        ("outage", "AWS 2.1") => "1.06 / 1.000",
        ("outage", "gRPC") => "1.01 / 0.947",
        ("outage", "onceward") => "at most 1.00 / 1.000",
        ("metastable", "no retries") => "44 s, 0.54",
        ("metastable", "plain retries" | "tower") => "never, 0.00",
        ("metastable", "AWS 2.1") => "69 s, 0.33",
        ("metastable", "onceward") => "0 s, 0.93",
        ("tail", "no hedges") => "1,800 ms",
        ("tail", "onceward") => "74 ms at 2 %",
        ("layers", "plain retries") => "243",
        _ => "",
    }
}
