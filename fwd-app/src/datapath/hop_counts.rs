//! Optional packet and byte counts by next hop.
//!
//! The counts belong to the [`EgressTable`](super::EgressTable), so that every table has cells for its next hops. Each stage that gives
//! verdicts writes its own lane of cells; readers sum the lanes. A table with more next hops gets a larger set, linked to the smaller one,
//! where an lcore may still count; readers sum both. So nothing is copied while lcores count, and no count is lost. A packet is counted for
//! the next hop of its lookup or the selected path of a group, sent or not. Bare ids above the last cell share one.

use super::Batch;
use fib::NextHopId;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const CELLS_MIN: usize = 1 << 10;
/// Unused cells that keep two lanes on different cache lines.
const PADDING: usize = 8;

#[derive(Debug, Default)]
struct Cell {
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// Packets, and their bytes without preamble and frame check sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HopCount {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl std::ops::AddAssign for HopCount {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

#[derive(Debug)]
pub(crate) struct HopCounts {
    /// By lane, then by id. The cell at `others` counts all higher ids.
    lanes: Box<[Box<[Cell]>]>,
    others: usize,
    before: Option<Arc<Self>>,
}

impl HopCounts {
    pub(crate) fn new(lanes: usize, last: u32) -> Self {
        let others = (last as usize + 1).next_power_of_two().max(CELLS_MIN);
        let lane = |_| (0..=others + PADDING).map(|_| Cell::default()).collect();
        Self { lanes: (0..lanes).map(lane).collect(), others, before: None }
    }

    pub(crate) fn with_room(self: &Arc<Self>, last: u32) -> Arc<Self> {
        if self.has_room(last) {
            return Arc::clone(self);
        }
        Arc::new(Self { before: Some(Arc::clone(self)), ..Self::new(self.lanes.len(), last) })
    }

    pub(crate) fn has_room(&self, last: u32) -> bool {
        (last as usize) < self.others
    }

    /// Counts the packets of a batch that has its verdict. Called only by the stage that owns the lane.
    #[inline(never)]
    pub(crate) fn count(&self, lane: usize, batch: &Batch) {
        let Some(cells) = self.lanes.get(lane) else { return };
        for (place, index) in batch.indices[..batch.packets.len()].iter().enumerate() {
            // Packets dropped earlier or without a route have no next hop.
            if *index == super::batch::NO_ENTRY || *index == 0 {
                continue;
            }
            let Some(cell) = cells.get((*index as usize).min(self.others)) else { continue };
            let bytes = u64::from(batch.packets.pkt_len(place));
            cell.packets.store(cell.packets.load(Relaxed) + 1, Relaxed);
            cell.bytes.store(cell.bytes.load(Relaxed) + bytes, Relaxed);
        }
    }

    fn sets(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |set| set.before.as_deref())
    }

    fn sum(&self, at: usize) -> HopCount {
        let mut sum = HopCount::default();
        for cell in self.lanes.iter().filter_map(|cells| cells.get(at)) {
            sum += HopCount { packets: cell.packets.load(Relaxed), bytes: cell.bytes.load(Relaxed) };
        }
        sum
    }

    pub(crate) fn count_of(&self, id: NextHopId) -> HopCount {
        let mut count = HopCount::default();
        let at = id.get() as usize;
        self.sets().filter(|set| at < set.others).for_each(|set| count += set.sum(at));
        count
    }

    /// The next ids from `start` on that do not share a cell: at least one, reading at most `cells_max` cells over all lanes.
    pub(crate) fn ids(&self, start: u32, cells_max: usize) -> std::ops::Range<u32> {
        let last = u32::try_from(self.others).unwrap_or(u32::MAX);
        let count = (cells_max / (self.lanes.len() * self.sets().count()).max(1)).max(1);
        start..last.min(start.saturating_add(u32::try_from(count).unwrap_or(u32::MAX)))
    }

    pub(crate) fn others(&self) -> HopCount {
        let mut count = HopCount::default();
        self.sets().for_each(|set| count += set.sum(set.others));
        count
    }

    /// Clears the counts of ids that are not in use, so that they can be reassigned. No lcore may still hold a packet for such an id.
    pub(crate) fn forget(&self, is_in_use: impl Fn(NextHopId) -> bool) {
        for set in self.sets() {
            for (at, id) in (0_u32..).map(NextHopId::from_answer).enumerate().take(set.others) {
                if set.sum(at) == HopCount::default() || is_in_use(id) {
                    continue;
                }
                for cell in set.lanes.iter().filter_map(|cells| cells.get(at)) {
                    cell.packets.store(0, Relaxed);
                    cell.bytes.store(0, Relaxed);
                }
            }
        }
    }
}

