//! Queue handles: one C call a burst, and one handle a queue at a time.

use std::sync::Arc;

use crate::burst::Burst;
use crate::ids::{PortId, QueueId};
use crate::shared_port::{QueueDirection, SharedPort};
use crate::sys;

/// A taken queue: released when dropped; keeps its port alive and started.
struct Taken {
    port: Arc<SharedPort>,
    direction: QueueDirection,
    queue: QueueId,
    takes_chains: bool,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.port.release_queue(self.direction, self.queue);
    }
}

macro_rules! queue {
    ($(#[$doc:meta])* $name:ident, $direction:expr) => {
        $(#[$doc])*
        pub struct $name {
            port: u16,
            queue: u16,
            taken: Taken,
        }

        impl $name {
            /// The caller must have marked the queue as taken.
            pub(crate) fn new(port: Arc<SharedPort>, queue: QueueId) -> Self {
                let takes_chains = port.takes_chains();
                let taken = Taken { port, direction: $direction, queue, takes_chains };
                $name { port: taken.port.id().0, queue: queue.0, taken }
            }

            /// The queue's port.
            #[must_use]
            pub fn port(&self) -> PortId {
                self.taken.port.id()
            }

            /// The queue's number.
            #[must_use]
            pub fn queue(&self) -> QueueId {
                self.taken.queue
            }
        }
    };
}

queue! {
    /// An RX queue of a started port. One handle exists at a time; it may move to another thread.
    RxQueue, QueueDirection::Rx
}

queue! {
    /// A TX queue of a started port. One handle exists at a time; it may move to another thread.
    TxQueue, QueueDirection::Tx
}

impl RxQueue {
    /// Receives packets into the free room of `burst`, after its packets; returns their number. Keep the room a multiple of 8: some
    /// drivers round it down, or return nothing below 4.
    #[inline(always)]
    pub fn rx_burst(&mut self, burst: &mut Burst) -> usize {
        let room = u16::try_from(burst.room()).unwrap_or(u16::MAX);
        self.rx_up_to(burst, room)
    }

    /// [`RxQueue::rx_burst`] of at most `limit` packets.
    #[inline(always)]
    pub fn rx_burst_limit(&mut self, burst: &mut Burst, limit: u16) -> usize {
        let room = u16::try_from(burst.room()).unwrap_or(u16::MAX);
        self.rx_up_to(burst, room.min(limit))
    }

    #[inline(always)]
    fn rx_up_to(&mut self, burst: &mut Burst, room: u16) -> usize {
        // SAFETY: the queue exists and its port stays started while this handle lives (Port refuses to stop), no other thread polls it
        // (one handle, borrowed uniquely), and the burst has room for `room` pointers. The driver gives up the packets that it returns.
        unsafe {
            let received = usize::from(sys::dffi_rx_burst(self.port, self.queue, burst.free_part(), room));
            burst.grow(received);
            received
        }
    }
}

impl TxQueue {
    /// Whether the port sends chains ([`TxOffloads::MULTI_SEGS`](crate::TxOffloads::MULTI_SEGS)). Other drivers may send only the first
    /// segment, or leak the rest; linearize chains first ([`Burst::linearize_or_free`](crate::Burst::linearize_or_free)).
    #[inline(always)]
    #[must_use]
    pub fn takes_chains(&self) -> bool {
        self.taken.takes_chains
    }

    /// Sends packets from the front of `burst`; those that the driver does not accept stay, in order. Returns the number accepted.
    #[inline(always)]
    pub fn tx_burst(&mut self, burst: &mut Burst) -> usize {
        let count = u16::try_from(burst.len()).unwrap_or(u16::MAX);
        // SAFETY: the queue exists and its port stays started while this handle lives, no other thread uses it, and the burst's first
        // `count` entries are packets that it owns. The driver owns those it reports as accepted.
        let taken = usize::from(unsafe { sys::dffi_tx_burst(self.port, self.queue, burst.front(), count) });
        burst.remove_front(taken);
        taken
    }

    /// Makes the driver free sent packets, which it keeps until it needs their descriptors. Returns their number; `None` if unsupported.
    pub fn free_sent(&mut self) -> Option<u32> {
        // SAFETY: the queue exists and its port stays started while this handle lives, and no other thread uses it.
        let freed = unsafe { sys::rte_eth_tx_done_cleanup(self.port, self.queue, 0) };
        u32::try_from(freed).ok()
    }
}
