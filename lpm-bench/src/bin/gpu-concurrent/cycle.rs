//! A cycle of deltas that returns to its start, with the right answers of every generation, so that a run of any length can be checked.

#![expect(clippy::cast_possible_truncation, reason = "halves of keys, generations of a cycle")]

use fib::oracle::OraclePair;
use fib::random::Seeded;
use fib::{FibDelta, IpPrefix, Key, KeyBuffer, NextHopId, Prefix, Rib};

/// Deltas of a cycle. Every eighth makes the table large or small, which causes a rebuild.
const DELTAS: usize = 48;

const BASE: u32 = 500;

#[derive(Clone, Debug)]
pub(crate) struct KeySet {
    pub(crate) v4: KeyBuffer,
    pub(crate) v6: KeyBuffer,
}

pub(crate) struct Cycle {
    /// From an empty table to generation 0.
    pub(crate) first: FibDelta,
    /// From each generation to the next, the last one back to generation 0.
    pub(crate) deltas: Vec<FibDelta>,
    pub(crate) keys: KeySet,
    /// By generation, then key.
    v4: Vec<Vec<NextHopId>>,
    v6: Vec<Vec<NextHopId>>,
}

struct RandomRoutes(Seeded);

impl RandomRoutes {
    fn next_hop(&mut self) -> NextHopId {
        NextHopId::from_answer(1 + self.0.u32() % 5000)
    }

    fn address(&mut self) -> u128 {
        let place = (self.0.u64() % 64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let noise = self.0.u64() >> self.0.between(8, 51);
        u128::from(place ^ noise) << 64 | u128::from(self.0.u64() % 8) << 61
    }

    fn prefix<K: Key>(&mut self, shortest: u8, longest: u8) -> Prefix<K> {
        let len = self.0.between(shortest, longest);
        Prefix::truncating(K::from_high_bits(self.address()), len)
    }

    fn v4(&mut self) -> IpPrefix {
        IpPrefix::V4(self.prefix(10, 32))
    }

    /// One in eight is longer than the 64 bits that the device searches.
    fn v6(&mut self) -> IpPrefix {
        if self.0.below(8) == 0 {
            IpPrefix::V6(self.prefix(65, 70))
        } else {
            IpPrefix::V6(self.prefix(16, 64))
        }
    }
}

impl Cycle {
    pub(crate) fn new(seed: u64, routes: u32, keys: usize) -> Self {
        let mut dice = RandomRoutes(Seeded::new(seed, 0));
        // Without compression of routes, so that the last delta restores the first table.
        let mut rib = Rib::plain();
        for _ in 0..BASE {
            let (v4, v6) = (dice.v4(), dice.v6());
            rib.set(v4, dice.next_hop());
            rib.set(v6, dice.next_hop());
        }
        let first = rib.take_delta();
        let mut oracle = OraclePair::default();
        oracle.apply(&first);
        let (mut small, mut bulk) = (Vec::new(), Vec::new());
        let mut deltas = Vec::with_capacity(DELTAS);
        for at in 1..DELTAS {
            match at % 16 {
                4 => {
                    for _ in 0..routes {
                        for prefix in [dice.v4(), dice.v6()] {
                            if get(&rib, prefix).is_none() {
                                rib.set(prefix, dice.next_hop());
                                bulk.push(prefix);
                            }
                        }
                    }
                }
                12 => bulk.drain(..).for_each(|prefix| {
                    rib.set(prefix, NextHopId::NONE);
                }),
                _ => Self::change(&mut rib, &mut small, &bulk, &first, &mut dice),
            }
            deltas.push(rib.take_delta());
        }
        for prefix in small.into_iter().chain(bulk) {
            rib.set(prefix, NextHopId::NONE);
        }
        for change in &first.v4 {
            rib.set(IpPrefix::V4(change.prefix), change.new);
        }
        for change in &first.v6 {
            rib.set(IpPrefix::V6(change.prefix), change.new);
        }
        deltas.push(rib.take_delta());
        let keys = keys_for(&deltas, keys, &mut dice);
        let (mut v4, mut v6) = (Vec::with_capacity(DELTAS), Vec::with_capacity(DELTAS));
        for delta in &deltas {
            for (right, keys) in [(&mut v4, &keys.v4), (&mut v6, &keys.v6)] {
                let mut answers = vec![NextHopId::NONE; keys.len()];
                oracle.answer(keys.keys(), &mut answers);
                right.push(answers);
            }
            oracle.apply(delta);
        }
        Self { first, deltas, keys, v4, v6 }
    }

