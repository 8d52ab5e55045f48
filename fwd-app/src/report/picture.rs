//! Latency plots: by percentile, by frame size, by load.

use super::Summary;
use super::curve::CurvePoint;
use super::latency::{LatencyNs, SizeLatency};
use fib::picture::{Axis, Graph, GraphLine, GraphPoint, LineStyle, Scale, standalone, svg};
use fib::units::time_text;
use hdrhistogram::Histogram;
use std::io;

/// Points of a percentile line per halving of the distance to 100 %.
const STEPS: u32 = 5;
/// Plots the latencies of `summary` as a standalone SVG for light and dark viewers.
pub(super) fn latencies(summary: &Summary) -> io::Result<String> {
    let Summary { latency_ns, engine, curve, latency_by_size: sizes, .. } = summary;
    let bound = if summary.binding_feeder().is_some() { ", BOUND BY THE FEEDER" } else { "" };
    let title = format!("Latency, {} ({}, {}){bound}", latency_ns.measured, engine.name, engine.isa);
    let names: Vec<_> = sizes.iter().map(SizeLatency::name).collect();
    let name_of = |x: f64| name_at(&names, x);
    let mut graphs = Vec::new();
    if !summary.histogram.is_empty() || curve.is_empty() {
        let mut lines = vec![percentiles("all packets", &summary.histogram)];
        if sizes.len() > 1 {
            lines.extend(sizes.iter().zip(&names).map(|(size, name)| percentiles(name, &size.histogram)));
        }
        let x = Axis { name: "percentile", scale: Scale::Log(10.0), label: &percentile_label };
        graphs.push(graph(&title, x, lines));
    }
    if sizes.len() > 1 {
        let x = Axis { name: "frame, bytes with checksum", scale: Scale::Linear, label: &name_of };
        let places = (0_u32..).map(f64::from).zip(sizes.iter().map(|size| &size.latency_ns));
        graphs.push(graph("Latency by size of frame", x, lines_of(&places.collect::<Vec<_>>())));
    }
    if !curve.is_empty() {
        let x = Axis { name: "offered, Mpps", scale: Scale::Linear, label: &number_label };
        let mpps = |point: &CurvePoint| point.offered_pps / 1e6;
        let places: Vec<_> = curve.iter().map(|point| (mpps(point), &point.latency_ns)).collect();
        let mut graph = graph("Latency by load", x, lines_of(&places));
        let lost = curve.iter().filter(|point| point.loss_ratio > 0.0 && point.latency_ns.count > 0);
        graph.marks =
            ("packets were lost", lost.map(|point| (mpps(point), ns(point.latency_ns.p50))).collect());
        graphs.push(graph);
    }
    Ok(standalone(&svg(&graphs)?))
}

fn graph<'a>(title: &'a str, x: Axis<'a>, lines: Vec<GraphLine<'a>>) -> Graph<'a> {
    let y = Axis { name: "latency", scale: Scale::Log(10.0), label: &time_label };
    Graph { title, x, y, lines, marks: ("", Vec::new()) }
}

/// A line over HdrHistogram's percentile axis, 1 / (1 - quantile), which spaces 90 %, 99 % and 99.9 % evenly.
fn percentiles<'a>(name: &'a str, histogram: &Histogram<u64>) -> GraphLine<'a> {
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
    let most = (histogram.len() as f64).max(1.0);
    let point = |step: hdrhistogram::iterators::IterationValue<u64>| {
        let place = 1.0 / (1.0 - step.quantile_iterated_to());
        GraphPoint::once(place.min(most), ns(step.value_iterated_to()))
    };
    let points = histogram.iter_quantiles(STEPS).map(point).collect();
    GraphLine { name, points, style: LineStyle::Line }
}

/// Lines of p50, p99 and p99.9 over places on the x axis.
fn lines_of(places: &[(f64, &LatencyNs)]) -> Vec<GraphLine<'static>> {
    let there = || places.iter().filter(|(_, latency)| latency.count > 0);
    let line = |name, percentile: fn(&LatencyNs) -> u64| GraphLine {
        name,
        points: there().map(|(x, latency)| GraphPoint::once(*x, ns(percentile(latency)))).collect(),
        style: LineStyle::Joined,
    };
    vec![
        line("p50", |latency| latency.p50),
        line("p99", |latency| latency.p99),
        line("p99.9", |latency| latency.p99_9),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds below 2^53")]
fn ns(value: u64) -> f64 {
    value as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a latency is not negative")]
fn time_label(ns: f64) -> String {
    time_text(ns.round() as u64)
}

fn percentile_label(place: f64) -> String {
    format!("{} %", trimmed(100.0 - 100.0 / place))
}

fn number_label(number: f64) -> String {
    trimmed(number)
}

fn trimmed(number: f64) -> String {
    let text = format!("{number:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place on the axis, 0 or more")]
fn name_at(names: &[String], x: f64) -> String {
    let name = names.get(x.round().max(0.0) as usize).filter(|_| (x - x.round()).abs() < 1e-6);
    name.cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_named_as_people_name_them() {
        let labels = [1.0, 10.0, 100.0, 1000.0, 1e5].map(percentile_label);
        assert_eq!(labels, ["0 %", "90 %", "99 %", "99.9 %", "99.999 %"]);
        assert_eq!(time_label(1500.0), time_text(1500));
        let names = ["a".to_owned(), "b".to_owned()];
        assert_eq!([0.0, 0.5, 1.0, 2.0].map(|x| name_at(&names, x)), ["a", "", "b", ""]);
    }

    #[test]
    fn a_line_of_percentiles_ends_at_the_last_packet() {
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap();
        histogram.record_n(100, 900).unwrap();
        histogram.record_n(5000, 100).unwrap();
        let line = percentiles("all", &histogram);
        let last = line.points.last().unwrap();
        assert!((last.x - 1000.0).abs() < 1e-6 && (last.y - 5000.0).abs() < 10.0, "{last:?}");
        assert!(line.points.windows(2).all(|pair| pair[0].x <= pair[1].x && pair[0].y <= pair[1].y));
        assert!(percentiles("none", &Histogram::new(3).unwrap()).points.is_empty());
    }
}
