//! Which paths a route covers.
//!
//! A pattern is compared with the path as it was sent, segment by segment. Only two things are made
//! equal first, because RFC 3986 says that they are: an escaped letter, digit, `-`, `.`, `_` or `~`
//! is that character (`%63harges` is `charges`), and the digits of other escapes are capitals.
//! `%2F` stays inside its segment. A path with a segment `.` or `..` matches nothing: what it means
//! is decided by the service that resolves it, so the gateway refuses it before (`has_dot_segments`).
//!
//! `{name}` stands for one segment that is not empty. `{*rest}` stands for all that follows its
//! slash, also for nothing: `/v1/{*rest}` covers `/v1/` and `/v1/a/b`, not `/v1`. A slash at the
//! end counts.

use std::{borrow::Cow, collections::BTreeMap};

use http::Method;

use crate::config::{Pattern, Route, Segment};

/// The gateway answers there itself.
const OWN_SEGMENT: &str = ".onceward";

/// What a pattern cannot be, and what to write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PatternError {
    pub(crate) message: String,
    pub(crate) help: String,
}

impl Pattern {
    /// Reads `/v1/charges/{id}`.
    pub(crate) fn parse(text: &str) -> Result<Self, PatternError> {
        let Some(path) = text.strip_prefix('/') else {
            return refuse(
                "the path does not start with `/`",
                "write it as in \"POST /v1/charges\"",
            );
        };
        let parts: Vec<&str> = path.split('/').collect();
        let last = parts.len() - 1;
        let mut segments = Vec::new();
        for (index, part) in parts.into_iter().enumerate() {
            segments.push(segment(part, index == last)?);
        }
        let pattern = Self { text: text.to_owned(), segments };
        let names = pattern.names().collect::<Vec<_>>();
        let repeated =
            names.iter().enumerate().find(|(index, name)| names[..*index].contains(name));
        if let Some((_, name)) = repeated {
            let message = format!("`{{{name}}}` stands in the path twice");
            return refuse(message, "give each part its own name");
        }
        if pattern.segments.first() == Some(&Segment::Literal(OWN_SEGMENT.to_owned())) {
            let message = "the gateway answers below `/.onceward` itself; this never matches";
            return refuse(message, "remove this route");
        }
        Ok(pattern)
    }

    /// What the names stand for, if the path matches.
    pub(crate) fn parameters(&self, path: &str) -> Option<BTreeMap<String, String>> {
        let segments: Vec<_> = path.strip_prefix('/')?.split('/').map(normalised).collect();
        if segments.iter().any(|segment| is_dots(segment)) {
            return None;
        }
        let mut parameters = BTreeMap::new();
        let mut left = segments.as_slice();
        for expected in &self.segments {
            let (first, others) = left.split_first()?;
            match expected {
                Segment::Literal(literal) if literal == first => {}
                Segment::One(name) if !first.is_empty() => {
                    parameters.insert(name.clone(), first.to_string());
                }
                Segment::Rest(name) => {
                    parameters.insert(name.clone(), left.join("/"));
                    return Some(parameters);
                }
                Segment::Literal(_) | Segment::One(_) => return None,
            }
            left = others;
        }
        left.is_empty().then_some(parameters)
    }

    /// The names in it, in their order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Literal(_) => None,
            Segment::One(name) | Segment::Rest(name) => Some(name.as_str()),
        })
    }

    /// Whether everything that the other one matches is matched by this one.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        covers(&self.segments, &other.segments)
    }
}

impl Route {
    /// The parameters in the path, if this route covers such requests.
    pub(crate) fn matches(&self, method: &Method, path: &str) -> Option<BTreeMap<String, String>> {
        match self.methods.contains(method) {
            true => self.pattern.parameters(path),
            false => None,
        }
    }
}

/// Whether what a path means depends on who resolves it.
pub(crate) fn has_dot_segments(path: &str) -> bool {
    // A dot, or an escaped one: most paths have neither.
    path.contains(['.', '%']) && path.split('/').any(|segment| is_dots(&normalised(segment)))
}

fn covers(ours: &[Segment], theirs: &[Segment]) -> bool {
    match (ours, theirs) {
        ([], []) => true,
        ([Segment::Rest(_)], [_, ..]) => true,
        ([Segment::Literal(one), ours @ ..], [Segment::Literal(other), theirs @ ..]) => {
            one == other && covers(ours, theirs)
        }
        ([Segment::One(_), ours @ ..], [Segment::Literal(literal), theirs @ ..]) => {
            !literal.is_empty() && covers(ours, theirs)
        }
        ([Segment::One(_), ours @ ..], [Segment::One(_), theirs @ ..]) => covers(ours, theirs),
        _ => false,
    }
}

