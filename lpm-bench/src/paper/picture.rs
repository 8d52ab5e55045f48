//! The graphs of a figure as SVG: a line with the spread of its rounds for each series, hollow marks where the paper states a number.
//!
//! Black is the colour of the text around the picture (`currentColor`), and there is no background, so that one picture suits a light
//! page and a dark one.

use super::figure::{Figure, Panel};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use std::error::Error;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Size of one graph, including the names of its lines.
const SIZE: (u32, u32) = (1120, 480);
/// The part of the width, at the right, that is kept for the names of the lines, so that they cover no line.
const NAMES_WIDTH: u32 = 240;
/// Colours that people tell apart, also those who see few colours, on white as on black (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(128, 128, 128),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Draws all graphs of `figure` into `path`, one below the other.
///
/// # Errors
/// What the backend says, or the system when the file cannot be written.
pub(super) fn draw(figure: &Figure, path: &Path) -> io::Result<()> {
    let picture = picture(figure).map_err(io::Error::other)?;
    fib::output::write_whole(path, |out| out.write_all(picture.as_bytes()))
}

fn picture(figure: &Figure) -> Drawn<String> {
    let has_points = |panel: &Panel| panel.series.iter().any(|line| !line.points.is_empty());
    let panels: Vec<_> = figure.panels.iter().enumerate().filter(|(_, panel)| has_points(panel)).collect();
    let height = SIZE.1 * u32::try_from(panels.len()).unwrap_or(1);
    let mut picture = String::new();
    let area = SVGBackend::with_string(&mut picture, (SIZE.0, height)).into_drawing_area();
    for ((at, panel), area) in panels.iter().zip(area.split_evenly((panels.len(), 1))) {
        let graph = Graph { figure, panel, marks: marks(figure, *at) };
        graph.draw(&area)?;
    }
    area.present().map_err(said)?;
    drop(area);
    Ok(picture.replace("\"#000000\"", "\"currentColor\""))
}

/// The numbers that the paper states of the graph `at`: x, y.
fn marks(figure: &Figure, at: usize) -> Vec<(f64, f64)> {
    let marks = figure.claims.iter().filter_map(|judged| Some((judged.claim.mark?, &judged.claim.paper)));
    let of_this = marks.filter(|((panel, _), _)| *panel == at);
    of_this.flat_map(|((_, x), paper)| paper.iter().map(move |y| (x, *y))).collect()
}

fn said(error: impl std::fmt::Display) -> Box<dyn Error + Send + Sync> {
    error.to_string().into()
}

/// One graph of a figure.
struct Graph<'a> {
    figure: &'a Figure,
    panel: &'a Panel,
    marks: Vec<(f64, f64)>,
}

impl Graph<'_> {
    /// A logarithmic axis has no 0: 0 updates and one key stand at 1.
    fn place(&self, x: f64) -> f64 {
        if self.figure.x_log { x.max(1.0) } else { x }
    }

    fn draw(&self, area: &Area<'_>) -> Drawn<()> {
        let (area, names) = area.split_horizontally(SIZE.0 - NAMES_WIDTH);
        self.name_lines(&names)?;
        let points = || self.panel.series.iter().flat_map(|line| &line.points);
        let xs = points().map(|point| point.x).chain(self.marks.iter().map(|(x, _)| *x));
        let x = range(xs.map(|x| self.place(x)));
        let ys =
            points().flat_map(|point| [point.y.min, point.y.max]).chain(self.marks.iter().map(|(_, y)| *y));
        let is_drawn = |y: &f64| y.is_finite() && (!self.panel.y_log || *y > 0.0);
        let y = range(ys.filter(is_drawn));
        let margin = ((x.end - x.start) * 0.03).max(0.1);
        let x_linear = x.start - margin..x.end + margin;
        let base = if self.figure.x_tens { 10.0 } else { 2.0 };
        let x_log = (x.start / 1.2..x.end * 1.2).log_scale().base(base);
        let y_linear = y.start.min(0.0)..(y.end * 1.08).max(1e-9);
        let y_log = (y.start / 1.2..y.end * 1.2).log_scale();
        match (self.figure.x_log, self.panel.y_log) {
            (false, false) => self.plot(&area, x_linear, y_linear),
            (false, true) => self.plot(&area, x_linear, y_log),
            (true, false) => self.plot(&area, x_log, y_linear),
            (true, true) => self.plot(&area, x_log, y_log),
        }
    }

    fn plot<X, Y>(&self, area: &Area<'_>, x: X, y: Y) -> Drawn<()>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .caption(&self.figure.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(x, y)
            .map_err(said)?;
        chart
            .configure_mesh()
            .x_desc(self.figure.x.as_str())
            .y_desc(self.panel.y.as_str())
            .x_label_formatter(&|x| x_label(self.figure, *x))
            .y_label_formatter(&|y| digits(*y))
            .bold_line_style(BLACK.mix(0.15))
            .light_line_style(TRANSPARENT)
            .draw()
            .map_err(said)?;
        for (at, line) in self.panel.series.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let points: Vec<_> = line.points.iter().map(|point| (self.place(point.x), point.y)).collect();
            let medians = || points.iter().map(|(x, y)| (*x, y.median));
            let style = colour.stroke_width(2);
            if !self.figure.x_names.is_empty() {
                // What lies between two names is nothing.
            } else if at < COLOURS.len() {
                chart.draw_series(LineSeries::new(medians(), style)).map_err(said)?;
            } else {
                chart.draw_series(DashedLineSeries::new(medians(), 6, 4, style)).map_err(said)?;
            }
            match at / COLOURS.len() {
                0 => chart.draw_series(medians().map(|at| Circle::new(at, 3, colour.filled()))).map(drop),
                1 => chart
                    .draw_series(medians().map(|at| TriangleMarker::new(at, 5, colour.filled())))
                    .map(drop),
                _ => chart.draw_series(medians().map(|at| Cross::new(at, 4, style))).map(drop),
            }
            .map_err(said)?;
            let spread = points.iter().filter(|(_, y)| y.max > y.min);
            let spread =
                spread.map(|(x, y)| PathElement::new([(*x, y.min), (*x, y.max)], colour.stroke_width(1)));
            chart.draw_series(spread).map_err(said)?;
        }
        let marks =
            self.marks.iter().map(|(x, y)| Circle::new((self.place(*x), *y), 6, BLACK.stroke_width(2)));
        chart.draw_series(marks).map_err(said)?;
        Ok(())
    }

    /// The names of the lines, one below the other, and what a hollow mark is.
    fn name_lines(&self, area: &Area<'_>) -> Drawn<()> {
        let style = ("sans-serif", 12).into_font();
        let place = |at: usize| 50 + 18 * i32::try_from(at).unwrap_or(0);
        for (at, line) in self.panel.series.iter().enumerate() {
            let (colour, y) = (COLOURS[at % COLOURS.len()], place(at));
            // Half a line stands for a dashed one.
            let end = if at < COLOURS.len() { 22 } else { 12 };
            area.draw(&PathElement::new([(4, y), (end, y)], colour.stroke_width(2))).map_err(said)?;
            match at / COLOURS.len() {
                0 => area.draw(&Circle::new((13, y), 3, colour.filled())),
                1 => area.draw(&TriangleMarker::new((13, y), 5, colour.filled())),
                _ => area.draw(&Cross::new((13, y), 4, colour.stroke_width(2))),
            }
            .map_err(said)?;
            area.draw(&Text::new(line.name.as_str(), (28, y - 6), style.clone())).map_err(said)?;
        }
        if !self.marks.is_empty() {
            let y = place(self.panel.series.len());
            area.draw(&Circle::new((13, y), 6, BLACK.stroke_width(2))).map_err(said)?;
            area.draw(&Text::new("the paper's number", (28, y - 6), style)).map_err(said)?;
        }
        Ok(())
    }
}

