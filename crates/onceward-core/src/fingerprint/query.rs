//! The canonical query: what its pairs say, whatever their order between names.

use super::encoder::Encoder;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// Bytes that some decoders read as syntax where they stand literally, and as data where escaped:
/// `+` is a space in forms, `;` once separated pairs. `%` introduces the escapes that keep the two
/// apart in the canonical text.
const KEPT_ESCAPED: &[u8] = b"%+;";

pub(super) fn encode(query: &str, encoder: &mut Encoder) {
    let mut pairs: Vec<Pair> =
        query.split('&').filter(|piece| !piece.is_empty()).map(Pair::of).collect();
    sort_by_name(&mut pairs, Ord::cmp);
    encoder.list(pairs.len());
    for pair in pairs {
        encoder.field(&pair.name);
        match pair.value {
            None => encoder.tag(0),
            Some(value) => {
                encoder.tag(1);
                encoder.field(&value);
            }
        }
    }
}

/// Pairs of one name keep their order, which means something.
fn sort_by_name(pairs: &mut [Pair], mut compare: impl FnMut(&[u8], &[u8]) -> Ordering) {
    pairs.sort_by(|left, right| compare(&left.name, &right.name));
}

struct Pair {
    name: Vec<u8>,
    /// `None` without `=`: a flag is not the same as an empty value.
    value: Option<Vec<u8>>,
}

impl Pair {
    fn of(piece: &str) -> Self {
        let (name, value) = match piece.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (piece, None),
        };
        Self { name: decode(name), value: value.map(decode) }
    }
}

/// Undoes percent-encoding, except for [`KEPT_ESCAPED`], whose escapes are written in one way.
fn decode(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let escape = if first == b'%' { hex_pair(behind) } else { None };
        let byte = escape.unwrap_or(first);
        if KEPT_ESCAPED.contains(&byte) && (escape.is_some() || byte == b'%') {
            decoded.extend([b'%', hex_digit(byte >> 4), hex_digit(byte & 0xF)]);
        } else {
            decoded.push(byte);
        }
        rest = if escape.is_some() { &behind[2..] } else { behind };
    }
    decoded
}

fn hex_pair(text: &[u8]) -> Option<u8> {
    let [high, low, ..] = text else { return None };
    let value = |digit: u8| char::from(digit).to_digit(16);
    u8::try_from(value(*high)? << 4 | value(*low)?).ok()
}

