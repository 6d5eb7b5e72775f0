//! What replies mean, status by status and list by list.

use std::{ops::RangeInclusive, time::Duration};

use onceward_core::{
    Effect,
    Meaning::{self, FailedFinal, FailedRetryable, Released, Succeeded, Unknown},
    Policy, PolicyBuilder, Profile, Reply,
};

const REPEATABLE: Effect = Effect::Repeatable { within: Duration::from_secs(3600) };

type Row = (RangeInclusive<u16>, Meaning);

/// Rule 11, written out: the same for every route, but for a 400 in profile stripe.
const CLIENT_ERRORS: [Row; 19] = [
    (400..=400, FailedFinal),
    (401..=401, Released),
    (402..=402, FailedFinal),
    (403..=403, Released),
    (404..=406, FailedFinal),
    (407..=408, Released),
    (409..=411, FailedFinal),
    (412..=412, Released),
    (413..=420, FailedFinal),
    (421..=421, Released),
    (422..=422, FailedFinal),
    (423..=423, Released),
    (424..=424, FailedFinal),
    (425..=425, Released),
    (426..=427, FailedFinal),
    (428..=429, Released),
    (430..=430, FailedFinal),
    (431..=431, Released),
    (432..=499, FailedFinal),
];

/// Checks every status from 100 to 999, and that the table has each of them once.
fn check(
    policy: PolicyBuilder,
    below_400: [Row; 2],
    from_500: &[Row],
    beyond: Meaning,
    incomplete: Meaning,
) {
    let name = format!("{policy:?}");
    let policy = policy.build().unwrap();
    let mut client_errors = CLIENT_ERRORS;
    if policy.profile() == Some(Profile::Stripe) {
        client_errors[0] = (400..=400, Released);
    }
    let rows = below_400.into_iter().chain(client_errors).chain(from_500.iter().cloned());
    let rows = rows.chain([(600..=999, beyond)]);
    let table: Vec<(u16, Meaning)> = rows
        .flat_map(|(statuses, meaning)| statuses.map(move |status| (status, meaning)))
        .collect();
    assert!(table.iter().map(|(status, _)| *status).eq(100..=999), "{name}: every status once");
    for (status, meaning) in table {
        assert_eq!(policy.meaning(Reply::Complete(status)), meaning, "{name}: {status}");
    }
    assert_eq!(policy.meaning(Reply::Incomplete), incomplete, "{name}");
    for status in [0, 1, 99, 1000, u16::MAX] {
        assert_eq!(policy.meaning(Reply::Complete(status)), incomplete, "{name}: {status}");
    }
}

#[test]
fn standard_believes_a_503_and_holds_what_else_a_proxy_may_have_said() {
    let below_400 = [(100..=199, Unknown), (200..=399, Succeeded)];
    let from_500 = |own| {
        [
            (500..=501, own),
            (502..=502, Unknown),
            (503..=503, Released),
            (504..=504, Unknown),
            (505..=599, own),
        ]
    };
    for policy in [
        Policy::of(Effect::External),
        Policy::of(Effect::External).profile(Profile::Standard),
        Policy::of(REPEATABLE).profile(Profile::Standard),
    ] {
        check(policy.clone(), below_400.clone(), &from_500(FailedFinal), Unknown, Unknown);
        check(policy.hold_500(), below_400.clone(), &from_500(Unknown), Unknown, Unknown);
    }
}

#[test]
fn strict_holds_what_a_proxy_may_have_said() {
    let below_400 = [(100..=199, Unknown), (200..=399, Succeeded)];
    let from_500 = [(500..=501, FailedFinal), (502..=504, Unknown), (505..=599, FailedFinal)];
    for policy in [
        Policy::of(Effect::External).profile(Profile::Strict),
        Policy::of(REPEATABLE).profile(Profile::Strict),
    ] {
        check(policy, below_400.clone(), &from_500, Unknown, Unknown);
    }
    let holding = Policy::of(Effect::External).profile(Profile::Strict).hold_500();
    check(holding, below_400, &[(500..=599, Unknown)], Unknown, Unknown);
}

