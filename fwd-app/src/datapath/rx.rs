//! Rx: receives packets of one queue into a batch and decides when the batch is due.
//!
//! If a batch is no larger than a burst, the packets of each poll proceed at once. A larger batch gathers several bursts until it is full
//! or its first packet has waited `flush_us`. With batches in flight it also proceeds when the queue is empty.

use super::Batch;
use super::counters::{Counters, QueueCount};
use super::port_queues::PortQueues;
use dpdk_ffi::{QueueId, RxQueue};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RxLimits {
    pub(crate) burst: u16,
    pub(crate) batch: usize,
    pub(crate) flush_cycles: u64,
    /// A batch is due when a poll finds the queue empty.
    pub(crate) is_eager: bool,
    /// Drivers may round requests down to a multiple of this power of two: only multiples are requested; with less room a batch is full.
    pub(crate) multiple: u16,
}

pub(crate) struct Rx {
    /// `None` while the port is out of use.
    queue: Option<RxQueue>,
    port: u16,
    number: QueueId,
    limits: RxLimits,
    count: Arc<QueueCount>,
}

impl Rx {
    pub(crate) fn new(queue: RxQueue, port: u16, limits: RxLimits, count: Arc<QueueCount>) -> Self {
        Self { number: queue.queue(), queue: Some(queue), port, limits, count }
    }

    /// Exchanges the queue if `queues` are of its port: hands it over, or takes it back.
    pub(crate) fn exchange(&mut self, queues: &mut PortQueues) {
        if queues.port == self.port {
            queues.rx.exchange(self.number, &mut self.queue, RxQueue::queue);
        }
    }

    #[inline]
    pub(crate) fn poll(&mut self, batch: &mut Batch, counters: &mut Counters) -> usize {
        let before = batch.packets.len();
        let room = u16::try_from(self.limits.batch.saturating_sub(before)).unwrap_or(u16::MAX);
        let Some(queue) = &mut self.queue else { return 0 };
        let wanted = room.min(self.limits.burst) & !(self.limits.multiple - 1);
        let came = queue.rx_burst_limit(&mut batch.packets, wanted);
        if came > 0 {
            #[expect(clippy::cast_possible_truncation, reason = "a burst is a u16")]
            batch.stamp(dpdk_ffi::tsc(), came as u32);
            counters.rx_packets += came as u64;
            self.count.add(came as u64, 0);
        }
        came
    }

    #[inline]
    pub(crate) fn is_due(&self, batch: &Batch, came: usize) -> bool {
        let held = batch.packets.len();
        let is_full = held + usize::from(self.limits.multiple) > self.limits.batch;
        if held == 0 || self.limits.batch <= usize::from(self.limits.burst) || is_full {
            return held > 0;
        }
        let waited = || batch.stamps().first().map_or(0, |first| dpdk_ffi::tsc().saturating_sub(first.tsc));
        // After a full burst more packets are probably waiting: poll again before reading the clock.
        let is_idle = self.limits.is_eager && came == 0;
        came < usize::from(self.limits.burst) && (is_idle || waited() >= self.limits.flush_cycles)
    }
}
