//! The engine under test and the oracle: every change and every lookup goes to both.

use super::draw::{TestKey, Universe, edges, palette};
use super::options::{MakeEngine, Options};
use crate::oracle::OraclePair;
use crate::random::Seeded;
use crate::{
    EngineError, EngineReader, EngineWriter, Generation, KeyBuffer, Keys, NextHopId, Prefix, Rib, Route,
    Routes, SlotId,
};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::task::Poll;
use std::time::{Duration, Instant};

pub(super) const SLOTS: u16 = 4;
pub(super) const BATCH_MAX: usize = 256;
pub(super) const COLLECT_LIMIT: Duration = Duration::from_secs(60);
const BUSY_POLLS: u32 = 200;
const POLL_WAIT: Duration = Duration::from_micros(20);
/// The edges of at most this many withdraws and as many announcements of a delta are looked up.
const EDGES_MAX: usize = 64;

#[expect(clippy::panic, reason = "a conformance suite reports by panicking, as tests do")]
pub(super) fn fail(message: fmt::Arguments<'_>) -> ! {
    panic!("{message}")
}

/// An engine, two readers of it (one stays idle), and the routes that the engine should hold.
pub(super) struct TestRig {
    pub(super) writer: Box<dyn EngineWriter>,
    pub(super) reader: Box<dyn EngineReader>,
    /// A reader that never looks up, and must not delay a delta.
    _idle: Box<dyn EngineReader>,
    pub(super) oracle: OraclePair,
    pub(super) rib: Rib,
    pub(super) rng: Seeded,
    pub(super) ids: Vec<NextHopId>,
    case: String,
    turn: usize,
    ipv4_only: bool,
    len_v4_max: u8,
    is_full: bool,
}

