//! The passes of a datapath over the headers of a burst, as vector kernels with scalar twins.
//!
//! A pass is one call a burst over plain arrays. In order: [`Burst::parse`] checks headers and collects destinations by family,
//! [`Burst::merge`] puts the lookup results in the order of the packets, [`Burst::verdict`] copies the entry of each packet,
//! [`Burst::rewrite`] writes the headers, [`Burst::scatter`] groups packets by egress port. `scalar` defines each pass; `avx2` and
//! `avx512` have kernels with the same signature and result where they are faster, chosen by the burst's [`Level`]. Kernels read and write
//! whole vectors, so a pass other than scatter panics unless its arrays have [`PAD`] more entries than packets; these have no defined value.
//!
//! Two invariants make whole vectors safe. In the cache of a burst, which a pass fills for new packets, the last data pointer is repeated
//! 16 times. And the [`START_BYTES`] bytes from the start of a packet's data lie in its buffer: [`Mempool`](crate::Mempool) makes no
//! smaller one, and drivers write a packet directly after the headroom. So kernels load headers before they know the length.

use crate::burst::{Burst, Starts};
use crate::mbuf::Raw;
use crate::mempool::DATA_ROOM_MIN;

mod append;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod rules;
mod scalar;

pub use crate::vector::{AlignedArray, Level, PAD};

/// The number of bytes of a packet that the passes load: an Ethernet header and an IPv6 header.
pub const START_BYTES: usize = 54;
const _: () = assert!(START_BYTES <= DATA_ROOM_MIN as usize);
const IP_AT: u32 = 14;
const IPV4_BYTES: u32 = 20;
const IPV6_BYTES: u32 = 40;
/// The maximum number of ports for which a vector kernel groups packets: it compares all packets with each of them.
#[cfg(target_arch = "x86_64")]
const PORTS_BY_VECTOR: usize = 8;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Anything else, or a frame that failed its checks.
    #[default]
    Other,
    /// IPv4 in an untagged frame.
    V4,
    /// IPv6 in an untagged frame.
    V6,
}

/// The egress entry of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct Entry {
    /// The first 12 bytes of the outgoing frame: destination MAC, source MAC.
    pub macs: [u8; 12],
    /// The port, or a code above [`Entry::TOO_LONG`].
    pub port: u16,
    /// The longest IP packet that may leave, in bytes.
    pub mtu_bytes: u16,
}

impl Entry {
    /// Port numbers are below this, codes from here on.
    pub const CODES: u16 = 0xff00;

    /// The code of a packet that is longer than its entry's MTU. The caller defines the codes above it.
    pub const TOO_LONG: u16 = Self::CODES;
}

/// In one word, the length of a packet's IP packet, or a caller's mark on a packet that has no length any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct LengthOrMark(u32);

impl LengthOrMark {
    /// Marks start here, far above every length and every MTU.
    const MARKS: u32 = 1 << 31;

    /// An IP packet of `ip_bytes` bytes, below 2^31.
    #[inline(always)]
    #[must_use]
    pub const fn length(ip_bytes: u32) -> Self {
        debug_assert!(ip_bytes < Self::MARKS, "a length of 17 bits at most");
        Self(ip_bytes)
    }

    /// A mark.
    #[inline(always)]
    #[must_use]
    pub const fn mark(mark: u8) -> Self {
        Self(Self::MARKS | mark as u32)
    }

    /// The length in bytes, or the mark.
    #[inline(always)]
    pub const fn get(self) -> Result<u32, u8> {
        match self.0 < Self::MARKS {
            true => Ok(self.0),
            false => Err(self.0.to_le_bytes()[0]),
        }
    }

    #[inline(always)]
    fn is_above(self, mtu_bytes: u16) -> bool {
        self.0 > mtu_bytes as u32
    }
}

/// The inputs of each packet's verdict, by its index in the burst.
#[derive(Clone, Copy, Debug)]
pub struct Indexed<'a> {
    /// The index of its entry.
    pub indices: &'a [u32],
    /// The length of its IP packet.
    pub lengths: &'a [LengthOrMark],
}

/// IPv4 packets in order of arrival: parallel arrays, the first `len` entries of each in use.
#[derive(Debug)]
pub struct LaneV4<'a> {
    /// Destination addresses, host order.
    pub keys: &'a mut [u32],
    /// The index of each packet in the burst.
    pub places: &'a mut [u16],
    /// The number of packets.
    pub len: usize,
}

