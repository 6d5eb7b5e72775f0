//! What single statuses mean: `not_applied`, `released` and `final`, before the profile.

use super::options::RouteOptions;
use crate::config::{
    SourceLocation,
    diagnostics::mistake::Mistakes,
    parse::reader::{Placed, Setting, Value},
};

/// `not_applied`: server errors that free the key.
pub(crate) fn not_applied(
    value: &Value,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<u16> {
    if let Value::Integer(Some(status @ 500..=599)) = value {
        return u16::try_from(*status).ok();
    }
    let message = "`not_applied` has an item that is no status from 500 to 599";
    let help = "name server errors that are sent only before anything is done, as [503]; of the \
                4xx those that mean it release the key by themselves, and others stand in `released`";
    mistakes.error(place, message, help);
    None
}

/// `released`: client errors that free the key.
pub(crate) fn released(
    value: &Value,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<u16> {
    let message = "`released` has an item that is no status from 400 to 499";
    let help = match value {
        Value::Integer(Some(status @ 400..=499)) => return u16::try_from(*status).ok(),
        Value::Integer(Some(status @ 500..=599)) => &format!(
            "write not_applied = [{status}], if the service sends it only before it does anything"
        ),
        Value::Integer(Some(200..=399)) => {
            "a success is always kept: with a freed key a retry would double it"
        }
        _ => "name client errors that are sent only when nothing was done, as [409]",
    };
    mistakes.error(place, message, help);
    None
}

/// `final`: errors whose answer is kept.
pub(crate) fn last(value: &Value, place: &SourceLocation, mistakes: &mut Mistakes) -> Option<u16> {
    if let Value::Integer(Some(status @ 400..=599)) = value {
        return u16::try_from(*status).ok();
    }
    let message = "`final` has an item that is no status from 400 to 599";
    let help = "name errors whose answer is kept and replayed, as [429]; a success always is";
    mistakes.error(place, message, help);
    None
}

/// Whether no status is to be kept and to free the key.
pub(crate) fn check(options: &RouteOptions, mistakes: &mut Mistakes) {
    let items = |setting: &Setting<Vec<Placed<u16>>>| {
        setting.given().map(|items| items.value.clone()).unwrap_or_default()
    };
    let lists =
        [("released", items(&options.released)), ("not_applied", items(&options.not_applied))];
    for Placed { value: status, place } in items(&options.finals) {
        let frees = |items: &[Placed<u16>]| items.iter().any(|item| item.value == status);
        for (list, _) in lists.iter().filter(|(_, items)| frees(items)) {
            let message = format!(
                "{status} is in `final` and in `{list}`: an answer is kept, or it frees the key"
            );
            let help =
                "leave it in one of them; what a route lists replaces the list of [defaults]";
            mistakes.error(&place, message, help);
        }
    }
}
