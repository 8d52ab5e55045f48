//! The datapath: `rx -> parse -> batch -> lookup -> verdict -> rewrite -> tx`, a file each.
//!
//! Each stage is a pass over the arrays of one [`Batch`], not a loop per packet, and updates its counters once a burst. What a pass
//! does to every packet is a kernel of [`dpdk_ffi::simd`]; what only some packets need is done one by one. A packet leaves
//! exactly once: it is sent, handed to the router (punted), or counted under one [`DropReason`]. The invariant is
//! `rx + originated == tx + punted + sum(drops) + held`. Nothing here allocates, locks, logs or divides once it runs.
//!
//! | module | what lives there |
//! |---|---|
//! | [`drop_reason`] | [`DropReason`], [`Drops`]: why a packet was dropped |
//! | [`batch`] | [`Batch`]: packets and their parsed fields, as arrays |
//! | [`rx`] | moves packets of a queue into a batch, and decides when the batch goes on |
//! | [`vlans`] | takes packets of other VRFs out of a batch, by their VLAN |
//! | [`check`] | the check of one packet against the rules for packets that may be forwarded |
//! | [`parse`] | checks the headers of a burst, collects destinations |
//! | [`lookup`] | resolves destinations to next hops, through an engine |
//! | [`swap`] | [`Swap`](swap::Swap): exchanges a value with a running lcore |
//! | [`port_queues`] | the queues of a port that goes out of use, or comes back |
//! | [`egress`] | [`EgressTable`]: port, MACs and MTU of each next hop, and the paths of groups |
//! | [`hop_counts`] | packets and bytes by next hop |
//! | [`flow`] | the hash of a packet's flow, which chooses its path |
//! | [`choose`] | gives packets of groups their path |
//! | [`punt`] | packets for the router, which are handed over |
//! | [`punt_class`] | the classes of those packets |
//! | [`fragment`] | fragments of packets above the MTU |
//! | [`limit`] | how much an lcore does off the fast path |
//! | [`slot`] | [`Slot`](slot::Slot): what is known of a packet between parse and tx |
//! | [`verdict`] | turns next hops into ports or drop reasons |
//! | [`rewrite`] | rewrites MACs, TTL, checksum |
//! | [`tx`] | sends packets to the queues of their ports |
//! | [`watch`] | copies of packets, for captures and traces |
//! | [`counters`] | the counters of an lcore, and their published copy |
//! | [`latency`] | how long packets stayed in the forwarder |

pub(crate) mod batch;
pub(crate) mod check;
pub(crate) mod choose;
pub(crate) mod counters;
pub(crate) mod drop_reason;
pub(crate) mod egress;
pub(crate) mod flow;
pub(crate) mod fragment;
pub(crate) mod hop_counts;
pub(crate) mod latency;
pub(crate) mod limit;
pub(crate) mod lookup;
pub(crate) mod parse;
pub(crate) mod port_queues;
pub(crate) mod punt;
pub(crate) mod punt_class;
pub(crate) mod rewrite;
pub(crate) mod rx;
pub(crate) mod slot;
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
pub(crate) use egress::{Code, Egress, EgressError, EgressPort, EgressTable};
pub(crate) use latency::Latency;
pub(crate) use punt::PuntMarker;
