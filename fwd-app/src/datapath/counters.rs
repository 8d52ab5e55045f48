//! The counters of an lcore, and their published copy for the rest of the program.
//!
//! Counters are plain integers that belong to one stage, which updates them once a burst. The stage publishes copies of them in
//! [`Published`], atomics on cache lines of their own, for the thread that prints.

use super::punt_class::{Lost, PuntClass};
use super::{DropReason, Drops};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The passes whose cycles are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StageName {
    /// Receiving packets from the queue.
    Rx,
    /// Header checks, and collecting the keys.
    Parse,
    /// The engine's lookup.
    Lookup,
    /// Turning next hops into ports.
    Verdict,
    /// Rewriting headers.
    Rewrite,
    /// Distributing packets to ports, sending, freeing.
    Tx,
    /// In a pipeline, giving batches to the next stage and taking them from the stage before: all of it that a packet meets, though
    /// only the rx stage counts the packets.
    HandOver,
}

impl StageName {
    /// All of them, in the order in which a packet passes them.
    pub(crate) const ALL: [Self; 7] =
        [Self::Rx, Self::Parse, Self::Lookup, Self::Verdict, Self::Rewrite, Self::Tx, Self::HandOver];

    /// The name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rx => "rx",
            Self::Parse => "parse",
            Self::Lookup => "lookup",
            Self::Verdict => "verdict",
            Self::Rewrite => "rewrite",
            Self::Tx => "tx",
            Self::HandOver => "hand-over",
        }
    }
}

/// Cycles of one pass, summed over the timed bursts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StageCycles {
    /// Number of timed bursts.
    pub(crate) bursts: u64,
    /// Packets in them.
    pub(crate) packets: u64,
    /// Cycles of the time stamp counter that they took.
    pub(crate) cycles: u64,
}

/// One burst in this many is timed pass by pass, since reading the clock six times costs as much as a few packets.
pub(crate) const TIMED_ONE_IN: u32 = 16;

/// The counters of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Packets received.
    pub(crate) rx_packets: u64,
    /// Bytes received, without preamble and frame check sequence.
    pub(crate) rx_bytes: u64,
    /// Packets sent.
    pub(crate) tx_packets: u64,
    /// Bytes sent, without preamble and frame check sequence.
    pub(crate) tx_bytes: u64,
    /// Packets that this router made: answers, requests, errors, fragments.
    pub(crate) originated: u64,
    /// Packets that were for this router, and done with, and those that left as fragments.
    pub(crate) punted: u64,
    /// Of the punted ones, those that left as fragments.
    pub(crate) fragmented: u64,
    /// Answers and errors of ICMP that this router did not make since their rate is limited.
    pub(crate) icmp_limited: u64,
    /// Packets that were dropped and not handed over to the router, since it had more than enough of their class.
    pub(crate) lost: Lost,
    /// Packets dropped.
    pub(crate) drops: Drops,
    /// Batches completed.
    pub(crate) batches: u64,
    /// Cycles spent on batches, without idle polling.
    pub(crate) busy_cycles: u64,
    /// Cycles of each pass.
    pub(crate) stages: [StageCycles; StageName::ALL.len()],
}

impl Counters {
    /// Adds the counts of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.rx_packets += other.rx_packets;
        self.rx_bytes += other.rx_bytes;
        self.tx_packets += other.tx_packets;
        self.tx_bytes += other.tx_bytes;
        self.originated += other.originated;
        self.punted += other.punted;
        self.fragmented += other.fragmented;
        self.icmp_limited += other.icmp_limited;
        self.lost.merge(&other.lost);
        self.drops.merge(&other.drops);
        self.batches += other.batches;
        self.busy_cycles += other.busy_cycles;
        for (mine, theirs) in self.stages.iter_mut().zip(&other.stages) {
            mine.bursts += theirs.bursts;
            mine.packets += theirs.packets;
            mine.cycles += theirs.cycles;
        }
    }

    /// Packets that have come and not gone: those inside, if all counts are of one moment.
    pub(crate) fn inside(&self) -> u64 {
        (self.rx_packets + self.originated).saturating_sub(self.tx_packets + self.punted + self.drops.total())
    }

    /// Packets that have come and gone, in whatever form. Of the published counters of a stage it may be too few, never too many.
    pub(crate) fn gone(&self) -> u64 {
        (self.tx_packets + self.punted + self.drops.total()).saturating_sub(self.originated)
    }

    /// Counts a timed pass, or with 0 packets a part of one.
    #[inline]
    pub(crate) fn time(&mut self, stage: StageName, packets: usize, cycles: u64) {
        let stage = &mut self.stages[stage as usize];
        stage.bursts += u64::from(packets > 0);
        stage.packets += packets as u64;
        stage.cycles += cycles;
    }
}

