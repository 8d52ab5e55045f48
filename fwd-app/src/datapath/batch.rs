//! A batch: packets of one RX queue and their parsed fields, as arrays.
//!
//! Rx fills `packets`, parse fills the lanes, lookup their next hops, verdict the egress entry and the port of every packet,
//! rewrite changes the headers, and tx empties the batch. All arrays are allocated once, for as many packets as the batch may hold
//! and the padding of the vector kernels, and reused. The lanes hold packets by family; all other arrays go by the index of a packet
//! in `packets`, its place.
//!
//! Invariant: packets are in order of arrival. Every parsed packet is in exactly one state: it is in a lane, or its index in the egress
//! table is [`NO_ENTRY`] and it is counted in `drops`.

use super::slot::Slot;
use super::{DropReason, Drops, Egress, PuntMarker};
use dpdk_ffi::Burst;
use dpdk_ffi::simd::{Array, Kind, LengthOrMark, PAD};
use fib::{Family, Keys, NextHopId};

/// In place of an index in the egress table: the packet is dropped.
pub(crate) const NO_ENTRY: u32 = u32::MAX;

/// The packets of one family: parallel arrays, the first `len` entries of each in use.
///
/// Within a burst the frames that the kernel passes come first, in order of arrival, then those of the slow path, in order of
/// arrival. `packets` maps each entry to its place in the batch, so nothing depends on the order.
#[derive(Debug)]
pub(crate) struct KeyLane {
    /// Place in the batch of each packet.
    pub(crate) packets: Array<u16>,
    /// The next hops that the engine returned.
    pub(crate) hops: Array<NextHopId>,
    /// How many packets are in the lane.
    pub(crate) len: usize,
}

impl KeyLane {
    fn new(entries: usize) -> Self {
        Self { packets: array(entries), hops: Array::new(NextHopId::NONE, entries), len: 0 }
    }
}

/// A packet with VLAN tags that passed its checks: the rewrite kernel does not find its IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tagged {
    /// Its place in the batch.
    pub(crate) place: u16,
    /// The offset of its IP header, 18 or 22.
    pub(crate) ip_at: u8,
    /// Whether it is IPv6.
    pub(crate) is_v6: bool,
}

/// When packets were received: `packets` of them at `tsc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Time stamp counter just after the burst was received.
    pub(crate) tsc: u64,
    /// How many packets the burst had.
    pub(crate) packets: u32,
}

/// A batch of packets with everything the stages derive from them.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The packets.
    pub(crate) packets: Burst,
    /// Number of the RX queue they came from, counted over all ports.
    pub(crate) input: usize,
    /// Number of the VRF that all of them are in.
    pub(crate) vrf: usize,
    /// How many of them have been parsed.
    pub(crate) parsed: usize,
    /// IPv4 destinations, in the order of `v4`.
    pub(crate) keys4: Array<u32>,
    /// IPv6 destinations, first and last 64 bits, in the order of `v6`.
    pub(crate) keys6: (Array<u64>, Array<u64>),
    /// IPv4 packets.
    pub(crate) v4: KeyLane,
    /// IPv6 packets.
    pub(crate) v6: KeyLane,
    /// What the rewrite kernel does to each packet.
    pub(crate) kinds: Array<Kind>,
    /// What is known of each packet: a [`Slot`].
    pub(crate) slots: Array<LengthOrMark>,
    /// The packets with tags, of those in a lane.
    pub(crate) tagged: Vec<Tagged>,
    /// The index of each packet in the egress table: its next hop, written by verdict, or [`NO_ENTRY`], written when it is
    /// dropped.
    pub(crate) indices: Array<u32>,
    /// Every packet so far passed the kernel and is in a lane. Then both lanes are in order of arrival, and a packet's kind tells which
    /// has it.
    pub(crate) is_plain: bool,
    /// The egress entry of each packet.
    pub(crate) egress: Array<Egress>,
    /// The egress port of each packet; [`Code::DROPPED`](super::Code::DROPPED), or [`Code::FRAGMENT`](super::Code::FRAGMENT) for one that
    /// leaves as fragments by the port of its egress entry.
    pub(crate) ports: Array<u16>,
    /// Bytes of the packets that have been parsed.
    pub(crate) bytes: u64,
    /// Packets of this batch that are dropped.
    pub(crate) drops: Drops,
    /// How its punts are marked; `None` when its port has no addresses.
    pub(crate) punting: Option<PuntMarker>,
    /// When the packets were received, one stamp a burst.
    stamps: Array<Stamp>,
    stamps_len: usize,
}

/// An array of `entries` default values.
fn array<T: Copy + Default>(entries: usize) -> Array<T> {
    Array::new(T::default(), entries)
}

impl Batch {
    /// An empty batch over `packets`, itself empty, for as many packets as it holds: 65,536 at most.
    pub(crate) fn new(packets: Burst) -> Self {
        let packets_max = packets.capacity();
        let entries = packets_max + PAD;
        Self {
            packets,
            input: 0,
            vrf: 0,
            parsed: 0,
            keys4: array(entries),
            keys6: (array(entries), array(entries)),
            v4: KeyLane::new(entries),
            v6: KeyLane::new(entries),
            kinds: array(entries),
            slots: array(entries),
            tagged: Vec::with_capacity(packets_max),
            indices: array(entries),
            is_plain: true,
            egress: array(entries),
            ports: array(entries),
            bytes: 0,
            drops: Drops::default(),
            punting: None,
            stamps: array(packets_max),
            stamps_len: 0,
        }
    }

    /// The IPv4 keys.
    pub(crate) fn keys_v4(&self) -> Keys<'_> {
        Keys::V4(&self.keys4[..self.v4.len])
    }

    /// The IPv6 keys.
    pub(crate) fn keys_v6(&self) -> Keys<'_> {
        Keys::V6 { hi: &self.keys6.0[..self.v6.len], lo: &self.keys6.1[..self.v6.len] }
    }

    /// Records that `packets` more packets were received at `tsc`. A batch has at most as many stamps as packets.
    pub(crate) fn stamp(&mut self, tsc: u64, packets: u32) {
        if let Some(stamp) = self.stamps.get_mut(self.stamps_len) {
            *stamp = Stamp { tsc, packets };
            self.stamps_len += 1;
        }
    }

    /// When the packets were received, oldest first.
    pub(crate) fn stamps(&self) -> &[Stamp] {
        &self.stamps[..self.stamps_len]
    }

    /// What is known of the packet at `place`.
    pub(crate) fn slot(&self, place: usize) -> Slot {
        Slot::of(self.slots[place])
    }

    /// The next hop of the packet at `place`, if it was looked up.
    pub(crate) fn next_hop(&self, place: usize) -> Option<u32> {
        Some(self.indices[place]).filter(|index| *index != NO_ENTRY)
    }

    /// Drops every packet of a family for `reason`.
    pub(crate) fn drop_lane(&mut self, family: Family, reason: DropReason) {
        let lane = match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        };
        for packet in &lane.packets[..lane.len] {
            self.indices[usize::from(*packet)] = NO_ENTRY;
            self.slots[usize::from(*packet)] = Slot::Dropped(reason).word();
        }
        self.drops.add(reason, lane.len as u64);
        lane.len = 0;
        self.is_plain = false;
    }

    /// Resets everything but the packets, which tx has emptied.
    pub(crate) fn clear(&mut self) {
        self.parsed = 0;
        self.v4.len = 0;
        self.v6.len = 0;
        self.stamps_len = 0;
        self.bytes = 0;
        self.tagged.clear();
        self.is_plain = true;
        self.drops = Drops::default();
    }
}
