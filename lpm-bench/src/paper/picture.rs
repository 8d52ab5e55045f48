//! The graphs of a figure as SVG: a line with the spread of its rounds for each series, hollow marks for the paper's numbers.

use super::figure::{Figure, Panel, PanelLine};
use fib::picture::{Axis, Graph, GraphLine, GraphPoint, LineStyle, Scale, svg};
use std::io;
use std::path::Path;

/// Draws all graphs of `figure` into `path`, from top to bottom.
pub(super) fn draw(figure: &Figure, path: &Path) -> io::Result<()> {
    let panels = figure.panels.iter().enumerate().filter(|(_, panel)| panel.has_points());
    let x_label = |x| x_label(figure, x);
    let graphs: Vec<_> = panels.map(|(at, panel)| graph(figure, &x_label, at, panel)).collect();
    let picture = svg(&graphs)?;
    fib::output::write_whole(path, |out| out.write_all(picture.as_bytes()))
}

fn graph<'a>(
    figure: &'a Figure,
    x_label: &'a dyn Fn(f64) -> String,
    at: usize,
    panel: &'a Panel,
) -> Graph<'a> {
    let x_scale = match (figure.x_log, figure.x_tens) {
        (false, _) => Scale::Linear,
        (true, false) => Scale::Log(2.0),
        (true, true) => Scale::Log(10.0),
    };
    // A logarithmic axis has no 0, so 0 is drawn at 1.
    let place = |x: f64| if figure.x_log { x.max(1.0) } else { x };
    let point = |point: &super::figure::Point| GraphPoint {
        x: place(point.x),
        y: point.y.median,
        spread: (point.y.min, point.y.max),
    };
    // Named positions have no values between them.
    let style = if figure.x_names.is_empty() { LineStyle::Joined } else { LineStyle::Points };
    let line = |line: &'a PanelLine| GraphLine {
        name: &line.name,
        points: line.points.iter().map(point).collect(),
        style,
    };
    let claimed = figure.claims.iter().filter_map(|judged| Some((judged.claim.mark?, &judged.claim.paper)));
    let of_this = claimed.filter(|((panel, _), _)| *panel == at);
    let marks = of_this.flat_map(|((_, x), paper)| paper.iter().map(move |y| (place(x), *y))).collect();
    Graph {
        title: &figure.title,
        x: Axis { name: &figure.x, scale: x_scale, label: x_label },
        y: Axis {
            name: &panel.y,
            scale: if panel.y_log { Scale::Log(10.0) } else { Scale::Linear },
            label: &digits,
        },
        lines: panel.series.iter().map(line).collect(),
        marks: ("the paper's number", marks),
    }
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

fn binary(x: f64) -> String {
    match x {
        x if x >= 1_048_576.0 => format!("{}Mi", digits(x / 1_048_576.0)),
        x if x >= 1024.0 => format!("{}Ki", digits(x / 1024.0)),
        _ => digits(x),
    }
}

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
            panel.add("GAMT", f64::from(1 << x), Spread::of_rounds(&[f64::from(x), f64::from(x + 1)]));
            panel.add("GALE", f64::from(1 << x), 2.0);
        }
        let panels = vec![panel.clone(), Panel { y_log: true, ..panel }];
        let (title, x) = ("A title".into(), "keys a batch".into());
        let mut figure = Figure { title, x, x_log: true, panels, ..Figure::default() };
        figure.judge(Claim::parse_all("fig | 1 | most | 7 | Mlps | rate | 0 at 4").unwrap());
        draw(&figure, &path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for words in ["<svg", "GAMT", "GALE", "A title", "keys a batch", "polyline", "currentColor"] {
            assert!(text.contains(words), "{words}");
        }
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
