//! HTTP/2: what becomes ambiguous only when it is written as HTTP/1.1.

use super::{Allowed, AtMostOnce, Case, Nothing, SMUGGLED, case};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) fn all() -> Vec<Case> {
    let keyed = [("idempotency-key", "c0000")];
    let of = |name: &str, allowed: Allowed, lines: &[(&str, &str)]| {
        let lines = [&head("/c0000/intended")[..], &keyed, lines].concat();
        case(format!("HTTP/2: {name}"), allowed, bytes(&lines, SMUGGLED))
    };
    let whole = |name: &str, allowed: Allowed, lines: &[(&str, &str)]| {
        case(format!("HTTP/2: {name}"), allowed, bytes(lines, SMUGGLED))
    };
    let path = |name: &str, allowed: Allowed, path: &str| whole(name, allowed, &head(path));
    vec![
        of("nothing special", AtMostOnce, &[]),
        of("a length that is too small", Nothing, &[("content-length", "0")]),
        of("a length that is too large", Nothing, &[("content-length", "5000")]),
        of("a length that is none", Nothing, &[("content-length", "x")]),
        of("two lengths", Nothing, &[("content-length", "0"), ("content-length", "41")]),
        of("chunked", Nothing, &[("transfer-encoding", "chunked")]),
        of("a connection", Nothing, &[("connection", "close")]),
        of("an upgrade", Nothing, &[("upgrade", "h2c")]),
        of("te gzip", Nothing, &[("te", "gzip")]),
        of("a line end in a value", Nothing, &[("x", "a\r\ntransfer-encoding: chunked")]),
        of("a bare LF in a value", Nothing, &[("x", "a\nb: c")]),
        of("a bare CR in a value", Nothing, &[("x", "a\rb")]),
        of("a NUL in a value", Nothing, &[("x", "a\0")]),
        of("a line end in a name", Nothing, &[("x: a\r\nb", "c")]),
        of("a colon in a name", Nothing, &[("transfer-encoding: chunked\r\nx", "a")]),
        of("a space in a name", Nothing, &[("x y", "a")]),
        of("an empty name", Nothing, &[("", "a")]),
        of("a name in capitals", Nothing, &[("X", "a")]),
        of("another host", AtMostOnce, &[("host", "other")]),
        of("two other hosts", Nothing, &[("host", "other"), ("host", "h")]),
        of("a second path", Nothing, &[(":path", "/c0000/smuggled")]),
        of("a second key", Nothing, &[("idempotency-key", "other")]),
        of("an unknown pseudo-header", Nothing, &[(":x", "a")]),
        path("a space in the path", Nothing, "/c0000/intended HTTP/1.1"),
        path("a line end in the path", Nothing, "/c0000/intended HTTP/1.1\r\nx: y\r\n\r\n"),
        path("dots in the path", Nothing, "/c0000/../intended"),
        path("no path", Nothing, ""),
        path("an asterisk", Nothing, "*"),
        path("an absolute path", Nothing, "http://h/c0000/intended"),
        whole("a tunnel", Nothing, &[(":method", "CONNECT"), (":authority", "c0000:80")]),
        whole("a method with a line end", Nothing, &{
            let mut lines = head("/c0000/intended");
            lines[0] = (":method", "GET /c0000/smuggled HTTP/1.1\r\nhost: h\r\n\r\nGET");
            lines
        }),
        whole("an authority with a password", Nothing, &{
            let mut lines = head("/c0000/intended");
            lines[3] = (":authority", "a:b@h");
            lines
        }),
        whole("an authority with a line end", Nothing, &{
            let mut lines = head("/c0000/intended");
            lines[3] = (":authority", "h\r\nx: y");
            lines
        }),
        case("HTTP/2: a body on no stream", Nothing, {
            [PREFACE, &frame(4, 0, 0, &[]), &frame(0, 1, 7, SMUGGLED.as_bytes())].concat()
        }),
        case("HTTP/2: a head that is no head", Nothing, {
            [PREFACE, &frame(4, 0, 0, &[]), &frame(1, 5, 1, &[0xff; 64])].concat()
        }),
        case("HTTP/2: a head without its end", Nothing, {
            let part = frame(1, 0, 1, &packed(&head("/c0000/intended")));
            [PREFACE, &frame(4, 0, 0, &[]), &part, &frame(0, 1, 1, b"x")].concat()
        }),
    ]
}

fn head(path: &str) -> [(&'static str, &str); 4] {
    [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "h")]
}

/// A connection with one request on it.
fn bytes(lines: &[(&str, &str)], body: &str) -> Vec<u8> {
    let settings = frame(4, 0, 0, &[]);
    let lines = frame(1, 4, 1, &packed(lines));
    [PREFACE, &settings, &lines, &frame(0, 1, 1, body.as_bytes())].concat()
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags, 0, 0, 0, stream];
    [&head[..], payload].concat()
}

/// HPACK, without any table or code: every text as it is.
fn packed(lines: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| {
        let length = u8::try_from(text.len()).unwrap();
        assert!(length < 127, "a length of one byte");
        [&[length], text.as_bytes()].concat()
    };
    let line = |(name, value): &(&str, &str)| [vec![0], text(name), text(value)].concat();
    lines.iter().flat_map(line).collect()
}
