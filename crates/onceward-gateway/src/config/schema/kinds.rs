//! What an operator may write as the value of an option: how it is read, described and shown.

use std::time::Duration;

use http::HeaderName;
use serde_json::Value as Json;

use super::limits::Bounds;
use crate::config::{
    SourceLocation,
    diagnostics::mistake::Mistakes,
    parse::{
        reader::{Placed, Reader, Setting, Value},
        units::{show_duration, show_size},
    },
};

type ReadOption<T> = Box<dyn Fn(&mut Reader<'_>, &'static str) -> Setting<T>>;

/// The kind of an option, which is read as a `Read` and shown as a `Plain`.
pub(crate) struct Kind<Read, Plain: ?Sized = Read> {
    /// What an operator may write, as the reference says it.
    pub(crate) values: String,
    read: ReadOption<Read>,
    show: Box<dyn Fn(&Plain) -> Json>,
}

impl<Read, Plain: ?Sized> Kind<Read, Plain> {
    pub(crate) fn new(
        values: impl Into<String>,
        read: impl Fn(&mut Reader<'_>, &'static str) -> Setting<Read> + 'static,
        show: impl Fn(&Plain) -> Json + 'static,
    ) -> Self {
        Self { values: values.into(), read: Box::new(read), show: Box::new(show) }
    }

    pub(crate) fn read(&self, reader: &mut Reader<'_>, option: &'static str) -> Setting<Read> {
        (self.read)(reader, option)
    }

    /// As it is written in a file.
    pub(crate) fn shown(&self, value: &Plain) -> Json {
        (self.show)(value)
    }
}

pub(crate) fn choice<T: Copy + PartialEq>(words: &'static [(&'static str, T)]) -> Kind<T> {
    let values = words.iter().map(|(word, _)| format!("`\"{word}\"`")).collect::<Vec<_>>();
    let read = |reader: &mut Reader<'_>, option| reader.choice(option, words);
    Kind::new(values.join(", "), read, |value| word(words, value).into())
}

/// The word for a value.
pub(crate) fn word<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word)
}

pub(crate) fn duration(bounds: &'static Bounds<Duration>) -> Kind<Duration> {
    let (least, most) = (show_duration(bounds.least), show_duration(bounds.most));
    let values = format!("a duration from `\"{least}\"` to `\"{most}\"`");
    let read = |reader: &mut Reader<'_>, option| reader.duration(option, bounds);
    Kind::new(values, read, |value| show_duration(*value).into())
}

/// A duration, or for `None` the word "never".
pub(crate) fn duration_or_never(bounds: &'static Bounds<Duration>) -> Kind<Option<Duration>> {
    let Kind { values, .. } = duration(bounds);
    let read = |reader: &mut Reader<'_>, option| match reader.text(option, "\"never\"") {
        Setting::Missing => Setting::Missing,
        Setting::Wrong => Setting::Wrong,
        Setting::Given(Placed { value, place }) if value == "never" => {
            Setting::Given(Placed { value: None, place })
        }
        Setting::Given(text) => {
            reader.parsed_duration(option, text, bounds).then(|duration, _| Some(Some(*duration)))
        }
    };
    let show = |value: &Option<_>| value.map_or_else(|| "never".to_owned(), show_duration).into();
    Kind::new(values + ", or `\"never\"`", read, show)
}

pub(crate) fn size(bounds: &'static Bounds<usize>) -> Kind<usize> {
    let (least, most) = (show_size(bounds.least), show_size(bounds.most));
    let values = format!("a size from `\"{least}\"` to `\"{most}\"`");
    Kind::new(
        values,
        |reader, option| reader.size(option, bounds),
        |value| show_size(*value).into(),
    )
}

pub(crate) fn count(bounds: &'static Bounds<usize>) -> Kind<usize> {
    let values = format!("a number from {} to {}", bounds.least, bounds.most);
    Kind::new(values, |reader, option| reader.count(option, bounds), as_is)
}

