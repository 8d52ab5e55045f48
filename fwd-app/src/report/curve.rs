//! Latency over load, at several fractions of the rate found.

use super::columns::Columns;
use super::latency::{LatencyNs, MarkAxis};
use fib::units::time_text;
use serde::Serialize;

/// Most rows, including the highest load, so that the summary fits a terminal.
const ROWS: usize = 7;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct CurvePoint {
    /// The load in percent of the rate found.
    pub(crate) percent: u32,
    pub(crate) offered_pps: f64,
    /// Packets fed and not lost, a second.
    pub(crate) pps: f64,
    pub(crate) loss_ratio: f64,
    pub(crate) latency_ns: LatencyNs,
}

pub(crate) fn text(curve: &[CurvePoint]) -> String {
    if curve.is_empty() {
        return String::new();
    }
    let axis = MarkAxis::new(curve.iter().map(|point| &point.latency_ns));
    let mut rows = Columns::new(["load", "Mpps", "loss", "p50", "p99", "p99.9", MarkAxis::HEADING]);
    let step = curve.len().div_ceil(ROWS);
    let shown = curve.iter().enumerate().filter(|(at, _)| (curve.len() - 1 - at).is_multiple_of(step));
    for (_, CurvePoint { percent, offered_pps, loss_ratio, latency_ns, .. }) in shown {
        let LatencyNs { p50, p99, p99_9, count, .. } = *latency_ns;
        let time = |ns| if count > 0 { time_text(ns) } else { "-".to_owned() };
        let [p50, p99, p99_9] = [p50, p99, p99_9].map(time);
        let loss = format!("{:.4} %", loss_ratio * 100.0);
        let (load, mpps) = (format!("{percent} %"), format!("{:.3}", offered_pps / 1e6));
        rows.row([load, mpps, loss, p50, p99, p99_9, axis.row(latency_ns)]);
    }
    rows.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(percent: u32, p50: u64) -> CurvePoint {
        let latency_ns =
            LatencyNs { p50, p99: p50 * 4, p99_9: p50 * 10, count: 1000, ..LatencyNs::default() };
        let pps = f64::from(percent) * 1e5;
        CurvePoint { percent, offered_pps: pps, pps, loss_ratio: 0.0, latency_ns }
    }

    #[test]
    fn a_load_has_a_row_and_the_highest_one_always() {
        let lost = CurvePoint { latency_ns: LatencyNs::default(), loss_ratio: 1.0, ..point(100, 1) };
        let all = super::text(&[point(10, 1_000), point(90, 2_000), lost]);
        let rows: Vec<_> = all.lines().collect();
        assert_eq!(rows.len(), 4, "{all}");
        assert!(rows[1].starts_with("10 %") && rows[1].contains("|o") && rows[1].contains("1.000"), "{all}");
        assert!(rows[3].contains("100.0000 %") && rows[3].ends_with('|'), "{all}");
        let many: Vec<_> = (1..=10).map(|tenth| point(tenth * 10, 1000)).collect();
        let some = super::text(&many);
        assert!(
            some.lines().count() <= ROWS + 1 && some.lines().last().unwrap().starts_with("100 %"),
            "{some}"
        );
        assert_eq!(super::text(&[]), "");
    }
}
