//! Rings of packets between threads, and ports made of rings. A ring with a single producer or consumer hands out that end only once, so
//! that two threads cannot use it by mistake; `net_ring` ports take the ends they use.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::burst::Burst;
use crate::c_text::c_string;
use crate::device::control;
use crate::eal::{Eal, Token};
use crate::error::DpdkError;
use crate::ids::{PortId, SocketId};
use crate::port::Port;
use crate::sys;

/// The number of threads that may use each end of a ring at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingSync {
    /// One producer, one consumer: the cheapest.
    SpSc,
    /// Many producers, one consumer.
    MpSc,
    /// Many producers, many consumers.
    MpMc,
}

impl RingSync {
    fn one_producer(self) -> bool {
        self == RingSync::SpSc
    }

    fn one_consumer(self) -> bool {
        matches!(self, RingSync::SpSc | RingSync::MpSc)
    }
}

/// A fixed-size queue of packets. Cloning clones the handle; packets left in it are freed with the last handle.
#[derive(Clone)]
pub struct Ring {
    inner: Arc<OwnedRing>,
}

struct OwnedRing {
    raw: NonNull<sys::rte_ring>,
    name: String,
    sync: RingSync,
    producer_taken: AtomicBool,
    consumer_taken: AtomicBool,
    _token: Token,
}

// SAFETY: the ring's counters are DPDK atomics; the end types ensure that each end is used by no more threads than the ring was made for.
// The token keeps EAL alive.
unsafe impl Send for OwnedRing {}
// SAFETY: the same argument.
unsafe impl Sync for OwnedRing {}

impl OwnedRing {
    fn capacity(&self) -> usize {
        // SAFETY: reads a number of a ring that lives as long as this.
        unsafe { sys::dffi_ring_capacity(self.raw.as_ptr()) as usize }
    }
}

impl Drop for OwnedRing {
    fn drop(&mut self) {
        let mut left = [std::ptr::null_mut(); 64];
        loop {
            // SAFETY: no end of the ring is left, so this is the only consumer; the array has room for 64.
            let count = unsafe { sys::dffi_ring_dequeue_burst(self.raw.as_ptr(), left.as_mut_ptr(), 64) };
            if count == 0 {
                break;
            }
            // SAFETY: `count` packets that the ring owned and that have no other owner.
            unsafe { sys::rte_pktmbuf_free_bulk(left.as_mut_ptr(), count) };
        }
        // SAFETY: the ring was made by rte_ring_create and is unreachable now.
        unsafe { sys::rte_ring_free(self.raw.as_ptr()) };
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} {:?}, {} of {})", self.name(), self.inner.sync, self.count(), self.capacity())
    }
}

impl Ring {
    /// Creates a ring of `size` slots, a power of two, of which `size - 1` hold packets.
    ///
    /// # Errors
    /// [`DpdkError::NamedCall`] if the name is taken or too long (28 bytes fit), the size is no power of two, or memory is short.
    pub fn new(
        eal: &Eal,
        name: &str,
        size: u32,
        sync: RingSync,
        socket: SocketId,
    ) -> Result<Ring, DpdkError> {
        let c_name = c_string("a ring name", name)?;
        let producer = if sync.one_producer() { sys::DFFI_RING_SP } else { 0 };
        let consumer = if sync.one_consumer() { sys::DFFI_RING_SC } else { 0 };
        let _control = control();
        // SAFETY: the name lives through the call (DPDK copies it); the numbers are checked by DPDK.
        let raw = unsafe { sys::rte_ring_create(c_name.as_ptr(), size, socket.0, producer | consumer) };
        let raw = NonNull::new(raw)
            .ok_or_else(|| DpdkError::named("rte_ring_create", name, DpdkError::last_errno()))?;
        let (producer_taken, consumer_taken) = (AtomicBool::new(false), AtomicBool::new(false));
        let (name, _token) = (name.into(), eal.token());
        Ok(Ring { inner: Arc::new(OwnedRing { raw, name, sync, producer_taken, consumer_taken, _token }) })
    }

    /// The ring's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The number of packets; an estimate while others use the ring.
    #[must_use]
    pub fn count(&self) -> usize {
        // SAFETY: reads the counters of a ring that lives as long as this handle.
        unsafe { sys::dffi_ring_count(self.inner.raw.as_ptr()) as usize }
    }

    /// The maximum number of packets.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    /// The end that enqueues packets; [`DpdkError::RingEndTaken`] if the ring has a single producer and that end is taken.
    pub fn producer(&self) -> Result<RingProducer, DpdkError> {
        Ok(RingProducer { end: RingEnd::claim(self, RingRole::Producer)? })
    }

