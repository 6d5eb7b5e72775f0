//! What people see: a picture that is drawn over itself on a terminal, plain lines elsewhere.

use std::{
    collections::VecDeque,
    env, fmt,
    io::{self, Write},
    time::Duration,
};

use anstream::{AutoStream, ColorChoice, stream::RawStream};
use anstyle::{AnsiColor, Style};

use super::{
    kill::News,
    tally::{Step, Story},
};

const BAR: u64 = 44;
const STORIES: usize = 6;
/// A new story at most so often, so that people can read them.
const STORY_EVERY: Duration = Duration::from_millis(350);
const PLAIN_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Progress {
    pub(super) elapsed: Duration,
    pub(super) whole: Duration,
    pub(super) numbers: Vec<(&'static str, u64)>,
    pub(super) down: Option<&'static str>,
    /// A tap that was answered lately, after how many charges it has.
    pub(super) story: Option<(usize, Story)>,
}

pub(super) struct Screen {
    out: Box<dyn Write + Send>,
    live: bool,
    colour: bool,
    /// How many lines are drawn over next time.
    drawn: usize,
    stories: VecDeque<String>,
    next: Duration,
}

impl Screen {
    /// Draws where people look: for `--json` on standard error, because standard output is for programs.
    pub(super) fn open(is_json: bool) -> Self {
        match is_json {
            true => Self::on(io::stderr()),
            false => Self::on(io::stdout()),
        }
    }

    fn on(out: impl RawStream + Send + 'static) -> Self {
        let colour = AutoStream::choice(&out) != ColorChoice::Never;
        let is_terminal = out.is_terminal();
        Self::new(Box::new(out), is_terminal, colour)
    }

    fn new(out: Box<dyn Write + Send>, terminal: bool, colour: bool) -> Self {
        let live = terminal && env::var_os("TERM").is_none_or(|term| term != "dumb");
        let next = if live { Duration::ZERO } else { PLAIN_EVERY };
        Self { out, live, colour, drawn: 0, stories: VecDeque::new(), next }
    }

    pub(super) fn line(&mut self, text: impl fmt::Display) -> io::Result<()> {
        writeln!(self.out, "{text}")?;
        self.out.flush()
    }

    /// Shows how it is going: a picture, or a line each second.
    pub(super) fn progress(&mut self, progress: Progress) -> io::Result<()> {
        if self.live {
            return self.draw(progress);
        }
        if progress.elapsed < self.next {
            return Ok(());
        }
        self.next += PLAIN_EVERY;
        let numbers = progress.numbers.iter().map(|(name, number)| format!("{number} {name}"));
        let numbers = numbers.collect::<Vec<_>>().join(", ");
        self.line(format_args!("{:>3} s: {numbers}", progress.elapsed.as_secs()))
    }

    pub(super) fn news(&mut self, elapsed: Duration, news: &News) -> io::Result<()> {
        if !self.live {
            return self.line(format_args!("{:>5.1} s: {news}", elapsed.as_secs_f64()));
        }
        let style = match news {
            News::Killed { .. } => BAD,
            News::Back { .. } => GOOD,
        };
        self.stories.push_front(format!("  {}", self.paint(style.bold(), &news.to_string())));
        self.stories.truncate(STORIES);
        Ok(())
    }

    /// Takes the picture away, or leaves a blank line after the plain ones.
    pub(super) fn end_progress(&mut self) -> io::Result<()> {
        if self.live { self.clear() } else { self.line("") }
    }

    /// Gives the terminal back as it was.
    fn clear(&mut self) -> io::Result<()> {
        if self.drawn > 0 {
            write!(self.out, "\x1b[{}A\r\x1b[J\x1b[?7h\x1b[?25h", self.drawn)?;
            self.drawn = 0;
        }
        self.out.flush()
    }

    fn draw(&mut self, progress: Progress) -> io::Result<()> {
        if let Some((charges, story)) = progress.story
            && progress.elapsed >= self.next
        {
            self.next = progress.elapsed + STORY_EVERY;
            self.stories.push_front(self.story(&story, charges));
            self.stories.truncate(STORIES);
        }
        let most = progress.numbers.iter().map(|(_, number)| *number).max().unwrap_or(0);
        let mut lines: Vec<String> = Vec::new();
        for &(name, number) in &progress.numbers {
            let bar = self.paint(colour_of(name), &bar(number, most));
            lines.push(format!("  {name:<10} {number:>7}  {bar}"));
        }
        lines.push(String::new());
        let time_line = self.time_line(progress.elapsed, progress.whole);
        let down = progress.down.map(|gateway| format!("  gateway {gateway} is dead"));
        lines.push(format!("  {time_line}{}", self.bad(&down.unwrap_or_default())));
        lines.push(String::new());
        lines.extend(self.stories.iter().cloned());
        lines.resize(progress.numbers.len() + 3 + STORIES, String::new());
        // One write for the whole picture, without cursor and line wrap: it does not flicker.
        let up = if self.drawn > 0 { format!("\x1b[{}A\r", self.drawn) } else { String::new() };
        let picture = lines.join("\x1b[K\n");
        writeln!(self.out, "\x1b[?25l\x1b[?7l{up}{picture}\x1b[K")?;
        self.drawn = lines.len();
        self.out.flush()
    }

    fn story(&self, story: &Story, charges: usize) -> String {
        let path = self.path(&story.steps).join(" → ");
        let charged = match charges {
            1 => self.good("1 charge "),
            _ => self.bad(&format!("{charges} charges")),
        };
        format!("  tap {:>5}  {charged}  {path}", story.tap)
    }

    fn time_line(&self, elapsed: Duration, whole: Duration) -> String {
        let share = (elapsed.as_secs_f64() / whole.as_secs_f64()).clamp(0.0, 1.0);
        let done = (share * 18.0).round() as usize;
        let (past, left) = ("━".repeat(done), "─".repeat(18 - done));
        format!("{past}{} {:.1} s", self.paint(DIM, &left), elapsed.as_secs_f64())
    }

    /// The steps one after another, each with how often it came in a row.
    pub(super) fn path(&self, steps: &[Step]) -> Vec<String> {
        let runs = steps.chunk_by(|one, next| one == next);
        runs.map(|run| match run.len() {
            1 => self.step(run[0]),
            times => format!("{} ×{times}", self.step(run[0])),
        })
        .collect()
    }

    fn step(&self, step: Step) -> String {
        let style = match step {
            Step::Charged | Step::Replayed => GOOD,
            Step::Lost(_) | Step::Restarted | Step::Unready => BAD,
            Step::TappedTwice | Step::StillRunning | Step::Unknown => ODD,
        };
        self.paint(style, &step.to_string())
    }

    pub(super) fn good(&self, text: &str) -> String {
        self.paint(GOOD, text)
    }

    pub(super) fn bad(&self, text: &str) -> String {
        self.paint(BAD, text)
    }

    pub(super) fn strong(&self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    pub(super) fn dim(&self, text: &str) -> String {
        self.paint(DIM, text)
    }

    fn paint(&self, style: Style, text: &str) -> String {
        if self.colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// The output was closed, so that the demo has no viewer.
#[derive(Debug)]
pub(super) struct Unwritable(pub(super) io::Error);

impl fmt::Display for Unwritable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the output cannot be written, so the demo ends here: {}", self.0)
    }
}

impl std::error::Error for Unwritable {}

/// A panic or an error must not leave a terminal without a cursor.
impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.clear();
    }
}

