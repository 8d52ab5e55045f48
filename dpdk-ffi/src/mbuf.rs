//! One owned packet, and the mbuf layout that this crate reads.
//!
//! `Line0` is the first cache line of `rte_mbuf`, whose offsets the shim asserts at compile time, so Rust reads fields without a C call.
//! Only C touches the second line, for chains.

use std::mem::offset_of;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU16;

use crate::eal::Token;
use crate::error::DpdkError;
use crate::ids::PortId;
use crate::mempool::Mempool;
use crate::sys;

#[repr(C, align(64))]
pub(crate) struct Line0 {
    buf_addr: *mut u8,
    /// The I/O address, or `next` in a DPDK built without physical addresses; not read here.
    iova_or_next: u64,
    data_off: u16,
    refcnt: u16,
    nb_segs: u16,
    port: u16,
    ol_flags: u64,
    packet_type: u32,
    pkt_len: u32,
    data_len: u16,
    vlan_tci: u16,
    hash: [u32; 2],
    vlan_tci_outer: u16,
    buf_len: u16,
    pool: *mut sys::rte_mempool,
}

const _: () = {
    assert!(size_of::<Line0>() == 64);
    assert!(
        offset_of!(Line0, data_off) == 16
            && offset_of!(Line0, nb_segs) == 20
            && offset_of!(Line0, port) == 22
    );
    assert!(offset_of!(Line0, ol_flags) == 24 && offset_of!(Line0, packet_type) == 32);
    assert!(
        offset_of!(Line0, pkt_len) == 36
            && offset_of!(Line0, data_len) == 40
            && offset_of!(Line0, hash) == 44
    );
    assert!(offset_of!(Line0, vlan_tci_outer) == 52 && offset_of!(Line0, buf_len) == 54);
    assert!(offset_of!(Line0, pool) == 56);
};

/// A valid `rte_mbuf` with no other owner, as guaranteed by the maker of a `Raw` and relied on by every accessor.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Raw(pub(crate) *mut sys::rte_mbuf);

impl Raw {
    #[inline(always)]
    fn line0(self) -> *mut Line0 {
        self.0.cast()
    }

    #[inline(always)]
    pub(crate) fn segment(self) -> (*mut u8, usize) {
        let line = self.line0();
        // SAFETY: a valid mbuf (type invariant), whose layout is Line0's (asserted by the shim); data_off lies within the buffer, as
        // every driver and rte_pktmbuf_append keep it.
        unsafe { ((*line).buf_addr.add(usize::from((*line).data_off)), usize::from((*line).data_len)) }
    }

    /// The data pointer, a word with `pkt_len` in the low half and then `data_len`, and the word that [`Self::rearm`] writes. Loads bound
    /// a pass over many packets, so each word is loaded once.
    #[inline(always)]
    pub(crate) fn start(self) -> (*mut u8, u64, u64) {
        let line = self.line0();
        // SAFETY: as for `segment`; the 8 bytes from pkt_len on and those from data_off on lie within the line.
        unsafe {
            let lengths = (&raw const (*line).pkt_len).cast::<u64>().read_unaligned();
            let rearm = line.cast::<u64>().add(offset_of!(Line0, data_off) / 8).read();
            ((*line).buf_addr.add((rearm & 0xffff) as usize), lengths, rearm)
        }
    }

    /// The number of segments in the word that [`Self::rearm`] writes, or in the union of several such words.
    #[inline(always)]
    pub(crate) fn segments_of(rearm: u64) -> u64 {
        rearm >> 32 & 0xffff
    }

    #[inline(always)]
    pub(crate) fn pkt_len(self) -> u32 {
        // SAFETY: a valid mbuf (type invariant).
        unsafe { (*self.line0()).pkt_len }
    }

    #[inline(always)]
    pub(crate) fn segments(self) -> u16 {
        // SAFETY: a valid mbuf (type invariant).
        unsafe { (*self.line0()).nb_segs }
    }

