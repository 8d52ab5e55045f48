//! The options of `replay` for generated packets, and for changes to the packets of a trace.

use super::values;
use crate::harness::make::FrameChanges;
use crate::harness::make::generate::{PACKETS_MAX, TrafficKind};
use crate::harness::make::sizes::SizeMix;
use clap::{ArgGroup, Args};
use fib::Rib;
use std::path::PathBuf;

/// Generated packets, and changes to the packets of a trace.
#[derive(Clone, Debug, Args)]
#[command(
    next_help_heading = "Harness",
    group = ArgGroup::new("seeded").multiple(true).args(["generate", "remap", "imix", "sizes"])
)]
pub(crate) struct TrafficArgs {
    /// Generate UDP packets for the routes of the default VRF instead of reading a trace
    ///
    /// `uniform`: random addresses of the families that have routes. `table`: a random address of a random route. `zipf`: 200,000 IPv4
    /// and 100,000 IPv6 flows; the share of flow k is proportional to 1/k. `flows=N`: N flows in turn. The addresses of flows are chosen
    /// as for `table`. All packets are held in memory.
    #[arg(
        long,
        value_name = "uniform|table|zipf|flows=N",
        conflicts_with_all = ["trace", "limit"]
    )]
    pub(crate) generate: Option<TrafficKind>,

    /// Number of generated packets [default: 65536, or one a flow]
    ///
    /// Each needs its size and 24 more bytes of memory.
    #[arg(long, value_name = "N", requires = "generate", conflicts_with = "trace", value_parser = values::count::<usize>(1..=PACKETS_MAX as u64))]
    pub(crate) packets: Option<usize>,

    /// Percentage of IPv6 among generated packets or flows [default: 50 if both families have routes]
    #[arg(long, value_name = "PERCENT", requires = "generate", conflicts_with = "trace", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) v6_share: Option<u8>,

    /// Sizes of the frames, including their checksum of 4 bytes
    ///
    /// Values: sizes, with optional weights, such as 64:7,1518:1; letters of an IMIX genome (RFC 6985) such as aaag, whose order is kept;
    /// or `original`, which restores the length of truncated packets with zeros. Payloads are cut or padded, headers never; packets that
    /// are not IP are not changed. The MTU of the ports is 1500 bytes: frames above 1518 bytes become fragments or are dropped. By
    /// default, sizes of a trace are kept, and generated frames have 64 bytes.
    #[arg(long, value_name = "BYTES[:WEIGHT],..|LETTERS|original")]
    pub(crate) sizes: Option<SizeMix>,

    /// The simple IMIX of TRex: --sizes 64:7,594:4,1518:1, on average 361.83 bytes
    ///
    /// Other definitions have 570 instead of 594.
    #[arg(long, conflicts_with = "sizes")]
    pub(crate) imix: bool,

    /// Map the destinations of the trace to addresses within the routes of the default VRF
    ///
    /// The packets of an anonymised trace get routes in this way. An address is always mapped to the same address, and a /24 or an IPv6
    /// /64 to one such block. Sources are not changed, nor are destinations that are not unicast or whose family has no routes.
    #[arg(long, conflicts_with = "generate")]
    pub(crate) remap: bool,

    /// Seed of generated packets, of the order of sizes, and of --remap
    #[arg(long, value_name = "N", default_value_t = 1, requires = "seeded")]
    pub(crate) seed: u64,

    /// Write the packets, as the forwarder receives them, to a pcap file
    #[arg(long, value_name = "FILE")]
    pub(crate) save_trace: Option<PathBuf>,
}

impl TrafficArgs {
    pub(crate) fn sizes(&self) -> Option<SizeMix> {
        if self.imix { Some(SizeMix::imix()) } else { self.sizes.clone() }
    }

    pub(crate) fn seed_used(&self) -> Option<u64> {
        (self.generate.is_some() || self.remap || self.imix || self.sizes.is_some()).then_some(self.seed)
    }

    pub(crate) fn changes(&self, rib: &Rib) -> FrameChanges {
        FrameChanges::new(self.sizes().as_ref(), self.remap.then_some(rib), self.seed)
    }
}
