//! The lookup libraries of [`crate::fib::DpdkTable`]: C functions and limits. `rte_fib` and `rte_fib6` reserve one bit of an entry, so
//! next hops and group numbers are below 2^15 (2 bytes) or 2^31 (`get_max_nh` in DPDK's `lib/fib`).

use std::ffi::CStr;

use crate::ids::SocketId;
use crate::sys;

/// Bytes per entry of `rte_fib` and `rte_fib6`. `rte_lpm` and `rte_lpm6` always have 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryBytes {
    /// 2 bytes: next hops and second-level groups up to 2^15 - 1.
    Two,
    /// 4 bytes: next hops and second-level groups up to 2^31 - 1.
    Four,
}

impl EntryBytes {
    /// The size in bytes, 2 or 4.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Four => 4,
        }
    }

    /// The largest next hop, which is also the maximum number of second-level groups.
    #[must_use]
    pub const fn limit(self) -> u32 {
        match self {
            Self::Two => (1 << 15) - 1,
            Self::Four => (1 << 31) - 1,
        }
    }
}

/// The lookup function of `rte_fib` and `rte_fib6`, chosen for the whole table and not per call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupKind {
    /// Plain C, one key at a time.
    Scalar,
    /// AVX-512 gathers.
    Avx512,
}

/// The parameters of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableConfig {
    /// The maximum number of routes. DPDK allocates their memory at once (in `rte_fib`, for twice as many nodes).
    pub routes_max: u32,
    /// Second-level groups (`tbl8`) of 256 entries: one for each 24-bit block with longer prefixes, in IPv6 one for each further byte.
    pub groups: u32,
    /// Bytes per entry.
    pub entry: EntryBytes,
    /// The NUMA node of the table.
    pub socket: SocketId,
}

mod sealed {
    pub trait SealedLibrary {}
}

/// One of DPDK's lookup libraries. The trait is sealed.
pub trait Library: sealed::SealedLibrary {
    /// A key: `u32` in host order, or 16 bytes in wire order.
    type Key: Copy;
    /// The library's result for a key.
    type Answer: Copy + Default;
    /// The library's name in DPDK.
    const NAME: &'static str;
    /// The shortest prefix length that it accepts: `rte_lpm` and `rte_lpm6` have no default route.
    const LEN_MIN: u8 = 0;

    #[doc(hidden)]
    type Raw;
    #[doc(hidden)]
    fn entry_max(config: &TableConfig) -> u32 {
        config.entry.limit()
    }
    #[doc(hidden)]
    fn next_hop(answer: Self::Answer) -> u32;
    /// # Safety
    /// EAL must run, and `config` be within the library's limits.
    #[doc(hidden)]
    unsafe fn create(name: &CStr, config: &TableConfig) -> *mut Self::Raw;
    /// # Safety
    /// `table` must come from `create` and be unused.
    #[doc(hidden)]
    unsafe fn free(table: *mut Self::Raw);
    /// # Safety
    /// `table` must be alive and have no other writer.
    #[doc(hidden)]
    unsafe fn add(table: *mut Self::Raw, address: &Self::Key, len: u8, next_hop: u32) -> i32;
    /// # Safety
    /// `table` must be alive and have no other writer.
    #[doc(hidden)]
    unsafe fn delete(table: *mut Self::Raw, address: &Self::Key, len: u8) -> i32;
    /// # Safety
    /// `table` must be alive; `count` keys must be readable and `count` answers writable.
    #[doc(hidden)]
    unsafe fn lookup(
        table: *mut Self::Raw,
        keys: *const Self::Key,
        answers: *mut Self::Answer,
        count: i32,
    ) -> i32;
}

/// A library with a choice of lookup functions.
pub trait Selectable: Library {
    /// # Safety
    /// `table` must be alive and without concurrent lookups.
    #[doc(hidden)]
    unsafe fn select(table: *mut Self::Raw, kind: LookupKind) -> i32;
}

/// `rte_fib` (DIR24_8): a direct array of 2^24 entries, and groups of 256 for longer prefixes. Keys in host order.
#[derive(Debug)]
pub enum RteFib {}
/// `rte_fib6` (TRIE): a direct array of 2^24 entries, then a group of 256 for each further byte. Keys in wire order.
#[derive(Debug)]
pub enum RteFib6 {}
/// `rte_lpm`: as DIR24_8 with 4-byte entries that also hold the length. Keys in host order; no default route.
#[derive(Debug)]
pub enum RteLpm {}
/// `rte_lpm6`: as TRIE with 4-byte entries. Keys in wire order; no default route.
#[derive(Debug)]
pub enum RteLpm6 {}

