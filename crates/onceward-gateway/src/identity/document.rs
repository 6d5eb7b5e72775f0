//! A body of JSON from which a scope or a key is taken.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    fmt,
};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// What is at some places of a body of JSON. The gateway has not authenticated its sender yet, and a tree of all its
/// values would take a hundred times the memory of its text.
pub(crate) struct Document(BTreeMap<String, Value>);

impl Document {
    /// The value at one of the places for which the body was read; a list or an object is empty here.
    pub(crate) fn at(&self, pointer: &str) -> Option<&Value> {
        self.0.get(pointer)
    }
}

/// What is at these places of a body, if it is JSON that every reader understands alike.
///
/// Readers disagree about which of two members with one name counts. The gateway would find the keys of
/// one account, and the upstream would act on another.
pub(crate) fn document<'p>(
    body: &[u8],
    pointers: impl IntoIterator<Item = &'p str>,
) -> Option<Document> {
    let wanted = pointers.into_iter().map(|pointer| (pointer, pointer)).collect();
    let mut found = BTreeMap::new();
    let mut reader = serde_json::Deserializer::from_slice(body);
    Reader { wanted, found: &mut found }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(Document(found))
}

/// Reads one value and what is in it.
struct Reader<'p, 'f> {
    /// The pointers that lead here or further, and what is left of each.
    wanted: Vec<(&'p str, &'p str)>,
    found: &'f mut BTreeMap<String, Value>,
}

impl<'p> Reader<'p, '_> {
    /// For the member or item of this name.
    fn below(&mut self, is_named: impl Fn(&str) -> bool) -> Reader<'p, '_> {
        let below = |(pointer, rest): &(&'p str, &'p str)| {
            let rest = rest.strip_prefix('/')?;
            let (name, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            is_named(&name.replace("~1", "/").replace("~0", "~")).then_some((*pointer, rest))
        };
        Reader { wanted: self.wanted.iter().filter_map(below).collect(), found: self.found }
    }

    fn keep(&mut self, value: impl FnOnce() -> Value) {
        let here = self.wanted.iter().filter(|(_, rest)| rest.is_empty());
        let pointers: Vec<String> = here.map(|(pointer, _)| (*pointer).to_owned()).collect();
        if !pointers.is_empty() {
            let value = value();
            self.found.extend(pointers.into_iter().map(|pointer| (pointer, value.clone())));
        }
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

macro_rules! keep_scalars {
    ($($visit:ident: $scalar:ty),*) => { $(
        fn $visit<E: Error>(mut self, scalar: $scalar) -> Result<(), E> {
            self.keep(|| scalar.into());
            Ok(())
        }
    )* };
}

impl<'de> Visitor<'de> for Reader<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON without two members of one name")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        self.keep(|| Map::new().into());
        let mut names: HashSet<Cow<'de, str>> = HashSet::new();
        while let Some(Name(name)) = members.next_key()? {
            members.next_value_seed(self.below(|wanted| wanted == name))?;
            if !names.insert(name) {
                return Err(A::Error::custom("two members have one name"));
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        self.keep(|| Value::Array(Vec::new()));
        let mut number = 0_usize;
        // As RFC 6901 writes an index: without zeros before it.
        while items.next_element_seed(self.below(|name| *name == *number.to_string()))?.is_some() {
            number += 1;
        }
        Ok(())
    }

    keep_scalars!(visit_str: &str, visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);

    fn visit_unit<E: Error>(mut self) -> Result<(), E> {
        self.keep(|| Value::Null);
        Ok(())
    }
}

/// The name of a member, without a copy where it is written as it is.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    const POINTERS: [&str; 14] = [
        "", "/", "/a", "/a/0", "/a/1", "/a/2", "/a/01", "/a/3", "/a/5/b", "/c/a", "/x~1y", "/x~0",
        "/nothing", "a",
    ];

    #[test]
    fn what_has_one_meaning_is_read_as_ever() {
        for text in [
            r#"{"a": [1, -2, 2.5, true, null, {"b": "é"}], "c": {"a": 1}}"#,
            r#"{"": "empty", "x/y": 18446744073709551615, "x~": "t", "a": "\u0061"}"#,
            r#""only a text""#,
            "[]",
            "-0",
            "1e400",
            "{\"a\": \"\u{1f600}",
        ] {
            let whole: Option<Value> = serde_json::from_str(text).ok();
            let found = document(text.as_bytes(), POINTERS);
            assert_eq!(found.is_some(), whole.is_some(), "{text}");
            let (Some(whole), Some(found)) = (whole, found) else { continue };
            for pointer in POINTERS {
                let expected = whole.pointer(pointer).map(|value| match value {
                    Value::Array(_) => Value::Array(Vec::new()),
                    Value::Object(_) => Map::new().into(),
                    value => value.clone(),
                });
                assert_eq!(found.at(pointer), expected.as_ref(), "{text} {pointer}");
            }
        }
    }

    #[test]
    fn a_name_that_comes_twice_in_one_object_means_nothing() {
        for text in [
            r#"{"a": 1, "a": 1}"#,
            r#"{"a": 1, "\u0061": 2}"#,
            r#"{"x": [{"a": 1, "b": 2, "a": 3}]}"#,
            "{\"a\": 1}x",
            "\u{feff}{}",
        ] {
            assert!(document(text.as_bytes(), ["/a"]).is_none(), "{text}");
        }
    }
}
