//! `sail-m` with several FIBs: the conformance suite in one FIB while another changes, and many FIBs against as many oracles.

#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use fib::generate::variation;
use fib::oracle::Oracle4;
use fib::random::Seeded;
use fib::{
    EngineError, EngineInfo, EngineOptions, EngineReader, EngineStats, EngineWriter, FibDelta, FibId, Fibs,
    Generation, Isa, Keys, NextHopId, NextHopTable, Prefix4, Rib, SlotId, conformance, feed,
};
use lpm_core::each_fib::each_fib;
use lpm_cpu::sail_m;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

fn sail_m(isa: Isa, fibs: u32) -> Result<Box<dyn EngineWriter>, EngineError> {
    sail_m::make(&EngineOptions {
        isa: Some(isa),
        ..EngineOptions::with_parameters(&[("fibs", &fibs.to_string())])
    })
}

fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

fn id(id: u32) -> NextHopId {
    NextHopId::from_answer(id)
}

/// Presents one FIB of an engine as an engine with one FIB. Another FIB changes with every delta.
struct OneOf {
    engine: Box<dyn EngineWriter>,
    fib: FibId,
    other: FibId,
    other_rib: Rib,
    rng: Seeded,
    generation: Generation,
}

impl OneOf {
    fn new(engine: Box<dyn EngineWriter>, fib: FibId, other: FibId) -> Self {
        let (other_rib, rng) = (Rib::plain(), Seeded::new(31, 0));
        Self { engine, fib, other, other_rib, rng, generation: Generation::default() }
    }

    fn disturb(&mut self, delta: &FibDelta) -> Result<(), EngineError> {
        let step = delta.v4.len().div_ceil(8).max(1);
        for change in delta.v4.iter().step_by(step) {
            let len = change.prefix.len().max(self.rng.between(8, 32));
            let next_hop = if self.rng.percent(50) { id(1 + self.rng.u32() % 9) } else { NextHopId::NONE };
            self.other_rib.v4.set(Prefix4::truncating(change.prefix.last_address(), len), next_hop);
        }
        self.other_rib.commit(|delta, rib| self.engine.apply_to(self.other, delta, rib)).map(|_| ())
    }
}

impl EngineWriter for OneOf {
    fn info(&self) -> EngineInfo {
        EngineInfo { fibs: 1, ..self.engine.info() }
    }

    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        let is_first = self.rng.percent(50);
        if is_first {
            self.disturb(delta)?;
        }
        self.engine.apply_to(self.fib, delta, rib)?;
        if !is_first {
            self.disturb(delta)?;
        }
        self.generation = self.generation.next();
        Ok(self.generation)
    }

    fn generation(&self) -> Generation {
        self.generation
    }

    fn stats(&self) -> EngineStats {
        let stats = self.engine.stats();
        EngineStats { routes_v4: stats.routes_v4 - self.other_rib.v4.used_len() as u64, ..stats }
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        let reader = self.engine.reader(slots, batch_max)?;
        Ok(Box::new(ReaderOfOne { reader, ids: vec![self.fib], is_each: false }))
    }
}

/// A reader whose keys are all in one FIB, named once a batch and once a key in turn.
struct ReaderOfOne {
    reader: Box<dyn EngineReader>,
    ids: Vec<FibId>,
    is_each: bool,
}

impl ReaderOfOne {
    fn reader_and_fibs(&mut self, keys: usize) -> (&mut dyn EngineReader, Fibs<'_>) {
        self.is_each = !self.is_each;
        self.ids.resize(self.ids.len().max(keys), self.ids[0]);
        let fibs = if self.is_each { Fibs::Each(&self.ids[..keys]) } else { Fibs::One(self.ids[0]) };
        (self.reader.as_mut(), fibs)
    }
}

impl EngineReader for ReaderOfOne {
    fn slots(&self) -> u16 {
        self.reader.slots()
    }

    fn batch_max(&self) -> usize {
        self.reader.batch_max()
    }

    fn submit(&mut self, slot: SlotId, keys: Keys<'_>) -> Result<(), EngineError> {
        let (reader, fibs) = self.reader_and_fibs(keys.len());
        reader.submit_in(slot, fibs, keys)
    }

