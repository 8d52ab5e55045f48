//! Paints the image of a GALE table from its routes, whose order puts a route before the routes that it covers. The image
//! takes at least 64 MiB of host memory, so it lives only from a rebuild to the next change.

use super::DIRECT_UNITS;
use crate::direct::{CHUNK_UNITS, Unit};
use fib::{Prefix4, RibTable};
use std::collections::BTreeMap;

/// Granularity of the runs: blocks without a route are left out.
const BLOCK_WORDS: usize = 4096;

/// A /24 with longer prefixes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Long {
    /// Routes longer than /24 in it. At zero its chunk is freed with the next steps.
    pub(super) routes: u32,
    pub(super) chunk: u32,
}

/// Units that a route covers in its stage.
pub(super) const fn units(prefix: Prefix4) -> usize {
    let bits = if prefix.len() > 24 { 32 } else { 24 };
    1 << (bits - prefix.len())
}

#[derive(Debug)]
pub(super) struct Painted {
    words: Vec<u32>,
    touched: Vec<bool>,
}

impl Painted {
    pub(super) fn new(routes: &RibTable<u32>, longs: &BTreeMap<u32, Long>) -> Self {
        let live = || longs.iter().filter(|(_, long)| long.routes != 0);
        let chunks = live().map(|(_, long)| long.chunk as usize + 1).max().unwrap_or(0);
        let words = DIRECT_UNITS + chunks * CHUNK_UNITS;
        let mut image = Self { words: vec![0; words], touched: vec![false; words.div_ceil(BLOCK_WORDS)] };
        for (prefix, next_hop) in routes.used() {
            let (slot, unit) = (prefix.address() >> 8, Unit::route(next_hop, prefix.len()));
            if prefix.len() <= 24 {
                image.fill(slot as usize, units(prefix), unit);
            } else if let Some(long) = longs.get(&slot) {
                let chunk = DIRECT_UNITS + long.chunk as usize * CHUNK_UNITS;
                // The first long route of its /24: the slot still has the unit of the covering route.
                let under = Unit(image.words[slot as usize]);
                if under.to_chunk().is_none() {
                    image.fill(chunk, CHUNK_UNITS, under);
                    image.fill(slot as usize, 1, Unit::chunk(long.chunk));
                }
                image.fill(chunk + (prefix.address() & 0xff) as usize, units(prefix), unit);
            }
        }
        image
    }

    fn fill(&mut self, first: usize, count: usize, unit: Unit) {
        self.words[first..first + count].fill(unit.0);
        self.touched[first / BLOCK_WORDS..=(first + count - 1) / BLOCK_WORDS].fill(true);
    }

    pub(super) fn runs(&self) -> Vec<(u32, &[u32])> {
        let mut runs = Vec::new();
        let mut block = 0;
        while block < self.touched.len() {
            let end = (block..self.touched.len()).find(|b| !self.touched[*b]).unwrap_or(self.touched.len());
            if end > block {
                let (from, to) = (block * BLOCK_WORDS, self.words.len().min(end * BLOCK_WORDS));
                runs.push((u32::try_from(from).unwrap_or(u32::MAX), &self.words[from..to]));
            }
            block = end + 1;
        }
        runs
    }

    pub(super) fn bytes(&self) -> u64 {
        (size_of_val(&self.words[..]) + self.touched.len()) as u64
    }
}
