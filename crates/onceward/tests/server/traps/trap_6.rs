//! Trap 6: a key stands for the whole request, and for what it means.

use std::net::SocketAddr;

use crate::{
    server_support::{Gate, Ledger, layer, memory, raw, serve},
    traps::fixture::charging,
};

/// A request as it goes over the wire: content type, path with query, and body in pieces.
struct Meant<'a>(&'a str, &'a str, &'a [&'a [u8]]);

impl Meant<'_> {
    async fn send(&self, address: SocketAddr, key: &str, is_chunked: bool) -> String {
        let Self(media_type, path, pieces) = self;
        let mut bytes = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nidempotency-key: {key}\r\n\
             content-type: {media_type}\r\n"
        )
        .into_bytes();
        let whole = pieces.concat();
        if is_chunked {
            bytes.extend(b"transfer-encoding: chunked\r\n\r\n");
            for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
                bytes.extend(format!("{:x}\r\n", piece.len()).into_bytes());
                bytes.extend([*piece, b"\r\n"].concat());
            }
            bytes.extend(b"0\r\n\r\n");
        } else {
            bytes.extend(format!("content-length: {}\r\n\r\n", whole.len()).into_bytes());
            bytes.extend(whole);
        }
        String::from_utf8(raw(address, &bytes).await).unwrap()
    }
}

const JSON: &str = "application/json";

#[tokio::test]
async fn trap_6_the_whole_request_counts_and_only_its_meaning() {
    let (ledger, gate) = (Ledger::default(), Gate::closed());
    let app = charging(&ledger, &gate, layer(memory()).build().unwrap());
    let address = serve(app).await;
    let large = vec![b'x'; 900 << 10];
    let (rest, last) = large.split_at(large.len() - 1);
    let part = |boundary: &str, value: &str| {
        let head = "Content-Disposition: form-data; name=\"cents\"";
        format!("--{boundary}\r\n{head}\r\n\r\n{value}\r\n--{boundary}--\r\n").into_bytes()
    };
    let (one, same, other) = (part("aaa", "500"), part("b-b", "500"), part("b-b", "501"));
    let (form_a, form_b) =
        ("multipart/form-data; boundary=aaa", "multipart/form-data; boundary=\"b-b\"");
    let text = "text/plain";
    let query = "/charges?b=1&a=x&a=y";
    let nested = br#"{"b":[1,{"d":2,"c":3}],"a":"\u00e9"}"#;
    // What was sent first, what means the same, and what does not.
    let cases: &[(Meant<'_>, &[Meant<'_>], &[Meant<'_>])] = &[
        (
            Meant(JSON, "/charges", &[nested]),
            &[
                Meant(JSON, "/charges", &[br#"{"a":"\u00e9","b":[1,{"c":3,"d":2}]}"#]),
                Meant(
                    JSON,
                    "/charges",
                    &[b"{ \"b\" : [1, {\"d\":2 ,\"c\":3}],\n \"a\": ", b"\"\xc3\xa9\"}"],
                ),
                Meant("application/json; charset=utf-8", "/charges", &[nested]),
            ],
            &[
                Meant(JSON, "/charges", &[br#"{"b":[{"d":2,"c":3},1],"a":"\u00e9"}"#]),
                Meant(JSON, "/charges", &[br#"{"b":[1.0,{"d":2,"c":3}],"a":"\u00e9"}"#]),
                Meant(JSON, "/charges", &[br#"{"b":[1,{"d":2,"c":3}],"a":"e"}"#]),
                Meant(text, "/charges", &[nested]),
                Meant(JSON, "/charges?x", &[nested]),
            ],
        ),
        (
            Meant(text, "/charges", &[rest, last]),
            &[],
            &[Meant(text, "/charges", &[rest, b"y"]), Meant(text, "/charges", &[rest])],
        ),
        (
            Meant(text, query, &[b""]),
            &[
                Meant(text, "/charges?a=x&a=y&b=1", &[b""]),
                Meant(text, "/charges?a=%78&b=1&a=y", &[]),
            ],
            &[
                Meant(text, "/charges?b=1&a=y&a=x", &[]),
                Meant(text, "/charges?b=1&a=x", &[]),
                Meant(text, "/charges", &[]),
            ],
        ),
        (
            Meant(form_a, "/charges", &[&one]),
            &[Meant(form_b, "/charges", &[&same])],
            &[Meant(form_b, "/charges", &[&other])],
        ),
    ];
    for (number, (first, same, different)) in (1..).zip(cases) {
        let key = format!("key-{number}");
        gate.open();
        let answer = first.send(address, &key, false).await;
        assert!(answer.starts_with("HTTP/1.1 201 ") && !answer.contains("replayed"), "{answer}");
        for is_chunked in [true, false] {
            for (place, again) in same.iter().chain([first]).enumerate() {
                let answer = again.send(address, &key, is_chunked).await;
                assert!(answer.contains("replayed: true"), "case {number}, {place}: {answer}");
            }
            for (place, other) in different.iter().enumerate() {
                let answer = other.send(address, &key, is_chunked).await;
                assert!(answer.starts_with("HTTP/1.1 422 "), "case {number}, {place}: {answer}");
                assert!(
                    answer.contains("\"key-reused\"") && !answer.contains("charge "),
                    "{answer}"
                );
            }
        }
        assert_eq!(ledger.len(), number);
    }
    a_running_execution_is_not_disturbed_by_a_mismatch(address, &gate, &ledger).await;
}

/// A mismatch is told before "in progress".
async fn a_running_execution_is_not_disturbed_by_a_mismatch(
    address: SocketAddr,
    gate: &Gate,
    ledger: &Ledger,
) {
    let effects = ledger.len();
    for _ in 0..effects {
        gate.reached().await;
    }
    let first = tokio::spawn(async move {
        Meant(JSON, "/charges", &[b"{\"cents\":1}"]).send(address, "running", false).await
    });
    gate.reached().await;
    let other = Meant(JSON, "/charges", &[b"{\"cents\":2}"]).send(address, "running", true).await;
    assert!(other.starts_with("HTTP/1.1 422 "), "{other}");
    let same = Meant(JSON, "/charges", &[b"{ \"cents\": 1 }"]).send(address, "running", true).await;
    assert!(same.starts_with("HTTP/1.1 409 ") && same.contains("\"in-progress\""), "{same}");
    gate.open();
    assert!(first.await.unwrap().starts_with("HTTP/1.1 201 "));
    assert_eq!(ledger.len(), effects + 1);
}
