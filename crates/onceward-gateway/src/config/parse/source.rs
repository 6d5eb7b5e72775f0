//! Where a configuration comes from: a file, then the environment, then the command line, which
//! wins.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use toml::{Spanned, de::DeTable, de::DeValue};

use super::reader::{Placed, Section, Value};
use crate::config::{
    Mistake, SourceLocation,
    diagnostics::mistake::{Mistakes, nearest},
    schema::limits,
};

/// The environment variables that replace a value of the file; an empty one counts as not set.
/// `ONCEWARD_TRUSTED_PROXIES` is a list with commas.
const VARIABLES: [(&str, &str); 6] = [
    ("ONCEWARD_LISTEN", "listen"),
    ("ONCEWARD_ADMIN", "admin"),
    ("ONCEWARD_UPSTREAM", "upstream"),
    ("ONCEWARD_STORE", "store"),
    ("ONCEWARD_GUARANTEE", "guarantee"),
    ("ONCEWARD_TRUSTED_PROXIES", "trusted_proxies"),
];

/// The file that `serve` and `check` read when they are given no other.
pub(crate) const USUAL_FILE: &str = "onceward.toml";

/// Everything that a configuration is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// The file's name and its text.
    pub(crate) file: Option<(PathBuf, String)>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) overrides: Overrides,
    /// What `onceward relay` was told of sinks; they replace those of the file.
    pub(crate) sinks: Vec<NamedSink>,
}

/// `--sink NAME=URL`, with what `--topics` says of it.
#[derive(Clone, Debug)]
pub(crate) struct NamedSink {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) topics: Vec<String>,
}

impl NamedSink {
    fn section(&self) -> Placed<Value> {
        let place = SourceLocation::Argument("--sink");
        let mut section = Section::empty(place.clone());
        section.replace("name", place.clone(), Value::Text(self.name.clone()));
        section.replace("url", place.clone(), Value::Text(self.url.clone()));
        if !self.topics.is_empty() {
            let place = SourceLocation::Argument("--topics");
            let topic =
                |text: &String| Placed { value: Value::Text(text.clone()), place: place.clone() };
            let topics = self.topics.iter().map(topic).collect();
            section.replace("topics", place.clone(), Value::List(topics));
        }
        Placed { value: Value::Table(section), place }
    }
}

/// What the command line says; it wins over the environment and the file.
///
/// `--scope` and `--authorize` replace those of every route. Without a file, or with one that has
/// no routes, they make one route that covers POST and PATCH everywhere.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// The public listener, as `0.0.0.0:8080`; 127.0.0.1:8080 if it is said nowhere.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// The operators' listener; none if it is said nowhere.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
    /// Where requests go, as `http://127.0.0.1:3000`.
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Option<String>,
    /// Where the records are: a file, `postgres://…`, or `redis://…` with guarantee = "relaxed";
    /// `sqlite://onceward.db` if it is said nowhere.
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// To whom a key belongs; may be given several times: `jwt:<claim>`, `cert:subject`,
    /// `header:<name>`, `secret:<header>` or `global`, and in addition `path:<name>`,
    /// `json:<pointer>`.
    #[arg(long, value_name = "PART")]
    pub(crate) scope: Vec<String>,
    /// Who checks that a replay may be seen: `jwt`, `mtls`, `none` or a URL.
    #[arg(long, value_name = "WHO")]
    pub(crate) authorize: Option<String>,
}

impl Sources {
    /// Reads the file, if there is one, and the environment of this process.
    pub(crate) fn gather(file: Option<&Path>, overrides: Overrides) -> Result<Self, Vec<Mistake>> {
        let readable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let environment = std::env::vars_os().filter_map(readable).collect();
        let file = match file {
            None => None,
            Some(path) => Some((path.to_owned(), read(path).map_err(|mistake| vec![mistake])?)),
        };
        Ok(Self { file, environment, overrides, sinks: Vec::new() })
    }

    /// The place for what is said nowhere.
    pub(crate) fn whole(&self) -> SourceLocation {
        match &self.file {
            Some((path, _)) => SourceLocation::File(name_of(path)),
            None => SourceLocation::CommandLine,
        }
    }

    /// Relative names in the file start from here.
    pub(crate) fn directory(&self) -> PathBuf {
        let parent = self.file.as_ref().and_then(|(path, _)| path.parent());
        parent.map(Path::to_owned).unwrap_or_default()
    }

    /// All sources as one; `None`: the file cannot be understood.
    pub(crate) fn merged(&self, mistakes: &mut Mistakes) -> Option<Section> {
        let mut section = match &self.file {
            None => Section::empty(SourceLocation::CommandLine),
            Some((path, text)) => parse(&name_of(path), text, mistakes)?,
        };
        self.apply_environment(&mut section, mistakes);
        let Overrides { listen, admin, upstream, store, .. } = &self.overrides;
        for (argument, option, value) in [
            ("--listen", "listen", listen),
            ("--admin", "admin", admin),
            ("--upstream", "upstream", upstream),
            ("--store", "store", store),
        ] {
            if let Some(value) = value {
                section.replace(
                    option,
                    SourceLocation::Argument(argument),
                    Value::Text(value.clone()),
                );
            }
        }
        if !self.sinks.is_empty() {
            let sinks = self.sinks.iter().map(NamedSink::section).collect();
            let place = SourceLocation::Argument("--sink");
            if section.replace("sink", place.clone(), Value::List(sinks)) {
                mistakes.note(&place, "it replaces every [[sink]] of the file");
            }
        }
        Some(section)
    }

