//! The search against simulated forwarders with and without noise.

use super::search::{GoalFound, LossSearch, SearchRules};
use fib::random::SplitMix64;

fn rules(loss_ratios: &[f64]) -> SearchRules {
    SearchRules {
        loss_ratios: loss_ratios.to_vec(),
        exceed_ratio: 0.5,
        initial_trial_s: 0.2,
        final_trial_s: 1.0,
        duration_sum_s: 5.0,
        width: 0.005,
    }
}

/// A forwarder with a queue. It loses some time in every trial, and a few packets at random in one of five.
struct Simulated {
    capacity_pps: f64,
    queue_packets: f64,
    /// Largest fraction of a trial's time lost.
    noise: f64,
    random: SplitMix64,
}

impl Simulated {
    fn new(capacity_pps: f64, noise: f64, seed: u64) -> Self {
        Self { capacity_pps, queue_packets: 1024.0, noise, random: SplitMix64(seed) }
    }

    #[expect(clippy::cast_precision_loss, reason = "53 bits of it are used")]
    fn uniform(&mut self) -> f64 {
        (self.random.u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn loss_ratio(&mut self, pps: f64, seconds: f64) -> f64 {
        let offered = pps * seconds;
        let capacity = self.capacity_pps * (1.0 - self.noise * self.uniform());
        let overload = 1.0 - (capacity * seconds + self.queue_packets).min(offered) / offered;
        let is_hit = self.noise > 0.0 && self.uniform() < 0.2;
        if is_hit { overload.max(0.002) } else { overload }
    }
}

fn search(rules: &SearchRules, limits: (f64, f64), of: &mut Simulated) -> (Vec<GoalFound>, usize, f64) {
    let mut search = LossSearch::new(rules, limits.0, limits.1);
    let (mut trials, mut seconds) = (0, 0.0);
    while let Some(wanted) = search.next() {
        assert!((limits.0..=limits.1).contains(&wanted.pps) && trials < 1000, "{wanted:?}");
        search.record(wanted, of.loss_ratio(wanted.pps, wanted.duration_s));
        (trials, seconds) = (trials + 1, seconds + wanted.duration_s);
    }
    (search.results(), trials, seconds)
}

#[test]
fn the_rate_is_found_over_twenty_seeds() {
    let rules = rules(&[0.0, 0.001]);
    for seed in 0..20 {
        let mut random = SplitMix64(seed);
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let capacity_pps = 300e3 + (random.u64() % 9_000_000) as f64;
        for noise in [0.0, 0.01] {
            let mut of = Simulated::new(capacity_pps, noise, seed);
            let (found, trials, seconds) = search(&rules, (1e3, 12e6), &mut of);
            let [zero, some] = found[..] else { panic!("{found:?}") };
            for found in [zero, some] {
                let rate = found.throughput_pps.unwrap() / capacity_pps;
                assert!((0.98..=1.02).contains(&rate), "seed {seed}, noise {noise}: {rate} of it, {found:?}");
                let (lower, upper) = (found.lower_pps.unwrap(), found.upper_pps.unwrap());
                assert!(lower < upper && (upper - lower) / upper <= rules.width * 1.0001, "{found:?}");
            }
            assert!(zero.lower_pps <= some.lower_pps, "a goal that allows more is reached by as much");
            assert!(trials < 120 && seconds < 60.0, "seed {seed}: {trials} trials, {seconds} s");
        }
    }
}

#[test]
fn the_strict_search_of_rfc_2544_is_a_case_of_it() {
    let strict =
        SearchRules { exceed_ratio: 0.0, final_trial_s: 60.0, duration_sum_s: 60.0, ..rules(&[0.0]) };
    let (found, ..) = search(&strict, (1e3, 20e6), &mut Simulated::new(1e6, 0.0, 1));
    let rate = found[0].throughput_pps.unwrap() / 1e6;
    assert!((0.994..=1.0001).contains(&rate), "{found:?}");
}

#[test]
fn limits_are_results_too() {
    let (found, trials, _) = search(&rules(&[0.0]), (1e3, 1e6), &mut Simulated::new(2e6, 0.0, 1));
    assert_eq!(
        (found[0].lower_pps, found[0].upper_pps, found[0].throughput_pps),
        (Some(1e6), None, Some(1e6))
    );
    assert!(trials < 10, "{trials}");
    let mut slow = Simulated { queue_packets: 0.0, ..Simulated::new(1e3, 0.0, 1) };
    let (found, ..) = search(&rules(&[0.0, 0.1]), (1e5, 1e6), &mut slow);
    for found in found {
        assert_eq!((found.lower_pps, found.upper_pps, found.throughput_pps), (None, Some(1e5), None));
    }
}

#[test]
fn what_was_found_so_far_is_there_at_any_time() {
    let (mut search, mut of) = (LossSearch::new(&rules(&[0.0, 0.01]), 1e3, 1e7), Simulated::new(1e6, 0.0, 3));
    while let Some(wanted) = search.next() {
        assert_eq!(search.next(), Some(wanted), "asking twice changes nothing");
        search.record(wanted, of.loss_ratio(wanted.pps, wanted.duration_s));
        for found in search.results() {
            assert!(found.lower_pps.is_none_or(|lower| lower < 1.05e6), "{found:?}");
            assert!(found.upper_pps.is_none_or(|upper| upper > 0.99e6), "{found:?}");
        }
    }
}
