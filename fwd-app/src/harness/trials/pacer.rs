//! The pace of one trial: due times, intended send times, and packets missed for lack of room.
//!
//! A replay at a rate waits while the forwarder is full. A search trial does not: due packets without room are missed, as at a NIC with
//! full queues, or a rate above the forwarder's would never show. When the harness is descheduled, a search trial pauses: sending all late
//! packets at once would be an artificial burst.

use super::super::schedule::Schedule;

#[derive(Clone, Debug)]
pub(crate) struct Paced {
    pub(crate) schedule: Schedule,
    pub(crate) packets: u64,
    pub(crate) cycles_max: Option<u64>,
    pub(crate) loses: bool,
}

/// The pacer. Times are time stamp counter values.
pub(crate) struct Pacer {
    paced: Paced,
    start_tsc: u64,
    /// The source's due time of the first packet, which becomes the start.
    offset: Option<u64>,
    /// Number of the next packet in the trial, missed ones included.
    number: u64,
    missed: u64,
    fed_tsc: u64,
    /// Turns further apart than this mean that the harness was descheduled, cycles.
    late_cycles: u64,
    /// Pauses so far, and the pause budget left, cycles.
    paused_cycles: u64,
    pause_cycles_left: u64,
    /// Intended send time of packet n at n modulo the length, a power of two above the number of packets inside.
    intended: Box<[u64]>,
}

/// Tolerated time between loop turns, microseconds; some packets become due meanwhile.
const LATE_US: u64 = 50;

impl Pacer {
    /// For at most `inside_max` packets inside the forwarder.
    pub(crate) fn new(inside_max: usize, tsc_hz: u64) -> Self {
        let paced = Paced { schedule: Schedule::Max, packets: 0, cycles_max: Some(0), loses: false };
        Self {
            paced,
            start_tsc: 0,
            offset: None,
            number: 0,
            missed: 0,
            fed_tsc: 0,
            late_cycles: tsc_hz / 1_000_000 * LATE_US,
            paused_cycles: 0,
            pause_cycles_left: 0,
            intended: vec![0; (inside_max + 1).next_power_of_two()].into(),
        }
    }

    pub(crate) fn begin(&mut self, paced: Paced, now: u64) {
        self.offset = None;
        // Bounded by the length of the trial, so that a harness without a CPU still ends.
        self.pause_cycles_left = if paced.loses { paced.cycles_max.unwrap_or(0) } else { 0 };
        self.paced = paced;
        (self.start_tsc, self.fed_tsc) = (now, now);
        (self.number, self.missed, self.paused_cycles) = (0, 0, 0);
    }

    /// Stages on the same lcore took `stage_cycles` since the last turn; a long remainder means that the harness was descheduled.
    #[inline]
    pub(crate) fn wake(&mut self, now: u64, stage_cycles: u64) {
        let since = now.saturating_sub(self.fed_tsc).saturating_sub(stage_cycles);
        if since > self.late_cycles && self.pause_cycles_left > 0 {
            let pause = (since - self.late_cycles).min(self.pause_cycles_left);
            self.pause_cycles_left -= pause;
            self.paused_cycles += pause;
            self.start_tsc += pause;
        }
        self.fed_tsc = now;
    }

    /// Due time of the next packet, given the source's time `traced`; 0 at full speed. `None` at the end of the trial.
    #[inline]
    pub(crate) fn due(&mut self, traced: u64) -> Option<u64> {
        if self.number >= self.paced.packets {
            return None;
        }
        let traced = traced.saturating_sub(*self.offset.get_or_insert(traced));
        let due = self.paced.schedule.due(self.number, traced);
        Some(if self.is_paced() { self.start_tsc + due } else { 0 })
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the lower bits alone count")]
    fn slot(&self, sequence: u64) -> usize {
        sequence as usize & (self.intended.len() - 1)
    }

    #[inline]
    pub(crate) fn feed(&mut self, sequence: u64, due: u64) {
        self.intended[self.slot(sequence)] = due;
        self.number += 1;
    }

    /// Notes that the forwarder is full at `now`: in a lossy trial the packets due by now are missed.
    pub(crate) fn find_full(&mut self, now: u64) {
        if !self.paced.loses {
            return;
        }
        let due = self.paced.schedule.due_by(now.saturating_sub(self.start_tsc));
        let missed = due.map_or(0, |due| due.min(self.paced.packets).saturating_sub(self.number));
        self.missed += missed;
        self.number += missed;
    }

    #[inline]
    pub(crate) fn is_over(&self, now: u64) -> bool {
        self.number >= self.paced.packets
            || self.paced.cycles_max.is_some_and(|cycles| now.saturating_sub(self.start_tsc) >= cycles)
    }

    /// Feeding time so far without pauses, seconds.
    #[expect(clippy::cast_precision_loss, reason = "less than 2^53 cycles, or weeks")]
    pub(crate) fn feeding_s(&self, tsc_hz: u64) -> f64 {
        self.fed_tsc.saturating_sub(self.start_tsc) as f64 / tsc_hz as f64
    }

    pub(crate) fn paused_cycles(&self) -> u64 {
        self.paused_cycles
    }

    #[expect(clippy::cast_precision_loss, reason = "as above")]
    pub(crate) fn paused_s(&self, tsc_hz: u64) -> f64 {
        self.paused_cycles as f64 / tsc_hz as f64
    }

    pub(crate) fn unsent(&self) -> u64 {
        self.paced.packets - self.number
    }

    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }

