//! A strict reader of the text exposition format, written from its specification and not from the code
//! under test: names, types, the grammar of samples, whole histograms, nothing twice.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its own part")]

use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, String>;

/// A text that was read.
#[derive(Debug, Default)]
pub struct Exposition {
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<(String, Labels), f64>,
}

impl Exposition {
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut read = Self::default();
        let mut family = String::new();
        let lines = text.strip_suffix('\n').ok_or("the last line has no end")?;
        for line in lines.split('\n') {
            let outcome = match line.strip_prefix("# ") {
                Some(comment) => read.comment(comment, &mut family),
                None => read.sample(line, &family),
            };
            outcome.map_err(|error| format!("{error}: {line}"))?;
        }
        read.check_histograms()?;
        Ok(read)
    }

    pub fn kind(&self, family: &str) -> Option<&str> {
        self.kinds.get(family).map(String::as_str)
    }

    pub fn families(&self) -> usize {
        self.kinds.len()
    }

    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        self.samples.get(&(name.to_owned(), labels.collect())).copied()
    }

    fn comment(&mut self, comment: &str, family: &mut String) -> Result<(), String> {
        let words: Vec<&str> = comment.splitn(3, ' ').collect();
        match words[..] {
            ["HELP", name, text] => {
                check_name(name)?;
                unescape(text, false).map(drop)
            }
            ["TYPE", name, kind] => {
                check_name(name)?;
                if !["counter", "gauge", "histogram"].contains(&kind) {
                    return Err("no such type".into());
                }
                *family = name.to_owned();
                match self.kinds.insert(name.to_owned(), kind.to_owned()) {
                    None => Ok(()),
                    Some(_) => Err("a second TYPE".into()),
                }
            }
            _ => Err("neither HELP nor TYPE".into()),
        }
    }

    fn sample(&mut self, line: &str, family: &str) -> Result<(), String> {
        let end = line.find(['{', ' ']).ok_or("no value")?;
        let (name, rest) = line.split_at(end);
        check_name(name)?;
        let of_family = match self.kind(family).ok_or("no TYPE before it")? {
            "histogram" => ["_bucket", "_sum", "_count"]
                .iter()
                .any(|part| name.strip_suffix(part) == Some(family)),
            _ => name == family,
        };
        if !of_family {
            return Err(format!("not a sample of {family}"));
        }
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => read_labels(rest)?,
            None => (Labels::new(), rest),
        };
        let value = value.strip_prefix(' ').ok_or("no space before the value")?;
        let value: f64 = value.parse().map_err(|_| "not a number")?;
        if value < 0.0 || !value.is_finite() {
            return Err("nothing here is negative or infinite".into());
        }
        match self.samples.insert((name.to_owned(), labels), value) {
            None => Ok(()),
            Some(_) => Err("the same series twice".into()),
        }
    }

    fn check_histograms(&self) -> Result<(), String> {
        for (family, _) in self.kinds.iter().filter(|(_, kind)| *kind == "histogram") {
            let mut series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
            for ((name, labels), value) in &self.samples {
                let mut labels = labels.clone();
                if *name == format!("{family}_bucket") {
                    let bound = labels.remove("le").ok_or("a bucket without a bound")?;
                    let bound = match bound.as_str() {
                        "+Inf" => f64::INFINITY,
                        bound => bound.parse().map_err(|_| "a bound that is no number")?,
                    };
                    series.entry(labels).or_default().push((bound, *value));
                } else if name.strip_prefix(family).is_some_and(|rest| rest == "_count") {
                    series.entry(labels).or_default();
                }
            }
            for (labels, mut buckets) in series {
                buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
                let of =
                    |part: &str| self.samples.get(&(format!("{family}{part}"), labels.clone()));
                let all = of("_count").ok_or(format!("{family} has no count"))?;
                of("_sum").ok_or(format!("{family} has no sum"))?;
                if !buckets.is_sorted_by(|one, other| one.1 <= other.1) {
                    return Err(format!("{family}: buckets that shrink"));
                }
                if buckets.last() != Some(&(f64::INFINITY, *all)) {
                    return Err(format!("{family}: the last bucket is not all"));
                }
            }
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let mut bytes = name.bytes();
    let first = bytes.next().is_some_and(is_letter);
    match first && bytes.all(|byte| is_letter(byte) || byte.is_ascii_digit()) {
        true => Ok(()),
        false => Err(format!("{name:?} is not a name")),
    }
}

fn read_labels(mut rest: &str) -> Result<(Labels, &str), String> {
    let (mut labels, mut seen) = (Labels::new(), BTreeSet::new());
    loop {
        let (name, after) = rest.split_once("=\"").ok_or("a label without a value")?;
        check_name(name)?;
        let end = end_of_value(after).ok_or("a value without an end")?;
        if !seen.insert(name) {
            return Err("a label twice".into());
        }
        labels.insert(name.to_owned(), unescape(&after[..end], true)?);
        rest = &after[end + 1..];
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        rest = rest.strip_prefix(',').ok_or("neither a comma nor a brace after a label")?;
    }
}

fn end_of_value(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })
}

fn unescape(text: &str, is_value: bool) -> Result<String, String> {
    let (mut plain, mut characters) = (String::new(), text.chars());
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some('\\') => '\\',
                Some('"') if is_value => '"',
                _ => return Err("an escape that does not exist".into()),
            },
            other => other,
        });
    }
    Ok(plain)
}
