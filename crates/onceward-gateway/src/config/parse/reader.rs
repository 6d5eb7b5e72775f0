//! Reads the values of one table, each with its type, and says what is wrong with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::units::{self, show_duration, show_size};
use crate::config::{
    SourceLocation,
    diagnostics::mistake::{Mistakes, listed, nearest},
    schema::limits::Bounds,
};

/// A value and where it was said.
#[derive(Clone, Debug)]
pub(crate) struct Placed<T> {
    pub(crate) value: T,
    pub(crate) place: SourceLocation,
}

/// A value of any type.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    /// `None`: too large for any option.
    Integer(Option<i64>),
    /// With a point.
    Number(f64),
    Flag(bool),
    List(Vec<Placed<Self>>),
    Table(Section),
    /// A type that no option has, and its name.
    Other(&'static str),
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Integer(_) => "a number",
            Self::Number(_) => "a number with a point",
            Self::Flag(_) => "true or false",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Other(kind) => kind,
        }
    }
}

/// An option that may have been said.
#[derive(Clone, Debug, Default)]
pub(crate) enum Setting<T> {
    #[default]
    Missing,
    /// It was said and means nothing; that has been reported and nothing follows from it.
    Wrong,
    Given(Placed<T>),
}

impl<T: Clone> Setting<T> {
    /// What counts if this was not said.
    pub(crate) fn or(&self, other: &Self) -> Self {
        match self {
            Self::Missing => other.clone(),
            _ => self.clone(),
        }
    }

    /// `None`: it was said and means nothing.
    pub(crate) fn or_default(&self, value: T, place: &SourceLocation) -> Option<Placed<T>> {
        match self {
            Self::Missing => Some(Placed { value, place: place.clone() }),
            Self::Wrong => None,
            Self::Given(placed) => Some(placed.clone()),
        }
    }

    /// What counts; `None`: it was said and means nothing.
    pub(crate) fn value_or(&self, default: T) -> Option<T> {
        match self {
            Self::Missing => Some(default),
            Self::Wrong => None,
            Self::Given(placed) => Some(placed.value.clone()),
        }
    }

    /// What was said, if anything was; `None`: it means nothing.
    pub(crate) fn optional(&self) -> Option<Option<T>> {
        match self {
            Self::Wrong => None,
            setting => Some(setting.given().map(|placed| placed.value.clone())),
        }
    }

    pub(crate) fn given(&self) -> Option<&Placed<T>> {
        match self {
            Self::Given(placed) => Some(placed),
            _ => None,
        }
    }

    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
    }

    /// Goes on with a value that was given; `None` from there makes it wrong.
    pub(crate) fn then<U>(self, next: impl FnOnce(&T, &SourceLocation) -> Option<U>) -> Setting<U> {
        match self {
            Self::Missing => Setting::Missing,
            Self::Wrong => Setting::Wrong,
            Self::Given(Placed { value, place }) => match next(&value, &place) {
                Some(value) => Setting::Given(Placed { value, place }),
                None => Setting::Wrong,
            },
        }
    }
}

impl<T: Clone> Setting<Vec<Placed<T>>> {
    /// The items without their places, none if nothing was said.
    pub(crate) fn values(&self) -> Option<Vec<T>> {
        Some(self.value_or(Vec::new())?.into_iter().map(|placed| placed.value).collect())
    }
}

/// One table: `[jwt]`, a `[[route]]`, or the whole file.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) place: SourceLocation,
    entries: BTreeMap<String, (SourceLocation, Placed<Value>)>,
}

impl Section {
    pub(crate) fn empty(place: SourceLocation) -> Self {
        Self { place, entries: BTreeMap::new() }
    }

