//! Weighted choices in random order whose counts follow the weights at any time.

use fib::random::Seeded;

/// Most choices shuffled together.
const TURN_MAX: u64 = 64;

/// Makes choices in `0..n`. At any time each choice has its share to within one round; at the end of a round, to within two. The order
/// within a round is random, so that dealers of different purposes are not correlated.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    weights: Vec<i64>,
    /// Deficit of each choice against its share, in weights; they sum to 0.
    credits: Vec<i64>,
    turn: Vec<usize>,
    at: usize,
    /// `None` repeats the same round.
    rng: Option<Seeded>,
}

impl Shares {
    /// At least one of `weights` must be above 0. `seed` and `purpose` determine the order.
    pub(super) fn weighted(weights: &[u64], seed: u64, purpose: u64) -> Self {
        let turn = usize::try_from(weights.iter().sum::<u64>().clamp(1, TURN_MAX)).unwrap_or(1);
        let weights: Vec<_> =
            weights.iter().map(|weight| i64::try_from(*weight).unwrap_or(i64::MAX)).collect();
        let credits = vec![0; weights.len()];
        Self { weights, credits, turn: vec![0; turn], at: turn, rng: Some(Seeded::new(seed, purpose)) }
    }

    pub(super) fn in_order(choices: usize) -> Self {
        Self { weights: Vec::new(), credits: Vec::new(), turn: (0..choices).collect(), at: 0, rng: None }
    }

    pub(super) fn next(&mut self) -> usize {
        if self.at >= self.turn.len() {
            self.at = 0;
            self.deal();
        }
        self.at += 1;
        self.turn.get(self.at - 1).copied().unwrap_or(0)
    }

    fn deal(&mut self) {
        let Some(rng) = &mut self.rng else { return };
        let total: i64 = self.weights.iter().sum();
        for place in &mut self.turn {
            // The choice furthest behind its share.
            self.credits.iter_mut().zip(&self.weights).for_each(|(credit, weight)| *credit += weight);
            let next = (0..self.credits.len()).max_by_key(|choice| self.credits[*choice]).unwrap_or(0);
            self.credits[next] -= total;
            *place = next;
        }
        for last in (1..self.turn.len()).rev() {
            self.turn.swap(last, rng.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_choice_has_its_share_at_any_time(weights in prop::collection::vec(0_u64..50, 1..6), seed: u64) {
            let total: u64 = weights.iter().sum();
            prop_assume!(total > 0);
            let mut dealer = Shares::weighted(&weights, seed, 1);
            let mut counts = vec![0_u64; weights.len()];
            for dealt in 1..1000 {
                counts[dealer.next()] += 1;
                for (count, weight) in counts.iter().zip(&weights) {
                    prop_assert!((count * total).abs_diff(dealt * weight) <= (TURN_MAX + 1) * total);
                    prop_assert!(*weight > 0 || *count == 0);
                }
            }
            let turns = 1000 / total.clamp(1, TURN_MAX);
            let mut dealer = Shares::weighted(&weights, seed, 1);
            let mut counts = vec![0_u64; weights.len()];
            let dealt = turns * total.clamp(1, TURN_MAX);
            (0..dealt).for_each(|_| counts[dealer.next()] += 1);
            for (count, weight) in counts.iter().zip(&weights) {
                prop_assert!((count * total).abs_diff(dealt * weight) <= 2 * total);
            }
        }
    }

    #[test]
    fn two_purposes_do_not_go_together() {
        let deal = |purpose| {
            let mut dealer = Shares::weighted(&[1, 1], 7, purpose);
            (0..10_000).map(|_| dealer.next()).collect::<Vec<_>>()
        };
        let same = deal(1).into_iter().zip(deal(2)).filter(|(one, other)| one == other).count();
        assert!((4800..5200).contains(&same), "{same} of 10,000");
        assert_eq!(deal(1), deal(1));
    }
}
