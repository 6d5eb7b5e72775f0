//! What was measured, beside what was promised.

use std::fs;
use std::path::Path;
use std::process;
use std::time::Duration;

use crate::cargo::readable;

/// What `cargo xtask package` may take on two quiet cores, with nothing built.
const WHOLE_COMMAND: Duration = Duration::from_secs(8 * 60);
const COLD_START: Duration = Duration::from_millis(100);
const FIRST_REPLAY: Duration = Duration::from_secs(2 * 60);

#[derive(Default)]
pub(super) struct Figures {
    rows: Vec<Row>,
}

struct Row {
    name: String,
    measured: String,
    most: String,
    /// Whether it is more than it may be.
    is_over: bool,
    /// Times depend on the machine, sizes do not.
    is_size: bool,
}

impl Figures {
    pub(super) fn size(&mut self, name: &str, file: &Path, most: Option<u64>) {
        let bytes = fs::metadata(file).map_or(0, |metadata| metadata.len());
        self.rows.push(Row {
            name: name.to_owned(),
            measured: megabytes(bytes),
            most: most.map(megabytes).unwrap_or_default(),
            is_over: most.is_some_and(|most| bytes > most),
            is_size: true,
        });
    }

    pub(super) fn cold_start(&mut self, median: Duration) {
        let milliseconds = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1000.0);
        self.time("from its start until it listens, median", median, COLD_START, milliseconds);
    }

    pub(super) fn whole_command(&mut self, elapsed: Duration) {
        self.time("building and packaging", elapsed, WHOLE_COMMAND, readable);
        // A busy machine makes the one longer and not the other.
        if let Some(used) = testbed::cpu_time_with_ended(process::id()) {
            let name = "building and packaging, processor time".to_owned();
            let (measured, most) = (readable(used), String::new());
            self.rows.push(Row { name, measured, most, is_over: false, is_size: false });
        }
    }

    pub(super) fn first_replay(&mut self, title: &str, elapsed: Duration) {
        let name = format!("{title}, from its installation to the first replay");
        self.time(&name, elapsed, FIRST_REPLAY, readable);
    }

    fn time(
        &mut self,
        name: &str,
        measured: Duration,
        most: Duration,
        shown: impl Fn(Duration) -> String,
    ) {
        self.rows.push(Row {
            name: name.to_owned(),
            measured: shown(measured),
            most: shown(most),
            is_over: measured > most,
            is_size: false,
        });
    }

    /// What no machine excuses.
    pub(super) fn too_large(&self) -> Vec<String> {
        let over = self.rows.iter().filter(|row| row.is_size && row.is_over);
        over.map(|row| format!("the {} has {}, more than {}", row.name, row.measured, row.most))
            .collect()
    }

    pub(super) fn print(&self) {
        println!("\n{}", self.table());
    }

    fn table(&self) -> String {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
        let mut table = format!("{:width$}  {:>12}  {:>12}\n", "", "measured", "at most");
        for Row { name, measured, most, is_over, .. } in &self.rows {
            let mark = if *is_over { "  OVER" } else { "" };
            table += &format!("{name:width$}  {measured:>12}  {most:>12}{mark}\n");
        }
        table
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_was_not_promised_is_named_and_a_slow_machine_is_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(2_500_000).unwrap();
        let mut figures = Figures::default();
        figures.size("wheel", file.path(), Some(2_000_000));
        figures.size("npm package", file.path(), Some(3_000_000));
        figures.cold_start(Duration::from_millis(900));
        assert_eq!(figures.too_large(), ["the wheel has 2.5 MB, more than 2.0 MB"]);
        let table = figures.table();
        let rows: Vec<&str> = table.lines().collect();
        assert!(rows[1].ends_with("2.0 MB  OVER") && rows[2].ends_with("3.0 MB"));
        assert!(rows[3].ends_with("900 ms        100 ms  OVER"), "{table}");
    }
}
