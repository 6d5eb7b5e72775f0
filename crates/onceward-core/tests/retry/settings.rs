//! Settings that cannot work are refused when they are put together.

use std::time::Duration;

use onceward_core::retry::{
    Backoff, Breaker, Budget, Hedge, Limit, Rules, RulesBuilder, Share, Throttle,
};

use crate::{millis, seconds};

#[test]
fn the_presets_make_sense_and_say_what_the_documentation_says() {
    for rules in [Rules::standard(), Rules::patient(), Rules::never()] {
        assert_eq!(rules.to_builder().build().as_ref(), Ok(&rules));
    }
    let standard = Rules::standard();
    assert_eq!((standard.attempts(), standard.deadline()), (3, seconds(10)));
    let patient = Rules::patient();
    assert_eq!((patient.attempts(), patient.deadline()), (8, seconds(120)));
    assert_eq!(Rules::never().attempts(), 1);
}

#[test]
fn impossible_settings_fail_at_build_and_say_why() {
    type Change = fn(RulesBuilder) -> RulesBuilder;
    let cases: [(Change, &str); 26] = [
        (|b| b.attempts(0), "at least one attempt"),
        (|b| b.deadline(Duration::ZERO), "longer than nothing"),
        (|b| b.attempt_timeout(Duration::ZERO), "longer than nothing"),
        (|b| b.attempt_timeout(seconds(11)), "more time than the whole call"),
        (|b| b.attempt_timeout(seconds(3)).deadline(seconds(2)), "more time than the whole call"),
        (|b| b.retry_status([399]), "between 400 and 599"),
        (|b| b.no_retry_status([600]), "between 400 and 599"),
        (|b| b.retry_status([423, 507]).no_retry_status([500, 507]), "cannot be both"),
        (|b| b.backoff(Backoff::Fixed(seconds(10))), "outlast the deadline"),
        (
            |b| b.backoff(Backoff::Ranges([seconds(20)..=seconds(30)].into())),
            "outlast the deadline",
        ),
        (|b| b.backoff(Backoff::Full { base: Duration::ZERO, cap: seconds(1) }), "base"),
        (|b| b.backoff(Backoff::Full { base: seconds(2), cap: seconds(1) }), "its cap"),
        (|b| b.backoff(Backoff::Ranges([].into())), "must not be empty"),
        (
            |b| {
                #[allow(clippy::reversed_empty_ranges, reason = "that is the mistake")]
                b.backoff(Backoff::Ranges([millis(5)..=millis(4)].into()))
            },
            "before it starts",
        ),
        (|b| b.budget(Budget { start: 101, ..Budget::standard() }), "its capacity"),
        (|b| b.budget(Budget { retry: 101, ..Budget::standard() }), "the capacity"),
        (|b| b.budget(Budget { start: 0, success: 0, ..Budget::standard() }), "never pays"),
        (|b| b.share(Share::of(1.5)), "between 0 and 1"),
        (|b| b.share(Share::of(f64::NAN)), "between 0 and 1"),
        (|b| b.breaker(Breaker { share: 0.0, ..Breaker::standard() }), "share of failures"),
        (|b| b.breaker(Breaker { trials: 0, ..Breaker::standard() }), "at least one"),
        (|b| b.breaker(Breaker { open: seconds(99), ..Breaker::standard() }), "its most"),
        (|b| b.throttle(Throttle { most: 1.0, ..Throttle::standard() }), "let some"),
        (|b| b.hedge(Hedge { quantile: 1.0, ..Hedge::standard() }), "quantile"),
        (|b| b.hedge(Hedge { stretch: f64::INFINITY, ..Hedge::standard() }), "stretch"),
        (|b| b.limit(Limit::Fixed(0)), "at least one call"),
    ];
    for (change, words) in cases {
        let error = change(Rules::standard().to_builder()).build().unwrap_err().to_string();
        assert!(error.contains(words), "{words:?} is missing in: {error}");
        assert!(error.starts_with("these rules for retries cannot work: "), "{error}");
    }
}

#[test]
fn one_attempt_leaves_time_for_another_unless_it_is_said_how_long_it_takes() {
    type Change = fn(RulesBuilder) -> RulesBuilder;
    let cases: [(Change, u64); 7] = [
        (|b| b, 4_000),
        (|b| b.deadline(seconds(2)), 1_000),
        (|b| b.deadline(seconds(60)), 4_000),
        (|b| b.attempt_timeout(seconds(2)).deadline(seconds(2)), 2_000),
        (|b| b.deadline(seconds(2)).attempt_timeout(seconds(2)), 2_000),
        (|b| b.deadline(seconds(2)).attempts(1), 2_000),
        (|b| b.attempt_timeout(seconds(10)), 10_000),
    ];
    for (number, (change, timeout)) in cases.into_iter().enumerate() {
        let rules = change(Rules::standard().to_builder()).build().unwrap();
        assert_eq!(rules.attempt_timeout(), millis(timeout), "{number}");
        assert_eq!(rules.to_builder().build().as_ref(), Ok(&rules), "{number}");
    }
}
