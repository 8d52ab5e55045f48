//! Graphs as SVG, one below the other: lines over an x axis, with the spread of each point and a legend at the right.
//!
//! Black is the surrounding text's colour (`currentColor`), without a background, to suit light and dark pages; [`standalone`] adds both.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use std::error::Error;
use std::io;
use std::ops::Range;

/// Size of one graph, including the legend.
const SIZE: (u32, u32) = (1120, 480);
/// Width of the legend, at the right, where it covers no line.
const NAMES_WIDTH: u32 = 240;
/// Colours that are distinct on white and on black, also with colour blindness (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(128, 128, 128),
];
/// Colours of the text and the background of a standalone picture; they follow the reader's system.
const STYLE: &str = "<style>:root { color-scheme: light dark; color: #1a1a1a; background: #ffffff } \
    @media (prefers-color-scheme: dark) { :root { color: #e6e6e6; background: #16181b } }</style>";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Linear; a y axis includes 0.
    Linear,
    /// Logarithmic with this base; 0 is not on the axis.
    Log(f64),
}

/// An axis of a graph.
pub struct Axis<'a> {
    /// Its name, with the unit.
    pub name: &'a str,
    /// Its scale.
    pub scale: Scale,
    /// The label of a number.
    pub label: &'a dyn Fn(f64) -> String,
}

/// A point of a line, with its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GraphPoint {
    /// Position on the x axis.
    pub x: f64,
    /// Position on the y axis.
    pub y: f64,
    /// The range of its measurements.
    pub spread: (f64, f64),
}

impl GraphPoint {
    /// A point with a single measurement.
    #[must_use]
    pub const fn once(x: f64, y: f64) -> Self {
        Self { x, y, spread: (y, y) }
    }
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineStyle {
    /// Points and the lines between them.
    Joined,
    /// Points only.
    Points,
    /// The line without marks, for many points.
    Line,
}

/// A line of a graph.
pub struct GraphLine<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its points, in order.
    pub points: Vec<GraphPoint>,
    /// How it is drawn.
    pub style: LineStyle,
}

/// A graph.
pub struct Graph<'a> {
    /// The heading.
    pub title: &'a str,
    /// The horizontal axis.
    pub x: Axis<'a>,
    /// The vertical axis.
    pub y: Axis<'a>,
    /// Its lines.
    pub lines: Vec<GraphLine<'a>>,
    /// Hollow marks, and their name.
    pub marks: (&'a str, Vec<(f64, f64)>),
}

/// The graphs as one picture.
///
/// # Errors
/// The error of the drawing library.
pub fn svg(graphs: &[Graph<'_>]) -> io::Result<String> {
    picture(graphs).map_err(io::Error::other)
}

/// A picture of [`svg`] as a separate file, with a light or dark background as the reader prefers.
#[must_use]
pub fn standalone(picture: &str) -> String {
    let head = picture.find("<svg").and_then(|at| Some(at + picture[at..].find('>')? + 1)).unwrap_or(0);
    format!("{}{STYLE}{}", &picture[..head], &picture[head..])
}

fn picture(graphs: &[Graph<'_>]) -> Drawn<String> {
    let height = SIZE.1 * u32::try_from(graphs.len()).unwrap_or(1);
    let mut picture = String::new();
    let area = SVGBackend::with_string(&mut picture, (SIZE.0, height)).into_drawing_area();
    for (graph, area) in graphs.iter().zip(area.split_evenly((graphs.len(), 1))) {
        graph.draw(&area)?;
    }
    area.present().map_err(boxed)?;
    drop(area);
    Ok(picture.replace("\"#000000\"", "\"currentColor\""))
}

fn boxed(error: impl std::fmt::Display) -> Box<dyn Error + Send + Sync> {
    error.to_string().into()
}

impl Axis<'_> {
    fn range(&self, numbers: impl Iterator<Item = f64>) -> Range<f64> {
        let has_place = |y: &f64| y.is_finite() && (self.scale == Scale::Linear || *y > 0.0);
        let (low, high) = numbers
            .filter(has_place)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), one| (low.min(one), high.max(one)));
        if low <= high { low..high } else { 1.0..1.0 }
    }
}

/// The range of a logarithmic axis with a margin. A short range is extended to powers of the base, so that it has ticks.
fn wider(range: &Range<f64>, base: f64) -> Range<f64> {
    let Range { start, end } = *range;
    if end / start < base * base {
        return base.powf(start.log(base).floor())..base.powf((end.log(base) + 1e-9).ceil());
    }
    start / 1.2..end * 1.2
}

