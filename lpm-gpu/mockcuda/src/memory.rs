//! Device memory and pinned host memory: checked addresses on real memory that stays mapped.
//!
//! Each kind has an arena: a reserved address range cut into slots. An allocation takes consecutive slots and leaves a gap in the last
//! one. A table has the live bytes of each slot, so a kernel's access is checked with a subtraction, a load and a comparison. Device
//! addresses differ from host addresses by a constant, so a host that dereferences one crashes. Pinned memory has one address for both
//! sides, as with unified addressing. Registered memory is the program's own. Its device addresses differ from the host's, and are no
//! addresses of any process; they end with the registration.
//!
//! The unsafe code is sound because an arena is never unmapped: an access that races with a free stays within the arena. That is an
//! error of the tested program, which the next checked access finds. Slots are reused only when all have been used, oldest first, so a
//! stale address stays invalid for long. All accesses are relaxed atomics of 1, 4 or 8 bytes, because streams and the host may race.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

/// The first device address, unmapped in any Linux process.
const DEVICE_FIRST: u64 = 0x0d00_0000_0000;
/// Device addresses of registered memory are host addresses plus this: no process has memory there.
const REGISTERED_FIRST: u64 = 1 << 47;
const SLOT_SHIFT: u32 = 28;
const SLOT_BYTES: u64 = 1 << SLOT_SHIFT;
const SLOTS: usize = 1 << 16;
const ARENA_BYTES: u64 = SLOT_BYTES * SLOTS as u64;

/// Contents of fresh memory; as a unit of a table, an invalid pointer.
pub(crate) const POISON: u32 = u32::from_ne_bytes([POISON_BYTE; 4]);
const POISON_BYTE: u8 = 0xa5;

struct Arena {
    base: usize,
    live: Box<[AtomicU64]>,
}

impl Arena {
    fn new() -> Option<Self> {
        Some(Self { base: reserve(ARENA_BYTES)?, live: (0..SLOTS).map(|_| AtomicU64::new(0)).collect() })
    }

    #[inline(always)]
    fn holds(&self, offset: u64, bytes: u64) -> bool {
        let slot = (offset >> SLOT_SHIFT) as usize;
        self.live.get(slot).is_some_and(|live| (offset & (SLOT_BYTES - 1)) + bytes <= live.load(Relaxed))
    }

    fn slot(&self, slot: usize) -> usize {
        self.base.wrapping_add(slot << SLOT_SHIFT)
    }

    /// Fills the first `bytes` bytes from `slot` on, which are not live, with poison.
    fn poison(&self, slot: usize, bytes: u64) {
        if bytes >= HUGE_BYTES {
            self.advise(slot, bytes, libc::MADV_HUGEPAGE);
        }
        let at = std::ptr::with_exposed_provenance_mut::<u8>(self.slot(slot));
        // SAFETY: the caller took these slots of the arena, which stays mapped; no access finds them before they are live.
        unsafe { at.write_bytes(POISON_BYTE, bytes as usize) };
    }

    fn advise(&self, slot: usize, bytes: u64, advice: i32) {
        // A gap follows an allocation, so it can have whole huge pages.
        let bytes = if bytes < HUGE_BYTES { bytes } else { bytes.next_multiple_of(HUGE_BYTES) };
        let at = std::ptr::with_exposed_provenance_mut(self.slot(slot));
        // SAFETY: the pages are the arena's, private and anonymous, and stay mapped; dropped ones read as zeros.
        unsafe { libc::madvise(at, bytes as usize, advice) };
    }
}

/// Size of huge pages, and of the least memory that uses them: most of the cost of large allocations is page faults.
const HUGE_BYTES: u64 = 2 << 20;

/// Reserves address space, aligned to huge pages; pages are allocated at first use.
fn reserve(bytes: u64) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice overlaps nothing.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            usize::try_from(bytes + HUGE_BYTES).ok()?,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        None
    } else {
        Some(base.expose_provenance().next_multiple_of(HUGE_BYTES as usize))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    Device,
    Pinned,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) kind: MemoryKind,
}

#[derive(Default)]
struct Book {
    live: BTreeMap<u64, Allocation>,
    /// By kind: the first slot never used.
    next_slot: [usize; 2],
    freed: [VecDeque<(usize, usize)>; 2],
    used: [u64; 2],
}

#[derive(Clone, Copy, Debug)]
struct Registered {
    host: u64,
    bytes: u64,
    read_only: bool,
}