fn segment(text: &str, is_last: bool) -> Result<Segment, PatternError> {
    let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    if let Some(inner) = inner {
        let (name, is_rest) = match inner.strip_prefix('*') {
            Some(name) => (name, true),
            None => (inner, false),
        };
        if !is_name(name) {
            let message = "a name in braces has letters, digits and `_`, and starts with a letter";
            return refuse(message, "write `{id}` for one segment, `{*rest}` for all that follow");
        }
        return match (is_rest, is_last) {
            (true, false) => refuse(
                format!(
                    "`{{*{name}}}` stands for everything that follows, so nothing can follow it"
                ),
                format!("write `{{{name}}}` for one segment, or move it to the end"),
            ),
            (true, true) => Ok(Segment::Rest(name.to_owned())),
            (false, _) => Ok(Segment::One(name.to_owned())),
        };
    }
    literal(text, is_last)
}

fn literal(text: &str, is_last: bool) -> Result<Segment, PatternError> {
    if text.contains(['{', '}']) {
        let message = "braces stand for a whole segment, from slash to slash";
        return refuse(message, "write `/{name}/`, without letters beside the braces");
    }
    if let Some(name) = text.strip_prefix(':').filter(|name| is_name(name)) {
        return refuse("`:` does not stand for a segment here", format!("write `{{{name}}}`"));
    }
    if text == "*" || text == "**" {
        let help = "write `{name}` for one segment, `{*rest}` for all that follow";
        return refuse("`*` does not stand for a segment here", help);
    }
    if text.is_empty() && !is_last {
        return refuse("two slashes stand side by side in the path", "remove one of them");
    }
    if let Some(letter) = text.chars().find(|letter| !is_path_character(*letter)) {
        let help = match letter {
            '?' => "leave the query out: a route covers every query".to_owned(),
            '#' => "leave it out: a fragment never reaches a server".to_owned(),
            _ => format!("write it as {}", escaped(letter)),
        };
        return refuse(format!("{letter:?} cannot stand in a path"), help);
    }
    let normal = normalised(text).into_owned();
    if is_dots(&normal) {
        return refuse("a path with `.` or `..` as a segment never matches", "write it resolved");
    }
    if has_broken_escape(text) {
        return refuse(
            "`%` is not followed by two hexadecimal digits",
            "write `%25` for a percent sign",
        );
    }
    Ok(Segment::Literal(normal))
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn is_dots(segment: &str) -> bool {
    segment == "." || segment == ".."
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn is_path_character(letter: char) -> bool {
    u8::try_from(letter).is_ok_and(|byte| is_unreserved(byte) || b"!$&'()*+,;=:@%".contains(&byte))
}

fn escaped(letter: char) -> String {
    let mut bytes = [0; 4];
    letter.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn hexadecimal(text: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    match text {
        [high, low, ..] => Some(digit(*high)? * 16 + digit(*low)?),
        _ => None,
    }
}

fn has_broken_escape(text: &str) -> bool {
    let bytes = text.as_bytes();
    (0..bytes.len()).any(|at| bytes[at] == b'%' && hexadecimal(&bytes[at + 1..]).is_none())
}

/// The one spelling of all that RFC 3986 calls equivalent (section 6.2.2). Broken escapes stay.
fn normalised(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return Cow::Borrowed(segment);
    }
    let mut normal = String::with_capacity(segment.len());
    let mut left = segment;
    while let Some(at) = left.find('%') {
        normal.push_str(&left[..at]);
        left = &left[at + 1..];
        match hexadecimal(left.as_bytes()) {
            None => {
                normal.push('%');
                continue;
            }
            Some(byte) if is_unreserved(byte) => normal.push(char::from(byte)),
            Some(byte) => normal.push_str(&format!("%{byte:02X}")),
        }
        left = &left[2..];
    }
    normal.push_str(left);
    Cow::Owned(normal)
}

fn refuse<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, PatternError> {
    Err(PatternError { message: message.into(), help: help.into() })
}

#[cfg(test)]
mod tests {
    use super::{Pattern, has_dot_segments};

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).unwrap()
    }

    fn shown(pattern_text: &str, path: &str) -> Option<String> {
        let parameters = pattern(pattern_text).parameters(path)?;
        Some(parameters.iter().map(|(name, value)| format!("{name}={value};")).collect())
    }

    #[test]
    fn names_stand_for_segments() {
        for (pattern, path, expected) in [
            ("/v1/charges", "/v1/charges", Some("")),
            ("/v1/charges", "/v1/charges/", None),
            ("/v1/charges/", "/v1/charges/", Some("")),
            ("/v1/charges/", "/v1/charges", None),
            ("/v1/charges", "/v1//charges", None),
            ("/v1/{id}", "/v1/7", Some("id=7;")),
            ("/v1/{id}", "/v1/", None),
            ("/v1/{id}", "/v1/7/8", None),
            ("/v1/{id}/refunds/{n}", "/v1/7/refunds/2", Some("id=7;n=2;")),
            ("/v1/{*rest}", "/v1/a/b/", Some("rest=a/b/;")),
            ("/v1/{*rest}", "/v1/", Some("rest=;")),
            ("/v1/{*rest}", "/v1", None),
            ("/{*rest}", "/", Some("rest=;")),
            ("/", "/", Some("")),
            ("/", "", None),
            ("/{*rest}", "*", None),
        ] {
            assert_eq!(shown(pattern, path).as_deref(), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn equivalent_spellings_are_equal_and_an_escaped_slash_is_no_slash() {
        for (pattern, path, expected) in [
            ("/v1/charges", "/v1/%63harges", Some("")),
            ("/v1/%63harges", "/v1/charges", Some("")),
            ("/v1/{id}", "/v1/a%2fb", Some("id=a%2Fb;")),
            ("/v1/{id}", "/v1/a%2Fb", Some("id=a%2Fb;")),
            ("/v1/{id}", "/v1/%zz%", Some("id=%zz%;")),
            ("/v1/{id}", "/v1/%C3%a9é", Some("id=%C3%A9é;")),
            ("/v1/charges", "/v1/Charges", None),
        ] {
            assert_eq!(shown(pattern, path).as_deref(), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn dot_segments_match_nothing() {
        for path in ["/v1/../v1/a", "/v1/./a", "/%2e%2E/a", "/.."] {
            assert!(has_dot_segments(path), "{path}");
            assert_eq!(pattern("/{*rest}").parameters(path), None, "{path}");
        }
        assert!(!has_dot_segments("/v1/.a/..b/..."));
    }

    #[test]
    fn an_earlier_pattern_may_cover_a_later_one() {
        for (earlier, later, covered) in [
            ("/{*rest}", "/v1/charges", true),
            ("/v1/{*rest}", "/v1/", true),
            ("/v1/{*rest}", "/v1", false),
            ("/v1/{id}", "/v1/charges", true),
            ("/v1/{id}", "/v1/{other}", true),
            ("/v1/{id}", "/v1/", false),
            ("/v1/{id}", "/v1/{*rest}", false),
            ("/v1/{id}", "/v2/{id}", false),
            ("/v1/charges", "/v1/{id}", false),
            ("/v1/{*rest}", "/v1/{*other}", true),
            ("/v1/a", "/v1/a/b", false),
        ] {
            assert_eq!(pattern(earlier).covers(&pattern(later)), covered, "{earlier} {later}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_explained() {
        for (text, part) in [
            ("v1", "start with `/`"),
            ("", "start with `/`"),
            ("/v1//a", "two slashes"),
            ("/v1/:id", "`:`"),
            ("/v1/*", "`*`"),
            ("/v1/a{id}", "whole segment"),
            ("/v1/{id", "whole segment"),
            ("/v1/{}", "name in braces"),
            ("/v1/{1d}", "name in braces"),
            ("/{*rest}/a", "nothing can follow"),
            ("/{a}/{a}", "twice"),
            ("/a?b", "cannot stand in a path"),
            ("/a b", "cannot stand in a path"),
            ("/é", "cannot stand in a path"),
            ("/a/../b", "never matches"),
            ("/a%2", "hexadecimal"),
            ("/a%é", "cannot stand"),
            ("/.onceward/operations", "never matches"),
        ] {
            let error = Pattern::parse(text).unwrap_err();
            assert!(error.message.contains(part), "{text}: {error:?}");
        }
        assert!(Pattern::parse("/v1/charges:cancel").is_ok());
    }
}
