//! Columns that stand under one another.

use std::fmt::Write as _;

pub(crate) struct Table {
    lines: Vec<Vec<String>>,
}

impl Table {
    /// The policy comes first and the study last.
    pub(crate) fn new(columns: &[&str]) -> Self {
        let middle = columns.iter().map(|column| (*column).to_owned());
        let first = std::iter::once("policy".to_owned());
        Self { lines: vec![first.chain(middle).chain(["study".to_owned()]).collect()] }
    }

    /// Ours is marked.
    pub(crate) fn add(
        &mut self,
        policy: &str,
        ours: bool,
        cells: impl IntoIterator<Item = String>,
        study: &str,
    ) {
        let mark = if ours { "→ " } else { "  " };
        let mut line = vec![format!("{mark}{policy}")];
        line.extend(cells);
        line.push(study.to_owned());
        self.lines.push(line);
    }

    pub(crate) fn text(&self) -> String {
        let columns = self.lines[0].len();
        let width = |column: usize| {
            self.lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for line in &self.lines {
            let mut words = String::new();
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                // Words to the left, numbers to the right.
                let result = match column {
                    0 => write!(words, "{cell:<width$}"),
                    _ if column + 1 == columns => write!(words, "   {cell}"),
                    _ => write!(words, "  {cell:>width$}"),
                };
                result.expect("text takes whatever is written");
            }
            text.push_str(words.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_under_one_another() {
        let mut table = Table::new(&["calls"]);
        table.add("short", false, ["5".to_owned()], "");
        table.add("rather long", true, ["12345".to_owned()], "12,000");
        let expected =
            "policy         calls   study\n  short            5\n→ rather long  12345   12,000\n";
        assert_eq!(table.text(), expected);
    }
}
