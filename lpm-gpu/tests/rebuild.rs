//! Rebuilds: the duration of their phases, and tables that are built in the background.

#![expect(clippy::unwrap_used, clippy::panic, clippy::float_cmp, reason = "a test")]

mod common;

use common::{draw_keys, engine, id, random_rib, right};
use fib::conformance::skipped;
use fib::oracle::OraclePair;
use fib::random::Seeded;
use fib::{EngineError, EngineWriter, FibDelta, IpPrefix, NextHopId, Prefix, Rib, Routes};
use lpm_gpu::cu::testing;
use lpm_gpu::testing::real_routes;
use std::time::{Duration, Instant};

/// Full tables, or 20,000 random routes of each family.
fn routes() -> Routes {
    real_routes()
        .map_or_else(|| Routes::from(&random_rib(20_000, &mut Seeded::new(3, 0))), |(routes, _)| routes)
}

fn figure(engine: &dyn EngineWriter, name: &str) -> f64 {
    engine.stats().details.get(name).unwrap_or_else(|| panic!("no figure {name}"))
}

#[test]
fn the_phases_of_a_rebuild_are_timed() {
    let _one = testing::exclusive(); // other tests lose the device
    for name in ["gamt", "gale", "sail-gpu"] {
        if skipped(&|| engine(name, &[])) {
            return;
        }
        let mut engine = engine(name, &[]).unwrap();
        let mut rib = Rib::new();
        rib.announce(&routes());
        let start = Instant::now();
        rib.commit(|delta, rib| engine.apply(delta, rib)).unwrap();
        let apply_us = start.elapsed().as_secs_f64() * 1e6;
        let mut sum_us = 0.0;
        for family in ["v4", "v6"] {
            for phase in ["host", "allocate", "upload", "finish"] {
                let us = figure(engine.as_ref(), &format!("{family}_rebuild_{phase}_us"));
                println!("{name} {family} {phase}: {us} us");
                assert_eq!(us, figure(engine.as_ref(), &format!("{family}_rebuild_{phase}_us_max")));
                sum_us += us;
            }
            for phase in ["collect", "plan", "build"] {
                let name_of = format!("gamt_rebuild_{phase}_us_{family}");
                if let Some(us) = engine.stats().details.get(&name_of) {
                    println!("{name} {family} {phase}: {us} us of host");
                    assert!(us <= figure(engine.as_ref(), &format!("{family}_rebuild_host_us")));
                }
            }
        }
        println!("{name}: apply {apply_us:.0} us");
        assert!(
            figure(engine.as_ref(), "v6_rebuild_upload_us") > 0.0,
            "{name}: two tables went to the device"
        );
        assert!(sum_us <= apply_us, "{name}: phases of {sum_us} us in {apply_us} us");
    }
}

/// CPU time of this thread, microseconds.
fn cpu_us() -> u64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    times.split(' ').next().unwrap().parse::<u64>().unwrap() / 1000
}

/// A table of `gamt` that grows, its routes, and random choices.
struct Growing {
    engine: Box<dyn EngineWriter>,
    rib: Rib,
    random: Seeded,
}

impl Growing {
    fn new() -> Self {
        Self { engine: engine("gamt", &[]).unwrap(), rib: Rib::new(), random: Seeded::new(1, 0) }
    }

    fn figure(&self, name: &str) -> f64 {
        figure(self.engine.as_ref(), name)
    }

    /// Applies a delta that adds `routes`. Returns its microseconds, of this thread's CPU time: other programs may run here.
    fn add(&mut self, routes: &[(IpPrefix, NextHopId)]) -> u64 {
        routes.iter().for_each(|(prefix, next_hop)| _ = self.rib.set(*prefix, *next_hop));
        let Self { engine, rib, .. } = self;
        let apply = |delta: &FibDelta, rib: &Rib| {
            let start = cpu_us();
            engine.apply(delta, rib).map(|_| cpu_us() - start)
        };
        rib.commit(apply).unwrap()
    }

    /// Adds routes in new places until a thread builds the next trie of IPv4.
    fn until_building(&mut self) {
        while self.figure("gamt_building_v4") == 0.0 {
            let routes: Vec<_> = (0..10)
                .map(|_| (IpPrefix::V4(Prefix::truncating(self.random.u32(), 28)), id(&mut self.random)))
                .collect();
            self.add(&routes);
            assert!(self.rib.len() < 5000, "a level is half full before that");
        }
    }

