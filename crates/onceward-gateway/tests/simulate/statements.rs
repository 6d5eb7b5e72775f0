//! Those of the ten statements about retries that speak of fleets and of time.

use crate::run::{METASTABLE, OUTAGE, OUTAGE_OF_3, TAIL, number};

#[test]
fn statement_5_total_outage_stays_under_1_05() {
    // 100 processes, 10 requests a second each, 60 s.
    let down = OUTAGE.ours_at("failure_rate", 1.0);
    assert_eq!(number(down, "clients"), 100.0);
    assert!(number(down, "load") <= 1.05, "{down}");
    let down = OUTAGE_OF_3.ours_at("failure_rate", 1.0);
    assert!(number(down, "load") <= 1.05, "{down}");
}

#[test]
fn statement_6_independent_failures_are_healed_by_three_and_four_attempts() {
    let four = OUTAGE.ours_at("failure_rate", 0.1);
    assert!(number(four, "success") >= 0.9998 && number(four, "load") <= 1.12, "{four}");
    let three = OUTAGE_OF_3.ours_at("failure_rate", 0.1);
    assert!(number(three, "success") >= 0.998 && number(three, "load") <= 1.12, "{three}");
}

#[test]
fn statement_8_hedges_keep_to_their_share_in_any_ten_seconds() {
    // 5 % is what the shipped rules allow; that losers are dropped is the library's part.
    for shift in [0.0, 200.0] {
        let ours = TAIL.ours_at("shift_ms", shift);
        assert!(number(ours, "extra_worst_10s") <= 0.052, "{ours}");
    }
}

#[test]
fn statement_10_goodput_is_back_one_second_after_the_brown_out() {
    let ours = METASTABLE.of_policy("onceward");
    assert!(number(ours, "goodput") >= 0.985, "in the worst second: {ours}");
}
