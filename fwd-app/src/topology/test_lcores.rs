//! For tests: an engine that panics in lookups, and what it takes to put it in service.
//!
//! DPDK has one EAL a process and keeps pools until its end, so each such test runs in a process of its own (`rusty_fork_test`), which
//! is killed when it waits for ever. Its lcores are those of [`dpdk_ffi::testing::eal`]: 0 to 3, of which 0 is main.

use crate::cli::args::TableArgs;
use crate::tables::Tables;
use clap::Args;
use fib::EngineWriter as _;
use fib::faulty::{Faults, FaultyEngine};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What lookups of [`dying_tables`] panic with.
pub(crate) const LAST_WORDS: &str = "an invariant, broken on purpose";

/// A file of the bundled captures.
pub(crate) fn bundled(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../pcap").join(name)
}

/// The arguments that `words` are, with the bundled routes.
pub(crate) fn arguments<A: Args>(words: &[&str]) -> A {
    let routes = bundled("routes.txt");
    let fib = ["test", "--engine", "oracle", "--fib", routes.to_str().unwrap()];
    let command = A::augment_args(clap::Command::new("test"));
    A::from_arg_matches(&command.try_get_matches_from(fib.iter().chain(words)).unwrap()).unwrap()
}

/// The bundled routes behind an engine whose lookups panic: those of reader number `reader`, or of all for `None`.
pub(crate) fn dying_tables(args: &TableArgs, reader: Option<u64>) -> Tables {
    let mut tables = Tables::load(args).unwrap();
    let faults = Arc::new(Faults::default());
    let mut engine = Box::new(FaultyEngine::new(&faults));
    engine.apply(&tables.rib.full_delta()).unwrap();
    faults.reader.store(reader.unwrap_or(u64::MAX), Ordering::SeqCst);
    faults.die.store(true, Ordering::SeqCst);
    tables.engine = engine;
    tables
}
