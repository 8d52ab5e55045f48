//! A figure as SVG: one graph below the other.

use super::figure::{Figure, Panel};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;
use std::io;
use std::path::Path;

/// Size of one graph, including the names of its lines.
const SIZE: (u32, u32) = (1120, 480);
/// The part of the width, at the right, that is kept for the names of the lines, so that they cover no line.
const NAMES_WIDTH: u32 = 240;

/// Draws `figure` into `path`.
///
/// # Errors
/// What the backend says, or the system when the file cannot be written.
pub(super) fn draw(figure: &Figure, path: &Path) -> io::Result<()> {
    let picture = picture(figure).map_err(io::Error::other)?;
    fib::output::write_whole(path, |out| out.write_all(picture.as_bytes()))
}

fn picture(figure: &Figure) -> Result<String, Box<dyn Error + Send + Sync>> {
    let panels: Vec<&Panel> = figure
        .panels
        .iter()
        .filter(|panel| panel.series.iter().any(|line| !line.points.is_empty()))
        .collect();
    let height = SIZE.1 * u32::try_from(panels.len()).unwrap_or(1);
    let mut picture = String::new();
    let area = SVGBackend::with_string(&mut picture, (SIZE.0, height)).into_drawing_area();
    area.fill(&WHITE).map_err(said)?;
    for (panel, area) in panels.iter().zip(area.split_evenly((panels.len(), 1))) {
        graph(figure, panel, &area)?;
    }
    area.present().map_err(said)?;
    drop(area);
    Ok(picture)
}

fn said(error: impl std::fmt::Display) -> Box<dyn Error + Send + Sync> {
    error.to_string().into()
}

fn graph(
    figure: &Figure,
    panel: &Panel,
    area: &DrawingArea<SVGBackend<'_>, Shift>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (area, names) = area.split_horizontally(SIZE.0 - NAMES_WIDTH);
    // A logarithmic axis is a linear axis of logarithms, with x at least 1, so that 0 updates and one key have a position.
    let place = |x: f64| if figure.x_log { x.max(1.0).log2() } else { x };
    let height = |y: f64| if panel.y_log { y.max(f64::MIN_POSITIVE).log10() } else { y };
    let points = || panel.series.iter().flat_map(|line| line.points.iter());
    let (low, high) =
        points().map(|(x, _)| place(*x)).fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(x), b.max(x)));
    let heights = || points().map(|(_, y)| height(*y)).filter(|y| y.is_finite());
    let y_range = if panel.y_log {
        let (low, high) = heights().fold((f64::MAX, f64::MIN), |(a, b), y| (a.min(y), b.max(y)));
        low.min(high) - 0.1..high.max(low.min(high) + 0.1) + 0.1
    } else {
        0.0..(heights().fold(0.0, f64::max) * 1.08).max(1e-9)
    };
    let margin = ((high - low) * 0.03).max(0.1);
    let mut chart = ChartBuilder::on(&area)
        .caption(&figure.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(low - margin..high + margin, y_range)
        .map_err(said)?;
    let label = |x: &f64| x_label(figure, *x);
    let y_label = |y: &f64| if panel.y_log { digits(10_f64.powf(*y)) } else { digits(*y) };
    chart
        .configure_mesh()
        .x_desc(figure.x.as_str())
        .y_desc(panel.y.as_str())
        .x_label_formatter(&label)
        .y_label_formatter(&y_label)
        .light_line_style(WHITE)
        .draw()
        .map_err(said)?;
    for (at, line) in panel.series.iter().enumerate() {
        let colour = Palette99::pick(at).to_rgba();
        let points: Vec<_> = line.points.iter().map(|(x, y)| (place(*x), height(*y))).collect();
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2))).map_err(said)?;
        let dots = points.iter().map(|point| Circle::new(*point, 3, colour.filled()));
        chart.draw_series(dots).map_err(said)?;
    }
    name_lines(panel, &names)
}

/// The names of a graph's lines, one below the other.
fn name_lines(
    panel: &Panel,
    area: &DrawingArea<SVGBackend<'_>, Shift>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let style = ("sans-serif", 12).into_font();
    for (at, line) in panel.series.iter().enumerate() {
        let colour = Palette99::pick(at).to_rgba();
        let y = 50 + 18 * i32::try_from(at).unwrap_or(0);
        area.draw(&PathElement::new([(4, y), (22, y)], colour.stroke_width(2))).map_err(said)?;
        area.draw(&Text::new(line.name.as_str(), (28, y - 6), style.clone())).map_err(said)?;
    }
    Ok(())
}

fn x_label(figure: &Figure, x: f64) -> String {
    if figure.x_log {
        return human(x.exp2());
    }
    if figure.x_names.is_empty() {
        // A tick between two integers would be labelled like one of them, so it has no label.
        return if (x - x.round()).abs() < 1e-6 { human(x) } else { String::new() };
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a position on the axis, 0 or more"
    )]
    let at = x.round().max(0.0) as usize;
    // A tick between two positions has no label.
    if (x - x.round()).abs() < 1e-6 {
        figure.x_names.get(at).cloned().unwrap_or_default()
    } else {
        String::new()
    }
}

fn human(x: f64) -> String {
    match x.abs() {
        x_abs if x_abs >= 1e6 => format!("{:.0}M", x / 1e6),
        x_abs if x_abs >= 1e4 => format!("{:.0}k", x / 1e3),
        _ => format!("{:.0}", x),
    }
}

/// As [`human`], with up to two decimals, so that neighbours on an axis differ.
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
    use super::*;

    #[test]
    fn a_figure_becomes_a_picture_with_its_lines_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.svg");
        let mut panel = Panel::new("million lookups a second");
        for x in 0..5_u32 {
            panel.add("GAMT", f64::from(1 << x), f64::from(x));
            panel.add("GALE", f64::from(1 << x), 2.0);
        }
        let mut figure = Figure::new("A title", "keys a batch");
        figure.x_log = true;
        figure.panels = vec![panel.clone(), Panel { y_log: true, ..panel }];
        draw(&figure, &path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for words in ["<svg", "GAMT", "GALE", "A title", "keys a batch", "polyline"] {
            assert!(text.contains(words), "{words}");
        }
    }
}