    fn check(&mut self) {
        let mut reader = self.engine.reader(1, 4096).unwrap();
        let oracle = OraclePair::from(&self.rib);
        for keys in draw_keys(&self.rib, 4096, &mut self.random) {
            let mut found = vec![NextHopId::NONE; keys.len()];
            reader.lookup(keys.keys(), &mut found).unwrap();
            assert!(found == right(&keys, &oracle));
        }
    }
}

#[test]
fn the_tables_of_a_growing_rib_are_built_in_the_background() {
    let _one = testing::exclusive();
    if skipped(&|| engine("gamt", &[])) {
        return;
    }
    let all = routes();
    let v4 = all.v4.iter().map(|route| (IpPrefix::V4(route.prefix), route.next_hop));
    let v6 = all.v6.iter().map(|route| (IpPrefix::V6(route.prefix), route.next_hop));
    let mut all: Vec<_> = v4.chain(v6).collect();
    let mut table = Growing::new();
    for at in (1..all.len()).rev() {
        all.swap(at, table.random.below(at + 1));
    }
    // As many as a VRF commits at once, of a full table.
    let mut longest_us = [0; 2];
    for part in all.chunks(all.len() / 64) {
        let before = table.figure("rebuilds");
        let us = table.add(part);
        let longest = &mut longest_us[usize::from(table.figure("rebuilds") > before)];
        *longest = us.max(*longest);
    }
    let of = |name: &str| table.figure(&format!("gamt_{name}_v4")) + table.figure(&format!("gamt_{name}_v6"));
    let (builds, early, waits) = (of("builds"), of("early_builds"), of("early_waits"));
    println!(
        "{} routes: {builds} tries, {early} of them in the background, {waits} waits; longest apply {} us, with a rebuild {} us",
        table.rib.len(),
        longest_us[0],
        longest_us[1]
    );
    // The first deltas are larger than the table.
    assert!(early >= builds / 3.0, "{early} of {builds}");
    table.check();
}

#[test]
fn a_fault_while_the_next_table_goes_into_service() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    // A copy fails and is made again; the device is lost.
    for code in [1, 700] {
        let mut table = Growing::new();
        table.until_building();
        mock.fail_call("cuMemcpyHtoDAsync_v2", 0, code);
        // An empty delta calls the driver only if it replaces the table.
        let start = Instant::now();
        let result = loop {
            let (generation, updates) = (table.engine.generation(), table.figure("updates"));
            let result = table.engine.apply(&FibDelta::new(), &table.rib);
            assert_eq!(result.is_err(), table.engine.generation() == generation);
            if table.figure("gamt_early_builds_v4") > 0.0 {
                assert!(table.figure("updates") > updates + 1.0 || code == 700, "no fault");
                break result;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "the next trie is never ready");
            std::thread::yield_now();
        };
        mock.never_fail();
        match (code, result) {
            (1, Ok(_)) => {
                assert_eq!(table.figure("swaps"), 1.0);
                table.check();
                table.until_building();
                table.check();
            }
            (700, Err(EngineError::Device { lost: true, .. })) => {}
            (_, other) => panic!("{code}: {other:?}"),
        }
        drop(table);
        assert_eq!((mock.memory_used(), mock.host_used()), (0, 0), "{code}");
    }
}

#[test]
fn a_table_with_room_stays_in_service_without_memory_for_the_next() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    let mut table = Growing::new();
    table.until_building();
    mock.fail_call("cuMemAllocAsync", 0, 1);
    let (start, mut has_tried) = (Instant::now(), false);
    while !has_tried {
        let mut apply = || table.engine.apply(&FibDelta::new(), &table.rib).unwrap();
        let calls = mock.calls_of(|| _ = apply());
        has_tried = calls.iter().any(|(name, _)| name == "cuMemAllocAsync");
        assert!(start.elapsed() < Duration::from_secs(60), "the next trie is never ready");
        std::thread::yield_now();
    }
    assert_eq!(table.figure("gamt_early_builds_v4"), 0.0, "a table without memory is in service");
    table.engine.apply(&FibDelta::new(), &table.rib).unwrap();
    assert_eq!(table.figure("gamt_early_builds_v4"), 1.0);
    table.check();
}

#[test]
fn an_engine_is_dropped_while_its_next_table_is_built() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    let mut table = Growing::new();
    table.until_building();
    drop(table);
    assert_eq!((mock.memory_used(), mock.host_used()), (0, 0));
}
