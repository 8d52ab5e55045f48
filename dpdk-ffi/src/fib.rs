//! DPDK's longest-prefix-match tables, for comparison with ours: `rte_fib`, `rte_fib6`, `rte_lpm`, `rte_lpm6`.
//!
//! A [`DpdkTable`] is the writer; its [`Reader`]s look up on other threads while it changes. A lookup *during* a change may return a next
//! hop of neither table: DPDK reuses a freed second-level group at once. Next hop 0, no route, is refused by [`DpdkTable::add`].

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::c_text::c_string;
use crate::eal::{Eal, Token};
use crate::error::DpdkError;
use crate::sys;

pub use crate::fib_libraries::{
    EntryBytes, Library, LookupKind, RteFib, RteFib6, RteLpm, RteLpm6, Selectable, TableConfig,
};

/// DPDK's limits are 64 (`rte_fib`) and 32 (`rte_lpm`) including the NUL, and it prepends up to 4 characters to name the table's objects.
const NAME_MAX: usize = 26;

struct OwnedTable<L: Library> {
    table: NonNull<L::Raw>,
    _token: Token,
}

// SAFETY: the table is plain EAL memory, bound to no thread. Only `&mut DpdkTable` changes it, and there is one `DpdkTable`. Concurrent
// lookups load aligned entries, whose group numbers DPDK keeps within the table at every moment.
unsafe impl<L: Library> Send for OwnedTable<L> {}
// SAFETY: the same argument; a shared reference allows only lookups.
unsafe impl<L: Library> Sync for OwnedTable<L> {}

impl<L: Library> Drop for OwnedTable<L> {
    fn drop(&mut self) {
        // SAFETY: made by `create`, and no handle is left; EAL still runs, because of the token.
        unsafe { L::free(self.table.as_ptr()) };
    }
}

impl<L: Library> OwnedTable<L> {
    #[inline]
    fn lookup(&self, keys: &[L::Key], answers: &mut [L::Answer]) -> Result<(), DpdkError> {
        let count = checked_count(keys.len(), answers.len())?;
        // SAFETY: the table is alive as long as self; both slices have `count` items.
        let answer = unsafe { L::lookup(self.table.as_ptr(), keys.as_ptr(), answers.as_mut_ptr(), count) };
        DpdkError::check_named(L::NAME, "lookup", answer)
    }
}

fn checked_count(keys: usize, answers: usize) -> Result<i32, DpdkError> {
    if keys != answers {
        return Err(DpdkError::TooMuch { what: "keys for the answers", wanted: keys, limit: answers });
    }
    let limit = i32::MAX as usize;
    i32::try_from(keys).map_err(|_| DpdkError::TooMuch { what: "keys of one lookup", wanted: keys, limit })
}

/// The writer of a table of one of DPDK's lookup libraries.
pub struct DpdkTable<L: Library> {
    shared: Arc<OwnedTable<L>>,
    next_hop_max: u32,
}

impl<L: Library> std::fmt::Debug for DpdkTable<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct(L::NAME).field("next_hop_max", &self.next_hop_max).finish_non_exhaustive()
    }
}

impl<L: Library> DpdkTable<L> {
    /// An empty table called `name` (at most 26 bytes, unique within the library).
    ///
    /// # Errors
    /// [`DpdkError::TooMuch`] beyond an entry's limits; [`DpdkError::NamedCall`] without memory (ENOMEM) or for a used name (EEXIST).
    pub fn new(eal: &Eal, name: &str, config: &TableConfig) -> Result<Self, DpdkError> {
        DpdkError::within("bytes of a table's name", name.len(), NAME_MAX)?;
        let c_name: CString = c_string("a table's name", name)?;
        DpdkError::within("second-level groups", config.groups as usize, L::entry_max(config) as usize)?;
        // DPDK counts in an int, and doubles the number of routes to get its nodes.
        DpdkError::within("routes", config.routes_max as usize, i32::MAX as usize / 2)?;
        // SAFETY: EAL runs, because there is an Eal; the numbers were just checked.
        let table = unsafe { L::create(&c_name, config) };
        let table =
            NonNull::new(table).ok_or_else(|| DpdkError::named(L::NAME, name, DpdkError::last_errno()))?;
        let shared = Arc::new(OwnedTable { table, _token: eal.token() });
        Ok(Self { shared, next_hop_max: L::entry_max(config) })
    }

    /// The largest next hop for [`Self::add`].
    #[must_use]
    pub const fn next_hop_max(&self) -> u32 {
        self.next_hop_max
    }

