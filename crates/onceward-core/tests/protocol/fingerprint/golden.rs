//! Fixed requests and their fingerprints under version 1.
//!
//! The digests were computed from the table in the module's documentation by another program. A
//! failure here means that retries of requests in flight would be refused after an upgrade: do not
//! correct a vector, make a new version.

use onceward_core::{Fingerprint, RequestHead};

#[track_caller]
fn check(head: &RequestHead<'_>, body: &[u8], expected: &str) {
    let fingerprint = Fingerprint::v1(head, body);
    let hex: String = fingerprint.digest().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((fingerprint.version(), hex.as_str()), (1, expected));
}

#[test]
fn the_least_request() {
    check(
        &RequestHead::new("POST", "/"),
        b"",
        "1ee22b618dc21c90fed0b41558ae458c05e97bb6f60cd0b098ee4f046d95f5f8",
    );
}

#[test]
fn a_request_with_everything() {
    let head = RequestHead::new("PATCH", "/v1/orders/7%2F8")
        .query(Some("flag&b=+%zz&a=1&&a=%2b%20%C3%a9"))
        .content_type(Some(b"Text/Plain; format=\"x;y\"; Charset=UTF-8; boundary=z"))
        .content_encoding(Some(b" GZip "))
        .header("X-B", b"2")
        .header("X-A", b"\xFF")
        .header("x-b", b"1");
    check(
        &head,
        b"\x00\x01\x02\xFF",
        "b0c33d59edeb81ab2e2cb18730474f45fa7d8a53bf44f4ad7441cdb6d3b334c7",
    );
}

#[test]
fn json() {
    let head = RequestHead::new("POST", "/charges")
        .content_type(Some(b"application/json; charset=utf-8"))
        .content_encoding(Some(b"identity"));
    let body =
        r#" { "b": [1.0, -0, 1E+2, true, false, {}], "a": "\u0041é\ud83d\ude00", "": null }"#;
    check(
        &head,
        body.as_bytes(),
        "4733bce40bde987d3e764911ad54bd10917cc747dd64efa76ddb0a1b6fe1ad41",
    );
}

#[test]
fn json_with_a_duplicate_key() {
    let head = RequestHead::new("POST", "/charges").content_type(Some(b"application/problem+json"));
    check(
        &head,
        br#"{"a":1,"a":1}"#,
        "2382c63f178ee38d256c63f6844c1bc92bbf6fec0e77ec76be355f1da7465d78",
    );
}

#[test]
fn a_form() {
    let head = RequestHead::new("POST", "/upload")
        .content_type(Some(b"multipart/form-data; boundary=----Boundary7"));
    let body = b"------Boundary7\r\n\
        Content-Disposition: form-data; name=\"a\"\r\n\r\n\
        1\r\n\
        ------Boundary7\r\n\
        Content-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\
        Content-Type: text/plain\r\n\r\n\
        x\r\n--\r\n\r\ny\r\n\
        ------Boundary7--\r\n";
    check(&head, body, "0406d1ef6d7f49881bc0e57626454422e2774d965a66e02bc9d66338fe73b1d4");
}

#[test]
fn a_multipart_body_that_is_not_split() {
    let head = RequestHead::new("POST", "/upload")
        .content_type(Some(b"multipart/mixed; boundary=\"A b\""));
    check(
        &head,
        b"--A b\n\nx\n--A b--",
        "8efdb90bfe39e2f4199a65ea795304d2ccca162c385374dc54af50ba067701ee",
    );
}

#[test]
fn a_malformed_media_type() {
    check(
        &RequestHead::new("PUT", "/x").content_type(Some(b"text")),
        b"x",
        "787005a5477ec2d3ab345a59eab0e33ce844f209930cbc1443641326873a64b6",
    );
}
