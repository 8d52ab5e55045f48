//! A table's figures for `EngineStats::details`.

use super::table::{GamtTable, GamtWork};
use fib::{Details, Family, Key};
use serde::Serialize;
use std::collections::BTreeMap;

#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
pub(super) fn float(count: u64) -> f64 {
    count as f64
}

/// Reported as `gamt_NAME_FAMILY`.
#[derive(Serialize)]
struct GamtFigures {
    levels: usize,
    array_width: u32,
    units: u64,
    units_used: u64,
    bytes_per_prefix_paper: f64,
    bytes_per_prefix_flat: f64,
    #[serde(flatten)]
    work: GamtWork,
    /// `stride_N` for level N, from 1.
    #[serde(flatten)]
    strides: BTreeMap<String, u8>,
}

pub(super) fn collect<K: Key>(table: &GamtTable<K>) -> Details {
    let shape = table.shape();
    let strides = (1..).zip(&shape.strides);
    let figures = GamtFigures {
        levels: shape.strides.len(),
        array_width: shape.width,
        units: shape.words,
        units_used: table.units_used().into_iter().map(u64::from).sum(),
        bytes_per_prefix_paper: table.paper_bytes_per_prefix(),
        bytes_per_prefix_flat: table.flat_bytes_per_prefix(),
        work: table.figures(),
        strides: strides.map(|(level, stride): (u8, _)| (format!("stride_{level}"), *stride)).collect(),
    };
    let family = if K::FAMILY == Family::V4 { "v4" } else { "v6" };
    Details::named(&figures, |name| format!("gamt_{name}_{family}"))
}
