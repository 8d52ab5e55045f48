//! Tx: sends the packets of a batch to the queues of their ports, each port's packets in order of arrival, and frees the dropped
//! ones.
//!
//! A driver that accepts fewer packets than offered has a full queue: the rest is dropped as `tx_full`. It is not retried, as in
//! l3fwd, because waiting would hold up the packets of other ports.
//!
//! Mbuf chains are sent only to ports that were granted `MULTI_SEGS`, which is requested for every port. For other ports a chain is
//! linearized into its first mbuf; if it does not fit, the packet is dropped as `mtu_exceeded`. `run` sets the MTU of such a port
//! to what one mbuf holds, so that chains are rare here. A port that accepts chains costs one branch a burst.

use super::counters::{Counters, QueueCount};
use super::watch::Watch;
use super::{Batch, Code, DropReason, Latency};
use dpdk_ffi::{Burst, Eal, TxQueue};
use std::sync::Arc;

/// The sending end of one stage: it has its own TX queue on every port.
pub(crate) struct Tx {
    /// By port index, with their counts.
    queues: Vec<(TxQueue, Arc<QueueCount>)>,
    /// By port index: packets on their way to that port's queue.
    outs: Vec<Burst>,
    dropped: Burst,
    latency: Latency,
    watch: Arc<Watch>,
    /// Time stamp at the end of the previous batch; 0 after a turn without work.
    last_tsc: u64,
}

impl Tx {
    /// Sends through one queue a port, batches of at most `batch_max` packets.
    pub(crate) fn new(
        eal: &Eal,
        queues: Vec<(TxQueue, Arc<QueueCount>)>,
        batch_max: usize,
        latency: Latency,
        watch: Arc<Watch>,
    ) -> Self {
        let outs = queues.iter().map(|_| Burst::with_capacity(eal, batch_max)).collect();
        Self { queues, outs, dropped: Burst::with_capacity(eal, batch_max), latency, watch, last_tsc: 0 }
    }

    /// Sends or frees every packet of `batch` and clears it.
    pub(crate) fn send(&mut self, batch: &mut Batch, counters: &mut Counters) {
        let count = batch.packets.len();
        let stay = batch.packets.scatter(&batch.ports[..count], &mut self.outs, &mut self.dropped);
        assert!(
            stay == 0,
            "every packet has a port that exists, or is dropped, and each burst holds a whole batch"
        );
        counters.rx_bytes += batch.bytes;
        let mut unsent_bytes = 0;
        let mut unsent = self.dropped.len() as u64;
        if unsent > 0 {
            unsent_bytes += bytes_of(&self.dropped);
            self.dropped.free_all();
        }
        for (out, (queue, queue_count)) in self.outs.iter_mut().zip(&mut self.queues) {
            if out.is_empty() {
                continue;
            }
            if !queue.takes_chains() {
                let (long, long_bytes) = out.linearize_or_free();
                unsent += long as u64;
                unsent_bytes += long_bytes;
                batch.drops.add(DropReason::MtuExceeded, long as u64);
            }
            let sent = queue.tx_burst(out);
            queue_count.add(sent as u64, out.len() as u64);
            if !out.is_empty() {
                let full = out.len() as u64;
                unsent += full;
                unsent_bytes += bytes_of(out);
                batch.drops.add(DropReason::TxFull, full);
                if self.watch.is_on() {
                    self.watch.refused(out, DropReason::TxFull);
                }
                out.free_all();
            }
        }
        counters.tx_packets += count as u64 - unsent;
        counters.tx_bytes += batch.bytes - unsent_bytes;
        counters.drops.merge(&batch.drops);
        counters.batches += 1;
        self.stamp(batch, count as u64 - unsent, counters);
        batch.clear();
    }

    /// Records how long the packets stayed that were sent just now. In a batch of several bursts, the packets sent of each burst
    /// are counted by the ports that the verdict gave; the few dropped as `tx_full` or `mtu_exceeded` after it are counted as sent.
    #[inline]
    fn stamp(&mut self, batch: &Batch, sent: u64, counters: &mut Counters) {
        let now = dpdk_ffi::tsc();
        let stamps = batch.stamps();
        let Some(first) = stamps.first() else { return };
        // Between two batches without an idle turn, the driver's own work counts as busy time too.
        let since =
            if self.last_tsc == 0 { stamps.last().map_or(first.tsc, |last| last.tsc) } else { self.last_tsc };
        counters.busy_cycles += now.wrapping_sub(since);
        self.last_tsc = now;
        if stamps.len() == 1 {
            self.latency.record(now.wrapping_sub(first.tsc), sent);
            return;
        }
        let mut at = 0;
        for stamp in stamps {
            let end = at + stamp.packets as usize;
            let left = batch.ports[at..end].iter().filter(|port| **port < Code::FIRST).count();
            self.latency.record(now.wrapping_sub(stamp.tsc), left as u64);
            at = end;
        }
    }

    /// Notes a turn without work: the lcore was idle, so the next batch restarts the busy timer.
    pub(crate) fn rest(&mut self) {
        self.last_tsc = 0;
    }

    /// Packets held: 0 between two calls of [`Self::send`].
    pub(crate) fn held(&self) -> usize {
        self.outs.iter().map(Burst::len).sum::<usize>() + self.dropped.len()
    }

    /// The latencies recorded so far, in whose place `fresh` goes on; without it, nothing.
    pub(crate) fn take_latency(&mut self, fresh: Option<Latency>) -> Option<Latency> {
        fresh.map(|fresh| std::mem::replace(&mut self.latency, fresh))
    }

    /// The latencies recorded so far.
    pub(crate) fn into_latency(self) -> Latency {
        self.latency
    }
}

fn bytes_of(burst: &Burst) -> u64 {
    burst.iter().map(|packet| u64::from(packet.pkt_len())).sum()
}
