//! Table memory: zeroed arrays of atomics in huge pages, on a chosen NUMA node. Also memory for the keys of batches ([`KeyArena`]).
//!
//! In 4 KB pages, each load from a table of tens of megabytes is a TLB miss. An [`Array`] uses reserved 2 MB pages if the host has enough,
//! else transparent huge pages, else 4 KB pages; [`mapped`] reports the result. With [`Placement::numa_node`] the pages are bound to the
//! node before they are touched; otherwise first touch decides, by the control thread.
//!
//! Reserved pages are populated at once: the kernel may not supply pages that it promised when they were mapped (too few on the node, or a
//! control group's limit), and the first store would raise SIGBUS. Here it is an error, and other pages are used ([`refused_bytes`]).

use fib::host::{Host, list_holds};
use fib::{EngineError, KeyMemory};
use std::fmt;
use std::fs::File;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const HUGE_BYTES: usize = 2 << 20;
/// An array smaller than half a huge page stays in ordinary pages: a huge page would waste more than it gains.
const HUGE_MIN_BYTES: usize = HUGE_BYTES / 2;
const SMALL_BYTES: usize = 4096;
const LINE_BYTES: usize = 64;

/// A type for which all-zero bytes are a valid value, and which may be read and written through a shared reference.
pub trait Word: sealed::AtomicWord + Sync + Send + 'static {}

mod sealed {
    pub trait AtomicWord {}
    impl AtomicWord for super::AtomicU32 {}
    impl AtomicWord for super::AtomicU64 {}

    /// A number for which all-zero bytes are a valid value.
    pub trait PlainWord: Copy + Send + Sync + 'static {}
    impl PlainWord for u32 {}
    impl PlainWord for u64 {}
}
impl Word for AtomicU32 {}
impl Word for AtomicU64 {}

/// An element of a [`KeyArray`].
pub trait KeyWord: sealed::PlainWord {}

impl KeyWord for u32 {}
impl KeyWord for u64 {}

/// The requested placement of table memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Placement {
    /// Whether huge pages may be used.
    pub huge_pages: bool,
    /// The NUMA node; first touch decides when `None`.
    pub numa_node: Option<u32>,
}

/// The requested NUMA node has no memory on this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{node}: no such NUMA node; this host has memory on {there}")]
pub struct NoSuchNode {
    /// The requested node.
    pub node: u32,
    /// The nodes with memory, as the kernel lists them: `0-1,4`.
    pub there: String,
}

/// Checks that a NUMA node has memory. If the kernel lists no nodes (a container without `/sys`), the kernel refuses a wrong one later.
///
/// # Errors
/// [`NoSuchNode`], with the nodes that have memory.
pub fn check_node(node: u32) -> Result<(), NoSuchNode> {
    match Host::here().memory_nodes() {
        Some(there) if !list_holds(&there, node.into()) => Err(NoSuchNode { node, there }),
        _ => Ok(()),
    }
}

/// Table memory of this process by kind of page, bytes. Arrays below half a huge page are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// In reserved 2 MB pages.
    pub huge_bytes: u64,
    /// In pages for which transparent huge pages were requested.
    pub transparent_bytes: u64,
    /// In 4 KB pages, because huge ones were unavailable or not wanted.
    pub small_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    Huge,
    Transparent,
    Small,
    /// In 4 KB pages, as the array is too small for huge ones; not counted.
    Few,
}

static MAPPED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

impl Pages {
    fn tally(self) -> Option<&'static AtomicU64> {
        MAPPED.get(self as usize)
    }
}

/// The table memory of this process now, by kind of page.
#[must_use]
pub fn mapped() -> Mapped {
    let [huge_bytes, transparent_bytes, small_bytes] =
        MAPPED.each_ref().map(|bytes| bytes.load(Ordering::Relaxed));
    Mapped { huge_bytes, transparent_bytes, small_bytes }
}

static REFUSED: AtomicU64 = AtomicU64::new(0);

/// The bytes of all arrays so far that fell back to other pages because the kernel did not supply promised 2 MB pages.
#[must_use]
pub fn refused_bytes() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// A fixed array of atomic words, initially zero, aligned at least to a cache line.
pub struct Array<T: Word> {
    mapping: Mapping,
    len: usize,
    owns: PhantomData<T>,
}

// SAFETY: an `Array` owns its mapping, and `Word` types are `Send`.
unsafe impl<T: Word> Send for Array<T> {}
// SAFETY: only shared references to `Sync` words are handed out.
unsafe impl<T: Word> Sync for Array<T> {}