    fn collect(&mut self, slot: SlotId, keys: Keys<'_>) -> Poll<Result<&[NextHopId], EngineError>> {
        self.reader.collect(slot, keys)
    }

    fn lookup(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<(), EngineError> {
        let (reader, fibs) = self.reader_and_fibs(keys.len());
        reader.lookup_in(fibs, keys, out)
    }
}

fn one_fib_of_several(isa: Isa, fib: u32, other: u32) -> Result<Box<dyn EngineWriter>, EngineError> {
    Ok(Box::new(OneOf::new(sail_m(isa, 3)?, FibId(fib), FibId(other))))
}

fib::conformance_tests!(scalar, ipv4_only, || sail_m(Isa::Scalar, 1));
fib::conformance_tests!(avx2, ipv4_lookups_alone, || sail_m(Isa::Avx2, 1));
fib::conformance_tests!(avx512f, ipv4_lookups_alone, || sail_m(Isa::Avx512f, 1));
fib::conformance_tests!(of_each_fib, ipv4_only, || sail_m(Isa::Scalar, 3)
    .map(|engine| each_fib(engine).swap_remove(1)));
fib::conformance_tests!(scalar_beside, ipv4_only, || one_fib_of_several(Isa::Scalar, 0, 2));
fib::conformance_tests!(avx2_beside, ipv4_lookups_alone, || one_fib_of_several(Isa::Avx2, 1, 0));
fib::conformance_tests!(avx512f_beside, ipv4_lookups_alone, || one_fib_of_several(Isa::Avx512f, 2, 1));

struct Many {
    engine: Box<dyn EngineWriter>,
    reader: Box<dyn EngineReader>,
    ribs: Vec<Rib>,
    oracles: Vec<Oracle4>,
    batches: usize,
}

impl Many {
    fn new(engine: Box<dyn EngineWriter>) -> Self {
        let fibs = engine.info().fibs as usize;
        let reader = engine.reader(2, 300).unwrap();
        let (ribs, oracles) = (vec![Rib::plain(); fibs], vec![Oracle4::new(); fibs]);
        Self { engine, reader, ribs, oracles, batches: 0 }
    }

    fn set_routes(&mut self, fib: FibId, routes: impl Iterator<Item = (Prefix4, NextHopId)>) {
        let rib = &mut self.ribs[fib.0 as usize];
        for (prefix, next_hop) in routes {
            rib.v4.set(prefix, next_hop);
            self.oracles[fib.0 as usize].set(prefix, next_hop);
        }
        rib.commit(|delta, rib| self.engine.apply_to(fib, delta, rib)).unwrap();
    }

    /// Looks up `keys`, each in its FIB, by alternating calls, and compares with the oracles.
    fn check(&mut self, keys: &[(FibId, u32)]) {
        for batch in keys.chunks([300, 1, 64, 33, 129][self.batches % 5]) {
            self.batches += 1;
            let (fibs, keys): (Vec<_>, Vec<_>) = batch.iter().copied().unzip();
            let mut answers = vec![NextHopId::MAX; keys.len()];
            let (fibs_of_batch, keys_of_batch) = (Fibs::Each(&fibs), Keys::V4(&keys));
            if self.batches.is_multiple_of(2) {
                self.reader.lookup_in(fibs_of_batch, keys_of_batch, &mut answers).unwrap();
            } else {
                self.reader.submit_in(SlotId(1), fibs_of_batch, keys_of_batch).unwrap();
                let collected = self.reader.collect(SlotId(1), keys_of_batch).map(Result::unwrap);
                assert!(collected.is_ready(), "an engine on the CPU answers at once");
                let _ = collected.map(|collected| answers.copy_from_slice(collected));
            }
            for ((fib, key), answer) in batch.iter().zip(answers) {
                let right = self.oracles[fib.0 as usize].lookup(*key);
                assert_eq!(answer, right, "{key:#x} in FIB {fib}, {}", self.engine.info().isa);
            }
        }
    }

