//! The loads a search may offer: geometric steps between the lowest and the highest. With integer steps, widths are whole numbers and
//! intervals halve exactly.

/// Loads by number, 0 to [`Self::steps`]. Neighbours differ by at most the width wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LoadSteps {
    min_pps: f64,
    max_pps: f64,
    pub(crate) steps: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) lower: Option<u32>,
    pub(super) upper: Option<u32>,
}

impl LoadSteps {
    /// Steps from `min_pps` to a greater `max_pps`; neighbours differ by at most `width` as a fraction of the upper one.
    pub(crate) fn new(min_pps: f64, max_pps: f64, width: f64) -> Self {
        // A margin against rounding, so that no interval exceeds the width.
        let steps = (max_pps / min_pps).ln() / -(-width).ln_1p() * 1.000_001;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let steps = (steps.ceil() as u32).max(1);
        Self { min_pps, max_pps, steps }
    }

    pub(crate) fn pps(&self, load: u32) -> f64 {
        match load {
            0 => self.min_pps,
            load if load >= self.steps => self.max_pps,
            load => {
                self.min_pps * (self.max_pps / self.min_pps).powf(f64::from(load) / f64::from(self.steps))
            }
        }
    }

    /// The highest load not above `pps`, or load 0.
    pub(super) fn at_most(&self, pps: f64) -> u32 {
        if pps <= self.min_pps {
            return 0;
        }
        let share = (pps / self.min_pps).ln() / (self.max_pps / self.min_pps).ln();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the steps"
        )]
        let load = (share * f64::from(self.steps) + 1e-9).floor() as u32;
        load.min(self.steps)
    }

    /// Moves `load` `width` away from known bounds, and onto a limit instead of near it. `None` when no load lies between the bounds.
    pub(super) fn worth_while(&self, load: u32, width: u32, bounds: Bounds) -> Option<u32> {
        let Bounds { lower, upper } = bounds;
        let (min, max) = (lower.unwrap_or(0), upper.unwrap_or(self.steps));
        let load = load.min(self.steps);
        let is_outside = lower.is_some_and(|lower| load <= lower) || upper.is_some_and(|upper| load >= upper);
        if is_outside || min >= max {
            return None;
        }
        if width >= max - min {
            return if lower.is_none() { Some(min) } else { upper.is_none().then_some(max) };
        }
        let (mut from, mut to) = (min + width, max - width);
        if from > to {
            from = middle(min, max, width);
            to = from;
        }
        Some(match load {
            load if load < from => lower.map_or(min, |_| from),
            load if load > to => upper.map_or(max, |_| to),
            load => load,
        })
    }
}

/// The load that divides an interval wider than `width`. One part is `width` times a power of two, so that it can be halved down to `width`.
/// The lower part is never the larger one: a lossy trial takes as long and yields less information.
pub(super) fn middle(lower: u32, upper: u32, width: u32) -> u32 {
    let whole = upper - lower;
    if whole < 2 * width {
        let is_even = width > 1 && width.is_multiple_of(2);
        return if is_even { middle(lower, upper, width / 2) } else { lower + whole / 2 };
    }
    if whole == 2 * width {
        return lower + width;
    }
    let mut part = width;
    while whole - 2 * part > 2 * part {
        part *= 2;
    }
    // The power of two below or above the half, whichever divides more evenly.
    let product = |part: u32| u64::from(part) * u64::from(whole - part);
    lower + if product(part) > product(2 * part) { part } else { whole - 2 * part }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_no_wider_than_wanted_and_found_again() {
        for (min, max, width) in
            [(1e3, 5e6, 0.005), (9001.0, 1e9, 0.02), (10.0, 10.1, 0.005), (1.0, 2.0, 0.9)]
        {
            let loads = LoadSteps::new(min, max, width);
            assert!((loads.pps(0), loads.pps(loads.steps)) == (min, max), "{loads:?}");
            for load in 0..loads.steps {
                let [one, next] = [load, load + 1].map(|load| loads.pps(load));
                assert!(one < next && (next - one) / next <= width, "{load} of {loads:?}");
                assert_eq!(
                    (loads.at_most(one), loads.at_most((one + next) / 2.0)),
                    (load, load),
                    "{loads:?}"
                );
            }
            assert_eq!((loads.at_most(max * 2.0), loads.at_most(0.0)), (loads.steps, 0));
        }
    }

    #[test]
    fn an_interval_is_divided_into_parts_that_can_be_halved() {
        for (interval, width, wanted) in [
            ((0, 2), 1, 1),
            ((0, 3), 1, 1),
            ((10, 18), 1, 14),
            ((0, 6), 1, 2),
            ((0, 7), 1, 3),
            ((0, 3), 2, 1),
            ((0, 5), 4, 2),
        ] {
            assert_eq!(middle(interval.0, interval.1, width), wanted, "{interval:?} by {width}");
        }
        for whole in 2..500 {
            let lower = middle(0, whole, 1);
            assert!(lower > 0 && lower <= whole / 2 && lower >= whole / 3, "{lower} of {whole}");
        }
    }

    #[test]
    fn a_load_near_a_bound_or_a_limit_is_moved() {
        let loads = LoadSteps { min_pps: 1.0, max_pps: 2.0, steps: 100 };
        let bounds = |lower, upper| Bounds { lower, upper };
        for (load, width, bounds, wanted) in [
            (50, 4, bounds(None, Some(60)), Some(50)),
            (59, 4, bounds(None, Some(60)), Some(56)),
            (2, 4, bounds(None, Some(60)), Some(0)),
            (60, 4, bounds(None, Some(60)), None),
            (0, 4, bounds(None, Some(0)), None),
            (98, 4, bounds(Some(60), None), Some(100)),
            (61, 4, bounds(Some(60), None), Some(64)),
            (200, 4, bounds(Some(60), None), Some(100)),
            (62, 4, bounds(Some(60), Some(64)), None),
            (61, 2, bounds(Some(60), Some(65)), Some(62)),
            (3, 8, bounds(None, Some(5)), Some(0)),
        ] {
            assert_eq!(loads.worth_while(load, width, bounds), wanted, "{load} {width} {bounds:?}");
        }
    }
}
