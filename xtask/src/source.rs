//! Reads Rust source just well enough for the checks: code apart from comments, strings and tests.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Every file below `directory` whose name ends in `.extension`, sorted; build output and hidden
/// directories are left out.
pub(crate) fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).map_err(|error| unreadable(&directory, &error))? {
            let path = entry.map_err(|error| unreadable(&directory, &error))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                // What a person who tried an example has installed there is not ours.
                let is_ours = name != "target" && name != "node_modules" && !name.starts_with('.');
                if is_ours {
                    waiting.push(path);
                }
            } else if path.extension().is_some_and(|own| own == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| unreadable(path, &error))
}

/// A path as people write it: from the root of the repository.
pub(crate) fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        format!("{} cannot be read: {error}", path.display()),
        "check that it exists, is UTF-8 and may be read by you",
    )
}

/// The source with comments, strings and character literals blanked; lines keep their numbers.
pub(crate) fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = end_of_blank(bytes, at);
        code[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at = end.max(at + 1);
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// Where the comment or literal that starts at `at` ends; `at` itself when none starts there.
fn end_of_blank(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let follows_word = at > 0 && is_word(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => at + find(rest, b"\n").unwrap_or(rest.len()),
        [b'/', b'*', ..] => at + length_of_block_comment(rest),
        [b'"', ..] => at + length_of_quoted(rest, b'"'),
        [b'b' | b'c', b'r', b'"' | b'#', ..] if !follows_word => at + 1 + length_of_raw(&rest[1..]),
        [b'r', b'"' | b'#', ..] if !follows_word => at + length_of_raw(rest),
        // A lifetime has no closing quote right after its first character.
        [b'\'', b'\\', ..] => at + length_of_quoted(rest, b'\''),
        [b'\'', first, after @ ..] => {
            let width = if first.is_ascii() { 0 } else { first.leading_ones() as usize - 1 };
            if after.get(width) == Some(&b'\'') { at + width + 3 } else { at }
        }
        _ => at,
    }
}

fn length_of_block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn length_of_quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Of `r"…"` or `r#"…"#`; only one byte for a raw identifier such as `r#type`.
fn length_of_raw(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 1;
    }
    let close: Vec<u8> = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let body = 2 + hashes;
    find(&rest[body..], &close).map_or(rest.len(), |length| body + length + close.len())
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Code with the items under `#[cfg(test)]` blanked.
pub(crate) struct WithoutTests {
    pub(crate) code: String,
    /// Modules that exist only in tests and live in files of their own.
    pub(crate) test_modules: Vec<String>,
}

/// Takes what `code_only` returns.
pub(crate) fn without_tests(code: &str) -> WithoutTests {
    const MARKS: [&str; 2] = ["#[cfg(test)]", "#[cfg(all(test"];
    let mut bytes = code.as_bytes().to_vec();
    let mut test_modules = Vec::new();
    if code.contains("#![cfg(test)]") {
        bytes.iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    }
    let mut from = 0;
    while let Some(start) = MARKS.iter().filter_map(|mark| code[from..].find(mark)).min() {
        let start = from + start;
        let end = start + length_of_item(&code[start..]);
        let item = &code[start..end];
        if let Some((_, name)) = item.trim_end().trim_end_matches(';').rsplit_once("mod ")
            && name.bytes().all(is_word)
        {
            test_modules.push(name.to_owned());
        }
        bytes[start..end].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
        from = end;
    }
    WithoutTests { code: String::from_utf8_lossy(&bytes).into_owned(), test_modules }
}

/// The length of an item with its attributes: up to its `;` or the end of its block.
fn length_of_item(code: &str) -> usize {
    let mut brackets = 0_i32;
    let mut braces = 0_i32;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' => brackets += 1,
            b')' | b']' => brackets -= 1,
            b'{' => braces += 1,
            b'}' => braces -= 1,
            _ => {}
        }
        let outside = brackets == 0 && braces == 0;
        if (outside && matches!(byte, b';' | b'}')) || braces < 0 {
            return at + 1;
        }
    }
    code.len()
}

/// One word of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word<'a> {
    pub(crate) line: usize,
    pub(crate) text: &'a str,
    /// The first thing after it is `!` and it is not `!=`: it calls a macro.
    pub(crate) calls_macro: bool,
}

/// The identifiers, keywords and numbers of code, in order. Takes what `code_only` returns.
pub(crate) fn words(code: &str) -> Vec<Word<'_>> {
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut rest = line;
        while let Some(start) = rest.find(|c: char| c.is_alphanumeric() || c == '_') {
            let word = &rest[start..];
            let length =
                word.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(word.len());
            let (text, after) = word.split_at(length);
            let next = after.trim_start();
            let calls_macro = next.starts_with('!') && !next.starts_with("!=");
            found.push(Word { line: number + 1, text, calls_macro });
            rest = after;
        }
    }
    found
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        words(&code_only(source)).iter().map(|word| word.text.to_owned()).collect()
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        let source = r##"
            let a = "std:: \" dbg!"; // std
            /* todo!() /* nested */ std */ let b = r#"std " quote"#;
            let c = b"std"; let d = br"std"; let e = '"'; let f = '\''; let g = 'é';
        "##;
        let names = [
            "let", "a", "let", "b", "let", "c", "b", "let", "d", "let", "e", "let", "f", "let", "g",
        ];
        assert_eq!(texts(source), names);
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        assert_eq!(
            texts("fn f<'a>(x: &'a str, r#type: u8)"),
            ["fn", "f", "a", "x", "a", "str", "type", "u8"]
        );
    }

    #[test]
    fn words_know_their_line_and_whether_they_call_a_macro() {
        let found = words("a\nvec![b] != c!=d");
        let calls: Vec<_> = found.iter().map(|w| (w.line, w.text, w.calls_macro)).collect();
        assert_eq!(
            calls,
            [(1, "a", false), (2, "vec", true), (2, "b", false), (2, "c", false), (2, "d", false)]
        );
    }

    #[test]
    fn test_items_are_blanked_and_nothing_after_them() {
        let code = "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests { fn b(c: [u8; 2]) { d } }\nfn e() {}\n\
                    #[cfg(test)]\nmod bench;\nfn f() {}";
        let without = without_tests(code);
        let left: Vec<_> = words(&without.code).iter().map(|word| word.text).collect();
        assert_eq!(left, ["fn", "a", "fn", "e", "fn", "f"]);
        assert_eq!(without.test_modules, ["bench"]);
    }

    #[test]
    fn finds_files_but_not_build_output() {
        let directory = tempfile::tempdir().unwrap();
        for path in ["a/b.rs", "a/b.md", "target/c.rs", ".git/d.rs", "e.rs"] {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found = files(directory.path(), "rs").unwrap();
        let shown: Vec<_> = found.iter().map(|path| shown(directory.path(), path)).collect();
        assert_eq!(shown, ["a/b.rs", "e.rs"]);
    }
}
