//! Packets that lie ready in mbufs and are received again and again, so that a forwarder can be measured without the cost of
//! whoever feeds it.
//!
//! [`Port::receive_ready`] gives a receive queue a table of packets. A callback of the queue hands them out in their order, from the
//! first again after the last; nothing is copied but the first 64 bytes of a frame, which a forwarder may have changed.
//! [`Port::discard_sent`] makes a transmit queue count its packets and forget them.
//!
//! The table keeps a reference of each mbuf, the forwarder gets a second one. Whichever way a packet leaves the forwarder, one
//! reference remains: `rte_pktmbuf_free` takes the other back for a packet that is dropped, the callback of the transmit queue for
//! one that is sent. An mbuf with two references is still inside, and is not handed out until it has left.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::burst::Burst;
use crate::error::DpdkError;
use crate::ids::{PortId, QueueId};
use crate::mbuf::{Raw, prefetch};
use crate::port::Port;
use crate::ring::RingConsumer;
use crate::sys;

/// Bytes of a frame that are restored: Ethernet, two VLAN tags and the fields of IPv4 or IPv6 that forwarding changes.
const HEADER_BYTES: usize = 64;
/// How many mbufs ahead of the one that is handed out are prefetched.
const AHEAD: usize = 8;

/// What the lcore that receives and the handle share.
#[derive(Debug)]
struct ReadyCounters {
    /// Packets handed out, and their bytes; written by the lcore alone.
    packets: AtomicU64,
    bytes: AtomicU64,
    /// Packets to hand out in all.
    limit: AtomicU64,
}

/// The packets of a receive queue, as seen from outside.
#[derive(Debug, Clone)]
pub struct ReadyPackets(Arc<ReadyCounters>);

impl ReadyPackets {
    /// Packets received so far, and their bytes.
    #[must_use]
    pub fn received(&self) -> (u64, u64) {
        (self.0.packets.load(Ordering::Relaxed), self.0.bytes.load(Ordering::Relaxed))
    }

    /// Hands out no more packets. Calls that are under way may still do so.
    pub fn stop(&self) {
        self.0.limit.store(0, Ordering::Relaxed);
    }
}

/// The table behind a receive queue; only the callback uses it while the queue is polled.
struct ReadyTable {
    packets: Burst,
    /// The first bytes of each packet.
    headers: Box<[[u8; HEADER_BYTES]]>,
    /// The packet that is handed out next.
    next: usize,
    /// A power of two that the room for packets is rounded down to.
    multiple: u16,
    /// What the mbufs' fields from `data_off` to `port` are set to.
    rearm: u64,
    shared: Arc<ReadyCounters>,
}

