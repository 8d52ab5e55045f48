//! From raw answers to next hops: what readers have of a table.

use super::code::inf;
use super::deep::{Found, Snapshots};
use super::hops::NextHopEntries;
use crate::host::{Answers, RAW_DEEP, RAW_INF};
use fib::loads::{Loads, Place, Plain};
use fib::{Family, Key, NextHopId};
use std::sync::Arc;

/// Answers that are looked at together for marked ones.
const PIECE: usize = 64;

/// The state that answers of all generations in flight are resolved with.
#[derive(Debug)]
pub(crate) struct GamtAnswers {
    /// The next-hop table, when leaves have its entries (GAMT_S).
    pub(super) entries: Option<Arc<NextHopEntries>>,
    /// Prefixes beyond the bits that the device searches.
    pub(super) deep: Arc<Snapshots>,
}

impl GamtAnswers {
    #[inline]
    fn next_hop(&self, inf: u32) -> NextHopId {
        let Ok(next_hop) = self.next_hop_by(inf, &mut Plain);
        next_hop
    }

    #[inline(always)]
    fn next_hop_by<L: Loads>(&self, inf: u32, loads: &mut L) -> Result<NextHopId, L::Stop> {
        match &self.entries {
            None => Ok(NextHopId::from_answer(inf)),
            Some(entries) => entries.get(inf, loads),
        }
    }

    /// Marked answers are rare: out of the loop's way.
    #[cold]
    fn beyond(&self, group: u32, low: u64) -> NextHopId {
        let Ok(next_hop) = self.beyond_by(group, low, &mut Plain);
        next_hop
    }

    fn beyond_by<L: Loads>(&self, group: u32, low: u64, loads: &mut L) -> Result<NextHopId, L::Stop> {
        // A snapshot never changes: what is loaded is which one there is, and so what it says.
        let found =
            loads.load(Place::of(&self.deep.place), || self.deep.place.load().find(group, low).to_bits())?;
        match Found::from_bits(found) {
            Found::NextHop(next_hop) => Ok(next_hop),
            Found::Cover(code) => self.next_hop_by(inf(code), loads),
        }
    }

    /// The next hop of a key whose last bits are `low` from its raw answer, by single loads: what [`Answers::resolve`] does.
    #[cfg(test)]
    pub(crate) fn resolve_by<L: Loads>(
        &self,
        raw: u32,
        low: u64,
        loads: &mut L,
    ) -> Result<NextHopId, L::Stop> {
        if raw & RAW_DEEP == 0 {
            self.next_hop_by(raw & RAW_INF, loads)
        } else {
            self.beyond_by(raw & RAW_INF, low, loads)
        }
    }
}

impl<K: Key> Answers<K> for GamtAnswers {
    fn reads_low_bits(&self) -> bool {
        K::FAMILY == Family::V6 // for what lies below the bits that the device searches
    }

    fn resolve(&self, low: &[u64], answers: &mut [u32]) {
        if self.entries.is_some() {
            for answer in answers.iter_mut().filter(|answer| **answer & RAW_DEEP == 0) {
                *answer = self.next_hop(*answer & RAW_INF).get();
            }
        }
        // Without such a table what is not marked is an id already, and marks are rare: pieces without one are only read.
        for (answers, low) in answers.chunks_mut(PIECE).zip(low.chunks(PIECE)) {
            if answers.iter().fold(0, |all, answer| all | answer) & RAW_DEEP != 0 {
                for (answer, low) in
                    answers.iter_mut().zip(low).filter(|(answer, _)| **answer & RAW_DEEP != 0)
                {
                    *answer = self.beyond(*answer & RAW_INF, *low).get();
                }
            }
        }
    }
}