impl<T: Word> Array<T> {
    /// An array of `len` zero words.
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for a NUMA node without memory, [`EngineError::Memory`] when memory cannot be mapped or bound.
    pub fn zeroed(len: usize, placement: Placement) -> Result<Self, EngineError> {
        if let Some(node) = placement.numa_node {
            check_node(node).map_err(|_| EngineError::Parameter {
                parameter: "table node",
                value: node.to_string(),
                wanted: "wanted a NUMA node of this host that has memory",
            })?;
        }
        let mapping = Mapping::of(len.max(1).saturating_mul(size_of::<T>()), placement)?;
        Ok(Self { mapping, len, owns: PhantomData })
    }

    /// Bytes of memory mapped for the array.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.mapping.bytes as u64
    }
}

/// Memory for the keys of batches: one mapping, of which arrays are taken when the batches are made.
pub struct KeyArena {
    memory: Arc<KeyMapping>,
    taken: usize,
}

struct KeyMapping(Mapping);

// SAFETY: a `KeyMapping` owns its mapping; only the arrays of a `KeyArena`, which are disjoint, give access to it.
unsafe impl Send for KeyMapping {}
// SAFETY: through a shared reference only the addresses can be read.
unsafe impl Sync for KeyMapping {}

impl KeyMemory for KeyMapping {
    fn addresses(&self) -> Range<usize> {
        // Exposed: drivers get the addresses as numbers.
        let start = self.0.start.as_ptr().expose_provenance();
        start..start + self.0.bytes
    }
}

impl KeyArena {
    /// Memory for arrays of `bytes` bytes, as [`Self::bytes_of`] counts them.
    ///
    /// # Errors
    /// [`EngineError::Memory`] when memory cannot be mapped or bound.
    pub fn new(bytes: usize, placement: Placement) -> Result<Self, EngineError> {
        Ok(Self { memory: Arc::new(KeyMapping(Mapping::of(bytes.max(1), placement)?)), taken: 0 })
    }

    /// The bytes that an array of `len` elements takes: whole cache lines; `usize::MAX` for more than there are addresses.
    #[must_use]
    pub const fn bytes_of<T: KeyWord>(len: usize) -> usize {
        len.saturating_mul(size_of::<T>()).div_ceil(LINE_BYTES).saturating_mul(LINE_BYTES)
    }

    /// The memory of all arrays, for readers to adopt.
    #[must_use]
    pub fn memory(&self) -> Arc<dyn KeyMemory> {
        Arc::clone(&self.memory) as Arc<dyn KeyMemory>
    }

    /// A new array of `len` zeros, aligned to a cache line.
    ///
    /// # Errors
    /// [`EngineError::Full`] when too little memory is left.
    pub fn take<T: KeyWord>(&mut self, len: usize) -> Result<KeyArray<T>, EngineError> {
        let (mapping, end) = (&self.memory.0, self.taken.saturating_add(Self::bytes_of::<T>(len)));
        if end > mapping.bytes {
            let (used, limit) = (end as u64, mapping.bytes as u64);
            return Err(EngineError::Full { what: "bytes of key memory", used, limit });
        }
        // SAFETY: `taken` is at most `end`, which is within the mapping.
        let start = unsafe { mapping.start.byte_add(self.taken) }.cast();
        self.taken = end;
        Ok(KeyArray { start, len, memory: Arc::clone(&self.memory) })
    }
}

/// An array in the memory of a [`KeyArena`], which it keeps mapped.
pub struct KeyArray<T: KeyWord> {
    start: NonNull<T>,
    len: usize,
    memory: Arc<KeyMapping>,
}

// SAFETY: the array owns its part of the mapping, and `KeyWord` types are `Send`.
unsafe impl<T: KeyWord> Send for KeyArray<T> {}
// SAFETY: through a shared reference the elements, which are `Sync`, can only be read.
unsafe impl<T: KeyWord> Sync for KeyArray<T> {}

impl<T: KeyWord> Deref for KeyArray<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `KeyArena::take` gave `len` elements to this array alone, aligned to a cache line and zero, which is a value of a `KeyWord`;
        // `memory` keeps them mapped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: KeyWord> DerefMut for KeyArray<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `&mut self` excludes every other reference. A device that still reads the keys of an abandoned batch gets
        // arbitrary values, and never writes.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: KeyWord> fmt::Debug for KeyArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyArray({} x {} bytes of {})", self.len, size_of::<T>(), self.memory.0.bytes)
    }
}

struct Mapping {
    start: NonNull<libc::c_void>,
    bytes: usize,
    pages: Pages,
}

