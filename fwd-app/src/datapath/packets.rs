//! What the passes see of a burst: headers and lengths by index.
//!
//! The passes are generic over [`Packets`], so the same code runs over the mbufs of a [`dpdk_ffi::Burst`] and, in unit
//! tests, over plain byte vectors without DPDK.

use dpdk_ffi::Columns;
use std::ops::Range;

/// The packets of a burst, by index.
///
/// The first segment of a packet must hold its headers up to the end of the IP header (62 bytes with two tags and no
/// options); drivers fill a first segment of 2 KB. A packet that is cut before is `malformed`.
pub(crate) trait Packets {
    /// How many packets there are.
    fn count(&self) -> usize;

    /// Bytes of packet `i` in all its segments.
    fn frame_bytes(&self, i: usize) -> u32;

    /// The first segment of packet `i`.
    fn head(&self, i: usize) -> &[u8];

    /// Looks where the packets that came since the last call start; before [`Self::columns`] and [`Self::start_mut`].
    fn note(&mut self);

    /// Asks for the header line of packet `i`, if there is one.
    fn prefetch(&self, i: usize);

    /// Fills `columns` with the 32 bytes from `offset` of 16 packets from `at` on, if there are as many and each has at least
    /// `head_bytes_min` bytes in its first segment.
    fn columns(&self, at: usize, offset: usize, head_bytes_min: u16, columns: &mut Columns) -> bool;

    /// Calls `each` with place, frame bytes and first segment of every packet of `range`, in order.
    fn for_each(&self, range: Range<usize>, each: impl FnMut(usize, u32, &[u8]));

    /// The first `N` bytes of packet `i`, to write; `None` when its first segment is shorter.
    fn start_mut<const N: usize>(&mut self, i: usize) -> Option<&mut [u8; N]>;

    /// Calls `each` with the first segment of every packet, in order, to write.
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

#[cfg(test)]
impl Packets for Vec<Vec<u8>> {
    fn count(&self) -> usize {
        self.len()
    }

    fn frame_bytes(&self, i: usize) -> u32 {
        u32::try_from(self[i].len()).unwrap()
    }

    fn head(&self, i: usize) -> &[u8] {
        &self[i]
    }

    fn note(&mut self) {}

    fn prefetch(&self, _i: usize) {}

    fn columns(&self, at: usize, offset: usize, head_bytes_min: u16, columns: &mut Columns) -> bool {
        let Some(frames) = self.get(at..at + columns.frame_bytes.len()) else { return false };
        if frames.iter().any(|frame| frame.len() < usize::from(head_bytes_min)) {
            return false;
        }
        for (lane, frame) in frames.iter().enumerate() {
            columns.frame_bytes[lane] = self.frame_bytes(at + lane);
            for (w, column) in columns.words.iter_mut().enumerate() {
                let word = frame[offset + 4 * w..].first_chunk().unwrap();
                column[lane] = u32::from_le_bytes(*word);
            }
        }
        true
    }

    fn for_each(&self, range: Range<usize>, mut each: impl FnMut(usize, u32, &[u8])) {
        for (i, frame) in self.iter().enumerate().take(range.end).skip(range.start) {
            each(i, u32::try_from(frame.len()).unwrap(), frame);
        }
    }

    fn start_mut<const N: usize>(&mut self, i: usize) -> Option<&mut [u8; N]> {
        self[i].first_chunk_mut()
    }

    fn for_each_mut(&mut self, mut each: impl FnMut(&mut [u8])) {
        for frame in self {
            each(frame);
        }
    }
}
