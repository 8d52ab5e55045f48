//! Tx: sends the packets of a batch to the queues of their ports, in order of arrival per port, and frees dropped packets.
//!
//! When a driver accepts fewer packets than offered, its queue is full and the rest is dropped as `tx_full`: waiting would delay the
//! packets of other ports. Mbuf chains go only to ports with `MULTI_SEGS`, requested where a frame of the MTU exceeds an mbuf. For others a
//! chain is linearized into its first mbuf, or dropped as `mtu_exceeded` if it does not fit. Without chains a port costs one branch.
//!
//! Packets to be fragmented leave after the rest of their batch: their port number has no burst, so `scatter` leaves them. The copies come
//! from the pools of the packets, which have an mbuf for every descriptor of every queue.

use super::check::ETHERNET_BYTES;
use super::choose::ip_at;
use super::counters::{BusyClock, Counters, QueueCount};
use super::drop_reason::PuntClass;
use super::fragment::Cut;
use super::port_queues::PortQueues;
use super::punt::{Limit, PuntTag};
use super::watch::{PacketOrigin, Watch};
use super::{Batch, DropReason, Drops, Egress, Exit, Latency, PuntMarker};
use dpdk_ffi::simd::Kind;
use dpdk_ffi::{Burst, Eal, QueueId, RingConsumer, RingProducer, TxQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Tx {
    /// By port index, with counts; `None` while the port is out of use.
    queues: Vec<(Option<TxQueue>, Arc<QueueCount>)>,
    /// Number of the queue, the same on every port.
    number: QueueId,
    /// By port index: packets waiting for that port's queue.
    outs: Vec<Burst>,
    dropped: Burst,
    /// Rings to and from the router. If present, `outs` has one more burst, for punts.
    punts: Option<PuntSender>,
    /// Limit of fragments; `None` is unlimited.
    fragments: Option<Limit>,
    latency: Latency,
    watch: Arc<Watch>,
    clock: BusyClock,
}

pub(crate) struct PuntSender {
    pub(crate) punts: [RingProducer; PuntClass::ALL.len()],
    /// Punts of each class, each with room for a whole batch.
    pub(crate) sorted: [Burst; PuntClass::ALL.len()],
    /// The class of each punt of a batch, preallocated.
    pub(crate) classes: Vec<u16>,
    /// By port: set when a neighbour's answer may have been dropped; cleared by the router.
    pub(crate) have_lost_answers: Arc<[AtomicBool]>,
    /// Packets sent by the router; one stage has them.
    pub(crate) originated: Option<Originated>,
}

pub(crate) struct Originated {
    /// Their ring, with the egress port as tag.
    pub(crate) from: RingConsumer,
    pub(crate) fresh: Burst,
    /// Set when the router's pool runs low, because drivers may hold mbufs that were already sent.
    pub(crate) is_short: Arc<AtomicBool>,
}

impl PuntSender {
    /// Enqueues punts. Punts without room are counted in `counters` and freed.
    #[cold]
    fn hand_over(
        &mut self,
        all: &mut Burst,
        nowhere: &mut Burst,
        counters: &mut Counters,
        (watch, vrf): (&Watch, usize),
    ) {
        self.classes.clear();
        self.classes.extend((0..all.len()).map(|i| PuntTag::from_tag(all.tag(i)).cause.class() as u16));
        all.scatter(&self.classes, &mut self.sorted, nowhere);
        let rings = self.punts.iter_mut().zip(&mut self.sorted);
        for (class, (ring, out)) in PuntClass::ALL.into_iter().zip(rings) {
            ring.enqueue_burst(out);
            counters.lost.add(class, out.len() as u64);
            for i in 0..out.len() {
                let tag = PuntTag::from_tag(out.tag(i));
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

    #[inline]
    fn count_lost(&self, punting: &mut PuntMarker, counters: &mut Counters) {
        let lost = punting.take_lost();
        counters.lost.merge(&lost);
        if lost.get(PuntClass::Resolution) > 0 {
            self.have_lost_answers[usize::from(punting.addresses().port)].store(true, Ordering::Relaxed);
        }
    }
}

pub(crate) const ORIGINATED_MAX: usize = 32;

/// Fragments per stage and period of about a millisecond: bounds their cost to a few percent of an lcore.
pub(crate) const FRAGMENTS_MAX: u32 = 64;

pub(crate) struct TxParts {
    pub(crate) queues: Vec<(TxQueue, Arc<QueueCount>)>,
    pub(crate) batch_max: usize,
    pub(crate) punts: Option<PuntSender>,
    pub(crate) fragments: Option<Limit>,
    pub(crate) latency: Latency,
    pub(crate) clock: BusyClock,
    pub(crate) watch: Arc<Watch>,
}

impl Tx {
    pub(crate) fn new(eal: &Eal, parts: TxParts) -> Self {
        let TxParts { queues, batch_max, punts, fragments, latency, clock, watch } = parts;
        let batch_max = if punts.is_some() { batch_max.max(ORIGINATED_MAX) } else { batch_max };
        let burst = |_| Burst::with_capacity(eal, batch_max);
        let outs = (0..queues.len() + usize::from(punts.is_some())).map(burst).collect();
        let number = queues.first().map_or(QueueId(0), |(queue, _)| queue.queue());
        let queues = queues.into_iter().map(|(queue, count)| (Some(queue), count)).collect();
        Self { queues, number, outs, dropped: burst(0), punts, fragments, latency, clock, watch }
    }

    pub(crate) fn exchange(&mut self, queues: &mut PortQueues) {
        if let Some((queue, _)) = self.queues.get_mut(usize::from(queues.port)) {
            queues.tx.exchange(self.number, queue, TxQueue::queue);
        }
    }

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

    /// Packets that a queue refuses are counted in `drops` and freed; returns their number and bytes. `has_chains`: some may be chains.
    #[inline]
    fn send_outs(&mut self, has_chains: bool, origin: PacketOrigin, drops: &mut Drops) -> (u64, u64) {
        let (mut unsent, mut unsent_bytes) = (0, 0);
        for (out, (queue, queue_count)) in self.outs.iter_mut().zip(&mut self.queues) {
            if out.is_empty() {
                continue;
            }
            let mut sent = 0;
            // No next hop leads to a port that is out of use, but packets may still be on the way there.
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

    /// Sends the packets that stayed in `batch`, which had `count` packets, as fragments, and empties it. Packets beyond the limit are
    /// dropped as `mtu_exceeded`. A fragment without an mbuf is dropped as `tx_full`, and the rest of its packet is not created.
    #[cold]
    #[inline(never)]
    fn send_fragments(&mut self, batch: &mut Batch, count: usize, counters: &mut Counters) {
        let Batch { packets, kinds, tagged, egress, ports, drops, input, vrf, .. } = batch;
        let (tsc, origin) = (dpdk_ffi::tsc(), PacketOrigin::new(*input, *vrf));
        let mut those = (0..count).filter(|place| ports[*place] == Exit::Fragment.word());
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

    /// Sends packets that this stage created, given their number and bytes.
    fn send_made(&mut self, (packets, bytes): (u64, u64), origin: PacketOrigin, counters: &mut Counters) {
        let (unsent, unsent_bytes) = self.send_outs(true, origin, &mut counters.drops);
        counters.tx_packets += packets - unsent;
        counters.tx_bytes += bytes - unsent_bytes;
    }

    /// Sends a burst of router packets. Returns false when the ring is empty.
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
            *port = u16::try_from(fresh.tag(i)).unwrap_or(Exit::Dropped.word());
        }
        let bytes = bytes_of(fresh);
        fresh.scatter(&ports, &mut self.outs, &mut self.dropped);
        assert!(fresh.is_empty() && self.dropped.is_empty(), "the router sends by ports that exist");
        self.send_made((came as u64, bytes), PacketOrigin::UNKNOWN, counters);
        true
    }

    /// Records the latency of the packets just sent. In a batch of several bursts, the packets of each burst are counted by the verdict's
    /// ports: the few dropped later as `tx_full` or `mtu_exceeded` count as sent.
    #[inline]
    fn stamp(&mut self, batch: &Batch, sent: u64, counters: &mut Counters) {
        let stamps = batch.stamps();
        let Some(first) = stamps.first() else { return };
        // Without an idle turn between two batches, the driver's work counts as busy time too.
        let now = self.clock.worked(stamps.last().map_or(first.tsc, |last| last.tsc), counters);
        if stamps.len() == 1 {
            self.latency.record(now.saturating_sub(first.tsc), sent);
            return;
        }
        let mut at = 0;
        for stamp in stamps {
            let end = at + stamp.packets as usize;
            let left = batch.ports[at..end].iter().filter(|port| Exit::is_port(**port)).count();
            self.latency.record(now.saturating_sub(stamp.tsc), left as u64);
            at = end;
        }
    }

    /// Records an idle turn: the next batch restarts the busy timer.
    pub(crate) fn rest(&mut self) {
        self.clock.rest();
    }

    /// Packets held; 0 between two calls of [`Self::send`].
    pub(crate) fn held(&self) -> usize {
        self.outs.iter().map(Burst::len).sum::<usize>() + self.dropped.len()
    }

    /// Replaces the recorded latencies with `fresh` and returns them; does nothing without `fresh`.
    pub(crate) fn take_latency(&mut self, fresh: Option<Latency>) -> Option<Latency> {
        fresh.map(|fresh| std::mem::replace(&mut self.latency, fresh))
    }

    pub(crate) fn into_latency(self) -> Latency {
        self.latency
    }
}

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
            let watch = Arc::new(Watch::default());
            let (clock, fragments) = (BusyClock::default(), None);
            let parts = TxParts { queues, batch_max: 8, punts: None, fragments, latency, clock, watch };
            let mut tx = Tx::new(eal, parts);
            let (mut batch, mut counters) = (Batch::new(Burst::with_capacity(eal, 8)), Counters::default());
            // First one stamp per batch, then two.
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
            // The histogram's smallest value is a nanosecond.
            assert_eq!((tx.latency.histogram().len(), tx.latency.histogram().max()), (3, 1));
        }
    }
}
