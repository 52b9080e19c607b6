//! A question's figures as a drawing: one curve for each series, points marked, axes from zero (vertical) and, where the
//! values go over more than a factor of ten, logarithmic (horizontal).
//!
//! SVG 1.1, without scripts or fonts of its own, so that it shows wherever Markdown does.

use std::fmt::Write as _;

use super::table::{Experiment, number};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 48.0;
/// Told apart also by those who see few colours (Okabe and Ito, 2008).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"];

/// Draws it; `None` if no series has two points.
#[must_use]
pub fn draw(experiment: &Experiment<'_>) -> Option<String> {
    let first = experiment.rows.first()?;
    let mut series: Vec<(&str, Vec<(f64, f64)>)> = Vec::new();
    for row in &experiment.rows {
        match series.iter_mut().find(|(name, _)| *name == row.series) {
            Some((_, points)) => points.push((row.at, row.value)),
            None => series.push((&row.series, vec![(row.at, row.value)])),
        }
    }
    if series.iter().all(|(_, points)| points.len() < 2) {
        return None;
    }
    let across = Axis::of(experiment.rows.iter().map(|row| row.at));
    let most = experiment.rows.iter().map(|row| row.value).fold(0.0, f64::max).max(1e-9) * 1.05;
    let x = |at: f64| LEFT + across.share(at) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - value / most * (HEIGHT - TOP - BOTTOM);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{}</text>\n",
        escaped(experiment.title)
    );
    for step in 0..=4 {
        let value = most / 1.05 * f64::from(step) / 4.0;
        let at = y(value);
        let _ = write!(
            text,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            number(value)
        );
    }
    let mut marks: Vec<f64> = experiment.rows.iter().map(|row| row.at).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    for at in marks {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(at),
            HEIGHT - BOTTOM + 16.0,
            number(at)
        );
    }
    let _ = write!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
         <text x=\"14\" y=\"{:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {:.1})\">{}</text>\n",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 10.0,
        escaped(first.along),
        (TOP + HEIGHT - BOTTOM) / 2.0,
        (TOP + HEIGHT - BOTTOM) / 2.0,
        escaped(first.unit),
    );
    for (index, (name, points)) in series.iter_mut().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let path: Vec<_> = points.iter().map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value))).collect();
        let _ = writeln!(text, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>", path.join(" "));
        for (at, value) in points {
            let _ = writeln!(text, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>", x(*at), y(*value));
        }
        let line = TOP + 16.0 * index as f64;
        let _ = write!(
            text,
            "<circle cx=\"{:.1}\" cy=\"{line:.1}\" r=\"4\" fill=\"{colour}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            WIDTH - RIGHT + 14.0,
            WIDTH - RIGHT + 24.0,
            line + 4.0,
            escaped(name)
        );
    }
    text += "</svg>\n";
    Some(text)
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
    use super::{super::table::Row, *};

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
        assert_eq!(drawing.matches("r=\"3\"").count(), 3);
        assert!(drawing.contains("Rate &amp; buffers") && drawing.contains("&lt;wan&gt;"));
        for number in drawing.split("cx=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let at: f64 = number.parse().expect("a number");
            assert!((0.0..=WIDTH).contains(&at));
        }
    }

    #[test]
    fn a_single_point_is_no_curve() {
        let rows = [row("a", 1.0, 2.0), row("b", 1.0, 3.0)];
        let experiment = Experiment { title: "x", slug: String::new(), rows: rows.iter().collect() };
        assert_eq!(draw(&experiment), None);
    }
}
