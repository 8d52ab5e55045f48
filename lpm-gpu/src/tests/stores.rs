//! Every store of an update to a device's table, under every interleaving with lookups ([`fib::stores`]). Steps store one word at
//! a time in host memory, as the update kernels do. A lookup loads the number of the current table, then words
//! ([`LookupModel`](crate::testing::LookupModel)), and resolves its answer last. Between two of its loads any number of stores,
//! table swaps, publications of next hops, and whole updates may happen. The rig follows the engine's order: reclaim, apply the
//! delta, take steps, run them or swap the table. Now and then all earlier lookups end, and the grace period is reported at once
//! or some deltas later.

use crate::gale::model::{self, OpMemory};
use crate::gale::{GaleOptions, GaleTable};
use crate::gamt::Layout;
use crate::host::{Due, HostTable, UpdateStep};
use crate::sail::{SailOptions, SailTable};
use crate::testing::{LoadedTable, high_bits};
use fib::loads::{Loads as _, Place};
use fib::oracle::Oracle;
use fib::random::Seeded;
use fib::stores::{Checker, Listening, Sequences, Steps, Stopped, run};
use fib::{Change, FibDelta, Key, NextHopId, Prefix, Rib, RibTable};
use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::rc::Rc;

const IN_SERVICE: Place = Place::modelled(0);

/// All tables ever in service, of which the last is current; and the checker, which is notified of stores.
struct SteppedDevice<K>(Rc<RefCell<Vec<LoadedTable>>>, Checker<K>);

fn place(table: usize, at: usize) -> Place {
    Place::modelled((table << 32) + at + 1)
}

impl<K: Key> OpMemory for SteppedDevice<K> {
    fn load(&mut self, at: usize) -> u32 {
        self.0.borrow().last().unwrap().words[at]
    }

    fn store(&mut self, at: usize, word: u32) {
        self.0.borrow_mut().last_mut().unwrap().words[at] = word;
        let table = self.0.borrow().len() - 1;
        self.1.stored(place(table, at));
    }
}

fn search<K: Key>(tables: &RefCell<Vec<LoadedTable>>, key: K, steps: &mut Steps<'_>) -> Result<u32, Stopped> {
    let table = steps.load(IN_SERVICE, || tables.borrow().len() as u64 - 1)?;
    let table = usize::try_from(table).unwrap();
    let (kernel, header) = (tables.borrow()[table].kernel, tables.borrow()[table].header);
    kernel.search_by(&header, high_bits(key), |at| {
        let word = steps.load(place(table, at), || u64::from(tables.borrow()[table].words[at]))?;
        Ok(u32::try_from(word).unwrap())
    })
}

/// An injected fault, which the checker must find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wrong {
    #[default]
    Nothing,
    /// Dependent steps run in reverse order.
    Backwards,
    /// Unlinked nodes are reused while lookups may read them.
    NoGrace,
}

pub(crate) struct StoreRig<K: Key, T> {
    table: T,
    device: SteppedDevice<K>,
    random: Seeded,
    wrong: Wrong,
    finished: u64,
    over: u64,
    rebuilds: u64,
    _listening: Listening,
}

impl<K: Key + 'static, T: HostTable<K>> StoreRig<K, T> {
    pub(crate) fn new(
        table: T,
        wrong: Wrong,
        resolve: impl Fn(u32, K, &mut Steps<'_>) -> Result<NextHopId, Stopped> + 'static,
    ) -> Self {
        let tables = Rc::new(RefCell::new(vec![LoadedTable::new(&table, K::part(&Rib::new()))]));
        let device = Rc::clone(&tables);
        let checker = Checker::new(move |key, steps: &mut Steps<'_>| {
            let raw = search(&tables, key, steps)?;
            resolve(raw, key, steps)
        });
        Self {
            _listening: checker.listen(),
            table,
            device: SteppedDevice(device, checker),
            random: Seeded::new(1, 0),
            wrong,
            finished: 0,
            over: 0,
            rebuilds: 0,
        }
    }

    pub(crate) fn run(mut self, count: usize, lengths: &[RangeInclusive<u8>]) -> (u64, u64) {
        let checker = self.device.1.clone();
        sequences(&checker, count, lengths, |delta, rib| self.apply(K::part(delta), K::part(rib)));
        println!("{} tables rebuilt", self.rebuilds);
        (checker.tried().0, self.rebuilds)
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.random.below(one_in) == 0
    }

    fn apply(&mut self, changes: &[Change<K>], routes: &RibTable<K>) {
        if self.chance(2) {
            self.table.reclaim(self.over);
        }
        let update = self.finished + 1;
        let due = self.table.apply(changes, routes).unwrap();
        let mut steps = self.table.take_steps(update, routes);
        if due == Due::Image {
            self.rebuilds += 1;
            self.device.0.borrow_mut().push(LoadedTable::new(&self.table, routes));
            self.device.1.stored(IN_SERVICE);
            steps.clear();
        }
        if self.wrong == Wrong::Backwards {
            steps.reverse();
        }
        for step in steps {
            match step {
                UpdateStep::Writes(mut writes) => {
                    for end in (1..writes.len()).rev() {
                        writes.swap(end, self.random.below(end + 1));
                    }
                    for write in writes {
                        self.device.store(write.at as usize, write.value);
                    }
                }
                UpdateStep::Ops(ops) => model::run(&ops, &mut self.device),
            }
        }
        self.finished = update;
        if self.wrong == Wrong::NoGrace {
            self.over = update;
        } else if self.chance(3) {
            self.device.1.grace();
            self.over = update;
        }
        if self.chance(2) {
            self.table.reclaim(self.over);
        }
    }
}

