//! Chunks that two readers may see differently.

use super::{Allowed, AtMostOnce, Case, Nothing, Once, SMUGGLED, case, post, unkeyed};

pub(super) fn all() -> Vec<Case> {
    let of = |name: &str, allowed: Allowed, rest: &str| {
        case(name, allowed, post("Transfer-Encoding: chunked\r\n", rest))
    };
    let mut cases = vec![
        of("a chunk extension", Once, "2;a=b\r\nok\r\n0\r\n\r\n"),
        of("a chunk extension in quotes", Once, "2;a=\"b;c\"\r\nok\r\n0\r\n\r\n"),
        of("a chunk extension with a bare LF", Nothing, &format!("2;a\nok\r\n0\r\n\r\n{SMUGGLED}")),
        of("a chunk extension with a bare CR", Nothing, "2;a\rx\r\nok\r\n0\r\n\r\n"),
        of(
            "a chunk extension that is too long",
            Nothing,
            &format!("2;{}\r\nok\r\n0\r\n\r\n", "a".repeat(100_000)),
        ),
        of("a chunk extension of the last chunk", Once, "2\r\nok\r\n0;a=b\r\n\r\n"),
        of("a chunk size with zeros in front", AtMostOnce, "0002\r\nok\r\n0000\r\n\r\n"),
        of(
            "a chunk size with a thousand zeros in front",
            AtMostOnce,
            &format!("{}2\r\nok\r\n0\r\n\r\n", "0".repeat(1000)),
        ),
        of("a chunk size with 0x", Nothing, "0x2\r\nok\r\n0\r\n\r\n"),
        of("a chunk size with a plus", Nothing, "+2\r\nok\r\n0\r\n\r\n"),
        of("a chunk size with a minus", Nothing, "-2\r\nok\r\n0\r\n\r\n"),
        of("a chunk size that is empty", Nothing, "\r\nok\r\n0\r\n\r\n"),
        of("a chunk size behind a space", Nothing, " 2\r\nok\r\n0\r\n\r\n"),
        of("a chunk size before a space", AtMostOnce, "2 \r\nok\r\n0\r\n\r\n"),
        of("a chunk size with a space in it", Nothing, "0 2\r\nok\r\n0\r\n\r\n"),
        of("a chunk size with an underscore", Nothing, "0_2\r\nok\r\n0\r\n\r\n"),
        of("a chunk size of 2^64", Nothing, "10000000000000000\r\nok\r\n0\r\n\r\n"),
        of("a chunk size of 2^64 + 2", Nothing, "10000000000000002\r\nok\r\n0\r\n\r\n"),
        of("a chunk size of 2^64 - 1", Nothing, "ffffffffffffffff\r\nok\r\n0\r\n\r\n"),
        of("a chunk size of 2^63", Nothing, "8000000000000000\r\nok\r\n0\r\n\r\n"),
        of("a chunk size with a letter", Nothing, "g\r\nok\r\n0\r\n\r\n"),
        of("a chunk size with a NUL", Nothing, "2\0\r\nok\r\n0\r\n\r\n"),
        of("a chunk size with a bare LF", Nothing, "2\nok\r\n0\r\n\r\n"),
        of("a chunk size with a bare CR", Nothing, "2\rok\r\n0\r\n\r\n"),
        of("a chunk with a bare LF behind it", Nothing, "2\r\nok\n0\r\n\r\n"),
        of("a chunk with a bare CR behind it", Nothing, "2\r\nok\r0\r\n\r\n"),
        of("a chunk with nothing behind it", Nothing, "2\r\nok0\r\n\r\n"),
        of("a chunk that is longer than said", Nothing, "2\r\nokay\r\n0\r\n\r\n"),
        of("a chunk that is shorter than said", Nothing, "5\r\nok\r\n0\r\n\r\n"),
        of("two ends of line behind a chunk", Nothing, "2\r\nok\r\n\r\n0\r\n\r\n"),
        of("a last chunk with bare LFs", Nothing, &format!("2\r\nok\r\n0\n\n{SMUGGLED}")),
        of("a last chunk without its second line end", Nothing, "2\r\nok\r\n0\r\n"),
        of("no last chunk", Nothing, "2\r\nok\r\n"),
        of("nothing at all", Nothing, ""),
        of("a body that is not chunked", Nothing, SMUGGLED),
        of("a trailer", AtMostOnce, "2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n"),
        of("a trailer with a space before its colon", Nothing, "2\r\nok\r\n0\r\nX : 1\r\n\r\n"),
        of("a trailer with a NUL", Nothing, "2\r\nok\r\n0\r\nX: \0\r\n\r\n"),
        of("a trailer without a colon", Nothing, "2\r\nok\r\n0\r\nX\r\n\r\n"),
        of("a trailer with a bare LF", AtMostOnce, "2\r\nok\r\n0\r\nX: 1\nY: 2\r\n\r\n"),
        of(
            "a thousand trailers",
            Nothing,
            &format!("2\r\nok\r\n0\r\n{}\r\n", "X: 1\r\n".repeat(1000)),
        ),
        of(
            "a trailer of a hundred thousand bytes",
            Nothing,
            &format!("2\r\nok\r\n0\r\nX: {}\r\n\r\n", "1".repeat(100_000)),
        ),
    ];
    cases.extend(forbidden_trailers());
    cases
}

/// RFC 9110, 6.5.1: what frames or routes a message means nothing behind it.
fn forbidden_trailers() -> Vec<Case> {
    let lines = [
        "Content-Length: 999",
        "Transfer-Encoding: chunked",
        "Host: other",
        "Idempotency-Key: other",
        "Onceward-Attempt: 7",
        "Connection: close",
    ];
    let kinds = [("with a key", post as fn(&str, &str) -> String), ("without", unkeyed)];
    let mut cases = Vec::new();
    for line in lines {
        for (kind, make) in kinds {
            let name = line.split(':').next().unwrap();
            let head = format!("Trailer: {name}\r\nTransfer-Encoding: chunked\r\n");
            let bytes = make(&head, &format!("2\r\nok\r\n0\r\n{line}\r\n\r\n"));
            cases.push(case(format!("the trailer {name}, {kind}"), AtMostOnce, bytes));
        }
    }
    cases
}
