//! A batch: packets of one RX queue and their parsed fields, as arrays.
//!
//! Rx fills `packets`, parse the lanes, lookup their next hops, verdict the egress entries and ports; rewrite changes the headers, and tx
//! empties the batch. All arrays are allocated once, with padding for the vector kernels, and reused; the keys are in memory that readers
//! adopt. The lanes hold packets by family; all other arrays are indexed by a packet's place in `packets`. Invariant: packets are in order
//! of arrival; every parsed packet is in a lane, or its index is [`NO_ENTRY`] and it is counted in `drops` or marked as a punt.

use super::packet_state::PacketState;
use super::{DropReason, Drops, Egress, PuntMarker};
use dpdk_ffi::Burst;
use dpdk_ffi::simd::{AlignedArray, Kind, LengthOrMark, PAD};
use fib::{EngineError, Family, Keys, NextHopId};
use lpm_core::memory::{KeyArena, KeyArray};

pub(crate) const NO_ENTRY: u32 = u32::MAX;

/// The packets of one family: parallel arrays, of which the first `len` entries are in use. Within a burst, frames that pass the kernel
/// come first, then frames of the slow path, both in order of arrival; `packets` maps each entry to its place in the batch.
#[derive(Debug)]
pub(crate) struct KeyLane {
    /// Place of each packet in the batch.
    pub(crate) packets: AlignedArray<u16>,
    pub(crate) hops: AlignedArray<NextHopId>,
    pub(crate) len: usize,
}

impl KeyLane {
    fn new(entries: usize) -> Self {
        Self { packets: array(entries), hops: AlignedArray::new(NextHopId::NONE, entries), len: 0 }
    }
}

/// A valid packet with VLAN tags: the rewrite kernel does not find its IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tagged {
    pub(crate) place: u16,
    /// Offset of the IP header, 18 or 22.
    pub(crate) ip_at: u8,
    pub(crate) is_v6: bool,
}

/// Receive time of a burst of `packets` packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Time stamp counter just after the burst was received.
    pub(crate) tsc: u64,
    pub(crate) packets: u32,
}

#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) packets: Burst,
    /// Number of their RX queue, counted over all ports.
    pub(crate) input: usize,
    pub(crate) vrf: usize,
    pub(crate) parsed: usize,
    /// IPv4 destinations, in the order of `v4`.
    pub(crate) keys4: KeyArray<u32>,
    /// IPv6 destinations, first and last 64 bits, in the order of `v6`.
    pub(crate) keys6: (KeyArray<u64>, KeyArray<u64>),
    pub(crate) v4: KeyLane,
    pub(crate) v6: KeyLane,
    pub(crate) kinds: AlignedArray<Kind>,
    /// A [`PacketState`] for each packet.
    pub(crate) slots: AlignedArray<LengthOrMark>,
    pub(crate) tagged: Vec<Tagged>,
    /// Index of each packet in the egress table: its next hop, written by verdict, or [`NO_ENTRY`] if it was dropped or punted earlier.
    pub(crate) indices: AlignedArray<u32>,
    /// All packets so far passed the kernel and are in a lane. Then both lanes are in order of arrival, and the kind of a packet determines
    /// its lane.
    pub(crate) is_plain: bool,
    pub(crate) egress: AlignedArray<Egress>,
    /// The word of the exit of each packet: a port, [`Exit::Dropped`](super::Exit::Dropped) or [`Exit::Fragment`](super::Exit::Fragment).
    pub(crate) ports: AlignedArray<u16>,
    pub(crate) bytes: u64,
    pub(crate) drops: Drops,
    /// Marks punts; `None` when the port has no addresses.
    pub(crate) punting: Option<PuntMarker>,
    /// One per burst.
    stamps: AlignedArray<Stamp>,
    stamps_len: usize,
}

fn array<T: Copy + Default>(entries: usize) -> AlignedArray<T> {
    AlignedArray::new(T::default(), entries)
}

impl Batch {
    /// Bytes of the keys of a batch of `packets_max` packets.
    pub(crate) const fn key_bytes(packets_max: usize) -> usize {
        let entries = packets_max + PAD;
        KeyArena::bytes_of::<u32>(entries) + 2 * KeyArena::bytes_of::<u64>(entries)
    }

    /// The burst has room for at most 65,536 packets. The keys take [`Self::key_bytes`] of `keys`.
    ///
    /// # Errors
    /// [`EngineError::Full`] when `keys` has less left.
    pub(crate) fn new(packets: Burst, keys: &mut KeyArena) -> Result<Self, EngineError> {
        let packets_max = packets.capacity();
        let entries = packets_max + PAD;
        Ok(Self {
            packets,
            input: 0,
            vrf: 0,
            parsed: 0,
            keys4: keys.take(entries)?,
            keys6: (keys.take(entries)?, keys.take(entries)?),
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
        })
    }

    pub(crate) fn keys_v4(&self) -> Keys<'_> {
        Keys::V4(&self.keys4[..self.v4.len])
    }

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

    pub(crate) fn stamps(&self) -> &[Stamp] {
        &self.stamps[..self.stamps_len]
    }

    pub(crate) fn slot(&self, place: usize) -> PacketState {
        PacketState::from_word(self.slots[place])
    }

    pub(crate) fn next_hop(&self, place: usize) -> Option<u32> {
        Some(self.indices[place]).filter(|index| *index != NO_ENTRY)
    }

    pub(crate) fn drop_lane(&mut self, family: Family, reason: DropReason) {
        let lane = match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        };
        for packet in &lane.packets[..lane.len] {
            self.indices[usize::from(*packet)] = NO_ENTRY;
            self.slots[usize::from(*packet)] = PacketState::Dropped(reason).word();
        }
        self.drops.add(reason, lane.len as u64);
        lane.len = 0;
        self.is_plain = false;
    }

    /// Resets everything except the packets, which tx has emptied.
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