impl sealed::SealedLibrary for RteFib {}
impl sealed::SealedLibrary for RteFib6 {}
impl sealed::SealedLibrary for RteLpm {}
impl sealed::SealedLibrary for RteLpm6 {}

/// The next hop of `rte_lpm` has 24 bits (`struct rte_lpm_tbl_entry`), as does a group's number.
const LPM4_MAX: u32 = (1 << 24) - 1;
/// The next hop of `rte_lpm6` has 21 bits (`struct rte_lpm6_tbl_entry`), as does a group's number.
const LPM6_MAX: u32 = (1 << 21) - 1;

#[expect(clippy::cast_possible_wrap, reason = "DpdkTable::new has checked it against half of i32::MAX")]
fn routes(config: &TableConfig) -> i32 {
    config.routes_max as i32
}

#[expect(clippy::cast_possible_truncation, reason = "a next hop of more than 31 bits is never added")]
const fn fib_next_hop(answer: u64) -> u32 {
    answer as u32
}

/// By the three C functions of a library, which takes an address as `$passed`.
macro_rules! changes {
    ($raw:ident, |$address:ident: $key:ty| $passed:expr, $free:ident, $add:ident, $delete:ident) => {
        unsafe fn free(table: *mut sys::$raw) {
            // SAFETY: by the caller's contract.
            unsafe { sys::$free(table) }
        }

        unsafe fn add(table: *mut sys::$raw, $address: $key, len: u8, next_hop: u32) -> i32 {
            // SAFETY: by the caller's contract; of an address passed as a pointer, its 16 bytes are read.
            unsafe { sys::$add(table, $passed, len, next_hop.into()) }
        }

        unsafe fn delete(table: *mut sys::$raw, $address: $key, len: u8) -> i32 {
            // SAFETY: by the caller's contract; of an address passed as a pointer, its 16 bytes are read.
            unsafe { sys::$delete(table, $passed, len) }
        }
    };
}

impl Library for RteFib {
    type Key = u32;
    type Answer = u64;
    type Raw = sys::rte_fib;
    const NAME: &'static str = "rte_fib";

    fn next_hop(answer: u64) -> u32 {
        fib_next_hop(answer)
    }

    unsafe fn create(name: &CStr, config: &TableConfig) -> *mut sys::rte_fib {
        let mut made = sys::rte_fib_conf {
            type_: sys::RTE_FIB_DIR24_8,
            default_nh: 0,
            max_routes: routes(config),
            ..Default::default()
        };
        made.__bindgen_anon_1.dir24_8 = sys::rte_fib_conf__bindgen_ty_1__bindgen_ty_1 {
            nh_sz: match config.entry {
                EntryBytes::Two => sys::RTE_FIB_DIR24_8_2B,
                EntryBytes::Four => sys::RTE_FIB_DIR24_8_4B,
            },
            num_tbl8: config.groups,
        };
        // SAFETY: EAL runs (the caller's contract); name and configuration live through the call, which copies them.
        unsafe { sys::rte_fib_create(name.as_ptr(), config.socket.0, &raw mut made) }
    }

    changes!(rte_fib, |address: &u32| *address, rte_fib_free, rte_fib_add, rte_fib_delete);

    #[inline]
    unsafe fn lookup(table: *mut sys::rte_fib, keys: *const u32, answers: *mut u64, count: i32) -> i32 {
        // SAFETY: by the caller's contract. C's signature has no const, but the keys are only read.
        unsafe { sys::rte_fib_lookup_bulk(table, keys.cast_mut(), answers, count) }
    }
}

impl Selectable for RteFib {
    unsafe fn select(table: *mut sys::rte_fib, kind: LookupKind) -> i32 {
        let kind = match kind {
            LookupKind::Scalar => sys::RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO,
            LookupKind::Avx512 => sys::RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512,
        };
        // SAFETY: by the caller's contract.
        unsafe { sys::rte_fib_select_lookup(table, kind) }
    }
}

impl Library for RteFib6 {
    type Key = [u8; 16];
    type Answer = u64;
    type Raw = sys::rte_fib6;
    const NAME: &'static str = "rte_fib6";

    fn next_hop(answer: u64) -> u32 {
        fib_next_hop(answer)
    }

