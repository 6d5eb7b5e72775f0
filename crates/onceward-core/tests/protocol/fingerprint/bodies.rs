//! When two bodies mean the same.

use onceward_core::{Fingerprint, Fingerprinter, RequestHead};
use proptest::prelude::*;

fn of(content_type: &str, body: &[u8]) -> Fingerprint {
    let head = RequestHead::new("POST", "/a").content_type(Some(content_type.as_bytes()));
    Fingerprint::v1(&head, body)
}

fn json_of(body: &str) -> Fingerprint {
    of("application/json", body.as_bytes())
}

fn form(boundary: &str, content: &str) -> (String, Vec<u8>) {
    let body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\n\
        {content}\r\n--{boundary}--\r\n"
    );
    (format!("multipart/form-data; boundary={boundary}"), body.into_bytes())
}

fn form_of(boundary: &str, content: &str) -> Fingerprint {
    let (content_type, body) = form(boundary, content);
    of(&content_type, &body)
}

#[test]
fn the_last_byte_of_a_large_body_counts() {
    for content_type in
        ["application/octet-stream", "application/json", "multipart/mixed; boundary=b"]
    {
        let mut body = vec![b'x'; 1 << 20];
        let before = of(content_type, &body);
        *body.last_mut().unwrap() = b'y';
        assert_ne!(before, of(content_type, &body));
        body.push(b'y');
        assert_ne!(before, of(content_type, &body));
    }
    let long = "x".repeat(1 << 20);
    assert_ne!(form_of("b", &format!("{long}x")), form_of("b", &format!("{long}y")));
    assert_ne!(json_of(&format!("\"{long}x\"")), json_of(&format!("\"{long}y\"")));
}

#[test]
fn json_counts_by_its_meaning() {
    let first = json_of(r#"{"a":"A","b":[1,2]}"#);
    assert_eq!(first, json_of("{ \"b\": [1, 2],\r\n\t\"a\": \"\\u0041\" }"));
    assert_ne!(first, json_of(r#"{"a":"A","b":[2,1]}"#));
    assert_ne!(first, json_of(r#"{"a":"A","b":[1,2.0]}"#));
    assert_ne!(first, of("application/x+json", br#"{"a":"A","b":[1,2]}"#));
    assert_eq!(first, of("Application/JSON; charset=UTF-8", br#"{"a":"A","b":[1,2]}"#));
}

#[test]
fn json_without_one_meaning_counts_byte_by_byte() {
    for (left, right) in [
        (r#"{"a":1,"a":2}"#, r#"{"a":1, "a":2}"#),
        (r#"["\ud800"]"#, r#"[ "\ud800"]"#),
        ("[1,]", "[1, ]"),
        ("", " "),
    ] {
        assert_eq!(json_of(left), json_of(left));
        assert_ne!(json_of(left), json_of(right));
    }
    assert_ne!(
        of("application/json; charset=latin1", b"[]"),
        of("application/json; charset=latin1", b"[ ]")
    );
}

#[test]
fn raw_bytes_never_meet_a_canonical_form() {
    let mut canonical = b"[]".to_vec();
    assert_ne!(json_of("[ ]"), json_of("[]x"));
    // The canonical field's own encoding, sent as a body.
    canonical.splice(0..0, 2_u64.to_be_bytes());
    assert_ne!(json_of("[]"), of("application/json", &canonical));
}

#[test]
fn encoded_bodies_count_byte_by_byte() {
    let gzip = |content_type: &str, body: &[u8]| {
        let head = RequestHead::new("POST", "/a")
            .content_type(Some(content_type.as_bytes()))
            .content_encoding(Some(b"gzip"));
        assert!(matches!(Fingerprinter::v1(&head), Fingerprinter::Raw(_)));
        Fingerprint::v1(&head, body)
    };
    assert_ne!(gzip("application/json", b"[]"), gzip("application/json", b"[ ]"));
    assert_ne!(
        gzip("multipart/mixed; boundary=a", b"x"),
        gzip("multipart/mixed; boundary=b", b"x")
    );
}

#[test]
fn a_form_means_the_same_under_a_new_boundary() {
    assert_eq!(
        form_of("a", "x\r\n--\r\n--c"),
        form_of("----WebKitFormBoundaryXYZ", "x\r\n--\r\n--c")
    );
    assert_ne!(form_of("a", "x"), form_of("a", "y"));
    assert_ne!(form_of("a", "x"), form_of("b", "x\r\n"));
    let (content_type, body) = form("a", "x");
    assert_ne!(of(&content_type, &body), of(&content_type.replace("form-data", "mixed"), &body));
}

#[test]
fn an_unsplit_form_counts_with_its_boundary() {
    let (_, body) = form("a", "x");
    let types =
        ["boundary=a", "boundary=b", "boundary=c", "boundary=\"c;\"", "boundary=\"b;\"", "a=b"];
    let all: Vec<_> =
        types.iter().map(|kind| of(&format!("multipart/form-data; {kind}"), &body)).collect();
    for (at, one) in all.iter().enumerate() {
        assert!(!all[at + 1..].contains(one), "{}", types[at]);
    }
}

#[test]
fn a_part_cannot_pretend_to_be_two() {
    let inner = "x\r\n--b\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\ny";
    assert_ne!(form_of("a", inner), form_of("b", inner));
}

#[test]
fn the_form_of_the_body_follows_the_media_type() {
    let is_whole = |content_type: Option<&[u8]>| {
        let head = RequestHead::new("POST", "/a").content_type(content_type);
        matches!(Fingerprinter::v1(&head), Fingerprinter::Whole(_))
    };
    for whole in
        [&b"application/json"[..], b"a/b+json; charset=\"utf-8\"", b"multipart/x; boundary=a"]
    {
        assert!(is_whole(Some(whole)), "{:?}", whole.escape_ascii());
    }
    for raw in [
        &b""[..],
        b"text/plain",
        b"application/json; charset=utf-16",
        b"multipart/x",
        b"multipart/x; boundary=\"a \"",
    ] {
        assert!(!is_whole(Some(raw)), "{:?}", raw.escape_ascii());
    }
    assert!(!is_whole(None));
}

proptest! {
    #[test]
    fn pieces_of_any_size_give_the_fingerprint_of_the_whole(
        pieces in prop::collection::vec(any::<Vec<u8>>(), 0..6), unsplit: bool,
    ) {
        let content_type = unsplit.then_some(&b"multipart/mixed; boundary=\"\xFF\""[..]);
        let head = RequestHead::new("POST", "/a").content_type(content_type);
        let Fingerprinter::Raw(mut raw) = Fingerprinter::v1(&head) else { unreachable!() };
        pieces.iter().for_each(|piece| raw.update(piece));
        prop_assert_eq!(raw.finish(), Fingerprint::v1(&head, &pieces.concat()));
    }

    #[test]
    fn bodies_meet_only_when_equal(left in any::<Vec<u8>>(), right in any::<Vec<u8>>()) {
        prop_assert_eq!(left == right, of("text/plain", &left) == of("text/plain", &right));
    }

    #[test]
    fn arbitrary_bodies_never_panic(body in any::<Vec<u8>>()) {
        of("application/json", &body);
        of("multipart/form-data; boundary=a", &body);
    }
}