const GOOD: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default();
const ODD: Style = AnsiColor::Yellow.on_default();
const DIM: Style = Style::new().dimmed();

fn colour_of(name: &str) -> Style {
    match name {
        "lost" | "unready" => BAD,
        "conflicts" | "unknown" => ODD,
        "taps" | "executions" | "charges" => GOOD,
        _ => AnsiColor::Blue.on_default(),
    }
}

/// A bar in eighths of a character.
fn bar(number: u64, most: u64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (number * BAR * 8).checked_div(most).unwrap_or(0);
    let whole = "█".repeat((eighths / 8) as usize);
    whole + EIGHTHS[(eighths % 8) as usize]
}

#[cfg(test)]
impl Screen {
    /// What is shown where there is no terminal.
    pub(super) fn text_of(show: impl FnOnce(&mut Self) -> io::Result<()>) -> String {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut screen = Self::new(Box::new(writer), false, false);
        show(&mut screen).unwrap();
        drop(screen);
        let mut text = String::new();
        io::Read::read_to_string(&mut reader, &mut text).unwrap();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion() {
        assert_eq!(bar(0, 0), "");
        assert_eq!(bar(88, 88), "█".repeat(44));
        assert_eq!(bar(44, 88), "█".repeat(22));
        assert_eq!(bar(1, 88), "▌");
    }

    #[test]
    fn without_a_terminal_there_is_a_line_each_second() {
        let text = Screen::text_of(|screen| {
            for tenths in 1..=25 {
                let elapsed = Duration::from_millis(tenths * 100);
                let whole = Duration::from_secs(3);
                let numbers = vec![("taps", tenths); 9];
                screen.progress(Progress { elapsed, whole, numbers, down: None, story: None })?;
            }
            Ok(())
        });
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.starts_with("  1 s: 10 taps, ") && !text.contains('\x1b'), "{text}");
    }
}