#[cfg(test)]
impl HopCounts {
    pub(crate) fn add(&self, lane: usize, id: u32, count: HopCount) {
        let cell = &self.lanes[lane][id as usize];
        cell.packets.fetch_add(count.packets, Relaxed);
        cell.bytes.fetch_add(count.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::EgressTable;
    use super::super::egress::tests::ports;
    use super::super::parse::parse;
    use super::super::test_frames::{self, V4, V6};
    use super::super::verdict::verdict;
    use super::*;
    use fib::{Group, NextHop, NextHopTable, PortRef};

    fn id(value: u32) -> NextHopId {
        NextHopId::from_answer(value)
    }

    fn batch(answers: &[NextHopId], table: &EgressTable) -> Option<Batch> {
        let frame = |at: usize| {
            let [high, low] = u16::try_from(at).unwrap().to_be_bytes();
            V4 { destination: [10, 1, high, low], payload_bytes: 30, ..V4::default() }.frame()
        };
        let mut frames: Vec<_> = (0..answers.len()).map(frame).collect();
        frames.push(V6 { hop_limit: 1, ..V6::default() }.frame());
        let mut batch = test_frames::batch(&frames)?;
        parse(&mut batch);
        batch.v4.hops[..answers.len()].copy_from_slice(answers);
        verdict(&mut batch, table);
        Some(batch)
    }

    #[test]
    fn each_lane_counts_and_the_sum_is_over_all() {
        let mut hops = NextHopTable::new();
        let path = |port| (NextHop::Connected { port: PortRef::Index(port) }, 1);
        let group = hops.intern(Group::next_hop([path(0), path(1)]).unwrap()).unwrap();
        let black = hops.intern(NextHop::Blackhole).unwrap();
        let table = EgressTable::new(&hops, &ports(4)).unwrap();
        let mut answers = vec![id(700), id(700), NextHopId::NONE, black, id(5000), id(5000)];
        answers.extend([group; 100]);
        let Some(batch) = batch(&answers, &table) else { return };
        let counts = HopCounts::new(2, 9);
        counts.count(0, &batch);
        counts.count(1, &batch);
        counts.count(1, &batch);
        // A lane that did not exist when counting began.
        counts.count(2, &batch);
        let of = |packets| HopCount { packets, bytes: packets * 64 };
        assert_eq!(counts.count_of(id(700)), of(6));
        assert_eq!((counts.count_of(black), counts.others()), (of(3), of(6)));
        assert_eq!(counts.count_of(group), of(0), "its paths count");
        let paths: Vec<_> =
            [0, 1].map(|port| hops.find(&path(port).0).unwrap()).map(|id| counts.count_of(id)).into();
        assert_eq!(paths[0].packets + paths[1].packets, 300);
        assert!(
            paths.iter().all(|count| count.packets > 60 && count.bytes == count.packets * 64),
            "{paths:?}"
        );
        let named = (1..1024).map(|value| counts.count_of(id(value)).packets).sum::<u64>();
        assert_eq!(named, 3 * 103, "neither the one without a route nor the dropped one");
    }

    #[test]
    fn a_larger_set_keeps_what_was_counted_and_what_still_is() {
        let table = EgressTable::new(&NextHopTable::new(), &ports(4)).unwrap();
        let Some(batch) = batch(&[id(7), id(3000)], &table) else { return };
        let small = Arc::new(HopCounts::new(1, 7));
        small.count(0, &batch);
        assert!(Arc::ptr_eq(&small, &small.with_room(1023)), "there is room");
        let large = small.with_room(3000);
        large.count(0, &batch);
        small.count(0, &batch);
        let of = |packets| HopCount { packets, bytes: packets * 64 };
        assert_eq!((large.count_of(id(7)), large.count_of(id(3000)), large.others()), (of(3), of(1), of(2)));
        large.forget(|id| id.get() == 3000);
        assert_eq!((large.count_of(id(7)), large.count_of(id(3000)), large.others()), (of(0), of(1), of(2)));
        small.count(0, &batch);
        assert_eq!(large.count_of(id(7)), of(1), "an id with another meaning starts at 0");
    }
}
