//! What all commands share: how they run, print and fail.

use std::{
    error::Error,
    fmt::Display,
    future::Future,
    io::{self, Write as _},
    ops::Range,
    process::ExitCode,
    time::Duration,
};

use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
};

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

pub(super) fn run(command: impl Future<Output = Result<ExitCode, BoxError>>) -> ExitCode {
    ended(Runtime::new().map_err(BoxError::from).and_then(|runtime| runtime.block_on(command)))
}

/// An error goes to standard error and makes the command fail.
pub(super) fn ended(done: Result<ExitCode, BoxError>) -> ExitCode {
    done.unwrap_or_else(|error| refused(&error, 1))
}

pub(super) fn refused(error: &dyn Display, code: u8) -> ExitCode {
    tell(format_args!("error: {error}"));
    ExitCode::from(code)
}

pub(super) fn tell(text: impl Display) {
    // Standard error may be closed; then no operator reads it.
    let _ = writeln!(io::stderr(), "{text}");
}

/// A reader that closes the pipe, as `head` does, has read enough: that is no failure.
pub(super) fn read_enough(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Ends with Ctrl-C or when the process is asked to terminate; it listens from now on.
pub(super) fn stopped() -> io::Result<impl Future<Output = ()>> {
    let (mut terminated, mut interrupted) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    })
}

/// Rows whose columns stand under one another: words to the left, these columns of numbers to the right.
pub(super) fn columns<C: AsRef<[String]>>(rows: &[C], numbers: Range<usize>) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows.iter().map(AsRef::as_ref) {
        widths.resize(row.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |row: &C| {
        let cells = row.as_ref().iter().zip(&widths).enumerate();
        let padded = cells.map(|(column, (cell, width))| match numbers.contains(&column) {
            true => format!("{cell:>width$}"),
            false => format!("{cell:width$}"),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(super) fn counted(count: usize, word: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {word}{ending}")
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_one_another() {
        let rows =
            [["policy", "calls", "study"], ["short", "5", ""], ["rather long", "12345", "x"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        let expected = "policy       calls  study\nshort            5\nrather long  12345  x";
        assert_eq!(columns(&rows, 1..2), expected);
    }
}
