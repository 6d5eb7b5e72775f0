//! What goes with `effect = "transactional"`: the service behind the gateway ends its operations itself.

use super::{options::RouteOptions, scope::Commits};
use crate::config::{SourceLocation, diagnostics::mistake::Mistakes, parse::reader::Setting};

/// `own` is what the route itself says, `options` what counts for it.
pub(crate) fn check(
    own: &RouteOptions,
    options: &RouteOptions,
    commits: Commits,
    mistakes: &mut Mistakes,
) {
    let Some(effect) = options.effect.given() else { return };
    check_store(&effect.place, options, commits, mistakes);
    for (option, place) in [
        ("profile", place_of(&own.profile)),
        ("on_500", place_of(&own.hold_500)),
        ("not_applied", place_of(&own.not_applied)),
        ("released", place_of(&own.released)),
        ("final", place_of(&own.finals)),
    ] {
        if let Some(place) = place {
            let message = format!(
                "`{option}` says what an answer means, and with effect \"transactional\" the commit \
                 of the service does"
            );
            mistakes.error(place, message, "remove it");
        }
    }
    for (option, place) in [
        ("redact_headers", place_of(&options.redact_headers)),
        ("redact_json", place_of(&options.redact_json)),
    ] {
        if let Some(place) = place {
            let message = format!(
                "`{option}` hides nothing with effect \"transactional\": the service stores the \
                 answer itself"
            );
            let help = "remove it for this route, and let the service leave it out of what it gives \
                        to onceward.complete";
            mistakes.error(place, message, help);
        }
    }
    if let Some(pass) = options.pass_when_store_is_down.given().filter(|pass| pass.value) {
        let message = "`on_store_down = \"pass\"` does not go with effect \"transactional\": \
                       without a record the service has nothing to end";
        mistakes.error(&pass.place, message, "write on_store_down = \"refuse\" for this route");
    }
    if let Some(rebuild) = own.rebuild.given() {
        let message = "`rebuild` means nothing with effect \"transactional\": the service stores \
                       the whole answer";
        mistakes.warning(&rebuild.place, message, "remove it");
    }
}

fn check_store(
    place: &SourceLocation,
    options: &RouteOptions,
    commits: Commits,
    mistakes: &mut Mistakes,
) {
    let is_status_only = options.status_only.given().is_some_and(|keep| keep.value);
    match commits {
        Commits::Whole => {}
        Commits::WithoutAnswer if is_status_only => {}
        Commits::WithoutAnswer => {
            let message = "`effect = \"transactional\"` with [encryption]: the service stores its \
                           answer by SQL, where there is no key to hide it with";
            let help = "write keep = \"status\" for this route, so that no more than the status is \
                        stored, or leave [encryption] out";
            mistakes.error(place, message, help);
        }
        Commits::NoFunctions => {
            let message = "`effect = \"transactional\"` needs onceward.complete, which only PostgreSQL \
                           has, and `dialect=wire` in `store` says that the server is another engine";
            let help = "leave `dialect=wire` out if the server is PostgreSQL; else effect = \"external\" \
                        (never run twice), or \"repeatable\" if the service honours the key that it is \
                        given";
            mistakes.error(place, message, help);
        }
        Commits::NoTransactions => {
            let message = "`effect = \"transactional\"` has nothing to commit in: Redis and Valkey have no \
                           transaction in which the service could write its effect, and the record of it";
            let help = "write store = \"postgres://…\" with the database of the service; else effect = \
                        \"external\" (never run twice), or \"repeatable\" if the service honours the key \
                        that it is given";
            mistakes.error(place, message, help);
        }
        Commits::No => {
            let message = "`effect = \"transactional\"` needs a store that the service behind the \
                           gateway can commit to in its own transaction, and the gateway's SQLite \
                           file is not one";
            let help = "write store = \"postgres://…\" with the database of the service; else \
                        effect = \"external\" (never run twice), or \"repeatable\" if the service \
                        honours the key that it is given";
            mistakes.error(place, message, help);
        }
    }
}

fn place_of<T: Clone>(setting: &Setting<T>) -> Option<&SourceLocation> {
    setting.given().map(|given| &given.place)
}
