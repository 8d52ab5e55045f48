//! The counters of an lcore, and their published copy.
//!
//! Counters are plain integers owned by one stage, updated once per burst. [`Published`] copies are atomics on separate cache lines.

use super::drop_reason::{LostPunts, PuntClass};
use super::{DropReason, Drops};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StageName {
    Rx,
    Parse,
    Lookup,
    Verdict,
    Rewrite,
    Tx,
    /// Pipelines: time to pass batches between stages. Counted in all stages, but the packets only in the rx stage.
    HandOver,
}

impl StageName {
    pub(crate) const ALL: [Self; 7] =
        [Self::Rx, Self::Parse, Self::Lookup, Self::Verdict, Self::Rewrite, Self::Tx, Self::HandOver];

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StageCycles {
    pub(crate) bursts: u64,
    pub(crate) packets: u64,
    pub(crate) cycles: u64,
}

/// One burst in 16 is timed pass by pass, because reading the clock for each pass costs as much as a few packets.
pub(crate) const TIMED_ONE_IN: u32 = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) rx_packets: u64,
    /// Without preamble and frame check sequence.
    pub(crate) rx_bytes: u64,
    pub(crate) tx_packets: u64,
    /// Without preamble and frame check sequence.
    pub(crate) tx_bytes: u64,
    /// Packets created by this router: answers, requests, errors, fragments.
    pub(crate) originated: u64,
    /// Packets consumed by this router, and packets replaced by their fragments.
    pub(crate) punted: u64,
    /// The part of `punted` that left as fragments.
    pub(crate) fragmented: u64,
    pub(crate) icmp_limited: u64,
    /// Punts dropped because their class was over quota or its ring was full.
    pub(crate) lost: LostPunts,
    pub(crate) drops: Drops,
    pub(crate) batches: u64,
    /// Without idle polling.
    pub(crate) busy_cycles: u64,
    pub(crate) stages: [StageCycles; StageName::ALL.len()],
}

impl Counters {
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

    /// Packets inside: received or originated, and not yet sent, punted or dropped. Exact if all counts are of one moment.
    pub(crate) fn inside(&self) -> u64 {
        (self.rx_packets + self.originated).saturating_sub(self.tx_packets + self.punted + self.drops.total())
    }

    /// Received packets that are finished in any way. From published counters it may be too low, never too high.
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

const SHOWN: usize = 10 + DropReason::COUNT + PuntClass::ALL.len();

/// The published copy of one stage's counters, and the time stamp counter of the last publication. Each number is exact, but two numbers
/// may be of different moments. `originated` is stored first and read last, so that a reader that sees a router packet in `tx_packets` also
/// sees it in `originated`.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Published([AtomicU64; SHOWN], AtomicU64);

impl Published {
    /// Publishes a copy of `counters`. Called only by the stage that owns them.
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

    pub(crate) fn published_tsc(&self) -> u64 {
        self.1.load(Relaxed)
    }

    /// The published counters. Cycles by pass are not published and read as 0.
    pub(crate) fn read(&self) -> Counters {
        let [originated, rest @ ..] = &self.0;
        let mut shown = rest.iter().map(|shown| shown.load(Acquire));
        let mut next = || shown.next().unwrap_or(0);
        // In the order of `publish`.
        let mut counters = Counters {
            rx_packets: next(),
            rx_bytes: next(),
            tx_packets: next(),
            tx_bytes: next(),
            punted: next(),
            fragmented: next(),
            icmp_limited: next(),
            batches: next(),
            busy_cycles: next(),
            ..Counters::default()
        };
        DropReason::ALL.into_iter().for_each(|reason| counters.drops.add(reason, next()));
        PuntClass::ALL.into_iter().for_each(|class| counters.lost.add(class, next()));
        counters.originated = originated.load(Relaxed);
        counters
    }
}

/// Packet counts of one queue, written by the stage that uses it and read by any thread.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct QueueCount {
    packets: AtomicU64,
    refused: AtomicU64,
}

impl QueueCount {
    /// Counts packets received or sent, and packets that a full TX queue refused. Called by one thread only.
    #[inline]
    pub(crate) fn add(&self, packets: u64, refused: u64) {
        self.packets.store(self.packets.load(Relaxed) + packets, Relaxed);
        if refused > 0 {
            self.refused.store(self.refused.load(Relaxed) + refused, Relaxed);
        }
    }

    pub(crate) fn read(&self) -> (u64, u64) {
        (self.packets.load(Relaxed), self.refused.load(Relaxed))
    }
}

/// Packets of one VRF looked up by a stage, which writes the counts; any thread reads them.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct VrfCount {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl VrfCount {
    /// Counts a batch. Called by one thread only.
    #[inline]
    pub(crate) fn add(&self, packets: u64, bytes: u64) {
        self.packets.store(self.packets.load(Relaxed) + packets, Relaxed);
        self.bytes.store(self.bytes.load(Relaxed) + bytes, Relaxed);
    }

    pub(crate) fn read(&self) -> [u64; 2] {
        [self.packets.load(Relaxed), self.bytes.load(Relaxed)]
    }
}

/// Busy time of a stage. Clones on an lcore share the end of the last turn, so that no time is counted by two stages.
#[derive(Clone, Debug, Default)]
pub(crate) struct BusyClock {
    /// Time stamp at the end of the last turn; 0 if it was idle.
    last_tsc: Arc<AtomicU64>,
    has_worked: bool,
}

impl BusyClock {
    /// The work began at the end of the previous turn if that had work, otherwise at `since_tsc`; 0 is work of no length. Returns the end.
    #[inline]
    pub(crate) fn worked(&mut self, since_tsc: u64, counters: &mut Counters) -> u64 {
        let (now, last) = (dpdk_ffi::tsc(), self.last_tsc.load(Relaxed));
        let since = if last == 0 { since_tsc } else { last };
        if since != 0 {
            counters.busy_cycles += now.saturating_sub(since);
        }
        self.last_tsc.store(now, Relaxed);
        self.has_worked = true;
        now
    }

    /// Ends an idle turn. Returns whether the stage's previous turn had work.
    #[inline]
    pub(crate) fn rest(&mut self) -> bool {
        self.last_tsc.store(0, Relaxed);
        std::mem::take(&mut self.has_worked)
    }
}

pub(crate) struct Stopwatch {
    last: u64,
    on: bool,
}

impl Stopwatch {
    #[inline]
    pub(crate) fn start(on: bool) -> Self {
        Self { last: if on { dpdk_ffi::tsc() } else { 0 }, on }
    }

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
        // The next turn continues from there, whenever its packets arrived.
        let start = clock.worked(0, &mut counters);
        let end = clock.worked(dpdk_ffi::tsc(), &mut counters);
        assert!(counters.busy_cycles >= end - start);
        assert!(clock.rest() && !clock.rest());
        let (before, since) = (counters.busy_cycles, dpdk_ffi::tsc());
        let end = clock.worked(since, &mut counters);
        assert_eq!(counters.busy_cycles - before, end - since);
    }

    #[test]
    fn stages_of_an_lcore_count_no_time_twice() {
        let (mut rx, mut counters) = (BusyClock::default(), Counters::default());
        let (mut tx, since) = (rx.clone(), dpdk_ffi::tsc());
        let mut end = 0;
        for _ in 0..3 {
            rx.worked(since, &mut counters);
            end = tx.worked(since, &mut counters);
        }
        assert_eq!(counters.busy_cycles, end - since);
        assert!(rx.rest() && tx.rest());
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
        for (i, class) in PuntClass::ALL.into_iter().enumerate() {
            counters.lost.add(class, 200 + i as u64);
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
