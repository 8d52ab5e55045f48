//! Every store of an update to a table on the device, under every interleaving with lookups: see [`fib::stores`].
//!
//! The device is plain Rust: words that steps change one at a time, as the update kernels store them. Lookups are those of
//! `gamt::code`, `gale::model` and `sail::tests::model`, which tests of the kernels hold the PTX against; they load which table is in
//! service first, then its words, and resolve their answer last, as late as they like. What is between two loads of a lookup is any
//! number of stores, swaps, publications of the host's next hops, and whole updates.
//!
//! What the engine does is done here in its order (`engine::mod`): what is over is reclaimed, the delta is applied, steps are taken,
//! run, or replaced by an image that comes into service whole; then, now and then, all
//! lookups from before end, and what is over from then on is told at once or some deltas later.

use crate::gale::model as gale_model;
use crate::gale::{GaleOptions, GaleTable};
use crate::host::{Due, HEADER_WORDS, HostTable, Image, Step};
use crate::sail::tests::model as sail_model;
use crate::sail::{SailOptions, SailTable};
use fib::loads::{Loads as _, Place};
use fib::oracle::Oracle;
use fib::stores::{Checker, Listening, Sequences, Steps, Stopped, run};
use fib::{Change, FibDelta, Key, NextHopId, Prefix, Rib, RibTable, conformance};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::rc::Rc;

/// The place of which table is in service.
const IN_SERVICE: Place = Place::modelled(0);

/// A table on the device.
struct Table {
    header: Rc<[u32; HEADER_WORDS]>,
    words: Vec<u32>,
}

impl Table {
    fn new(image: &Image<'_>) -> Self {
        let mut words = vec![0; image.words];
        for (start, run) in &image.runs {
            words[*start as usize..*start as usize + run.len()].copy_from_slice(run);
        }
        Self { header: Rc::new(image.header), words }
    }
}

/// The device: every table that ever was in service, the last one is. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Device(Rc<RefCell<Vec<Table>>>);

impl Device {
    /// Loads which table is in service; its number and header.
    pub(crate) fn open(&self, steps: &mut Steps<'_>) -> Result<(usize, Rc<[u32; HEADER_WORDS]>), Stopped> {
        let table = steps.load(IN_SERVICE, || self.0.borrow().len() as u64 - 1)?;
        let table = usize::try_from(table).unwrap();
        Ok((table, Rc::clone(&self.0.borrow()[table].header)))
    }

    /// Loads word `at` of a table.
    pub(crate) fn load(&self, steps: &mut Steps<'_>, table: usize, at: usize) -> Result<u32, Stopped> {
        let word = steps.load(place(table, at), || u64::from(self.0.borrow()[table].words[at]))?;
        Ok(u32::try_from(word).unwrap())
    }
}

fn place(table: usize, at: usize) -> Place {
    Place::modelled((table << 32) + at + 1)
}

/// What goes wrong on purpose, to see that it is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Nothing.
    #[default]
    Nothing,
    /// Steps that depend on each other run the other way round.
    Backwards,
    /// What was unlinked is used again while lookups may read it.
    NoGrace,
}

/// A table, its device, and the checker.
pub(crate) struct Rig<K: Key, T> {
    table: T,
    device: Device,
    checker: Checker<K>,
    random: ChaCha8Rng,
    wrong: Wrong,
    /// The last update that is finished on the device, and the last that is over for all lookups.
    finished: u64,
    over: u64,
    /// GALE's operations run on words of their own, store by store.
    gale: Option<gale_model::Model>,
    rebuilds: u64,
    _listening: Listening,
}

