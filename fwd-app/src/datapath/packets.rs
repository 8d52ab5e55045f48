//! What the passes see of a burst: headers and lengths by index.
//!
//! The passes are generic over [`Packets`], so the same code runs over the mbufs of a [`dpdk_ffi::Burst`] and, in unit
//! tests, over plain byte vectors without DPDK.

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

    /// The first segment of packet `i`, to write.
    fn head_mut(&mut self, i: usize) -> &mut [u8];

    /// The first `N` bytes of packet `i`; `None` when its first segment has fewer.
    #[inline(always)]
    fn start<const N: usize>(&self, i: usize) -> Option<&[u8; N]> {
        self.head(i).first_chunk::<N>()
    }

    /// The first `N` bytes of packet `i`, to write; `None` when its first segment has fewer.
    #[inline(always)]
    fn start_mut<const N: usize>(&mut self, i: usize) -> Option<&mut [u8; N]> {
        self.head_mut(i).first_chunk_mut::<N>()
    }

    /// Asks the CPU to fetch what the passes read of packet `i`.
    #[inline(always)]
    fn prefetch(&self, _i: usize) {}
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
    fn head_mut(&mut self, i: usize) -> &mut [u8] {
        self.data_mut(i)
    }

    #[inline(always)]
    fn prefetch(&self, i: usize) {
        self.prefetch_data(i);
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

    fn head_mut(&mut self, i: usize) -> &mut [u8] {
        &mut self[i]
    }
}
