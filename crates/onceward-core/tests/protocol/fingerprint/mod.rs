//! What a request means, as a digest.

mod bodies;
mod golden;
mod heads;

use onceward_core::{Fingerprint, Fingerprints};

#[test]
fn debug_shows_the_version_and_a_prefix_only() {
    let mut digest = [0xAB; 32];
    digest[0] = 0x01;
    let shown = format!("{:?}", Fingerprint::from_parts(1, digest));
    assert_eq!(shown, "Fingerprint(v1 01ababab…)");
}

#[test]
fn the_first_fingerprint_of_a_version_stays() {
    let current = Fingerprint::from_parts(2, [2; 32]);
    let fingerprints = Fingerprints::from(current)
        .and(Fingerprint::from_parts(2, [9; 32]))
        .and(Fingerprint::from_parts(1, [1; 32]))
        .and(Fingerprint::from_parts(1, [9; 32]));
    assert_eq!(fingerprints.current(), current);
    assert_eq!(fingerprints.under(2), Some(current));
    assert_eq!(fingerprints.under(1), Some(Fingerprint::from_parts(1, [1; 32])));
    assert_eq!(fingerprints.under(0), None);
    let same = Fingerprints::from(current).and(Fingerprint::from_parts(1, [1; 32]));
    assert_eq!(fingerprints, same);
}
