//! What the passes see of a burst: headers and lengths by index.
//!
//! The passes are generic over [`Packets`], so the same code runs over the mbufs of a [`dpdk_ffi::Burst`] and, in unit
//! tests, over plain byte vectors without DPDK.

/// How many packets ahead of the one being parsed the header line is asked for; rx asks for the first ones.
pub(crate) const PREFETCH_AHEAD: usize = 16;

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

    /// Asks for the header line of packet `i`, if there is one.
    fn prefetch(&self, i: usize);

    /// Calls `each` with place, frame bytes and first segment of every packet from place `first` on, in order.
    fn for_each(&self, first: usize, each: impl FnMut(usize, u32, &[u8]));

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
    fn prefetch(&self, i: usize) {
        self.prefetch_data(i);
    }

    #[inline(always)]
    fn for_each(&self, first: usize, mut each: impl FnMut(usize, u32, &[u8])) {
        for (i, packet) in self.iter().enumerate().skip(first) {
            self.prefetch_data(i + PREFETCH_AHEAD);
            each(i, packet.pkt_len(), packet.data());
        }
    }

    #[inline(always)]
    fn start_mut<const N: usize>(&mut self, i: usize) -> Option<&mut [u8; N]> {
        self.header_mut(i)
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

    fn prefetch(&self, _i: usize) {}

    fn for_each(&self, first: usize, mut each: impl FnMut(usize, u32, &[u8])) {
        for (i, frame) in self.iter().enumerate().skip(first) {
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
