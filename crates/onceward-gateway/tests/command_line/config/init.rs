//! `onceward init`: the file that it writes is right, complete, and says the truth about defaults.

use std::fs;

use crate::config::support::{directory, onceward};

#[test]
fn what_is_written_is_right_as_it_is() {
    let directory = directory();
    let output = onceward(directory.path(), &["init"], &[]);
    assert!(output.is_success(), "{}", output.stderr);
    let said = &output.stdout;
    assert!(said.starts_with("wrote onceward.toml\nnext: "), "{said}");
    assert!(said.contains("onceward check onceward.toml"), "{said}");
    let output = onceward(directory.path(), &["check", "onceward.toml"], &[]);
    assert!(output.is_success(), "{}", output.stderr);
    assert!(!output.stdout.contains("warning"), "{}", output.stdout);
}

#[test]
fn no_file_is_ever_overwritten() {
    let directory = directory();
    fs::write(directory.path().join("mine.toml"), "precious").unwrap();
    let output = onceward(directory.path(), &["init", "mine.toml"], &[]);
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("left as it is"), "{}", output.stderr);
    assert_eq!(fs::read(directory.path().join("mine.toml")).unwrap(), b"precious");
    let output = onceward(directory.path(), &["init", "no/such/o.toml"], &[]);
    assert!(output.stderr.contains("directory does not exist"));
}

#[test]
fn the_defaults_that_it_shows_are_the_defaults() {
    let directory = directory();
    onceward(directory.path(), &["init", "a.toml"], &[]);
    let written = fs::read_to_string(directory.path().join("a.toml")).unwrap();
    let is_option = |line: &str| {
        line.strip_prefix('#')
            .is_some_and(|rest| rest.starts_with(|first: char| first.is_alphabetic()))
    };
    let said: String = written
        .lines()
        .map(|line| line[usize::from(is_option(line))..].to_owned() + "\n")
        .collect();
    assert_ne!(said, written);
    fs::write(directory.path().join("b.toml"), said).unwrap();
    let config = |file: &str| {
        let output = onceward(directory.path(), &["check", file, "--json"], &[]);
        let document = output.json();
        assert!(output.is_success(), "{document:#}");
        document["config"].clone()
    };
    assert_eq!(config("a.toml"), config("b.toml"));
}

#[test]
fn every_option_is_shown() {
    let directory = directory();
    onceward(directory.path(), &["init", "a.toml"], &[]);
    let written = fs::read_to_string(directory.path().join("a.toml")).unwrap();
    // An option that does not exist makes the command list all that do.
    for (unknown, options) in
        [(format!("zzzzzz = 1\n{written}"), 8), (format!("{written}\nzzzzzz = 1\n"), 37)]
    {
        fs::write(directory.path().join("b.toml"), unknown).unwrap();
        let output = onceward(directory.path(), &["check", "b.toml"], &[]);
        let said = &output.stderr;
        let known = said.lines().find_map(|line| line.strip_prefix("  help: choose of ")).unwrap();
        let known: Vec<_> = known.split(", ").collect();
        assert!(known.len() >= options, "{known:?}");
        for option in known {
            let shown = [format!("{option} = "), format!("[{option}]")];
            assert!(shown.iter().any(|shown| written.contains(shown)), "{option}");
        }
    }
}
