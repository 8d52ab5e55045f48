//! From raw answers to next hops: what readers have of a table.

use super::code::inf;
use super::deep::{Found, Snapshot};
use super::hops::NextHopEntries;
use crate::host::{Answers, KeySlice, RAW_DEEP, RAW_INF};
use arc_swap::ArcSwap;
use fib::{Family, Key, NextHopId};
use std::sync::Arc;

/// The state that answers of all generations in flight are resolved with.
#[derive(Debug)]
pub(super) struct GamtAnswers {
    /// The next-hop table, when leaves have its entries (GAMT_S).
    pub(super) entries: Option<Arc<NextHopEntries>>,
    /// Prefixes beyond the bits that the device searches.
    pub(super) deep: Arc<ArcSwap<Snapshot>>,
}

impl GamtAnswers {
    #[inline]
    fn next_hop(&self, inf: u32) -> NextHopId {
        self.entries.as_ref().map_or(NextHopId::from_answer(inf), |entries| entries.get(inf))
    }

    /// Marked answers are rare: out of the loop's way.
    #[cold]
    fn beyond(&self, group: u32, low: u64) -> NextHopId {
        match self.deep.load().find(group, low) {
            Found::NextHop(next_hop) => next_hop,
            Found::Cover(code) => self.next_hop(inf(code)),
        }
    }
}

impl<K: Key> Answers<K> for GamtAnswers {
    fn reads_keys(&self) -> bool {
        K::FAMILY == Family::V6 // what lies below the bits that the device searches
    }

    fn resolve(&self, keys: KeySlice<'_, K>, raw: &[u32], out: &mut [NextHopId]) {
        match keys {
            KeySlice::Whole(_) if self.entries.is_none() => {
                for (out, raw) in out.iter_mut().zip(raw) {
                    *out = NextHopId::from_answer(*raw);
                }
            }
            KeySlice::Whole(_) => {
                for (out, raw) in out.iter_mut().zip(raw) {
                    *out = self.next_hop(raw & RAW_INF);
                }
            }
            KeySlice::Halves(_, low) => {
                for ((out, raw), low) in out.iter_mut().zip(raw).zip(low) {
                    *out = if raw & RAW_DEEP == 0 {
                        self.next_hop(raw & RAW_INF)
                    } else {
                        self.beyond(raw & RAW_INF, *low)
                    };
                }
            }
        }
    }
}
