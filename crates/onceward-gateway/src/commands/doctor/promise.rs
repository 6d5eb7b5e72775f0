//! What is really promised to the callers of a route, and why.

use onceward::{Effect, Profile};

use crate::config::{KeyRule, Route, show_duration};

/// A tier of docs/guarantees.md, in words too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Promise {
    /// `T1`, `T2`, `T3` or `none`.
    pub(super) tier: &'static str,
    /// `exactly once`, `effectively once`, `at most once` or `at least once`.
    pub(super) promise: &'static str,
    pub(super) why: String,
}

impl Promise {
    /// `is_strict`: the store keeps what it acknowledges.
    pub(super) fn of(route: &Route, is_strict: bool) -> Self {
        if route.key == KeyRule::Off {
            let why = "key = \"off\": it takes no keys, so that every retry runs".to_owned();
            return Self { tier: "none", promise: "at least once", why };
        }
        let tier = route.effect.tier();
        let (promise, mut why) = match route.effect {
            Effect::External => ("at most once", external(route)),
            Effect::Transactional => ("exactly once", TRANSACTIONAL.to_owned()),
            Effect::Repeatable { within } => {
                ("effectively once", repeatable(route, &show_duration(within)))
            }
        };
        let freeing = [&route.released[..], &route.not_applied].concat();
        if !freeing.is_empty() {
            why += &format!("; {freeing:?} frees the key, on your word that nothing was done");
        }
        if route.pass_when_store_is_down {
            let why = format!(
                "on_store_down = \"pass\": while the store is down, requests run without a record; \
                 at all other times it is {tier}, {promise}"
            );
            return Self { tier: "none", promise: "at least once", why };
        }
        why += &format!("; answers are kept for {}", show_duration(route.retain));
        if !is_strict {
            why += "; the store is relaxed: a retry whose record was lost runs again";
        }
        if route.key == KeyRule::Optional {
            why += "; all of this only for requests that have a key";
        }
        Self { tier, promise, why }
    }
}

const TRANSACTIONAL: &str = "effect = \"transactional\": the service commits its effect and the record \
                             of it in one transaction (onceward.complete), or neither; what is \
                             abandoned is run again, and no outcome is unknown";

fn external(route: &Route) -> String {
    let unknown = match (route.profile_in_force(), route.hold_500) {
        (Some(Profile::Stripe), _) => "no answer",
        (Some(Profile::Standard), true) => "no answer, or 500, 502 or 504,",
        (Some(Profile::Standard), false) => "no answer, or 502 or 504,",
        (_, true) => "no answer, or 500, 502, 503 or 504,",
        (_, false) => "no answer, or 502, 503 or 504,",
    };
    let trusted = match route.profile_in_force() {
        Some(Profile::Standard) => {
            "; a 503 frees the key, on the upstream's word that it did not handle the request"
        }
        _ => "",
    };
    format!(
        "effect = \"external\": it is never run again by itself, and {unknown} leaves the outcome \
         unknown, and says so{trusted}"
    )
}

fn repeatable(route: &Route, within: &str) -> String {
    let again = match route.profile_in_force() {
        Some(Profile::Rerun) => "without an answer, or with a server error, it is run again",
        _ => "if the gateway dies, it is run again",
    };
    format!(
        "effect = \"repeatable\": {again} with the same Onceward-Key for {within} after its first \
         claim, then it is unknown; it is once as far as the upstream honours that key"
    )
}
