//! Where a batch is cut: how many of its keys the first half gets.
//!
//! The paper cuts by the relative throughput from a profiling phase (section 4.4.2), which gives our initial cut ([`Balance::profiled`]).
//! The cut then follows the traffic: the half that was waited for gets fewer keys. This takes one comparison when answers are collected,
//! and no clock; if halves take over each other's keys, the half that did so was the faster one.

use fib::Family;

/// Shares are in units of 1/65536.
pub(super) const WHOLE: u32 = 1 << 16;
/// Keys that stay together: the lanes of a vector, and a cache line of IPv4 keys.
const GRAIN: usize = 16;
/// The smallest and the largest step of a share: 0.1 % and 3 %.
const STEPS: (u32, u32) = (64, 2048);
/// The step doubles after this many equal verdicts in a row.
const RUN: u32 = 8;
/// The number of batches without a first half after it was late with the minimum share; doubles up to the second value.
const PAUSES: (u32, u32) = (64, 4096);

#[derive(Clone, Copy, Debug)]
struct FamilyShare {
    share: u32,
    step: u32,
    late: bool,
    run: u32,
    pause: u32,
    next_pause: u32,
}

impl FamilyShare {
    const fn new(share: u32) -> Self {
        Self { share, step: STEPS.0, late: false, run: 0, pause: 0, next_pause: PAUSES.0 }
    }

