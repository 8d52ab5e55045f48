//! The profiling phase (section 4.4.2): measures the lookups a second of each half, before the first batch.

use crate::pair::lane::ReaderLane;
use crate::pair::reader::LOOKUP_FLIGHTS;
use crate::pair::{Wait, Why};
use crate::sync::thread;
use crate::sync::time::Instant;
use fib::random::SplitMix64;
use fib::{Family, KeyBuffer, NextHopId};
use std::task::Poll;
use std::time::Duration;

const MEASURE: Duration = Duration::from_micros(500);
/// The maximum number of keys in a measured batch: large enough to make a device's launch negligible.
const BATCH_MAX: usize = 1 << 16;
/// Smaller batches are too small to measure: no profile is made.
pub(super) const BATCH_MIN: usize = 64;

pub(super) struct Profile {
    v4: KeyBuffer,
    v6: KeyBuffer,
    out: Vec<NextHopId>,
}

impl Profile {
    pub(super) fn new(batch_max: usize) -> Self {
        let len = batch_max.min(BATCH_MAX);
        let mut numbers = SplitMix64(0);
        let keys: Vec<u64> = std::iter::repeat_with(|| numbers.u64()).take(len).collect();
        Self {
            v4: keys.iter().map(|key| (key >> 32) as u32).collect(),
            // 2000::/3, where routes are.
            v6: keys.iter().map(|key| u128::from(key >> 3 | 1 << 61) << 64 | u128::from(*key)).collect(),
            out: vec![NextHopId::NONE; len],
        }
    }

    /// Lookups a second; [`Why::Stalled`] after `stall`.
    pub(super) fn rate(
        &mut self,
        lane: &mut ReaderLane,
        family: Family,
        stall: Duration,
    ) -> Result<f64, Why> {
        let len = self.out.len();
        self.round(lane, family, stall)?; // caches and clocks come up, pages are touched
        let start = Instant::now();
        let mut keys = 0;
        while start.elapsed() < MEASURE {
            self.round(lane, family, stall)?;
            keys += len * usize::from(LOOKUP_FLIGHTS);
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        Ok(keys as f64 / start.elapsed().as_secs_f64())
    }

    fn round(&mut self, lane: &mut ReaderLane, family: Family, stall: Duration) -> Result<(), Why> {
        let mut flying = [false; LOOKUP_FLIGHTS as usize];
        let keys = match family {
            Family::V4 => self.v4.keys(),
            Family::V6 => self.v6.keys(),
        };
        for (slot, flying) in flying.iter_mut().enumerate() {
            *flying = !lane.submit(slot, keys, &mut self.out)?;
        }
        for (slot, _) in flying.iter().enumerate().filter(|(_, flying)| **flying) {
            let mut wait = Wait::default();
            loop {
                if let Poll::Ready(done) = lane.collect(slot, keys, &mut self.out) {
                    done?;
                    break;
                }
                wait.check("profile", stall)?;
                thread::yield_now();
            }
        }
        Ok(())
    }
}
