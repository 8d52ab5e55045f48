//! Tx: sends the packets of a batch to the queues of their ports, in order of arrival per port, and frees dropped packets.
//!
//! When a driver accepts fewer packets than offered, its queue is full and the rest is dropped as `tx_full`: waiting would delay the
//! packets of other ports. A device engine may answer many batches at once after a pause, more than a queue takes, so its sending stages
//! hold packets back for the next call, in order and within a [`HoldLimit`].
//!
//! Mbuf chains go only to ports with `MULTI_SEGS`, requested where a frame of the MTU exceeds an mbuf. For others a chain is linearized into
//! its first mbuf, or dropped as `mtu_exceeded` if it does not fit. Without chains a port costs one branch.
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

/// Limits of the packets that a port holds back while its queue is full; none by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HoldLimit {
    pub(crate) packets: usize,
    /// Since the port has held any. A queue that does not take all packets for longer is congested: holding would only delay them.
    pub(crate) cycles: u64,
}

impl HoldLimit {
    /// For a stage that follows an engine with batches in flight: one batch, for a millisecond. A pause of a device takes some 100 us, in
    /// which a link of 25 Gbit/s receives 3,700 packets; they then leave faster than the link sends, by about a thousand.
    pub(crate) fn after_a_pause(batch: usize, tsc_hz: u64) -> Self {
        Self { packets: batch, cycles: tsc_hz / 1000 }
    }
}

struct PortTx {
    /// `None` while the port is out of use.
    queue: Option<TxQueue>,
    count: Arc<QueueCount>,
    /// The packets at the front of its burst in `outs` that were held back.
    held: usize,
    /// Since when it has held packets, until its queue takes all that is offered.
    held_since_tsc: Option<u64>,
}

pub(crate) struct Tx {
    /// By port index.
    ports: Vec<PortTx>,
    hold: HoldLimit,
    /// Packets and bytes held back by all ports.
    held: (u64, u64),
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
    pub(crate) hold: HoldLimit,
    pub(crate) punts: Option<PuntSender>,
    pub(crate) fragments: Option<Limit>,
    pub(crate) latency: Latency,
    pub(crate) clock: BusyClock,
    pub(crate) watch: Arc<Watch>,
}

impl Tx {
    pub(crate) fn new(eal: &Eal, parts: TxParts) -> Self {
        let TxParts { queues, batch_max, hold, punts, fragments, latency, clock, watch } = parts;
        let batch_max = if punts.is_some() { batch_max.max(ORIGINATED_MAX) } else { batch_max };
        // Room for a batch behind the packets held back.
        let burst = |_| Burst::with_capacity(eal, batch_max + hold.packets);
        let outs = (0..queues.len() + usize::from(punts.is_some())).map(burst).collect();
        let number = queues.first().map_or(QueueId(0), |(queue, _)| queue.queue());
        let port = |(queue, count)| PortTx { queue: Some(queue), count, held: 0, held_since_tsc: None };
        let ports = queues.into_iter().map(port).collect();
        let dropped = burst(0);
        Self { ports, hold, held: (0, 0), number, outs, dropped, punts, fragments, latency, clock, watch }
    }

    pub(crate) fn exchange(&mut self, queues: &mut PortQueues) {
        if let Some(port) = self.ports.get_mut(usize::from(queues.port)) {
            queues.tx.exchange(self.number, &mut port.queue, TxQueue::queue);
        }
    }

    pub(crate) fn send(&mut self, batch: &mut Batch, counters: &mut Counters) {
        let count = batch.packets.len();
        let has_chains = batch.packets.has_chains();
        let stay = batch.packets.scatter(&batch.ports[..count], &mut self.outs, &mut self.dropped);
        counters.rx_bytes += batch.bytes;
        let (held, held_bytes) = self.held;
        let mut unsent_bytes = 0;
        let mut unsent = self.dropped.len() as u64;
        if unsent > 0 {
            unsent_bytes += bytes_of(&self.dropped);
            self.dropped.free_all();
        }
        let origin = PacketOrigin::new(batch.input, batch.vrf);
        let (left, left_bytes) = self.send_outs(has_chains, origin, &mut batch.drops);
        (unsent, unsent_bytes) = (unsent + left, unsent_bytes + left_bytes);
        let (still_held, still_held_bytes) = self.held;
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
        let sent = held + count as u64 - unsent - still_held;
        counters.tx_packets += sent;
        counters.tx_bytes += held_bytes + batch.bytes - unsent_bytes - still_held_bytes;
        counters.drops.merge(&batch.drops);
        counters.batches += 1;
        // The unsent packets may include some of earlier batches.
        self.stamp(batch, (count as u64).saturating_sub(unsent), counters);
        batch.clear();
    }