    fn check_ends(&mut self, prefixes: &[Prefix4]) {
        let fibs = self.engine.info().fibs;
        let ends = prefixes.iter().flat_map(|prefix| [prefix.address(), prefix.last_address()]);
        let keys: Vec<_> = ends.flat_map(|key| (0..fibs).map(move |fib| (FibId(fib), key))).collect();
        self.check(&keys);
    }
}

#[test]
fn sixteen_fibs_against_sixteen_oracles() {
    for isa in isas() {
        let mut many = Many::new(sail_m(isa, 16).unwrap());
        let mut rng = Seeded::new(41, 0);
        let blocks: Vec<u32> = (0..40).map(|_| rng.u32()).collect();
        for _ in 0..if conformance::Options::from_env().full { 20_000 } else { 2000 } {
            let fib = FibId(rng.u32() % 16);
            let mut routes = Vec::new();
            for _ in 0..1 + rng.below(20) {
                let within = blocks[rng.below(blocks.len())] ^ rng.u32() >> rng.between(8, 31);
                let shortest = if rng.percent(2) { 0 } else { 9 };
                let prefix = Prefix4::truncating(within, rng.between(shortest, 32));
                routes.push((prefix, if rng.percent(45) { NextHopId::NONE } else { id(1 + rng.u32() % 99) }));
            }
            let there = many.ribs[fib.0 as usize].v4.prefixes().step_by(7).take(3).collect::<Vec<_>>();
            routes.extend(there.into_iter().map(|prefix| (prefix, NextHopId::NONE)));
            let prefixes: Vec<_> = routes.iter().map(|(prefix, _)| *prefix).collect();
            many.set_routes(fib, routes.into_iter());
            many.check_ends(&prefixes);
        }
        let stats = many.engine.stats();
        let routes: usize = many.ribs.iter().map(|rib| rib.v4.used_len()).sum();
        assert_eq!(stats.routes_v4, routes as u64);
        assert!(stats.details.get("sail_chunks32") > Some(100.0), "{stats:?}");
        for fib in (0..16).map(FibId) {
            let all = many.ribs[fib.0 as usize].v4.withdrawn();
            many.set_routes(fib, all.iter().map(|route| (route.prefix, NextHopId::NONE)));
            let prefixes: Vec<_> = all.iter().map(|route| route.prefix).collect();
            many.check_ends(&prefixes);
        }
        let stats = many.engine.stats();
        let chunks = ["sail_chunks24", "sail_chunks32"].map(|name| stats.details.get(name).unwrap());
        assert_eq!((stats.routes_v4, chunks), (0, [0.0; 2]), "no FIB needs a chunk");
    }
}

/// Variations of one table, and real updates distributed over them. The larger table of 2024 needs `FWD_CONFORMANCE=full`.
#[test]
fn sixteen_full_tables_under_real_updates() {
    let name = if conformance::Options::from_env().full { "v4-202401.txt.xz" } else { "v4-201405.txt.xz" };
    let Some([table, stream]) = fib::testing::data([name, "updates.20190101.0000.mrt.gz"]) else { return };
    let (mut rib, mut hops) = (Rib::plain(), NextHopTable::new());
    feed::load(&[table], &mut rib, &mut hops, feed::LoadOptions::default()).unwrap();
    let mut many = Many::new(sail_m(Isa::detect(), 16).unwrap());
    let vary = |fib, (prefix, next_hop)| (prefix, variation(1, fib, prefix, next_hop));
    for fib in (0..16).map(FibId) {
        many.set_routes(fib, rib.v4.iter().map(|route| vary(fib, route)));
    }
    let some: Vec<_> = rib.v4.prefixes().step_by(61).collect();
    many.check_ends(&some);
    let loaded = many.engine.stats();
    let (mut delta, mut turn) = (Vec::new(), 0);
    for update in feed::updates(&stream, None).unwrap() {
        let update = update.unwrap();
        let next_hop = update.next_hop(&mut hops).unwrap();
        if let fib::IpPrefix::V4(prefix) = update.prefix {
            delta.push((prefix, next_hop));
        }
        if delta.len() == 100 {
            let fib = FibId(turn % 16);
            turn += 1;
            let prefixes: Vec<_> = delta.iter().map(|(prefix, _)| *prefix).collect();
            many.set_routes(fib, delta.drain(..).map(|route| vary(fib, route)));
            many.check_ends(&prefixes[..4]);
            let keys: Vec<_> = prefixes.iter().map(|prefix| (fib, prefix.address())).collect();
            many.check(&keys);
        }
    }
    assert!(turn > 100, "{turn} deltas");
    many.check_ends(&some);
    println!("{loaded:?}\nafter {turn} deltas {:?}", many.engine.stats());
}

struct Race {
    fibs: Vec<FibId>,
    keys: Vec<u32>,
    deltas: Vec<(FibId, Vec<(Prefix4, NextHopId)>)>,
    /// `right[generation][key]`.
    right: Vec<Vec<NextHopId>>,
    /// Generations whose delta was begun, and whose delta has ended.
    started: AtomicUsize,
    done: AtomicUsize,
    is_over: AtomicBool,
}

impl Race {
    const FIBS: u32 = 5;

