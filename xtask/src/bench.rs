//! `cargo xtask bench`: the benchmarks, built with optimisation.

use std::path::Path;

use crate::cargo::Cargo;
use crate::failure::Failure;

/// Runs a benchmark, built with optimisation.
///
/// The first word names the benchmark; everything after it goes to the benchmark unchanged. Close
/// other programs first: numbers from a busy machine are numbers about that machine.
#[derive(clap::Args)]
#[command(
    override_usage = "cargo xtask bench <BENCHMARK> [ARGUMENTS]...",
    after_help = "Benchmarks:\n  store     measures the stores\n  layer     measures the server layer\n  \
                  gateway   measures `onceward serve` beside other proxies\n  \
                  operators measures lists and look-ups\n  \
                  postgres  measures the PostgreSQL store beside pgbench\n  \
                  redis     measures the Redis store beside a bare loop\n  \
                  retry     measures the retry decision and the retrying layer\n  \
                  messages  measures the outbox and its relay beside other queues\n\n\
                  Examples:\n  cargo xtask bench store          with the usual settings\n  \
                  cargo xtask bench store --help   what this benchmark can be told"
)]
pub(crate) struct Arguments {
    /// The benchmark and what it is told
    #[arg(
        value_name = "BENCHMARK [ARGUMENTS]",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    benchmark: Vec<String>,
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<(), Failure> {
    if arguments.needs_gateway() {
        Cargo::new("build --release -p onceward-gateway").run(root)?;
    }
    Cargo::new("run --release -p onceward-bench --").arguments(&arguments.benchmark).run(root)
}

impl Arguments {
    /// Whether the benchmark starts the gateway, which it looks for beside its own program.
    fn needs_gateway(&self) -> bool {
        let is_help = |word: &String| ["--help", "-h"].contains(&word.as_str());
        let is_given = |word: &String| word.starts_with("--gateway");
        let mut more = self.benchmark.iter().skip(1);
        let starts_it = |name: &String| match name.as_str() {
            "gateway" | "operators" => true,
            "postgres" | "redis" => self.has_part("gateway"),
            _ => false,
        };
        self.benchmark.first().is_some_and(starts_it)
            && !more.any(|word| is_help(word) || is_given(word))
    }

    /// Whether a part is measured: all are, if none is named.
    fn has_part(&self, part: &str) -> bool {
        let mut words = self.benchmark.iter().map(String::as_str);
        let only = words.find_map(|word| word.strip_prefix("--only"));
        let named = only.map(|rest| rest.strip_prefix('=').or(words.next()).unwrap_or_default());
        named.is_none_or(|named| named.split(',').any(|one| one == part))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: super::Arguments,
    }

    #[test]
    fn everything_after_the_name_is_passed_through() {
        let line = Line::try_parse_from(["bench", "store", "--seconds", "5", "--help"]);
        assert_eq!(line.unwrap().arguments.benchmark, ["store", "--seconds", "5", "--help"]);
    }

    #[test]
    fn help_before_a_name_is_about_this_command() {
        let error = Line::try_parse_from(["bench", "--help"]).err().unwrap();
        assert_eq!(error.kind(), clap::error::ErrorKind::DisplayHelp);
    }

    #[test]
    fn the_gateway_is_built_for_the_benchmarks_that_start_it() {
        for (line, needed) in [
            (&["gateway", "--quick"][..], true),
            (&["gateway", "--help"], false),
            (&["gateway", "--gateway", "onceward"], false),
            (&["operators"], true),
            (&["postgres", "--rounds", "1"], true),
            (&["postgres", "--only", "pairs,gateway"], true),
            (&["postgres", "--only=pairs", "--rounds", "1"], false),
            (&["postgres", "--only", "pairs"], false),
            (&["redis", "--rounds", "1"], true),
            (&["redis", "--only", "pairs,trips"], false),
            (&["store", "--quick"], false),
        ] {
            let line = Line::try_parse_from([&["bench"], line].concat()).unwrap();
            assert_eq!(line.arguments.needs_gateway(), needed, "{:?}", line.arguments.benchmark);
        }
    }

    #[test]
    fn a_benchmark_must_be_named() {
        assert!(Line::try_parse_from(["bench"]).is_err());
    }
}
