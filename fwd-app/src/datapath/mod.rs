//! The datapath: `rx -> parse -> batch -> lookup -> verdict -> rewrite -> tx`, one file each.
//!
//! Each stage is a pass over the arrays of one [`Batch`]. Work on every packet is a kernel of [`dpdk_ffi::simd`]; rare cases are handled
//! one by one. A packet leaves exactly once: it is sent, handed to the router (punted), or counted under one [`DropReason`]. The invariant
//! is `rx + originated == tx + punted + sum(drops) + held`. The running datapath does not allocate, lock, log or divide.
//!
//! | module | purpose |
//! |---|---|
//! | [`drop_reason`] | [`DropReason`], [`Drops`]: why a packet was dropped; the classes of punts |
//! | [`batch`] | [`Batch`]: packets and their parsed fields, as arrays |
//! | [`rx`] | receives packets of a queue into a batch |
//! | [`vlans`] | moves packets of other VRFs out of a batch, by VLAN |
//! | [`check`] | checks one packet against the forwarding rules |
//! | [`parse`] | checks the headers of a burst, collects destinations |
//! | [`lookup`] | resolves destinations to next hops through an engine |
//! | [`audit`] | copies of some answers, for comparison with the RIB |
//! | [`swap`] | [`Swap`](swap::Swap): exchanges a value with a running lcore |
//! | [`port_queues`] | the queues of a port that goes out of use or returns |
//! | [`egress`] | [`EgressTable`]: port, MACs and MTU of each next hop, and the paths of groups |
//! | [`exit`] | [`Exit`]: port, drop reason or another exit of a packet |
//! | [`hop_counts`] | packets and bytes by next hop |
//! | [`flow`] | the flow hash, which selects paths |
//! | [`choose`] | selects the path of packets to groups |
//! | [`punt`] | packets for the router, and the rate limit of work off the fast path |
//! | [`fragment`] | fragments of packets above the MTU |
//! | [`packet_state`] | [`PacketState`](packet_state::PacketState): state of a packet between parse and tx |
//! | [`verdict`] | turns next hops into ports or drop reasons |
//! | [`rewrite`] | rewrites MACs, TTL, checksum |
//! | [`tx`] | sends packets to the queues of their ports |
//! | [`watch`] | copies of packets for captures and traces |
//! | [`counters`] | counters of an lcore, and their published copy |
//! | [`latency`] | histograms of the time in the forwarder |

pub(crate) mod audit;
pub(crate) mod batch;
pub(crate) mod check;
pub(crate) mod choose;
pub(crate) mod counters;
pub(crate) mod drop_reason;
pub(crate) mod egress;
pub(crate) mod exit;
pub(crate) mod flow;
pub(crate) mod fragment;
pub(crate) mod hop_counts;
pub(crate) mod latency;
pub(crate) mod lookup;
pub(crate) mod packet_state;
pub(crate) mod parse;
pub(crate) mod port_queues;
pub(crate) mod punt;
pub(crate) mod rewrite;
pub(crate) mod rx;
pub(crate) mod swap;
#[cfg(test)]
pub(crate) mod test_frames;
pub(crate) mod tx;
pub(crate) mod verdict;
pub(crate) mod vlans;
pub(crate) mod watch;

pub(crate) use batch::Batch;
pub(crate) use counters::{Counters, Published, StageName};
pub(crate) use drop_reason::{DropReason, Drops};
pub(crate) use egress::{EgressError, EgressPort, EgressTable};
pub(crate) use exit::{Egress, Exit};
pub(crate) use latency::Latency;
pub(crate) use punt::PuntMarker;

#[cfg(any(test, feature = "testing"))]
impl Batch {
    /// A batch whose keys are in separate memory.
    #[expect(clippy::unwrap_used, reason = "a test without memory fails")]
    pub(crate) fn alone(packets: dpdk_ffi::Burst) -> Self {
        let bytes = Self::key_bytes(packets.capacity());
        Self::new(
            packets,
            &mut lpm_core::memory::KeyArena::new(bytes, lpm_core::memory::Placement::default()).unwrap(),
        )
        .unwrap()
    }
}
