//! What of a request counts beside its body.

use onceward_core::{Fingerprint, RequestHead};
use proptest::prelude::*;

fn of(head: &RequestHead<'_>) -> Fingerprint {
    Fingerprint::v1(head, b"body")
}

fn post() -> RequestHead<'static> {
    RequestHead::new("POST", "/a")
}

#[test]
fn method_and_path_count_as_given() {
    let heads = [
        post(),
        RequestHead::new("post", "/a"),
        RequestHead::new("POST", "/A"),
        RequestHead::new("POST", "/a/"),
        RequestHead::new("POST", "/%61"),
        RequestHead::new("POST/", "a"),
    ];
    for (at, head) in heads.iter().enumerate() {
        for other in &heads[at + 1..] {
            assert_ne!(of(head), of(other), "{head:?} {other:?}");
        }
    }
}

#[test]
fn a_query_is_not_a_path() {
    assert_ne!(of(&RequestHead::new("POST", "/a?b")), of(&post().query(Some("b"))));
}

#[test]
fn no_content_encoding_is_identity() {
    for same in [&b""[..], b" ", b"identity", b" Identity\t"] {
        assert_eq!(of(&post()), of(&post().content_encoding(Some(same))));
    }
    let gzip = of(&post().content_encoding(Some(b"gzip")));
    assert_ne!(gzip, of(&post()));
    assert_eq!(gzip, of(&post().content_encoding(Some(b" GZIP "))));
    assert_ne!(gzip, of(&post().content_encoding(Some(b"gzip, br"))));
}

#[test]
fn headers_are_sorted_by_name_and_keep_the_order_of_their_lines() {
    let head = post().header("b", b"1").header("A", b"1").header("B", b"2");
    assert_eq!(of(&head), of(&post().header("a", b"1").header("b", b"1").header("b", b"2")));
    assert_ne!(of(&head), of(&post().header("a", b"1").header("b", b"2").header("b", b"1")));
    assert_ne!(of(&post()), of(&post().header("a", b"")));
    assert_ne!(of(&post().header("a", b"x")), of(&post().header("a", b"X")));
    assert_ne!(of(&post().header("a", b"\xFF")), of(&post().header("a", b"\xFE")));
}

proptest! {
    #[test]
    fn a_byte_that_moves_between_fields_changes_the_fingerprint(
        text in "[a-z]{5,20}", cuts in proptest::array::uniform4(0_usize..20),
        others in proptest::array::uniform4(0_usize..20),
    ) {
        let request = |cuts: [usize; 4]| {
            let mut at = cuts.map(|cut| cut % text.len());
            at.sort_unstable();
            let head = RequestHead::new(&text[..at[0]], &text[at[0]..at[1]])
                .query(Some(&text[at[1]..at[2]]))
                .content_encoding(Some(&text.as_bytes()[at[2]..at[3]]));
            (at, Fingerprint::v1(&head, &text.as_bytes()[at[3]..]))
        };
        let ((left, one), (right, two)) = (request(cuts), request(others));
        prop_assert_eq!(left == right, one == two);
    }

    #[test]
    fn arbitrary_heads_never_panic(
        method in ".*", path in ".*", query in ".*",
        content_type in any::<Vec<u8>>(), coding in any::<Vec<u8>>(), body in any::<Vec<u8>>(),
    ) {
        let head = RequestHead::new(&method, &path)
            .query(Some(&query))
            .content_type(Some(&content_type))
            .content_encoding(Some(&coding))
            .header(&query, &coding);
        let _ = Fingerprint::v1(&head, &body);
    }
}
