//! Header lines: folds, line ends, controls, and lines that mean something to the gateway.

use super::{Allowed, AtMostOnce, Case, Nothing, Once, SMUGGLED, bare, case, post};

pub(super) fn all() -> Vec<Case> {
    let mut cases = broken();
    cases.extend(keys());
    cases.extend(connections());
    cases
}

fn broken() -> Vec<Case> {
    let hidden = format!("0\r\n\r\n{SMUGGLED}");
    let of = |name: &str, allowed: Allowed, lines: &str| case(name, allowed, bare(lines));
    let bytes = |name: &str, line: &[u8]| {
        let head = b"GET /c0000/intended HTTP/1.1\r\nHost: h\r\n";
        case(name, Nothing, [&head[..], line, b"\r\n\r\n"].concat())
    };
    vec![
        of("a folded line", Nothing, "X: a\r\n b\r\n"),
        of("a line folded with a tab", Nothing, "X: a\r\n\tb\r\n"),
        of("a folded first line", Nothing, " X: a\r\n"),
        case("a folded length", Nothing, {
            post(&format!("Content-Length:\r\n {}\r\n", SMUGGLED.len()), SMUGGLED)
        }),
        case("a folded encoding", Nothing, post("Transfer-Encoding:\r\n chunked\r\n", &hidden)),
        case("a folded host", Nothing, bare("").replacen("Host: h", "Host:\r\n h", 1)),
        of("a space before the colon", Nothing, "X : a\r\n"),
        of("a tab before the colon", Nothing, "X\t: a\r\n"),
        case("a space before the colon of a length", Nothing, {
            post(&format!("Content-Length : {}\r\n", SMUGGLED.len()), SMUGGLED)
        }),
        case("a space before the colon of chunked", Nothing, {
            post("Transfer-Encoding : chunked\r\n", &hidden)
        }),
        of("a line without a colon", Nothing, "X\r\n"),
        of("a line of a colon", Nothing, ": a\r\n"),
        of("a name with a space", Nothing, "X Y: a\r\n"),
        of("a name in brackets", Nothing, "[X]: a\r\n"),
        of("a name with a slash", Nothing, "X/Y: a\r\n"),
        of("a name with a quote", Nothing, "\"X\": a\r\n"),
        of("an empty value", Once, "X:\r\n"),
        of("a bare CR in a value", Nothing, "X: a\rY: b\r\n"),
        of("a bare CR at the end of a value", Nothing, "X: a\r\r\n"),
        of("a bare CR before the end", Nothing, "X: a\r\n\r"),
        bytes("a NUL in a value", b"X: a\0b"),
        bytes("a NUL in a name", b"X\0: a"),
        bytes("a bell in a value", b"X: \x07"),
        bytes("an escape in a value", b"X: \x1b[2J"),
        bytes("a delete in a value", b"X: \x7f"),
        bytes("a control in a name", b"X\x01: a"),
        bytes("a byte over 127 in a name", b"X\xff: a"),
        case("a byte over 127 in a value", AtMostOnce, {
            [bare("").trim_end().as_bytes(), b"\r\nX: \xff\xfe\r\n\r\n"].concat()
        }),
        case("a length hidden behind a bare CR", Nothing, {
            post(&format!("X: a\rContent-Length: {}\r\n", SMUGGLED.len()), SMUGGLED)
        }),
        case("chunked hidden behind a bare LF, and a length", AtMostOnce, {
            let lines =
                format!("Content-Length: {}\r\nX: a\nTransfer-Encoding: chunked\r\n", hidden.len());
            post(&lines, &hidden)
        }),
        case("bare LFs throughout", AtMostOnce, bare("X: a\r\n").replace("\r\n", "\n")),
        case("bare CRs throughout", Nothing, bare("X: a\r\n").replace("\r\n", "\r")),
        case("LF CR throughout", Nothing, bare("X: a\r\n").replace("\r\n", "\n\r")),
        of("a hundred and one lines", Nothing, &"X: a\r\n".repeat(101)),
        of("ten thousand lines", Nothing, &"X: a\r\n".repeat(10_000)),
        of(
            "a line of a hundred thousand bytes",
            Nothing,
            &format!("X: {}\r\n", "a".repeat(100_000)),
        ),
        of("a name of seventy thousand bytes", Nothing, &format!("{}: a\r\n", "a".repeat(70_000))),
    ]
}

