//! Relative links in Markdown files lead to files that exist.

use std::path::Path;

use super::Findings;
use crate::failure::Failure;
use crate::source;

pub(super) fn check(root: &Path, findings: &mut Findings) -> Result<(), Failure> {
    for path in source::files(root, "md")? {
        let shown = source::shown(root, &path);
        let directory = path.parent().unwrap_or(root);
        for (line, link) in links(&source::read(&path)?) {
            let Some(target) = relative_path(&link) else { continue };
            let place = match target.strip_prefix('/') {
                Some(from_root) => root.join(from_root),
                None => directory.join(&target),
            };
            if !place.exists() {
                findings.fail(format!("{shown}:{line} links to `{link}`, which does not exist"));
            }
        }
    }
    Ok(())
}

/// The file that a link names; `None` for a link to the web or to a place in the same file.
fn relative_path(link: &str) -> Option<String> {
    let path = link.split(['#', '?']).next().unwrap_or_default();
    let scheme = path.split_once(':').is_some_and(|(scheme, _)| {
        scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    });
    if path.is_empty() || scheme || path.starts_with("//") {
        return None;
    }
    Some(path.replace("%20", " "))
}

/// Every link destination with its line: inline, by reference definition, and in HTML attributes.
fn links(markdown: &str) -> Vec<(usize, String)> {
    let text = without_code(markdown);
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let inline = line.match_indices("](").map(|(at, mark)| &line[at + mark.len()..]);
        let html = ["href=\"", "src=\""]
            .into_iter()
            .flat_map(|mark| line.match_indices(mark).map(move |(at, _)| &line[at + mark.len()..]));
        let destinations = inline
            .map(inline_destination)
            .chain(html.map(|rest| rest.split('"').next().unwrap_or_default()))
            .chain(definition(line));
        found.extend(destinations.map(|destination| (number + 1, destination.to_owned())));
    }
    found
}

/// What stands between `](` and its `)`, without a title; parentheses inside may be balanced.
fn inline_destination(rest: &str) -> &str {
    let rest = rest.trim_start();
    if let Some(bracketed) = rest.strip_prefix('<') {
        return bracketed.split('>').next().unwrap_or_default();
    }
    let mut depth = 0;
    for (at, c) in rest.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return &rest[..at],
            ')' => depth -= 1,
            c if c.is_whitespace() => return &rest[..at],
            _ => {}
        }
    }
    rest
}

/// The destination of `[label]: destination`; a footnote is none.
fn definition(line: &str) -> Option<&str> {
    let (label, rest) = line.trim_start().strip_prefix('[')?.split_once("]:")?;
    if label.starts_with('^') || label.contains(']') {
        return None;
    }
    let destination = rest.split_whitespace().next()?;
    Some(destination.trim_start_matches('<').trim_end_matches('>'))
}

/// The text with fenced blocks and code spans taken out; lines keep their numbers.
fn without_code(markdown: &str) -> String {
    let mut text = String::new();
    let mut fence: Option<&str> = None;
    for line in markdown.lines() {
        let start = line.trim_start();
        match fence {
            Some(mark) => {
                if start.starts_with(mark) {
                    fence = None;
                }
            }
            None => {
                fence = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
                if fence.is_none() {
                    text += &without_spans(line);
                }
            }
        }
        text.push('\n');
    }
    text
}

fn without_spans(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(at) = rest.find('`') {
        text += &rest[..at];
        let length = rest[at..].bytes().take_while(|byte| *byte == b'`').count();
        let mark = &rest[at..at + length];
        let body = &rest[at + length..];
        rest = body.find(mark).map_or(body, |end| &body[end + length..]);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn links_are_found_in_all_their_forms() {
        let markdown = "[a](one.md) and ![b](<two words.png> \"title\") [c](three_(x).md#part)\n\
                        [d]: four.md \"title\"\n[^1]: not a link\n<img src=\"five.svg\">\n";
        let found: Vec<_> = links(markdown);
        let expected = [
            (1, "one.md"),
            (1, "two words.png"),
            (1, "three_(x).md#part"),
            (2, "four.md"),
            (4, "five.svg"),
        ];
        assert_eq!(found, expected.map(|(line, link)| (line, link.to_owned())));
    }

    #[test]
    fn code_holds_no_links() {
        let markdown =
            "`[a](one.md)` ``[b](`two.md)``\n```text\n[c](three.md)\n```\n~~~\n[d]: four.md\n~~~\n";
        assert_eq!(links(markdown), []);
    }

    #[test]
    fn only_relative_links_name_files() {
        for link in
            ["https://example.org/a.md", "mailto:a@example.org", "#part", "//example.org", ""]
        {
            assert_eq!(relative_path(link), None, "{link}");
        }
        assert_eq!(relative_path("a%20b.md#part").as_deref(), Some("a b.md"));
        assert_eq!(relative_path("../docs/").as_deref(), Some("../docs/"));
    }

    #[test]
    fn broken_links_are_named_with_their_line() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("docs")).unwrap();
        fs::write(root.path().join("README.md"), "[a](docs/start.md) [b](docs)\n\n[c](gone.md)")
            .unwrap();
        fs::write(
            root.path().join("docs/start.md"),
            "[up](../README.md) [root](/README.md) [x](/x.md)",
        )
        .unwrap();
        let mut findings = Findings::default();
        check(root.path(), &mut findings).unwrap();
        assert_eq!(
            findings.failures,
            [
                "README.md:3 links to `gone.md`, which does not exist",
                "docs/start.md:1 links to `/x.md`, which does not exist"
            ]
        );
    }
}