    fn new(deltas: u32) -> Self {
        let addresses = [0x0a01_0201, 0x0a01_0281, 0x0a01_8301, 0x0a02_0301, 0x0a02_0381];
        let keys = (0..Self::FIBS).flat_map(|fib| addresses.map(|address| (FibId(fib), address)));
        let (fibs, keys): (Vec<_>, Vec<_>) = keys.unzip();
        let mut oracles = vec![Oracle4::new(); Self::FIBS as usize];
        let right = |oracles: &[Oracle4]| -> Vec<NextHopId> {
            fibs.iter().zip(&keys).map(|(fib, key)| oracles[fib.0 as usize].lookup(*key)).collect()
        };
        let mut rng = Seeded::new(51, 0);
        let (mut all, mut rights) = (Vec::new(), vec![right(&oracles)]);
        for at in 0..deltas {
            let fib = FibId(rng.u32() % Self::FIBS);
            let mut routes = Vec::new();
            for _ in 0..1 + rng.below(4) {
                let len = [8, 15, 16, 18, 24, 25, 26, 32][rng.below(8)];
                let next_hop = if rng.percent(45) { NextHopId::NONE } else { id(1 + at) };
                routes.push((Prefix4::truncating(addresses[rng.below(5)], len), next_hop));
            }
            if at % 1000 == 500 {
                // Chunks elsewhere make the table grow.
                let nodes = (at / 1000 * 300..).take(300);
                routes.extend(nodes.map(|node| (Prefix4::truncating(0x2000_0000 + (node << 16), 26), id(1))));
            }
            routes.iter().for_each(|(prefix, id)| oracles[fib.0 as usize].set(*prefix, *id));
            rights.push(right(&oracles));
            all.push((fib, routes));
        }
        let (started, done, is_over) = Default::default();
        Self { fibs, keys, deltas: all, right: rights, started, done, is_over }
    }

    /// Looks up all keys, `copies` times a batch, until the deltas are over. Returns the number of batches.
    fn look_up(&self, reader: &mut dyn EngineReader, copies: usize) -> u64 {
        let (fibs, keys) = (self.fibs.repeat(copies), self.keys.repeat(copies));
        let mut out = vec![NextHopId::NONE; keys.len()];
        let mut batches = 0;
        while !self.is_over.load(Ordering::Acquire) {
            let first = self.done.load(Ordering::SeqCst);
            reader.lookup_in(Fibs::Each(&fibs), Keys::V4(&keys), &mut out).unwrap();
            let last = self.started.load(Ordering::SeqCst);
            for (at, answer) in out.iter().enumerate() {
                let mut right = self.right[first..=last].iter().map(|right| right[at % right.len()]);
                assert!(
                    right.any(|right| right == *answer),
                    "{:#x} in FIB {}: {answer}, generations {first}..={last}",
                    keys[at],
                    fibs[at]
                );
            }
            batches += 1;
        }
        batches
    }

