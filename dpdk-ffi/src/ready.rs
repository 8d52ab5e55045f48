//! Prepared packets in mbufs that are received again and again, to measure a forwarder without the cost of a packet generator.
//! [`Port::receive_ready`] gives an RX queue a table of packets. A callback of the queue hands them out in turn; it restores only the
//! first 64 bytes of a frame, so frames up to that length may share mbufs. [`Port::discard_sent`] makes a TX queue count its packets and
//! discard them.
//!
//! The table keeps a reference of each mbuf, and the forwarder gets a second one, which is dropped by `rte_pktmbuf_free` or the callback
//! of the TX queue. An mbuf with two references is not handed out until it has left.

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

/// The number of restored bytes of a frame: Ethernet, two VLAN tags and the fields of IPv4 or IPv6 that forwarding changes.
pub const HEADER_BYTES: usize = 64;
const AHEAD: usize = 8;

#[derive(Debug)]
struct ReadyCounters {
    /// The number of packets handed out, and their bytes; only the lcore writes them.
    packets: AtomicU64,
    bytes: AtomicU64,
    limit: AtomicU64,
}

/// Counters and control of an RX queue's prepared packets.
#[derive(Debug, Clone)]
pub struct ReadyPackets(Arc<ReadyCounters>);

impl ReadyPackets {
    /// The number of packets received so far, and their bytes.
    #[must_use]
    pub fn received(&self) -> (u64, u64) {
        (self.0.packets.load(Ordering::Relaxed), self.0.bytes.load(Ordering::Relaxed))
    }

    /// Stops handing out packets. Calls in progress may still hand out some.
    pub fn stop(&self) {
        self.0.limit.store(0, Ordering::Relaxed);
    }
}

/// The table of an RX queue; only the callback uses it while the queue is polled.
struct ReadyTable {
    packets: Burst,
    /// The frames' starts and lengths. There are as many packets, or fewer if no frame is longer than a header.
    headers: Box<[[u8; HEADER_BYTES]]>,
    lengths: Box<[u16]>,
    next_packet: usize,
    next_frame: usize,
    /// Bytes from an mbuf to its data, the same for all mbufs of a pool.
    data_at: usize,
    /// A power of two that the room for packets is rounded down to.
    multiple: u16,
    rearm: u64,
    shared: Arc<ReadyCounters>,
}

