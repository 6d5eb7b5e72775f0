//! `onceward migrate`, as a person runs it before a deployment.

use std::path::Path;

use tempfile::TempDir;

use crate::command::{Finished, command};

fn migrate(directory: &TempDir, arguments: &[&str]) -> Finished {
    Finished::of(command(&["migrate"]).args(arguments).current_dir(directory.path()))
}

fn contents(file: &Path) -> Vec<u8> {
    std::fs::read(file).unwrap()
}

#[test]
fn it_makes_the_tables_and_says_so_once() {
    let directory = tempfile::tempdir().unwrap();
    let first = migrate(&directory, &["--store", "sqlite://shop.db"]);
    assert!(first.is_success(), "{}", first.stderr);
    assert_eq!(first.stdout, "shop.db: the tables have version 6 now, after 0\n");
    let second = migrate(&directory, &["--store", "shop.db"]);
    assert!(second.is_success());
    assert_eq!(second.stdout, "shop.db: the tables are up to date (version 6)\n");
    let contents = contents(&directory.path().join("shop.db"));
    let table = b"CREATE TABLE onceward_record";
    assert!(contents.windows(table.len()).any(|window| window == table));
}

#[test]
fn a_check_changes_nothing_and_fails_until_it_is_done() {
    let directory = tempfile::tempdir().unwrap();
    let check = migrate(&directory, &["--check", "--store", "sqlite://shop.db"]);
    assert_eq!(check.code, 1);
    assert!(check.stdout.contains("run: onceward migrate --store sqlite://shop.db"));
    assert!(!directory.path().join("shop.db").exists(), "it only looked");
    assert!(migrate(&directory, &["--store", "sqlite://shop.db"]).is_success());
    assert!(migrate(&directory, &["--check", "--store", "sqlite://shop.db"]).is_success());
}

#[test]
fn tables_of_newer_software_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    assert!(migrate(&directory, &["--store", "sqlite://shop.db"]).is_success());
    let shop = rusqlite::Connection::open(directory.path().join("shop.db")).unwrap();
    shop.execute("INSERT INTO onceward_schema (version, applied_at) VALUES (99, 0)", []).unwrap();
    for more in [&["--check"][..], &[]] {
        let output = migrate(&directory, &[more, &["--store", "sqlite://shop.db"]].concat());
        assert_eq!(output.code, 1);
        assert!(output.stderr.contains("use the newer one"), "{}", output.stderr);
    }
}

#[test]
fn what_is_no_database_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let letter = directory.path().join("letter.txt");
    let words = "Dear Sir, this is not a database. ".repeat(100);
    std::fs::write(&letter, &words).unwrap();
    let output = migrate(&directory, &["--store", "letter.txt"]);
    assert_eq!(output.code, 1);
    assert!(output.stderr.starts_with("error: "), "{}", output.stderr);
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
        assert_eq!(output.code, 2, "{address:?}");
        let said = &output.stderr;
        assert!(said.contains(advice) && !said.contains("sesame"), "{said}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing was made");
    let missing = migrate(&directory, &["--store", "sqlite://no/such/directory/shop.db"]);
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("does not exist"), "{}", missing.stderr);
}

#[test]
fn the_help_has_examples() {
    let directory = tempfile::tempdir().unwrap();
    let output = migrate(&directory, &["--help"]);
    assert!(output.is_success());
    assert!(output.stdout.contains("Examples:") && output.stdout.contains("--check"));
}