impl Mapping {
    /// As [`Self::new`], with the error of an engine.
    fn of(bytes: usize, placement: Placement) -> Result<Self, EngineError> {
        Self::new(bytes, placement).map_err(|error| {
            let node = placement.numa_node.map_or_else(String::new, |node| format!("NUMA node {node}: "));
            EngineError::Memory { bytes: bytes as u64, reason: format!("{node}{error}") }
        })
    }

    fn new(bytes: usize, placement: Placement) -> std::io::Result<Self> {
        if !placement.huge_pages || bytes < HUGE_MIN_BYTES {
            let pages = if bytes < HUGE_MIN_BYTES { Pages::Few } else { Pages::Small };
            let mapping = Self::map(round(bytes, SMALL_BYTES)?, 0, pages)?;
            mapping.bind(placement.numa_node)?;
            return Ok(mapping);
        }
        let bytes = round(bytes, HUGE_BYTES)?;
        Self::reserved(bytes, placement.numa_node, Self::populate)
            .or_else(|_| Self::transparent(bytes, placement.numa_node))
    }

    fn reserved(
        bytes: usize,
        node: Option<u32>,
        populate: impl FnOnce(&Self) -> std::io::Result<()>,
    ) -> std::io::Result<Self> {
        // The size is explicit, since the default of the host may differ.
        let mapping = Self::map(bytes, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB, Pages::Huge)?;
        mapping.bind(node)?;
        populate(&mapping).inspect_err(|_| {
            REFUSED.fetch_add(bytes as u64, Ordering::Relaxed);
        })?;
        Ok(mapping)
    }

    /// Touches each huge page. The kernel does the store, as part of a read of `/dev/zero`, so that a missing page is an error and not a
    /// signal. `MADV_POPULATE_WRITE` does the same from Linux 5.14 on; `MAP_POPULATE` hides the failure.
    fn populate(&self) -> std::io::Result<()> {
        let zero = File::open("/dev/zero")?;
        for offset in (0..self.bytes).step_by(HUGE_BYTES) {
            // SAFETY: `offset` is within the mapping, which is ours.
            let page = unsafe { self.start.byte_add(offset) };
            // SAFETY: the call writes one zero over a zero of the page, to which there is no reference yet.
            let read = unsafe { libc::read(zero.as_raw_fd(), page.as_ptr(), 1) };
            if read != 1 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    }

    fn transparent(bytes: usize, node: Option<u32>) -> std::io::Result<Self> {
        // Huge pages need aligned memory: map one more, and unmap the excess.
        let mut mapping = Self::map(round(bytes.saturating_add(HUGE_BYTES), HUGE_BYTES)?, 0, Pages::Small)?;
        let start = mapping.start.addr().get();
        mapping.keep(start.next_multiple_of(HUGE_BYTES) - start, bytes);
        mapping.bind(node)?;
        if has_transparent() && mapping.advise(libc::MADV_HUGEPAGE).is_ok() {
            mapping.count(Pages::Transparent);
        }
        Ok(mapping)
    }

    fn map(bytes: usize, flags: libc::c_int, pages: Pages) -> std::io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let start = NonNull::new(start).ok_or_else(|| std::io::Error::other("mapping at address 0"))?;
        let mut mapping = Self { start, bytes, pages: Pages::Few };
        mapping.count(pages);
        Ok(mapping)
    }

    /// Moves the mapping to the count of `pages`.
    fn count(&mut self, pages: Pages) {
        let bytes = self.bytes as u64;
        if let Some(tally) = self.pages.tally() {
            tally.fetch_sub(bytes, Ordering::Relaxed);
        }
        self.pages = pages;
        if let Some(tally) = pages.tally() {
            tally.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Unmaps all but the `bytes` bytes from `offset` on. Both must be multiples of a page, and the range within the mapping.
    fn keep(&mut self, offset: usize, bytes: usize) {
        let (pages, after) = (self.pages, self.bytes - offset - bytes);
        self.count(Pages::Few);
        // SAFETY: `offset` is within the mapping, which is ours.
        let (before, start) = (self.start, unsafe { self.start.byte_add(offset) });
        // SAFETY: `offset + bytes` is within the mapping, too.
        let end = unsafe { start.byte_add(bytes) };
        for (from, bytes) in [(before, offset), (end, after)] {
            if bytes > 0 {
                // SAFETY: whole pages of our mapping, to which there is no reference.
                unsafe { libc::munmap(from.as_ptr(), bytes) };
            }
        }
        (self.start, self.bytes) = (start, bytes);
        self.count(pages);
    }

    fn advise(&self, advice: libc::c_int) -> std::io::Result<()> {
        // SAFETY: the range is our mapping; none of the advice given changes its contents.
        let result = unsafe { libc::madvise(self.start.as_ptr(), self.bytes, advice) };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }

    /// Binds all pages of the mapping to `node`. None may have been touched yet.
    fn bind(&self, node: Option<u32>) -> std::io::Result<()> {
        const MPOL_BIND: libc::c_int = 2; // linux/mempolicy.h
        let Some(node) = node else { return Ok(()) };
        let mut mask = [0_u64; 16];
        let Some(word) = mask.get_mut(node as usize / 64) else {
            return Err(std::io::Error::from_raw_os_error(libc::EINVAL));
        };
        *word = 1 << (node % 64);
        let bits = mask.len() * 64 + 1;
        // SAFETY: the range is our mapping and the mask outlives the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.bytes,
                MPOL_BIND,
                mask.as_ptr(),
                bits,
                0_usize,
            )
        };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }
}

