//! The loop of the main lcore: it feeds, polls the stages and drains, trial by trial.

use super::feeder::Feeder;
use super::sink::Sink;
use super::source::Source;
use super::trials::conductor::Conductor;
use super::trials::feeding::FeederTime;
use super::trials::{Trial, TrialResult, between};
use super::verify::Verifier;
use crate::datapath::Counters;
use crate::datapath::latency::LatencyBySize;
use crate::notice::warn;
use crate::topology::Handle;
use crate::topology::running::{Idle, Running};
use std::time::{Duration, Instant};

/// Packets that are held up with no progress for this long are given up.
const STUCK: Duration = Duration::from_secs(30);
/// How long stages may take to reset their latencies after a warm-up; idle ones do so at once.
const FORGET_LIMIT: Duration = Duration::from_millis(500);
const HOUSEKEEPING_TURNS: u32 = 256;

pub(super) fn is_stuck(unmoved: Duration) -> bool {
    let stuck = unmoved > STUCK;
    if stuck {
        warn(format_args!("no packet came back for {STUCK:?}; the missing packets are given up"));
    }
    stuck
}

pub(super) struct Loop<'a, H, O> {
    pub(super) feeder: Feeder,
    pub(super) source: &'a mut Source,
    pub(super) sink: Sink,
    pub(super) verifier: Option<Verifier>,
    pub(super) running: Running,
    pub(super) housekeeping: H,
    pub(super) is_over: O,
    pub(super) idle: Idle,
    pub(super) conductor: Conductor,
    pub(super) tsc_hz: u64,
    pub(super) current: Option<CurrentTrial>,
}

pub(super) struct CurrentTrial {
    trial: Trial,
    start: Instant,
    start_tsc: u64,
    before: Counters,
    fed: u64,
    time: FeederTime,
}

impl<H: FnMut(&Handle), O: Fn() -> bool> Loop<'_, H, O> {
    /// Runs all trials until every packet fed is accounted for and every stage is drained.
    pub(super) fn run(&mut self) -> anyhow::Result<()> {
        let (mut turn, mut gone, mut taken) = (0_u32, 0, 0);
        let (mut draining, mut stage_cycles) = (!self.begin(), 0);
        let (mut last_move, mut has_moved) = (Instant::now(), false);
        loop {
            let turn_tsc = dpdk_ffi::tsc();
            let fed = if draining { 0 } else { self.feeder.poll(self.source, gone, stage_cycles)? };
            let before_tsc = dpdk_ffi::tsc();
            let worked = self.running.poll();
            stage_cycles = dpdk_ffi::tsc() - before_tsc;
            let came = self.sink.poll(&self.feeder, self.source, self.verifier.as_mut())?;
            let verifier = &mut self.verifier;
            self.source.recycle(self.feeder.pools(), |part| {
                verifier.iter_mut().for_each(|verifier| verifier.close(part, |_| 1));
            });
            taken += came;
            let moved = fed > 0 || worked || came > 0;
            has_moved |= moved;
            turn = turn.wrapping_add(1);
            let counters = self.running.handle().counters();
            // Packets dropped before the TX ring never reach the sink. A packet that left as fragments was fed once.
            gone = (taken + counters.drops.total() + counters.punted).saturating_sub(counters.originated);
            if let Some(current) = &mut self.current {
                let cycles = dpdk_ffi::tsc().saturating_sub(turn_tsc + stage_cycles);
                current.time.add_turn(cycles, fed > 0 || came > 0, self.feeder.is_at_limit());
            }
            if turn.is_multiple_of(HOUSEKEEPING_TURNS) || !moved {
                (self.housekeeping)(self.running.handle());
                if (self.is_over)() {
                    self.conductor.stop();
                    self.feeder.stop();
                    self.source.stop();
                }
                let now = Instant::now();
                if std::mem::take(&mut has_moved) {
                    last_move = now;
                }
                // A stage counts a fragment after sending it, so `gone` is exact once the stages have counted everything fed.
                let has_left = |fed| counters.gone() >= fed && gone >= fed;
                let is_done = self.feeder.is_done(self.source);
                let is_settled = is_done && has_left(self.feeder.fed());
                let is_held_up = is_done || self.source.is_held_up() || self.feeder.is_held_up();
                if !draining && (is_settled || is_held_up && is_stuck(now - last_move)) {
                    if !is_settled || self.source.is_over() {
                        self.conductor.stop();
                    }
                    self.end(&counters);
                    draining = !self.begin();
                    last_move = Instant::now();
                }
                // Only a panicking stage stops the others without a request from here.
                draining |= self.running.handle().is_stopping();
                if draining && !moved && self.running.is_finished() {
                    // The last packets may have come after the last poll.
                    while self.sink.drain(&self.feeder, self.source, self.verifier.as_mut())? > 0 {}
                    self.conductor.stop();
                    self.end(&counters);
                    return Ok(());
                }
            }
            if !moved {
                self.idle.wait(0);
            }
        }
    }

    /// Begins the next trial. Without one it stops reception and returns false.
    fn begin(&mut self) -> bool {
        let handle = self.running.handle().clone();
        let Some(trial) = self.conductor.next() else {
            handle.stop_rx();
            return false;
        };
        self.feeder.begin(trial.paced(self.tsc_hz));
        let (start, before, fed) = (Instant::now(), handle.counters(), self.feeder.fed());
        let (start_tsc, time) = (dpdk_ffi::tsc(), FeederTime::default());
        self.current = Some(CurrentTrial { trial, start, start_tsc, before, fed, time });
        true
    }

    /// Ends the current trial: all its packets are accounted for, and `counters` are exact.
    fn end(&mut self, counters: &Counters) {
        let Some(current) = self.current.take() else { return };
        let CurrentTrial { trial, start, start_tsc, before, fed, mut time } = current;
        let fed = self.feeder.fed() - fed;
        (time.fed, time.cycles) = (fed, dpdk_ffi::tsc().saturating_sub(start_tsc));
        let duration_s = start.elapsed().as_secs_f64();
        let latency = std::mem::replace(&mut self.sink.latency, LatencyBySize::new(self.tsc_hz));
        let pacer = self.feeder.pacer();
        self.conductor.record(TrialResult {
            trial,
            fed,
            missed: pacer.missed(),
            unsent: if trial.loses { pacer.unsent() } else { 0 },
            feeding_s: pacer.feeding_s(self.tsc_hz),
            paused_s: pacer.paused_s(self.tsc_hz),
            duration_s,
            counters: between(&before, counters),
            feeder: time,
            latency: pacer.is_paced().then_some(latency),
        });
        if trial.is_warmup {
            self.forget_latencies();
        }
    }

    /// Makes the stages reset their latencies. No packet is inside meanwhile.
    fn forget_latencies(&mut self) {
        let handle = self.running.handle().clone();
        handle.ask_latencies(self.tsc_hz);
        let end = Instant::now() + FORGET_LIMIT;
        while !handle.forget_latencies() && Instant::now() < end {
            self.running.poll();
            self.idle.wait(0);
        }
    }
}