    #[inline(always)]
    pub(crate) fn tag(self) -> u64 {
        // SAFETY: a valid mbuf (type invariant).
        let [low, high] = unsafe { (*self.line0()).hash };
        u64::from(low) | u64::from(high) << 32
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the tag is split into two halves")]
    pub(crate) fn set_tag(self, tag: u64) {
        // SAFETY: a valid mbuf (type invariant), whose owner borrows it uniquely (callers take `&mut`).
        unsafe { (*self.line0()).hash = [tag as u32, (tag >> 32) as u32] };
    }

    #[inline(always)]
    pub(crate) fn references<'a>(self) -> &'a AtomicU16 {
        // SAFETY: a valid mbuf (type invariant), which lives until EAL ends; DPDK counts references atomically too.
        unsafe { AtomicU16::from_ptr(&raw mut (*self.line0()).refcnt) }
    }

    /// The word for [`Raw::rearm`] of a packet of one segment with the data offset of this one and `references` references.
    pub(crate) fn rearm_word(self, port: PortId, references: u16) -> u64 {
        // SAFETY: a valid mbuf (type invariant).
        let data_off = unsafe { (*self.line0()).data_off };
        let fields = [data_off, references, 1, port.0];
        (0..).step_by(16).zip(fields).fold(0, |word, (shift, field)| word | u64::from(field) << shift)
    }

    /// Resets the packet to the state of a newly received one: `data_off`, references, segments and port from `word`, and no flags.
    #[inline(always)]
    pub(crate) fn rearm(self, word: u64) {
        let line = self.line0();
        // SAFETY: a valid mbuf (type invariant), whose owner borrows it uniquely; the four fields are one aligned word of Line0.
        unsafe {
            line.cast::<u64>().add(offset_of!(Line0, data_off) / 8).write(word);
            (*line).ol_flags = 0;
        }
    }

    /// Bytes of the first segment's buffer from the data start on.
    #[inline(always)]
    pub(crate) fn room(self) -> usize {
        let line = self.line0();
        // SAFETY: a valid mbuf (type invariant).
        unsafe { usize::from((*line).buf_len.saturating_sub((*line).data_off)) }
    }

    /// # Safety
    /// The caller must bound `'a` by a borrow of the packet's owner.
    #[inline(always)]
    pub(crate) unsafe fn data<'a>(self) -> &'a [u8] {
        let (start, len) = self.segment();
        // SAFETY: the segment's bytes lie in its buffer, which belongs to the packet; the caller bounds the lifetime.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// # Safety
    /// The caller must bound `'a` by a unique borrow of the packet's owner.
    #[inline(always)]
    pub(crate) unsafe fn data_mut<'a>(self) -> &'a mut [u8] {
        let (start, len) = self.segment();
        // SAFETY: as for `data`, and the borrow is unique.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    pub(crate) fn for_each_segment(self, mut each: impl FnMut(&[u8])) {
        let mut at = self;
        loop {
            // SAFETY: every segment of a chain is a valid mbuf of this packet's owner, whom `self` borrows.
            each(unsafe { at.data() });
            // SAFETY: reads the link of a valid mbuf.
            let next = unsafe { sys::dffi_mbuf_next(at.0) };
            if next.is_null() {
                return;
            }
            at = Raw(next);
        }
    }

    /// Linearizes a chain if its first segment has the room; returns whether the packet is one segment now. On failure nothing changes.
    pub(crate) fn linearize(self) -> bool {
        // SAFETY: a valid packet of the caller's, whose owner borrows it uniquely; segments that become empty go back to their pool.
        self.segments() == 1 || unsafe { sys::dffi_mbuf_linearize(self.0) } == 0
    }

    /// Sets the length of a packet of one segment, whose buffer has room for `bytes` bytes.
    #[inline(always)]
    pub(crate) fn set_bytes(self, bytes: u16) {
        let line = self.line0();
        // SAFETY: a valid mbuf (type invariant), whose owner borrows it uniquely.
        unsafe { ((*line).pkt_len, (*line).data_len) = (u32::from(bytes), bytes) };
    }

    /// Makes `bytes` the contents of an empty packet of one segment; false if they do not fit or it is another packet.
    #[inline]
    pub(crate) fn fill(self, bytes: &[u8]) -> bool {
        let (start, used) = self.segment();
        let Some(count) = u16::try_from(bytes.len()).ok().filter(|count| usize::from(*count) <= self.room())
        else {
            return false;
        };
        if used > 0 || self.segments() != 1 {
            return false;
        }
        // SAFETY: `start` has room for `count` bytes in the buffer of a packet that the caller owns; `bytes` is a Rust borrow, so it is
        // not that buffer.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
        self.set_bytes(count);
        true
    }

    /// Appends `bytes`, chaining mbufs from `pool` if the last segment is full. On failure the packet keeps its length.
    #[inline]
    pub(crate) fn append(self, bytes: &[u8], pool: &Mempool) -> Result<(), DpdkError> {
        if self.fill(bytes) { Ok(()) } else { self.append_chained(bytes, pool) }
    }

    #[cold]
    fn append_chained(self, bytes: &[u8], pool: &Mempool) -> Result<(), DpdkError> {
        let fits = self.tailroom().min(bytes.len());
        let (here, mut rest) = bytes.split_at(fits);
        // The chain is built first, so that a failure leaves the packet unchanged.
        let mut chain: Vec<Mbuf> = Vec::new();
        while !rest.is_empty() {
            let link = pool.alloc()?;
            let fits = link.raw.tailroom().min(rest.len());
            DpdkError::within(
                "bytes in a mbuf without data room",
                if fits == 0 { rest.len() } else { 0 },
                0,
            )?;
            let (now, later) = rest.split_at(fits);
            link.raw.append_here(now);
            chain.push(link);
            rest = later;
        }
        let (wanted, limit) =
            (usize::from(self.segments()) + chain.len(), sys::DFFI_MBUF_MAX_SEGMENTS as usize);
        if wanted > limit || self.pkt_len() as usize + bytes.len() > u32::MAX as usize {
            return Err(DpdkError::TooMuch { what: "segments of a packet", wanted, limit });
        }
        self.append_here(here);
        for link in chain {
            let link = link.into_raw();
            // SAFETY: two valid packets; the second becomes part of the first, whose owner owns it from here on. The only failure is the
            // number of segments, checked above.
            let failed = unsafe { sys::dffi_mbuf_chain(self.0, link) };
            assert!(failed == 0, "the number of segments was checked before");
        }
        Ok(())
    }

    /// As `Mbuf::piece`.
    pub(crate) fn piece(self, header: &[u8], range: &Range<u32>) -> Option<Raw> {
        let bytes = range.end.checked_sub(range.start).filter(|bytes| *bytes > 0)?;
        let header_bytes = u16::try_from(header.len()).ok()?;
        // SAFETY: a valid packet whose owner borrows it, and C checks the range; the header is a borrow of as many bytes.
        let piece =
            unsafe { sys::dffi_mbuf_piece(self.0, range.start, bytes, header.as_ptr(), header_bytes) };
        (!piece.is_null()).then_some(Raw(piece))
    }

    fn tailroom(self) -> usize {
        // SAFETY: a valid mbuf (type invariant).
        usize::from(unsafe { sys::dffi_mbuf_tailroom(self.0) })
    }

    fn append_here(self, bytes: &[u8]) {
        let Ok(count) = u16::try_from(bytes.len()) else {
            return; // unreachable: callers pass at most the tailroom, which is a u16
        };
        // SAFETY: a valid mbuf (type invariant).
        let start = unsafe { sys::dffi_mbuf_append(self.0, count) };
        assert!(!start.is_null(), "the tailroom was checked before");
        // SAFETY: `start` has room for `count` bytes in the buffer of a packet that the caller owns; `bytes` is a Rust borrow, so it is
        // not that buffer.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
    }
}

/// Prefetches the cache line at `at`; any address is allowed.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults and changes nothing that a program can see.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// One owned packet, freed when dropped.
pub struct Mbuf {
    raw: Raw,
    token: Token,
}

// SAFETY: a packet has one owner and is not bound to a thread; it is freed to a pool that many threads may use, and the token keeps EAL,
// and so the pool, alive.
unsafe impl Send for Mbuf {}
// SAFETY: through `&Mbuf` bytes are only read.
unsafe impl Sync for Mbuf {}

impl std::fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mbuf").field("pkt_len", &self.pkt_len()).field("segments", &self.segments()).finish()
    }
}