    pub(crate) fn insert(&mut self, key: String, key_place: SourceLocation, value: Placed<Value>) {
        self.entries.insert(key, (key_place, value));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// All there is, by name.
    pub(crate) fn into_entries(
        self,
    ) -> impl Iterator<Item = (String, SourceLocation, Placed<Value>)> {
        self.entries.into_iter().map(|(key, (place, value))| (key, place, value))
    }

    /// Whether something else stood there.
    pub(crate) fn replace(&mut self, key: &str, place: SourceLocation, value: Value) -> bool {
        let placed = Placed { value, place: place.clone() };
        self.entries.insert(key.to_owned(), (place, placed)).is_some()
    }
}

/// Takes the options out of a table; [`finish`](Self::finish) reports what is no option.
pub(crate) struct Reader<'a> {
    section: Section,
    pub(crate) mistakes: &'a mut Mistakes,
    known: BTreeSet<&'static str>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(section: Section, mistakes: &'a mut Mistakes) -> Self {
        Self { section, mistakes, known: BTreeSet::new() }
    }

    pub(crate) fn place(&self) -> &SourceLocation {
        &self.section.place
    }

    pub(crate) fn take(&mut self, option: &'static str) -> Option<Placed<Value>> {
        self.known.insert(option);
        self.section.entries.remove(option).map(|(_, value)| value)
    }

    /// Everything that is left is unknown.
    pub(crate) fn finish(self) {
        for (key, (place, _)) in self.section.entries {
            let message = format!("there is no option `{key}` here");
            let help = match nearest(&key, self.known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    let known: Vec<_> = self.known.iter().copied().collect();
                    format!("choose of {}", listed(&known))
                }
            };
            self.mistakes.error(&place, message, help);
        }
    }

    pub(crate) fn wrong_type<T>(
        &mut self,
        option: &str,
        found: &Placed<Value>,
        wanted: &str,
        help: &str,
    ) -> Setting<T> {
        let message = format!("`{option}` is {}; it must be {wanted}", found.value.kind());
        self.mistakes.error(&found.place, message, help);
        Setting::Wrong
    }

    /// `example` shows how it is written, with its quotes.
    pub(crate) fn text(&mut self, option: &'static str, example: &str) -> Setting<String> {
        match self.take(option) {
            None => Setting::Missing,
            Some(Placed { value: Value::Text(value), place }) => {
                Setting::Given(Placed { value, place })
            }
            Some(found) => {
                self.wrong_type(option, &found, "a text", &format!("write {option} = {example}"))
            }
        }
    }

    pub(crate) fn choice<T: Copy>(
        &mut self,
        option: &'static str,
        choices: &[(&'static str, T)],
    ) -> Setting<T> {
        let text = self.text(option, &format!("{:?}", choices[0].0));
        text.then(|text, place| {
            let chosen = choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
            if chosen.is_none() {
                let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
                let message = format!("`{option}` must be one of {}", listed(&words));
                self.mistakes.error(place, message, did_you_mean(text, &words));
            }
            chosen
        })
    }

    pub(crate) fn duration(
        &mut self,
        option: &'static str,
        bounds: &Bounds<Duration>,
    ) -> Setting<Duration> {
        let text = match self.take(option) {
            None => return Setting::Missing,
            Some(Placed { value: Value::Text(text), place }) => Placed { value: text, place },
            Some(found) => {
                return self.wrong_type(option, &found, "a duration", &meant_time(&found));
            }
        };
        self.parsed_duration(option, text, bounds)
    }

    /// A duration that is already known to be a text.
    pub(crate) fn parsed_duration(
        &mut self,
        option: &'static str,
        text: Placed<String>,
        bounds: &Bounds<Duration>,
    ) -> Setting<Duration> {
        Setting::Given(text).then(|text, place| match units::duration(text) {
            Err(meant) => {
                let message = format!("`{option}` is not a duration");
                self.mistakes.error(place, message, meant_or(meant, units::TIME_HELP));
                None
            }
            Ok(value) => self.within(option, value, bounds, show_duration, place),
        })
    }

    pub(crate) fn size(&mut self, option: &'static str, bounds: &Bounds<usize>) -> Setting<usize> {
        let found = match self.take(option) {
            None => return Setting::Missing,
            Some(Placed { value: Value::Text(text), place }) => Placed { value: text, place },
            Some(found) => return self.wrong_type(option, &found, "a size", units::SIZE_HELP),
        };
        Setting::Given(found).then(|text, place| match units::size(text) {
            Err(meant) => {
                let message = format!("`{option}` is not a size");
                self.mistakes.error(place, message, meant_or(meant, units::SIZE_HELP));
                None
            }
            Ok(bytes) => self.within(option, bytes, bounds, show_size, place),
        })
    }

    fn within<T: Copy + PartialOrd>(
        &mut self,
        option: &str,
        value: T,
        bounds: &Bounds<T>,
        show: fn(T) -> String,
        place: &SourceLocation,
    ) -> Option<T> {
        let is_within = (bounds.least..=bounds.most).contains(&value);
        if !is_within {
            let (least, most) = (show(bounds.least), show(bounds.most));
            let message = format!("`{option}` is {}, out of its range", show(value));
            self.mistakes.error(place, message, format!("choose between {least} and {most}"));
        }
        is_within.then_some(value)
    }

    /// A number of things.
    pub(crate) fn count(&mut self, option: &'static str, bounds: &Bounds<usize>) -> Setting<usize> {
        let Some(found) = self.take(option) else { return Setting::Missing };
        let help = format!("choose between {} and {}", bounds.least, bounds.most);
        let Value::Integer(number) = found.value else {
            return self.wrong_type(option, &found, "a number", &help);
        };
        let count = number.and_then(|number| usize::try_from(number).ok());
        match count.filter(|count| (bounds.least..=bounds.most).contains(count)) {
            Some(value) => Setting::Given(Placed { value, place: found.place }),
            None => {
                let message = format!("`{option}` is out of its range");
                self.mistakes.error(&found.place, message, help);
                Setting::Wrong
            }
        }
    }

    /// True or false.
    pub(crate) fn flag(&mut self, option: &'static str) -> Setting<bool> {
        match self.take(option) {
            None => Setting::Missing,
            Some(Placed { value: Value::Flag(value), place }) => {
                Setting::Given(Placed { value, place })
            }
            Some(found) => {
                let help = format!("write {option} = true or {option} = false, without quotes");
                self.wrong_type(option, &found, "true or false", &help)
            }
        }
    }

    /// A part of a whole, from 0 to 1.
    pub(crate) fn share(&mut self, option: &'static str) -> Setting<f64> {
        let Some(found) = self.take(option) else { return Setting::Missing };
        let help = "choose between 0.0 and 1.0, as 0.2 for a fifth";
        let share = match found.value {
            Value::Number(share) => share,
            Value::Integer(Some(share @ 0..=1)) => share as f64,
            Value::Integer(_) => f64::NAN,
            _ => return self.wrong_type(option, &found, "a number", help),
        };
        if (0.0..=1.0).contains(&share) {
            return Setting::Given(Placed { value: share, place: found.place });
        }
        let message = format!("`{option}` is out of its range");
        self.mistakes.error(&found.place, message, help);
        Setting::Wrong
    }

    /// One of some HTTP statuses.
    pub(crate) fn status(&mut self, option: &'static str, choices: &[u16]) -> Setting<u16> {
        let Some(found) = self.take(option) else { return Setting::Missing };
        let words: Vec<_> = choices.iter().map(u16::to_string).collect();
        let help = format!("choose of {}, without quotes", words.join(", "));
        let Value::Integer(number) = found.value else {
            return self.wrong_type(option, &found, "a number", &help);
        };
        let status = number.and_then(|number| u16::try_from(number).ok());
        match status.filter(|status| choices.contains(status)) {
            Some(value) => Setting::Given(Placed { value, place: found.place }),
            None => {
                self.mistakes.error(
                    &found.place,
                    format!("`{option}` is not a status for it"),
                    help,
                );
                Setting::Wrong
            }
        }
    }

    /// A list whose items `item` understands; it says itself what is wrong with one.
    pub(crate) fn list<T>(
        &mut self,
        option: &'static str,
        example: &str,
        mut item: impl FnMut(&Value, &SourceLocation, &mut Mistakes) -> Option<T>,
    ) -> Setting<Vec<Placed<T>>> {
        let found = match self.take(option) {
            None => return Setting::Missing,
            Some(Placed { value: Value::List(items), place }) => Placed { value: items, place },
            Some(found) => {
                let help = format!("write {option} = {example}");
                return self.wrong_type(option, &found, "a list", &help);
            }
        };
        Setting::Given(found).then(|items, _| {
            let read: Vec<Option<Placed<T>>> = items
                .iter()
                .map(|Placed { value, place }| {
                    let value = item(value, place, self.mistakes)?;
                    Some(Placed { value, place: place.clone() })
                })
                .collect();
            read.into_iter().collect()
        })
    }

    pub(crate) fn table(&mut self, option: &'static str) -> Setting<Section> {
        match self.take(option) {
            None => Setting::Missing,
            Some(Placed { value: Value::Table(value), place }) => {
                Setting::Given(Placed { value, place })
            }
            Some(found) => {
                let help =
                    format!("write [{option}] on a line of its own and its options below it");
                self.wrong_type(option, &found, "a table", &help)
            }
        }
    }
}

/// What was probably meant, or all there is.
pub(crate) fn did_you_mean(text: &str, words: &[&str]) -> String {
    match nearest(text, words.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("choose of {}", listed(words)),
    }
}

fn meant_or(meant: Option<String>, help: &str) -> String {
    match meant {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => help.to_owned(),
    }
}

fn meant_time(found: &Placed<Value>) -> String {
    match found.value {
        Value::Integer(Some(seconds @ 0..)) => format!("did you mean \"{seconds}s\"?"),
        _ => units::TIME_HELP.to_owned(),
    }
}
