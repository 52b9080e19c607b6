//! A question's figures as a drawing: one curve for each series, points marked, axes from zero (vertical) and, where the
//! values go over more than a factor of ten, logarithmic (horizontal). What iperf3 carried in the same place is dashed, in
//! the colour of what it stands beside.
//!
//! SVG 1.1, without scripts or fonts of its own, so that it shows wherever Markdown does.

use std::fmt::Write as _;

use super::table::{Experiment, Row};

const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
/// Where the curves end; the legend follows.
const EDGE: f64 = 500.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 48.0;
/// Between the edge and the legend's words.
const KEY: f64 = 36.0;
/// A line of the legend.
const LINE: f64 = 16.0;
/// No letter of a usual sans-serif of 12 pixels is wider on average.
const LETTER: f64 = 6.8;
/// Told apart also by those who see few colours (Okabe and Ito, 2008).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"];
const IPERF3: &str = "iperf3 beside it";
/// How many steps the vertical axis has at most.
const STEPS: f64 = 5.0;

/// One curve: its name, what was measured, and what iperf3 carried there.
struct Curve<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
    beside: Vec<(f64, f64)>,
}

/// Draws it; `None` if no series has two points.
#[must_use]
pub fn draw(experiment: &Experiment<'_>) -> Option<String> {
    let first = experiment.rows.first()?;
    let curves = curves(&experiment.rows);
    if curves.iter().all(|curve| curve.points.len() < 2) {
        return None;
    }
    let dashed = curves.iter().any(|curve| !curve.beside.is_empty());
    let names = curves.iter().map(|curve| curve.name).chain(dashed.then_some(IPERF3));
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0) as f64;
    let (width, height) = (EDGE + KEY + longest * LETTER + 8.0, HEIGHT.max(TOP + LINE * (curves.len() + 2) as f64));
    let values = experiment.rows.iter().flat_map(|row| [Some(row.value), row.iperf3]).flatten();
    let steps = Steps::up_to(values.fold(0.0, f64::max));
    let across = Axis::of(experiment.rows.iter().map(|row| row.at));
    let frame = Frame { across, most: steps.most() };
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{}</text>\n",
        escaped(experiment.title)
    );
    axes(&mut text, &frame, &steps, first, &experiment.rows);
    for (index, curve) in curves.iter().enumerate() {
        let line = TOP + LINE * index as f64;
        draw_curve(&mut text, &frame, curve, index);
        mark(&mut text, index, EDGE + 18.0, line);
        legend(&mut text, line, curve.name);
    }
    if dashed {
        let line = TOP + LINE * curves.len() as f64;
        let (from, to) = (EDGE + 8.0, EDGE + 28.0);
        let _ = writeln!(text, "<path d=\"M{from:.1} {line:.1}H{to:.1}\" stroke=\"#555\" stroke-dasharray=\"4 3\"/>");
        legend(&mut text, line, IPERF3);
    }
    text += "</svg>\n";
    Some(text)
}

fn curves<'a>(rows: &[&'a Row]) -> Vec<Curve<'a>> {
    let mut curves: Vec<Curve<'a>> = Vec::new();
    for row in rows {
        let at = curves.iter().position(|curve| curve.name == row.series).unwrap_or_else(|| {
            curves.push(Curve { name: &row.series, points: Vec::new(), beside: Vec::new() });
            curves.len() - 1
        });
        curves[at].points.push((row.at, row.value));
        curves[at].beside.extend(row.iperf3.map(|beside| (row.at, beside)));
    }
    for curve in &mut curves {
        curve.points.sort_by(|one, other| one.0.total_cmp(&other.0));
        curve.beside.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    curves
}

/// Where values lie in the picture.
struct Frame {
    across: Axis,
    most: f64,
}

impl Frame {
    fn x(&self, at: f64) -> f64 {
        LEFT + self.across.share(at) * (EDGE - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.most * (HEIGHT - TOP - BOTTOM)
    }

    fn path(&self, points: &[(f64, f64)]) -> String {
        let points: Vec<_> =
            points.iter().map(|(at, value)| format!("{:.1},{:.1}", self.x(*at), self.y(*value))).collect();
        points.join(" ")
    }
}

fn axes(text: &mut String, frame: &Frame, steps: &Steps, first: &Row, rows: &[&Row]) {
    for value in steps.all() {
        let at = frame.y(value);
        let _ = write!(
            text,
            "<path d=\"M{LEFT} {at:.1}H{EDGE}\" stroke=\"#ddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            LEFT - 6.0,
            at + 4.0,
            short(value)
        );
    }
    let mut marks: Vec<f64> = rows.iter().map(|row| row.at).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    let mut free_from = f64::MIN;
    for at in marks {
        let (x, label) = (frame.x(at), short(at));
        let half = label.len() as f64 * LETTER / 2.0;
        let _ = writeln!(text, "<path d=\"M{x:.1} {:.1}v4\" stroke=\"#555\"/>", HEIGHT - BOTTOM);
        // Where marks are close, not every one has room for its number.
        if x - half < free_from {
            continue;
        }
        free_from = x + half + 4.0;
        let y = HEIGHT - BOTTOM + 17.0;
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{label}</text>");
    }
    let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
    let _ = write!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
         <text x=\"14\" y=\"{middle:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {middle:.1})\">{}</text>\n",
        (LEFT + EDGE) / 2.0,
        HEIGHT - 10.0,
        escaped(first.along),
        escaped(first.unit),
    );
}

