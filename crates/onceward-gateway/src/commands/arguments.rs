//! Values that several commands take on their command lines.

use std::{
    fs,
    io::{self, Read as _},
    path::Path,
};

use http::{HeaderName, HeaderValue, Uri};

use super::terminal::BoxError;
use crate::config::{Config, Mistake, Overrides, Sources};

pub(crate) type Line = (HeaderName, HeaderValue);

pub(super) fn url(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("it is not a URL: {error}"))?;
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("name and password do not belong there; give a --credential".to_owned());
    }
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(uri),
        _ => Err("write it as http://host/path or https://host/path".to_owned()),
    }
}

pub(super) fn line(text: &str) -> Result<Line, String> {
    let (name, value) = text.split_once(':').ok_or("write it as `Name: value`")?;
    let name = name.trim().parse().map_err(|_| format!("`{name}` is not a name of a header"))?;
    let value = value.trim().parse().map_err(|_| "its value is not one for a header".to_owned())?;
    Ok((name, value))
}

/// The text itself, or with `@FILE` what is in that file.
pub(super) fn data(text: &str) -> Result<Vec<u8>, BoxError> {
    match text.strip_prefix('@') {
        None => Ok(text.into()),
        Some(file) => read(Path::new(file)),
    }
}

/// Reads a file, or with `-` standard input.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, BoxError> {
    let mut bytes = Vec::new();
    let read = match file == Path::new("-") {
        true => io::stdin().read_to_end(&mut bytes).map(|_| bytes),
        false => fs::read(file),
    };
    Ok(read
        .map_err(|error| format!("{} cannot be read: {error}; nothing was sent", file.display()))?)
}

/// A configuration, as the environment of this process changes it.
pub(super) fn load(file: &Path) -> Result<Config, Vec<Mistake>> {
    Config::load_any(&Sources::gather(Some(file), Overrides::default())?)
}

/// The same for commands that need it for something else.
pub(super) fn load_or_explain(file: &Path, advice: &str) -> Result<Config, BoxError> {
    Ok(load(file).map_err(|mistakes| {
        let mistakes: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        format!("{} is not right{advice}:\n{}", file.display(), mistakes.join("\n"))
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_name_and_a_value() {
        assert_eq!(line("A: b: c").unwrap().1, "b: c");
        for wrong in ["nothing", "a b: c", ": x", "a: b\nc"] {
            assert!(line(wrong).is_err(), "{wrong:?}");
        }
    }
}
