//! How long is the body? `Content-Length` and `Transfer-Encoding`, alone and against each other.

use super::{
    Allowed, AtMostOnce, AtMostOnceAndTheEnd, Case, Nothing, Once, SMUGGLED, bare, case, post,
    unkeyed,
};

pub(super) fn all() -> Vec<Case> {
    let mut cases = both();
    cases.extend(lengths());
    cases.extend(encodings());
    cases.extend(hidden());
    cases
}

/// RFC 9112, 6.3: such a request may be read as chunked if the connection ends with it.
fn both() -> Vec<Case> {
    let chunked = "Transfer-Encoding: chunked\r\n";
    let ended = format!("0\r\n\r\n{SMUGGLED}");
    let all = format!("Content-Length: {}\r\n", ended.len());
    let inside = format!("{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len());
    let short = "Content-Length: 4\r\n";
    let mut cases = Vec::new();
    for (kind, make) in
        [("with a key", post as fn(&str, &str) -> String), ("without a key", unkeyed)]
    {
        for (name, lines, rest) in [
            ("length before chunked", format!("{all}{chunked}"), &ended),
            ("chunked before length", format!("{chunked}{all}"), &ended),
            ("a short length before chunked", format!("{short}{chunked}"), &inside),
            ("chunked before a short length", format!("{chunked}{short}"), &inside),
            ("a length on both sides of chunked", format!("{all}{chunked}{short}"), &ended),
            ("chunked on both sides of a length", format!("{chunked}{all}{chunked}"), &ended),
            ("a length of 0 before chunked", format!("Content-Length: 0\r\n{chunked}"), &inside),
            ("chunked before a length of 0", format!("{chunked}Content-Length: 0\r\n"), &inside),
            ("chunked before a wrong length", format!("{chunked}Content-Length: x\r\n"), &ended),
        ] {
            cases.push(case(format!("{name}, {kind}"), AtMostOnceAndTheEnd, make(&lines, rest)));
        }
    }
    let wrong = format!("Content-Length: x\r\n{chunked}");
    cases.push(case("a wrong length before chunked", Nothing, post(&wrong, &ended)));
    cases
}

fn lengths() -> Vec<Case> {
    let length = SMUGGLED.len();
    let of = |name: &str, allowed: Allowed, lines: &str| case(name, allowed, post(lines, SMUGGLED));
    let value = |value: &str| format!("Content-Length: {value}\r\n");
    vec![
        of("two lengths that differ", Nothing, &(value("0") + &value(&length.to_string()))),
        of("two lengths, the larger first", Nothing, &(value(&length.to_string()) + &value("0"))),
        // The body is the text, whichever of them is read.
        of("the same length twice", AtMostOnce, &value(&length.to_string()).repeat(2)),
        of("a list of lengths", AtMostOnce, &value(&format!("{length}, {length}"))),
        of("a list of lengths that differ", Nothing, &value(&format!("0, {length}"))),
        of("a length with a plus", Nothing, &value(&format!("+{length}"))),
        of("a length with a minus", Nothing, &value("-1")),
        of("a length of minus zero", Nothing, &value("-0")),
        of("a length in hex", Nothing, &value(&format!("0x{length:x}"))),
        of("a length with letters", Nothing, &value("1f")),
        of("a length with a point", Nothing, &value("0.0")),
        of("a length with an exponent", Nothing, &value("0e0")),
        of("a length with underscores", Nothing, &value("0_0")),
        of("a length with a space in it", Nothing, &value("0 0")),
        of("an empty length", Nothing, &value("")),
        of("a length in quotes", Nothing, &value("\"0\"")),
        of("a length with a semicolon", Nothing, &value("0;x=1")),
        of("a length of 2^64", Nothing, &value("18446744073709551616")),
        of("a length of 2^64 - 1", Nothing, &value("18446744073709551615")),
        of("a length of 2^64 - 3", Nothing, &value("18446744073709551613")),
        of("a length of 2^63", Nothing, &value("9223372036854775808")),
        of("a length of forty digits", Nothing, &value(&"9".repeat(40))),
        of("a length with many zeros in front", AtMostOnce, &value(&format!("{length:040}"))),
        of("a length in other digits", Nothing, &value("\u{664}")),
        of("a length behind a tab", AtMostOnce, &format!("Content-Length:\t{length}\r\n")),
        of("a length in capitals", Once, &format!("CONTENT-LENGTH: {length}\r\n")),
        of("a length over the limit", Nothing, &value("1048577")),
        case("a length for a GET", AtMostOnce, {
            bare(&format!("Content-Length: {length}\r\n")) + SMUGGLED
        }),
        case("a body that is shorter than said", Nothing, post("Content-Length: 5000\r\n", "x")),
    ]
}

fn encodings() -> Vec<Case> {
    let ended = format!("0\r\n\r\n{SMUGGLED}");
    let of = |name: &str, lines: &str| case(name, Nothing, post(lines, &ended));
    let value = |value: &str| format!("Transfer-Encoding: {value}\r\n");
    vec![
        of("identity", &value("identity")),
        of("an unknown encoding", &value("xchunked")),
        of("chunked with a letter more", &value("chunkedx")),
        of("chunked in quotes", &value("\"chunked\"")),
        of("chunked with a parameter", &value("chunked;q=1")),
        of("chunked and then identity", &value("chunked, identity")),
        of("chunked and then gzip", &value("chunked, gzip")),
        of("gzip alone", &value("gzip")),
        of("an empty encoding", &value("")),
        of("a comma alone", &value(",")),
        of("chunked and a comma", &value("chunked,")),
        of("chunked with a vertical tab", &value("\u{b}chunked")),
        of("chunked with a form feed", &value("chunked\u{c}")),
        of("chunked with a NUL", &value("chunked\0")),
        of("chunked behind a space that is not one", &value("\u{a0}chunked")),
        of("chunked in a list of lines, identity last", &(value("chunked") + &value("identity"))),
        of("chunked for HTTP/1.0, hidden", &value("chunked").replace(": ", " : ")),
        case("chunked twice in a list", Nothing, post(&value("chunked, chunked"), &ended)),
        case("chunked in two lines", Nothing, post(&value("chunked").repeat(2), &ended)),
        case("gzip and then chunked", Nothing, post(&value("gzip, chunked"), "0\r\n\r\n")),
        case("identity and then chunked", Nothing, {
            post(&value("identity, chunked"), "0\r\n\r\n")
        }),
        case("identity and then chunked, in lines", Nothing, {
            post(&(value("identity") + &value("chunked")), "0\r\n\r\n")
        }),
        case("chunked in mixed case", Once, post(&value("cHuNkEd"), "0\r\n\r\n")),
        case("chunked behind a tab", AtMostOnce, {
            post("Transfer-Encoding:\tchunked\r\n", "0\r\n\r\n")
        }),
        case("chunked for HTTP/1.0", Nothing, {
            post(&value("chunked"), &ended).replace("HTTP/1.1\r\nHost: h\r\nI", "HTTP/1.0\r\nI")
        }),
        case("chunked for HTTP/1.0, kept alive", Nothing, {
            let lines = value("chunked") + "Connection: keep-alive\r\n";
            post(&lines, &ended).replacen("HTTP/1.1", "HTTP/1.0", 1)
        }),
        case("chunked for a GET", AtMostOnce, bare(&value("chunked")) + "0\r\n\r\n"),
    ]
}

/// Whatever stands in a body that has its length is a body.
fn hidden() -> Vec<Case> {
    let length = format!("Content-Length: {}\r\n", SMUGGLED.len());
    let chunk = format!("{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len());
    let chunked = "Transfer-Encoding: chunked\r\n";
    vec![
        case("a request as a body", Once, post(&length, SMUGGLED)),
        case("a request as a body without a key", Once, unkeyed(&length, SMUGGLED)),
        case("a request as a chunk", Once, post(chunked, &chunk)),
        case("a request as a chunk without a key", Once, unkeyed(chunked, &chunk)),
        case("a request as the body of a PUT", Once, {
            unkeyed(&length, SMUGGLED).replacen("POST", "PUT", 1)
        }),
        case("a request as the body of a HEAD", AtMostOnce, {
            unkeyed(&length, SMUGGLED).replacen("POST", "HEAD", 1)
        }),
        case("a request as the body of an unknown method", AtMostOnce, {
            unkeyed(&length, SMUGGLED).replacen("POST", "FROB", 1)
        }),
        case("a request as the body of what is refused", Nothing, {
            let refused = format!("Idempotency-Key: a, b\r\n{length}");
            unkeyed(&refused, SMUGGLED)
        }),
        case("a request as a chunk of what is refused", Nothing, {
            let refused = format!("Idempotency-Key: a, b\r\n{chunked}");
            unkeyed(&refused, &chunk)
        }),
        case("a request as the body of a question about a status", Nothing, {
            let path = "GET /.onceward/operations/c0000";
            unkeyed(&length, SMUGGLED).replacen("POST /c0000/intended", path, 1)
        }),
        case("a request as the chunk of a question about a status", Nothing, {
            let path = "GET /.onceward/capabilities";
            unkeyed(chunked, &chunk).replacen("POST /c0000/intended", path, 1)
        }),
        case("a request as the body of one with dots", Nothing, {
            unkeyed(&length, SMUGGLED).replacen("/intended", "/x/../intended", 1)
        }),
    ]
}
