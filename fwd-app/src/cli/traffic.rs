//! The options of `replay` for generated packets, and for changes to the packets of a trace.

use super::values;
use crate::harness::make::FrameChanges;
use crate::harness::make::generate::{PACKETS_MAX, TrafficKind};
use crate::harness::make::sizes::SizeMix;
use clap::{ArgGroup, Args};
use fib::Rib;
use std::path::PathBuf;

/// Packets that are made, and changes to those of a trace.
#[derive(Clone, Debug, Args)]
#[command(
    next_help_heading = "Harness",
    group = ArgGroup::new("seeded").multiple(true).args(["generate", "remap", "imix", "sizes"])
)]
pub(crate) struct TrafficArgs {
    /// Make UDP packets instead of reading a trace, for the routes of the VRF default as they are loaded: `uniform`, to random addresses of
    /// the families that have routes; `table`, to a random address of a random route; `zipf`, in 200,000 IPv4 and 100,000 IPv6 flows, of
    /// which the k-th has a share proportional to 1/k; `flows=N`, in N flows in turn. The flows of the last two are those of `table`. All
    /// packets lie in memory
    #[arg(
        long,
        value_name = "uniform|table|zipf|flows=N",
        conflicts_with_all = ["trace", "limit"]
    )]
    pub(crate) generate: Option<TrafficKind>,

    /// Packets that are made; each takes its bytes and 24 more of memory [default: 65536, or one a flow]
    #[arg(long, value_name = "N", requires = "generate", conflicts_with = "trace", value_parser = values::count::<usize>(1..=PACKETS_MAX as u64))]
    pub(crate) packets: Option<usize>,

    /// Percent of the packets that are made, or of their flows, that are IPv6 [default: 50 where both families have routes]
    #[arg(long, value_name = "PERCENT", requires = "generate", conflicts_with = "trace", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) v6_share: Option<u8>,

    /// Sizes of the frames, as testers count them, with the 4 bytes of their checksum: 64 are 60 in memory. Each has the share of its
    /// weight, 1 if there is none. Or the letters of an IMIX genome (RFC 6985), such as aaag, whose order is kept. Or `original`: packets that
    /// the trace has cut are filled with zeros. Payloads are cut or filled, headers never; what is no IP packet stays. The ports have
    /// an MTU of 1500 bytes: frames above 1518 become fragments, or are dropped [default: as they are in the trace; 64 where they are
    /// made]
    #[arg(long, value_name = "BYTES[:WEIGHT],..|LETTERS|original")]
    pub(crate) sizes: Option<SizeMix>,

    /// The simple IMIX, as TRex has it: --sizes 64:7,594:4,1518:1, on average 361.83 bytes. Others have 570 in place of 594
    #[arg(long, conflicts_with = "sizes")]
    pub(crate) imix: bool,

    /// Map the destinations of the trace to addresses of the routes of the VRF default as they are loaded, so that an anonymised trace has
    /// routes: an address always to the same one, and those of a /24 or an IPv6 /64 to one such block. Sources stay, and so do
    /// destinations that are no unicast addresses, or of a family without routes
    #[arg(long, conflicts_with = "generate")]
    pub(crate) remap: bool,

    /// Seed of the packets that are made, of the order of sizes, and of --remap
    #[arg(long, value_name = "N", default_value_t = 1, requires = "seeded")]
    pub(crate) seed: u64,

    /// Write the packets as they are to be received to a pcap file
    #[arg(long, value_name = "FILE")]
    pub(crate) save_trace: Option<PathBuf>,
}

impl TrafficArgs {
    pub(crate) fn sizes(&self) -> Option<SizeMix> {
        if self.imix { Some(SizeMix::imix()) } else { self.sizes.clone() }
    }

    /// The seed, if an option uses it.
    pub(crate) fn seed_used(&self) -> Option<u64> {
        (self.generate.is_some() || self.remap || self.imix || self.sizes.is_some()).then_some(self.seed)
    }

    pub(crate) fn changes(&self, rib: &Rib) -> FrameChanges {
        FrameChanges::new(self.sizes().as_ref(), self.remap.then_some(rib), self.seed)
    }
}