    #[inline]
    pub(crate) fn is_paced(&self) -> bool {
        self.paced.schedule.is_paced()
    }

    #[inline]
    pub(crate) fn intended_tsc(&self, sequence: u64) -> Option<u64> {
        self.is_paced().then(|| self.intended[self.slot(sequence)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::schedule::TrialPace;
    use super::*;

    const HZ: u64 = 1_000_000_000;

    /// A trial of 1 Mpps for 10 ms that begins at 1000, on a clock of nanoseconds.
    fn pacer(loses: bool) -> Pacer {
        let schedule = Schedule::new(TrialPace::even(1e6), HZ);
        let mut pacer = Pacer::new(1000, HZ);
        let paced = Paced { schedule, packets: 10_000, cycles_max: Some(12_000_000), loses };
        pacer.begin(paced, 1000);
        pacer
    }

    fn poll(pacer: &mut Pacer, now: u64, room: u64) -> u64 {
        let mut fed = 0;
        pacer.wake(now, 0);
        while let Some(due) = pacer.due(0).filter(|due| *due <= now && fed < room) {
            pacer.feed(pacer.number, due);
            fed += 1;
        }
        if fed == room {
            pacer.find_full(now);
        }
        fed
    }

    #[test]
    fn packets_are_fed_when_they_are_due_and_their_times_are_known() {
        let mut pacer = pacer(true);
        let mut fed = 0;
        for now in (1000..=10_001_000).step_by(10_000) {
            fed += poll(&mut pacer, now, 256);
            assert_eq!(pacer.intended_tsc(fed - 1), Some(1000 + (fed - 1) * 1000));
        }
        assert_eq!((fed, pacer.missed(), pacer.unsent(), pacer.is_over(0)), (10_000, 0, 0, true));
        assert!((pacer.feeding_s(HZ) - 0.01).abs() < 1e-9 && pacer.paused_s(HZ) == 0.0);
    }

    #[test]
    fn what_finds_no_room_is_lost_where_it_is_to_be() {
        for (loses, missed) in [(true, 5000), (false, 0)] {
            let mut pacer = pacer(loses);
            let mut fed = 0;
            for now in (1000..10_001_000).step_by(10_000) {
                fed += poll(&mut pacer, now, 5);
            }
            assert!(fed.abs_diff(5000) <= 10, "{fed}");
            assert!(pacer.missed().abs_diff(missed) <= 10, "{}", pacer.missed());
            assert!(pacer.unsent().abs_diff(5000 - missed) <= 10, "{}", pacer.unsent());
            assert!(!pacer.is_over(11_000_000) && pacer.is_over(12_001_000));
        }
    }

    #[test]
    fn a_trial_pauses_while_the_harness_is_away() {
        for (stage_cycles, at_once, missed) in [(0, 50, 0), (5_000_000, 60, 4_940)] {
            let mut pacer = pacer(true);
            let mut fed = poll(&mut pacer, 11_000, 60);
            assert_eq!(fed, 11);
            pacer.wake(5_011_000, stage_cycles);
            assert_eq!(poll(&mut pacer, 5_011_000, 60), at_once);
            fed += at_once;
            let mut now = 5_011_000;
            while !pacer.is_over(now) {
                now += 10_000;
                fed += poll(&mut pacer, now, 60);
            }
            assert!(pacer.missed().abs_diff(missed) <= 1, "{}", pacer.missed());
            assert_eq!((fed + pacer.missed(), pacer.unsent()), (10_000, 0));
            let paused = if stage_cycles == 0 { 0.00495 } else { 0.0 };
            assert!((pacer.paused_s(HZ) - paused).abs() < 1e-9, "{}", pacer.paused_s(HZ));
        }
    }

    #[test]
    fn pauses_end() {
        let mut pacer = pacer(true);
        let (mut now, mut fed) = (1000, 0);
        while !pacer.is_over(now) {
            now += 1_000_000;
            fed += poll(&mut pacer, now, 10_000);
        }
        assert!(fed == 10_000 && now <= 24_000_000, "{fed} until {now}");
    }

    #[test]
    fn a_harness_that_is_too_slow_leaves_packets_unsent() {
        let mut pacer = pacer(true);
        let mut fed = 0;
        for now in (1000..10_001_000).step_by(10_000) {
            pacer.wake(now, 0);
            // Room for 256, but the harness feeds 5 a turn.
            let mut of_turn = 0;
            while let Some(due) = pacer.due(0).filter(|due| *due <= now && of_turn < 5) {
                pacer.feed(fed, due);
                (fed, of_turn) = (fed + 1, of_turn + 1);
            }
        }
        assert_eq!((pacer.missed(), pacer.unsent()), (0, 10_000 - fed));
    }
}