    unsafe fn create(name: &CStr, config: &TableConfig) -> *mut sys::rte_fib6 {
        let mut made = sys::rte_fib6_conf {
            type_: sys::RTE_FIB6_TRIE,
            default_nh: 0,
            max_routes: routes(config),
            ..Default::default()
        };
        made.__bindgen_anon_1.trie = sys::rte_fib6_conf__bindgen_ty_1__bindgen_ty_1 {
            nh_sz: match config.entry {
                EntryBytes::Two => sys::RTE_FIB6_TRIE_2B,
                EntryBytes::Four => sys::RTE_FIB6_TRIE_4B,
            },
            num_tbl8: config.groups,
        };
        // SAFETY: EAL runs (the caller's contract); name and configuration live through the call, which copies them.
        unsafe { sys::rte_fib6_create(name.as_ptr(), config.socket.0, &raw mut made) }
    }

    changes!(rte_fib6, |address: &[u8; 16]| address.as_ptr(), rte_fib6_free, dffi_fib6_add, dffi_fib6_delete);

    #[inline]
    unsafe fn lookup(table: *mut sys::rte_fib6, keys: *const [u8; 16], answers: *mut u64, count: i32) -> i32 {
        // SAFETY: by the caller's contract; the shim reads 16 bytes a key.
        unsafe { sys::dffi_fib6_lookup_bulk(table, keys.cast(), answers, count) }
    }
}

impl Selectable for RteFib6 {
    unsafe fn select(table: *mut sys::rte_fib6, kind: LookupKind) -> i32 {
        let kind = match kind {
            LookupKind::Scalar => sys::RTE_FIB6_LOOKUP_TRIE_SCALAR,
            LookupKind::Avx512 => sys::RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512,
        };
        // SAFETY: by the caller's contract.
        unsafe { sys::rte_fib6_select_lookup(table, kind) }
    }
}

impl Library for RteLpm {
    type Key = u32;
    type Answer = u32;
    type Raw = sys::rte_lpm;
    const NAME: &'static str = "rte_lpm";
    const LEN_MIN: u8 = 1;

    fn entry_max(_config: &TableConfig) -> u32 {
        LPM4_MAX
    }

    fn next_hop(answer: u32) -> u32 {
        if answer & sys::DFFI_LPM_FOUND == 0 { 0 } else { answer & LPM4_MAX }
    }

    unsafe fn create(name: &CStr, config: &TableConfig) -> *mut sys::rte_lpm {
        let made =
            sys::rte_lpm_config { max_rules: config.routes_max, number_tbl8s: config.groups, flags: 0 };
        // SAFETY: EAL runs (the caller's contract); name and configuration live through the call, which copies them.
        unsafe { sys::rte_lpm_create(name.as_ptr(), config.socket.0, &raw const made) }
    }

    changes!(rte_lpm, |address: &u32| *address, rte_lpm_free, rte_lpm_add, rte_lpm_delete);

    #[inline]
    unsafe fn lookup(table: *mut sys::rte_lpm, keys: *const u32, answers: *mut u32, count: i32) -> i32 {
        // SAFETY: by the caller's contract; the count is not negative.
        unsafe { sys::dffi_lpm_lookup_bulk(table, keys, answers, count.unsigned_abs()) }
    }
}

impl Library for RteLpm6 {
    type Key = [u8; 16];
    type Answer = i32;
    type Raw = sys::rte_lpm6;
    const NAME: &'static str = "rte_lpm6";
    const LEN_MIN: u8 = 1;

    fn entry_max(_config: &TableConfig) -> u32 {
        LPM6_MAX
    }

    fn next_hop(answer: i32) -> u32 {
        u32::try_from(answer).unwrap_or(0)
    }

    unsafe fn create(name: &CStr, config: &TableConfig) -> *mut sys::rte_lpm6 {
        let made =
            sys::rte_lpm6_config { max_rules: config.routes_max, number_tbl8s: config.groups, flags: 0 };
        // SAFETY: EAL runs (the caller's contract); name and configuration live through the call, which copies them.
        unsafe { sys::rte_lpm6_create(name.as_ptr(), config.socket.0, &raw const made) }
    }

    changes!(rte_lpm6, |address: &[u8; 16]| address.as_ptr(), rte_lpm6_free, dffi_lpm6_add, dffi_lpm6_delete);

    #[inline]
    unsafe fn lookup(table: *mut sys::rte_lpm6, keys: *const [u8; 16], answers: *mut i32, count: i32) -> i32 {
        // SAFETY: by the caller's contract; the shim reads 16 bytes a key; the count is not negative.
        unsafe { sys::dffi_lpm6_lookup_bulk(table, keys.cast(), answers, count.unsigned_abs()) }
    }
}