fn keys() -> Vec<Case> {
    let of = |name: &str, allowed: Allowed, lines: &str| {
        let line = "POST /c0000/intended HTTP/1.1\r\nHost: h\r\n";
        case(name, allowed, format!("{line}{lines}\r\nContent-Length: 2\r\n\r\nok"))
    };
    let raw = |name: &str, value: &[u8]| {
        let head = b"POST /c0000/intended HTTP/1.1\r\nHost: h\r\nIdempotency-Key: ";
        case(name, Nothing, [&head[..], value, b"\r\nContent-Length: 2\r\n\r\nok"].concat())
    };
    vec![
        of("two keys", Nothing, "Idempotency-Key: c0000\r\nIdempotency-Key: other"),
        of("the same key twice", Nothing, "Idempotency-Key: c0000\r\nIdempotency-Key: c0000"),
        of("a list of keys", Nothing, "Idempotency-Key: \"c0000\", \"other\""),
        of("a list of bare keys", Nothing, "Idempotency-Key: c0000, other"),
        of("an empty key", Nothing, "Idempotency-Key:"),
        of("a key of two quotes", Nothing, "Idempotency-Key: \"\""),
        of("a key with one quote", Nothing, "Idempotency-Key: \"c0000"),
        of("a key of 256 bytes", Nothing, &format!("Idempotency-Key: {}", "k".repeat(256))),
        of("a key with a space in it", Nothing, "Idempotency-Key: c0 000"),
        raw("a key with a byte over 127", b"c0000\xff"),
        raw("a key that is not UTF-8", b"\xc3\x28"),
        raw("a key in UTF-8", "schlüssel".as_bytes()),
        raw("a key with a tab in it", b"c0\t000"),
        of("a key in capitals of its name", Once, "IDEMPOTENCY-KEY: c0000"),
        of("a key that the connection shall keep", Once, {
            "Idempotency-Key: c0000\r\nConnection: idempotency-key"
        }),
        of("a length that the connection shall keep", Once, {
            "Idempotency-Key: c0000\r\nConnection: content-length"
        }),
        of("a host that the connection shall keep", Once, {
            "Idempotency-Key: c0000\r\nConnection: host, close"
        }),
    ]
}

fn connections() -> Vec<Case> {
    let of = |name: &str, allowed: Allowed, lines: &str| case(name, allowed, bare(lines));
    vec![
        of("close", Once, "Connection: close\r\n"),
        of("close and keep-alive", Once, "Connection: close, keep-alive\r\n"),
        of("a connection of commas", Once, "Connection: ,,,\r\n"),
        of("a connection that names no header", Once, "Connection: @, (\r\n"),
        of("an upgrade to h2c", Once, {
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
        }),
        of("an upgrade to a websocket", Once, {
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        }),
        of("an upgrade to what nobody knows", Once, "Connection: Upgrade\r\nUpgrade: x\r\n"),
        of("te trailers", Once, "TE: trailers, deflate\r\nConnection: TE\r\n"),
        case("an expectation", Once, post("Content-Length: 2\r\nExpect: 100-continue\r\n", "ok")),
        case("an unknown expectation", AtMostOnce, {
            post("Content-Length: 2\r\nExpect: 200-ok\r\n", "ok")
        }),
        case("two expectations", AtMostOnce, {
            post("Content-Length: 2\r\nExpect: 100-continue, x\r\n", "ok")
        }),
        case("an expectation without a body", AtMostOnce, bare("Expect: 100-continue\r\n")),
        case("an expectation that is not met", Nothing, {
            let key = "Idempotency-Key: second\r\n";
            let lines =
                format!("{key}Content-Length: {}\r\nExpect: 100-continue\r\n", SMUGGLED.len());
            post(&lines, SMUGGLED)
        }),
        of("what only the gateway may say", Once, {
            "Onceward-Execution: x\r\nOnceward-Key: x\r\nOnceward-Attempt: 99\r\n"
        }),
    ]
}
