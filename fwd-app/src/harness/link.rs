//! `--tx-rate`: models a link of a given rate behind each port. The link sends one packet at a time; waiting packets fill the TX queue,
//! and packets that find the queue full are lost.

use super::schedule::OfferedRate;

/// The link of one port. Times are in cycles of the time stamp counter.
#[derive(Clone, Debug)]
pub(super) struct TxLink {
    cycles_per_packet: f64,
    cycles_per_byte: f64,
    free_tsc: f64,
}

impl TxLink {
    /// `None` unless `rate` is in packets or bits a second.
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

    #[expect(
        clippy::cast_precision_loss,
        reason = "a time stamp below 2^53 is months, and beyond it rounds to cycles"
    )]
    pub(super) fn is_free(&self, now_tsc: u64) -> bool {
        self.free_tsc <= now_tsc as f64
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes of a frame")]
    pub(super) fn charge(&mut self, bytes: usize) {
        self.free_tsc += self.cycles_per_packet + self.cycles_per_byte * bytes as f64;
    }

    #[expect(clippy::cast_precision_loss, reason = "as above")]
    pub(super) fn pause(&mut self, cycles: u64) {
        self.free_tsc += cycles as f64;
    }

    /// Notes that no packet waits at `now_tsc`, so that idle time gives no credit for later.
    #[expect(clippy::cast_precision_loss, reason = "as above")]
    pub(super) fn idle(&mut self, now_tsc: u64) {
        self.free_tsc = self.free_tsc.max(now_tsc as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends up to `waiting` packets of 125 bytes at `now` and returns how many were sent.
    fn takes(link: &mut TxLink, now: u64, waiting: u64) -> u64 {
        let mut taken = 0;
        while link.is_free(now) && taken < waiting {
            link.charge(125);
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
            // After an idle millisecond the link is saturated; its rate must not depend on the polling intervals.
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