/// Fills `out`, which already has `filled` packets, up to `room`.
///
/// # Safety
/// `argument` must be a [`ReadyTable`] without other users; `out` must have space for `room` pointers.
unsafe extern "C" fn receive(
    _port: u16,
    _queue: u16,
    out: *mut *mut sys::rte_mbuf,
    filled: u16,
    room: u16,
    argument: *mut c_void,
) -> u16 {
    // SAFETY: by the caller's contract.
    let table = unsafe { &mut *argument.cast::<ReadyTable>() };
    let shared = &*table.shared;
    let handed = shared.packets.load(Ordering::Relaxed);
    let left = shared.limit.load(Ordering::Relaxed).saturating_sub(handed);
    let wanted = u64::from((room - filled) & !(table.multiple - 1)).min(left);
    let packets = table.packets.packets();
    let frames = table.headers[table.next_frame..].iter().zip(&table.lengths[table.next_frame..]);
    let ready = packets[table.next_packet..].iter().zip(frames);
    let (mut count, mut bytes) = (0_u16, 0);
    for (packet, (header, length)) in ready.take(usize::try_from(wanted).unwrap_or(usize::MAX)) {
        let at = table.next_packet + usize::from(count);
        if let Some(later) = packets.get(at + AHEAD) {
            let mbuf: *const u8 = later.0.cast();
            prefetch(mbuf);
            prefetch(mbuf.wrapping_add(table.data_at));
        }
        // Acquire pairs with the release that dropped the other reference: that owner's last use of the packet happens before ours.
        if packet.references().load(Ordering::Acquire) != 1 {
            break;
        }
        packet.rearm(table.rearm);
        packet.set_bytes(*length);
        // SAFETY: the table's packets have one segment with room for a header (checked by `receive_ready`), and this one has no other
        // owner. `out` has space for `room` pointers, and fewer were written.
        unsafe {
            packet.segment().0.cast::<[u8; HEADER_BYTES]>().write_unaligned(*header);
            out.add(usize::from(filled + count)).write(packet.0);
        }
        bytes += u64::from(*length);
        count += 1;
    }
    for (next, end) in [(&mut table.next_packet, packets.len()), (&mut table.next_frame, table.headers.len())]
    {
        *next += usize::from(count);
        if *next == end {
            *next = 0;
        }
    }
    shared.packets.store(handed + u64::from(count), Ordering::Relaxed);
    shared.bytes.store(shared.bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    filled + count
}

struct Outlet {
    ring: RingConsumer,
    capacity: u16,
}

/// Called before the driver gets the packets: drops the second reference of those that the ring will accept, and empties the ring.
///
/// # Safety
/// `argument` must be an [`Outlet`], and `packets` must be `count` packets of tables, owned by the caller.
unsafe extern "C" fn discard(
    _port: u16,
    _queue: u16,
    packets: *mut *mut sys::rte_mbuf,
    count: u16,
    argument: *mut c_void,
) -> u16 {
    // SAFETY: by the caller's contract.
    let outlet = unsafe { &*argument.cast::<Outlet>() };
    // SAFETY: the queue's driver is the ring's only producer, and its thread runs this.
    unsafe { outlet.ring.reset() };
    for i in 0..count.min(outlet.capacity) {
        // SAFETY: `packets` are `count` pointers to packets of the caller.
        let packet = Raw(unsafe { *packets.add(usize::from(i)) });
        packet.references().store(1, Ordering::Release);
    }
    count
}

enum Argument {
    ReadyTable(NonNull<ReadyTable>),
    Outlet(NonNull<Outlet>),
}

impl Drop for Argument {
    fn drop(&mut self) {
        // SAFETY: from boxes, each freed once; no callback uses them any more, and no end of the ring is in use.
        unsafe {
            match self {
                Argument::ReadyTable(table) => drop(Box::from_raw(table.as_ptr())),
                Argument::Outlet(outlet) => {
                    let outlet = Box::from_raw(outlet.as_ptr());
                    // Packets left in the ring belong to tables.
                    outlet.ring.reset();
                }
            }
        }
    }
}

/// A callback of a queue. Dropping it removes it from the queue, which must not be polled then.
struct Attached {
    port: u16,
    queue: u16,
    callback: NonNull<sys::rte_eth_rxtx_callback>,
    argument: Argument,
}

// SAFETY: only the thread that polls the queue uses the argument, until the port drops this.
unsafe impl Send for Attached {}

impl Attached {
    /// Attaches a callback to `queue` of a port that is configured and not started.
    fn new(port: PortId, queue: QueueId, argument: Argument) -> Result<Self, DpdkError> {
        // SAFETY: the argument lives until the callback is removed from the queue, and its type is the callback's.
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
        // SAFETY: the port exists and nothing polls it, so the callback is not in use; it is removed and freed once.
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
    /// Makes RX queue `queue` of a configured port hand out `frames` in turn, `count` in all, after the packets that its driver receives.
    /// They lie in `packets`, empty mbufs: one for each frame, or fewer if no frame is longer than [`HEADER_BYTES`]. Every packet that
    /// the receiver gets must be dropped, or sent on a queue with [`Port::discard_sent`].
    ///
    /// # Errors
    /// [`DpdkError::PortState`] if the port is not configured or is started; [`DpdkError::TooMuch`] for a frame too long for its mbuf, or
    /// for one mbuf of several frames; [`DpdkError::PortCall`] if the port has no such queue.
    pub fn receive_ready<F: AsRef<[u8]>>(
        &self,
        queue: QueueId,
        packets: Burst,
        frames: &[F],
        count: u64,
    ) -> Result<ReadyPackets, DpdkError> {
        self.receive_ready_by(queue, packets, frames, (count, 1))
    }

    /// [`Port::receive_ready`], with the room for packets rounded down to `multiple`, a power of two.
    pub(crate) fn receive_ready_by<F: AsRef<[u8]>>(
        &self,
        queue: QueueId,
        mut packets: Burst,
        frames: &[F],
        (count, multiple): (u64, u16),
    ) -> Result<ReadyPackets, DpdkError> {
        packets.truncate_free(frames.len());
        let bytes = frames.iter().map(|frame| frame.as_ref().len()).max().unwrap_or(0);
        if packets.len() < frames.len() {
            DpdkError::within("bytes of a frame without an mbuf of its own", bytes, HEADER_BYTES)?;
        }
        for (packet, frame) in packets.packets().iter().zip(frames) {
            let room = if packet.room() < HEADER_BYTES { 0 } else { packet.room() };
            if room == 0 || !packet.fill(frame.as_ref()) {
                return Err(DpdkError::TooMuch {
                    what: "bytes of a prepared packet",
                    wanted: bytes,
                    limit: room,
                });
            }
        }
        let header = |frame: &F| {
            let (mut header, data) = ([0; HEADER_BYTES], frame.as_ref());
            let bytes = data.len().min(HEADER_BYTES);
            header[..bytes].copy_from_slice(&data[..bytes]);
            header
        };
        let headers = frames.iter().map(header).collect();
        // Each fits its mbuf, whose room is a u16.
        let length = |frame: &F| u16::try_from(frame.as_ref().len()).unwrap_or(u16::MAX);
        let lengths = frames.iter().map(length).collect();
        let shared = Arc::new(ReadyCounters {
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            limit: AtomicU64::new(if packets.is_empty() { 0 } else { count }),
        });
        let first = packets.packets().first();
        let rearm = first.map_or(0, |packet| packet.rearm_word(self.id(), 2));
        let data_at = first.map_or(0, |packet| packet.segment().0.addr() - packet.0.addr());
        let table = Box::new(ReadyTable {
            packets,
            headers,
            lengths,
            next_packet: 0,
            next_frame: 0,
            data_at,
            multiple,
            rearm,
            shared: Arc::clone(&shared),
        });
        let argument = Argument::ReadyTable(NonNull::from(Box::leak(table)));
        self.attach(|| Attached::new(self.id(), queue, argument))?;
        Ok(ReadyPackets(shared))
    }

    /// Makes TX queue `queue` of a configured `net_ring` port discard its packets, all from [`Port::receive_ready`], and fails like it.
    /// `ring` is the other end of the ring that it fills.
    pub fn discard_sent(&self, queue: QueueId, ring: RingConsumer) -> Result<(), DpdkError> {
        let capacity = u16::try_from(ring.capacity()).unwrap_or(u16::MAX);
        let outlet = Box::new(Outlet { ring, capacity });
        let argument = Argument::Outlet(NonNull::from(Box::leak(outlet)));
        self.attach(|| Attached::new(self.id(), queue, argument))
    }
}
