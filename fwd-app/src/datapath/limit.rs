//! A limit of what an lcore does for packets off the fast path, by time, without a division or a clock of its own.

/// A period is so many cycles, as a power of two: about a millisecond.
pub(crate) const PERIOD_SHIFT: u32 = 21;

/// So much in each period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    each: u32,
    left: u32,
    period: u64,
}

impl Limit {
    /// `each` in a period.
    pub(crate) const fn new(each: u32) -> Self {
        Self { each, left: each, period: 0 }
    }

    /// Whether something may be done at the time `tsc` that counts as `cost`. The last thing of a period may cost more than is left.
    pub(crate) fn takes(&mut self, tsc: u64, cost: u32) -> bool {
        let period = tsc >> PERIOD_SHIFT;
        if period != self.period {
            (self.period, self.left) = (period, self.each);
        }
        let has_left = self.left > 0;
        if has_left {
            self.left = self.left.saturating_sub(cost);
        }
        has_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_has_a_limit() {
        let mut limit = Limit::new(32);
        let taken = |limit: &mut Limit, tsc, cost| (0..100).filter(|_| limit.takes(tsc, cost)).count();
        assert_eq!((taken(&mut limit, 5, 1), taken(&mut limit, 6, 1)), (32, 0));
        assert_eq!(taken(&mut limit, 1 << PERIOD_SHIFT, 5), 7);
        assert_eq!(taken(&mut limit, 2 << PERIOD_SHIFT, 1000), 1, "so that large ones have their turn too");
        assert_eq!(taken(&mut Limit::new(0), 5, 1), 0);
    }
}