    /// Adds, withdraws or changes a few routes, also constant ones, whose withdrawal exposes the covering route.
    fn change(
        rib: &mut Rib,
        small: &mut Vec<IpPrefix>,
        bulk: &[IpPrefix],
        first: &FibDelta,
        dice: &mut RandomRoutes,
    ) {
        for _ in 0..12 {
            for prefix in [dice.v4(), dice.v6()] {
                if get(rib, prefix).is_none() {
                    small.push(prefix);
                }
                rib.set(prefix, dice.next_hop());
            }
            let (v4, v6) = (dice.0.below(first.v4.len()), dice.0.below(first.v6.len()));
            let gone = dice.0.percent(50);
            for prefix in [IpPrefix::V4(first.v4[v4].prefix), IpPrefix::V6(first.v6[v6].prefix)] {
                rib.set(prefix, if gone { NextHopId::NONE } else { dice.next_hop() });
            }
            if !bulk.is_empty() {
                rib.set(bulk[dice.0.below(bulk.len())], dice.next_hop());
            }
        }
        while small.len() > 60 {
            rib.set(small.swap_remove(dice.0.below(small.len())), NextHopId::NONE);
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.deltas.len() as u64
    }

    /// The number of answers that are in no generation of `low..=high`, counted through all cycles.
    pub(crate) fn wrong(&self, is_v4: bool, answers: &[NextHopId], low: u64, high: u64) -> u64 {
        let right = if is_v4 { &self.v4 } else { &self.v6 };
        let known = |at: usize, answer: NextHopId| {
            let last = high.min(low + self.len() - 1);
            (low..=last).any(|generation| right[(generation % self.len()) as usize][at] == answer)
        };
        let wrong = answers.iter().enumerate().filter(|(at, answer)| !known(*at, **answer));
        wrong.count() as u64
    }
}

fn get(rib: &Rib, prefix: IpPrefix) -> NextHopId {
    match prefix {
        IpPrefix::V4(prefix) => rib.v4.get(prefix),
        IpPrefix::V6(prefix) => rib.v6.get(prefix),
    }
}

fn keys_for(deltas: &[FibDelta], count: usize, dice: &mut RandomRoutes) -> KeySet {
    let (v4, v6) = (KeyBuffer::with_capacity(count), KeyBuffer::with_capacity(count));
    let mut keys = KeySet { v4, v6 };
    let few: Vec<_> = deltas.iter().filter(|delta| delta.v4.len() < 1000).collect();
    for at in 0..count {
        let delta = few.get(dice.0.below(few.len().max(1)));
        let (v4, v6) = match delta {
            Some(delta) if at % 8 != 0 && !delta.v4.is_empty() && !delta.v6.is_empty() => {
                let v4 = delta.v4[dice.0.below(delta.v4.len())].prefix;
                let v6 = delta.v6[dice.0.below(delta.v6.len())].prefix;
                (dice.0.inside(v4), dice.0.inside(v6))
            }
            _ => ((dice.address() >> 96) as u32, dice.address()),
        };
        keys.v4.push(v4);
        keys.v6.push(v6);
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_ends_where_it_began_and_tells_right_from_wrong() {
        let cycle = Cycle::new(3, 400, 200);
        assert_eq!(cycle.len(), DELTAS as u64);
        let mut oracle = OraclePair::default();
        oracle.apply(&cycle.first);
        let start = oracle.clone();
        let mut sizes = Vec::new();
        for delta in &cycle.deltas {
            oracle.apply(delta);
            sizes.push(oracle.v4.len() + oracle.v6.len());
        }
        assert!(sizes.iter().max() > sizes.iter().min().map(|least| least + 600).as_ref());
        let answers = |oracle: &OraclePair| {
            let mut answers = vec![NextHopId::NONE; cycle.keys.v4.len()];
            oracle.answer(cycle.keys.v4.keys(), &mut answers);
            answers
        };
        let right = answers(&start);
        assert_eq!(answers(&oracle), right);
        assert_eq!((cycle.wrong(true, &right, 0, 0), cycle.wrong(true, &right, 480, 481)), (0, 0));
        let changing = (0..cycle.len()).map(|at| cycle.wrong(true, &right, at, at)).max();
        assert!(changing > Some(20), "{changing:?} keys change at most");
        let unknown = vec![NextHopId::MAX; right.len()];
        assert_eq!(cycle.wrong(true, &unknown, 0, 1000), right.len() as u64);
    }
}
