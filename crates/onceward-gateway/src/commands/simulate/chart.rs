//! Charts as SVG, small enough to write by hand and to read in a diff.

use std::fmt::Write as _;

use super::row::Row;

pub(super) struct Chart {
    pub(super) file: String,
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
    /// A span of x to be shaded, and what it is.
    pub(super) shade: Option<(f64, f64, &'static str)>,
}

pub(super) struct Axis {
    pub(super) label: &'static str,
    pub(super) scale: Scale,
    /// The end, if it is not what the lines say; what lies beyond is cut off.
    pub(super) most: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    /// From 1 or what is least, by powers of ten.
    Logarithmic,
}

pub(super) struct Line {
    pub(super) name: String,
    /// Drawn strongly and last.
    pub(super) ours: bool,
    pub(super) points: Vec<(f64, f64)>,
}

impl Line {
    pub(super) fn new(name: &str, ours: bool, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), ours, points }
    }

    pub(super) fn by_policy(rows: &[Row], point: impl Fn(&Row) -> Option<(f64, f64)>) -> Vec<Self> {
        let mut lines: Vec<Self> = Vec::new();
        for row in rows {
            let Some(point) = point(row) else { continue };
            match lines.iter_mut().find(|line| line.name == row.policy) {
                Some(line) => line.points.push(point),
                None => lines.push(Self::new(&row.policy, row.ours, vec![point])),
            }
        }
        lines
    }
}

impl Axis {
    pub(super) fn linear(label: &'static str) -> Self {
        Self { label, scale: Scale::Linear, most: None }
    }

    pub(super) fn logarithmic(label: &'static str) -> Self {
        Self { label, scale: Scale::Logarithmic, most: None }
    }

