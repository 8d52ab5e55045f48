//! Counts of routes and of packets by next hop that take several turns, and the requests that wait for them.

use crate::console::grammar::request::Show;
use crate::console::{Answer, Refusal};
use crate::datapath::hop_counts::{HopCount, HopCounts};
use crate::routes::candidates::OutcomeCounts;
use crate::routes::listing::RouteCounts;
use fib::{NextHop, NextHopId, NextHopTable};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

const SHOWN_MAX: usize = 10_000;
/// Counter cells read per slice, in less than a millisecond.
const SLICE_CELLS: usize = 1 << 13;

/// While this many requests wait for a count, none from other users are taken.
const WAITING_MAX: usize = 64;

pub(super) type Reply = Box<dyn FnOnce(Result<Answer, Refusal>) + Send>;

pub(super) struct CountWanted {
    pub(super) vrf: usize,
    pub(super) what: Show,
    pub(super) reply: Reply,
}

impl CountWanted {
    /// Requests of the same key share a count.
    pub(super) fn key(&self) -> (usize, Show) {
        (self.vrf, if self.what == Show::Fib { Show::Routes } else { self.what })
    }
}

pub(super) enum CountsSoFar {
    Routes(Box<RouteCounts>),
    Feeds(OutcomeCounts),
    NextHops(CountedHops),
}

#[derive(Default)]
pub(super) struct Counting {
    pub(super) running: Option<CountsSoFar>,
    pub(super) current: Vec<CountWanted>,
    pub(super) later: Vec<CountWanted>,
}

impl Counting {
    pub(super) fn has_room(&self) -> bool {
        self.current.len() + self.later.len() < WAITING_MAX
    }
}

/// A used next hop; the greatest in this order has the fewest packets.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BusyHop {
    pub(super) packets: Reverse<u64>,
    pub(super) id: NextHopId,
    pub(super) bytes: u64,
    pub(super) told: NextHopId,
    pub(super) hop: NextHop,
}

pub(super) struct CountedHops {
    pub(super) counts: Arc<HopCounts>,
    pub(super) next: u32,
    pub(super) busiest: BinaryHeap<BusyHop>,
    pub(super) others: HopCount,
}

impl CountedHops {
    pub(super) fn new(counts: Arc<HopCounts>) -> Self {
        let others = counts.others();
        Self { counts, next: 1, busiest: BinaryHeap::new(), others }
    }

    /// Counts the next slice of `hops`. Returns whether it was the last one.
    pub(super) fn count_slice(&mut self, hops: &NextHopTable) -> bool {
        let ids = self.counts.ids(self.next, SLICE_CELLS);
        let is_last = ids.is_empty();
        self.next = ids.end;
        for id in ids.map(NextHopId::from_answer) {
            let count = self.counts.count_of(id);
            if let (1.., Some(hop)) = (count.packets, hops.get(id)) {
                let HopCount { packets, bytes } = count;
                let (told, hop) = (hops.announced_id(id), hop.clone());
                self.busiest.push(BusyHop { packets: Reverse(packets), id, bytes, told, hop });
            }
            if self.busiest.len() > SHOWN_MAX
                && let Some(BusyHop { packets, bytes, .. }) = self.busiest.pop()
            {
                self.others += HopCount { packets: packets.0, bytes };
            }
        }
        is_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::PortRef;

    #[test]
    fn many_next_hops_are_read_in_slices_and_the_busiest_are_shown() {
        let (mut hops, lanes) = (NextHopTable::new(), 8);
        let gateway = |number: u32| NextHop::Gateway {
            gateway: std::net::Ipv4Addr::from(0x0a00_0000 + number).into(),
            port: PortRef::Index(0),
        };
        let ids: Vec<_> = (0..30_000).map(|number| hops.intern(gateway(number)).unwrap()).collect();
        let counts = HopCounts::new(lanes, ids.iter().map(|id| id.get()).max().unwrap());
        for (packets, id) in (0..).zip(&ids) {
            counts.add(0, id.get(), HopCount { packets, bytes: 64 * packets });
            counts.add(lanes - 1, id.get(), HopCount { packets: 0, bytes: 1 });
        }
        let mut counted = CountedHops::new(Arc::new(counts));
        let mut turns = 0;
        loop {
            let before = counted.next;
            turns += 1;
            let is_last = counted.count_slice(&hops);
            assert!((counted.next - before) as usize * lanes <= SLICE_CELLS);
            if is_last {
                break;
            }
        }
        assert!(turns > 30_000 * lanes / SLICE_CELLS, "{turns}");
        let busiest = counted.busiest.into_sorted_vec();
        let shown: Vec<_> = busiest.iter().map(|hop| (hop.packets.0, hop.bytes)).collect();
        let wanted: Vec<_> = (20_000..30_000).rev().map(|packets| (packets, 64 * packets + 1)).collect();
        assert_eq!(shown, wanted);
        assert_eq!(busiest[0].hop, gateway(29_999));
        assert_eq!(counted.others.packets, (0..20_000).sum::<u64>());
    }
}
