//! The datapath: `rx -> parse -> batch -> lookup -> verdict -> rewrite -> tx`, a file each.
//!
//! Each is a pass over the arrays of one [`Batch`], not a loop per packet, and counters are kept a burst. Verdict and rewrite are one
//! pass where one lcore does both ([`verdict::verdict_and_rewrite`]); in a pipeline the engine's stage gives the verdict and a TX
//! stage rewrites. A packet leaves exactly once, sent or counted under one [`DropReason`]: `rx == tx + sum(drops) + held`. Nothing here
//! allocates, locks, logs or divides once it runs.
//!
//! | module | what lives there |
//! |---|---|
//! | [`drop_reason`] | [`DropReason`], [`Drops`]: why a packet did not leave |
//! | [`packets`] | [`Packets`]: headers and lengths by index, over mbufs or, in tests, byte vectors |
//! | [`batch`] | [`Batch`]: packets and what is known of them, as arrays |
//! | [`rx`] | a queue's packets into a batch, and when it is full |
//! | [`check`] | the rules for a packet that may be forwarded, and the check of one packet by them |
//! | [`parse`] | checks a burst, collects destinations |
//! | [`lookup`] | destinations to next hops, through an engine |
//! | [`egress`] | [`EgressTable`]: what a next hop means |
//! | [`verdict`] | next hops to ports or reasons |
//! | [`rewrite`] | MACs, TTL, checksum |
//! | [`tx`] | packets to their ports' queues |
//! | [`counters`] | what an lcore counts, and how others see it |
//! | [`latency`] | how long packets stayed |

pub(crate) mod batch;
pub(crate) mod check;
pub(crate) mod counters;
pub(crate) mod drop_reason;
pub(crate) mod egress;
pub(crate) mod latency;
pub(crate) mod lookup;
pub(crate) mod packets;
pub(crate) mod parse;
pub(crate) mod rewrite;
pub(crate) mod rx;
#[cfg(test)]
pub(crate) mod test_frames;
pub(crate) mod tx;
pub(crate) mod verdict;

pub(crate) use batch::Batch;
pub(crate) use counters::{Counters, Published, StageName};
pub(crate) use drop_reason::{DropReason, Drops};
pub(crate) use egress::{Code, Egress, EgressError, EgressPort, EgressTable};
pub(crate) use latency::Latency;
pub(crate) use packets::Packets;