    /// Packets that a queue refuses are held back; beyond the limit they are counted in `drops` and freed. Returns the number and the bytes
    /// of freed packets. `has_chains`: some may be chains.
    #[inline]
    fn send_outs(&mut self, has_chains: bool, origin: PacketOrigin, drops: &mut Drops) -> (u64, u64) {
        let (mut unsent, mut unsent_bytes) = (0, 0);
        self.held = (0, 0);
        for (out, port) in self.outs.iter_mut().zip(&mut self.ports) {
            if out.is_empty() {
                continue;
            }
            let mut sent = 0;
            // No next hop leads to a port that is out of use, but packets may still be on the way there.
            if let Some(queue) = &mut port.queue {
                if has_chains && !queue.takes_chains() {
                    let (long, long_bytes) = out.linearize_or_free();
                    unsent += long as u64;
                    unsent_bytes += long_bytes;
                    drops.add(DropReason::MtuExceeded, long as u64);
                }
                sent = queue.tx_burst(out);
            }
            let mut refused = 0;
            let before = std::mem::take(&mut port.held).saturating_sub(sent);
            if out.is_empty() {
                port.held_since_tsc = None;
            } else {
                let keep = port.keeps(out.len(), self.hold);
                let bytes = bytes_of(out);
                refused = (out.len() - keep) as u64;
                drops.add(DropReason::TxFull, refused);
                if refused > 0 && self.watch.is_on() {
                    let (from, reason) = (keep.max(before), DropReason::TxFull);
                    self.watch.refused(out.iter().take(from).skip(keep), PacketOrigin::UNKNOWN, reason);
                    self.watch.refused(out.iter().skip(from), origin, reason);
                }
                out.truncate_free(keep);
                let kept_bytes = if keep > 0 { bytes_of(out) } else { 0 };
                unsent += refused;
                unsent_bytes += bytes - kept_bytes;
                self.held = (self.held.0 + keep as u64, self.held.1 + kept_bytes);
                port.held = keep;
            }
            port.count.add(sent as u64, refused);
        }
        (unsent, unsent_bytes)
    }