fn round(bytes: usize, unit: usize) -> std::io::Result<usize> {
    bytes.checked_next_multiple_of(unit).ok_or_else(|| std::io::Error::other("too large"))
}

fn has_transparent() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| Host::here().has_transparent_huge_pages())
}

impl Drop for Mapping {
    fn drop(&mut self) {
        crate::drops::note("table memory");
        self.count(Pages::Few);
        // SAFETY: the mapping is ours and of this size, and no reference into it can be left.
        unsafe { libc::munmap(self.start.as_ptr(), self.bytes) };
    }
}

impl<T: Word> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping holds `len` words, zero bytes are a value of a `Word`, and it lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.mapping.start.as_ptr().cast(), self.len) }
    }
}

impl<T: Word> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mapping { bytes, pages, .. } = &self.mapping;
        f.debug_struct("Array").field("len", &self.len).field("bytes", bytes).field("pages", pages).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    const MB: usize = 1 << 20;

    #[test]
    fn arrays_are_zero_aligned_and_writable() {
        for huge_pages in [false, true] {
            let array = Array::<AtomicU32>::zeroed(MB, Placement { huge_pages, numa_node: None }).unwrap();
            assert_eq!(array.as_ptr().align_offset(64), 0);
            assert!(array.iter().all(|word| word.load(Relaxed) == 0));
            array[MB - 1].store(7, Relaxed);
            assert_eq!(array[MB - 1].load(Relaxed), 7);
        }
    }

    #[test]
    fn arrays_of_keys_are_disjoint_and_keep_their_memory() {
        let bytes =
            KeyArena::bytes_of::<u32>(17) + KeyArena::bytes_of::<u64>(9) + KeyArena::bytes_of::<u64>(500);
        let mut arena = KeyArena::new(bytes, Placement::default()).unwrap();
        let (mut v4, mut hi) = (arena.take::<u32>(17).unwrap(), arena.take::<u64>(9).unwrap());
        let lo = arena.take::<u64>(500).unwrap();
        for len in [SMALL_BYTES, usize::MAX / 4 + 2, usize::MAX] {
            assert!(matches!(arena.take::<u32>(len), Err(EngineError::Full { .. })), "no room for {len}");
        }
        let memory = arena.memory();
        let addresses = memory.addresses();
        drop((arena, memory));
        for (start, bytes) in
            [(v4.as_ptr().addr(), 17 * 4), (hi.as_ptr().addr(), 9 * 8), (lo.as_ptr().addr(), 500 * 8)]
        {
            assert!(start.is_multiple_of(64) && addresses.contains(&start));
            assert!(start + bytes <= addresses.end);
        }
        v4.fill(u32::MAX);
        hi.fill(7);
        assert!(v4.iter().all(|key| *key == u32::MAX) && hi[..] == [7; 9] && lo.iter().all(|key| *key == 0));
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        let refused = Array::<AtomicU64>::zeroed(usize::MAX / 16, Placement::default());
        assert!(matches!(refused, Err(EngineError::Memory { .. })));
        if Host::here().memory_nodes().is_none() {
            eprintln!("SKIPPED: this kernel lists no NUMA nodes");
            return;
        }
        for node in [1023, 4000, u32::MAX] {
            let placement = Placement { huge_pages: false, numa_node: Some(node) };
            let refused = Array::<AtomicU32>::zeroed(16, placement);
            assert!(matches!(refused, Err(EngineError::Parameter { .. })), "{refused:?}");
            let refused = check_node(node).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("{node}: no such NUMA node; this host has memory on 0")));
        }
    }

    #[test]
    fn pages_are_the_best_there_are() {
        let huge = Placement { huge_pages: true, numa_node: None };
        assert_eq!(Mapping::new(HUGE_MIN_BYTES - 1, huge).unwrap().pages, Pages::Few);
        assert_eq!(Mapping::new(4 * MB, Placement::default()).unwrap().pages, Pages::Small);
        // More than any host has reserved, so this falls back to other pages; they are not touched.
        let most = Mapping::new(64 << 40, huge);
        assert!(most.is_err() || most.is_ok_and(|most| most.pages != Pages::Huge));
        let transparent = Mapping::transparent(3 * HUGE_BYTES, None).unwrap();
        assert_eq!(transparent.start.as_ptr().align_offset(HUGE_BYTES), 0);
        assert_eq!(transparent.bytes, 3 * HUGE_BYTES);
        assert_eq!(transparent.pages == Pages::Transparent, has_transparent());
        assert!(mapped().transparent_bytes + mapped().small_bytes >= transparent.bytes as u64);
        match Mapping::reserved(HUGE_BYTES, None, Mapping::populate) {
            Ok(reserved) => {
                assert_eq!((reserved.bytes, reserved.pages), (HUGE_BYTES, Pages::Huge));
                assert!(mapped().huge_bytes >= HUGE_BYTES as u64);
            }
            Err(error) => eprintln!("SKIPPED: no 2 MB page is free: {error}"),
        }
    }

    #[test]
    fn reserved_pages_are_populated_or_not_used() {
        let refused = refused_bytes();
        let refusal = |_: &Mapping| Err(std::io::Error::from_raw_os_error(libc::EFAULT));
        match Mapping::reserved(HUGE_BYTES, None, Mapping::populate) {
            Ok(reserved) => {
                let mut resident = [0];
                // SAFETY: the mapping is ours, and there is a byte for its first page.
                let seen =
                    unsafe { libc::mincore(reserved.start.as_ptr(), SMALL_BYTES, resident.as_mut_ptr()) };
                assert_eq!((seen, resident[0] & 1), (0, 1), "in memory before the first store");
                assert!(Mapping::reserved(HUGE_BYTES, None, refusal).is_err());
                assert_eq!(refused_bytes() - refused, HUGE_BYTES as u64);
            }
            Err(error) => eprintln!("SKIPPED: no 2 MB page is free: {error}"),
        }
    }

    #[test]
    fn what_cannot_be_touched_is_an_error() {
        let mapping = Mapping::map(2 * HUGE_BYTES, 0, Pages::Few).unwrap();
        mapping.populate().unwrap();
        // SAFETY: the second half is within the mapping.
        let second = unsafe { mapping.start.byte_add(HUGE_BYTES) };
        // SAFETY: there is no reference into it.
        let protected = unsafe { libc::mprotect(second.as_ptr(), HUGE_BYTES, libc::PROT_NONE) };
        assert_eq!(protected, 0);
        assert_eq!(mapping.populate().unwrap_err().raw_os_error(), Some(libc::EFAULT));
    }

    fn placed(start: usize, node: u32) -> Option<(String, u64)> {
        let maps = std::fs::read_to_string("/proc/self/numa_maps").ok()?;
        let line = maps.lines().find(|line| line.starts_with(&format!("{start:08x} "))).unwrap();
        let mut words = line.split(' ').skip(1);
        let policy = words.next().unwrap().to_owned();
        let pages = words.find_map(|word| word.strip_prefix(&format!("N{node}="))?.parse().ok());
        Some((policy, pages.unwrap_or(0)))
    }

    #[test]
    fn a_chosen_node_has_every_page() {
        let Some(there) = Host::here().memory_nodes() else {
            return eprintln!("SKIPPED: this kernel lists no NUMA nodes");
        };
        for node in (0..1024).filter(|node: &u32| list_holds(&there, (*node).into())) {
            for (huge_pages, len) in [(true, 2 * MB), (false, 2 * MB), (true, 1000)] {
                let placement = Placement { huge_pages, numa_node: Some(node) };
                let array = match Array::<AtomicU32>::zeroed(len, placement) {
                    Ok(array) => array,
                    // A control group may allow this process only some of the nodes.
                    Err(error) => {
                        eprintln!("SKIPPED: node {node}: {error}");
                        continue;
                    }
                };
                array.iter().for_each(|word| word.store(1, Relaxed));
                let Some((policy, pages)) = placed(array.as_ptr().addr(), node) else {
                    return eprintln!("SKIPPED: this kernel has no numa_maps");
                };
                let unit = if array.mapping.pages == Pages::Huge { HUGE_BYTES } else { SMALL_BYTES };
                let wanted = (array.len * 4).div_ceil(unit);
                assert_eq!(policy, format!("bind:{node}"), "{array:?}");
                assert_eq!(pages, wanted as u64, "{array:?}");
            }
        }
    }
}