impl Graph<'_> {
    fn draw(&self, area: &Area<'_>) -> Drawn<()> {
        let (area, names) = area.split_horizontally(SIZE.0 - NAMES_WIDTH);
        self.name_lines(&names)?;
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let marks = || self.marks.1.iter();
        let x = self.x.range(points().map(|point| point.x).chain(marks().map(|(x, _)| *x)));
        let spreads = points().flat_map(|point| [point.y, point.spread.0, point.spread.1]);
        let y = self.y.range(spreads.chain(marks().map(|(_, y)| *y)));
        let margin = if x.end > x.start { (x.end - x.start) * 0.03 } else { 0.1 };
        let x_linear = x.start - margin..x.end + margin;
        let y_linear = y.start.min(0.0)..(y.end * 1.08).max(1e-9);
        let log = |range: &Range<f64>, base| wider(range, base).log_scale().base(base);
        match (self.x.scale, self.y.scale) {
            (Scale::Linear, Scale::Linear) => self.plot(&area, x_linear, y_linear),
            (Scale::Linear, Scale::Log(base)) => self.plot(&area, x_linear, log(&y, base)),
            (Scale::Log(base), Scale::Linear) => self.plot(&area, log(&x, base), y_linear),
            (Scale::Log(x_base), Scale::Log(y_base)) => self.plot(&area, log(&x, x_base), log(&y, y_base)),
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
            .caption(self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(x, y)
            .map_err(boxed)?;
        chart
            .configure_mesh()
            .x_desc(self.x.name)
            .y_desc(self.y.name)
            .x_label_formatter(&|x| (self.x.label)(*x))
            .y_label_formatter(&|y| (self.y.label)(*y))
            .bold_line_style(BLACK.mix(0.15))
            .light_line_style(TRANSPARENT)
            .draw()
            .map_err(boxed)?;
        for (at, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let points = || line.points.iter().map(|point| (point.x, point.y));
            let style = colour.stroke_width(2);
            if line.style != LineStyle::Points {
                if at < COLOURS.len() {
                    chart.draw_series(LineSeries::new(points(), style)).map_err(boxed)?;
                } else {
                    chart.draw_series(DashedLineSeries::new(points(), 6, 4, style)).map_err(boxed)?;
                }
            }
            if line.style == LineStyle::Line {
                continue;
            }
            match at / COLOURS.len() {
                0 => chart.draw_series(points().map(|at| Circle::new(at, 3, colour.filled()))).map(drop),
                1 => chart
                    .draw_series(points().map(|at| TriangleMarker::new(at, 5, colour.filled())))
                    .map(drop),
                _ => chart.draw_series(points().map(|at| Cross::new(at, 4, style))).map(drop),
            }
            .map_err(boxed)?;
            let spread = line.points.iter().filter(|point| point.spread.1 > point.spread.0);
            let spread = spread.map(|GraphPoint { x, spread: (low, high), .. }| {
                PathElement::new([(*x, *low), (*x, *high)], colour.stroke_width(1))
            });
            chart.draw_series(spread).map_err(boxed)?;
        }
        let marks = self.marks.1.iter().map(|at| Circle::new(*at, 6, BLACK.stroke_width(2)));
        chart.draw_series(marks).map_err(boxed)?;
        Ok(())
    }

    fn name_lines(&self, area: &Area<'_>) -> Drawn<()> {
        let style = ("sans-serif", 12).into_font();
        let place = |at: usize| 50 + 18 * i32::try_from(at).unwrap_or(0);
        for (at, line) in self.lines.iter().enumerate() {
            let (colour, y) = (COLOURS[at % COLOURS.len()], place(at));
            let end = if at < COLOURS.len() { 22 } else { 12 };
            area.draw(&PathElement::new([(4, y), (end, y)], colour.stroke_width(2))).map_err(boxed)?;
            match (line.style, at / COLOURS.len()) {
                (LineStyle::Line, _) => Ok(()),
                (_, 0) => area.draw(&Circle::new((13, y), 3, colour.filled())),
                (_, 1) => area.draw(&TriangleMarker::new((13, y), 5, colour.filled())),
                _ => area.draw(&Cross::new((13, y), 4, colour.stroke_width(2))),
            }
            .map_err(boxed)?;
            area.draw(&Text::new(line.name, (28, y - 6), style.clone())).map_err(boxed)?;
        }
        let (name, marks) = &self.marks;
        if !marks.is_empty() {
            let y = place(self.lines.len());
            area.draw(&Circle::new((13, y), 6, BLACK.stroke_width(2))).map_err(boxed)?;
            area.draw(&Text::new(*name, (28, y - 6), style)).map_err(boxed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_has_its_lines_named_and_its_marks_once() {
        let label = |y: f64| format!("{y:.0}");
        let axis = |name, scale| Axis { name, scale, label: &label };
        let graph = |scale, marks| {
            let points = |y: f64| (1..5).map(|x| GraphPoint::once(f64::from(x), y)).collect();
            let line = |name, style, y| GraphLine { name, points: points(y), style };
            let (x, y) = (axis("load", scale), axis("latency", scale));
            let lines = vec![
                line("half", LineStyle::Line, 3.0),
                line("most", LineStyle::Joined, 4.0),
                line("dots", LineStyle::Points, 0.0),
            ];
            Graph { title: "A title", x, y, lines, marks: ("told", marks) }
        };
        let graphs = [graph(Scale::Log(10.0), vec![(2.0, 2.0)]), graph(Scale::Linear, Vec::new())];
        let picture = svg(&graphs).unwrap();
        for words in ["<svg", "half", "most", "dots", "A title", "load", "polyline", "currentColor"] {
            assert!(picture.contains(words), "{words}");
        }
        assert_eq!((picture.matches("told").count(), picture.matches("r=\"6\"").count()), (1, 2));
        assert!(!picture.contains("<style>"));
        let alone = standalone(&picture);
        assert!(alone.len() > picture.len() && alone.starts_with("<svg") && alone.contains("dark"));
        let mut short = graph(Scale::Linear, Vec::new());
        short.y.scale = Scale::Log(10.0);
        short.lines.truncate(1);
        let picture = svg(&[short]).unwrap();
        assert!(["\n1\n", "\n10\n"].iter().all(|tick| picture.contains(tick)), "{picture}");
        assert_eq!(standalone("no picture").matches("no picture").count(), 1);
    }
}
