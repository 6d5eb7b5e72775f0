//! `onceward migrate`, as a person runs it before a deployment.

use std::{
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

fn migrate(directory: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command.arg("migrate").args(arguments).current_dir(directory.path()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn contents(file: &Path) -> Vec<u8> {
    std::fs::read(file).unwrap()
}

#[test]
fn it_makes_the_tables_and_says_so_once() {
    let directory = tempfile::tempdir().unwrap();
    let first = migrate(&directory, &["--store", "sqlite://shop.db"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert_eq!(text(&first.stdout), "shop.db: the tables have version 2 now, after 0\n");
    let second = migrate(&directory, &["--store", "shop.db"]);
    assert!(second.status.success());
    assert_eq!(text(&second.stdout), "shop.db: the tables are up to date (version 2)\n");
    let contents = contents(&directory.path().join("shop.db"));
    let table = b"CREATE TABLE onceward_record";
    assert!(contents.windows(table.len()).any(|window| window == table));
}

#[test]
fn a_check_changes_nothing_and_fails_until_it_is_done() {
    let directory = tempfile::tempdir().unwrap();
    let check = migrate(&directory, &["--check", "--store", "sqlite://shop.db"]);
    assert_eq!(check.status.code(), Some(1));
    assert!(text(&check.stdout).contains("run: onceward migrate --store sqlite://shop.db"));
    assert!(!directory.path().join("shop.db").exists(), "it only looked");
    assert!(migrate(&directory, &["--store", "sqlite://shop.db"]).status.success());
    assert!(migrate(&directory, &["--check", "--store", "sqlite://shop.db"]).status.success());
}

#[test]
fn tables_of_newer_software_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    assert!(migrate(&directory, &["--store", "sqlite://shop.db"]).status.success());
    let shop = rusqlite::Connection::open(directory.path().join("shop.db")).unwrap();
    shop.execute("INSERT INTO onceward_schema (version, applied_at) VALUES (99, 0)", []).unwrap();
    for more in [&["--check"][..], &[]] {
        let output = migrate(&directory, &[more, &["--store", "sqlite://shop.db"]].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("use the newer one"), "{}", text(&output.stderr));
    }
}

#[test]
fn what_is_no_database_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let letter = directory.path().join("letter.txt");
    let words = "Dear Sir, this is not a database. ".repeat(100);
    std::fs::write(&letter, &words).unwrap();
    let output = migrate(&directory, &["--store", "letter.txt"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("error: "), "{}", text(&output.stderr));
    assert_eq!(contents(&letter), words.as_bytes());
}

#[test]
fn addresses_that_mean_nothing_are_refused_with_an_example() {
    let directory = tempfile::tempdir().unwrap();
    for (address, advice) in [
        ("postgres://u:sesame@shop", "user:password@host:5432/database"),
        ("postgress://u:sesame@shop/d", "did you mean \"postgres://\"?"),
        ("sqlite://", "name a file"),
        ("", "name a file"),
        ("sqlite://shop.db?mode=rwc", "options behind the file"),
    ] {
        let output = migrate(&directory, &["--store", address]);
        assert_eq!(output.status.code(), Some(2), "{address:?}");
        let said = text(&output.stderr);
        assert!(said.contains(advice) && !said.contains("sesame"), "{said}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing was made");
    let missing = migrate(&directory, &["--store", "sqlite://no/such/directory/shop.db"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("does not exist"), "{}", text(&missing.stderr));
}

#[test]
fn the_help_has_examples() {
    let directory = tempfile::tempdir().unwrap();
    let output = migrate(&directory, &["--help"]);
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("Examples:") && text(&output.stdout).contains("--check"));
}
