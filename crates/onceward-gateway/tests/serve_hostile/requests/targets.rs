//! What a request asks for: forms of targets, and paths that two readers may see differently.

use super::{Allowed, AtMostOnce, Case, Nothing, Once, SMUGGLED, case};

pub(super) fn all() -> Vec<Case> {
    let of = |name: &str, allowed: Allowed, target: &str| {
        case(name, allowed, format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"))
    };
    let keyed = |name: &str, allowed: Allowed, target: &str| {
        let lines = "Host: h\r\nIdempotency-Key: c0000\r\nContent-Length: 2";
        case(name, allowed, format!("POST {target} HTTP/1.1\r\n{lines}\r\n\r\nok"))
    };
    let raw = |name: &str, allowed: Allowed, target: &[u8]| {
        let bytes = [b"GET ", target, b" HTTP/1.1\r\nHost: h\r\n\r\n"].concat();
        case(name, allowed, bytes)
    };
    vec![
        of("an absolute target", Once, "http://h/c0000/intended"),
        of("an absolute target of another host", AtMostOnce, "http://other/c0000/intended"),
        keyed("an absolute target with a key", Once, "http://h/c0000/intended"),
        of("an absolute target with https", AtMostOnce, "https://h/c0000/intended"),
        of("an absolute target with a password", AtMostOnce, "http://a:b@h/c0000/intended"),
        of("an absolute target of another scheme", AtMostOnce, "ftp://h/c0000/intended"),
        of("an authority as a target", Nothing, "c0000:80"),
        case("a tunnel", Nothing, {
            format!("CONNECT c0000:80 HTTP/1.1\r\nHost: c0000\r\n\r\n{SMUGGLED}")
        }),
        case("a tunnel to a path", Nothing, {
            format!("CONNECT /c0000/intended HTTP/1.1\r\nHost: h\r\n\r\n{SMUGGLED}")
        }),
        of("an asterisk for a GET", Nothing, "*"),
        of("no slash in front", Nothing, "c0000/intended"),
        of("a fragment", AtMostOnce, "/c0000/intended#x"),
        of("a space in the path", Nothing, "/c0000/intended x"),
        of("dots", Nothing, "/c0000/x/../intended"),
        of("dots at the end", Nothing, "/c0000/intended/.."),
        of("one dot", Nothing, "/c0000/./intended"),
        of("escaped dots", Nothing, "/c0000/x/%2e%2e/intended"),
        of("escaped dots in capitals", Nothing, "/c0000/x/%2E%2E/intended"),
        of("half escaped dots", Nothing, "/c0000/x/.%2e/intended"),
        keyed("dots with a key", Nothing, "/c0000/x/../intended"),
        keyed("escaped dots with a key", Nothing, "/c0000/x/%2e%2E/intended"),
        of("dots with an escaped slash", AtMostOnce, "/c0000/x/..%2fintended"),
        of("dots with a backslash", AtMostOnce, "/c0000/x/..\\intended"),
        of("dots with a parameter", AtMostOnce, "/c0000/x/..;/intended"),
        of("dots escaped twice", AtMostOnce, "/c0000/x/%252e%252e/intended"),
        of("dots in a query", AtMostOnce, "/c0000/intended?x=/../"),
        of("the gateway's own path behind dots", Nothing, "/c0000/../.onceward/capabilities"),
        of("the gateway's own path behind two slashes", AtMostOnce, "//.onceward/c0000"),
        of("the gateway's own path, escaped", AtMostOnce, "/%2eonceward/c0000"),
        of("two slashes in front", AtMostOnce, "//c0000/intended"),
        of("two slashes within", AtMostOnce, "/c0000//intended"),
        keyed("two slashes with a key", AtMostOnce, "//c0000/intended"),
        of("a parameter in a segment", AtMostOnce, "/c0000;a=b/intended"),
        of("an escaped NUL", AtMostOnce, "/c0000/intended%00"),
        of("an escaped line end", AtMostOnce, "/c0000/intended%0d%0aX:%20y"),
        of("a backslash", AtMostOnce, "/c0000\\intended"),
        of("an escape that is none", AtMostOnce, "/c0000/intended%zz"),
        of("half an escape", AtMostOnce, "/c0000/intended%"),
        keyed("an escape that is none, with a key", AtMostOnce, "/c0000/intended%zz"),
        raw("a NUL in the path", Nothing, b"/c0000/intended\0"),
        raw("a control in the path", Nothing, b"/c0000/intended\x01"),
        raw("a delete in the path", Nothing, b"/c0000/intended\x7f"),
        raw("a byte over 127 in the path", AtMostOnce, b"/c0000/intended\xff"),
        raw("a path in UTF-8", AtMostOnce, "/c0000/intended/ü".as_bytes()),
        of(
            "a query of ten thousand bytes",
            AtMostOnce,
            &format!("/c0000/intended?{}", "q".repeat(10_000)),
        ),
        of(
            "a query of a hundred thousand bytes",
            Nothing,
            &format!("/c0000/intended?{}", "q".repeat(100_000)),
        ),
        keyed(
            "a query of ten thousand pairs",
            AtMostOnce,
            &format!("/c0000/intended?{}", "a=b&".repeat(10_000)),
        ),
        of(
            "a path of sixty thousand segments",
            AtMostOnce,
            &format!("/c0000/intended{}", "/".repeat(60_000)),
        ),
        case("an asterisk for OPTIONS", AtMostOnce, "OPTIONS * HTTP/1.1\r\nHost: c0000\r\n\r\n"),
        case("a trace", AtMostOnce, "TRACE /c0000/intended HTTP/1.1\r\nHost: h\r\n\r\n"),
    ]
}
