//! First lines, versions and hosts.

use super::{Allowed, AtMostOnce, Case, Nothing, Once, SMUGGLED, bare, case};

pub(super) fn all() -> Vec<Case> {
    let of = |name: &str, allowed: Allowed, line: &str| {
        case(name, allowed, format!("{line}\r\nHost: h\r\n\r\n"))
    };
    vec![
        case("HTTP/0.9", Nothing, "GET /c0000/intended\r\n"),
        case("HTTP/0.9 and a request behind it", Nothing, {
            format!("GET /c0000/intended\r\n{SMUGGLED}")
        }),
        of("HTTP/1.0", Once, "GET /c0000/intended HTTP/1.0"),
        case("HTTP/1.0 without a host", Once, "GET /c0000/intended HTTP/1.0\r\n\r\n"),
        of("HTTP/1.2", Nothing, "GET /c0000/intended HTTP/1.2"),
        of("HTTP/2.0 in a line", Nothing, "GET /c0000/intended HTTP/2.0"),
        of("HTTP/3 in a line", Nothing, "GET /c0000/intended HTTP/3"),
        of("HTTP/01.1", Nothing, "GET /c0000/intended HTTP/01.1"),
        of("http/1.1 in small letters", Nothing, "GET /c0000/intended http/1.1"),
        of("another protocol", Nothing, "GET /c0000/intended ICY/1.1"),
        of("no version", Nothing, "GET /c0000/intended "),
        of("a version behind two spaces", Nothing, "GET /c0000/intended  HTTP/1.1"),
        of("a version behind a tab", Nothing, "GET /c0000/intended\tHTTP/1.1"),
        of("a version and a word", Nothing, "GET /c0000/intended HTTP/1.1 x"),
        of("two spaces behind the method", Nothing, "GET  /c0000/intended HTTP/1.1"),
        of("a space before the method", Nothing, " GET /c0000/intended HTTP/1.1"),
        of("no method", Nothing, "/c0000/intended HTTP/1.1"),
        of("a method with a colon", Nothing, "GE:T /c0000/intended HTTP/1.1"),
        of("a method with a NUL", Nothing, "GE\0T /c0000/intended HTTP/1.1"),
        of(
            "a method of ten thousand letters",
            AtMostOnce,
            &format!("{} /c0000/intended HTTP/1.1", "G".repeat(10_000)),
        ),
        of("a method in small letters", AtMostOnce, "get /c0000/intended HTTP/1.1"),
        of("line ends before the first line", AtMostOnce, "\r\n\r\nGET /c0000/intended HTTP/1.1"),
        of("bytes before the first line", Nothing, "\u{feff}GET /c0000/intended HTTP/1.1"),
        case("no host", Nothing, "GET /c0000/intended HTTP/1.1\r\n\r\n"),
        case("two hosts", Nothing, bare("Host: other\r\n")),
        case("the same host twice", Nothing, bare("Host: h\r\n")),
        case("an empty host", AtMostOnce, bare("").replacen("Host: h", "Host:", 1)),
        case("a host with a path", Nothing, bare("").replacen("Host: h", "Host: h/x", 1)),
        case("a host with a name and a password", Nothing, {
            bare("").replacen("Host: h", "Host: a:b@h", 1)
        }),
        case("a host with a space", Nothing, bare("").replacen("Host: h", "Host: h other", 1)),
        case("a list of hosts", Nothing, bare("").replacen("Host: h", "Host: h, other", 1)),
        case("the preface of HTTP/2 and garbage", Nothing, {
            format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{SMUGGLED}")
        }),
        case("half of the preface of HTTP/2", Nothing, format!("PRI * HTTP/2.0\r\n\r\n{SMUGGLED}")),
        case("the preface of HTTP/2 and a frame of 16 MiB", Nothing, {
            [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x00\x00\x00\x00\x00\x01"[..]].concat()
        }),
        case("the start of TLS", Nothing, {
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()
        }),
        case("bytes without meaning", Nothing, (0..=255).collect::<Vec<u8>>()),
        case("only line ends", Nothing, "\r\n".repeat(5000)),
        case("one letter", Nothing, "G"),
        case("half a head", Nothing, "GET /c0000/intended HTTP/1.1\r\nHost: h\r\nX: "),
    ]
}