impl Mbuf {
    /// # Safety
    /// `raw` must be a valid packet without another owner.
    pub(crate) unsafe fn from_raw(raw: NonNull<sys::rte_mbuf>, token: Token) -> Self {
        Mbuf { raw: Raw(raw.as_ptr()), token }
    }

    pub(crate) fn into_raw(self) -> *mut sys::rte_mbuf {
        let mut this = std::mem::ManuallyDrop::new(self);
        let raw = this.raw.0;
        // SAFETY: `this` is never dropped, so the token is dropped once, here, and not used again.
        unsafe { std::ptr::drop_in_place(&raw mut this.token) };
        raw
    }

    /// The bytes of the first segment.
    #[inline(always)]
    #[must_use]
    pub fn data(&self) -> &[u8] {
        // SAFETY: bounded by the borrow of the owner.
        unsafe { self.raw.data() }
    }

    /// The bytes of the first segment, mutable.
    #[inline(always)]
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: bounded by the unique borrow of the owner.
        unsafe { self.raw.data_mut() }
    }

    /// The length of the packet in bytes, all segments.
    #[inline(always)]
    #[must_use]
    pub fn pkt_len(&self) -> u32 {
        self.raw.pkt_len()
    }

    /// The number of segments, at least 1.
    #[inline(always)]
    #[must_use]
    pub fn segments(&self) -> u16 {
        self.raw.segments()
    }

    /// The tag, as [`Burst::tag`](crate::Burst::tag).
    #[inline(always)]
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.raw.tag()
    }

    /// Stores a tag, as [`Burst::set_tag`](crate::Burst::set_tag).
    #[inline(always)]
    pub fn set_tag(&mut self, tag: u64) {
        self.raw.set_tag(tag);
    }

    /// Appends `bytes`, chaining mbufs from `pool` if the data room is full. On failure the packet stays unchanged.
    ///
    /// # Errors
    /// [`DpdkError::Exhausted`]; [`DpdkError::TooMuch`] beyond 65,535 segments.
    pub fn append(&mut self, bytes: &[u8], pool: &Mempool) -> Result<(), DpdkError> {
        self.raw.append(bytes, pool)
    }

    /// `header`, then the bytes `range` of this packet, padded to 60 bytes, from its pool and with its tag. `None` if the pool has no
    /// mbufs, the header is longer than a headroom of 128 bytes, or the range is empty or beyond the packet.
    #[must_use]
    pub fn piece(&self, header: &[u8], range: &Range<u32>) -> Option<Mbuf> {
        let raw = NonNull::new(self.raw.piece(header, range)?.0)?;
        // SAFETY: a new packet without another owner.
        Some(unsafe { Mbuf::from_raw(raw, self.token.clone()) })
    }

    #[cfg(feature = "testing")]
    pub(crate) fn chain(&mut self, tail: Mbuf) {
        // SAFETY: two valid packets that we own; the second becomes part of the first, whose owner owns it from here on.
        let failed = unsafe { sys::dffi_mbuf_chain(self.raw.0, tail.into_raw()) };
        assert!(failed == 0, "too many segments");
    }

    /// Appends a copy of the whole packet, all segments, to `out`.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        self.raw.for_each_segment(|bytes| out.extend_from_slice(bytes));
    }
}

impl Drop for Mbuf {
    fn drop(&mut self) {
        // SAFETY: a valid packet that we own and that is not used again; the token keeps its pool alive.
        unsafe { sys::dffi_mbuf_free(self.raw.0) };
    }
}

impl Mempool {
    /// Allocates one empty mbuf; [`DpdkError::Exhausted`] without one.
    pub fn alloc(&self) -> Result<Mbuf, DpdkError> {
        // SAFETY: the pool lives until EAL ends.
        let raw = unsafe { sys::dffi_mbuf_new(self.raw()) };
        // SAFETY: a fresh mbuf without another owner, initialised by rte_pktmbuf_alloc.
        NonNull::new(raw)
            .map(|raw| unsafe { Mbuf::from_raw(raw, self.token()) })
            .ok_or_else(|| self.exhausted(1))
    }

    /// A packet with a copy of `frame`; a chain if the frame exceeds the data room.
    ///
    /// # Errors
    /// [`DpdkError::Exhausted`]; [`DpdkError::TooMuch`] for a frame too long for a chain.
    pub fn copy(&self, frame: &[u8]) -> Result<Mbuf, DpdkError> {
        let mut mbuf = self.alloc()?;
        mbuf.append(frame, self)?;
        Ok(mbuf)
    }
}
