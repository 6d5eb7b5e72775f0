//! To whom an operation belongs.

use alloc::{boxed::Box, string::String, vec::Vec};
use core::{error::Error, fmt, str::FromStr};

/// To whom an operation belongs: named parts such as tenant and user. There is no default.
///
/// The order of the parts does not matter, their names do. The scope of a caller must stay the same
/// for the whole retention, so never use something that is refreshed, like a bearer token.
///
/// ```
/// use onceward_core::Scope;
///
/// let scope = Scope::new([("tenant", "acme"), ("user", "7")])?;
/// assert_eq!(scope, Scope::new([("user", "7"), ("tenant", "acme")])?);
/// assert!(Scope::new([("tenant", "")]).is_err());
/// # Ok::<(), onceward_core::ScopeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope(Box<[(Box<str>, Box<str>)]>);

impl Scope {
    /// The most parts a scope may have; more is a sign that request data leaks into identity.
    pub const MAX_PARTS: usize = 16;
    /// The longest name or value of a part in bytes: the size of a generous certificate subject.
    pub const MAX_PART_BYTES: usize = 1024;

    /// Makes a scope of named parts, at least one, each with a name and a value.
    ///
    /// ```
    /// # use onceward_core::{Scope, ScopeError};
    /// assert_eq!(Scope::new([("a", "1"), ("a", "2")]), Err(ScopeError::Repeated("a".into())));
    /// ```
    pub fn new<N: Into<Box<str>>, V: Into<Box<str>>>(
        parts: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, ScopeError> {
        let mut parts: Vec<(Box<str>, Box<str>)> =
            parts.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        if parts.is_empty() || parts.len() > Self::MAX_PARTS {
            return Err(ScopeError::Count(parts.len()));
        }
        parts.sort_unstable();
        for (name, value) in &parts {
            if name.is_empty() || value.is_empty() {
                return Err(ScopeError::Empty(name.clone()));
            }
            if name.len() > Self::MAX_PART_BYTES || value.len() > Self::MAX_PART_BYTES {
                return Err(ScopeError::TooLong(name.clone()));
            }
        }
        match parts.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(ScopeError::Repeated(pair[0].0.clone())),
            None => Ok(Self(parts.into())),
        }
    }

    /// A scope of one part.
    pub fn of(name: &str, value: &str) -> Result<Self, ScopeError> {
        Self::new([(name, value)])
    }

    /// The one scope shared by all callers: only for services whose callers may see each other.
    ///
    /// ```
    /// # use onceward_core::Scope;
    /// assert_ne!(Scope::global(), Scope::of("tenant", "global")?);
    /// # Ok::<(), onceward_core::ScopeError>(())
    /// ```
    #[must_use]
    pub fn global() -> Self {
        Self(Box::default())
    }

    /// The parts, sorted by name; none for [`Scope::global`].
    ///
    /// ```
    /// # use onceward_core::Scope;
    /// let scope = Scope::new([("user", "7"), ("tenant", "acme")])?;
    /// assert_eq!(scope.parts().collect::<Vec<_>>(), [("tenant", "acme"), ("user", "7")]);
    /// # Ok::<(), onceward_core::ScopeError>(())
    /// ```
    pub fn parts(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// `tenant=acme,user=7`, with `%`, `,` and `=` percent-encoded so that distinct scopes read distinct.
impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return formatter.write_str("global");
        }
        for (index, (name, value)) in self.0.iter().enumerate() {
            formatter.write_str(if index == 0 { "" } else { "," })?;
            for (text, end) in [(name, "="), (value, "")] {
                let mut pieces = text.split_inclusive(['%', ',', '=']);
                pieces.try_for_each(|piece| write_escaped(formatter, piece))?;
                formatter.write_str(end)?;
            }
        }
        Ok(())
    }
}

/// A piece in which only the last character may need it.
/// The scope that is shown as this text.
///
/// ```
/// use onceward_core::Scope;
///
/// let scope = Scope::new([("tenant", "a,b"), ("user", "7")])?;
/// assert_eq!("tenant=a%2Cb,user=7".parse(), Ok(scope));
/// assert_eq!("global".parse(), Ok(Scope::global()));
/// # Ok::<(), onceward_core::ScopeError>(())
/// ```
impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        if text == "global" {
            return Ok(Self::global());
        }
        let part = |part: &str| match part.split_once('=') {
            Some((name, value)) => Ok((unescaped(name)?, unescaped(value)?)),
            None => Err(ScopeError::NotShown),
        };
        Self::new(text.split(',').map(part).collect::<Result<Vec<_>, _>>()?)
    }
}