    /// The end that dequeues packets; [`DpdkError::RingEndTaken`] if the ring has a single consumer and that end is taken.
    pub fn consumer(&self) -> Result<RingConsumer, DpdkError> {
        Ok(RingConsumer { end: RingEnd::claim(self, RingRole::Consumer)? })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RingRole {
    Producer,
    Consumer,
}

struct RingEnd {
    ring: Arc<OwnedRing>,
    end: RingRole,
}

impl RingEnd {
    fn claim(ring: &Ring, end: RingRole) -> Result<RingEnd, DpdkError> {
        let inner = &ring.inner;
        let (one, flag, end_name) = match end {
            RingRole::Producer => (inner.sync.one_producer(), &inner.producer_taken, "producer"),
            RingRole::Consumer => (inner.sync.one_consumer(), &inner.consumer_taken, "consumer"),
        };
        // Acquire pairs with the release in the last holder's drop: that holder's last use of the end happens before ours.
        if one && flag.swap(true, Ordering::Acquire) {
            return Err(DpdkError::RingEndTaken { ring: ring.name().into(), end: end_name });
        }
        Ok(RingEnd { ring: Arc::clone(inner), end })
    }

    fn raw(&self) -> *mut sys::rte_ring {
        self.ring.raw.as_ptr()
    }
}

impl Drop for RingEnd {
    fn drop(&mut self) {
        let flag = match self.end {
            RingRole::Producer => &self.ring.producer_taken,
            RingRole::Consumer => &self.ring.consumer_taken,
        };
        flag.store(false, Ordering::Release);
    }
}

/// The end of a ring that enqueues packets.
pub struct RingProducer {
    end: RingEnd,
}

impl RingProducer {
    /// Enqueues packets from the front of `burst` as far as there is room; the others stay in it, in order. Returns the number enqueued.
    #[inline]
    pub fn enqueue_burst(&mut self, burst: &mut Burst) -> usize {
        let count = u32::try_from(burst.len()).unwrap_or(u32::MAX);
        // SAFETY: the ring lives as long as this end, no more producers than it was made for exist, and the burst's first `count` entries
        // are packets that it owns; the ring owns those that it accepted.
        let taken = unsafe { sys::dffi_ring_enqueue_burst(self.end.raw(), burst.front(), count) } as usize;
        burst.remove_front(taken);
        taken
    }
}

/// The end of a ring that dequeues packets.
pub struct RingConsumer {
    end: RingEnd,
}

impl RingConsumer {
    pub(crate) fn capacity(&self) -> usize {
        self.end.ring.capacity()
    }

    /// Empties the ring without freeing its packets: another owner has them.
    ///
    /// # Safety
    /// No enqueue or dequeue may run concurrently.
    #[inline]
    pub(crate) unsafe fn reset(&self) {
        // SAFETY: the ring lives as long as this end; the caller excludes concurrent use.
        unsafe { sys::rte_ring_reset(self.end.raw()) };
    }

    /// Dequeues packets into the free room of `burst`; returns their number.
    #[inline]
    pub fn dequeue_burst(&mut self, burst: &mut Burst) -> usize {
        let room = u32::try_from(burst.room()).unwrap_or(u32::MAX);
        // SAFETY: the ring lives as long as this end, no more consumers than it was made for exist, and the burst has room for `room`
        // pointers. The producer of a packet gave up its ownership.
        unsafe {
            let dequeued = sys::dffi_ring_dequeue_burst(self.end.raw(), burst.free_part(), room) as usize;
            burst.grow(dequeued);
            dequeued
        }
    }
}

/// Ports made of rings, private to the process: RX queues dequeue from rings, TX queues enqueue to rings. The driver is `net_ring`.
pub struct RingPort {
    _not_made: (),
}

impl RingPort {
    /// Creates a port called `net_ring_NAME` whose RX queue `q` empties `rx[q]` and whose TX queue `q` fills `tx[q]`, at least one each
    /// way. The port takes those ends until it is closed or its last handle is dropped, which removes the device.
    ///
    /// # Errors
    /// [`DpdkError::RingEndTaken`] if a single-producer or single-consumer end that it needs is taken; [`DpdkError::TooMuch`] beyond
    /// `net_ring`'s limit (16 rings each way); [`DpdkError::NamedCall`] if the name is taken.
    pub fn from_rings(
        eal: &Eal,
        name: &str,
        rx: &[Ring],
        tx: &[Ring],
        socket: SocketId,
    ) -> Result<Port, DpdkError> {
        let c_name = c_string("a port name", name)?;
        let limits = (sys::RTE_PMD_RING_MAX_RX_RINGS as usize, sys::RTE_PMD_RING_MAX_TX_RINGS as usize);
        DpdkError::within("rx rings of a port", rx.len(), limits.0)?;
        DpdkError::within("tx rings of a port", tx.len(), limits.1)?;
        let mut ends = Vec::with_capacity(rx.len() + tx.len());
        for (rings, end) in [(rx, RingRole::Consumer), (tx, RingRole::Producer)] {
            for ring in rings {
                ends.push(RingEnd::claim(ring, end)?);
            }
        }
        let raw = |rings: &[Ring]| rings.iter().map(|ring| ring.inner.raw.as_ptr()).collect::<Vec<_>>();
        let (rx, tx) = (raw(rx), raw(tx));
        // A virtual device needs a node with memory; node 0 always exists.
        let node = u32::try_from(socket.0).unwrap_or(0);
        let _control = control();
        // SAFETY: the arrays have the lengths passed and live through the call (the driver copies the pointers); the rings outlive the
        // device, because the port keeps their ends until the device is removed.
        let answer = unsafe {
            let counts = (len_u32(&rx), len_u32(&tx));
            sys::rte_eth_from_rings(c_name.as_ptr(), rx.as_ptr(), counts.0, tx.as_ptr(), counts.1, node)
        };
        let id = u16::try_from(answer)
            .map_err(|_| DpdkError::named("rte_eth_from_rings", name, DpdkError::last_errno()))?;
        Port::open_for_rings(eal, PortId(id), c_string("a device name", &format!("net_ring_{name}"))?, ends)
    }
}

fn len_u32<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap_or(0)
}
