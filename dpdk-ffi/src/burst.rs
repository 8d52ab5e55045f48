//! A burst: an array of owned packets, filled and drained by queues and processed in passes by a datapath. Headers are read and written in
//! Rust, and only the first cache line of the mbuf is touched. C is called only to free packets and to handle chains.
//!
//! Invariant: the first `len` entries are packets owned by this burst alone; other entries ([`PAD`] beyond the capacity) are not followed.

use crate::eal::{Eal, Token};
use crate::error::DpdkError;
use crate::mbuf::{Mbuf, Raw, prefetch};
use crate::mempool::Mempool;
use crate::sys;
use crate::vector::{AlignedArray, CheckedLevel, LANES, Level, PAD};
use std::ops::Range;

/// Target in [`Burst::scatter`] for packets that go to the `dropped` burst.
pub const DROP: u16 = u16::MAX;

/// An owned array of packets of fixed capacity; dropping it frees its packets. Accessors take an index and panic unless it is below
/// [`Burst::len`]. A loop over `0..burst.len()` pays one bounds check a packet; [`Burst::iter`] pays none.
pub struct Burst {
    mbufs: AlignedArray<Raw>,
    capacity: usize,
    len: usize,
    starts: Starts,
    level: CheckedLevel,
    token: Token,
}

// SAFETY: a packet has one owner and is not bound to a thread; it is freed to a pool that many threads may use, and the token keeps EAL,
// and so the pools, alive.
unsafe impl Send for Burst {}
// SAFETY: through `&Burst` packets are only read.
unsafe impl Sync for Burst {}

impl std::fmt::Debug for Burst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Burst").field("len", &self.len).field("capacity", &self.capacity()).finish()
    }
}

impl Burst {
    /// An empty burst with room for `capacity` packets, whose passes run the best kernels of this CPU. A burst allocates only here.
    #[must_use]
    pub fn with_capacity(eal: &Eal, capacity: usize) -> Burst {
        Burst {
            mbufs: AlignedArray::new(Raw(std::ptr::null_mut()), capacity + PAD),
            capacity,
            len: 0,
            starts: Starts::new(capacity),
            level: Level::Avx512.checked(),
            token: eal.token(),
        }
    }

    /// Runs the kernels of `level`, or the best ones below it that this CPU supports.
    #[must_use]
    pub fn with_level(mut self, level: Level) -> Burst {
        self.level = level.checked();
        self
    }

    /// The number of packets.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the burst is empty.
    #[inline(always)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The maximum number of packets.
    #[inline(always)]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The number of packets that can still be added.
    #[inline(always)]
    #[must_use]
    pub fn room(&self) -> usize {
        self.capacity() - self.len
    }

    #[inline(always)]
    pub(crate) fn packets(&self) -> &[Raw] {
        &self.mbufs[..self.len]
    }

    #[inline(always)]
    pub(crate) fn parts(&mut self) -> (CheckedLevel, &[Raw], &mut Starts) {
        (self.level, &self.mbufs[..self.len], &mut self.starts)
    }

    #[inline(always)]
    pub(crate) fn starts(&self) -> &Starts {
        &self.starts
    }

    #[inline(always)]
    pub(crate) fn level(&self) -> CheckedLevel {
        self.level
    }

    #[inline(always)]
    fn mbuf(&self, i: usize) -> Raw {
        self.packets()[i]
    }

    /// The bytes of packet `i`'s first segment.
    #[inline(always)]
    #[must_use]
    pub fn data(&self, i: usize) -> &[u8] {
        // SAFETY: packet `i` is ours (invariant); the slice is bounded by the borrow of self.
        unsafe { self.mbuf(i).data() }
    }

    /// The bytes of packet `i`'s first segment, mutable.
    #[inline(always)]
    pub fn data_mut(&mut self, i: usize) -> &mut [u8] {
        // SAFETY: packet `i` is ours (invariant); the slice is bounded by the unique borrow of self.
        unsafe { self.mbuf(i).data_mut() }
    }

    /// The first `N` bytes of packet `i`; `None` if its first segment is shorter.
    #[inline(always)]
    #[must_use]
    pub fn header<const N: usize>(&self, i: usize) -> Option<&[u8; N]> {
        self.data(i).first_chunk()
    }

    /// A copy of `N` bytes of packet `i` from `offset`; `None` if its first segment ends earlier.
    #[inline(always)]
    #[must_use]
    pub fn load<const N: usize>(&self, i: usize, offset: usize) -> Option<[u8; N]> {
        self.data(i).get(offset..)?.first_chunk().copied()
    }