/// IPv6 packets in order of arrival: parallel arrays, the first `len` entries of each in use.
#[derive(Debug)]
pub struct LaneV6<'a> {
    /// First halves of the destination addresses, host order.
    pub his: &'a mut [u64],
    /// Last halves of the destination addresses, host order.
    pub los: &'a mut [u64],
    /// The index of each packet in the burst.
    pub places: &'a mut [u16],
    /// The number of packets.
    pub len: usize,
}

/// The results of the parse pass.
#[derive(Debug)]
pub struct Parsed<'a> {
    /// The IPv4 packets that passed.
    pub v4: LaneV4<'a>,
    /// The IPv6 packets that passed.
    pub v6: LaneV6<'a>,
    /// The kind of each packet, by its index in the burst; [`Kind::Other`] if it did not pass.
    pub kinds: &'a mut [Kind],
    /// The length of each IP packet that passed, by its index in the burst.
    pub lengths: &'a mut [LengthOrMark],
}

/// The totals of a parse pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes of the packets, all segments.
    pub bytes: u64,
    /// The number of packets that passed.
    pub passed: usize,
}

impl Burst {
    /// Parses the packets from index `first` on: appends those that may be forwarded to their lanes. A packet passes if it is an untagged
    /// IPv4 frame without options or an untagged IPv6 frame, has [`START_BYTES`] bytes in its first segment, and meets all [`rules`].
    ///
    /// # Panics
    /// If an array lacks room for the packets and [`PAD`] more entries, or the burst has more than 65,536 packets.
    #[inline]
    pub fn parse(&mut self, first: usize, out: &mut Parsed<'_>) -> Tally {
        let (level, packets, starts) = self.parts();
        starts.note(packets);
        let (end, new) = (packets.len(), packets.len().saturating_sub(first));
        let Parsed { v4, v6, kinds, lengths: ip_lengths } = &*out;
        let room4 = v4.keys.len().min(v4.places.len());
        let room6 = v6.his.len().min(v6.los.len()).min(v6.places.len());
        assert!(end <= 1 << 16 && end + PAD <= kinds.len().min(ip_lengths.len()), "arrays hold the burst");
        assert!(v4.len + new + PAD <= room4 && v6.len + new + PAD <= room6, "lanes hold the burst");
        let Starts { heads, lengths, .. } = &*starts;
        // SAFETY: the packets are cached; this CPU supports a `CheckedLevel`; the arrays have the room.
        unsafe {
            match level.get() {
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => avx512::parse(heads, lengths, first..end, out),
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => avx2::parse(heads, lengths, first..end, out),
                _ => scalar::parse(heads, lengths, first..end, out),
            }
        }
    }

    /// Returns whether a packet has several segments; the result may include packets removed since.
    #[inline]
    pub fn has_chains(&mut self) -> bool {
        let (_, packets, starts) = self.parts();
        starts.note(packets);
        // Segment numbers are at least 1, so their union is 1 only if all are 1.
        !packets.is_empty() && Raw::segments_of(starts.rearms) > 1
    }

    /// Returns true only if every packet that [`Self::parse`] passed is in a frame to `mac`; other packets may make it false.
    #[inline]
    pub fn is_all_to(&mut self, mac: [u8; 6]) -> bool {
        let (_, packets, starts) = self.parts();
        starts.note(packets);
        let [a, b, c, d, e, f] = mac;
        let wanted = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        let differing = starts.heads[..packets.len()].iter().fold(0, |differing, head| {
            // SAFETY: START_BYTES bytes from each head on are readable.
            differing | wanted ^ u64::from_le_bytes(unsafe { head.cast::<[u8; 8]>().read() })
        });
        // Shifts out the first two bytes of the source.
        differing << 16 == 0
    }

