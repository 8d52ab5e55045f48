//! Rate limit of an lcore's work off the fast path, per period of TSC cycles, without a division or a clock read.

/// Binary logarithm of a period in cycles: about a millisecond.
pub(crate) const PERIOD_SHIFT: u32 = 21;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    each: u32,
    left: u32,
    period: u64,
}

impl Limit {
    pub(crate) const fn new(each: u32) -> Self {
        Self { each, left: each, period: 0 }
    }

    /// Charges `cost` at the time `tsc`; returns false when the quota is used up. The last charge may exceed the quota.
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