#[test]
fn stripe_keeps_every_complete_answer_but_a_400() {
    for effect in [Effect::External, REPEATABLE] {
        let policy = Policy::of(effect).profile(Profile::Stripe);
        let below_400 = [(100..=199, Unknown), (200..=399, Succeeded)];
        check(policy, below_400, &[(500..=599, FailedFinal)], Unknown, Unknown);
    }
}

#[test]
fn rerun_repeats_every_failure() {
    for policy in [Policy::of(REPEATABLE), Policy::of(REPEATABLE).profile(Profile::Rerun)] {
        let below_400 = [(100..=199, FailedRetryable), (200..=399, Succeeded)];
        let from_500 = [(500..=599, FailedRetryable)];
        check(policy, below_400, &from_500, FailedRetryable, FailedRetryable);
    }
}

#[test]
fn a_transaction_without_a_commit_is_run_again() {
    let policy = Policy::of(Effect::Transactional);
    let below_400 = [(100..=199, FailedRetryable), (200..=399, FailedRetryable)];
    let from_500 = [(500..=599, FailedRetryable)];
    check(policy, below_400, &from_500, FailedRetryable, FailedRetryable);
}

#[test]
fn what_was_not_applied_is_released_in_every_profile() {
    let listed = |policy: PolicyBuilder| policy.not_applied([503]).not_applied([500, 599]);
    let below_400 = [(100..=199, Unknown), (200..=399, Succeeded)];
    let from_500 = |first, second, third| {
        [
            (500..=500, Released),
            (501..=501, first),
            (502..=502, second),
            (503..=503, Released),
            (504..=504, second),
            (505..=598, third),
            (599..=599, Released),
        ]
    };
    for profile in [Profile::Standard, Profile::Strict] {
        let policy = listed(Policy::of(Effect::External)).profile(profile);
        let rows = from_500(FailedFinal, Unknown, FailedFinal);
        check(policy.clone(), below_400.clone(), &rows, Unknown, Unknown);
        let rows = from_500(Unknown, Unknown, Unknown);
        check(policy.hold_500(), below_400.clone(), &rows, Unknown, Unknown);
    }
    let stripe = listed(Policy::of(Effect::External)).profile(Profile::Stripe);
    let rows = from_500(FailedFinal, FailedFinal, FailedFinal);
    check(stripe, below_400, &rows, Unknown, Unknown);
    let rows = from_500(FailedRetryable, FailedRetryable, FailedRetryable);
    let below_400 = [(100..=199, FailedRetryable), (200..=399, Succeeded)];
    check(listed(Policy::of(REPEATABLE)), below_400, &rows, FailedRetryable, FailedRetryable);
}

const PROFILES: [(Effect, Profile); 5] = [
    (Effect::External, Profile::Standard),
    (Effect::External, Profile::Strict),
    (Effect::External, Profile::Stripe),
    (REPEATABLE, Profile::Strict),
    (REPEATABLE, Profile::Rerun),
];

#[test]
fn what_a_route_lists_counts_before_its_profile_and_changes_nothing_else() {
    for (effect, profile) in PROFILES {
        let plain = Policy::of(effect).profile(profile).build().unwrap();
        let listed = Policy::of(effect).profile(profile);
        let listed = listed.released_statuses([404]).released_statuses([409, 429]);
        let listed = listed.final_statuses([425]).final_statuses([400, 503]).build().unwrap();
        for status in 0..=1000 {
            let reply = Reply::Complete(status);
            let expected = match status {
                404 | 409 | 429 => Released,
                400 | 425 | 503 => FailedFinal,
                _ => plain.meaning(reply),
            };
            assert_eq!(listed.meaning(reply), expected, "{profile:?}: {status}");
        }
        assert_eq!(listed.meaning(Reply::Incomplete), plain.meaning(Reply::Incomplete));
    }
    let holding = Policy::of(Effect::External).hold_500().final_statuses([501]).build().unwrap();
    assert_eq!(holding.meaning(Reply::Complete(501)), FailedFinal, "the list says more");
    assert_eq!(holding.meaning(Reply::Complete(500)), Unknown);
}

