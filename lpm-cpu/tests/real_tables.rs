//! The engines on real tables under a real stream of updates, in the folder that `FWD_DATA` names; without it the test says SKIPPED (the
//! conformance suite's `replay` is its generated likeness).

#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use fib::oracle::Oracle;
use fib::{
    EngineError, EngineOptions, EngineReader, EngineWriter, FibDelta, Isa, Key, KeyBuffer, NextHopId,
    NextHopTable, Rib, feed,
};
use lpm_cpu::{host, sail_b, sail_l, sail_m, sail_u};
use std::path::{Path, PathBuf};

/// The file `name` of `FWD_DATA`, if it is there.
fn data(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("FWD_DATA").map(|folder| PathBuf::from(folder).join(name));
    let path = path.filter(|path| path.exists());
    if path.is_none() {
        eprintln!("SKIPPED: FWD_DATA names no folder with {name}");
    }
    path
}

/// The engine answers as the oracle at both ends of what `delta` changed.
fn check<K: Key>(reader: &mut dyn EngineReader, oracle: &Oracle<K>, delta: &FibDelta, step: usize) {
    let changed = K::changes(delta).iter().step_by(step).map(|change| change.prefix);
    let keys: Vec<K> = changed.flat_map(|prefix| [prefix.address(), prefix.last_address()]).collect();
    let mut answers = vec![NextHopId::NONE; keys.len()];
    let batch: KeyBuffer = keys.iter().copied().collect();
    reader.lookup(batch.keys(), &mut answers).unwrap();
    for (key, answer) in keys.iter().zip(&answers) {
        assert_eq!(*answer, oracle.lookup(*key), "{}", key.to_ip());
    }
}

/// One of the 200 next hops that `next_hop` stands for: the paper's layout has no room for many more.
fn few(next_hop: NextHopId) -> NextHopId {
    if next_hop.is_none() { next_hop } else { NextHopId::from_answer(1 + next_hop.get() % 200) }
}

/// Loads a table and follows the updates of its family, which are committed by the hundred.
fn follow<K: Key>(engine: &mut dyn EngineWriter, table: &PathBuf, stream: &Path) -> Result<(), EngineError> {
    let (mut told, mut hops) = (Rib::plain(), NextHopTable::new());
    feed::load(&[table], &mut told, &mut hops, feed::LoadOptions::default()).unwrap();
    let (mut rib, mut oracle) = (Rib::of(engine), Oracle::<K>::new());
    for (prefix, next_hop) in K::table(&told).iter() {
        rib.set(K::wrap(prefix), few(next_hop));
    }
    let mut reader = engine.reader(1, 256)?;
    let mut commit = |rib: &mut Rib, oracle: &mut Oracle<K>, step| {
        let delta = rib.commit(|delta, rib| engine.apply(delta, rib).map(|_| delta.clone()))?;
        K::changes(&delta).iter().for_each(|change| oracle.set(change.prefix, change.new));
        check(reader.as_mut(), oracle, &delta, step);
        Ok::<(), EngineError>(())
    };
    commit(&mut rib, &mut oracle, 7)?;
    let mut count = 0;
    for update in feed::updates(stream, None).unwrap() {
        let update = update.unwrap();
        let next_hop = few(update.next_hop(&mut hops).unwrap());
        if update.prefix.family() == K::FAMILY {
            rib.set(update.prefix, next_hop);
            count += 1;
        }
        if count % 100 == 99 {
            commit(&mut rib, &mut oracle, 1)?;
        }
    }
    commit(&mut rib, &mut oracle, 1)?;
    check(reader.as_mut(), &oracle, &rib.full_delta(), 5);
    let stats = engine.stats();
    println!(
        "{}, {} routes, {count} updates: {} table bytes, {} of the writer, {:?}",
        engine.info().name,
        stats.routes_v4 + stats.routes_v6,
        stats.table_bytes,
        stats.writer_bytes,
        stats.details
    );
    Ok(())
}

fn paper() -> EngineOptions {
    let parameters = vec![("layout".to_owned(), "paper".to_owned())];
    EngineOptions { parameters, ..EngineOptions::default() }
}

#[test]
fn full_tables_under_real_updates() {
    let names = ["v4-201405.txt.xz", "v4-202401.txt.xz", "updates.20190101.0000.mrt.gz"];
    let [Some(of_2014), Some(of_2024), Some(stream)] = names.map(data) else { return };
    let options = EngineOptions::default();
    let wider = EngineOptions::of(&[("code-bits", "16")]);
    for table in [&of_2014, &of_2024] {
        follow::<u32>(host::make(&options).unwrap().as_mut(), table, &stream).unwrap();
        follow::<u32>(host::make(&wider).unwrap().as_mut(), table, &stream).unwrap();
        follow::<u32>(sail_b::make(&options).unwrap().as_mut(), table, &stream).unwrap();
        follow::<u32>(sail_u::make(&options).unwrap().as_mut(), table, &stream).unwrap();
        follow::<u32>(sail_l::make(&options).unwrap().as_mut(), table, &stream).unwrap();
        follow::<u32>(sail_m::make(&options).unwrap().as_mut(), table, &stream).unwrap();
        // 15 bits are enough for its chunk ids still: 25,420 in 2024.
        follow::<u32>(sail_l::make(&paper()).unwrap().as_mut(), table, &stream).unwrap();
    }
}

#[test]
fn full_ipv6_tables_under_real_updates() {
    let names = ["v6-202401.txt.xz", "updates.20190101.0000.mrt.gz"];
    let [Some(of_2024), Some(stream)] = names.map(data) else { return };
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let options = EngineOptions { isa: Some(isa), ..EngineOptions::default() };
        follow::<u128>(host::make(&options).unwrap().as_mut(), &of_2024, &stream).unwrap();
    }
}