#[expect(clippy::redundant_closure_for_method_calls, reason = "it takes readers of any lifetime")]
pub(crate) fn flag() -> Kind<bool> {
    Kind::new("`true` or `false`", |reader, option| reader.flag(option), as_is)
}

/// A part of a whole.
#[expect(clippy::redundant_closure_for_method_calls, reason = "it takes readers of any lifetime")]
pub(crate) fn share() -> Kind<f64> {
    Kind::new("a part from 0.0 to 1.0", |reader, option| reader.share(option), as_is)
}

/// One of these HTTP statuses.
pub(crate) fn status(choices: &'static [u16]) -> Kind<u16> {
    let values = choices.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    Kind::new(values, |reader, option| reader.status(option, choices), as_is)
}

/// A text that is understood where its section is; `example` is one, with its quotes.
pub(crate) fn text(example: &'static str) -> Kind<String, str> {
    Kind::new("a text", |reader, option| reader.text(option, example), |value: &str| value.into())
}

/// A text that means something; `parse` says what is wrong with one that does not.
pub(crate) fn parsed<T: 'static>(
    example: &'static str,
    parse: impl Fn(&str, &SourceLocation, &mut Mistakes) -> Option<T> + 'static,
    show: impl Fn(&T) -> String + 'static,
) -> Kind<T> {
    let read = move |reader: &mut Reader<'_>, option| {
        let text = reader.text(option, example);
        text.then(|text, place| parse(text, place, reader.mistakes))
    };
    Kind::new("a text", read, move |value| show(value).into())
}

/// A list; `item` says what is wrong with an item that means nothing.
pub(crate) fn list<T: 'static>(
    example: &'static str,
    item: impl Fn(&Value, &SourceLocation, &mut Mistakes) -> Option<T> + 'static,
    show: impl Fn(&T) -> Json + 'static,
) -> Kind<Vec<Placed<T>>, [T]> {
    let read = move |reader: &mut Reader<'_>, option| reader.list(option, example, &item);
    let values = format!("a list, as `{example}`");
    Kind::new(values, read, move |items: &[T]| items.iter().map(&show).collect())
}

/// Names of headers.
pub(crate) fn headers() -> Kind<Vec<Placed<HeaderName>>, [HeaderName]> {
    const EXAMPLE: &str = "[\"x-currency\"]";
    let read = |reader: &mut Reader<'_>, option| {
        reader.list(option, EXAMPLE, |value, place, mistakes| {
            let name = match value {
                Value::Text(text) => HeaderName::try_from(text).ok(),
                _ => None,
            };
            if name.is_none() {
                let message = format!("`{option}` has an item that is no header name");
                mistakes.error(place, message, "write names like \"x-currency\"");
            }
            name
        })
    };
    let values = format!("a list of names of headers, as `{EXAMPLE}`");
    Kind::new(values, read, |names: &[HeaderName]| names.iter().map(HeaderName::as_str).collect())
}

/// Statuses of failures.
pub(crate) fn failures(example: &'static str) -> Kind<Vec<Placed<u16>>, [u16]> {
    let read = move |reader: &mut Reader<'_>, option| {
        reader.list(option, example, |value, place, mistakes| {
            if let Value::Integer(Some(status @ 400..=599)) = value {
                return u16::try_from(*status).ok();
            }
            let message = format!("`{option}` has an item that is no status from 400 to 599");
            mistakes.error(place, message, format!("write {option} = {example}"));
            None
        })
    };
    let values = format!("a list of statuses from 400 to 599, as `{example}`");
    Kind::new(values, read, |statuses: &[u16]| statuses.iter().copied().collect())
}

/// An item that is a text.
pub(crate) fn as_text<T: ToString>(value: &T) -> Json {
    value.to_string().into()
}

/// A value that JSON has, too.
pub(crate) fn as_is<T: Copy + Into<Json>>(value: &T) -> Json {
    (*value).into()
}