    /// Sends packets that were held back. Returns whether there were any.
    #[inline]
    pub(crate) fn send_held(&mut self, counters: &mut Counters) -> bool {
        let has_held = self.held.0 > 0;
        if has_held {
            self.send_made((0, 0), PacketOrigin::UNKNOWN, counters);
        }
        has_held
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

    /// Sends packets that this stage created, given their number and bytes, behind those held back.
    fn send_made(&mut self, (packets, bytes): (u64, u64), origin: PacketOrigin, counters: &mut Counters) {
        let (held, held_bytes) = self.held;
        let (unsent, unsent_bytes) = self.send_outs(true, origin, &mut counters.drops);
        counters.tx_packets += held + packets - unsent - self.held.0;
        counters.tx_bytes += held_bytes + bytes - unsent_bytes - self.held.1;
    }

    /// Sends a burst of router packets. Returns false when the ring is empty.
    #[inline]
    pub(crate) fn originate(&mut self, counters: &mut Counters) -> bool {
        let Some(PuntSender { originated: Some(originated), .. }) = &mut self.punts else { return false };
        let Originated { from, fresh, is_short } = originated;
        if is_short.load(Ordering::Relaxed) {
            is_short.store(false, Ordering::Relaxed);
            free_sent(&mut self.ports);
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
    /// ports: the few dropped later as `tx_full` or `mtu_exceeded`, or held back, count as sent.
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

    /// Packets held; between two calls of [`Self::send`] those held back.
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

impl PortTx {
    /// How many of `refused` packets the port holds back.
    #[cold]
    fn keeps(&mut self, refused: usize, hold: HoldLimit) -> usize {
        if self.queue.is_none() || hold.packets == 0 {
            self.held_since_tsc = None;
            return 0;
        }
        let now_tsc = dpdk_ffi::tsc();
        let since_tsc = *self.held_since_tsc.get_or_insert(now_tsc);
        if now_tsc.saturating_sub(since_tsc) > hold.cycles { 0 } else { refused.min(hold.packets) }
    }
}

#[cold]
fn free_sent(ports: &mut [PortTx]) {
    for queue in ports.iter_mut().filter_map(|port| port.queue.as_mut()) {
        let _ = queue.free_sent();
    }
}

fn bytes_of(burst: &Burst) -> u64 {
    burst.iter().map(|packet| u64::from(packet.pkt_len())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpdk_ffi::{Mempool, MempoolConfig, Port, PortConfig, Ring, RingPort, RingSync, SocketId};
    use rusty_fork::rusty_fork_test;

    /// A port whose TX queue takes 7 packets, and the ring that they leave by.
    fn port_over_rings(eal: &Eal, pool: &Mempool) -> (Port, Ring) {
        let ring = |name| Ring::new(eal, name, 8, RingSync::SpSc, SocketId::ANY).unwrap();
        let wire = ring("tx");
        let port =
            RingPort::from_rings(eal, "small", &[ring("rx")], std::slice::from_ref(&wire), SocketId::ANY)
                .unwrap();
        port.configure(&PortConfig::default(), std::slice::from_ref(pool)).unwrap();
        port.start().unwrap();
        (port, wire)
    }

    fn tx_over(eal: &Eal, port: &Port, hold: HoldLimit) -> Tx {
        let queues = vec![(port.take_tx_queue(QueueId(0)).unwrap(), Arc::default())];
        let latency = Latency::new(1_000_000_000);
        let watch = Arc::new(Watch::default());
        let (clock, fragments) = (BusyClock::default(), None);
        Tx::new(eal, TxParts { queues, batch_max: 8, hold, punts: None, fragments, latency, clock, watch })
    }

    rusty_fork_test! {
        #![rusty_fork(timeout_ms = 30_000)]

        #[test]
        fn a_clock_that_is_behind_that_of_the_receiving_lcore_shows_no_time() {
            let Some(eal) = dpdk_ffi::testing::eal() else { return };
            let pool = Mempool::new(eal, "packets", &MempoolConfig::default()).unwrap();
            let (port, _wire) = port_over_rings(eal, &pool);
            let mut tx = tx_over(eal, &port, HoldLimit::default());
            let (mut batch, mut counters) = (Batch::alone(Burst::with_capacity(eal, 8)), Counters::default());
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

        #[test]
        fn packets_for_a_full_queue_are_held_in_order_and_no_longer_than_the_limit() {
            let Some(eal) = dpdk_ffi::testing::eal() else { return };
            let pool = Mempool::new(eal, "packets", &MempoolConfig::default()).unwrap();
            let (port, wire) = port_over_rings(eal, &pool);
            let mut tx = tx_over(eal, &port, HoldLimit { packets: 6, cycles: u64::MAX });
            let (mut batch, mut counters) = (Batch::alone(Burst::with_capacity(eal, 8)), Counters::default());
            let (mut number, mut left) = (0, Vec::new());
            let mut send = |tx: &mut Tx, counters: &mut Counters| {
                for place in 0..8 {
                    batch.packets.push(pool.copy(&[number; 64]).unwrap()).unwrap();
                    (batch.ports[place], batch.bytes, number) = (0, batch.bytes + 64, number + 1);
                }
                tx.send(&mut batch, counters);
            };
            let mut wire = wire.consumer().unwrap();
            let mut carry = || {
                let mut burst = Burst::with_capacity(eal, 8);
                wire.dequeue_burst(&mut burst);
                left.extend(burst.iter().map(|packet| packet.data()[0]));
            };
            // Of 16 packets the queue takes 7 and the port holds 6.
            send(&mut tx, &mut counters);
            assert_eq!((counters.tx_packets, tx.held(), counters.drops.total()), (7, 1, 0));
            send(&mut tx, &mut counters);
            assert_eq!((counters.tx_packets, tx.held()), (7, 6));
            assert_eq!(counters.drops.get(DropReason::TxFull), 3);
            assert_eq!(tx.ports[0].count.read(), (7, 3));
            assert!(tx.send_held(&mut counters), "a full queue takes none, and none is lost");
            assert_eq!((counters.tx_packets, tx.held(), counters.drops.total()), (7, 6, 3));
            carry();
            assert!(tx.send_held(&mut counters));
            assert_eq!((counters.tx_packets, counters.tx_bytes, tx.held()), (13, 13 * 64, 0));
            assert!(!tx.send_held(&mut counters), "nothing is left to send");
            // The queue has taken all packets: the next ones that are held start a new period.
            tx.hold.cycles = 0;
            send(&mut tx, &mut counters);
            assert_eq!((counters.tx_packets, tx.held(), counters.drops.total()), (14, 6, 4));
            tx.send_held(&mut counters);
            assert_eq!((counters.tx_packets, tx.held(), counters.drops.total()), (14, 0, 10));
            // Until it has taken all that is offered, the queue is congested.
            send(&mut tx, &mut counters);
            assert_eq!((counters.tx_packets, tx.held(), counters.drops.total()), (14, 0, 18));
            carry();
            assert_eq!(left, (0..13).chain([16]).collect::<Vec<_>>());
        }
    }
}