    /// The length of packet `i` in bytes, all segments.
    #[inline(always)]
    #[must_use]
    pub fn pkt_len(&self, i: usize) -> u32 {
        self.mbuf(i).pkt_len()
    }

    /// The number of segments of packet `i`, at least 1.
    #[inline(always)]
    #[must_use]
    pub fn segments(&self, i: usize) -> u16 {
        self.mbuf(i).segments()
    }

    /// The tag set by [`Burst::set_tag`], unless a driver has received the packet since and stored its hash there.
    #[inline(always)]
    #[must_use]
    pub fn tag(&self, i: usize) -> u64 {
        self.mbuf(i).tag()
    }

    /// Stores a caller-defined tag for packet `i` in the mbuf field of the RSS hash: rings keep it, a device overwrites it.
    #[inline(always)]
    pub fn set_tag(&mut self, i: usize, tag: u64) {
        self.mbuf(i).set_tag(tag);
    }

    /// Iterates over the packets in order.
    #[inline(always)]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = PacketRef<'_>> + DoubleEndedIterator {
        self.packets().iter().map(|&raw| PacketRef { raw, burst: std::marker::PhantomData })
    }

    /// Appends a copy of packet `i`, all segments, to `out`.
    pub fn copy_to(&self, i: usize, out: &mut Vec<u8>) {
        self.mbuf(i).for_each_segment(|bytes| out.extend_from_slice(bytes));
    }

    /// Appends `bytes` to packet `i`, chaining mbufs from `pool` if the data room is full. On failure the packet stays unchanged.
    ///
    /// # Errors
    /// [`DpdkError::Exhausted`]; [`DpdkError::TooMuch`] beyond 65,535 segments.
    #[inline]
    pub fn append_data(&mut self, i: usize, bytes: &[u8], pool: &Mempool) -> Result<(), DpdkError> {
        self.starts.forget(i);
        self.mbuf(i).append(bytes, pool)
    }

    /// Adds a packet at the end; returns it if the burst is full.
    pub fn push(&mut self, packet: Mbuf) -> Result<(), Mbuf> {
        if self.room() == 0 {
            return Err(packet);
        }
        self.put(Raw(packet.into_raw()));
        Ok(())
    }

    /// Moves the last packet of `other` to the end; returns false without a packet or room.
    #[inline]
    pub fn push_last_of(&mut self, other: &mut Burst) -> bool {
        let Some(&last) = other.packets().last() else { return false };
        let has_room = self.put(last);
        if has_room {
            other.len -= 1;
            other.starts.forget(other.len);
        }
        has_room
    }

    /// Prefetches the mbuf of packet `i`, if there is one.
    #[inline(always)]
    pub fn prefetch_mbuf(&self, i: usize) {
        if let Some(packet) = self.packets().get(i) {
            prefetch(packet.0.cast());
        }
    }

    /// Prefetches the start of each packet's data.
    #[inline]
    pub fn prefetch_data(&self) {
        self.packets().iter().for_each(|packet| prefetch(packet.segment().0));
    }

    /// Adds [`Mbuf::piece`] of packet `i` of `other`. Returns false, and adds nothing, if this burst is full or there is no such piece.
    pub fn push_piece(&mut self, other: &Burst, i: usize, header: &[u8], range: &Range<u32>) -> bool {
        self.room() > 0 && other.mbuf(i).piece(header, range).is_some_and(|piece| self.put(piece))
    }

    /// Removes and returns the last packet.
    pub fn pop(&mut self) -> Option<Mbuf> {
        let raw = *self.packets().last()?;
        self.len -= 1;
        self.starts.forget(self.len);
        let raw = std::ptr::NonNull::new(raw.0)?;
        // SAFETY: the packet was ours (invariant) and no longer counts as such.
        Some(unsafe { Mbuf::from_raw(raw, self.token.clone()) })
    }

    /// Moves packets from the front of `other` to the end of this burst, as many as fit; returns their number.
    pub fn append(&mut self, other: &mut Burst) -> usize {
        let count = self.room().min(other.len);
        self.mbufs[self.len..self.len + count].copy_from_slice(&other.mbufs[..count]);
        self.len += count;
        other.remove_front(count);
        count
    }

    /// Exchanges packets and capacities with `other` by swapping pointers.
    #[inline(always)]
    pub fn swap(&mut self, other: &mut Burst) {
        std::mem::swap(&mut self.mbufs, &mut other.mbufs);
        std::mem::swap(&mut self.capacity, &mut other.capacity);
        std::mem::swap(&mut self.len, &mut other.len);
        std::mem::swap(&mut self.starts, &mut other.starts);
    }

    /// Passes each packet to `take` with its entry of `to`. Packets for which it returns false stay, in order; returns their number.
    pub(crate) fn distribute(&mut self, to: &[u16], mut take: impl FnMut(u16, Raw) -> bool) -> usize {
        let mut stay = 0;
        self.starts.forget(0);
        for (i, &target) in to[..self.len].iter().enumerate() {
            let packet = self.mbufs[i];
            if !take(target, packet) {
                self.mbufs[stay] = packet;
                stay += 1;
            }
        }
        self.len = stay;
        stay
    }

    /// Linearizes chains, for a port that cannot send them ([`TxQueue::takes_chains`](crate::TxQueue::takes_chains)). Packets whose first
    /// segment has no room for all bytes are freed; the others keep their order. Returns the number of packets and bytes freed.
    pub fn linearize_or_free(&mut self) -> (usize, u64) {
        let (mut kept, mut freed_bytes) = (0, 0);
        let count = self.len;
        // Entries between `kept` and the current packet were moved or freed, so the burst must own no packet in between.
        self.len = 0;
        self.starts.forget(0);
        for i in 0..count {
            let packet = self.mbufs[i];
            if packet.linearize() {
                self.mbufs[kept] = packet;
                kept += 1;
            } else {
                freed_bytes += u64::from(packet.pkt_len());
                // SAFETY: the packet was ours (invariant), does not count as such now, and is freed once.
                unsafe { sys::dffi_mbuf_free(packet.0) };
            }
        }
        self.len = kept;
        (count - kept, freed_bytes)
    }

    /// Frees all packets, in one C call.
    #[inline]
    pub fn free_all(&mut self) {
        self.truncate_free(0);
    }

    /// Frees the packets from index `len` on.
    pub fn truncate_free(&mut self, len: usize) {
        if len >= self.len {
            return;
        }
        let count = self.len - len;
        let first = self.mbufs[len..].as_mut_ptr();
        self.len = len;
        self.starts.forget(len);
        // The loop is needed only for the type of the count: more packets than fit a u32 would need 32 GB of pointers.
        let mut done = 0;
        while done < count {
            let now = u32::try_from(count - done).unwrap_or(u32::MAX);
            // SAFETY: these packets were ours (invariant), no longer count as such, and each is freed once; Raw is
            // transparent over the pointer that C expects.
            unsafe { sys::rte_pktmbuf_free_bulk(first.add(done).cast(), now) };
            done += now as usize;
        }
    }

    /// The address for new pointers; there is room for [`Burst::room`] and [`PAD`] of them.
    #[inline(always)]
    pub(crate) fn free_part(&mut self) -> *mut *mut sys::rte_mbuf {
        self.mbufs[self.len..].as_mut_ptr().cast()
    }

    #[inline(always)]
    pub(crate) fn put(&mut self, packet: Raw) -> bool {
        let has_room = self.len < self.capacity;
        if has_room {
            self.mbufs[self.len] = packet;
            self.len += 1;
        }
        has_room
    }

    /// Gives up all packets; they and [`PAD`] more entries can be read at the pointer.
    #[inline(always)]
    pub(crate) fn give_all(&mut self) -> *const Raw {
        self.starts.forget(0);
        self.len = 0;
        self.mbufs.as_ptr()
    }

    /// Adds `count` packets that were written to [`Burst::free_part`].
    ///
    /// # Safety
    /// The packets must have been written there, and must have no other owner.
    #[inline(always)]
    pub(crate) unsafe fn grow(&mut self, count: usize) {
        debug_assert!(count <= self.room());
        self.len += count;
    }

    #[inline(always)]
    pub(crate) fn front(&mut self) -> *mut *mut sys::rte_mbuf {
        self.mbufs.as_mut_ptr().cast()
    }

    /// Removes the first `count` packets, which have another owner now, and moves the others to the front.
    #[inline(always)]
    pub(crate) fn remove_front(&mut self, count: usize) {
        if count < self.len {
            self.mbufs.copy_within(count..self.len, 0);
        }
        self.starts.forget(0);
        self.len -= count.min(self.len);
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.free_all();
    }
}

