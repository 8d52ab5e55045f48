//! Packets by next hop, while they are counted.

use crate::console::{Answer, Steering};
use crate::datapath::hop_counts::HopCount;
use crate::report::columns::{Columns, grouped};
use serde::Serialize;
use std::cmp::Reverse;
use std::fmt;

/// The most next hops of an answer: it has a limit of bytes.
const SHOWN_MAX: usize = 10_000;

impl Steering<'_> {
    /// Counts packets by next hop in all VRFs from now on, or does not any more. What was counted before is forgotten.
    pub(in crate::console) fn count_next_hops(&mut self, on: bool) -> Answer {
        let lanes = self.forwarder.running().lanes();
        for number in 0..self.forwarder.vrfs().len() {
            let vrf = self.forwarder.vrf_mut(number);
            if vrf.next_hop_counts().is_some() != on {
                vrf.count_next_hops(on.then_some(lanes));
            }
        }
        Answer::done()
    }

    /// The next hops that packets went to, the busiest first.
    pub(in crate::console) fn next_hops(&self) -> Answer {
        let vrf = self.vrf();
        let Some(counts) = vrf.next_hop_counts() else { return Answer::new(NextHopsShown::default()) };
        let hops = vrf.hops();
        let mut busy: Vec<_> = hops.iter().map(|(id, hop)| (counts.of(id), id, hop)).collect();
        busy.retain(|(count, ..)| count.packets > 0);
        busy.sort_by_key(|(count, id, _)| (Reverse(count.packets), *id));
        let mut others = counts.others();
        busy.iter().skip(SHOWN_MAX).for_each(|(count, ..)| others += *count);
        let shown = busy.iter().take(SHOWN_MAX).map(|(count, id, hop)| NextHopShown {
            id: hops.told(*id).get(),
            next_hop: hop.to_string(),
            packets: count.packets,
            bytes: count.bytes,
        });
        let HopCount { packets, bytes } = others;
        let others = OtherHopsShown { packets, bytes };
        Answer::new(NextHopsShown { on: true, next_hops: shown.collect(), others })
    }
}

#[derive(Serialize)]
struct NextHopShown {
    /// The id, as it was told.
    id: u32,
    next_hop: String,
    packets: u64,
    /// Bytes, without preamble and frame check sequence.
    bytes: u64,
}

/// Next hops that are not listed.
#[derive(Default, Serialize)]
struct OtherHopsShown {
    packets: u64,
    bytes: u64,
}

#[derive(Default, Serialize)]
struct NextHopsShown {
    /// Whether packets are counted.
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
