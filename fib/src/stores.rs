//! A checker of updates made of single stores. After each store, a lookup that began at any earlier point must return
//! the answer of a generation that was current at some time since it began.
//!
//! Tests with threads meet few interleavings; this checker tries all. The values that a lookup has loaded ([`Loads`]) represent it in
//! flight. After each store the checker continues every lookup whose next load is from the stored location, and also keeps it paused.
//! Lookups of a key with the same loaded values are merged; the latest one is kept, since it allows the fewest answers. Loads and stores
//! take effect in program order, as on x86-64; weaker memory models are not tested.
//!
//! ```text
//! begin(answers in the next generation)   apply is called: answers of the next generation are allowed from here on
//! stored(place) ..                        after every single store
//! grace() ..                              a grace period has ended: no lookup that began before it is in flight
//! end()                                   apply has returned: only lookups that began before may give older answers
//! ```
//! A writer without access to the checker calls [`report`]; a checker that [listens](Checker::listen) receives its stores.

use crate::conformance;
use crate::loads::{Loads, Place};
use crate::oracle::Oracle;
use crate::random::Seeded;
use crate::{FibDelta, Key, NextHopId, Prefix, Rib, Route};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;

/// An action of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A store to a location that lookups load from.
    Stored(Place),
    /// A grace period has ended.
    Grace,
}

type Listener = Box<dyn Fn(Event)>;

thread_local! {
    static LISTENER: RefCell<Option<Listener>> = const { RefCell::new(None) };
    /// Whether there is one: most tests have none, and millions of stores.
    static IS_LISTENING: Cell<bool> = const { Cell::new(false) };
}

/// Passes an action of a writer on this thread to the listening checker, if there is one.
#[inline]
pub fn report(event: Event) {
    if IS_LISTENING.get() {
        LISTENER.with_borrow(|listener| listener.iter().for_each(|listener| listener(event)));
    }
}

/// The lookup was stopped before a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

/// The loads of a lookup in flight. Earlier loads are replayed with the recorded values, then one more load is done.
#[derive(Debug)]
pub struct Steps<'a> {
    loaded: &'a mut Vec<u64>,
    at: usize,
    end: usize,
    next: Option<Place>,
}

impl Loads for Steps<'_> {
    type Stop = Stopped;

    fn load(&mut self, place: Place, read: impl FnOnce() -> u64) -> Result<u64, Stopped> {
        if self.at == self.end {
            self.next = Some(place);
            return Err(Stopped);
        }
        if self.at == self.loaded.len() {
            self.loaded.push(read());
        }
        self.at += 1;
        Ok(self.loaded[self.at - 1])
    }
}

type Lookup<K> = Box<dyn Fn(K, &mut Steps<'_>) -> Result<NextHopId, Stopped>>;

/// The lookups of a key in flight are dropped above this number: others find the same faults.
const FLIGHTS_MAX: usize = 50_000;

/// Lookups in flight with the same next location: the loaded values, and the (last) generation when they began.
type Flights = FxHashMap<Vec<u64>, usize>;

struct Watched<K> {
    key: K,
    /// The correct answer in each generation.
    right: Vec<NextHopId>,
    flights: FxHashMap<Place, Flights>,
    flying: usize,
}

impl<K> Watched<K> {
    fn clear(&mut self) {
        self.flights.clear();
        self.flying = 0;
    }

    /// Pauses a lookup, begun in generation `since`, before its load from `next`. Returns whether this state is new.
    fn pause(&mut self, next: Place, loaded: &[u64], since: usize) -> bool {
        let flights = self.flights.entry(next).or_default();
        match flights.get_mut(loaded) {
            Some(known) if *known >= since => false,
            Some(known) => {
                *known = since;
                true
            }
            None => {
                flights.insert(loaded.to_vec(), since);
                self.flying += 1;
                true
            }
        }
    }
}

struct Inner<K> {
    lookup: Lookup<K>,
    keys: Vec<Watched<K>>,
    places: FxHashSet<Place>,
    /// `done` is the generation that `apply` has returned, `started` the one being applied.
    done: usize,
    started: usize,
    stores: u64,
    stores_all: u64,
    steps: u64,
}

/// The checker. Clones share their state: the test holds one, the code that reports stores another.
pub struct Checker<K>(Rc<RefCell<Inner<K>>>);

impl<K> Clone for Checker<K> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<K> fmt::Debug for Checker<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.0.borrow();
        write!(f, "Checker({} stores, {} steps)", inner.stores_all, inner.steps)
    }
}