impl Registered {
    const fn overlaps(&self, host: u64, bytes: u64) -> bool {
        host < self.host + self.bytes && self.host < host + bytes
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    first: u64,
    live: u64,
    host: usize,
    pub(crate) read_only: bool,
}

impl Window {
    /// Whether `bytes` at `address`, a power of two, are within and aligned to their size.
    #[inline(always)]
    pub(crate) const fn holds(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.first);
        (offset < self.live) & (offset.wrapping_add(bytes) <= self.live) & (address & (bytes - 1) == 0)
    }

    #[inline(always)]
    pub(crate) const fn host(&self, address: u64) -> usize {
        self.host.wrapping_add(address.wrapping_sub(self.first) as usize)
    }
}

pub(crate) struct MockMemory {
    device: Arena,
    pinned: Arena,
    /// Base of a byte for each word of the device arena; not 0 if the program marked the word as freed.
    marks: usize,
    marked: AtomicUsize,
    book: Mutex<Book>,
    registered: RwLock<Vec<Registered>>,
    pub(crate) bad_reads: AtomicU64,
}

pub(crate) fn memory() -> Option<&'static MockMemory> {
    static MEMORY: OnceLock<Option<MockMemory>> = OnceLock::new();
    MEMORY.get_or_init(MockMemory::new).as_ref()
}