/// A packet of a burst, read-only.
#[derive(Clone, Copy)]
pub struct PacketRef<'a> {
    raw: Raw,
    burst: std::marker::PhantomData<&'a Burst>,
}

impl<'a> PacketRef<'a> {
    /// The bytes of the first segment.
    #[inline(always)]
    #[must_use]
    pub fn data(self) -> &'a [u8] {
        // SAFETY: the packet belongs to the burst that 'a borrows.
        unsafe { self.raw.data() }
    }

    /// The length of the packet in bytes, all segments.
    #[inline(always)]
    #[must_use]
    pub fn pkt_len(self) -> u32 {
        self.raw.pkt_len()
    }

    /// The number of segments, at least 1.
    #[inline(always)]
    #[must_use]
    pub fn segments(self) -> u16 {
        self.raw.segments()
    }
}

/// Invariant: for each packet below `noted` the entries match its mbuf, and the pointers of the [`LANES`] entries from `noted` on are
/// valid too. Nothing outside this crate changes the data start of an owned packet; every removal of packets lowers `noted`.
pub(crate) struct Starts {
    pub(crate) heads: AlignedArray<*mut u8>,
    /// Bytes of all segments in the low half, then 16 bits with the bytes of the first segment; the rest is undefined.
    pub(crate) lengths: AlignedArray<u64>,
    pub(crate) noted: usize,
    /// The union of the segment-number words ([`Raw::start`]) of the packets noted since `noted` was 0.
    pub(crate) rearms: u64,
}

