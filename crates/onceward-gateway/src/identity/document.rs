//! A body of JSON from which a scope is taken.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The body, if it is JSON that every reader understands alike.
///
/// Readers disagree about which of two members with one name counts. The gateway would find the keys of
/// one account, and the upstream would act on another.
pub(crate) fn document(body: &[u8]) -> Option<Value> {
    serde_json::from_slice(body).ok().map(|Unambiguous(value)| value)
}

struct Unambiguous(Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON without two members of one name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((name, Unambiguous(value))) = members.next_entry::<String, _>()? {
            if map.insert(name, value).is_some() {
                return Err(A::Error::custom("two members have one name"));
            }
        }
        Ok(map.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unambiguous(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Value, E> {
        Ok(truth.into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_one_meaning_is_read_as_ever() {
        let text = r#"{"a": [1, -2, 2.5, true, null, {"b": "é"}], "c": {"a": 1}}"#;
        assert_eq!(document(text.as_bytes()), serde_json::from_str(text).ok());
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
            assert_eq!(document(text.as_bytes()), None, "{text}");
        }
    }
}