/// How many numbers of [`Counters`] are published while the stage runs.
const SHOWN: usize = 10 + DropReason::COUNT + PuntClass::ALL.len();

/// The published copy of one stage's counters, and the time stamp counter when they were published last. Each number is exact, but two
/// numbers may be from different moments. What was originated is stored first and read last, so that whoever sees a packet of the router
/// leave knows that there is one more.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Published([AtomicU64; SHOWN], AtomicU64);

impl Published {
    /// Stores a copy of `counters`. Only the stage that owns them calls this.
    pub(crate) fn publish(&self, counters: &Counters) {
        let Counters { rx_packets, rx_bytes, tx_packets, tx_bytes, originated, punted, .. } = counters;
        let Counters { fragmented, icmp_limited, batches, busy_cycles, drops, lost, .. } = counters;
        let [first, rest @ ..] = &self.0;
        first.store(*originated, Relaxed);
        let packets = [rx_packets, rx_bytes, tx_packets, tx_bytes, punted, fragmented, icmp_limited];
        let numbers = packets.into_iter().chain([batches, busy_cycles]).copied();
        let by_name = drops.iter().map(|(_, count)| count).chain(lost.iter().map(|(_, count)| count));
        for (shown, number) in rest.iter().zip(numbers.chain(by_name)) {
            shown.store(number, Release);
        }
        self.1.store(dpdk_ffi::tsc(), Relaxed);
    }

    /// When they were published last, as the time stamp counter was then.
    pub(crate) fn at(&self) -> u64 {
        self.1.load(Relaxed)
    }

    /// The published counters; cycles by pass are not published and read as 0.
    pub(crate) fn read(&self) -> Counters {
        let [
            originated,
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes,
            punted,
            fragmented,
            icmp_limited,
            batches,
            busy_cycles,
            by_name @ ..,
        ] = &self.0;
        let mut counters = Counters {
            rx_packets: rx_packets.load(Acquire),
            rx_bytes: rx_bytes.load(Acquire),
            tx_packets: tx_packets.load(Acquire),
            tx_bytes: tx_bytes.load(Acquire),
            punted: punted.load(Acquire),
            fragmented: fragmented.load(Acquire),
            icmp_limited: icmp_limited.load(Acquire),
            batches: batches.load(Acquire),
            busy_cycles: busy_cycles.load(Acquire),
            ..Counters::default()
        };
        let (drops, lost) = by_name.split_at(DropReason::COUNT);
        for (reason, count) in DropReason::ALL.into_iter().zip(drops) {
            counters.drops.add(reason, count.load(Acquire));
        }
        for (class, count) in PuntClass::ALL.into_iter().zip(lost) {
            counters.lost.add(class, count.load(Acquire));
        }
        counters.originated = originated.load(Relaxed);
        counters
    }
}

/// The packets of one queue. The stage that uses the queue counts, any thread reads.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct QueueCount {
    packets: AtomicU64,
    refused: AtomicU64,
}

impl QueueCount {
    /// Counts `packets` received or sent, and `refused` for which a TX queue had no room. One thread alone calls this.
    #[inline]
    pub(crate) fn add(&self, packets: u64, refused: u64) {
        self.packets.store(self.packets.load(Relaxed) + packets, Relaxed);
        if refused > 0 {
            self.refused.store(self.refused.load(Relaxed) + refused, Relaxed);
        }
    }

    /// The packets received or sent, and those refused.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.packets.load(Relaxed), self.refused.load(Relaxed))
    }
}

