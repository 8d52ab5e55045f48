//! The next hops of each frame over the updates. The verifier accepts each that was in service between a packet's feeding and its arrival.

use super::deal::TracePart;
use super::expected::VrfReferences;
use super::reference::checked;
use crate::datapath::check::Destination;
use crate::forwarder::updates::VrfUpdate;
use fib::{IpPrefix, Key, NextHopId, Prefix};
use rustc_hash::FxHashMap;

/// Every pass leaves each prefix at the stream's last update of it, so from the second pass on the changes are periodic: two passes are
/// recorded and cover all later ones.
#[derive(Debug, Default)]
pub(crate) struct HopHistory {
    /// By frame: the number of an update (from 1) and the next hop from then on. Frames that never change are absent.
    changes: FxHashMap<usize, Vec<(u64, NextHopId)>>,
    period: u64,
}

/// Destination addresses of a VRF's frames, sorted, each with its frame.
#[derive(Default)]
struct Destinations {
    v4: Vec<(u32, usize)>,
    v6: Vec<(u128, usize)>,
}

impl HopHistory {
    /// Applies the stream `loops` times to the references and records the changes for the frames of `part`.
    ///
    /// # Errors
    /// `NextHopError` when an update redefines a next hop id.
    pub(crate) fn new(
        updates: &[VrfUpdate],
        loops: u64,
        tables: &mut VrfReferences,
        part: &TracePart,
    ) -> anyhow::Result<Self> {
        let VrfReferences { vrfs } = tables;
        let mut destinations: Vec<_> = vrfs.iter().map(|_| Destinations::default()).collect();
        for (i, vrf) in part.vrf_of.iter().enumerate() {
            match checked(part.trace.frame(i)).map(|checked| checked.destination) {
                Ok(Destination::V4(key)) => destinations[*vrf].v4.push((key, i)),
                Ok(Destination::V6(key)) => destinations[*vrf].v6.push((key, i)),
                Err(_) => {}
            }
        }
        for Destinations { v4, v6 } in &mut destinations {
            v4.sort_unstable();
            v6.sort_unstable();
        }
        let period = updates.len() as u64;
        let mut history = Self { changes: FxHashMap::default(), period };
        let mut current = vec![None; part.vrf_of.len()];
        let rounds = if loops > 1 { 2 } else { 1 };
        let all = std::iter::repeat_n(updates, rounds).flatten();
        for (number, VrfUpdate { vrf, update }) in (1..).zip(all) {
            let ((reference, hops), Destinations { v4, v6 }) = (&mut vrfs[*vrf], &destinations[*vrf]);
            let id = update.next_hop(hops)?;
            let covered: Vec<_> = match update.prefix {
                IpPrefix::V4(prefix) => with_destinations(within(v4, prefix), Destination::V4).collect(),
                IpPrefix::V6(prefix) => with_destinations(within(v6, prefix), Destination::V6).collect(),
            };
            for (destination, frame) in &covered {
                current[*frame].get_or_insert_with(|| reference.next_hop(*destination));
            }
            reference.oracle_mut().set(update.prefix, id);
            for (destination, frame) in covered {
                // A longer prefix may hide the change.
                let after = reference.next_hop(destination);
                if let Some(before) = current[frame].replace(after) {
                    history.note(frame, number, before, after);
                }
            }
        }
        Ok(history)
    }

    fn note(&mut self, frame: usize, number: u64, before: NextHopId, after: NextHopId) {
        if before != after {
            self.changes.entry(frame).or_insert_with(|| vec![(0, before)]).push((number, after));
        }
    }

    /// The next hops of a frame while `low` to `high` updates were in service; empty when it never changes.
    pub(crate) fn next_hops(&self, frame: usize, low: u64, high: u64) -> impl Iterator<Item = NextHopId> {
        let changes = self.changes.get(&frame).map_or(&[][..], Vec::as_slice);
        let between = move |low: u64, high: u64| {
            let first = changes.partition_point(|(number, _)| *number <= low).saturating_sub(1);
            let end = changes.partition_point(|(number, _)| *number <= high);
            changes[first..end.max(first)].iter().map(|(_, id)| *id)
        };
        // Shift into the recorded passes: later passes equal the second, and a range beyond its end continues at its start.
        let period = self.period.max(1);
        let shift = low.saturating_sub(period) / period * period;
        let (low, high) = (low - shift, (high - shift).min(low - shift + 2 * period));
        let wrapped = high.checked_sub(2 * period).map(|beyond| between(period, period + beyond.min(period)));
        between(low, high).chain(wrapped.into_iter().flatten())
    }

    pub(crate) fn has_changes(&self, frame: usize) -> bool {
        self.changes.contains_key(&frame)
    }
}

fn with_destinations<K: Copy>(
    frames: &[(K, usize)],
    destination: fn(K) -> Destination,
) -> impl Iterator<Item = (Destination, usize)> {
    frames.iter().map(move |(key, frame)| (destination(*key), *frame))
}

fn within<K: Key>(keys: &[(K, usize)], prefix: Prefix<K>) -> &[(K, usize)] {
    let start = keys.partition_point(|(key, _)| *key < prefix.address());
    let end = keys.partition_point(|(key, _)| *key <= prefix.last_address());
    &keys[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_had_the_next_hops_of_the_updates_in_between() {
        let id = NextHopId::from_answer;
        let mut history = HopHistory { period: 200, ..HopHistory::default() };
        for (number, before, after) in [(3, 1, 2), (5, 2, 2), (7, 2, 4), (9, 4, 1)] {
            history.note(0, number, id(before), id(after));
        }
        let of = |low, high| history.next_hops(0, low, high).map(NextHopId::get).collect::<Vec<_>>();
        assert_eq!(of(0, 2), [1]);
        assert_eq!(of(0, 3), [1, 2]);
        assert_eq!(of(3, 6), [2]);
        assert_eq!(of(4, 9), [2, 4, 1]);
        assert_eq!(of(100, 100), [1]);
        assert_eq!(history.next_hops(1, 0, 9).count(), 0);
        assert!(history.has_changes(0) && !history.has_changes(1));
    }

    #[test]
    fn the_second_round_stands_for_all_later_ones() {
        // Ten updates a pass: initially 9, update 3 sets 2, update 8 sets 3.
        let id = NextHopId::from_answer;
        let mut history = HopHistory { period: 10, ..HopHistory::default() };
        for (number, before, after) in [(3, 9, 2), (8, 2, 3), (13, 3, 2), (18, 2, 3)] {
            history.note(0, number, id(before), id(after));
        }
        let state = |number: u64| match number {
            0..3 => 9,
            _ if (3..8).contains(&(number % 10)) => 2,
            _ => 3,
        };
        for low in 0..60 {
            for high in low..low + 35 {
                let mut wanted: Vec<_> = (low..=high).map(state).collect();
                let mut found: Vec<_> = history.next_hops(0, low, high).map(NextHopId::get).collect();
                for list in [&mut wanted, &mut found] {
                    list.sort_unstable();
                    list.dedup();
                }
                assert_eq!(found, wanted, "updates {low} to {high}");
            }
        }
    }

    #[test]
    fn keys_within_a_prefix() {
        let keys = [(1_u32, 10), (3, 11), (3, 12), (9, 13)];
        assert_eq!(within(&keys, Prefix::truncating(2, 31)), [(3, 11), (3, 12)]);
        assert_eq!(within(&keys, Prefix::truncating(16, 28)), []);
    }
}