fn draw_curve(text: &mut String, frame: &Frame, curve: &Curve<'_>, index: usize) {
    let colour = COLOURS[index % COLOURS.len()];
    if curve.beside.len() > 1 {
        let path = frame.path(&curve.beside);
        let _ = writeln!(
            text,
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"4 3\" opacity=\"0.7\"/>"
        );
    }
    let path = frame.path(&curve.points);
    let _ = writeln!(text, "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>");
    for (at, value) in &curve.points {
        mark(text, index, frame.x(*at), frame.y(*value));
    }
}

/// A point: round for the first seven curves, square for the next, which have the same colours.
fn mark(text: &mut String, index: usize, x: f64, y: f64) {
    let colour = COLOURS[index % COLOURS.len()];
    let _ = if index < COLOURS.len() {
        writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>")
    } else {
        let (left, top) = (x - 3.0, y - 3.0);
        writeln!(text, "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"6\" height=\"6\" fill=\"{colour}\"/>")
    };
}

fn legend(text: &mut String, line: f64, name: &str) {
    let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", EDGE + KEY, line + 4.0, escaped(name));
}

/// Round numbers from zero to above the largest value.
struct Steps {
    step: f64,
    count: u32,
}

impl Steps {
    fn up_to(most: f64) -> Self {
        let most = most.max(1e-9);
        let power = 10_f64.powf((most / STEPS).log10().floor());
        let round = [1.0, 2.0, 2.5, 5.0, 10.0].map(|digit| digit * power);
        let step = round.into_iter().find(|step| step * STEPS >= most).unwrap_or(10.0 * power);
        // A value on the last line still has air above it.
        Self { step, count: (most * 1.01 / step).ceil() as u32 }
    }

    fn most(&self) -> f64 {
        self.step * f64::from(self.count)
    }

    fn all(&self) -> impl Iterator<Item = f64> + '_ {
        (0..=self.count).map(|number| f64::from(number) * self.step)
    }
}

/// A number on an axis: no digit more than it needs.
fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

struct Axis {
    least: f64,
    most: f64,
    logarithmic: bool,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let (least, most) =
            values.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
        Self { least, most, logarithmic: least > 0.0 && most / least > 10.0 }
    }

    /// Where a value lies, between 0 and 1.
    fn share(&self, value: f64) -> f64 {
        if self.most <= self.least {
            return 0.5;
        }
        if self.logarithmic {
            (value / self.least).ln() / (self.most / self.least).ln()
        } else {
            (value - self.least) / (self.most - self.least)
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(series: &str, at: f64, value: f64) -> Row {
        Row {
            experiment: "Rate & buffers",
            along: "buffer, KiB",
            at,
            series: series.to_owned(),
            value,
            unit: "Mb/s",
            iperf3: None,
            found: "",
        }
    }

    #[test]
    fn every_point_is_drawn_and_nothing_leaves_the_picture() {
        let rows = [row("<wan>", 16.0, 40.0), row("<wan>", 4096.0, 941.0), row("lan", 16.0, 930.0)];
        let experiment = Experiment { title: "Rate & buffers", slug: String::new(), rows: rows.iter().collect() };
        let drawing = draw(&experiment).expect("two points");
        assert_eq!(drawing.matches("r=\"3\"").count(), 3 + 2, "three points, two in the legend");
        assert!(drawing.contains("Rate &amp; buffers") && drawing.contains("&lt;wan&gt;"));
        for number in drawing.split("cx=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let at: f64 = number.parse().expect("a number");
            assert!((LEFT..=EDGE + KEY).contains(&at));
        }
    }

    #[test]
    fn names_have_room_and_curves_beyond_the_colours_have_other_marks() {
        let name = "a name of many words that would not fit beside the curves";
        let mut rows: Vec<_> = (0..9)
            .flat_map(|number| {
                let series = format!("{name} {number}");
                [row(&series, 1.0, 2.0), row(&series, 10.0, f64::from(number))]
            })
            .collect();
        rows[0].iperf3 = Some(9.4);
        rows[1].iperf3 = Some(9.4);
        let experiment = Experiment { title: "x", slug: String::new(), rows: rows.iter().collect() };
        let drawing = draw(&experiment).expect("curves");
        let width: f64 = drawing
            .split("viewBox=\"0 0 ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .expect("a width")
            .parse()
            .expect("a number");
        assert!(width > EDGE + KEY + name.len() as f64 * 6.0, "{width}");
        assert_eq!(drawing.matches("<rect x=").count(), 2 * 3, "two curves of two points, and in the legend");
        assert_eq!(drawing.matches("dasharray").count(), 2, "iperf3, and what it means");
    }

    #[test]
    fn an_axis_has_round_numbers_and_room_above() {
        for (most, expected) in [(941.0, "0 200 400 600 800 1000"), (0.29, "0 0.1 0.2 0.3"), (6.26, "0 2 4 6 8")] {
            let shown: Vec<_> = Steps::up_to(most).all().map(short).collect();
            assert_eq!(shown.join(" "), expected);
        }
    }

    #[test]
    fn a_single_point_is_no_curve() {
        let rows = [row("a", 1.0, 2.0), row("b", 1.0, 3.0)];
        let experiment = Experiment { title: "x", slug: String::new(), rows: rows.iter().collect() };
        assert_eq!(draw(&experiment), None);
    }
}
