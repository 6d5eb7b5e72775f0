//! The points that are written in the sources of messages, and those that were passed.

use std::collections::BTreeSet;

use super::sources::points_in_the_sources;

/// The outbox, the inbox, and the processes of these tests.
const FOLDERS: [&str; 3] =
    ["crates/onceward/src/outbox/", "crates/onceward/src/inbox/", "crash/src/messages/"];

/// Those that were recorded are those that are written down: none was renamed, and each is passed by some process.
pub(crate) fn are_all_passed(passed: &[String]) {
    let names = passed.iter().filter_map(|point| Some(point.split_once('#')?.0));
    let passed: BTreeSet<&str> = names.collect();
    let is_ours = |place: &String| FOLDERS.iter().any(|folder| place.starts_with(folder));
    let sources = points_in_the_sources();
    let ours = sources.iter().filter(|(_, places)| places.iter().any(is_ours));
    let ours: BTreeSet<&str> = ours.map(|(point, _)| point.as_str()).collect();
    assert_eq!(passed, ours, "passed on the left, in the sources on the right");
}