impl Starts {
    fn new(capacity: usize) -> Self {
        Self {
            heads: AlignedArray::new(std::ptr::null_mut(), capacity + PAD),
            lengths: AlignedArray::new(0, capacity + PAD),
            noted: 0,
            rearms: 0,
        }
    }

    #[inline(always)]
    fn forget(&mut self, from: usize) {
        self.noted = self.noted.min(from);
    }

    #[inline]
    pub(crate) fn note(&mut self, packets: &[Raw]) {
        let (first, end) = (self.noted, packets.len());
        if first == end {
            return;
        }
        let mut rearms = if first == 0 { 0 } else { self.rearms };
        let heads = &mut self.heads[..end + LANES];
        let lengths = &mut self.lengths[first..end];
        for ((packet, head), length) in packets[first..].iter().zip(&mut heads[first..]).zip(lengths) {
            let (start, both_lengths, rearm) = packet.start();
            prefetch(start);
            (*head, *length) = (start, both_lengths);
            rearms |= rearm;
        }
        let last = heads[end - 1];
        heads[end..].fill(last);
        (self.noted, self.rearms) = (end, rearms);
    }
}

impl Mempool {
    /// Appends `count` empty mbufs to `burst`, all or none, in one C call.
    ///
    /// # Errors
    /// [`DpdkError::TooMuch`] if the burst lacks the room, [`DpdkError::Exhausted`] if the pool lacks the mbufs.
    pub fn alloc_burst(&self, burst: &mut Burst, count: usize) -> Result<(), DpdkError> {
        DpdkError::within("mbufs in a burst", count, burst.room())?;
        let Ok(wanted) = u32::try_from(count) else {
            return Err(self.exhausted(count));
        };
        if wanted == 0 {
            // Without an lcore's cache the pool's ring reports exhaustion for 0 mbufs.
            return Ok(());
        }
        // SAFETY: the free part of the burst has room for `count` pointers, checked above. On success they are fresh, initialised
        // mbufs without another owner, and only then does the burst count them.
        unsafe {
            if sys::dffi_mbuf_alloc_bulk(self.raw(), burst.free_part(), wanted) != 0 {
                return Err(self.exhausted(count));
            }
            burst.grow(count);
        }
        Ok(())
    }

    /// Appends a copy of each frame to `burst`, all or none; frames longer than the data room become chains.
    ///
    /// # Errors
    /// As [`Mempool::alloc_burst`], and [`DpdkError::TooMuch`] for a frame too long for a chain.
    pub fn copy_burst<F: AsRef<[u8]>>(&self, burst: &mut Burst, frames: &[F]) -> Result<(), DpdkError> {
        let first = burst.len();
        self.alloc_burst(burst, frames.len())?;
        for (at, frame) in frames.iter().enumerate() {
            if let Err(why) = burst.append_data(first + at, frame.as_ref(), self) {
                burst.truncate_free(first);
                return Err(why);
            }
        }
        Ok(())
    }
}