/// From the least to the greatest of `values`.
fn range(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), one| (low.min(one), high.max(one)));
    if low <= high { low..high } else { 1.0..1.0 }
}

fn x_label(figure: &Figure, x: f64) -> String {
    if figure.x_names.is_empty() {
        return if figure.x_log && !figure.x_tens { binary(x) } else { digits(x) };
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a position on the axis, 0 or more"
    )]
    let at = x.round().max(0.0) as usize;
    // A tick between two positions has no label.
    let name = figure.x_names.get(at).filter(|_| (x - x.round()).abs() < 1e-6);
    name.cloned().unwrap_or_default()
}

/// A power of two with a unit of 1024s.
fn binary(x: f64) -> String {
    match x {
        x if x >= 1_048_576.0 => format!("{}Mi", digits(x / 1_048_576.0)),
        x if x >= 1024.0 => format!("{}Ki", digits(x / 1024.0)),
        _ => digits(x),
    }
}

/// A number with up to two decimals and a unit of thousands.
fn digits(y: f64) -> String {
    let (value, unit) = match y.abs() {
        y_abs if y_abs >= 1e9 => (y / 1e9, "G"),
        y_abs if y_abs >= 1e6 => (y / 1e6, "M"),
        y_abs if y_abs >= 1e4 => (y / 1e3, "k"),
        _ => (y, ""),
    };
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::super::claims::Claim;
    use super::*;
    use lpm_bench::stats::Spread;

    #[test]
    fn a_figure_becomes_a_picture_with_its_lines_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.svg");
        let mut panel = Panel::new("million lookups a second");
        for x in 0..5_u32 {
            panel.add("GAMT", f64::from(1 << x), Spread::of(&[f64::from(x), f64::from(x + 1)]));
            panel.add("GALE", f64::from(1 << x), 2.0);
        }
        let mut figure = Figure::new("A title", "keys a batch");
        figure.x_log = true;
        figure.panels = vec![panel.clone(), Panel { y_log: true, ..panel }];
        figure.judge(Claim::parse_all("fig | 1 | most | 7 | Mlps | rate | 0 at 4").unwrap());
        draw(&figure, &path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for words in ["<svg", "GAMT", "GALE", "A title", "keys a batch", "polyline", "currentColor"] {
            assert!(text.contains(words), "{words}");
        }
        // The mark and its name, in the first graph alone.
        assert_eq!(
            text.matches("the paper&apos;s number").count() + text.matches("the paper's number").count(),
            1
        );
        assert_eq!(text.matches("r=\"6\"").count(), 2);
    }

    #[test]
    fn ticks_have_short_names() {
        for (value, name) in [(0.0, "0"), (4096.0, "4096"), (16_384.0, "16.38k"), (2e6, "2M"), (0.25, "0.25")]
        {
            assert_eq!(digits(value), name);
        }
        assert_eq!([4.0, 16_384.0, 16_777_216.0].map(binary), ["4", "16Ki", "16Mi"]);
    }
}