impl<K: Key> Checker<K> {
    /// A checker of `lookup`, which must load through the given [`Steps`] and depend only on its key and the loaded values.
    pub fn new(lookup: impl Fn(K, &mut Steps<'_>) -> Result<NextHopId, Stopped> + 'static) -> Self {
        Self(Rc::new(RefCell::new(Inner {
            lookup: Box::new(lookup),
            keys: Vec::new(),
            places: FxHashSet::default(),
            done: 0,
            started: 0,
            stores: 0,
            stores_all: 0,
            steps: 0,
        })))
    }

    /// A checker of lookups in a table that the writer may replace as a whole. A lookup's first load is the table in service, which `current`
    /// takes from `place`; the lookup keeps it. `lookup` then loads as in [`Self::new`], and returns the answer's number, as scalar kernels do.
    pub fn of_tables<P: 'static, T: 'static>(
        place: Arc<P>,
        current: impl Fn(&P) -> Arc<T> + 'static,
        lookup: impl Fn(&T, K, &mut Steps<'_>) -> Result<u32, Stopped> + 'static,
    ) -> Self {
        let tables = RefCell::new(FxHashMap::default());
        Self::new(move |key, steps| {
            let table = steps.load(Place::from_ref(&*place), || {
                let table = current(&place);
                let address = Arc::as_ptr(&table).addr() as u64;
                tables.borrow_mut().insert(address, table);
                address
            })?;
            let table = Arc::clone(&tables.borrow()[&table]);
            lookup(&table, key, steps).map(NextHopId::from_answer)
        })
    }

    /// Receives the actions of writers on this thread until the result is dropped.
    #[must_use = "dropping it ends the listening"]
    pub fn listen(&self) -> Listening
    where
        K: 'static,
    {
        let checker = self.clone();
        IS_LISTENING.set(true);
        LISTENER.set(Some(Box::new(move |event| match event {
            Event::Stored(place) => checker.stored(place),
            Event::Grace => checker.grace(),
        })));
        Listening(())
    }

    /// Watches `keys`, whose correct answers are now `right`. Earlier lookups in flight are dropped.
    pub fn watch(&self, keys: &[K], right: &[NextHopId]) {
        let mut inner = self.0.borrow_mut();
        let watched = keys.iter().zip(right);
        inner.keys = watched
            .map(|(key, right)| Watched {
                key: *key,
                right: vec![*right],
                flights: FxHashMap::default(),
                flying: 0,
            })
            .collect();
        (inner.done, inner.started, inner.stores) = (0, 0, 0);
        inner.restart();
    }

    /// Starts an update whose correct answers are `right`, one for each watched key.
    pub fn begin(&self, right: &[NextHopId]) {
        let mut inner = self.0.borrow_mut();
        inner.started += 1;
        for (watched, right) in inner.keys.iter_mut().zip(right) {
            watched.right.push(*right);
        }
    }

    /// Reports a store to `place`.
    ///
    /// # Panics
    /// When a lookup can return an answer that was correct in no generation since it began.
    pub fn stored(&self, place: Place) {
        let mut inner = self.0.borrow_mut();
        inner.stores += 1;
        inner.stores_all += 1;
        if !inner.places.contains(&place) {
            return;
        }
        for at in 0..inner.keys.len() {
            if let Some(touched) = inner.keys[at].flights.get(&place) {
                let work = touched.iter().map(|(loaded, since)| (loaded.clone(), *since)).collect();
                inner.go_on(at, work);
            }
        }
    }

    /// Reports the end of a grace period.
    pub fn grace(&self) {
        self.0.borrow_mut().restart();
    }

    /// Ends the update.
    ///
    /// # Panics
    /// As [`Self::stored`].
    pub fn end(&self) {
        let mut inner = self.0.borrow_mut();
        inner.done = inner.started;
        inner.begin_lookups();
    }

    /// The numbers of stores reported and of lookup steps tried.
    #[must_use]
    pub fn tried(&self) -> (u64, u64) {
        let inner = self.0.borrow();
        (inner.stores_all, inner.steps)
    }
}

/// The checker listens until this is dropped.
#[derive(Debug)]
pub struct Listening(());

impl Drop for Listening {
    fn drop(&mut self) {
        IS_LISTENING.set(false);
        LISTENER.set(None);
    }
}

impl<K: Key> Inner<K> {
    fn restart(&mut self) {
        self.places.clear();
        self.keys.iter_mut().for_each(Watched::clear);
        self.begin_lookups();
    }

    fn begin_lookups(&mut self) {
        for at in 0..self.keys.len() {
            self.go_on(at, vec![(Vec::new(), self.done)]);
        }
    }

    /// Advances lookups of key `at` (loaded values, first generation) load by load; after each step the lookup also stays in flight.
    fn go_on(&mut self, at: usize, mut work: Vec<(Vec<u64>, usize)>) {
        let (lookup, places, steps) = (&self.lookup, &mut self.places, &mut self.steps);
        let watched = &mut self.keys[at];
        if watched.flying > FLIGHTS_MAX {
            watched.clear();
        }
        while let Some((loaded, since)) = work.pop() {
            if loaded.is_empty()
                && let Err(next) = step(lookup, watched.key, &mut Vec::new(), 0)
            {
                places.insert(next);
                watched.pause(next, &[], since);
            }
            *steps += 1;
            let (end, mut more) = (loaded.len() + 1, loaded);
            match step(lookup, watched.key, &mut more, end) {
                Ok(answer) => {
                    let right = &watched.right[since..=self.started];
                    if !right.contains(&answer) {
                        fail(format_args!(
                            "{} answers {answer} after {} stores and {} loads, where {right:?} were right since the lookup began (generations {since} to {})",
                            watched.key.to_ip(),
                            self.stores,
                            more.len(),
                            self.started
                        ));
                    }
                }
                Err(next) => {
                    if watched.pause(next, &more, since) {
                        places.insert(next);
                        work.push((more, since));
                    }
                }
            }
        }
    }
}

fn step<K>(lookup: &Lookup<K>, key: K, loaded: &mut Vec<u64>, end: usize) -> Result<NextHopId, Place> {
    let mut steps = Steps { loaded, at: 0, end, next: None };
    match (lookup(key, &mut steps), steps.next) {
        (Err(Stopped), Some(next)) => Err(next),
        (Ok(answer), None) => Ok(answer),
        (result, next) => fail(format_args!("a lookup that was stopped goes on: {result:?}, {next:?}")),
    }
}

/// Parameters of the deltas that [`run`] makes.
#[derive(Clone, Debug)]
pub struct Sequences {
    /// The seed of all sequences.
    pub seed: u64,
    /// The number of sequences. Each begins and ends with an empty table.
    pub count: usize,
    /// The prefix lengths used. If they begin with 0, every other sequence has the default route.
    pub lengths: RangeInclusive<u8>,
    /// Next hops are taken from `1..=next_hops`.
    pub next_hops: u32,
}

/// `quick` sequences, or twenty times as many in a full run (`FWD_CONFORMANCE=full`).
#[must_use]
pub fn count(quick: usize) -> usize {
    count_of(quick, quick * 20)
}

/// `quick` sequences, or `full` ones in a full run.
#[must_use]
pub fn count_of(quick: usize, full: usize) -> usize {
    if conformance::Options::from_env().full { full } else { quick }
}

/// Applies sequences of deltas to an engine of one family: only announcements, nests without withdraws, nested withdraws without a
/// replacement, and mixtures. `apply` applies a delta and reports stores and grace periods to `checker`.
///
/// # Panics
/// When a lookup returns an answer that was correct in no generation since it began; the seed, the sequence and its deltas are printed.
pub fn run<K: Key>(plan: &Sequences, checker: &Checker<K>, mut apply: impl FnMut(&FibDelta, &Rib)) {
    for sequence in 0..plan.count {
        let mut maker = Maker::new(plan, sequence);
        checker.watch(&maker.keys, &maker.right());
        let count = 2 + maker.rng.below(4);
        let kind = maker.rng.below(4);
        let mut deltas = Vec::new();
        // An engine must not rely on the RIB to leave out redundant routes.
        let mut rib = if sequence % 2 == 0 { Rib::new() } else { Rib::plain() };
        for at in 0..=count {
            let routes =
                if at == count { K::part(&rib).withdrawn() } else { maker.delta(kind, rib.is_empty()) };
            if routes.is_empty() {
                continue;
            }
            for route in &routes {
                rib.set(K::wrap(route.prefix), route.next_hop);
                maker.oracle.set(route.prefix, route.next_hop);
            }
            deltas.push(routes);
            let history = History { plan, sequence, deltas: &deltas };
            checker.begin(&maker.right());
            let applied: Result<(), std::convert::Infallible> = rib.commit(|delta, rib| {
                apply(delta, rib);
                Ok(())
            });
            checker.end();
            drop((history, applied));
        }
    }
}

struct History<'a, K: Key> {
    plan: &'a Sequences,
    sequence: usize,
    deltas: &'a [Vec<Route<K>>],
}

impl<K: Key> Drop for History<'_, K> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, sequence {}:", self.plan.seed, self.sequence);
            for (at, routes) in self.deltas.iter().enumerate() {
                let routes: Vec<_> =
                    routes.iter().map(|route| format!("{} := {}", route.prefix, route.next_hop)).collect();
                eprintln!("  delta {}: {}", at + 1, routes.join(", "));
            }
        }
    }
}