impl TestRig {
    pub(super) fn new(make: MakeEngine<'_>, group: &'static str, options: Options) -> Self {
        let writer = match make() {
            Ok(writer) => writer,
            Err(error) => fail(format_args!("{group}: the engine could not be made: {error}")),
        };
        let ids = palette(writer.info().capacity);
        assert!(
            ids.len() >= 2,
            "{}: an engine holds at least two next hops: {:?}",
            group,
            writer.info().capacity
        );
        let purpose = group.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(byte));
        let rig = Self {
            reader: reader_of(writer.as_ref(), SLOTS, BATCH_MAX),
            _idle: reader_of(writer.as_ref(), 1, 1),
            writer,
            oracle: OraclePair::default(),
            rib: Rib::new(),
            rng: Seeded::new(options.seed, purpose),
            ids,
            case: group.to_owned(),
            turn: 0,
            ipv4_only: options.ipv4_only,
            len_v4_max: options.len_v4_max,
            is_full: options.full,
        };
        assert_eq!(rig.writer.generation(), Generation(0), "{}: a new engine is at generation 0", rig.name());
        rig.check_stats();
        rig
    }

    pub(super) fn case(&mut self, case: fmt::Arguments<'_>) {
        use fmt::Write as _;
        self.case.clear();
        let _ = self.case.write_fmt(case); // writing to a String cannot fail
    }

    pub(super) fn name(&self) -> String {
        format!("engine {} ({}), {}", self.writer.info().name, self.writer.info().isa, self.case)
    }

    pub(super) fn id(&mut self) -> NextHopId {
        self.ids[self.rng.below(self.ids.len())]
    }

    pub(super) fn id_at(&self, index: usize) -> NextHopId {
        self.ids[index % self.ids.len()]
    }

    pub(super) fn plain(mut self) -> Self {
        assert!(self.rib.is_empty(), "{}: the table is empty still", self.name());
        self.rib = Rib::plain();
        self
    }

    pub(super) fn offered<'a>(&self, routes: &'a Routes) -> Cow<'a, Routes> {
        if !self.ipv4_only && self.len_v4_max == 32 {
            return Cow::Borrowed(routes);
        }
        let v4 = routes.v4.iter().filter(|route| route.prefix.len() <= self.len_v4_max).copied().collect();
        Cow::Owned(Routes { v4, v6: if self.ipv4_only { Vec::new() } else { routes.v6.clone() } })
    }

    /// Announces `routes` to the RIB and applies the resulting delta to the engine. Updates the oracle only if the engine accepts.
    pub(super) fn announce_all(&mut self, routes: &Routes) -> Result<Generation, EngineError> {
        let routes = self.offered(routes);
        let Self { rib, writer, .. } = self;
        rib.announce(&routes);
        let generation = rib.commit(|delta, rib| writer.apply(delta, rib))?;
        self.oracle.announce(&routes);
        Ok(generation)
    }

    /// As [`Self::announce_all`], for routes that the engine must accept.
    pub(super) fn apply(&mut self, routes: &Routes) {
        let before = self.writer.generation();
        match self.announce_all(routes) {
            Ok(generation) => {
                assert_eq!(
                    generation,
                    before.next(),
                    "{}: a delta makes one generation of {before:?}",
                    self.name()
                );
            }
            Err(error) => fail(format_args!(
                "{}: a delta of {} routes announced in addition to {} + {} was refused: {error}",
                self.name(),
                routes.len(),
                self.rib.v4.len(),
                self.rib.v6.len()
            )),
        }
        assert_eq!(self.writer.generation(), before.next(), "{}: generation()", self.name());
    }

    pub(super) fn change<K: TestKey>(&mut self, changes: Vec<Route<K>>) {
        self.apply(&delta_of(changes));
    }

    /// Sets one route in a separate delta; `NONE` withdraws it.
    pub(super) fn set<K: TestKey>(&mut self, prefix: Prefix<K>, next_hop: NextHopId) {
        self.change(vec![Route { prefix, next_hop }]);
    }

    /// Gives each of `prefixes` a random next hop, in one delta.
    pub(super) fn announce<K: TestKey>(&mut self, prefixes: &[Prefix<K>]) {
        let changes = prefixes.iter().map(|prefix| (*prefix, self.id()).into()).collect();
        self.change(changes);
    }

    pub(super) fn withdraw<'a, K: TestKey>(&mut self, prefixes: impl IntoIterator<Item = &'a Prefix<K>>) {
        self.change(prefixes.into_iter().copied().map(Route::withdrawal).collect());
    }

    pub(super) fn universe<K: TestKey>(&mut self, bases: usize) -> Universe<K> {
        Universe::new(bases, !self.is_full, &mut self.rng)
    }

    /// Draws `routes` prefixes from `universe`, with random next hops; repeated prefixes are left out, the rest are in order.
    pub(super) fn drawn<K: TestKey>(&mut self, universe: &Universe<K>, routes: usize) -> Vec<Route<K>> {
        let drawn: BTreeMap<_, _> =
            (0..routes).map(|_| (universe.prefix(&mut self.rng), self.id())).collect();
        drawn.into_iter().map(Route::from).collect()
    }

    pub(super) fn withdraw_all(&mut self) {
        let delta = Routes { v4: self.rib.v4.withdrawn(), v6: self.rib.v6.withdrawn() };
        self.apply(&delta);
        self.check_stats();
    }

    /// Compares engine and oracle on every key. Methods alternate: the slots every second time, else
    /// `lookup` and `lookup_both`, with two parts of the keys, in turn.
    pub(super) fn check<K: TestKey>(&mut self, keys: &[K]) {
        let batch: KeyBuffer = keys.iter().copied().collect();
        let mut answers = vec![NextHopId::MAX; keys.len()];
        self.turn += 1;
        let asked = if self.turn.is_multiple_of(4) {
            let (first, second) = answers.split_at_mut(keys.len() / 3);
            let keys_of = |range| batch.keys().part(range);
            let calls = [(keys_of(0..first.len()), first), (keys_of(keys.len() / 3..keys.len()), second)];
            if let Some(error) = self.reader.lookup_both(calls).into_iter().find_map(Result::err) {
                fail(format_args!("{}: two lookups of {} keys: {error}", self.name(), keys.len()));
            }
            format!("two lookups of {}", keys.len())
        } else if self.turn.is_multiple_of(2) {
            if let Err(error) = self.reader.lookup(batch.keys(), &mut answers) {
                fail(format_args!("{}: lookup of {} keys: {error}", self.name(), keys.len()));
            }
            format!("lookup of {}", keys.len())
        } else {
            let size = [BATCH_MAX, 33, 1 + self.turn % BATCH_MAX, 64][self.turn / 2 % 4];
            self.ask_in_slots(batch.keys(), size, &mut answers);
            format!("batches of {size}")
        };
        self.compare(keys, &answers, &asked);
    }

    /// As [`Self::check`] for keys of both families, which are also looked up together, with equal numbers in a call.
    pub(super) fn check_both(&mut self, keys4: &[u32], keys6: &[u128]) {
        self.check(keys4);
        self.check(keys6);
        let size = [64, 33, BATCH_MAX, 1 + self.turn % 300][self.turn / 2 % 4];
        for (keys4, keys6) in keys4.chunks(size).zip(keys6.chunks(size)) {
            let both: [KeyBuffer; 2] = [keys4.iter().copied().collect(), keys6.iter().copied().collect()];
            let mut answers = [keys4.len(), keys6.len()].map(|len| vec![NextHopId::MAX; len]);
            let [answers4, answers6] = &mut answers;
            let calls = [(both[0].keys(), &mut answers4[..]), (both[1].keys(), &mut answers6[..])];
            if let Some(error) = self.reader.lookup_both(calls).into_iter().find_map(Result::err) {
                fail(format_args!("{}: lookup of both families: {error}", self.name()));
            }
            self.compare(keys4, answers4, "both families");
            self.compare(keys6, answers6, "both families");
        }
    }

    /// Looks up all keys in batches of `batch`, with all slots in flight at once.
    fn ask_in_slots(&mut self, keys: Keys<'_>, batch: usize, answers: &mut [NextHopId]) {
        let starts: Vec<_> = (0..answers.len()).step_by(batch).collect();
        for group in starts.chunks(usize::from(SLOTS)) {
            for (slot, start) in (0..).map(SlotId).zip(group) {
                let end = answers.len().min(start + batch);
                if let Err(error) = self.reader.submit(slot, keys.part(*start..end)) {
                    fail(format_args!("{}: submit of {} keys: {error}", self.name(), end - start));
                }
            }
            for (slot, start) in (0..).map(SlotId).zip(group) {
                let end = answers.len().min(start + batch);
                let part = keys.part(*start..end);
                if let Err(error) = collect(self.reader.as_mut(), slot, part, &mut answers[*start..end]) {
                    fail(format_args!("{}: collect: {error}", self.name()));
                }
            }
        }
    }

    pub(super) fn compare<K: TestKey>(&self, keys: &[K], answers: &[NextHopId], asked: &str) {
        let oracle = K::oracle(&self.oracle);
        for (at, (key, answer)) in keys.iter().zip(answers).enumerate() {
            let right = oracle.longest_match(*key);
            if *answer != right.map_or(NextHopId::NONE, |(_, id)| id) {
                self.differ(*key, *answer, right, format_args!("key {at} of {asked}"));
            }
        }
    }

    #[cold]
    fn differ<K: TestKey>(
        &self,
        key: K,
        answer: NextHopId,
        right: Option<(u8, NextHopId)>,
        asked: fmt::Arguments<'_>,
    ) -> ! {
        let (right, matched) = match right {
            Some((len, id)) => (id, Prefix::truncating(key, len).to_string()),
            None => (NextHopId::NONE, String::from("no route")),
        };
        fail(format_args!(
            "{}: generation {}, {} routes: {} answered {answer}, right is {right} ({matched}); {asked}",
            self.name(),
            self.writer.generation().0,
            K::oracle(&self.oracle).len(),
            key.to_ip(),
        ))
    }

    /// Looks up the edges of `prefixes` and one key within each.
    pub(super) fn check_prefixes<K: TestKey>(&mut self, prefixes: &[Prefix<K>]) {
        let mut keys = Vec::with_capacity(prefixes.len() * 5);
        for prefix in prefixes {
            keys.extend(edges(*prefix));
            keys.push(self.rng.inside(*prefix));
        }
        self.check(&keys);
    }

    pub(super) fn check_delta(&mut self, delta: &mut Routes) {
        self.check_changes::<u32>(delta);
        self.check_changes::<u128>(delta);
    }

    fn check_changes<K: TestKey>(&mut self, delta: &mut Routes) {
        let (gone, set): (Vec<Route<K>>, Vec<Route<K>>) =
            K::routes(delta).iter().partition(|change| change.next_hop.is_none());
        for changes in [gone, set] {
            let step = changes.len().div_ceil(EDGES_MAX).max(1);
            let sampled: Vec<_> = changes.iter().step_by(step).map(|change| change.prefix).collect();
            if !sampled.is_empty() {
                self.check_prefixes(&sampled);
            }
        }
    }

    /// Looks up `count` uniformly random keys of each family, and zero and all ones.
    pub(super) fn check_random(&mut self, count: usize) {
        let mut v4 = vec![0, u32::MAX];
        v4.extend((0..count).map(|_| u32::random(&mut self.rng)));
        let mut v6 = vec![0, u128::MAX];
        v6.extend((0..count).map(|_| u128::random(&mut self.rng)));
        self.check_both(&v4, &v6);
    }

    pub(super) fn check_stats(&self) {
        let stats = self.writer.stats();
        let counted = (stats.routes_v4, stats.routes_v6);
        let right = (self.rib.v4.used_len() as u64, self.rib.v6.used_len() as u64);
        assert_eq!(counted, right, "{}: stats() routes, IPv4 and IPv6", self.name());
    }
}

