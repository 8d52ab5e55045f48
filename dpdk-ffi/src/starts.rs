//! Cached data pointers of a burst's packets, and header words of many packets as columns.
//!
//! A pass over headers would otherwise read each mbuf again to find its data. [`Burst::note`] reads the mbufs once and
//! caches what the passes need in arrays; [`Burst::columns`] transposes 32 bytes of 16 packets into eight columns of 16
//! words, so that a check is a plain loop over arrays, which compilers vectorize.
//!
//! Invariant: `noted` is at most the burst's length, and for each packet below it the entry of `Starts` matches its
//! mbuf. Nothing outside this crate can change where an owned packet starts; whatever removes packets lowers `noted`.

use crate::burst::Burst;
use crate::mbuf::prefetch;

/// Packets in a [`Columns`], and so words in a column.
pub const LANES: usize = 16;

/// 32 bytes of each of [`LANES`] packets: column `w` holds word `w` of every packet, its wire bytes read as a
/// little-endian number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Columns {
    /// The words.
    pub words: [[u32; LANES]; 8],
    /// Bytes of each packet, all segments.
    pub frame_bytes: [u32; LANES],
}

/// Cached data pointers and lengths of the packets of a burst, by index.
pub(crate) struct Starts {
    /// The data pointer of the first segment.
    heads: Box<[*mut u8]>,
    /// Bytes of the first segment.
    head_bytes: Box<[u16]>,
    /// Bytes of all segments.
    frame_bytes: Box<[u32]>,
    pub(crate) noted: usize,
}

impl Starts {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            heads: vec![std::ptr::null_mut(); capacity].into_boxed_slice(),
            head_bytes: vec![0; capacity].into_boxed_slice(),
            frame_bytes: vec![0; capacity].into_boxed_slice(),
            noted: 0,
        }
    }

    /// Drops the cache entries of the packets from index `from` on.
    #[inline(always)]
    pub(crate) fn forget(&mut self, from: usize) {
        self.noted = self.noted.min(from);
    }
}

impl Burst {
    /// Caches where each packet's data starts, and prefetches its first cache line. Packets already cached are not read
    /// again.
    #[inline]
    pub fn note(&mut self) {
        /// How many mbufs ahead to prefetch.
        const AHEAD: usize = 8;
        let (packets, starts) = self.parts();
        let first = starts.noted;
        let max = packets.len();
        // Slices of one length, so that one comparison covers their bounds checks.
        let (heads, head_bytes) = (&mut starts.heads[..max], &mut starts.head_bytes[..max]);
        let frame_bytes = &mut starts.frame_bytes[..max];
        for i in first..max {
            if let Some(packet) = packets.get(i + AHEAD) {
                packet.prefetch();
            }
            let (start, bytes) = packets[i].segment();
            prefetch(start);
            heads[i] = start;
            #[expect(clippy::cast_possible_truncation, reason = "a segment's length is 16 bits in the mbuf")]
            let bytes = bytes as u16;
            (head_bytes[i], frame_bytes[i]) = (bytes, packets[i].pkt_len());
        }
        starts.noted = max;
    }

    /// The first `N` bytes of packet `i`, to write, without reading its mbuf; `None` when its first segment is shorter
    /// or its start is not cached.
    #[inline(always)]
    pub fn start_mut<const N: usize>(&mut self, i: usize) -> Option<&mut [u8; N]> {
        let (_, starts) = self.parts();
        if i >= starts.noted || usize::from(*starts.head_bytes.get(i)?) < N {
            return None;
        }
        let head = *starts.heads.get(i)?;
        // SAFETY: the packet is ours and its first segment starts at `head` with at least `N` bytes (both cached, see
        // the module's invariant); the borrow of self bounds the reference and makes it the only one.
        Some(unsafe { &mut *head.cast() })
    }

    /// Prefetches the first cache line of packet `i`'s data, if its start is cached.
    #[inline(always)]
    pub fn prefetch_start(&self, i: usize) {
        let starts = self.starts();
        if i < starts.noted
            && let Some(head) = starts.heads.get(i)
        {
            prefetch(*head);
        }
    }

