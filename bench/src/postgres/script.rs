//! What `pgbench` is told to do: the store's own statements, with parameters that it can make.

use onceward::store::postgres::statements;

/// The table of the business, and what is written to it.
pub(crate) const CHARGE: &str = "CREATE TABLE charge (id bigint GENERATED ALWAYS AS IDENTITY \
     PRIMARY KEY, customer text NOT NULL, cents bigint NOT NULL)";
pub(crate) const INSERT_CHARGE: &str = "INSERT INTO charge (customer, cents) VALUES ($1, $2)";
pub(crate) const CUSTOMER: &str = "cus_8e03978e";
pub(crate) const CENTS: i64 = 1999;

/// What one transaction of `pgbench` consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    /// A claim and its end, each durable by itself.
    Pair,
    /// A row of the business and an ended record, in one transaction.
    CommitOutcome,
    /// A claim, and then a row of the business and the claim's end in one transaction.
    Apart,
}

/// A number of its own for each operation; digests of such numbers are spread like any others.
const NUMBER: &str = "\\set k random(1, 9223372036854775807)";
const DIGEST: &str = "sha256(int8send(:k))";
/// Lengths are numbers of microseconds.
const LEASE: &str = "(:lease::float8 * interval '1 microsecond')";
const SWEEP: &str = "(:sweep::float8 * interval '1 microsecond')";
const RETAIN: &str = "(:retain::float8 * interval '1 microsecond')";
/// Decimal digits are hexadecimal digits.
const FENCE: &str = "lpad(:k::text, 32, '0')::uuid";
const NEXT_FENCE: &str = "lpad(:k::text, 32, '1')::uuid";

impl Script {
    /// The whole file.
    pub(crate) fn text(self) -> String {
        let [claim, end] = statements();
        let claim_with = |state, body| {
            let parameters = [
                DIGEST,
                FENCE,
                FENCE,
                state,
                LEASE,
                SWEEP,
                RETAIN,
                ":scope::text",
                ":operation::text",
                body,
            ];
            with_parameters(claim, &parameters)
        };
        let claimed = || claim_with(":running::int2", ":claim::bytea");
        let ended = || {
            let body = ":answer::bytea";
            let parameters = [DIGEST, FENCE, NEXT_FENCE, ":ended::int2", RETAIN, body];
            with_parameters(end, &parameters)
        };
        let charge = || with_parameters(INSERT_CHARGE, &[":customer::text", ":cents::int8"]);
        let commands = match self {
            Self::Pair => vec![claimed(), ended()],
            Self::CommitOutcome => vec![
                "BEGIN".to_owned(),
                charge(),
                claim_with(":ended::int2", ":answer::bytea"),
                "COMMIT".to_owned(),
            ],
            Self::Apart => {
                vec![claimed(), "BEGIN".to_owned(), charge(), ended(), "COMMIT".to_owned()]
            }
        };
        format!("{NUMBER}\n{};\n", commands.join(";\n"))
    }
}

/// The same statement with something else in the place of `$1`, `$2`, ….
fn with_parameters(statement: &str, parameters: &[&str]) -> String {
    let numbered = parameters.iter().enumerate().rev();
    // From the last to the first, because `$1` is also the beginning of `$10`.
    numbered.fold(statement.trim().to_owned(), |text, (index, parameter)| {
        text.replace(&format!("${}", index + 1), parameter)
    })
}

/// What the store writes for a claim and for its end, taken from a record that it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// As PostgreSQL shows them: `\x…`.
    pub(crate) claim: String,
    pub(crate) answer: String,
    pub(crate) scope: String,
    pub(crate) operation: String,
}

impl Sample {
    /// How many bytes the claim and the ended record have.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let size = |text: &str| text.len().saturating_sub(2) / 2;
        (size(&self.claim), size(&self.answer))
    }

    /// The variables of the scripts, as `pgbench` takes them.
    pub(crate) fn variables(&self) -> Vec<String> {
        const HOUR: u64 = 3_600_000_000;
        let numbers = [
            ("running", 0),
            ("ended", 3),
            ("lease", 30_000_000),
            ("sweep", 25 * HOUR),
            ("retain", 24 * HOUR),
            ("cents", CENTS.unsigned_abs()),
        ];
        let numbers = numbers.map(|(name, value)| format!("{name}={value}"));
        let texts = [
            ("claim", self.claim.as_str()),
            ("answer", &self.answer),
            ("scope", &self.scope),
            ("operation", &self.operation),
            ("customer", CUSTOMER),
        ];
        let texts = texts.map(|(name, value)| format!("{name}={value}"));
        numbers.into_iter().chain(texts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tenth_parameter_is_not_the_first() {
        let parameters = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        assert_eq!(with_parameters("\n f($1, $10, $2)", &parameters), "f(a, j, b)");
    }

    #[test]
    fn scripts_are_the_statements_of_the_store_and_nothing_is_left_open() {
        for script in [Script::Pair, Script::CommitOutcome, Script::Apart] {
            let text = script.text();
            assert!(text.contains("INSERT INTO onceward.record"), "{text}");
            assert!(!text.contains('$'), "{text}");
        }
        let pair = Script::Pair.text();
        assert!(pair.contains("UPDATE onceward.record") && !pair.contains("BEGIN"));
        assert_eq!(pair.matches(";\n").count(), 2);
        assert!(!Script::CommitOutcome.text().contains("UPDATE"));
        assert!(Script::Apart.text().contains(";\nBEGIN;\nINSERT INTO charge"));
    }

    #[test]
    fn sizes_are_of_bytes_and_not_of_digits() {
        let text = String::new;
        let sample = Sample {
            claim: "\\x0102".into(),
            answer: "\\x010203".into(),
            scope: text(),
            operation: text(),
        };
        assert_eq!(sample.sizes(), (2, 3));
        assert!(sample.variables().contains(&"answer=\\x010203".to_owned()));
    }
}