struct Maker<K: Key> {
    rng: Seeded,
    next_hops: u32,
    prefixes: Vec<Prefix<K>>,
    keys: Vec<K>,
    oracle: Oracle<K>,
}

impl<K: Key> Maker<K> {
    fn new(plan: &Sequences, sequence: usize) -> Self {
        let mut rng = Seeded::new(plan.seed, sequence as u64);
        let base = K::from_high_bits(rng.u128());
        let (low, high) = (*plan.lengths.start(), *plan.lengths.end());
        let mut prefixes: Vec<_> = (0..4).map(|_| Prefix::truncating(base, rng.between(low, high))).collect();
        if low == 0 && sequence % 2 == 1 {
            prefixes[1] = Prefix::DEFAULT;
        }
        let turned = |key: K, bit: u8| {
            K::from_high_bits(key.to_high_bits() ^ 1_u128.checked_shl(127 - u32::from(bit)).unwrap_or(0))
        };
        let mut keys = vec![base];
        for at in 0..prefixes.len() {
            let len = prefixes[at].len();
            if len < K::BITS {
                keys.push(turned(base, len)); // within this prefix, but not within longer ones
            }
            if at % 2 == 0 && len > low {
                let sibling = turned(base, len - 1);
                prefixes.push(Prefix::truncating(sibling, len));
                keys.push(sibling);
            }
        }
        prefixes.sort_unstable();
        prefixes.dedup();
        keys.sort_unstable();
        keys.dedup();
        Self { rng, next_hops: plan.next_hops, prefixes, keys, oracle: Oracle::new() }
    }