#[test]
fn no_list_speaks_of_an_earlier_attempt_that_may_have_been_carried_out() {
    for (effect, profile) in PROFILES {
        let policy = Policy::of(effect).profile(profile).not_applied([529]);
        let policy = policy.released_statuses([409]).final_statuses([404, 429, 504]);
        let (plain, policy) =
            (Policy::of(effect).profile(profile).build().unwrap(), policy.build().unwrap());
        let no_answer = policy.meaning(Reply::Incomplete);
        for status in 0..=1000 {
            let reply = Reply::Complete(status);
            let expected = match plain.meaning(reply) {
                _ if [409, 529].contains(&status) => no_answer,
                Released => no_answer,
                Unknown | FailedRetryable if status == 504 => no_answer,
                meaning => meaning,
            };
            assert_eq!(policy.meaning_in_doubt(reply), expected, "{profile:?}: {status}");
        }
        assert_eq!(policy.meaning_in_doubt(Reply::Incomplete), no_answer);
    }
}

#[test]
fn what_contradicts_itself_is_refused_with_advice() {
    let of = Policy::of;
    let transactional = || of(Effect::Transactional);
    for (refused, advice) in [
        (of(Effect::External).profile(Profile::Rerun), "declare the effect repeatable"),
        (of(Effect::External).profile(Profile::Rerun).hold_500(), "declare the effect"),
        (transactional().profile(Profile::Standard), "remove `profile`"),
        (transactional().profile(Profile::Strict), "remove `profile`"),
        (transactional().profile(Profile::Stripe), "remove `profile`"),
        (transactional().profile(Profile::Rerun), "remove `profile`"),
        (transactional().hold_500(), "remove `hold_500`"),
        (transactional().not_applied([503]), "remove `not_applied`"),
        (of(Effect::External).profile(Profile::Stripe).hold_500(), "choose one of these"),
        (of(REPEATABLE).profile(Profile::Rerun).hold_500(), "profile `rerun` would not hold"),
        (of(REPEATABLE).hold_500(), "choose one of these"),
        (of(Effect::External).not_applied([503, 499]), "has 499"),
        (of(Effect::External).not_applied([600]), "between 500 and 599"),
        (of(Effect::External).not_applied([409]), "`released_statuses`"),
        (transactional().released_statuses([409]), "remove `released_statuses`"),
        (transactional().final_statuses([429]), "remove `final_statuses`"),
        (of(Effect::External).released_statuses([409, 201]), "has 201"),
        (of(Effect::External).released_statuses([399]), "double the effect"),
        (of(Effect::External).released_statuses([503]), "list it in `not_applied`"),
        (of(Effect::External).released_statuses([600]), "between 400 and 499"),
        (of(Effect::External).final_statuses([200]), "is always kept"),
        (of(REPEATABLE).final_statuses([600]), "between 400 and 599"),
        (of(REPEATABLE).final_statuses([409]).released_statuses([409]), "409 is in"),
        (of(REPEATABLE).final_statuses([503]).not_applied([503]), "leave it in one of them"),
        (of(REPEATABLE).not_applied([0]), "has 0"),
    ] {
        let error = refused.build().unwrap_err().to_string();
        assert!(error.contains(advice), "{advice}: {error}");
    }
    assert!(of(REPEATABLE).profile(Profile::Strict).hold_500().build().is_ok());
    assert!(of(Effect::Transactional).not_applied([]).build().is_ok(), "nothing was listed");
}

#[test]
fn the_profile_follows_from_the_effect_if_not_said() {
    let profile = |policy: PolicyBuilder| policy.build().unwrap().profile();
    assert_eq!(profile(Policy::of(Effect::External)), Some(Profile::Standard));
    assert_eq!(profile(Policy::of(REPEATABLE)), Some(Profile::Rerun));
    assert_eq!(profile(Policy::of(Effect::Transactional)), None);
    let stripe = Policy::of(REPEATABLE).profile(Profile::Stripe);
    assert_eq!(profile(stripe), Some(Profile::Stripe));
}
