//! Compares a sample of every contender's answers with the oracle's; with several FIBs, one oracle a FIB.
//!
//! The sample is the first keys of a traffic, in full calls, and as many keys drawn at random. A contender with wrong answers keeps its row, and
//! the run ends with exit code 1.

use crate::fault::Fault;
use crate::keys::KeySet;
use crate::table::{Looker, next_hop_in};
use crate::tables::RouteSet;
use fib::oracle::Oracle;
use fib::{Family, FibId, Key, NextHopId, Prefix};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

#[derive(Debug)]
pub(crate) struct Sample {
    keys: KeySet,
    expected: Vec<u32>,
    expected_in_fibs: Vec<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) checked: u64,
    pub(crate) wrong: u64,
    pub(crate) first_wrong: Option<String>,
}

impl Sample {
    pub(crate) fn draw(keys: &KeySet, tables: &RouteSet, count: usize, seed: u64) -> Self {
        let len = keys.len();
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let drawn = if len > count { count } else { 0 };
        let positions: Vec<usize> =
            (0..count.min(len)).chain((0..drawn).map(|_| rng.random_range(0..len))).collect();
        let keys = keys.pick(&positions);
        let expected = |at| keys.longest_match(tables, at).map_or(0, |(_, id)| id.get());
        let expected = (0..keys.len()).map(expected).collect();
        let expected_in_fibs = match keys.family() {
            Family::V4 => in_fibs(&keys, &tables.v4),
            Family::V6 => in_fibs(&keys, &tables.v6),
        };
        Self { keys, expected, expected_in_fibs }
    }

    pub(crate) fn check(&self, looker: &mut dyn Looker, call: usize) -> Result<Checked, Fault> {
        let answers = looker.answers(&self.keys, call)?;
        if answers.len() != self.expected.len() {
            let (got, wanted) = (answers.len(), self.expected.len());
            return Err(Fault::Measurement(format!("{got} answers for {wanted} keys")));
        }
        let mut found = Checked { checked: answers.len() as u64, ..Checked::default() };
        let is_in_fibs = looker.fibs() > 1 && !self.expected_in_fibs.is_empty();
        let expected = if is_in_fibs { &self.expected_in_fibs } else { &self.expected };
        for (at, (answer, expected)) in answers.iter().zip(expected).enumerate() {
            if answer != expected {
                found.wrong += 1;
                found.first_wrong.get_or_insert_with(|| {
                    format!("{}: answered {answer}, the oracle says {expected}", self.address(at))
                });
            }
        }
        Ok(found)
    }

    fn address(&self, at: usize) -> std::net::IpAddr {
        match self.keys.family() {
            Family::V4 => std::net::Ipv4Addr::from_bits(self.keys.v4()[at]).into(),
            Family::V6 => std::net::Ipv6Addr::from_bits(self.keys.high_bits(at)).into(),
        }
    }
}

/// The oracles' answers for `keys`, each in its FIB of a router that has `routes` in FIB 0. One FIB at a time, to hold one oracle at a time.
fn in_fibs<K: Key>(keys: &KeySet, routes: &[(Prefix<K>, NextHopId)]) -> Vec<u32> {
    let Some(fibs) = keys.fibs(0..keys.len()) else { return Vec::new() };
    let mut expected = vec![0; keys.len()];
    let last = (0..keys.len()).map(|at| fibs.fib(at).0).max().unwrap_or(0);
    for fib in (0..=last).map(FibId) {
        let varied = routes.iter().map(|(prefix, id)| (*prefix, next_hop_in(fib, *prefix, *id)));
        let oracle: Oracle<K> = varied.collect();
        for (at, expected) in expected.iter_mut().enumerate().filter(|(at, _)| fibs.fib(*at) == fib) {
            *expected = oracle.lookup(K::from_high_bits(keys.keys(at..at + 1).high_bits(0))).get();
        }
    }
    expected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Measurable;
    use crate::table::tests::{Liar, oracle};
    use fib::traffic::Traffic;

    #[test]
    fn a_liar_is_found_and_the_truth_is_not() {
        let tables = RouteSet::of_routes(&["10.0.0.0/8 1", "10.1.0.0/16 2"]);
        let keys = KeySet::make(&Traffic::Table, Family::V4, &tables, 5000, 1, false).unwrap();
        let sample = Sample::draw(&keys, &tables, 2000, 9);
        let mut honest = oracle(&tables, Family::V4, 256);
        let found = sample.check(&mut *honest.looker().unwrap(), 256).unwrap();
        assert_eq!(found, Checked { checked: 4000, wrong: 0, first_wrong: None });
        let mut liar = Liar(oracle(&tables, Family::V4, 256));
        let found = sample.check(&mut *liar.looker().unwrap(), 256).unwrap();
        assert_eq!((found.checked, found.wrong), (4000, 4));
        assert!(found.first_wrong.unwrap().contains("the oracle says"));
    }

    /// Claims to have several FIBs, and answers all keys in FIB 0.
    struct InMain(Box<dyn Looker>);

    impl Looker for InMain {
        fn sweep(&mut self, keys: &KeySet, range: std::ops::Range<usize>, call: usize) -> Result<(), Fault> {
            self.0.sweep(keys, range, call)
        }
        fn answers(&mut self, keys: &KeySet, call: usize) -> Result<Vec<u32>, Fault> {
            self.0.answers(keys, call)
        }
        fn fibs(&self) -> u32 {
            3
        }
    }

    #[test]
    fn an_answer_of_another_fib_is_wrong() {
        let lines: Vec<_> = (0..200).map(|at| format!("10.{at}.0.0/16 {}", 1000 + at)).collect();
        let tables = RouteSet::of_routes(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let mut keys = KeySet::make(&Traffic::Table, Family::V4, &tables, 3000, 1, false).unwrap();
        keys.assign_fibs(3, 1);
        let sample = Sample::draw(&keys, &tables, 3000, 9);
        let mut looker = InMain(oracle(&tables, Family::V4, 256).looker().unwrap());
        let found = sample.check(&mut looker, 256).unwrap();
        assert!((800..1300).contains(&found.wrong), "{found:?}");
        assert_eq!(sample.check(&mut *looker.0, 256).unwrap().wrong, 0, "an engine with one FIB");
    }

    #[test]
    fn a_short_stream_is_checked_whole() {
        let tables = RouteSet::of_routes(&["2001:db8::/32 1"]);
        let keys = KeySet::make(&Traffic::Random, Family::V6, &tables, 100, 1, false).unwrap();
        assert_eq!(Sample::draw(&keys, &tables, 1000, 9).expected.len(), 100);
    }
}
