//! Helpers for the tests of all crates: requirements on the host, real tables, engines that follow real updates.

pub mod docs;

use crate::feed::{self, LoadOptions};
use crate::oracle::OraclePair;
use crate::{
    EngineReader, EngineWriter, Family, FibDelta, Key, KeyBuffer, NextHopId, NextHopTable, Prefix, Rib,
};
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Prints that a test is skipped, and why.
///
/// # Panics
/// When the environment variable `FWD_REQUIRE` (a comma list such as `avx512f,gpu`) names `missing`.
pub fn skip(missing: &str, why: impl Display) {
    let required = std::env::var("FWD_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|name| name.trim().eq_ignore_ascii_case(missing));
    assert!(!is_required, "FWD_REQUIRE names {missing}: {why}");
    eprintln!("SKIPPED: {why}");
}

/// The files `names` in the folder of real tables that `FWD_DATA` names; `None`, with a message, if one is missing.
#[must_use]
pub fn data<const N: usize>(names: [&str; N]) -> Option<[PathBuf; N]> {
    let Some(folder) = std::env::var_os("FWD_DATA").map(PathBuf::from) else {
        eprintln!("SKIPPED: {}: FWD_DATA names no folder of real tables", names.join(", "));
        return None;
    };
    let paths = names.map(|name| folder.join(name));
    if let Some(missing) = paths.iter().find(|path| !path.exists()) {
        eprintln!("SKIPPED: {} is not there", missing.display());
        return None;
    }
    Some(paths)
}

/// The routes of `files`.
#[must_use]
#[expect(clippy::unwrap_used, reason = "a test fails loudly")]
pub fn load(files: &[PathBuf]) -> Rib {
    let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
    feed::load(files, &mut rib, &mut hops, LoadOptions::default()).unwrap();
    rib
}

/// Loads the files `tables` into `engines`, then applies the updates of `stream`, `batch` per delta, with at most `next_hops` next hops. After
/// each delta the engines must answer as an oracle at both ends of the changed prefixes, finally of all. Returns the RIB. All get the same
/// deltas: either all or none must want fewer routes.
///
/// # Panics
/// When an engine refuses a delta or answers wrongly, or a file cannot be read.
#[expect(clippy::unwrap_used, reason = "a test fails loudly")]
pub fn follow(
    engines: &mut [Box<dyn EngineWriter>],
    tables: &[PathBuf],
    stream: &Path,
    (next_hops, batch): (u32, usize),
) -> Rib {
    let (mut loaded, mut hops) = (Rib::plain(), NextHopTable::new());
    feed::load(tables, &mut loaded, &mut hops, LoadOptions::default()).unwrap();
    let one_of = |next_hop: NextHopId| match next_hop.is_none() {
        true => next_hop,
        false => NextHopId::from_answer(1 + next_hop.get() % next_hops),
    };
    let wants_fewer = |engine: &dyn EngineWriter| engine.info().wants_fewer_routes;
    assert!(engines.windows(2).all(|two| wants_fewer(two[0].as_ref()) == wants_fewer(two[1].as_ref())));
    let mut rib = Rib::for_engine(engines[0].as_ref());
    for (prefix, next_hop) in loaded.v4.iter() {
        rib.v4.set(prefix, one_of(next_hop));
    }
    for (prefix, next_hop) in loaded.v6.iter() {
        rib.v6.set(prefix, one_of(next_hop));
    }
    let mut oracle = OraclePair::default();
    let mut readers: Vec<_> = engines.iter().map(|engine| engine.reader(1, 256).unwrap()).collect();
    let mut commit = |rib: &mut Rib, step| {
        let delta = commit_to_all(rib, engines);
        oracle.apply(&delta);
        check(&mut readers, &oracle, &delta, step);
    };
    commit(&mut rib, 7);
    let mut count = 0;
    for update in feed::updates(stream, None).unwrap() {
        let update = update.unwrap();
        let next_hop = one_of(update.next_hop(&mut hops).unwrap());
        let has_table = match update.prefix.family() {
            Family::V4 => !loaded.v4.is_empty(),
            Family::V6 => !loaded.v6.is_empty(),
        };
        if has_table {
            rib.set(update.prefix, next_hop);
            count += 1;
            if count % batch == 0 {
                commit(&mut rib, 1);
            }
        }
    }
    commit(&mut rib, 1);
    // Compared with a new oracle of the RIB, as the other one followed the deltas.
    check(&mut readers, &OraclePair::from(&rib), &rib.full_delta(), 5);
    for engine in engines {
        println!("{}, {count} updates: {:?}", engine.info().name, engine.stats());
    }
    rib
}

/// Commits `rib` to all of `engines`. Returns the delta.
#[expect(clippy::unwrap_used, reason = "a test fails loudly")]
pub fn commit_to_all(rib: &mut Rib, engines: &mut [Box<dyn EngineWriter>]) -> FibDelta {
    let apply = |delta: &FibDelta, rib: &Rib| {
        engines.iter_mut().try_for_each(|engine| engine.apply(delta, rib).map(drop)).map(|()| delta.clone())
    };
    rib.commit(apply).unwrap()
}

fn check(readers: &mut [Box<dyn EngineReader>], oracle: &OraclePair, delta: &FibDelta, step: usize) {
    check_keys(readers, oracle, delta.v4.iter().step_by(step).map(|change| change.prefix));
    check_keys(readers, oracle, delta.v6.iter().step_by(step).map(|change| change.prefix));
}

#[expect(clippy::unwrap_used, reason = "a test fails loudly")]
fn check_keys<K: Key>(
    readers: &mut [Box<dyn EngineReader>],
    oracle: &OraclePair,
    prefixes: impl Iterator<Item = Prefix<K>>,
) {
    let keys: Vec<K> = prefixes.flat_map(|prefix| [prefix.address(), prefix.last_address()]).collect();
    let batch: KeyBuffer = keys.iter().copied().collect();
    let (mut answers, mut right) = (vec![NextHopId::NONE; keys.len()], vec![NextHopId::NONE; keys.len()]);
    oracle.answer(batch.keys(), &mut right);
    for (at, reader) in readers.iter_mut().enumerate() {
        answers.fill(NextHopId::MAX);
        reader.lookup(batch.keys(), &mut answers).unwrap();
        for ((key, answer), right) in keys.iter().zip(&answers).zip(&right) {
            assert_eq!(answer, right, "{}, engine {at}", key.to_ip());
        }
    }
}
