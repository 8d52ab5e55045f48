//! Chooses the shape of a table from its routes: strides by Algorithm 3, then as much head room as fits.

use super::options::{GamtOptions, Layout};
use super::shape::{TrieShape, plan_bytes};
use super::strides::{Census, StridePlan};
use super::trie::TrieEntry;
use fib::{EngineError, Family};
use std::ops::RangeInclusive;

/// The options and limits of a table's shape.
#[derive(Clone, Debug)]
pub(super) struct ShapePlanner {
    bits: u8,
    layout: Layout,
    headroom_percent: u32,
    levels: RangeInclusive<u8>,
    transaction_units: u64,
    /// Limit of the device's array, words.
    pub(super) words_max: u64,
}

impl ShapePlanner {
    /// For a table of `family` that searches `bits` bits. Fails with [`EngineError::Parameter`] for options out of range.
    pub(super) fn new(options: &GamtOptions, family: Family, bits: u8) -> Result<Self, EngineError> {
        Ok(Self {
            bits,
            layout: options.layout,
            headroom_percent: options.headroom_percent,
            levels: options.levels_of(family)?,
            transaction_units: options.transaction_units()?,
            words_max: options.table_bytes_max / 4,
        })
    }

    /// The shape for sorted `entries`. If the best plan does not fit, tries the strides of `fallback`.
    pub(super) fn plan(
        &self,
        entries: &[TrieEntry],
        fallback: Option<&TrieShape>,
    ) -> Result<TrieShape, EngineError> {
        let Self { layout, words_max, transaction_units, .. } = *self;
        let census = Census::new(self.bits, entries.iter().map(|entry| (entry.key, entry.len)));
        let fit = |plan: &StridePlan| TrieShape::fit(&census, plan, layout, self.headroom_percent, words_max);
        let bytes = |plan: &StridePlan| Some(plan_bytes(plan, layout)).filter(|bytes| bytes / 4 <= words_max);
        let plan = StridePlan::choose(&census, self.levels.clone(), transaction_units, bytes);
        let shape = fit(&plan);
        match (shape, fallback) {
            (Err(error), Some(shape)) => {
                fit(&StridePlan::rate(&census, shape.strides.clone(), transaction_units)).map_err(|_| error)
            }
            (shape, _) => shape,
        }
    }
}
