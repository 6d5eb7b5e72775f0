//! The crash points that are written in the sources.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The places of each point, as `file:line`.
pub(crate) fn points_in_the_sources() -> BTreeMap<String, Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        collect(&entry.unwrap().path().join("src"), &mut files);
    }
    collect(&root.join("crash/src"), &mut files);
    let mut points: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(root).unwrap().display().to_string();
        for (line, point) in points_in(&text) {
            points.entry(point).or_default().push(format!("{name}:{line}"));
        }
    }
    points
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Lines and names of the points in one file; what is written in comments is none.
fn points_in(text: &str) -> Vec<(usize, String)> {
    let is_comment = |line: &&str| line.trim_start().starts_with("//");
    let code: Vec<&str> =
        text.lines().map(|line| if is_comment(&line) { "" } else { line }).collect();
    let code = code.join("\n");
    let mut points = Vec::new();
    for (at, call) in code.match_indices("crashpoint!(") {
        let arguments = code[at + call.len()..].trim_start();
        let name = arguments.strip_prefix('"').and_then(|rest| rest.split('"').next());
        let line = code[..at].matches('\n').count() + 1;
        points.push((line, name.expect("a point has a literal name").to_owned()));
    }
    points
}

#[test]
fn points_are_found_also_on_the_next_line_but_not_in_comments() {
    let text = "// crashpoint!(\"no\")\nlet a = crashpoint!(\"one\", b, c);\ncrashpoint!(\n  \"two\", d, e)";
    assert_eq!(points_in(text), [(2, "one".to_owned()), (3, "two".to_owned())]);
}