impl MockMemory {
    fn new() -> Option<Self> {
        Some(Self {
            device: Arena::new()?,
            pinned: Arena::new()?,
            marks: reserve(ARENA_BYTES / 4)?,
            marked: AtomicUsize::new(0),
            book: Mutex::default(),
            registered: RwLock::default(),
            bad_reads: AtomicU64::new(0),
        })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Host address of `bytes` (at most 16) at `address` if live; for kernels.
    #[inline(always)]
    pub(crate) fn locate(&self, address: u64, bytes: u64) -> Option<usize> {
        let offset = address.wrapping_sub(DEVICE_FIRST);
        if offset < ARENA_BYTES {
            return self.device.holds(offset, bytes).then_some(self.device.base + offset as usize);
        }
        if address >= REGISTERED_FIRST {
            let window = self.window(address);
            return window.holds(address, bytes).then_some(window.host(address));
        }
        let offset = address.wrapping_sub(self.pinned.base as u64);
        (offset < ARENA_BYTES && self.pinned.holds(offset, bytes)).then_some(address as usize)
    }

    /// The window around `address`, in which a warp's accesses need no further table lookup.
    #[inline(always)]
    pub(crate) fn window(&self, address: u64) -> Window {
        if address >= REGISTERED_FIRST {
            return self.registered_window(address);
        }
        let offset = address.wrapping_sub(DEVICE_FIRST);
        let (arena, first) = if offset < ARENA_BYTES {
            (&self.device, DEVICE_FIRST)
        } else {
            (&self.pinned, self.pinned.base as u64)
        };
        let slot = (address.wrapping_sub(first) >> SLOT_SHIFT) as usize;
        let live = arena.live.get(slot).map_or(0, |live| live.load(Relaxed));
        let first = first.wrapping_add((slot as u64) << SLOT_SHIFT);
        Window { first, live, host: arena.slot(slot), read_only: false }
    }

    fn registered_window(&self, address: u64) -> Window {
        let host = address - REGISTERED_FIRST;
        let known = self.registered.read().unwrap_or_else(PoisonError::into_inner);
        match known.iter().find(|known| known.overlaps(host, 1)) {
            Some(&Registered { host, bytes, read_only }) => {
                Window { first: REGISTERED_FIRST + host, live: bytes, host: host as usize, read_only }
            }
            None => Window { first: address, live: 0, host: 0, read_only: true },
        }
    }

    /// Device address of the registered host memory at `host`.
    pub(crate) fn registered(&self, host: u64) -> Option<u64> {
        let known = self.registered.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().any(|known| known.overlaps(host, 1)).then_some(REGISTERED_FIRST + host)
    }

    /// Bytes of registered host memory.
    pub(crate) fn registered_bytes(&self) -> u64 {
        self.registered.read().unwrap_or_else(PoisonError::into_inner).iter().map(|known| known.bytes).sum()
    }

    /// False if a part of the memory is registered or allocated already.
    pub(crate) fn register(&self, host: u64, bytes: u64, read_only: bool) -> bool {
        let mut known = self.registered.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = self.find(host).is_none() && !known.iter().any(|known| known.overlaps(host, bytes));
        if is_new {
            known.push(Registered { host, bytes, read_only });
        }
        is_new
    }

    /// False if nothing that starts at `host` is registered.
    pub(crate) fn unregister(&self, host: u64) -> bool {
        let mut known = self.registered.write().unwrap_or_else(PoisonError::into_inner);
        let at = known.iter().position(|known| known.host == host);
        at.map(|at| known.swap_remove(at)).is_some()
    }

    /// Host address of `bytes` from `address` within one live allocation; for copies.
    pub(crate) fn range(&self, address: u64, bytes: u64) -> Option<usize> {
        let book = self.book();
        let found = book.live.range(..=address).next_back()?.1;
        if address - found.address > found.bytes || bytes > found.bytes - (address - found.address) {
            return None;
        }
        Some(match found.kind {
            MemoryKind::Device => self.device.base + (address - DEVICE_FIRST) as usize,
            MemoryKind::Pinned => address as usize,
        })
    }

    pub(crate) fn find(&self, address: u64) -> Option<Allocation> {
        let book = self.book();
        book.live.range(..=address).next_back().map(|f| *f.1).filter(|f| address - f.address < f.bytes.max(1))
    }

    pub(crate) fn nearest(&self, address: u64) -> String {
        let book = self.book();
        match book.live.range(..=address).next_back() {
            Some((first, found)) => format!(
                "{} bytes behind the start of a live allocation of {} bytes",
                address - first,
                found.bytes
            ),
            None => "no live allocation lies before it".to_owned(),
        }
    }

    pub(crate) fn used(&self, kind: MemoryKind) -> u64 {
        self.book().used[kind as usize]
    }

    fn arena(&self, kind: MemoryKind) -> (&Arena, u64) {
        match kind {
            MemoryKind::Device => (&self.device, DEVICE_FIRST),
            MemoryKind::Pinned => (&self.pinned, self.pinned.base as u64),
        }
    }

    /// Allocates and poisons; `None` beyond `limit` bytes of the kind, or without slots.
    pub(crate) fn allocate(&self, kind: MemoryKind, bytes: u64, limit: u64) -> Option<u64> {
        let (arena, first) = self.arena(kind);
        // One slot in addition to the full ones, for the gap.
        let slots = usize::try_from(bytes >> SLOT_SHIFT).ok()?.checked_add(1)?;
        let slot = {
            let mut book = self.book();
            let used = book.used[kind as usize].checked_add(bytes).filter(|used| *used <= limit)?;
            let slot = book.take_slots(kind, slots)?;
            book.used[kind as usize] = used;
            slot
        };
        arena.poison(slot, bytes);
        let address = first + ((slot as u64) << SLOT_SHIFT);
        let mut book = self.book();
        book.live.insert(address, Allocation { address, bytes, kind });
        let mut left = bytes;
        for live in arena.live.iter().skip(slot).take(slots) {
            live.store(left.min(SLOT_BYTES), Relaxed);
            left -= left.min(SLOT_BYTES);
        }
        Some(address)
    }

    pub(crate) fn free(&self, address: u64, kind: MemoryKind) -> bool {
        let mut book = self.book();
        let Some(found) = book.live.get(&address).copied().filter(|f| f.kind == kind) else { return false };
        book.live.remove(&address);
        let (arena, first) = self.arena(kind);
        let slot = ((address - first) >> SLOT_SHIFT) as usize;
        let slots = (found.bytes >> SLOT_SHIFT) as usize + 1;
        for live in arena.live.iter().skip(slot).take(slots) {
            live.store(0, Relaxed);
        }
        book.used[kind as usize] -= found.bytes;
        book.freed[kind as usize].push_back((slot, slots));
        drop(book);
        self.mark(address, found.bytes / 4, false);
        arena.advise(slot, found.bytes, libc::MADV_DONTNEED);
        true
    }

    pub(crate) fn free_all(&self) {
        self.registered.write().unwrap_or_else(PoisonError::into_inner).clear();
        let all: Vec<_> = self.book().live.values().copied().collect();
        for found in all {
            self.free(found.address, found.kind);
        }
    }

    /// Replaces each word `from` of the device's allocations by `to`.
    pub(crate) fn plant(&self, [from, to]: [u32; 2]) {
        for found in self.book().live.values().filter(|found| found.kind == MemoryKind::Device) {
            let first = self.device.base + (found.address - DEVICE_FIRST) as usize;
            let words = (0..found.bytes as usize / 4).map(|word| first + word * 4);
            words.filter(|at| load(*at, 4) == from.into()).for_each(|at| store(at, 4, to.into()));
        }
    }

    pub(crate) fn mark(&self, address: u64, words: u64, freed: bool) {
        let offset = address.wrapping_sub(DEVICE_FIRST);
        let outside =
            offset >= ARENA_BYTES || words > (ARENA_BYTES - offset) / 4 || !address.is_multiple_of(4);
        if outside || (!freed && !self.has_marks()) {
            return;
        }
        for word in offset / 4..offset / 4 + words {
            self.set_mark(word, freed);
        }
    }

    fn mark_of(&self, word: u64) -> &AtomicU8 {
        debug_assert!(word < ARENA_BYTES / 4, "a word of the device arena has a mark");
        // SAFETY: `marks` maps one byte for each word of the device arena and stays mapped; callers pass words of the arena.
        unsafe { AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut(self.marks + word as usize)) }
    }

