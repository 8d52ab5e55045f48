//! `show next-hops`: packets by next hop.

use crate::console::Answer;
use crate::console::counting::{BusyHop, CountedHops};
use crate::console::desk::Steering;
use crate::datapath::hop_counts::HopCount;
use crate::report::columns::{Columns, grouped};
use serde::Serialize;
use std::fmt;

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

#[derive(Serialize)]
struct NextHopShown {
    /// The id in the route file.
    id: u32,
    next_hop: String,
    packets: u64,
    /// Without preamble and frame check sequence.
    bytes: u64,
}

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
