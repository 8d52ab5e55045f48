//! Access to the packets of a burst: headers and lengths by index.
//!
//! The passes are generic over [`Packets`], so the same code runs over the mbufs of a [`dpdk_ffi::Burst`] and, in unit
//! tests, over plain byte vectors without DPDK.

use dpdk_ffi::Columns;
use std::ops::Range;

/// The packets of a burst, by index.
///
/// The first segment of a packet must hold its headers up to the end of the IP header (62 bytes with two tags and no options);
/// drivers fill a first segment of 2 KB. A packet whose first segment ends earlier is dropped as `malformed`.
pub(crate) trait Packets {
    /// How many packets there are.
    fn count(&self) -> usize;

    /// Bytes of packet `i` in all its segments.
    fn frame_bytes(&self, i: usize) -> u32;

    /// The first segment of packet `i`.
    fn head(&self, i: usize) -> &[u8];

    /// Caches the data pointers of the packets received since the last call. Call it before [`Self::columns`] and
    /// [`Self::start_mut`].
    fn note(&mut self);

    /// Prefetches the cache line with the headers of packet `i`, if there is one.
    fn prefetch(&self, i: usize);

    /// Fills `columns` with 32 bytes, from `offset` on, of each of the 16 packets from `at` on. Returns false when there are fewer
    /// than 16 packets, or one has less than `head_bytes_min` bytes in its first segment.
    fn columns(&self, at: usize, offset: usize, head_bytes_min: u16, columns: &mut Columns) -> bool;

    /// Calls `each` with the place, the frame bytes and the first segment of every packet of `range`, in order.
    fn for_each(&self, range: Range<usize>, each: impl FnMut(usize, u32, &[u8]));

    /// The first `N` bytes of packet `i`, mutable; `None` when its first segment is shorter.
    fn start_mut<const N: usize>(&mut self, i: usize) -> Option<&mut [u8; N]>;

    /// Calls `each` with the mutable first segment of every packet, in order.
    fn for_each_mut(&mut self, each: impl FnMut(&mut [u8]));
}

impl Packets for dpdk_ffi::Burst {
    #[inline(always)]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn frame_bytes(&self, i: usize) -> u32 {
        self.pkt_len(i)
    }

    #[inline(always)]
    fn head(&self, i: usize) -> &[u8] {
        self.data(i)
    }

    #[inline(always)]
    fn note(&mut self) {
        dpdk_ffi::Burst::note(self);
    }

    #[inline(always)]
    fn prefetch(&self, i: usize) {
        self.prefetch_start(i);
    }

    #[inline(always)]
    fn columns(&self, at: usize, offset: usize, head_bytes_min: u16, columns: &mut Columns) -> bool {
        dpdk_ffi::Burst::columns(self, at, offset, head_bytes_min, columns)
    }

    #[inline(always)]
    fn for_each(&self, range: Range<usize>, mut each: impl FnMut(usize, u32, &[u8])) {
        for (i, packet) in self.iter().enumerate().take(range.end).skip(range.start) {
            each(i, packet.pkt_len(), packet.data());
        }
    }

    #[inline(always)]
    fn start_mut<const N: usize>(&mut self, i: usize) -> Option<&mut [u8; N]> {
        dpdk_ffi::Burst::start_mut(self, i)
    }

    #[inline(always)]
    fn for_each_mut(&mut self, mut each: impl FnMut(&mut [u8])) {
        for packet in self.iter_mut() {
            each(packet.into_data());
        }
    }
}

/// A frame of plain bytes, in place of an mbuf.
#[cfg(any(test, feature = "testing"))]
pub(crate) trait PlainFrame {
    /// All its bytes.
    fn bytes(&self) -> &[u8];

    /// The bytes of its first segment, mutable.
    fn head_mut(&mut self) -> &mut [u8];

    /// The bytes of its first segment.
    fn head(&self) -> &[u8] {
        self.bytes()
    }
}

#[cfg(test)]
impl PlainFrame for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn head_mut(&mut self) -> &mut [u8] {
        self
    }
}

#[cfg(any(test, feature = "testing"))]
impl<F: PlainFrame> Packets for Vec<F> {
    fn count(&self) -> usize {
        self.len()
    }

    fn frame_bytes(&self, i: usize) -> u32 {
        u32::try_from(self[i].bytes().len()).unwrap_or(u32::MAX)
    }

    fn head(&self, i: usize) -> &[u8] {
        self[i].head()
    }

    fn note(&mut self) {}

    fn prefetch(&self, _i: usize) {}

    fn columns(&self, at: usize, offset: usize, head_bytes_min: u16, columns: &mut Columns) -> bool {
        let Some(frames) = self.get(at..at + columns.frame_bytes.len()) else { return false };
        if frames.iter().any(|frame| frame.head().len() < usize::from(head_bytes_min)) {
            return false;
        }
        for (lane, frame) in frames.iter().enumerate() {
            columns.frame_bytes[lane] = self.frame_bytes(at + lane);
            for (column, word) in columns.words.iter_mut().zip(frame.head()[offset..].chunks_exact(4)) {
                column[lane] = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            }
        }
        true
    }

    fn for_each(&self, range: Range<usize>, mut each: impl FnMut(usize, u32, &[u8])) {
        for i in range.start..range.end.min(self.len()) {
            each(i, self.frame_bytes(i), self[i].head());
        }
    }

    fn start_mut<const N: usize>(&mut self, i: usize) -> Option<&mut [u8; N]> {
        self[i].head_mut().first_chunk_mut()
    }

    fn for_each_mut(&mut self, mut each: impl FnMut(&mut [u8])) {
        for frame in self {
            each(frame.head_mut());
        }
    }
}