fn hex_digit(value: u8) -> u8 {
    b"0123456789ABCDEF"[usize::from(value & 0xF)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, string::String};
    use proptest::prelude::*;

    fn digest(query: &str) -> [u8; 32] {
        let mut encoder = Encoder::new(b"test");
        encode(query, &mut encoder);
        encoder.finish()
    }

    #[test]
    fn queries_of_one_meaning() {
        let table = [
            ("", "&"),
            ("a=1", "&a=1&&"),
            ("a=1&b=2", "b=2&a=1"),
            ("a=1&b=2&a=3", "b=2&a=1&a=3"),
            ("a=A", "a=%41"),
            ("%61=1", "a=1"),
            ("a=%c3%a9", "a=é"),
            ("a=%2f", "a=%2F"),
            ("a=%2b", "a=%2B"),
            ("a[]=1", "a%5B%5D=1"),
            ("a=b=c", "a=b%3Dc"),
            ("a=%", "a=%25"),
            ("a=%4", "a=%254"),
            ("a=%zz", "a=%25zz"),
            ("a=%+1", "a=%25+1"),
        ];
        for (left, right) in table {
            assert_eq!(digest(left), digest(right), "{left} {right}");
        }
    }

    #[test]
    fn queries_of_different_meaning() {
        let table = [
            ("a", ""),
            ("a", "a="),
            ("=", ""),
            ("=a", "a"),
            ("a=1", "a=2"),
            ("a=1", "A=1"),
            ("a=1&a=2", "a=2&a=1"),
            ("a=1&a=1", "a=1"),
            ("a=1&b=2", "a=1%26b=2"),
            ("a=1&b=2", "a=1%26b%3D2"),
            ("a=b=c", "a%3Db=c"),
            ("a=1+2", "a=1%202"),
            ("a=1+2", "a=1%2B2"),
            ("a=1;b=2", "a=1%3Bb=2"),
            ("a=%252B", "a=%2B"),
            ("a=%2541", "a=%41"),
            ("a=%00", "a="),
        ];
        for (left, right) in table {
            assert_ne!(digest(left), digest(right), "{left} {right}");
        }
    }

    /// A client must not be able to write a query that is expensive to sort.
    #[test]
    fn many_pairs_are_sorted_with_few_comparisons_whatever_their_order() {
        let count = 1_usize << 16;
        let most = 2 * count * count.ilog2() as usize;
        let descending = (0..count).rev().map(|at| format!("{at:05}"));
        let shuffled = (0..count).map(|at| format!("{:05}", at * 40_503 % count));
        let orders: [(&str, Vec<String>); 4] = [
            ("descending", descending.collect()),
            ("shuffled", shuffled.collect()),
            ("alternating", ["b", "a"].map(String::from).into_iter().cycle().take(count).collect()),
            ("all alike", (0..count).map(|_| "a".into()).collect()),
        ];
        for (order, names) in orders {
            let mut pairs: Vec<Pair> = names.iter().map(|name| Pair::of(name)).collect();
            let mut comparisons = 0;
            sort_by_name(&mut pairs, |left, right| {
                comparisons += 1;
                left.cmp(right)
            });
            assert!(pairs.is_sorted_by_key(|pair| &pair.name), "{order}");
            assert!(comparisons <= most, "{order}: {comparisons} comparisons of {count} pairs");
        }
    }

    #[test]
    fn pairs_of_one_name_keep_their_order_among_very_many() {
        let count = 1 << 16;
        let of = |names: &[&str]| {
            let numbered = |name: &str, at: usize| format!("{name}={at}&");
            (0..count).flat_map(|at| names.iter().map(move |name| numbered(name, at))).collect()
        };
        let (mixed, a, b): (String, String, String) = (of(&["b", "a"]), of(&["a"]), of(&["b"]));
        assert_eq!(digest(&mixed), digest(&(a + &b)));
    }

    #[test]
    fn a_megabyte_of_broken_escapes_is_read_as_percent_signs() {
        assert_eq!(digest(&"%".repeat(1 << 20)), digest(&"%25".repeat(1 << 20)));
    }

    fn escaped(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("%{byte:02x}")).collect()
    }

    proptest! {
        #[test]
        fn escaping_what_needs_none_changes_nothing(
            pairs in prop::collection::vec(("[a-z]{1,3}", "[a-z]{0,3}"), 0..6),
        ) {
            let joined = |write: fn(&str) -> String| {
                let pairs = pairs.iter().map(|(name, value)| [write(name), write(value)].join("="));
                pairs.collect::<Vec<_>>().join("&")
            };
            let all_escaped = joined(|text| escaped(text.as_bytes()));
            prop_assert_eq!(digest(&joined(|text| text.into())), digest(&all_escaped));
        }

        #[test]
        fn fully_escaped_values_meet_only_when_equal(
            left in any::<Vec<u8>>(), right in any::<Vec<u8>>(),
        ) {
            let of = |value: &[u8]| digest(&format!("a={}", escaped(value)));
            prop_assert_eq!(left == right, of(&left) == of(&right));
        }

        #[test]
        fn pairs_of_distinct_names_may_change_places(
            mut pairs in prop::collection::vec("[a-z%+=]{1,4}", 0..6),
        ) {
            pairs.iter_mut().enumerate().for_each(|(at, pair)| *pair = format!("{at}{pair}"));
            let before = digest(&pairs.join("&"));
            pairs.reverse();
            prop_assert_eq!(before, digest(&pairs.join("&")));
        }
    }
}