/// Only the three characters that are escaped may be.
fn unescaped(text: &str) -> Result<String, ScopeError> {
    let mut pieces = text.split('%');
    let mut plain = String::from(pieces.next().unwrap_or_default());
    for piece in pieces {
        let code = piece.split_at_checked(2);
        let (character, rest) = match code {
            Some(("25", rest)) => ('%', rest),
            Some(("2C", rest)) => (',', rest),
            Some(("3D", rest)) => ('=', rest),
            _ => return Err(ScopeError::NotShown),
        };
        plain.push(character);
        plain.push_str(rest);
    }
    Ok(plain)
}

fn write_escaped(formatter: &mut fmt::Formatter<'_>, piece: &str) -> fmt::Result {
    match piece.strip_suffix(['%', ',', '=']) {
        None => formatter.write_str(piece),
        Some(plain) => {
            let escaped = u32::from(piece.as_bytes()[plain.len()]);
            write!(formatter, "{plain}%{escaped:02X}")
        }
    }
}

/// Why parts do not make a [`Scope`].
///
/// ```
/// use onceward_core::{Scope, ScopeError};
///
/// // A tenant that is empty would be shared by all callers without one.
/// assert_eq!(Scope::of("tenant", ""), Err(ScopeError::Empty("tenant".into())));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScopeError {
    /// No parts, or more than [`Scope::MAX_PARTS`].
    Count(usize),
    /// The part of this name has no value, or a part has no name.
    Empty(Box<str>),
    /// The part of this name is longer than [`Scope::MAX_PART_BYTES`].
    TooLong(Box<str>),
    /// Two parts have this name.
    Repeated(Box<str>),
    /// A text does not show a scope.
    NotShown,
}

impl fmt::Display for ScopeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotShown => formatter.write_str(
                "this is not how a scope is shown; write `global`, or `name=value` with commas \
                 between several, and `%2C`, `%3D`, `%25` for `,`, `=`, `%` inside of them",
            ),
            Self::Count(0) => formatter.write_str(
                "the scope has no parts; name who the operation belongs to, or use Scope::global()",
            ),
            Self::Count(count) => {
                write!(formatter, "the scope has {count} parts; {} at most", Scope::MAX_PARTS)
            }
            Self::Empty(name) => write!(
                formatter,
                "scope part {name:?} is empty; an unknown caller must be refused, not shared"
            ),
            Self::TooLong(name) => write!(
                formatter,
                "scope part {name:?} is longer than {} bytes; use its digest",
                Scope::MAX_PART_BYTES
            ),
            Self::Repeated(name) => {
                write!(formatter, "two scope parts are named {name:?}; give each its own name")
            }
        }
    }
}

impl Error for ScopeError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn scopes_need_parts_with_values_and_distinct_names() {
        let none: [(&str, &str); 0] = [];
        assert_eq!(Scope::new(none), Err(ScopeError::Count(0)));
        let many = (0..17).map(|part| (part.to_string(), "v"));
        assert_eq!(Scope::new(many), Err(ScopeError::Count(17)));
        assert_eq!(Scope::of("tenant", ""), Err(ScopeError::Empty("tenant".into())));
        let long = "v".repeat(Scope::MAX_PART_BYTES + 1);
        assert_eq!(Scope::of("tenant", &long), Err(ScopeError::TooLong("tenant".into())));
        assert!(Scope::of("tenant", &long[1..]).is_ok());
        assert_eq!(
            Scope::new([("a", "1"), ("b=,%", "2,")]).unwrap().to_string(),
            "a=1,b%3D%2C%25=2%2C"
        );
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(
            parts in proptest::collection::btree_map("[a%,=é]{1,4}", "[a%,=é ]{1,4}", 1..4),
        ) {
            let scope = Scope::new(parts).unwrap();
            prop_assert_eq!(scope.to_string().parse(), Ok(scope));
        }
    }

    #[test]
    fn what_shows_no_scope_is_refused() {
        for text in ["", "tenant", "tenant=", "=acme", "a=1,", "a=%2c", "a=%", "a=%zz", "a=%é"] {
            assert!(text.parse::<Scope>().is_err(), "{text}");
        }
        assert_eq!("a=1=2".parse(), Scope::of("a", "1=2"), "a spare `=` can only be the value's");
    }
}
