//! What holds for every JSON value, however it is written.

use super::json::canonical;
use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use proptest::prelude::*;

fn text(json: &str) -> Option<Vec<u8>> {
    canonical(json.as_bytes())
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Plain(&'static str),
    Text(String),
    List(Vec<Value>),
    Map(BTreeMap<String, Value>),
}

fn value() -> impl Strategy<Value = Value> {
    let string = || "[a-c\"\\\\\n/é😀\u{0}:,0-2]{0,4}";
    let leaf = prop_oneof![
        prop::sample::select(&["null", "true", "false", "0", "-0", "1", "1.0", "1e2"][..])
            .prop_map(Value::Plain),
        string().prop_map(Value::Text),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
            prop::collection::btree_map(string(), inner, 0..4).prop_map(Value::Map),
        ]
    })
}

/// Writes a value in one of many ways: `style` decides about blanks, escapes and order.
struct Writer {
    style: u64,
    json: String,
}

impl Writer {
    fn write(value: &Value, style: u64) -> String {
        let mut writer = Self { style, json: String::new() };
        writer.value(value);
        writer.blank();
        writer.json
    }

    fn choice(&mut self, of: u64) -> u64 {
        self.style = self.style.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.style >> 33) % of
    }

    fn blank(&mut self) {
        let at = self.choice(8) as usize;
        self.json.push_str(["", "", "", " ", "\n", "\t", "\r\n", "  "][at]);
    }

    fn value(&mut self, value: &Value) {
        self.blank();
        match value {
            Value::Plain(text) => self.json.push_str(text),
            Value::Text(text) => self.text(text),
            Value::List(values) => {
                self.json.push('[');
                for (at, value) in values.iter().enumerate() {
                    self.comma(at);
                    self.value(value);
                }
                self.blank();
                self.json.push(']');
            }
            Value::Map(members) => {
                let mut members: Vec<_> = members.iter().collect();
                members.sort_by_cached_key(|_| self.choice(u64::MAX));
                self.json.push('{');
                for (at, (key, value)) in members.into_iter().enumerate() {
                    self.comma(at);
                    self.blank();
                    self.text(key);
                    self.blank();
                    self.json.push(':');
                    self.value(value);
                }
                self.blank();
                self.json.push('}');
            }
        }
    }

    fn comma(&mut self, at: usize) {
        if at > 0 {
            self.blank();
            self.json.push(',');
        }
    }

    fn text(&mut self, text: &str) {
        self.json.push('"');
        for character in text.chars() {
            if self.choice(2) == 0 || character < ' ' || "\"\\".contains(character) {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    self.json.push_str(&format!("\\u{unit:04x}"));
                }
            } else {
                self.json.push(character);
            }
        }
        self.json.push('"');
    }
}

proptest! {
    #[test]
    fn blanks_escapes_and_order_do_not_count(value in value(), one: u64, two: u64) {
        let (one, two) = (Writer::write(&value, one), Writer::write(&value, two));
        prop_assert!(text(&one).is_some(), "{}", one);
        prop_assert_eq!(text(&one), text(&two));
    }

    #[test]
    fn values_meet_only_when_equal(left in value(), right in value(), style: u64) {
        let of = |value: &Value| text(&Writer::write(value, style));
        prop_assert_eq!(left == right, of(&left) == of(&right));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in any::<Vec<u8>>()) {
        let _ = canonical(&bytes);
    }

    #[test]
    fn text_near_the_grammar_never_panics(json in "[\\[\\]{}\",:\\\\u019ae.+ -]{0,40}") {
        let _ = canonical(json.as_bytes());
    }

    #[test]
    fn a_cut_text_never_panics(value in value(), style: u64, cut in 0.0..1.0) {
        let json = Writer::write(&value, style);
        let _ = canonical(&json.as_bytes()[..(json.len() as f64 * cut) as usize]);
    }
}