    /// Fills `columns` with the 32 bytes from `offset` of the packets `at..at + 16`. Returns `false`, with `columns`
    /// unchanged, when one of them is not cached or has a first segment of fewer than `head_bytes_min` bytes.
    ///
    /// # Panics
    /// When `head_bytes_min` is less than `offset + 32`.
    #[inline]
    pub fn columns(&self, at: usize, offset: usize, head_bytes_min: u16, columns: &mut Columns) -> bool {
        assert!(usize::from(head_bytes_min) >= offset + 32, "the words lie within what every packet has");
        let starts = self.starts();
        let noted = &starts.heads[..starts.noted];
        let Some(heads) = noted.get(at..).and_then(|rest| rest.first_chunk::<LANES>()) else { return false };
        let there =
            |bytes: &[u16; LANES]| bytes.iter().fold(true, |all, bytes| all & (*bytes >= head_bytes_min));
        let Some(true) = starts.head_bytes[at..].first_chunk::<LANES>().map(there) else { return false };
        let Some(frame_bytes) = starts.frame_bytes[at..].first_chunk::<LANES>() else { return false };
        columns.frame_bytes = *frame_bytes;
        // SAFETY: each head starts a first segment of a packet of ours with at least `offset + 32` bytes (cached and
        // checked above), and nobody writes it while self is borrowed.
        unsafe { words(heads, offset, &mut columns.words) };
        true
    }
}

/// [`plain`], or its AVX-512 version where the CPU has AVX-512F.
///
/// # Safety
/// `offset + 32` bytes can be read at each head.
#[inline(always)]
unsafe fn words(heads: &[*mut u8; LANES], offset: usize, words: &mut [[u32; LANES]; 8]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the CPU has AVX-512F; the rest is the caller's promise.
        return unsafe { avx512f::words(heads, offset, words) };
    }
    // SAFETY: the caller's promise.
    unsafe { plain(heads, offset, words) };
}

/// Word `w` of packet `lane` goes to `words[w][lane]`.
///
/// # Safety
/// `offset + 32` bytes can be read at each head.
unsafe fn plain(heads: &[*mut u8; LANES], offset: usize, words: &mut [[u32; LANES]; 8]) {
    for (lane, head) in heads.iter().enumerate() {
        for (w, column) in words.iter_mut().enumerate() {
            // SAFETY: within the 32 bytes from `offset` (the caller's promise).
            let word = unsafe { head.add(offset + 4 * w).cast::<[u8; 4]>().read() };
            column[lane] = u32::from_le_bytes(word);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512f {
    //! A transposition: two packets a register, then three rounds of shuffles.

    use super::LANES;
    use std::arch::x86_64::*;

    /// [`super::plain`] with AVX-512F.
    ///
    /// # Safety
    /// `offset + 32` bytes can be read at each head.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn words(heads: &[*mut u8; LANES], offset: usize, words: &mut [[u32; LANES]; 8]) {
        // Packets k and k + 8 in the halves of row k.
        let row = |k: usize| {
            // SAFETY: 32 bytes from `offset` at each head (the caller's promise); loads without alignment.
            let (low, high) = unsafe {
                (
                    _mm256_loadu_si256(heads[k].add(offset).cast()),
                    _mm256_loadu_si256(heads[k + 8].add(offset).cast()),
                )
            };
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
        };
        // In each 128-bit lane: words of four rows, 0 to 3 in even lanes and 4 to 7 in odd ones.
        let four = |k: usize| {
            let (a, b, c, d) = (row(k), row(k + 1), row(k + 2), row(k + 3));
            let (ab, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
            let (cd, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
            [
                _mm512_unpacklo_epi64(ab, cd),
                _mm512_unpackhi_epi64(ab, cd),
                _mm512_unpacklo_epi64(ab_high, cd_high),
                _mm512_unpackhi_epi64(ab_high, cd_high),
            ]
        };
        let (low, high) = (four(0), four(4));
        let even = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
        let odd = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
        for w in 0..4 {
            let (first, second) = (
                _mm512_permutex2var_epi64(low[w], even, high[w]),
                _mm512_permutex2var_epi64(low[w], odd, high[w]),
            );
            // SAFETY: a column is 16 words, a register's size.
            unsafe {
                _mm512_storeu_si512(words[w].as_mut_ptr().cast(), first);
                _mm512_storeu_si512(words[w + 4].as_mut_ptr().cast(), second);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_transposes_alike() {
        let bytes: Vec<[u8; 64]> = (0..LANES)
            .map(|lane| std::array::from_fn(|i| ((lane * 64 + i * 7) % 251).to_le_bytes()[0]))
            .collect();
        let mut frames = bytes.clone();
        let heads: [*mut u8; LANES] = std::array::from_fn(|lane| frames[lane].as_mut_ptr());
        for offset in [0, 10, 22, 32] {
            let mut by_plain = [[0; LANES]; 8];
            // SAFETY: each frame has 64 bytes.
            unsafe { plain(&heads, offset, &mut by_plain) };
            for (lane, frame) in bytes.iter().enumerate() {
                for (w, column) in by_plain.iter().enumerate() {
                    let at = offset + 4 * w;
                    assert_eq!(column[lane].to_le_bytes(), frame[at..at + 4]);
                }
            }
            let mut best = [[0; LANES]; 8];
            // SAFETY: as above.
            unsafe { words(&heads, offset, &mut best) };
            assert_eq!(best, by_plain, "offset {offset}");
        }
    }
}