    #[inline]
    fn judge(&mut self, first_late: bool) {
        if first_late == self.late {
            self.run += 1;
            if self.run == RUN {
                self.run = 0;
                self.step = (self.step * 2).min(STEPS.1);
            }
        } else {
            self.late = first_late;
            self.run = 0;
            self.step = (self.step / 2).max(STEPS.0);
        }
        self.share = if first_late {
            self.share.saturating_sub(self.step)
        } else {
            (self.share + self.step).min(WHOLE)
        };
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Balance {
    /// IPv4, IPv6.
    shares: [FamilyShare; 2],
    is_fixed: bool,
}

impl Balance {
    pub(super) fn fixed(split: f64) -> Self {
        Self { shares: [FamilyShare::new(to_share(split)); 2], is_fixed: true }
    }

    pub(super) fn even() -> Self {
        Self { shares: [FamilyShare::new(WHOLE / 2); 2], is_fixed: false }
    }

    pub(super) fn profiled(&mut self, family: Family, rates: [f64; 2]) {
        let sum = rates[0] + rates[1];
        if sum.is_finite() && sum > 0.0 {
            self.shares[family_index(family)] = FamilyShare::new(to_share(rates[0] / sum));
        }
    }

    pub(super) fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    #[inline]
    pub(super) fn share(&self, family: Family) -> u32 {
        self.shares[family_index(family)].share
    }

    #[inline]
    pub(super) fn cut(&mut self, family: Family, keys: usize) -> usize {
        let share = &mut self.shares[family_index(family)];
        if self.is_fixed {
            // Rounded to the nearest key; a large enough part becomes a whole number of vectors.
            let cut = scale(keys, share.share, 1);
            let even = (cut + GRAIN / 2) & !(GRAIN - 1);
            return if cut >= 4 * GRAIN && keys - cut >= 4 * GRAIN { even } else { cut };
        }
        // A batch of less than two vectors is not worth handing over.
        if keys < 2 * GRAIN {
            return 0;
        }
        if share.pause > 0 {
            share.pause -= 1;
            return 0;
        }
        // At least some keys: otherwise the first half would never be measured again.
        scale(keys, share.share, GRAIN).clamp(GRAIN, keys)
    }

    /// Records which half of a batch of `keys` keys, cut at `cut`, was ready first: the second if `first_late`.
    #[inline]
    pub(super) fn judge(&mut self, family: Family, keys: usize, cut: usize, first_late: bool) {
        // A batch without keys for the first half does not measure it.
        if self.is_fixed || cut == 0 || keys < 2 * GRAIN {
            return;
        }
        let share = &mut self.shares[family_index(family)];
        if cut > GRAIN {
            share.next_pause = PAUSES.0;
        } else if first_late {
            // It has the minimum share already: try again later, at growing intervals.
            share.pause = share.next_pause;
            share.next_pause = (share.next_pause * 2).min(PAUSES.1);
            share.step = STEPS.0;
            return;
        }
        share.judge(first_late);
    }
}

const fn family_index(family: Family) -> usize {
    match family {
        Family::V4 => 0,
        Family::V6 => 1,
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of a fraction from 0 to 1")]
fn to_share(fraction: f64) -> u32 {
    (fraction.clamp(0.0, 1.0) * f64::from(WHOLE)).round() as u32
}

/// `share` of `keys`, to the nearest multiple of `grain`, which is a power of two.
#[inline]
fn scale(keys: usize, share: u32, grain: usize) -> usize {
    let half = (WHOLE as usize * grain) / 2;
    ((keys * share as usize + half) >> 16) & !(grain - 1)
}

#[cfg(not(model))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_split_is_kept_to_the_key_and_covers_the_batch() {
        for (split, keys, cut) in [
            (0.0, 4096, 0),
            (1.0, 4096, 4096),
            (1.0, 1, 1),
            (0.5, 1, 1),
            (0.5, 4, 2),
            (0.3, 10, 3),
            (0.5, 256, 128),
        ] {
            let mut balance = Balance::fixed(split);
            assert_eq!(balance.cut(Family::V4, keys), cut, "{split} of {keys}");
            balance.judge(Family::V4, keys, cut, true);
            assert_eq!(balance.cut(Family::V4, keys), cut, "fixed");
        }
        for keys in 0..5000 {
            for split in [0.0, 0.01, 0.37, 0.5, 0.99, 1.0] {
                let cut = Balance::fixed(split).cut(Family::V6, keys);
                #[expect(clippy::cast_precision_loss, reason = "small")]
                let off = (cut as f64 - split * keys as f64).abs();
                assert!(cut <= keys && off <= 9.0, "{split} of {keys}: {cut}");
                assert!(Balance::even().cut(Family::V6, keys) <= keys);
            }
        }
    }

    #[test]
    fn profiled_throughputs_decide_the_first_cut_of_their_family() {
        let mut balance = Balance::even();
        balance.profiled(Family::V4, [300.0, 100.0]);
        balance.profiled(Family::V6, [f64::NAN, 1.0]);
        assert_eq!((balance.cut(Family::V4, 4096), balance.cut(Family::V6, 4096)), (3072, 2048));
    }

    #[test]
    fn the_cut_finds_the_ratio_of_the_speeds() {
        for (first_ns, second_ns, want) in [(1_usize, 1_usize, 0.5), (1, 9, 0.9), (9, 1, 0.1), (3, 1, 0.25)] {
            let mut balance = Balance::even();
            let (mut sum, mut rounds) = (0, 0);
            for round in 0..4000 {
                let cut = balance.cut(Family::V4, 4096);
                balance.judge(Family::V4, 4096, cut, cut * first_ns > (4096 - cut) * second_ns);
                if round >= 2000 {
                    (sum, rounds) = (sum + cut, rounds + 4096);
                }
            }
            let share = f64::from(u32::try_from(sum).unwrap()) / rounds as f64;
            assert!((share - want).abs() < 0.01, "{first_ns} and {second_ns} ns: {share}, wanted {want}");
        }
    }

    #[test]
    fn a_half_that_is_always_late_is_asked_ever_more_rarely_and_comes_back() {
        let mut balance = Balance::even();
        let mut asked = 0;
        // As the reader judges: the second half is never waited for, whether the first had keys or not.
        let mut most = 0;
        for round in 0..100_000 {
            let cut = balance.cut(Family::V4, 256);
            asked += u32::from(cut > 0);
            balance.judge(Family::V4, 256, cut, cut > 0);
            most = if round > 1000 { most.max(cut) } else { 0 };
        }
        assert!(asked < 1000, "asked {asked} times of 100000");
        assert_eq!(most, GRAIN, "given more than the least while it was always late");
        for _ in 0..10_000 {
            let cut = balance.cut(Family::V4, 256);
            balance.judge(Family::V4, 256, cut, false);
        }
        assert_eq!(balance.cut(Family::V4, 256), 256);
    }

    #[test]
    fn a_share_that_reaches_nothing_comes_back() {
        let mut balance = Balance::even();
        for _ in 0..1000 {
            let cut = balance.cut(Family::V6, 1 << 16);
            balance.judge(Family::V6, 1 << 16, cut, cut > 0);
        }
        for _ in 0..20_000 {
            let cut = balance.cut(Family::V6, 1 << 16);
            balance.judge(Family::V6, 1 << 16, cut, cut > 1 << 15);
        }
        let share = f64::from(balance.share(Family::V6)) / f64::from(WHOLE);
        assert!((share - 0.5).abs() < 0.05, "{share}");
    }
}
