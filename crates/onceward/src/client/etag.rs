//! The version of a resource, as servers name it.

use std::{fmt, str::FromStr};

use http::{HeaderMap, HeaderValue, header};

/// An entity tag (RFC 9110, 8.8.3).
///
/// ```
/// use onceward::client::ETag;
///
/// let strong: ETag = "\"v7\"".parse()?;
/// let weak: ETag = "W/\"v7\"".parse()?;
/// assert!(!strong.is_weak() && weak.is_weak());
/// assert_eq!(strong.to_string(), "\"v7\"");
/// assert!("v7".parse::<ETag>().is_err());
/// # Ok::<(), onceward::client::NoETag>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ETag {
    weak: bool,
    /// With its quotes.
    quoted: Box<str>,
}

impl ETag {
    /// The tag in these headers, if there is one that can be read.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        headers.get(header::ETAG)?.to_str().ok()?.parse().ok()
    }

    /// Whether two states that differ in details may share it: then no `If-Match` can rely on it.
    #[must_use]
    pub fn is_weak(&self) -> bool {
        self.weak
    }

    /// As a header line.
    #[must_use]
    pub fn line(&self) -> HeaderValue {
        HeaderValue::try_from(self.to_string()).expect("it was read from visible ASCII")
    }
}

impl FromStr for ETag {
    type Err = NoETag;

    fn from_str(text: &str) -> Result<Self, NoETag> {
        let (weak, quoted) = match text.trim().strip_prefix("W/") {
            Some(quoted) => (true, quoted),
            None => (false, text.trim()),
        };
        let inside = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let visible = |byte: u8| byte == b'!' || (b'#'..=b'~').contains(&byte);
        match inside {
            Some(inside) if inside.bytes().all(visible) => Ok(Self { weak, quoted: quoted.into() }),
            _ => Err(NoETag),
        }
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.weak { "W/" } else { "" }, self.quoted)
    }
}

/// That is no entity tag: it has no quotes, or something else than visible characters in them.
///
/// ```
/// assert_eq!("v7".parse::<onceward::client::ETag>(), Err(onceward::client::NoETag));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoETag;

impl fmt::Display for NoETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an entity tag is visible text in double quotes, perhaps after W/")
    }
}

impl std::error::Error for NoETag {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_quoted_visible_text_is_a_tag() {
        for text in
            ["\"\"", "\"a b\"", "\"a\"b\"", "a", "\"", "W/", "w/\"a\"", "\"\u{e9}\"", "\"a\"x"]
        {
            assert_eq!(text.parse::<ETag>().is_ok(), text == "\"\"", "{text}");
        }
        let tag: ETag = " W/\"x-1\" ".parse().unwrap();
        assert_eq!((tag.line(), tag.is_weak()), (HeaderValue::from_static("W/\"x-1\""), true));
    }
}