pub(super) fn delta_of<K: TestKey>(changes: Vec<Route<K>>) -> Routes {
    let mut delta = Routes::new();
    *K::routes(&mut delta) = changes;
    delta
}

pub(super) fn reader_of(writer: &dyn EngineWriter, slots: u16, batch_max: usize) -> Box<dyn EngineReader> {
    match writer.reader(slots, batch_max) {
        Ok(reader) => {
            assert!(
                reader.slots() >= slots && reader.batch_max() >= batch_max,
                "engine {}: a reader of {slots} slots of {batch_max} was asked for, got {} of {}",
                writer.info().name,
                reader.slots(),
                reader.batch_max()
            );
            reader
        }
        Err(error) => fail(format_args!("engine {}: no reader: {error}", writer.info().name)),
    }
}

pub(super) fn collect(
    reader: &mut dyn EngineReader,
    slot: SlotId,
    keys: Keys<'_>,
    out: &mut [NextHopId],
) -> Result<(), EngineError> {
    let (start, mut polls) = (Instant::now(), 0_u32);
    loop {
        if let Poll::Ready(answers) = reader.collect(slot, keys) {
            let answers = answers?;
            assert_eq!(answers.len(), out.len(), "slot {}: as many answers as keys", slot.0);
            out.copy_from_slice(answers);
            return Ok(());
        }
        assert!(start.elapsed() < COLLECT_LIMIT, "slot {}: no answers within {COLLECT_LIMIT:?}", slot.0);
        polls = polls.wrapping_add(1);
        // The thread that computes the answers may want this CPU.
        if polls.is_multiple_of(BUSY_POLLS) { std::thread::sleep(POLL_WAIT) } else { std::hint::spin_loop() }
    }
}
