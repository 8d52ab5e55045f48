//! The figures of a table for `EngineStats::details`.

use super::table::GamtTable;
use fib::{Family, Key};

/// A count as a figure.
#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
pub(super) fn float(count: u64) -> f64 {
    count as f64
}

/// Names of the figures of one family.
struct Names {
    levels: &'static str,
    width: &'static str,
    units: &'static str,
    units_used: &'static str,
    paper_bytes: &'static str,
    flat_bytes: &'static str,
    updates: &'static str,
    bubbles: &'static str,
    next_hop_updates: &'static str,
    rebuilds: &'static str,
    collapsed: &'static str,
    strides: [&'static str; 30],
}

macro_rules! names {
    ($family:literal) => {
        Names {
            levels: concat!("gamt_levels_", $family),
            width: concat!("gamt_array_width_", $family),
            units: concat!("gamt_units_", $family),
            units_used: concat!("gamt_units_used_", $family),
            paper_bytes: concat!("gamt_bytes_per_prefix_paper_", $family),
            flat_bytes: concat!("gamt_bytes_per_prefix_flat_", $family),
            updates: concat!("gamt_updates_", $family),
            bubbles: concat!("gamt_bubbles_", $family),
            next_hop_updates: concat!("gamt_next_hop_updates_", $family),
            rebuilds: concat!("gamt_rebuilds_", $family),
            collapsed: concat!("gamt_collapsed_nodes_", $family),
            strides: strides!($family, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30),
        }
    };
}

macro_rules! strides {
    ($family:literal, $($level:literal)*) => { [$(concat!("gamt_stride_", $level, "_", $family)),*] };
}

static V4: Names = names!("v4");
static V6: Names = names!("v6");

/// Adds the figures of `table`.
pub(super) fn push<K: Key>(table: &GamtTable<K>, out: &mut Vec<(&'static str, f64)>) {
    let names = if K::FAMILY == Family::V4 { &V4 } else { &V6 };
    let (shape, figures) = (table.shape(), table.figures());
    let used = table.units_used();
    out.extend([
        (names.levels, float(shape.strides.len() as u64)),
        (names.width, f64::from(shape.width)),
        (names.units, float(shape.words)),
        (names.units_used, used.into_iter().map(f64::from).sum()),
        (names.paper_bytes, table.paper_bytes_per_prefix()),
        (names.flat_bytes, table.flat_bytes_per_prefix()),
        (names.updates, float(figures.updates)),
        (names.bubbles, float(figures.bubbles)),
        (names.next_hop_updates, float(figures.next_hop_updates)),
        (names.rebuilds, float(figures.rebuilds)),
        (names.collapsed, float(figures.collapsed_nodes)),
    ]);
    out.extend(names.strides.iter().zip(&shape.strides).map(|(name, stride)| (*name, f64::from(*stride))));
}