    pub(super) fn up_to(self, most: f64) -> Self {
        Self { most: Some(most), ..self }
    }
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 570.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 348.0;

/// Readers who do not see red and green can distinguish them, on white and on black (after Okabe and Ito).
const COLOURS: [&str; 9] = [
    "#999999", "#56b4e9", "#009e73", "#cc79a7", "#e69f00", "#0072b2", "#8c6bb1", "#b8860b",
    "#4daf4a",
];
const OURS: &str = "#d55e00";

const STYLE: &str = "\
<style>
  svg { color: #1f2328; background: #ffffff }
  @media (prefers-color-scheme: dark) { svg { color: #e6edf3; background: #0d1117 } }
  text { font: 12px system-ui, sans-serif; fill: currentColor }
  .title { font-size: 15px; font-weight: 600 }
  .axis { stroke: currentColor; fill: none }
  .grid { stroke: currentColor; stroke-opacity: .15 }
  .shade { fill: currentColor; fill-opacity: .08 }
  .line { fill: none; stroke-width: 1.5; stroke-linejoin: round }
  .ours { stroke-width: 3 }
</style>
";

impl Chart {
    pub(super) fn new(file: &str, title: &str, x: Axis, y: Axis, lines: Vec<Line>) -> Self {
        Self { file: file.to_owned(), title: title.to_owned(), x, y, lines, shade: None }
    }

    pub(super) fn svg(&self) -> String {
        let frame = Frame::of(self);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-label=\"{title}\">\n<title>{title}</title>\n{STYLE}",
            title = escape(&self.title)
        );
        text(&mut svg, (LEFT, 26.0), "start", " class=\"title\"", &self.title);
        self.shade(&frame, &mut svg);
        self.axes(&frame, &mut svg);
        self.lines(&frame, &mut svg);
        svg.push_str("</svg>\n");
        svg
    }

    fn shade(&self, frame: &Frame, svg: &mut String) {
        let Some((from, to, what)) = self.shade else { return };
        let (left, right) = (frame.x.place(from), frame.x.place(to));
        line(
            svg,
            format_args!(
                "<rect class=\"shade\" x=\"{left:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{}\"/>",
                right - left,
                BOTTOM - TOP
            ),
        );
        text(svg, (f64::midpoint(left, right), TOP - 5.0), "middle", "", what);
    }

    fn axes(&self, frame: &Frame, svg: &mut String) {
        for tick in frame.x.ticks() {
            let x = frame.x.place(tick);
            line(svg, format_args!("<path class=\"grid\" d=\"M{x:.1} {TOP}V{BOTTOM}\"/>"));
            text(svg, (x, BOTTOM + 17.0), "middle", "", &number(tick));
        }
        for tick in frame.y.ticks() {
            let y = frame.y.place(tick);
            line(svg, format_args!("<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>"));
            text(svg, (LEFT - 7.0, y + 4.0), "end", "", &number(tick));
        }
        line(svg, format_args!("<path class=\"axis\" d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\"/>"));
        text(svg, (f64::midpoint(LEFT, RIGHT), HEIGHT - 14.0), "middle", "", self.x.label);
        let middle = f64::midpoint(TOP, BOTTOM);
        let turned = format!(" transform=\"rotate(-90 16 {middle})\"");
        text(svg, (16.0, middle), "middle", &turned, self.y.label);
    }

    fn lines(&self, frame: &Frame, svg: &mut String) {
        // More lines than colours: the second round is dashed.
        let dashes = ["", " stroke-dasharray=\"6 3\""];
        let mut looks = dashes.iter().flat_map(|dash| COLOURS.map(|colour| (colour, *dash)));
        let mut last = String::new();
        for (place, drawn) in self.lines.iter().enumerate() {
            let own = if drawn.ours { None } else { looks.next() };
            let (colour, dash) = own.unwrap_or((OURS, ""));
            let class = if drawn.ours { "line ours" } else { "line" };
            let look = format!("class=\"{class}\" stroke=\"{colour}\"{dash}");
            let path = frame.path(&drawn.points);
            let to = if drawn.ours { &mut last } else { &mut *svg };
            line(to, format_args!("<path {look} d=\"{path}\"/>"));
            let y = TOP + 8.0 + 20.0 * place as f64;
            line(svg, format_args!("<path {look} d=\"M{} {y}h22\"/>", RIGHT + 14.0));
            text(svg, (RIGHT + 42.0, y + 4.0), "start", "", &drawn.name);
        }
        svg.push_str(&last);
    }
}

struct Frame {
    x: Range,
    y: Range,
}

struct Range {
    scale: Scale,
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Frame {
    fn of(chart: &Chart) -> Self {
        let points = || chart.lines.iter().flat_map(|line| &line.points);
        Self {
            x: Range::of(&chart.x, points().map(|point| point.0), (LEFT, RIGHT)),
            y: Range::of(&chart.y, points().map(|point| point.1), (BOTTOM, TOP)),
        }
    }

    /// A gap where nothing was measured.
    fn path(&self, points: &[(f64, f64)]) -> String {
        let mut path = String::new();
        let mut draws = false;
        for &(x, y) in points {
            if !y.is_finite() {
                draws = false;
                continue;
            }
            let letter = if draws { 'L' } else { 'M' };
            draws = true;
            write!(path, "{letter}{:.1} {:.1}", self.x.place(x), self.y.place(y))
                .expect("text takes whatever is written");
        }
        path
    }
}

impl Range {
    fn of(axis: &Axis, values: impl Iterator<Item = f64>, (from, to): (f64, f64)) -> Self {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            (least, most) = (least.min(value), most.max(value));
        }
        most = axis.most.unwrap_or(most);
        if axis.scale == Scale::Logarithmic {
            least = 10_f64.powf(least.max(0.001).log10().floor());
            most = 10_f64.powf(most.max(least * 10.0).log10().ceil());
        } else {
            least = 0.0;
            most = if most > 0.0 { most } else { 1.0 };
        }
        Self { scale: axis.scale, least, most, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.least, self.most);
        let part = match self.scale {
            Scale::Linear => (value - self.least) / (self.most - self.least),
            Scale::Logarithmic => (value / self.least).log10() / (self.most / self.least).log10(),
        };
        self.from + (self.to - self.from) * part
    }

    fn ticks(&self) -> Vec<f64> {
        if self.scale == Scale::Logarithmic {
            let decades = (self.most / self.least).log10().round() as i32;
            return (0..=decades).map(|decade| self.least * 10_f64.powi(decade)).collect();
        }
        let step = round_step(self.most / 6.0);
        (0..)
            .map(|tick| f64::from(tick) * step)
            .take_while(|tick| *tick <= self.most * 1.001)
            .collect()
    }
}

/// 1, 2, 2.5 or 5 times a power of ten.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    power * steps.into_iter().find(|step| step * power >= least * 0.999).unwrap_or(10.0)
}

fn number(value: f64) -> String {
    let rounded = (value * 1000.0).round() / 1000.0;
    let whole = rounded.to_string();
    match whole.split_once('.') {
        None if whole.len() > 4 => {
            let (thousands, rest) = whole.split_at(whole.len() - 3);
            format!("{thousands},{rest}")
        }
        _ => whole,
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, more: &str, words: &str) {
    line(
        svg,
        format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{more}>{}</text>",
            escape(words)
        ),
    );
}

fn line(svg: &mut String, words: std::fmt::Arguments<'_>) {
    writeln!(svg, "{words}").expect("text takes whatever is written");
}

fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let lines = vec![
            Line::new("ours", true, vec![(0.0, 1.0), (10.0, 100.0)]),
            Line::new("peer", false, vec![(0.0, 1.0), (5.0, f64::NAN), (10.0, 1000.0)]),
        ];
        let (x, y) = (Axis::linear("clients"), Axis::logarithmic("calls"));
        Chart { shade: Some((2.0, 3.0, "outage")), ..Chart::new("x", "a < b", x, y, lines) }
    }

    #[test]
    fn a_chart_has_its_axes_names_and_lines_with_ours_on_top() {
        let svg = chart().svg();
        for part in ["a &lt; b", ">clients<", ">calls<", ">ours<", ">peer<", ">outage<", ">1000<"] {
            assert!(svg.contains(part), "no {part}: {svg}");
        }
        // The corners of the paper: least at the left bottom, most at the right top.
        assert!(svg.contains("M66.0 348.0L570.0 148.0"), "{svg}");
        // What was not measured is a gap.
        assert!(svg.contains("M66.0 348.0M570.0 48.0"), "{svg}");
        assert!(svg.trim_end().ends_with("L570.0 148.0\"/>\n</svg>"), "{svg}");
    }

    #[test]
    fn ticks_are_round_numbers() {
        let axis = Axis::linear("").up_to(190.0);
        let range = Range::of(&axis, std::iter::empty(), (0.0, 1.0));
        assert_eq!(range.ticks(), [0.0, 50.0, 100.0, 150.0]);
        assert_eq!([0.0, 0.25, 1e3, 1e4].map(number), ["0", "0.25", "1000", "10,000"]);
    }
}