    fn set_mark(&self, word: u64, freed: bool) {
        match (self.mark_of(word).swap(freed.into(), Relaxed) != 0, freed) {
            (false, true) => drop(self.marked.fetch_add(1, Relaxed)),
            (true, false) => drop(self.marked.fetch_sub(1, Relaxed)),
            _ => {}
        }
    }

    #[inline(always)]
    pub(crate) fn has_marks(&self) -> bool {
        self.marked.load(Relaxed) != 0
    }

    #[inline(always)]
    pub(crate) fn is_marked(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(DEVICE_FIRST);
        offset < ARENA_BYTES
            && (offset / 4..(offset + bytes).div_ceil(4)).any(|word| self.mark_of(word).load(Relaxed) != 0)
    }

    /// Checks the marks of an access: a write unmarks, a read counts as a violation. Returns true for the first violation.
    #[cold]
    pub(crate) fn check_marks(&self, address: u64, bytes: u64, write: bool) -> bool {
        let offset = address.wrapping_sub(DEVICE_FIRST);
        if offset >= ARENA_BYTES {
            return false;
        }
        let mut first = false;
        for word in offset / 4..(offset + bytes).div_ceil(4) {
            if write {
                self.set_mark(word, false);
            } else if self.mark_of(word).load(Relaxed) != 0 {
                first |= self.bad_reads.fetch_add(1, Relaxed) == 0;
            }
        }
        first
    }
}

impl Book {
    fn take_slots(&mut self, kind: MemoryKind, slots: usize) -> Option<usize> {
        let next = &mut self.next_slot[kind as usize];
        if *next + slots <= SLOTS {
            *next += slots;
            return Some(*next - slots);
        }
        let freed = &mut self.freed[kind as usize];
        let at = freed.iter().position(|f| f.1 >= slots)?;
        freed.remove(at).map(|f| f.0)
    }
}

/// Loads `bytes` (1, 4 or 8) at `at`, an aligned address from [`MockMemory::locate`].
#[inline(always)]
pub(crate) fn load(at: usize, bytes: u8) -> u64 {
    // SAFETY: `locate` checked that the bytes are in an arena, or the program vouches for its memory of a copy; the caller checked the
    // alignment. Others access them by atomics, too, or order their accesses by streams.
    unsafe {
        match bytes {
            1 => AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut(at)).load(Relaxed).into(),
            4 => AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(at)).load(Relaxed).into(),
            _ => AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at)).load(Relaxed),
        }
    }
}

/// Stores the low `bytes` of `value` at `at`, like [`load`].
#[inline(always)]
pub(crate) fn store(at: usize, bytes: u8, value: u64) {
    // SAFETY: as in `load`.
    unsafe {
        match bytes {
            1 => AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut(at)).store(value as u8, Relaxed),
            4 => AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(at)).store(value as u32, Relaxed),
            _ => AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at)).store(value, Relaxed),
        }
    }
}

/// Copies between host addresses, front to back, in words where both are aligned. The ranges must not overlap.
pub(crate) fn copy(to: usize, from: usize, bytes: usize) {
    let unit: u8 = match (to | from) % 8 {
        0 => 8,
        4 => 4,
        _ => 1,
    };
    let whole = bytes - bytes % usize::from(unit);
    for at in (0..whole).step_by(unit.into()) {
        store(to + at, unit, load(from + at, unit));
    }
    for at in whole..bytes {
        store(to + at, 1, load(from + at, 1));
    }
}

/// Fills `bytes` from host address `at` with `word`, low bytes first.
pub(crate) fn fill_words(at: usize, bytes: usize, word: u32) {
    let whole = bytes - bytes % 4;
    for offset in (0..whole).step_by(4) {
        store(at + offset, 4, word.into());
    }
    for (offset, byte) in (whole..bytes).zip(word.to_le_bytes()) {
        store(at + offset, 1, byte.into());
    }
}
