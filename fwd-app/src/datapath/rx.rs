//! Rx: moves packets of one queue into a batch, and decides when the batch goes on.
//!
//! If a batch is no larger than a burst, the packets of each poll go on at once, without waiting for the batch to fill. A larger
//! batch gathers several bursts, until it is full or its first packet has waited `flush_us`.

use super::Batch;
use super::counters::{Counters, QueueCount};
use dpdk_ffi::RxQueue;
use std::sync::Arc;

/// Limits on a poll and a batch, and how long a batch may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RxLimits {
    /// Packets a poll, at most.
    pub(crate) burst: u16,
    /// Packets a batch, at most.
    pub(crate) batch: usize,
    /// How long the first packet of a batch may wait for more, cycles.
    pub(crate) flush_cycles: u64,
}

/// The receiving end of one queue.
pub(crate) struct Rx {
    queue: RxQueue,
    limits: RxLimits,
    count: Arc<QueueCount>,
}

impl Rx {
    /// Receives from `queue`, and counts its packets in `count` too.
    pub(crate) fn new(queue: RxQueue, limits: RxLimits, count: Arc<QueueCount>) -> Self {
        Self { queue, limits, count }
    }

    /// Polls the queue once, for at most as many packets as `batch` has room for. Returns how many were received.
    #[inline]
    pub(crate) fn poll(&mut self, batch: &mut Batch, counters: &mut Counters) -> usize {
        let before = batch.packets.len();
        let room = u16::try_from(self.limits.batch.saturating_sub(before)).unwrap_or(u16::MAX);
        let came = self.queue.rx_burst_limit(&mut batch.packets, room.min(self.limits.burst));
        if came > 0 {
            #[expect(clippy::cast_possible_truncation, reason = "a burst is a u16")]
            batch.stamp(dpdk_ffi::tsc(), came as u32);
            counters.rx_packets += came as u64;
            self.count.add(came as u64, 0);
        }
        came
    }

    /// Whether `batch` goes on now, after a poll that received `came` packets.
    #[inline]
    pub(crate) fn is_due(&self, batch: &Batch, came: usize) -> bool {
        let held = batch.packets.len();
        if held == 0 || self.limits.batch <= usize::from(self.limits.burst) || held >= self.limits.batch {
            return held > 0;
        }
        let waited = || batch.stamps().first().map_or(0, |first| dpdk_ffi::tsc().wrapping_sub(first.tsc));
        // After a full burst more packets are probably waiting: poll again before reading the clock.
        came < usize::from(self.limits.burst) && waited() >= self.limits.flush_cycles
    }
}
