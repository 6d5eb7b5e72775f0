//! Multipart bodies, split so that a form sent again under a new boundary means the same.
//!
//! Parsers disagree about preambles, epilogues, padding, bare line feeds and boundaries in the
//! middle of a line. A body that has any of these is not split: which parts it has would depend on
//! who reads it. What is left is what clients send.

use alloc::vec::Vec;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    /// The header lines as they are, without the blank line behind them.
    pub(super) headers: &'a [u8],
    pub(super) content: &'a [u8],
}

/// RFC 2046: 1 to 70 characters of a small set, not ending in a space.
pub(super) fn is_valid_boundary(boundary: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(byte);
    (1..=70).contains(&boundary.len())
        && boundary.iter().all(is_allowed)
        && !boundary.ends_with(b" ")
}

/// The parts of a body, or `None` where the body is not plainly what the boundary promises.
///
/// The text of the delimiter may stand nowhere but in the delimiters.
pub(super) fn split<'a>(body: &'a [u8], boundary: &[u8]) -> Option<Vec<Part<'a>>> {
    let delimiter = [b"--", boundary].concat();
    let mut parts = Vec::new();
    let mut rest = body.strip_prefix(delimiter.as_slice())?;
    loop {
        if let Some(epilogue) = rest.strip_prefix(b"--") {
            return matches!(epilogue, b"" | b"\r\n").then_some(parts);
        }
        let behind = rest.strip_prefix(b"\r\n")?;
        let at = find(behind, &delimiter)?;
        parts.push(part(behind[..at].strip_suffix(b"\r\n")?)?);
        rest = &behind[at + delimiter.len()..];
    }
}

fn part(bytes: &[u8]) -> Option<Part<'_>> {
    if let Some(content) = bytes.strip_prefix(b"\r\n") {
        return Some(Part { headers: b"", content });
    }
    let at = find(bytes, b"\r\n\r\n")?;
    Some(Part { headers: &bytes[..at], content: &bytes[at + 4..] })
}

/// Linear, as a delimiter has at most 72 bytes; looking at its ends first spares most comparisons.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let (first, last) = (wanted.first()?, wanted.last()?);
    bytes.windows(wanted.len()).position(|window| {
        window.first() == Some(first) && window.last() == Some(last) && window == wanted
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{string::String, vec};
    use proptest::prelude::*;

    #[test]
    fn boundaries() {
        let long = vec![b'a'; 71];
        for valid in
            [&b"a"[..], b"----WebKitFormBoundary7MA4YWxk", b"a b", b"'()+_,-./:=?", &long[1..]]
        {
            assert!(is_valid_boundary(valid));
        }
        for invalid in [&b""[..], b"a ", b" ", b"a;b", b"a\"b", b"a\r\nb", b"\xC3\xA9", &long] {
            assert!(!is_valid_boundary(invalid));
        }
    }

    #[test]
    fn parts_are_headers_and_content() {
        let body = b"--B\r\nA: 1\r\nC: 2\r\n\r\nx\r\n\r\ny\r\n\
            --B\r\n\r\n\r\n--B\r\n\r\n\0\n--\r\n--b\r\n--B--\r\n";
        let expected = [
            Part { headers: b"A: 1\r\nC: 2", content: b"x\r\n\r\ny" },
            Part { headers: b"", content: b"" },
            Part { headers: b"", content: b"\0\n--\r\n--b" },
        ];
        assert_eq!(split(body, b"B").as_deref(), Some(&expected[..]));
        assert_eq!(split(&body[..body.len() - 2], b"B").as_deref(), Some(&expected[..]));
    }

    #[test]
    fn a_form_without_fields_has_no_parts() {
        assert_eq!(split(b"--B--\r\n", b"B"), Some(vec![]));
    }

    #[test]
    fn what_looks_like_another_boundary_is_content() {
        let body = b"--Bx\r\n\r\n\r\n--B\r\n\r\n--B--\r\n--By\r\n--\r\n--Bx--";
        let expected = Part { headers: b"", content: b"\r\n--B\r\n\r\n--B--\r\n--By\r\n--" };
        assert_eq!(split(body, b"Bx"), Some(vec![expected]));
    }

    #[test]
    fn bodies_that_are_not_split() {
        let table: [&[u8]; 20] = [
            b"",
            b"--",
            b"--B",
            b"--B-",
            b"--B\r\n",
            b"x\r\n--B\r\n\r\nx\r\n--B--",
            b"\r\n--B\r\n\r\nx\r\n--B--",
            b"--B\r\n\r\nx\r\n--B--x",
            b"--B\r\n\r\nx\r\n--B--\r\nx",
            b"--B\r\n\r\nx\r\n--B--\n",
            b"--B\r\n\r\nx\r\n--B",
            b"--B\r\n\r\nx",
            b"--B \r\n\r\nx\r\n--B--",
            b"--B\n\r\nx\r\n--B--",
            b"--B\r\n\r\nx\n--B--",
            b"--B\r\n\r\nx--B\r\n--B--",
            b"--B\r\n\r\nx\r\n--BB\r\n--B--",
            b"--B\r\nA: 1\r\n--B--",
            b"--B\r\n\r\n--B--",
            b"--B\r\n--B--",
        ];
        for body in table {
            assert_eq!(split(body, b"B"), None, "{:?}", body.escape_ascii());
        }
    }

    #[test]
    fn hostile_bodies_end_in_time() {
        let boundary = [&[b'-'; 69][..], b"a"].concat();
        let body = [b"--", boundary.as_slice(), b"\r\n", &vec![b'-'; 1 << 20]].concat();
        assert_eq!(split(&body, &boundary), None);
        let many = [b"--a\r\n\r\n\r\n".repeat(1 << 17).as_slice(), b"--a--"].concat();
        assert_eq!(split(&many, b"a").map(|parts| parts.len()), Some(1 << 17));
    }

    fn written(parts: &[(String, String)], boundary: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        for (headers, content) in parts {
            body.extend([b"--", boundary, b"\r\n"].concat());
            if !headers.is_empty() {
                body.extend([headers.as_bytes(), b"\r\n"].concat());
            }
            body.extend([b"\r\n", content.as_bytes(), b"\r\n"].concat());
        }
        body.extend([b"--", boundary, b"--\r\n"].concat());
        body
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(body in any::<Vec<u8>>(), boundary in any::<Vec<u8>>()) {
            let _ = split(&body, &boundary);
        }

        #[test]
        fn bytes_near_the_grammar_never_panic(body in "(--|B|\r\n|x){0,24}") {
            let _ = split(body.as_bytes(), b"B");
        }

        #[test]
        fn what_was_written_is_what_is_split(
            parts in prop::collection::vec(("[a-z: ]{0,9}", "[-a-z\r\n]{0,30}"), 0..5),
        ) {
            let expected: Vec<Part<'_>> = parts
                .iter()
                .map(|(headers, content)| Part {
                    headers: headers.as_bytes(),
                    content: content.as_bytes(),
                })
                .collect();
            for boundary in [&b"B"[..], b"----0123456789", b"A--"] {
                let body = written(&parts, boundary);
                let parts = split(&body, boundary);
                prop_assert_eq!(parts.as_ref(), Some(&expected));
            }
        }
    }
}
