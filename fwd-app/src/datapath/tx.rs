//! Tx: the packets of a batch to the queues of their ports, each port's in order of arrival; dropped ones are freed.
//!
//! A driver that takes fewer packets than offered has a full queue: the rest is dropped as `tx_full` and never waited for,
//! as l3fwd does. Waiting would hold up the other ports' packets.
//!
//! Chains go to ports that were granted `MULTI_SEGS` only, which is asked of every port. To others a chain goes as one segment;
//! one whose bytes do not fit its first mbuf is dropped as `mtu_exceeded`. `run` gives such a port an MTU of what an mbuf holds, so
//! that hardly any chain comes here; a port that takes chains pays one branch a burst.

use super::counters::Counters;
use super::{Batch, Code, DropReason, Latency};
use dpdk_ffi::{Burst, Eal, TxQueue};

/// The sending end of one stage: a TX queue of its own on every port.
pub(crate) struct Tx {
    /// By port index.
    queues: Vec<TxQueue>,
    /// By port index: packets on their way to that port's queue.
    outs: Vec<Burst>,
    dropped: Burst,
    latency: Latency,
    /// When the batch before was done; 0 after a turn without work.
    last_tsc: u64,
}

impl Tx {
    /// Over one queue a port, for batches of at most `batch_max` packets.
    pub(crate) fn new(eal: &Eal, queues: Vec<TxQueue>, batch_max: usize, latency: Latency) -> Self {
        let outs = queues.iter().map(|_| Burst::with_capacity(eal, batch_max)).collect();
        Self { queues, outs, dropped: Burst::with_capacity(eal, batch_max), latency, last_tsc: 0 }
    }

    /// Sends or frees every packet of `batch` and clears it.
    pub(crate) fn send(&mut self, batch: &mut Batch<Burst>, counters: &mut Counters) {
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
        for (out, queue) in self.outs.iter_mut().zip(&mut self.queues) {
            if out.is_empty() {
                continue;
            }
            if !queue.takes_chains() {
                let (long, long_bytes) = out.linearize_or_free();
                unsent += long as u64;
                unsent_bytes += long_bytes;
                batch.drops.add(DropReason::MtuExceeded, long as u64);
            }
            queue.tx_burst(out);
            if !out.is_empty() {
                let full = out.len() as u64;
                unsent += full;
                unsent_bytes += bytes_of(out);
                batch.drops.add(DropReason::TxFull, full);
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

    /// Records how long the packets stayed that left just now. A batch of several bursts is told apart by what the verdict
    /// said; the few that found their queue full are not.
    #[inline]
    fn stamp(&mut self, batch: &Batch<Burst>, sent: u64, counters: &mut Counters) {
        let now = dpdk_ffi::tsc();
        let stamps = batch.stamps();
        let Some(first) = stamps.first() else { return };
        // Between two batches without a rest the driver's work counts too.
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

    /// Packets held: none between two calls of [`Self::send`].
    pub(crate) fn held(&self) -> usize {
        self.outs.iter().map(Burst::len).sum::<usize>() + self.dropped.len()
    }

    /// What was recorded.
    pub(crate) fn into_latency(self) -> Latency {
        self.latency
    }
}

fn bytes_of(burst: &Burst) -> u64 {
    burst.iter().map(|packet| u64::from(packet.pkt_len())).sum()
}
