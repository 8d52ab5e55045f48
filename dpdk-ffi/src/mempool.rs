//! Pools of packet buffers. Lcores have a per-thread cache of the pool; other threads use the shared ring every time, at the cost of an
//! atomic exchange a call. A pool lives until EAL ends: its mbufs may still be in a driver's queue or another thread's burst, and DPDK's
//! counts cannot rule that out.
//!
//! Huge pages matter most here: a burst of 128 packets touches more 4 KB pages than the TLB holds. Transparent huge pages do not help,
//! because EAL does not align that memory to 2 MB.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::c_text::{c_string, copy_text};
use crate::device::control;
use crate::eal::{Eal, Token};
use crate::error::DpdkError;
use crate::ids::SocketId;
use crate::sys;

/// The minimum data room: the headers that a pass loads must lie within any buffer (see [`simd`](crate::simd)).
pub(crate) const DATA_ROOM_MIN: u16 = 64;

/// The parameters of a mempool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MempoolConfig {
    /// The number of mbufs. `2^q - 1` wastes no memory.
    pub mbufs: u32,
    /// The number of mbufs that each lcore caches, at most 512 and `mbufs / 1.5`; 0 for none.
    pub cache_mbufs: u32,
    /// Packet bytes that one mbuf holds after its headroom of 128; the buffer has at least 64, enough for the passes over headers.
    pub data_room_bytes: u16,
    /// The NUMA node of the memory.
    pub socket: SocketId,
    /// Whether threads that are no lcores use it too. With DPDK's default ring every thread waits for one that was preempted in a call;
    /// with `ring_mt_rts` none waits, and a call costs one wider atomic exchange more.
    pub is_preemptible: bool,
}

impl MempoolConfig {
    /// The default of `cache_mbufs`.
    pub const CACHE_MBUFS: u32 = 256;

    /// The maximum number of mbufs in the default caches of `lcores` lcores: a cache may hold 1.5 times its nominal size.
    #[must_use]
    pub const fn cached_max(lcores: usize) -> usize {
        lcores * Self::CACHE_MBUFS as usize * 3 / 2
    }
}

impl Default for MempoolConfig {
    /// 8,191 mbufs of 2,048 bytes, caches of 256, on any node, for lcores.
    fn default() -> Self {
        MempoolConfig {
            mbufs: 8191,
            cache_mbufs: Self::CACHE_MBUFS,
            data_room_bytes: 2048,
            socket: SocketId::ANY,
            is_preemptible: false,
        }
    }
}

/// A pool of packet buffers. Cloning clones the handle; all threads may use it.
#[derive(Clone)]
pub struct Mempool {
    inner: Arc<OwnedPool>,
}

struct OwnedPool {
    raw: NonNull<sys::rte_mempool>,
    name: String,
    config: MempoolConfig,
    token: Token,
}

// SAFETY: the pool is made with DPDK's default flags (many producers, many consumers), so its functions may be called from any thread,
// and the pointer stays valid until EAL ends, which the token delays.
unsafe impl Send for OwnedPool {}
// SAFETY: the same argument.
unsafe impl Sync for OwnedPool {}

impl std::fmt::Debug for Mempool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mempool").field("name", &self.name()).field("config", self.config()).finish()
    }
}

impl Mempool {
    /// Creates a pool.
    ///
    /// # Errors
    /// [`DpdkError::NamedCall`] if the name is taken or over 25 bytes or memory is short; [`DpdkError::TooMuch`] if data room and headroom
    /// together exceed 65,535 bytes.
    pub fn new(eal: &Eal, name: &str, config: &MempoolConfig) -> Result<Mempool, DpdkError> {
        let c_name = c_string("a mempool name", name)?;
        let room = u32::from(config.data_room_bytes.max(DATA_ROOM_MIN)) + sys::DFFI_MBUF_HEADROOM_BYTES;
        let room = u16::try_from(room).map_err(|_| DpdkError::TooMuch {
            what: "bytes of data room and headroom",
            wanted: room as usize,
            limit: usize::from(u16::MAX),
        })?;
        // NULL selects DPDK's default.
        let operations = if config.is_preemptible { c"ring_mt_rts".as_ptr() } else { std::ptr::null() };
        let _control = control();
        // SAFETY: the names live through the call (DPDK copies the first); the numbers are checked by DPDK.
        let raw = unsafe {
            sys::rte_pktmbuf_pool_create_by_ops(
                c_name.as_ptr(),
                config.mbufs,
                config.cache_mbufs,
                0,
                room,
                config.socket.0,
                operations,
            )
        };
        let raw = NonNull::new(raw).ok_or_else(|| {
            DpdkError::named("rte_pktmbuf_pool_create_by_ops", name, DpdkError::last_errno())
        })?;
        Ok(Mempool {
            inner: Arc::new(OwnedPool { raw, name: name.into(), config: config.clone(), token: eal.token() }),
        })
    }

    /// The pool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The pool's parameters.
    #[must_use]
    pub fn config(&self) -> &MempoolConfig {
        &self.inner.config
    }

    /// The number of mbufs.
    #[must_use]
    pub fn size(&self) -> usize {
        self.inner.config.mbufs as usize
    }

    /// The number of available mbufs, including those in lcore caches. Walks the caches: not for the hot path.
    #[must_use]
    pub fn available(&self) -> usize {
        // SAFETY: the pool lives until EAL ends; counting only reads.
        unsafe { sys::rte_mempool_avail_count(self.inner.raw.as_ptr()) as usize }
    }

    /// The number of mbufs in use: in bursts, rings and drivers.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.size().saturating_sub(self.available())
    }

    /// Whether no mbuf is in use. DPDK counts mbufs twice while another thread moves them from its full cache to the pool, so the count is
    /// taken twice; it is still wrong if that thread is preempted in between.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.in_use() == 0 && self.in_use() == 0
    }

    /// DPDK's name of the pool's operations, which move mbufs to and from the caches of lcores.
    #[must_use]
    pub fn operations(&self) -> String {
        // SAFETY: the pool and its NUL-terminated name live until EAL ends.
        unsafe { copy_text(sys::dffi_mempool_operations(self.raw())) }
    }

    pub(crate) fn token(&self) -> Token {
        self.inner.token.clone()
    }

    pub(crate) fn raw(&self) -> *mut sys::rte_mempool {
        self.inner.raw.as_ptr()
    }

    pub(crate) fn exhausted(&self, wanted: usize) -> DpdkError {
        let (pool, size, available) = (self.name().into(), self.size(), self.available());
        DpdkError::Exhausted { pool, wanted, available, size }
    }
}
