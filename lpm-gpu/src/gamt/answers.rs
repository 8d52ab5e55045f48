//! Resolves raw answers to next hops: the state that GAMT's readers hold.

use super::code::inf;
use super::deep::{Found, Snapshots};
use super::hops::NextHopEntries;
use crate::host::{Answers, RAW_DEEP, RAW_INF};
use fib::loads::{Loads, Place, Plain};
use fib::{Key, NextHopId};
use std::sync::Arc;

/// Answers tested together for the deep mark.
const PIECE: usize = 64;

#[derive(Debug)]
pub(crate) struct GamtAnswers {
    /// The next-hop table of GAMT_S; `None` for GAMT_T, whose leaves hold next hops.
    pub(super) entries: Option<Arc<NextHopEntries>>,
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

    /// Deep answers are rare: kept out of the loop.
    #[cold]
    fn resolve_deep(&self, group: u32, low: u64) -> NextHopId {
        let Ok(next_hop) = self.resolve_deep_by(group, low, &mut Plain);
        next_hop
    }

    fn resolve_deep_by<L: Loads>(&self, group: u32, low: u64, loads: &mut L) -> Result<NextHopId, L::Stop> {
        // Snapshots are immutable: the only shared load is the pointer to the current one.
        let found = loads
            .load(Place::from_ref(&self.deep.place), || self.deep.place.load().find(group, low).to_bits())?;
        match Found::from_bits(found) {
            Found::NextHop(next_hop) => Ok(next_hop),
            Found::Cover(code) => self.next_hop_by(inf(code), loads),
        }
    }

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
            self.resolve_deep_by(raw & RAW_INF, low, loads)
        }
    }
}

impl<K: Key> Answers<K> for GamtAnswers {
    fn resolve(&self, low: &[u64], answers: &mut [u32]) {
        if self.entries.is_some() {
            for answer in answers.iter_mut().filter(|answer| **answer & RAW_DEEP == 0) {
                *answer = self.next_hop(*answer & RAW_INF).get();
            }
        }
        // Without entries, unmarked answers are ids already. Marks are rare, so most pieces are only read. IPv4 has none: no prefix is longer
        // than the bits searched.
        for (answers, low) in answers.chunks_mut(PIECE).zip(low.chunks(PIECE)) {
            if answers.iter().fold(0, |all, answer| all | answer) & RAW_DEEP != 0 {
                for (answer, low) in
                    answers.iter_mut().zip(low).filter(|(answer, _)| **answer & RAW_DEEP != 0)
                {
                    *answer = self.resolve_deep(*answer & RAW_INF, *low).get();
                }
            }
        }
    }
}
