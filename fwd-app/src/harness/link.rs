//! `--tx-rate`: a link of a known rate behind each port. It takes a packet when the one before has left; what waits for it fills the TX
//! queue, and what finds that full is lost.

use super::schedule::OfferedRate;

/// The link of one port, in cycles of the time stamp counter.
#[derive(Clone, Debug)]
pub(super) struct TxLink {
    cycles_per_packet: f64,
    cycles_per_byte: f64,
    /// When the last packet has left.
    free_tsc: f64,
}

impl TxLink {
    /// Of this rate, on a clock of `tsc_hz`; `None` for one that is not so many packets or bits a second.
    #[expect(clippy::cast_precision_loss, reason = "a frequency below 2^53")]
    pub(super) fn new(rate: OfferedRate, tsc_hz: u64) -> Option<Self> {
        let hz = tsc_hz as f64;
        let (cycles_per_packet, cycles_per_byte) = match rate {
            OfferedRate::Pps(pps) => (hz / pps, 0.0),
            OfferedRate::Bps(bps) => (0.0, hz * 8.0 / bps),
            _ => return None,
        };
        Some(Self { cycles_per_packet, cycles_per_byte, free_tsc: 0.0 })
    }

    /// Whether it takes a packet at `now_tsc`.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a time stamp below 2^53 is months, and beyond it rounds to cycles"
    )]
    pub(super) fn is_free(&self, now_tsc: u64) -> bool {
        self.free_tsc <= now_tsc as f64
    }

    /// Takes a frame of so many bytes.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a frame")]
    pub(super) fn take(&mut self, bytes: usize) {
        self.free_tsc += self.cycles_per_packet + self.cycles_per_byte * bytes as f64;
    }

    /// Stands still for `cycles`.
    #[expect(clippy::cast_precision_loss, reason = "as above")]
    pub(super) fn pause(&mut self, cycles: u64) {
        self.free_tsc += cycles as f64;
    }

    /// No packet waits at `now_tsc`: the time until then cannot be used later.
    #[expect(clippy::cast_precision_loss, reason = "as above")]
    pub(super) fn idle(&mut self, now_tsc: u64) {
        self.free_tsc = self.free_tsc.max(now_tsc as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of 125 bytes that a link takes of `waiting` ones at `now`.
    fn takes(link: &mut TxLink, now: u64, waiting: u64) -> u64 {
        let mut taken = 0;
        while link.is_free(now) && taken < waiting {
            link.take(125);
            taken += 1;
        }
        if taken == waiting {
            link.idle(now);
        }
        taken
    }

    #[test]
    fn a_link_takes_its_rate_and_saves_no_time() {
        for rate in [OfferedRate::Pps(1e6), OfferedRate::Bps(1e9)] {
            let mut link = TxLink::new(rate, 1_000_000_000).unwrap();
            link.idle(1_000_000);
            assert_eq!(takes(&mut link, 1_000_000, 0), 0);
            // A millisecond has passed without a packet; then there are more than it takes, whatever the intervals.
            assert_eq!(takes(&mut link, 2_000_000, 1), 1);
            let mut taken = 0;
            for now in [2_000_500, 2_001_000, 2_100_000, 3_000_000] {
                taken += takes(&mut link, now, u64::MAX);
                assert!(taken.abs_diff((now - 2_000_000) / 1000) <= 1, "{taken} at {now}");
            }
            link.pause(500_000);
            assert_eq!(
                [3_400_000, 3_600_000].map(|now| takes(&mut link, now, u64::MAX).div_ceil(10)),
                [0, 10]
            );
        }
        assert!(TxLink::new(OfferedRate::Max, 1_000_000_000).is_none());
    }
}
