//! A batch: packets of one RX queue and their parsed fields, as arrays.
//!
//! Rx fills `packets`, parse fills the lanes, lookup their next hops, verdict the egress entries and the port of every packet,
//! rewrite changes the headers, and tx empties the batch. All arrays are allocated once, for as many packets as the batch may hold,
//! and reused.
//!
//! Invariant: packets are in order of arrival. Once `ports` is written, every parsed packet is in exactly one state: it has a port,
//! or it has [`Code::DROPPED`] and is counted in `drops`.

use super::{Code, DropReason, Drops, Egress};
use fib::{Family, Keys, NextHopId};

/// What kind of frame a packet is, for the rewrite pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way(u8);

impl Way {
    /// Untagged IPv4, at least 54 bytes of it in the first segment.
    pub(crate) const PLAIN_V4: Self = Self(1);
    /// Untagged IPv6, at least 54 bytes of it in the first segment.
    pub(crate) const PLAIN_V6: Self = Self(2);
    /// This bit marks an IPv6 frame; the other bits are the offset of the IP header.
    const ODD_V6: u8 = 0x80;

    /// A frame with VLAN tags, or a short one: its IP header starts at `ip_at`, 14 to 22.
    pub(crate) const fn odd(ip_at: u8, v6: bool) -> Self {
        Self(if v6 { ip_at | Self::ODD_V6 } else { ip_at })
    }

    /// The offset of the IP header of an odd frame, and whether it is IPv6.
    pub(crate) const fn parts(self) -> (usize, bool) {
        ((self.0 & !Self::ODD_V6) as usize, self.0 & Self::ODD_V6 != 0)
    }
}

/// The packets of one family: parallel arrays, the first `len` entries of each in use.
///
/// Within a burst plain frames come first, in order of arrival, then odd frames, in order of arrival. `packets` maps each entry to
/// its place in the batch, so nothing depends on the order.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Place in the batch of each packet.
    pub(crate) packets: Box<[u16]>,
    /// Lengths of the IP packets, bytes.
    pub(crate) ip_bytes: Box<[u32]>,
    /// The next hops that the engine returned.
    pub(crate) hops: Box<[NextHopId]>,
    /// How many packets are in the lane.
    pub(crate) len: usize,
}

impl Lane {
    fn new(packets_max: usize) -> Self {
        Self {
            packets: vec![0; packets_max].into_boxed_slice(),
            ip_bytes: vec![0; packets_max].into_boxed_slice(),
            hops: vec![NextHopId::NONE; packets_max].into_boxed_slice(),
            len: 0,
        }
    }
}

/// Header fields of plain frames under check, in the byte order of the frame: one record a packet, in the order of the lanes.
#[derive(Debug)]
pub(crate) struct Fields {
    /// IPv4, four words: frame bytes 14 to 21; frame bytes 22 to 29; frame bytes 30 to 33 in the low half, the frame's length from
    /// byte 14 on in the high half; the packet's place in the batch.
    pub(crate) v4: Box<[[u64; 4]]>,
    /// IPv6, four words: frame bytes 18 to 21 in the low half, the frame's length from byte 14 on in the high half; the first half
    /// of the source address; the two halves of the destination address.
    pub(crate) v6: Box<[[u64; 4]]>,
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
pub(crate) struct Batch<P> {
    /// The packets.
    pub(crate) packets: P,
    /// Number of the RX queue they came from, counted over all ports.
    pub(crate) input: usize,
    /// How many of them have been parsed.
    pub(crate) parsed: usize,
    /// IPv4 destinations, in the order of `v4`.
    pub(crate) keys4: Box<[u32]>,
    /// IPv6 destinations, first and last 64 bits, in the order of `v6`.
    pub(crate) keys6: (Box<[u64]>, Box<[u64]>),
    /// IPv4 packets.
    pub(crate) v4: Lane,
    /// IPv6 packets.
    pub(crate) v6: Lane,
    /// Header fields under check.
    pub(crate) fields: Fields,
    /// Whether any packet is an odd frame or is dropped: if so, the passes look at each packet's `ways` and `ports`.
    pub(crate) odd: bool,
    /// The kind of each packet that passed its checks.
    pub(crate) ways: Box<[Way]>,
    /// The egress entry of each packet; for a dropped packet only its `port` is valid.
    pub(crate) egress: Box<[Egress]>,
    /// An upper bound on the length of the IP packets that passed their checks, bytes.
    pub(crate) ip_bytes_max: u32,
    /// The egress port of each packet, or [`Code::DROPPED`].
    pub(crate) ports: Box<[u16]>,
    /// Bytes of the packets that have been parsed.
    pub(crate) bytes: u64,
    /// Packets of this batch that are dropped.
    pub(crate) drops: Drops,
    /// When the packets were received, one stamp a burst.
    stamps: Box<[Stamp]>,
    stamps_len: usize,
    packets_max: usize,
}

impl<P> Batch<P> {
    /// An empty batch over `packets` (itself empty) for at most `packets_max` packets, which is clamped to 1 to 65,536.
    pub(crate) fn new(packets: P, packets_max: usize) -> Self {
        let packets_max = packets_max.clamp(1, 1 << 16);
        Self {
            packets,
            input: 0,
            parsed: 0,
            keys4: vec![0; packets_max].into_boxed_slice(),
            keys6: (vec![0; packets_max].into_boxed_slice(), vec![0; packets_max].into_boxed_slice()),
            v4: Lane::new(packets_max),
            v6: Lane::new(packets_max),
            fields: Fields {
                v4: vec![[0; 4]; packets_max].into_boxed_slice(),
                v6: vec![[0; 4]; packets_max].into_boxed_slice(),
            },
            odd: false,
            ways: vec![Way::default(); packets_max].into_boxed_slice(),
            egress: vec![Egress::default(); packets_max].into_boxed_slice(),
            ip_bytes_max: 0,
            ports: vec![Code::DROPPED; packets_max].into_boxed_slice(),
            bytes: 0,
            drops: Drops::default(),
            stamps: vec![Stamp::default(); packets_max].into_boxed_slice(),
            stamps_len: 0,
            packets_max,
        }
    }

    /// The most packets it holds.
    pub(crate) fn packets_max(&self) -> usize {
        self.packets_max
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

    /// Drops every packet of a family for `reason`.
    pub(crate) fn drop_lane(&mut self, family: Family, reason: DropReason) {
        let lane = match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        };
        for packet in &lane.packets[..lane.len] {
            self.ports[usize::from(*packet)] = Code::DROPPED;
        }
        self.drops.add(reason, lane.len as u64);
        self.odd |= lane.len > 0;
        lane.len = 0;
    }

    /// Resets everything but the packets, which tx has emptied.
    pub(crate) fn clear(&mut self) {
        self.parsed = 0;
        self.v4.len = 0;
        self.v6.len = 0;
        self.stamps_len = 0;
        self.bytes = 0;
        self.ip_bytes_max = 0;
        self.odd = false;
        self.drops = Drops::default();
    }
}