    fn apply_environment(&self, section: &mut Section, mistakes: &mut Mistakes) {
        for (name, value) in &self.environment {
            let known = VARIABLES.iter().find(|(variable, _)| variable == name);
            let place = SourceLocation::Environment(name.clone());
            match known {
                Some(_) if value.is_empty() => {}
                Some((_, option)) => {
                    let value = match *option {
                        "trusted_proxies" => list_with_commas(value, &place),
                        _ => Value::Text(value.clone()),
                    };
                    if section.replace(option, place.clone(), value) {
                        mistakes.note(&place, format!("it replaces `{option}` of the file"));
                    }
                }
                None if name.starts_with("ONCEWARD_") => warn_if_misspelt(name, &place, mistakes),
                None => {}
            }
        }
    }
}

/// Others may set variables of that prefix, as Kubernetes does for a service of this name: only
/// what is nearly one of ours is worth a word.
fn warn_if_misspelt(name: &str, place: &SourceLocation, mistakes: &mut Mistakes) {
    if let Some(near) = nearest(&name[9..], VARIABLES.iter().map(|(known, _)| &known[9..])) {
        let message = format!("this variable means nothing here; did you mean `ONCEWARD_{near}`?");
        mistakes.warning(place, message, "rename it, or unset it if it is not for Onceward");
    }
}

fn list_with_commas(text: &str, place: &SourceLocation) -> Value {
    let one =
        |text: &str| Placed { value: Value::Text(text.trim().to_owned()), place: place.clone() };
    Value::List(text.split(',').map(one).collect())
}

fn name_of(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}

fn read(path: &Path) -> Result<String, Mistake> {
    let refuse = |message: String, help: &str| {
        let place = SourceLocation::File(name_of(path));
        let mut mistakes = Mistakes::default();
        mistakes.error(&place, message, help);
        mistakes.into_sorted().remove(0)
    };
    let mut bytes = Vec::new();
    let read = File::open(path)
        .and_then(|file| file.take(limits::MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let help = "check the name, or write a new one with: onceward init";
            return Err(refuse("there is no such file".to_owned(), help));
        }
        Err(error) => {
            return Err(refuse(format!("it cannot be read: {error}"), "check its permissions"));
        }
        Ok(_) if bytes.len() as u64 > limits::MAX_FILE_BYTES => {
            let message = "it is larger than 1 MiB".to_owned();
            return Err(refuse(message, "no configuration is so long: check the name"));
        }
        Ok(_) => {}
    }
    let message = || "it is not text in UTF-8".to_owned();
    String::from_utf8(bytes).map_err(|_| refuse(message(), "save it as UTF-8, or check the name"))
}

/// The file as a tree with places; `None`: it is not TOML, and why was said.
fn parse(name: &Arc<str>, text: &str, mistakes: &mut Mistakes) -> Option<Section> {
    let lines = Lines::new(name, text);
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let place = lines.place(error.span().map_or(0, |span| span.start));
        let help = "this is not TOML; the rest is checked when it is";
        mistakes.error(&place, error.message().lines().next().unwrap_or_default(), help);
    }
    let place = SourceLocation::File(name.clone());
    errors.is_empty().then(|| lines.section(table.into_inner(), place))
}

/// Where lines begin.
struct Lines<'a> {
    name: &'a Arc<str>,
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(name: &'a Arc<str>, text: &'a str) -> Self {
        let after = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { name, text, starts: std::iter::once(0).chain(after).collect() }
    }

    fn place(&self, offset: usize) -> SourceLocation {
        let line = self.starts.partition_point(|start| *start <= offset);
        let before = self.text.get(self.starts[line - 1]..offset).unwrap_or_default();
        SourceLocation::Line { file: self.name.clone(), line, column: before.chars().count() + 1 }
    }

    fn section(&self, table: DeTable<'_>, place: SourceLocation) -> Section {
        let mut section = Section::empty(place);
        for (key, value) in table {
            let key_place = self.place(key.span().start);
            section.insert(key.into_inner().into_owned(), key_place, self.value(value));
        }
        section
    }

    fn value(&self, value: Spanned<DeValue<'_>>) -> Placed<Value> {
        let place = self.place(value.span().start);
        let value = match value.into_inner() {
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Integer(number) => {
                Value::Integer(i64::from_str_radix(number.as_str(), number.radix()).ok())
            }
            DeValue::Float(number) => Value::Number(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(flag) => Value::Flag(flag),
            DeValue::Datetime(_) => Value::Other("a date"),
            DeValue::Array(list) => {
                Value::List(list.into_iter().map(|value| self.value(value)).collect())
            }
            DeValue::Table(table) => Value::Table(self.section(table, place.clone())),
        };
        Placed { value, place }
    }
}