/// The callback of a receive queue: fills up `out`, in which `came` packets are already, to at most `room`.
///
/// # Safety
/// `argument` is a [`ReadyTable`] that nobody else uses meanwhile; `out` has space for `room` pointers.
unsafe extern "C" fn receive(
    _port: u16,
    _queue: u16,
    out: *mut *mut sys::rte_mbuf,
    came: u16,
    room: u16,
    argument: *mut c_void,
) -> u16 {
    // SAFETY: as the caller promises.
    let table = unsafe { &mut *argument.cast::<ReadyTable>() };
    let shared = &*table.shared;
    let handed = shared.packets.load(Ordering::Relaxed);
    let left = shared.limit.load(Ordering::Relaxed).saturating_sub(handed);
    let wanted = u64::from((room - came) & !(table.multiple - 1)).min(left);
    let packets = table.packets.packets();
    let ready = packets[table.next..].iter().zip(&table.headers[table.next..]);
    let (mut count, mut bytes) = (0_u16, 0);
    for (packet, header) in ready.take(usize::try_from(wanted).unwrap_or(usize::MAX)) {
        if let Some(later) = packets.get(table.next + usize::from(count) + AHEAD) {
            prefetch(later.0.cast());
        }
        // Acquire pairs with the release of whoever gave the other reference back: its last use of the packet is before ours.
        if packet.references().load(Ordering::Acquire) != 1 {
            break;
        }
        packet.rearm(table.rearm);
        // SAFETY: the table's packets have one segment with room for a header (checked by `receive_ready`), and this one is in
        // nobody else's hands. `out` has space for `room` pointers, and fewer were written.
        unsafe {
            packet.segment().0.cast::<[u8; HEADER_BYTES]>().write_unaligned(*header);
            out.add(usize::from(came + count)).write(packet.0);
        }
        bytes += u64::from(packet.pkt_len());
        count += 1;
    }
    table.next += usize::from(count);
    if table.next == packets.len() {
        table.next = 0;
    }
    shared.packets.store(handed + u64::from(count), Ordering::Relaxed);
    shared.bytes.store(shared.bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    came + count
}

/// The ring that a transmit queue fills.
struct Outlet {
    ring: RingConsumer,
    capacity: u16,
}

/// The callback of a transmit queue, before its driver gets the packets: takes back the references of those that the ring will take,
/// and empties the ring of the packets before them.
///
/// # Safety
/// `argument` is an [`Outlet`], and `packets` are `count` packets of tables that nobody else has.
unsafe extern "C" fn discard(
    _port: u16,
    _queue: u16,
    packets: *mut *mut sys::rte_mbuf,
    count: u16,
    argument: *mut c_void,
) -> u16 {
    // SAFETY: as the caller promises.
    let outlet = unsafe { &*argument.cast::<Outlet>() };
    // SAFETY: the queue's driver is the ring's only producer, and its thread runs this.
    unsafe { outlet.ring.reset() };
    for i in 0..count.min(outlet.capacity) {
        // SAFETY: `packets` are `count` pointers to packets that the caller has.
        let packet = Raw(unsafe { *packets.add(usize::from(i)) });
        packet.references().store(1, Ordering::Release);
    }
    count
}

/// What a callback uses; it comes from a box.
enum Argument {
    ReadyTable(NonNull<ReadyTable>),
    Outlet(NonNull<Outlet>),
}

impl Drop for Argument {
    fn drop(&mut self) {
        // SAFETY: from boxes, which are let go once; no callback uses them any more, nor does one end of the ring.
        unsafe {
            match self {
                Argument::ReadyTable(table) => drop(Box::from_raw(table.as_ptr())),
                Argument::Outlet(outlet) => {
                    let outlet = Box::from_raw(outlet.as_ptr());
                    // What is left in the ring belongs to tables.
                    outlet.ring.reset();
                }
            }
        }
    }
}

/// A callback of a queue. Dropping it takes it off the queue, which nothing polls then.
pub(crate) struct Attached {
    port: u16,
    queue: u16,
    callback: NonNull<sys::rte_eth_rxtx_callback>,
    argument: Argument,
}

// SAFETY: only the thread that polls the queue uses the argument, until the port drops this.
unsafe impl Send for Attached {}

impl Attached {
    /// Puts a callback on `queue` of a port that is configured and not started.
    fn new(port: PortId, queue: QueueId, argument: Argument) -> Result<Self, DpdkError> {
        // SAFETY: the argument lives until the callback is off the queue again, and its type is the callback's.
        let (callback, call) = unsafe {
            match &argument {
                Argument::ReadyTable(table) => {
                    let table = table.as_ptr().cast();
                    let callback = sys::rte_eth_add_rx_callback(port.0, queue.0, Some(receive), table);
                    (callback, "rte_eth_add_rx_callback")
                }
                Argument::Outlet(outlet) => {
                    let outlet = outlet.as_ptr().cast();
                    let callback = sys::rte_eth_add_tx_callback(port.0, queue.0, Some(discard), outlet);
                    (callback, "rte_eth_add_tx_callback")
                }
            }
        };
        let callback = NonNull::new(callback.cast_mut())
            .ok_or_else(|| DpdkError::port(port, call, DpdkError::last_errno()))?;
        Ok(Self { port: port.0, queue: queue.0, callback, argument })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let callback = self.callback.as_ptr();
        // SAFETY: the port exists and nothing polls it, so the callback is not in use; it is taken off and freed once.
        unsafe {
            match self.argument {
                Argument::ReadyTable(_) => sys::rte_eth_remove_rx_callback(self.port, self.queue, callback),
                Argument::Outlet(_) => sys::rte_eth_remove_tx_callback(self.port, self.queue, callback),
            };
            sys::rte_free(callback.cast());
        }
    }
}

impl Port {
    /// Makes receive queue `queue` of a configured port hand out `packets` in turn, `count` in all. Whatever its driver receives
    /// comes first; a `net_ring` port with an empty ring receives nothing.
    ///
    /// Every packet that the receiver gets must be dropped, or sent on a queue with [`Port::discard_sent`].
    ///
    /// # Errors
    /// [`DpdkError::PortState`] when the port is not configured or is started; [`DpdkError::TooMuch`] for a packet of several
    /// segments; [`DpdkError::PortCall`] when the port has no such queue.
    pub fn receive_ready(
        &self,
        queue: QueueId,
        packets: Burst,
        count: u64,
    ) -> Result<ReadyPackets, DpdkError> {
        self.receive_ready_by(queue, packets, count, 1)
    }

    /// As [`Port::receive_ready`], but the room for packets is rounded down to `multiple`, a power of two.
    pub(crate) fn receive_ready_by(
        &self,
        queue: QueueId,
        packets: Burst,
        count: u64,
        multiple: u16,
    ) -> Result<ReadyPackets, DpdkError> {
        let segments = packets.packets().iter().map(|packet| packet.segments()).max().unwrap_or(1);
        let room = packets.packets().iter().map(|packet| packet.room()).min().unwrap_or(HEADER_BYTES);
        if segments > 1 || room < HEADER_BYTES {
            let (what, wanted) = ("segments of a packet that lies ready", usize::from(segments));
            return Err(DpdkError::TooMuch { what, wanted, limit: 1 });
        }
        let first_bytes = |i| {
            let (mut header, data) = ([0; HEADER_BYTES], packets.data(i));
            let bytes = data.len().min(HEADER_BYTES);
            header[..bytes].copy_from_slice(&data[..bytes]);
            header
        };
        let headers = (0..packets.len()).map(first_bytes).collect();
        let shared = Arc::new(ReadyCounters {
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            limit: AtomicU64::new(if packets.is_empty() { 0 } else { count }),
        });
        let rearm = packets.packets().first().map_or(0, |packet| packet.rearm_word(self.id(), 2));
        let table =
            Box::new(ReadyTable { packets, headers, next: 0, multiple, rearm, shared: Arc::clone(&shared) });
        let argument = Argument::ReadyTable(NonNull::from(Box::leak(table)));
        self.attach(|| Attached::new(self.id(), queue, argument))?;
        Ok(ReadyPackets(shared))
    }

    /// Makes transmit queue `queue` of a configured `net_ring` port forget what it sends; `ring` is the other end of the ring that
    /// it fills. Every packet sent there must come from [`Port::receive_ready`].
    ///
    /// # Errors
    /// As [`Port::receive_ready`].
    pub fn discard_sent(&self, queue: QueueId, ring: RingConsumer) -> Result<(), DpdkError> {
        let capacity = u16::try_from(ring.capacity()).unwrap_or(u16::MAX);
        let outlet = Box::new(Outlet { ring, capacity });
        let argument = Argument::Outlet(NonNull::from(Box::leak(outlet)));
        self.attach(|| Attached::new(self.id(), queue, argument))
    }
}
