//! The commands of a page and the answers that it shows.
//!
//! A block that starts with three backquotes and `console` has commands, each on a line that starts with `$ `; the
//! lines below it, up to the next command, are what it writes to standard output. A command with `<<'END'` goes on to
//! the line `END`. `…` stands for what differs from run
//! to run (times, references) or does not matter: in a line for any text, as a line of its own for any lines.

/// One command as it is printed.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) answer: String,
}

/// All steps of a page, in its order.
pub(crate) fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_console = false;
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            is_console = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| is_console) {
            let mut command = command.to_owned();
            if command.contains("<<'END'") {
                for line in lines.by_ref() {
                    command.push('\n');
                    command += line;
                    if line == "END" {
                        break;
                    }
                }
            }
            steps.push(Step { command, answer: String::new() });
        } else if is_console {
            let step = steps.last_mut().expect("a block starts with a command");
            step.answer += line;
            step.answer.push('\n');
        }
    }
    steps
}

impl Step {
    /// Whether it runs beside those that follow.
    pub(crate) fn is_beside(&self) -> bool {
        self.command.lines().next().is_some_and(|line| line.ends_with('&'))
    }

    /// Whether this is what the page shows.
    pub(crate) fn is_answered_by(&self, said: &str) -> bool {
        let shown: Vec<&str> = self.answer.trim_end().lines().collect();
        let said: Vec<&str> = said.trim_end().lines().collect();
        fits(
            &shown,
            &said,
            |line| *line == "…",
            |shown, said| {
                let (shown, said): (Vec<char>, Vec<char>) =
                    (shown.chars().collect(), said.chars().collect());
                fits(&shown, &said, |letter| *letter == '…', |shown, said| shown == said)
            },
        )
    }
}

/// Whether a pattern, some of whose elements stand for any number of elements, fits all of these.
fn fits<T>(
    pattern: &[T],
    found: &[T],
    is_any: impl Fn(&T) -> bool + Copy,
    is_same: impl Fn(&T, &T) -> bool + Copy,
) -> bool {
    // What is reached by the part of the pattern so far: so many elements.
    let mut reached = vec![false; found.len() + 1];
    reached[0] = true;
    for element in pattern {
        let before = reached.clone();
        for count in 0..reached.len() {
            reached[count] = match is_any(element) {
                true => before[..=count].contains(&true),
                false => count > 0 && before[count - 1] && is_same(element, &found[count - 1]),
            };
        }
    }
    reached[found.len()]
}

#[test]
fn what_differs_is_left_open_and_nothing_else() {
    let steps =
        steps("```console\n$ one\nHTTP 201\n…\ndate: …\n…\n\n{\"id\":1,…}\n$ two\n```\n$ three\n");
    assert_eq!(steps.iter().map(|step| step.command.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    let answer = |said: &str| steps[0].is_answered_by(said);
    assert!(answer("HTTP 201\na: b\ndate: now\n\n{\"id\":1,\"cents\":5}"));
    for wrong in [
        "HTTP 202\na: b\ndate: now\n\n{\"id\":1,\"cents\":5}",
        "HTTP 201\na: b\n\n{\"id\":1,\"cents\":5}",
        "HTTP 201\ndate: now\n\n{\"id\":2,\"cents\":5}",
        "",
    ] {
        assert!(!answer(wrong), "{wrong}");
    }
    assert!(steps[1].is_answered_by("") && !steps[1].is_answered_by("x"));
}