    fn right(&self) -> Vec<NextHopId> {
        self.keys.iter().map(|key| self.oracle.lookup(*key)).collect()
    }

    /// Kind 0 announces one route, 1 several, 2 all routes of an empty table (else withdraws several), 3 mixes both.
    fn delta(&mut self, kind: usize, is_empty: bool) -> Vec<Route<K>> {
        let mut chosen = self.prefixes.clone();
        for end in (1..chosen.len()).rev() {
            chosen.swap(end, self.rng.below(end + 1));
        }
        let some = 1 + self.rng.below(chosen.len());
        let withdraws = match kind {
            0 => {
                chosen.truncate(1);
                0
            }
            1 => {
                chosen.truncate(some);
                0
            }
            2 if is_empty => 0,
            2 => {
                chosen.truncate(some);
                100
            }
            _ => {
                chosen.truncate(some);
                40
            }
        };
        let route = |prefix| {
            let next_hop = if self.rng.percent(withdraws) {
                NextHopId::NONE
            } else {
                let id = 1 + self.rng.u32() % self.next_hops.max(1);
                NextHopId::new(id).unwrap_or(NextHopId::NONE)
            };
            Route { prefix, next_hop }
        };
        chosen.into_iter().map(route).collect()
    }
}

#[expect(clippy::panic, reason = "a checker reports by panicking, as tests do")]
fn fail(message: fmt::Arguments<'_>) -> ! {
    panic!("{message}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn id(value: u32) -> NextHopId {
        NextHopId::new(value).unwrap_or(NextHopId::NONE)
    }

    /// Two words looked up in this order: a longer route, absent, and a shorter one with next hop 1.
    fn two_words() -> (Rc<[AtomicU32; 2]>, Checker<u32>) {
        let words: Rc<[AtomicU32; 2]> = Rc::new([AtomicU32::new(0), AtomicU32::new(1)]);
        let table = Rc::clone(&words);
        let checker = Checker::new(move |_, steps| {
            let longer = steps.word(&table[0])?;
            Ok(id(if longer == 0 { steps.word(&table[1])? } else { longer }))
        });
        checker.watch(&[7], &[id(1)]);
        (words, checker)
    }

    fn both(checker: &Checker<u32>, words: &[AtomicU32; 2], between: impl FnOnce()) {
        let store = |at: usize, value| {
            words[at].store(value, Ordering::Relaxed);
            checker.stored(Place::from_ref(&words[at]));
        };
        checker.begin(&[id(2)]);
        store(0, 2);
        between();
        store(1, 3);
        checker.end();
    }

    #[test]
    fn a_grace_period_between_the_stores_makes_it_right() {
        let (words, checker) = two_words();
        both(&checker, &words, || checker.grace());
        assert_eq!(checker.tried().0, 2);
    }

    #[test]
    #[should_panic(expected = "0.0.0.7 answers 3")]
    fn a_missing_grace_period_is_found() {
        let (words, checker) = two_words();
        both(&checker, &words, || {});
    }

    /// The first delta ends before the second begins, and a lookup is in flight during both.
    #[test]
    #[should_panic(expected = "were right since the lookup began (generations 0 to 2)")]
    fn a_lookup_outlasts_a_delta() {
        let (words, checker) = two_words();
        both(&checker, &words, || {
            checker.end();
            checker.begin(&[id(2)]);
        });
    }

    #[test]
    fn sequences_begin_and_end_empty_and_nest() {
        let plan = Sequences { seed: 1, count: 40, lengths: 4..=32, next_hops: 9 };
        let checker = Checker::<u32>::new(|_, _| Ok(NextHopId::NONE));
        let mut maker = Maker::<u32>::new(&plan, 0);
        assert!(maker.prefixes.len() >= 3 && maker.keys.len() >= 3);
        assert!(maker.delta(1, true).iter().all(|route| !route.next_hop.is_none()));
        let nothing = std::panic::AssertUnwindSafe(|| run(&plan, &checker, |_, _| {}));
        let found = std::panic::catch_unwind(nothing);
        assert!(found.is_err(), "an engine that does nothing");
    }
}