/// Runs `count` sequences for each of `lengths`: nested prefixes in one place, and single prefixes in several ([`flicker`]).
pub(crate) fn sequences<K: Key + 'static>(
    checker: &Checker<K>,
    count: usize,
    lengths: &[RangeInclusive<u8>],
    mut apply: impl FnMut(&FibDelta, &Rib),
) {
    let count = fib::stores::count(count);
    for lengths in lengths {
        let plan = Sequences { seed: 11, count, lengths: lengths.clone(), next_hops: 5 };
        run(&plan, checker, &mut apply);
        for seed in 0..count as u64 / 4 {
            flicker(seed, lengths, checker, &mut apply);
        }
    }
    println!("{checker:?}");
}

/// Adds and withdraws routes in places that share no nodes, so that one place reuses nodes of another.
fn flicker<K: Key>(
    seed: u64,
    lengths: &RangeInclusive<u8>,
    checker: &Checker<K>,
    mut apply: impl FnMut(&FibDelta, &Rib),
) {
    const PLACES: u32 = 8;
    let mut random = Seeded::new(seed, 1);
    let keys: Vec<K> = (0..PLACES).map(|_| K::from_high_bits(u128::from(random.u64()) << 64)).collect();
    let (mut rib, mut oracle) = (Rib::plain(), Oracle::new());
    let right = |oracle: &Oracle<K>| keys.iter().map(|key| oracle.lookup(*key)).collect::<Vec<_>>();
    checker.watch(&keys, &right(&oracle));
    for delta in 0..20 {
        if delta % 3 == 2 || delta == 19 {
            for route in K::part(&rib).withdrawn() {
                rib.set(K::wrap(route.prefix), route.next_hop);
            }
        } else {
            for _ in 0..=random.below(3) {
                let key = keys[random.below(keys.len())];
                let len = random.between(*lengths.start(), *lengths.end());
                let next_hop = if random.percent(50) { 0 } else { 1 + random.u32() % 5 };
                let prefix = K::wrap(Prefix::truncating(key, len));
                rib.set(prefix, NextHopId::from_answer(next_hop));
            }
        }
        let delta = rib.take_delta();
        for change in K::part(&delta) {
            oracle.set(change.prefix, change.new);
        }
        checker.begin(&right(&oracle));
        apply(&delta, &rib);
        checker.end();
    }
}

fn plain(raw: u32, _: u32, _: &mut Steps<'_>) -> Result<NextHopId, Stopped> {
    Ok(NextHopId::from_answer(raw))
}

fn sail(wrong: Wrong, layout: Layout) -> StoreRig<u32, SailTable> {
    let table =
        SailTable::new(SailOptions { headroom_percent: 0, layout, ..SailOptions::default() }).unwrap();
    match table.codes() {
        None => StoreRig::new(table, wrong, plain),
        Some(codes) => StoreRig::new(table, wrong, move |raw, _, steps| codes.get(raw, steps)),
    }
}

#[test]
fn gale_sequences() {
    let table = GaleTable::new(GaleOptions::default()).unwrap();
    let (stores, _) = StoreRig::new(table, Wrong::Nothing, plain).run(600, &[20..=32, 23..=32, 25..=32]);
    assert!(stores > 100_000);
}

#[test]
fn sail_sequences() {
    for (layout, least) in [(Layout::Flat, 100_000), (Layout::Paper, 30_000)] {
        let (stores, _) = sail(Wrong::Nothing, layout).run(600, &[12..=32, 15..=26, 23..=32]);
        assert!(stores > least, "{layout:?}: {stores}");
    }
}

#[test]
#[should_panic(expected = "were right since the lookup began")]
fn sail_pointers_before_chunks_are_found() {
    sail(Wrong::Backwards, Layout::Flat).run(600, &[12..=32]);
}

#[test]
#[should_panic(expected = "were right since the lookup began")]
fn sail_chunks_used_again_too_early_are_found() {
    sail(Wrong::NoGrace, Layout::Flat).run(600, &[23..=32]);
}

#[test]
#[should_panic(expected = "were right since the lookup began")]
fn sail_bn24_before_c24_is_found() {
    sail(Wrong::Backwards, Layout::Paper).run(600, &[23..=32]);
}

#[test]
#[should_panic(expected = "were right since the lookup began")]
fn sail_packed_chunks_used_again_too_early_are_found() {
    sail(Wrong::NoGrace, Layout::Paper).run(600, &[23..=32]);
}