/// The packets of one VRF that a stage has looked up. The stage counts, any thread reads.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct VrfCount {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl VrfCount {
    /// Counts a batch. One thread alone calls this.
    #[inline]
    pub(crate) fn add(&self, packets: u64, bytes: u64) {
        self.packets.store(self.packets.load(Relaxed) + packets, Relaxed);
        self.bytes.store(self.bytes.load(Relaxed) + bytes, Relaxed);
    }

    /// The packets and their bytes.
    pub(crate) fn read(&self) -> [u64; 2] {
        [self.packets.load(Relaxed), self.bytes.load(Relaxed)]
    }
}

/// Counts the time that a stage of a pipeline is busy, but for the one that sends, which counts its own.
#[derive(Debug, Default)]
pub(crate) struct BusyClock {
    /// Time stamp at the end of the last turn; 0 if it had no work.
    last_tsc: u64,
}

impl BusyClock {
    /// Ends a turn whose work began at `since_tsc`, or, after a turn with work, at the end of that. 0 is for work of no length.
    #[inline]
    pub(crate) fn worked(&mut self, since_tsc: u64, counters: &mut Counters) {
        let now = dpdk_ffi::tsc();
        let since = if self.last_tsc == 0 { since_tsc } else { self.last_tsc };
        if since != 0 {
            counters.busy_cycles += now.saturating_sub(since);
        }
        self.last_tsc = now;
    }

    /// Ends a turn without work. Returns whether the one before had some.
    #[inline]
    pub(crate) fn rest(&mut self) -> bool {
        std::mem::take(&mut self.last_tsc) != 0
    }
}

/// Times the passes of a burst that is sampled.
pub(crate) struct Stopwatch {
    last: u64,
    on: bool,
}

impl Stopwatch {
    /// Starts the stopwatch if `on`; otherwise it does nothing.
    #[inline]
    pub(crate) fn start(on: bool) -> Self {
        Self { last: if on { dpdk_ffi::tsc() } else { 0 }, on }
    }

    /// Ends the pass `stage` over `packets` packets, and starts the next one.
    #[inline]
    pub(crate) fn lap(&mut self, counters: &mut Counters, stage: StageName, packets: usize) {
        if self.on {
            let now = dpdk_ffi::tsc();
            counters.time(stage, packets, now.saturating_sub(self.last));
            self.last = now;
        }
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_busy_from_the_first_work_to_the_end_of_turns_in_a_row() {
        let (mut clock, mut counters) = (BusyClock::default(), Counters::default());
        assert!(!clock.rest());
        clock.worked(0, &mut counters);
        assert_eq!(counters.busy_cycles, 0);
        // The next turn goes on from there, whenever its packets came.
        let end = clock.last_tsc;
        clock.worked(dpdk_ffi::tsc(), &mut counters);
        assert_eq!(counters.busy_cycles, clock.last_tsc - end);
        assert!(clock.rest() && !clock.rest());
        let (before, since) = (counters.busy_cycles, dpdk_ffi::tsc());
        clock.worked(since, &mut counters);
        assert_eq!(counters.busy_cycles - before, clock.last_tsc - since);
    }

    #[test]
    fn what_is_published_is_what_is_read() {
        let mut counters =
            Counters { rx_packets: 1, rx_bytes: 2, tx_packets: 3, tx_bytes: 4, ..Counters::default() };
        (counters.batches, counters.busy_cycles) = (5, 6);
        (counters.originated, counters.punted, counters.fragmented) = (7, 8, 9);
        counters.icmp_limited = 10;
        for (i, reason) in DropReason::ALL.into_iter().enumerate() {
            counters.drops.add(reason, 100 + i as u64);
        }
        let published = Published::default();
        published.publish(&counters);
        assert_eq!(published.read(), counters);
        counters.time(StageName::Parse, 7, 70);
        counters.merge(&counters.clone());
        let parse = counters.stages[StageName::Parse as usize];
        assert_eq!((parse.bursts, parse.packets, parse.cycles), (2, 14, 140));
        assert_eq!(counters.drops.get(DropReason::TxFull), 2 * (100 + DropReason::TxFull as u64));
    }
}
