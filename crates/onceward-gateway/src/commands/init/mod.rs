//! `onceward init`: writes a configuration to start from.

mod template;

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;

use crate::config::USUAL_FILE;

pub(crate) use template::template;

/// Writes a configuration with every option explained, and never over another file.
#[derive(Args)]
#[command(after_help = "\
Examples:
  onceward init                  writes onceward.toml
  onceward init payments.toml    writes payments.toml

Then say in it where your service is, whose keys they are and who may see a replay:
  onceward check onceward.toml   shows what it means, or what is wrong with it")]
pub(crate) struct Options {
    /// The file to write.
    #[arg(value_name = "FILE", default_value = USUAL_FILE)]
    file: PathBuf,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let file = options.file.display();
    let (written, is_done) = match write(&options.file) {
        Ok(()) => {
            let next = "set `upstream`, `match`, `scope` and `authorize` in it";
            let text = format!("wrote {file}\nnext: {next}, then run: onceward check {file}");
            (writeln!(io::stdout(), "{text}"), true)
        }
        Err(error) => (writeln!(io::stderr(), "error: {}", explain(&error, &options.file)), false),
    };
    match (written, is_done) {
        (Ok(()), true) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn write(file: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(file)?;
    file.write_all(template().as_bytes())?;
    file.sync_all()
}

fn explain(error: &io::Error, file: &Path) -> String {
    let name = file.display();
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            format!(
                "{name} is there already and was left as it is; name another file, or remove it"
            )
        }
        io::ErrorKind::NotFound => {
            format!("{name} cannot be written: its directory does not exist; make it first")
        }
        _ => format!("{name} cannot be written: {error}; check the permissions of its directory"),
    }
}