    /// Sets the next hop of the route `address`/`len`; host bits are ignored.
    ///
    /// # Errors
    /// [`DpdkError::TooMuch`] for a length or next hop outside the limits; [`DpdkError::NamedCall`] without room (ENOSPC, ENOMEM).
    pub fn add(&mut self, address: L::Key, len: u8, next_hop: u32) -> Result<(), DpdkError> {
        Self::checked_len(len)?;
        DpdkError::within("the next hop", next_hop as usize, self.next_hop_max as usize)?;
        DpdkError::within("next hop 0, which means no route", usize::from(next_hop == 0), 0)?;
        // SAFETY: the table is alive, and `&mut self` is its one writer.
        let answer = unsafe { L::add(self.shared.table.as_ptr(), &address, len, next_hop) };
        DpdkError::check_named(L::NAME, "add", answer)
    }

    /// Removes the route `address`/`len`; returns `false` if it does not exist.
    ///
    /// # Errors
    /// [`DpdkError::TooMuch`] for a length outside the limits; [`DpdkError::NamedCall`] if entries cannot be rewritten (ENOSPC).
    pub fn delete(&mut self, address: L::Key, len: u8) -> Result<bool, DpdkError> {
        /// The result of the `rte_fib` libraries and `rte_lpm6` for an unknown route.
        const ENOENT: i32 = -libc::ENOENT;
        /// The result of `rte_lpm` for an unknown route.
        const EINVAL: i32 = -libc::EINVAL;
        Self::checked_len(len)?;
        // SAFETY: the table is alive, and `&mut self` is its one writer.
        match unsafe { L::delete(self.shared.table.as_ptr(), &address, len) } {
            0 => Ok(true),
            ENOENT | EINVAL => Ok(false),
            errno => Err(DpdkError::named("delete", L::NAME, errno)),
        }
    }

    /// Looks up `keys` into `answers`; [`DpdkError::TooMuch`] if their lengths differ.
    #[inline]
    pub fn lookup(&self, keys: &[L::Key], answers: &mut [L::Answer]) -> Result<(), DpdkError> {
        self.shared.lookup(keys, answers)
    }

    /// The next hop in an answer; 0 means no route.
    #[must_use]
    pub fn next_hop(answer: L::Answer) -> u32 {
        L::next_hop(answer)
    }

    /// A reader for another thread, which may look up while the table changes.
    #[must_use]
    pub fn reader(&self) -> Reader<L> {
        Reader { shared: Arc::clone(&self.shared) }
    }

    fn checked_len(len: u8) -> Result<(), DpdkError> {
        DpdkError::within("default routes", usize::from(len < L::LEN_MIN), 0)?;
        DpdkError::within("bits of a prefix", len.into(), 8 * size_of::<L::Key>())
    }
}

impl<L: Selectable> DpdkTable<L> {
    /// Chooses the lookup function.
    ///
    /// # Errors
    /// [`DpdkError::TableInUse`] while a reader exists; [`DpdkError::SimdWidth`] for AVX-512 if the CPU lacks it or EAL was started
    /// without `--force-max-simd-bitwidth=512`. (DPDK's "default" type is not offered, as it would silently stay scalar then.)
    pub fn select(&mut self, kind: LookupKind) -> Result<(), DpdkError> {
        let readers = Arc::strong_count(&self.shared) - 1;
        if readers > 0 {
            return Err(DpdkError::TableInUse { table: L::NAME, readers });
        }
        // SAFETY: the table is alive; no lookup runs, as there is no reader and self is borrowed uniquely.
        let answer = unsafe { L::select(self.shared.table.as_ptr(), kind) };
        if answer == 0 {
            return Ok(());
        }
        if kind == LookupKind::Avx512 {
            // SAFETY: reads EAL's configuration; EAL runs, because of the token.
            let allowed_bits = unsafe { sys::rte_vect_get_max_simd_bitwidth() };
            return Err(DpdkError::SimdWidth { table: L::NAME, allowed_bits });
        }
        Err(DpdkError::named("select", L::NAME, answer))
    }
}

/// The reader of a table; may move to another thread.
pub struct Reader<L: Library> {
    shared: Arc<OwnedTable<L>>,
}

impl<L: Library> Reader<L> {
    /// Looks up `keys` into `answers`; [`DpdkError::TooMuch`] if their lengths differ.
    #[inline]
    pub fn lookup(&mut self, keys: &[L::Key], answers: &mut [L::Answer]) -> Result<(), DpdkError> {
        self.shared.lookup(keys, answers)
    }
}