impl<K: Key + 'static, T: HostTable<K>> Rig<K, T> {
    /// With lookups as `lookup` makes them for the device.
    pub(crate) fn new<L>(table: T, wrong: Wrong, lookup: impl FnOnce(Device) -> L) -> Self
    where
        L: Fn(K, &mut Steps<'_>) -> Result<NextHopId, Stopped> + 'static,
    {
        let empty = Rib::new();
        let image = table.image(K::table(&empty));
        let first = Table::new(&image);
        let gale = table.kernels().ops.map(|_| gale_model::Model::new(&image));
        let device = Device(Rc::new(RefCell::new(vec![first])));
        let checker = Checker::new(lookup(device.clone()));
        Self {
            _listening: checker.listen(),
            table,
            device,
            checker,
            random: ChaCha8Rng::seed_from_u64(1),
            wrong,
            finished: 0,
            over: 0,
            gale,
            rebuilds: 0,
        }
    }

    /// Runs `count` sequences with prefixes of each of `lengths`, of both kinds: nested ones in one place ([`run`]), and single ones
    /// that come and go in several. Returns the stores seen, and the tables built anew.
    pub(crate) fn run(mut self, count: usize, lengths: &[RangeInclusive<u8>]) -> (u64, u64) {
        let checker = self.checker.clone();
        for lengths in lengths {
            let count = if conformance::Options::from_env().full { count * 20 } else { count };
            let plan = Sequences { seed: 11, count, lengths: lengths.clone(), next_hops: 5 };
            run(&plan, &checker, |delta, rib| self.apply(K::changes(delta), K::table(rib)));
            for seed in 0..count as u64 / 4 {
                flicker(seed, lengths, &checker, |delta, rib| self.apply(K::changes(delta), K::table(rib)));
            }
        }
        println!("{:?}, {} tables built anew", self.checker, self.rebuilds);
        (self.checker.tried().0, self.rebuilds)
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.next_u32().is_multiple_of(one_in)
    }

    fn apply(&mut self, changes: &[Change<K>], routes: &RibTable<K>) {
        if self.chance(2) {
            self.table.reclaim(self.over);
        }
        let update = self.finished + 1;
        let due = self.table.apply(changes, routes, usize::MAX).unwrap();
        let mut steps = self.table.take_steps(update, routes);
        if due == Due::Image {
            self.rebuilds += 1;
            self.swap(routes);
            steps.clear();
        }
        if self.wrong == Wrong::Backwards {
            steps.reverse();
        }
        for step in &steps {
            match step {
                Step::Writes(writes) => {
                    let mut writes = writes.clone();
                    for end in (1..writes.len()).rev() {
                        writes.swap(end, self.random.next_u32() as usize % (end + 1));
                    }
                    for write in writes {
                        self.store(write.at as usize, write.value);
                    }
                }
                Step::Ops(ops) => {
                    let mut model = self.gale.take().unwrap();
                    model.run(ops, |words, at| self.store(at, words[at]));
                    self.gale = Some(model);
                }
            }
        }
        self.finished = update;
        if self.wrong == Wrong::NoGrace {
            self.over = update;
        } else if self.chance(3) {
            self.checker.grace();
            self.over = update;
        }
        if self.chance(2) {
            self.table.reclaim(self.over);
        }
    }

    fn store(&self, at: usize, value: u32) {
        let table = {
            let mut tables = self.device.0.borrow_mut();
            tables.last_mut().unwrap().words[at] = value;
            tables.len() - 1
        };
        self.checker.stored(place(table, at));
    }

    /// The image of the table comes into service.
    fn swap(&mut self, routes: &RibTable<K>) {
        let image = self.table.image(routes);
        self.device.0.borrow_mut().push(Table::new(&image));
        self.gale = self.gale.as_ref().map(|_| gale_model::Model::new(&image));
        self.checker.stored(IN_SERVICE);
    }
}

/// Routes that come and go in places that share nothing, so that what one leaves another takes.
pub(crate) fn flicker<K: Key>(
    seed: u64,
    lengths: &RangeInclusive<u8>,
    checker: &Checker<K>,
    mut apply: impl FnMut(&FibDelta, &Rib),
) {
    const PLACES: u32 = 8;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let keys: Vec<K> = (0..PLACES).map(|_| K::from_high_bits(u128::from(random.next_u64()) << 64)).collect();
    let (mut rib, mut oracle) = (Rib::plain(), Oracle::new());
    let right = |oracle: &Oracle<K>| keys.iter().map(|key| oracle.lookup(*key)).collect::<Vec<_>>();
    checker.watch(&keys, &right(&oracle));
    for delta in 0..20 {
        if delta % 3 == 2 || delta == 19 {
            for route in K::table(&rib).withdrawn() {
                rib.set(K::wrap(route.prefix), route.next_hop);
            }
        } else {
            for _ in 0..=random.next_u32() % 3 {
                let key = keys[random.next_u32() as usize % keys.len()];
                let span = u32::from(lengths.end() - lengths.start()) + 1;
                let len = lengths.start() + u8::try_from(random.next_u32() % span).unwrap();
                let next_hop =
                    if random.next_u32().is_multiple_of(2) { 0 } else { 1 + random.next_u32() % 5 };
                let prefix = K::wrap(Prefix::truncating(key, len));
                rib.set(prefix, NextHopId::from_answer(next_hop));
            }
        }
        let delta = rib.take_delta();
        for change in K::changes(&delta) {
            oracle.set(change.prefix, change.new);
        }
        checker.begin(&right(&oracle));
        apply(&delta, &rib);
        checker.end();
    }
}

fn gale(wrong: Wrong) -> Rig<u32, GaleTable> {
    Rig::new(GaleTable::new(GaleOptions::default()).unwrap(), wrong, |device| {
        move |key, steps: &mut Steps<'_>| {
            let (table, _) = device.open(steps)?;
            gale_model::Lookup::run_by(key, |at| device.load(steps, table, at))
        }
    })
}

fn sail(wrong: Wrong) -> Rig<u32, SailTable> {
    let options = SailOptions { headroom_percent: 0, ..SailOptions::default() };
    Rig::new(SailTable::new(options).unwrap(), wrong, |device| {
        move |key, steps: &mut Steps<'_>| {
            let (table, header) = device.open(steps)?;
            sail_model::Lookup::run_by(key, header[0] as usize, |at| device.load(steps, table, at))
        }
    })
}

#[test]
fn gale_sequences() {
    let (stores, _) = gale(Wrong::Nothing).run(600, &[20..=32, 23..=32, 25..=32]);
    assert!(stores > 100_000);
}

#[test]
fn sail_sequences() {
    let (stores, _) = sail(Wrong::Nothing).run(600, &[12..=32, 15..=26, 23..=32]);
    assert!(stores > 100_000);
}

#[test]
#[should_panic(expected = "were right since the lookup began")]
fn sail_pointers_before_chunks_are_found() {
    sail(Wrong::Backwards).run(600, &[12..=32]);
}

#[test]
#[should_panic(expected = "were right since the lookup began")]
fn sail_chunks_used_again_too_early_are_found() {
    sail(Wrong::NoGrace).run(600, &[23..=32]);
}
