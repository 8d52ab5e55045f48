//! Tx: sends the packets of a batch to the queues of their ports, each port's packets in order of arrival, and frees the dropped
//! ones.
//!
//! A driver that accepts fewer packets than offered has a full queue: the rest is dropped as `tx_full`. It is not retried, as in
//! l3fwd, because waiting would hold up the packets of other ports.
//!
//! Mbuf chains are sent only to ports that were granted `MULTI_SEGS`, which is requested where a frame of the port's MTU does not fit an
//! mbuf. For other ports a chain is linearized into its first mbuf; if it does not fit, the packet is dropped as `mtu_exceeded`. `run`
//! sets the MTU of such a port to what one mbuf holds, so that chains are rare here. A batch without chains costs one branch a port.
//!
//! IPv4 packets above the MTU that may be fragmented leave as fragments, after the other packets of their batch. Their port is one that no
//! burst stands for, so that they stay behind when the others are scattered, and a batch without them pays nothing. The copies come from
//! the pools of the packets, which have an mbuf for every descriptor of every queue.

use super::check::ETHERNET_BYTES;
use super::choose::ip_at;
use super::counters::{Counters, QueueCount};
use super::fragment::Cut;
use super::limit::Limit;
use super::port_queues::PortQueues;
use super::punt::PuntTag;
use super::punt_class::PuntClass;
use super::watch::{PacketOrigin, Watch};
use super::{Batch, Code, DropReason, Drops, Egress, Latency, PuntMarker};
use dpdk_ffi::simd::Kind;
use dpdk_ffi::{Burst, Eal, QueueId, RingConsumer, RingProducer, TxQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The sending end of one stage: it has its own TX queue on every port.
pub(crate) struct Tx {
    /// By port index, with their counts; `None` while the port is out of use.
    queues: Vec<(Option<TxQueue>, Arc<QueueCount>)>,
    /// The number of the queue on every port.
    number: QueueId,
    /// By port index: packets on their way to that port's queue.
    outs: Vec<Burst>,
    dropped: Burst,
    /// The way to the router and back; then `outs` has one more burst, for punts.
    punts: Option<PuntSender>,
    /// How many fragments are made; `None` makes all.
    fragments: Option<Limit>,
    latency: Latency,
    watch: Arc<Watch>,
    /// Time stamp at the end of the previous batch; 0 after a turn without work.
    last_tsc: u64,
}

/// The ends of the rings between a sending stage and the router.
pub(crate) struct PuntSender {
    /// Where the punts of each class go.
    pub(crate) punts: [RingProducer; PuntClass::ALL.len()],
    /// Punts on their way to the ring of their class, with room for all of a batch.
    pub(crate) sorted: [Burst; PuntClass::ALL.len()],
    /// The class of each punt of a batch; has the memory for all.
    pub(crate) classes: Vec<u16>,
    /// By port: set when an answer of a neighbour may have been dropped. The router clears it.
    pub(crate) have_lost_answers: Arc<[AtomicBool]>,
    /// What the router sends; one stage has it.
    pub(crate) originated: Option<Originated>,
}

/// Packets of the router on their way to their ports.
pub(crate) struct Originated {
    /// Where they come from, with their ports as tags.
    pub(crate) from: RingConsumer,
    /// Some of them.
    pub(crate) fresh: Burst,
    /// Set when the router's pool runs low: its packets may have left and be kept by drivers.
    pub(crate) is_short: Arc<AtomicBool>,
}

impl PuntSender {
    /// Enqueues punts; those without room are counted in `counters` and freed.
    #[cold]
    fn hand_over(
        &mut self,
        all: &mut Burst,
        nowhere: &mut Burst,
        counters: &mut Counters,
        (watch, vrf): (&Watch, usize),
    ) {
        self.classes.clear();
        self.classes.extend((0..all.len()).map(|i| PuntTag::of(all.tag(i)).cause.class() as u16));
        all.scatter(&self.classes, &mut self.sorted, nowhere);
        let rings = self.punts.iter_mut().zip(&mut self.sorted);
        for (class, (ring, out)) in PuntClass::ALL.into_iter().zip(rings) {
            ring.enqueue_burst(out);
            counters.lost.add(class, out.len() as u64);
            for i in 0..out.len() {
                let tag = PuntTag::of(out.tag(i));
                let reason = tag.cause.reason();
                counters.drops.add(reason, 1);
                if class == PuntClass::Resolution {
                    self.have_lost_answers[usize::from(tag.port)].store(true, Ordering::Relaxed);
                }
                if watch.is_on() {
                    let origin = PacketOrigin::new(tag.input.into(), vrf);
                    watch.dropped((out.data(i), out.pkt_len(i)), origin, reason);
                }
            }
            out.free_all();
        }
    }

    /// Counts what a batch did not hand over.
    #[inline]
    fn count_lost(&self, punting: &mut PuntMarker, counters: &mut Counters) {
        let lost = punting.take_lost();
        counters.lost.merge(&lost);
        if lost.of(PuntClass::Resolution) > 0 {
            self.have_lost_answers[usize::from(punting.ours().port)].store(true, Ordering::Relaxed);
        }
    }
}

/// Most packets of the router that are sent at once.
pub(crate) const ORIGINATED_MAX: usize = 32;

/// Fragments that a stage makes in a period, about a millisecond: a few percent of an lcore, whatever comes.
pub(crate) const FRAGMENTS_MAX: u32 = 64;

impl Tx {
    /// Sends through one queue a port, batches of at most `batch_max` packets.
    pub(crate) fn new(
        eal: &Eal,
        queues: Vec<(TxQueue, Arc<QueueCount>)>,
        (batch_max, punts): (usize, Option<PuntSender>),
        fragments: Option<Limit>,
        (latency, watch): (Latency, Arc<Watch>),
    ) -> Self {
        let batch_max = if punts.is_some() { batch_max.max(ORIGINATED_MAX) } else { batch_max };
        let burst = |_| Burst::with_capacity(eal, batch_max);
        let outs = (0..queues.len() + usize::from(punts.is_some())).map(burst).collect();
        let number = queues.first().map_or(QueueId(0), |(queue, _)| queue.queue());
        let queues = queues.into_iter().map(|(queue, count)| (Some(queue), count)).collect();
        Self { queues, number, outs, dropped: burst(0), punts, fragments, latency, watch, last_tsc: 0 }
    }

    /// Gives its queue of the port of `queues` to them, or takes it from there if it has none.
    pub(crate) fn exchange(&mut self, queues: &mut PortQueues) {
        if let Some((queue, _)) = self.queues.get_mut(usize::from(queues.port)) {
            queues.tx.exchange(self.number, queue, TxQueue::queue);
        }
    }

    /// Sends or frees every packet of `batch` and clears it.
    pub(crate) fn send(&mut self, batch: &mut Batch, counters: &mut Counters) {
        let count = batch.packets.len();
        let has_chains = batch.packets.has_chains();
        let stay = batch.packets.scatter(&batch.ports[..count], &mut self.outs, &mut self.dropped);
        counters.rx_bytes += batch.bytes;
        let mut unsent_bytes = 0;
        let mut unsent = self.dropped.len() as u64;
        if unsent > 0 {
            unsent_bytes += bytes_of(&self.dropped);
            self.dropped.free_all();
        }
        let origin = PacketOrigin::new(batch.input, batch.vrf);
        let (left, left_bytes) = self.send_outs(has_chains, origin, &mut batch.drops);
        (unsent, unsent_bytes) = (unsent + left, unsent_bytes + left_bytes);
        if let (Some(punts), Some(punting)) = (&self.punts, &mut batch.punting) {
            punts.count_lost(punting, counters);
        }
        if let Some(punts) = &mut self.punts
            && let Some(out) = self.outs.last_mut().filter(|out| !out.is_empty())
        {
            unsent += out.len() as u64;
            unsent_bytes += bytes_of(out);
            punts.hand_over(out, &mut self.dropped, counters, (&self.watch, batch.vrf));
        }
        if stay > 0 {
            unsent += stay as u64;
            unsent_bytes += bytes_of(&batch.packets);
            self.send_fragments(batch, count, counters);
        }
        counters.tx_packets += count as u64 - unsent;
        counters.tx_bytes += batch.bytes - unsent_bytes;
        counters.drops.merge(&batch.drops);
        counters.batches += 1;
        self.stamp(batch, count as u64 - unsent, counters);
        batch.clear();
    }

    /// Sends the packets that wait for the queues of their ports. What a queue does not take is counted in `drops` and freed: returns
    /// how many packets and bytes. `has_chains` says whether chains may be among them, `origin` where all of them came from.
    #[inline]
    fn send_outs(&mut self, has_chains: bool, origin: PacketOrigin, drops: &mut Drops) -> (u64, u64) {
        let (mut unsent, mut unsent_bytes) = (0, 0);
        for (out, (queue, queue_count)) in self.outs.iter_mut().zip(&mut self.queues) {
            if out.is_empty() {
                continue;
            }
            let mut sent = 0;
            // No next hop leads to a port that is out of use, but packets may be on their way there.
            if let Some(queue) = queue {
                if has_chains && !queue.takes_chains() {
                    let (long, long_bytes) = out.linearize_or_free();
                    unsent += long as u64;
                    unsent_bytes += long_bytes;
                    drops.add(DropReason::MtuExceeded, long as u64);
                }
                sent = queue.tx_burst(out);
            }
            queue_count.add(sent as u64, out.len() as u64);
            if !out.is_empty() {
                let full = out.len() as u64;
                unsent += full;
                unsent_bytes += bytes_of(out);
                drops.add(DropReason::TxFull, full);
                if self.watch.is_on() {
                    self.watch.refused(out, origin, DropReason::TxFull);
                }
                out.free_all();
            }
        }
        (unsent, unsent_bytes)
    }

    /// Sends the fragments of the packets that stay in `batch`, which had `count` packets and is empty afterwards. Packets beyond the limit
    /// are dropped as `mtu_exceeded`. A fragment for which there is no mbuf is dropped as `tx_full`, and the packet's others are not made.
    #[cold]
    #[inline(never)]
    fn send_fragments(&mut self, batch: &mut Batch, count: usize, counters: &mut Counters) {
        let Batch { packets, kinds, tagged, egress, ports, drops, input, vrf, .. } = batch;
        let (tsc, origin) = (dpdk_ffi::tsc(), PacketOrigin::new(*input, *vrf));
        let mut those = (0..count).filter(|place| ports[*place] == Code::FRAGMENT);
        let mut made = (0, 0);
        for i in 0..packets.len() {
            let place =
                those.next().unwrap_or_else(|| unreachable!("every other packet has a port or is dropped"));
            let Egress { port, mtu_bytes, .. } = egress[place];
            let ip_at = if kinds[place] == Kind::Other { ip_at(tagged, place) } else { ETHERNET_BYTES };
            let cut = Cut::new(packets.data(i), ip_at, mtu_bytes);
            let takes = |limit: &mut Limit, cut: &Cut| limit.takes(tsc, cut.fragments());
            let cut = cut.filter(|cut| self.fragments.as_mut().is_none_or(|limit| takes(limit, cut)));
            let Some(mut cut) = cut else {
                drops.add(DropReason::MtuExceeded, 1);
                if self.watch.is_on() {
                    let packet = (packets.data(i), packets.pkt_len(i));
                    self.watch.dropped(packet, origin, DropReason::MtuExceeded);
                }
                continue;
            };
            counters.punted += 1;
            counters.fragmented += 1;
            while let Some((headers, payload)) = cut.next() {
                counters.originated += 1;
                let port = usize::from(port);
                if self.outs[port].room() == 0 {
                    self.send_made(std::mem::take(&mut made), origin, counters);
                }
                let out = &mut self.outs[port];
                if !out.push_piece(packets, i, headers, &payload) {
                    counters.drops.add(DropReason::TxFull, 1);
                    break;
                }
                made = (made.0 + 1, made.1 + u64::from(out.pkt_len(out.len() - 1)));
            }
        }
        self.send_made(made, origin, counters);
        packets.free_all();
    }

    /// Sends what this stage has put into the bursts of the ports: so many packets and bytes.
    fn send_made(&mut self, (packets, bytes): (u64, u64), origin: PacketOrigin, counters: &mut Counters) {
        let (unsent, unsent_bytes) = self.send_outs(true, origin, &mut counters.drops);
        counters.tx_packets += packets - unsent;
        counters.tx_bytes += bytes - unsent_bytes;
    }

    /// Sends packets of the router, some at a time. Returns whether there were any.
    #[inline]
    pub(crate) fn originate(&mut self, counters: &mut Counters) -> bool {
        let Some(PuntSender { originated: Some(originated), .. }) = &mut self.punts else { return false };
        let Originated { from, fresh, is_short } = originated;
        if is_short.load(Ordering::Relaxed) {
            is_short.store(false, Ordering::Relaxed);
            free_sent(&mut self.queues);
        }
        let came = from.dequeue_burst(fresh);
        if came == 0 {
            return false;
        }
        let mut ports = [0; ORIGINATED_MAX];
        for (i, port) in ports[..came].iter_mut().enumerate() {
            *port = u16::try_from(fresh.tag(i)).unwrap_or(Code::DROPPED);
        }
        let bytes = bytes_of(fresh);
        fresh.scatter(&ports, &mut self.outs, &mut self.dropped);
        assert!(fresh.is_empty() && self.dropped.is_empty(), "the router sends by ports that exist");
        self.send_made((came as u64, bytes), PacketOrigin::UNKNOWN, counters);
        true
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
        counters.busy_cycles += now.saturating_sub(since);
        self.last_tsc = now;
        if stamps.len() == 1 {
            self.latency.record(now.saturating_sub(first.tsc), sent);
            return;
        }
        let mut at = 0;
        for stamp in stamps {
            let end = at + stamp.packets as usize;
            let left = batch.ports[at..end].iter().filter(|port| **port < Code::FIRST).count();
            self.latency.record(now.saturating_sub(stamp.tsc), left as u64);
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

/// Has the drivers free what has left; those that cannot keep it.
#[cold]
fn free_sent(queues: &mut [(Option<TxQueue>, Arc<QueueCount>)]) {
    for queue in queues.iter_mut().filter_map(|(queue, _)| queue.as_mut()) {
        let _ = queue.free_sent();
    }
}

fn bytes_of(burst: &Burst) -> u64 {
    burst.iter().map(|packet| u64::from(packet.pkt_len())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpdk_ffi::{Mempool, MempoolConfig, PortConfig, Ring, RingPort, RingSync, SocketId};
    use rusty_fork::rusty_fork_test;

    rusty_fork_test! {
        #![rusty_fork(timeout_ms = 30_000)]

        #[test]
        fn a_clock_that_is_behind_that_of_the_receiving_lcore_shows_no_time() {
            let Some(eal) = dpdk_ffi::testing::eal() else { return };
            let pool = Mempool::new(eal, "packets", &MempoolConfig::default()).unwrap();
            let ring = |name| Ring::new(eal, name, 8, RingSync::SpSc, SocketId::ANY).unwrap();
            let port = RingPort::from_rings(eal, "late", &[ring("rx")], &[ring("tx")], SocketId::ANY).unwrap();
            port.configure(&PortConfig::default(), std::slice::from_ref(&pool)).unwrap();
            port.start().unwrap();
            let queues = vec![(port.take_tx_queue(QueueId(0)).unwrap(), Arc::default())];
            let latency = Latency::new(1_000_000_000);
            let mut tx = Tx::new(eal, queues, (8, None), None, (latency, Arc::new(Watch::default())));
            let (mut batch, mut counters) = (Batch::new(Burst::with_capacity(eal, 8)), Counters::default());
            // One stamp a batch, then two.
            for bursts in [1, 2] {
                for place in 0..bursts {
                    batch.packets.push(pool.copy(&[0; 64]).unwrap()).unwrap();
                    batch.ports[place] = 0;
                    batch.stamp(dpdk_ffi::tsc() + 1_000_000_000_000, 1);
                }
                tx.rest();
                tx.send(&mut batch, &mut counters);
            }
            assert_eq!((counters.tx_packets, counters.busy_cycles), (3, 0));
            // The least that the histogram records is a nanosecond.
            assert_eq!((tx.latency.histogram().len(), tx.latency.histogram().max()), (3, 1));
        }
    }
}