    /// Assigns each packet, by its kind, the next value of its lane: IPv4, then IPv6. Other packets get 0.
    #[inline]
    pub fn merge<T: Copy + Into<u32>>(&self, kinds: &[Kind], lanes: [&[T]; 2], words: &mut [u32]) {
        let count = self.len();
        let room = lanes.iter().fold(kinds.len().min(words.len()), |room, lane| room.min(lane.len()));
        assert!(count + PAD <= room, "arrays hold the burst");
        match self.level().get() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this CPU supports a `CheckedLevel`.
            Level::Avx512 => unsafe { avx512::merge(&kinds[..count], lanes, words) },
            _ => scalar::merge(&kinds[..count], lanes, words),
        }
    }

    /// Copies to each packet its entry of `table` and the port: the entry's port, or a code from [`Entry::CODES`] on for a packet that
    /// needs care. These are the entry's code, [`Entry::TOO_LONG`] instead of a port for an IP packet longer than the MTU, and
    /// [`DROP`](crate::DROP) with the first entry for an index beyond the table. Returns whether any packet needs care.
    ///
    /// # Panics
    /// If the table is empty or longer than 2^24 entries, or an array lacks room for the packets and [`PAD`] more entries.
    #[inline]
    pub fn verdict(
        &self,
        table: &[Entry],
        inputs: Indexed<'_>,
        entries: &mut [Entry],
        ports: &mut [u16],
    ) -> bool {
        let count = self.len();
        let room = inputs.indices.len().min(inputs.lengths.len()).min(entries.len()).min(ports.len());
        assert!(count + PAD <= room, "arrays hold the burst");
        assert!(!table.is_empty() && table.len() <= 1 << 24, "an offset in the table fits 32 bits");
        match self.level().get() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this CPU supports a `CheckedLevel`, the arrays have the room, and the table is not empty.
            Level::Avx512 => unsafe { avx512::verdict(count, table, inputs, entries, ports) },
            _ => scalar::verdict(count, table, inputs, entries, ports),
        }
    }

    /// Masks of the 64 packets from index `at` on: those whose port is `code`, and those with another code from [`Entry::CODES`] on.
    #[inline]
    #[must_use]
    pub fn with_code(&self, ports: &[u16], at: usize, code: u16) -> [u64; 2] {
        assert!(ports.len() >= self.len() + PAD, "the array holds the burst");
        let end = self.len().min(at.saturating_add(64));
        match self.level().get() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this CPU supports a `CheckedLevel`, the array has the room, and there are at most 64 ports.
            Level::Avx512 => unsafe { avx512::with_code(ports, at..end, code) },
            _ => scalar::with_code(ports, at..end, code),
        }
    }

    /// The bytes of packet `i`'s first segment, as [`Self::data`], from the cache of a pass if possible.
    #[inline(always)]
    #[must_use]
    pub fn head(&self, i: usize) -> &[u8] {
        let Starts { heads, lengths, noted, .. } = self.starts();
        if i >= *noted {
            return self.data(i);
        }
        #[expect(clippy::cast_possible_truncation, reason = "a field of the word")]
        let head_bytes = usize::from((lengths[i] >> 32) as u16);
        // SAFETY: pointer and length of the first segment of a packet that is ours, as cached (invariant of `Starts`); the slice is
        // bounded by the borrow of self.
        unsafe { std::slice::from_raw_parts(heads[i], head_bytes) }
    }

    /// Rewrites each packet's header by its entry: MACs, and by its kind TTL and checksum, or hop limit, which must be at least 2 in
    /// packets that will leave. Others are written too, so that no packet needs a branch.
    #[inline]
    pub fn rewrite(&mut self, kinds: &[Kind], entries: &[Entry]) {
        let (level, packets, starts) = self.parts();
        starts.note(packets);
        let heads = &starts.heads[..packets.len()];
        assert!(heads.len() + PAD <= kinds.len().min(entries.len()), "arrays hold the burst");
        // SAFETY: the packets are cached and borrowed uniquely; this CPU supports a `CheckedLevel`; the arrays have the room.
        unsafe {
            match level.get() {
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 | Level::Avx512 => avx2::rewrite(heads, kinds, entries),
                _ => scalar::rewrite(heads, kinds, entries),
            }
        }
    }

    /// Distributes the packets to `outs` in order: packet `i` goes to the end of `outs[to[i]]`, or of `dropped` if `to[i]` is
    /// [`DROP`](crate::DROP). Packets whose target is full or does not exist stay here, in order; returns their number.
    ///
    /// # Panics
    /// If `to` is shorter than the burst.
    pub fn scatter(&mut self, to: &[u16], outs: &mut [Burst], dropped: &mut Burst) -> usize {
        let to = &to[..self.len()];
        let has_room = |out: &Burst| out.room() >= to.len();
        let have_room = outs.iter().all(has_room) && has_room(dropped);
        match self.level().get() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 if outs.len() <= PORTS_BY_VECTOR && have_room => {
                // SAFETY: this CPU supports a `CheckedLevel`, and all targets have room.
                unsafe { avx512::scatter(self, to, outs, dropped) }
            }
            Level::Avx2 | Level::Avx512 if outs.len() <= append::PORTS_MAX && have_room => {
                // SAFETY: the number of targets was checked, and all have room.
                unsafe { append::scatter(self, to, outs, dropped) }
            }
            _ => scalar::scatter(self, to, outs, dropped),
        }
    }
}