    fn apply(&self, engine: &mut dyn EngineWriter, has_failed: impl Fn() -> bool) {
        let mut ribs = vec![Rib::plain(); Self::FIBS as usize];
        for (at, (fib, routes)) in (1..).zip(&self.deltas) {
            if has_failed() {
                break;
            }
            let rib = &mut ribs[fib.0 as usize];
            for (prefix, next_hop) in routes {
                rib.v4.set(*prefix, *next_hop);
            }
            self.started.store(at, Ordering::SeqCst);
            rib.commit(|delta, rib| engine.apply_to(*fib, delta, rib)).unwrap();
            self.done.store(at, Ordering::SeqCst);
        }
        self.is_over.store(true, Ordering::Release);
    }
}

/// Every answer belongs to a generation between submit and collect.
#[test]
fn readers_of_all_fibs_during_deltas() {
    let deltas = if conformance::Options::from_env().full { 100_000 } else { 10_000 };
    for isa in isas() {
        let race = Race::new(deltas);
        let mut engine = sail_m(isa, Race::FIBS).unwrap();
        let batches: u64 = std::thread::scope(|scope| {
            let readers = [1, 7].map(|copies| {
                let (race, mut reader) = (&race, engine.reader(1, 256).unwrap());
                scope.spawn(move || race.look_up(reader.as_mut(), copies))
            });
            race.apply(engine.as_mut(), || readers.iter().any(|reader| reader.is_finished()));
            readers.into_iter().map(|reader| reader.join().unwrap()).sum()
        });
        let chunks = engine.stats().details.get("sail_chunks24");
        println!("{isa}: {batches} batches during {deltas} deltas, which end with {chunks:?} chunks");
        assert!(batches > 0 && chunks > Some(2000.0));
    }
}

#[test]
fn what_does_not_fit_leaves_every_fib_as_it_was() {
    let mut many = Many::new(
        sail_m::make(&EngineOptions {
            table_bytes_max: 24 << 20,
            ..EngineOptions::with_parameters(&[("fibs", "16")])
        })
        .unwrap(),
    );
    let route = |at: u32| (Prefix4::truncating(0x1000_0000 + (at << 16), 18), id(at + 1));
    for fib in (0..16).map(FibId) {
        many.set_routes(fib, (fib.0..40).map(route));
    }
    let (before, prefixes) = (many.engine.stats(), (0..2000).map(|at| route(at).0).collect::<Vec<_>>());
    let mut rib = many.ribs[3].clone();
    (0..2000).for_each(|at| {
        rib.v4.set(route(at).0, id(7));
    });
    let refused = rib.commit(|delta, rib| many.engine.apply_to(FibId(3), delta, rib)).unwrap_err();
    assert!(matches!(refused, EngineError::Full { what: "table bytes", limit: 25_165_824, .. }), "{refused}");
    assert_eq!(many.engine.stats(), before);
    many.check_ends(&prefixes);
    // Without a reserve, a few more fit.
    many.set_routes(FibId(15), (0..300).map(route));
    many.check_ends(&prefixes);
    assert!(many.engine.stats().table_bytes <= 24 << 20);

    let wide =
        EngineOptions { table_bytes_max: u64::MAX, ..EngineOptions::with_parameters(&[("fibs", "256")]) };
    let mut many = Many::new(sail_m::make(&wide).unwrap());
    let mut rib = Rib::plain();
    (0..1 << 15).for_each(|at| {
        rib.v4.set(Prefix4::truncating(at << 16, 17), id(1));
    });
    let refused = rib.commit(|delta, rib| many.engine.apply_to(FibId(255), delta, rib));
    let what = "chunks of sail-m with so many FIBs";
    assert_eq!(refused, Err(EngineError::Full { what, used: 1 << 15, limit: (1 << 15) - 256 }));
    many.check_ends(&prefixes[..20]);
}

#[test]
fn a_fib_that_is_not_there_is_refused() {
    let mut sail_m = sail_m(Isa::detect(), 4).unwrap();
    let mut host = lpm_cpu::host::make(&EngineOptions::default()).unwrap();
    assert_eq!((sail_m.info().fibs, host.info().fibs), (4, 1));
    for (engine, fibs) in [(sail_m.as_mut(), 4), (host.as_mut(), 1)] {
        let mut rib = Rib::plain();
        rib.set("10.0.0.0/8".parse().unwrap(), id(9));
        let beyond = FibId(fibs);
        let no_fib = Err(EngineError::NoFib { fib: beyond, fibs });
        assert_eq!(rib.commit(|delta, rib| engine.apply_to(beyond, delta, rib)).map(|_| ()), no_fib);
        assert_eq!(engine.generation(), Generation(0));
        let mut reader = engine.reader(1, 4).unwrap();
        let (mut out, mut six) = ([NextHopId::MAX; 2], [NextHopId::MAX; 2]);
        let keys = Keys::V4(&[0x0a00_0001, 0x0a00_0002]);
        let keys6 = Keys::V6 { hi: &[1, 2], lo: &[3, 4] };
        for keys in [keys, keys6] {
            let each = [FibId(0), beyond];
            assert_eq!(reader.lookup_in(Fibs::Each(&each), keys, &mut out), no_fib);
            assert_eq!(reader.lookup_in(Fibs::One(beyond), keys, &mut out), no_fib);
            assert_eq!(reader.submit_in(SlotId(0), Fibs::Each(&each), keys), no_fib);
            let few = Err(EngineError::Batch { keys: 2, limit: 1 });
            assert_eq!(reader.lookup_in(Fibs::Each(&each[..1]), keys, &mut out), few);
            assert_eq!(reader.submit_in(SlotId(0), Fibs::Each(&each[..1]), keys), few);
        }
        rib.set("10.0.0.0/8".parse().unwrap(), id(9));
        rib.commit(|delta, rib| engine.apply_to(FibId::MAIN, delta, rib)).unwrap();
        reader.lookup_in(Fibs::Each(&[FibId(0); 2]), keys, &mut out).unwrap();
        reader.lookup_in(Fibs::One(FibId(fibs - 1)), keys6, &mut six).unwrap();
        assert_eq!((out, six), ([id(9); 2], [NextHopId::NONE; 2]));
    }
    for fibs in ["0", "257", "x"] {
        let refused = sail_m::make(&EngineOptions::with_parameters(&[("fibs", fibs)]));
        assert!(matches!(refused, Err(EngineError::Parameter { parameter: "fibs", .. })));
    }
}

/// A change of one FIB is a run of 64-bit stores in its rows, two next hops a store; a split of a node is stored for every FIB.
#[test]
fn writes_of_one_fib() {
    let mut many = Many::new(sail_m(Isa::detect(), 4).unwrap());
    let prefix = |text: &str| text.parse::<fib::IpPrefix>().unwrap();
    let mut last = [0.0; 2];
    let mut stores = |many: &mut Many, fib: u32, text: &str, next_hop: u32| {
        let fib::IpPrefix::V4(prefix) = prefix(text) else { panic!("{text}") };
        many.set_routes(FibId(fib), std::iter::once((prefix, id(next_hop))));
        many.check_ends(&[prefix]);
        let details = many.engine.stats().details;
        let now = ["sail_onchip_writes", "sail_offchip_writes"].map(|name| details.get(name).unwrap());
        let made = [now[0] - last[0], now[1] - last[1]];
        last = now;
        made
    };
    assert_eq!(stores(&mut many, 0, "10.0.0.0/8", 1), [0.0, 128.0], "256 next hops of FIB 0");
    assert_eq!(stores(&mut many, 1, "10.0.0.0/8", 2), [0.0, 128.0], "and of FIB 1");
    // 4 words of B24 and one of BC16; a row of 256 next hops for each of the two FIBs with routes; 16 next hops.
    assert_eq!(stores(&mut many, 2, "10.7.0.0/20", 3), [5.0, 2.0 * 128.0 + 8.0]);
    assert_eq!(stores(&mut many, 3, "10.7.0.0/20", 4), [0.0, 8.0], "the node is split");
    assert_eq!(stores(&mut many, 3, "10.7.0.0/20", 5), [0.0, 8.0]);
    assert_eq!(stores(&mut many, 2, "10.7.0.0/20", 0), [0.0, 8.0], "FIB 3 needs the chunk still");
    // FIB 3 has no route then. The node's vector has the same values as all entries below: only BC16 is stored.
    assert_eq!(stores(&mut many, 3, "10.7.0.0/20", 0), [1.0, 8.0]);
    assert_eq!(many.engine.stats().details.get("sail_chunks24"), Some(0.0));
}
