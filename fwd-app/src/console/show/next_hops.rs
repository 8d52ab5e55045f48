//! Packets by next hop, read a slice per turn, so that many next hops and lcores do not block the control thread.

use crate::console::{Answer, Steering};
use crate::datapath::hop_counts::{HopCount, HopCounts};
use crate::report::columns::{Columns, grouped};
use fib::{NextHop, NextHopId, NextHopTable};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;

/// Limit of next hops per answer, which bounds its size.
const SHOWN_MAX: usize = 10_000;
/// Counter cells read per slice, in less than a millisecond.
const SLICE_CELLS: usize = 1 << 13;

impl Steering<'_> {
    /// Starts or stops the counters of all VRFs. Earlier counts are lost.
    pub(in crate::console) fn count_next_hops(&mut self, on: bool) -> Answer {
        let lanes = self.forwarder.running().lanes();
        for number in 0..self.forwarder.vrfs().len() {
            let vrf = self.forwarder.vrf_mut(number);
            if vrf.egress.counts().is_some() != on {
                vrf.count_next_hops(on.then_some(lanes));
            }
        }
        Answer::done()
    }

    /// The busiest next hops first.
    pub(super) fn next_hops(&self, counted: &CountedHops) -> Answer {
        let mut busiest: Vec<_> = counted.busiest.iter().collect();
        busiest.sort_unstable();
        let ports = self.forwarder.ports();
        let shown = busiest.into_iter().map(|BusyHop { packets, told, bytes, hop, .. }| NextHopShown {
            id: told.get(),
            next_hop: ports.shown(hop).to_string(),
            packets: packets.0,
            bytes: *bytes,
        });
        let HopCount { packets, bytes } = counted.others;
        let others = OtherHopsShown { packets, bytes };
        Answer::new(NextHopsShown { on: true, next_hops: shown.collect(), others })
    }

    pub(super) fn next_hops_off() -> Answer {
        Answer::new(NextHopsShown::default())
    }
}

/// A used next hop; the greatest in this order has the fewest packets.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct BusyHop {
    packets: Reverse<u64>,
    id: NextHopId,
    bytes: u64,
    told: NextHopId,
    hop: NextHop,
}

/// A count in progress over the next hops of a VRF.
pub(in crate::console) struct CountedHops {
    counts: Arc<HopCounts>,
    next: u32,
    busiest: BinaryHeap<BusyHop>,
    others: HopCount,
}

impl CountedHops {
    pub(super) fn new(counts: Arc<HopCounts>) -> Self {
        let others = counts.others();
        Self { counts, next: 1, busiest: BinaryHeap::new(), others }
    }

    /// Counts the next slice of `hops`. Returns whether it was the last one.
    pub(super) fn turn(&mut self, hops: &NextHopTable) -> bool {
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

#[derive(Serialize)]
struct NextHopShown {
    /// The id in the route file.
    id: u32,
    next_hop: String,
    packets: u64,
    /// Without preamble and frame check sequence.
    bytes: u64,
}

/// Sum over the next hops that are not listed.
#[derive(Default, Serialize)]
struct OtherHopsShown {
    packets: u64,
    bytes: u64,
}

#[derive(Default, Serialize)]
struct NextHopsShown {
    on: bool,
    next_hops: Vec<NextHopShown>,
    others: OtherHopsShown,
}

impl fmt::Display for NextHopsShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.on {
            return writeln!(f, "not counted; 'set next-hop-counters on' counts packets by next hop");
        }
        let mut columns = Columns::new(["id", "packets", "bytes", "next hop"]);
        for NextHopShown { id, next_hop, packets, bytes } in &self.next_hops {
            columns.row([id.to_string(), grouped(packets), grouped(bytes), next_hop.clone()]);
        }
        let OtherHopsShown { packets, bytes } = self.others;
        if packets > 0 {
            columns.row(["others".to_owned(), grouped(packets), grouped(bytes), String::new()]);
        }
        columns.fmt(f)
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
        // The n-th has n packets, on two lanes.
        for (packets, id) in (0..).zip(&ids) {
            counts.add(0, id.get(), HopCount { packets, bytes: 64 * packets });
            counts.add(lanes - 1, id.get(), HopCount { packets: 0, bytes: 1 });
        }
        let mut counted = CountedHops::new(Arc::new(counts));
        let mut turns = 0;
        loop {
            let before = counted.next;
            turns += 1;
            let is_last = counted.turn(&hops);
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
