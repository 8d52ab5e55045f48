//! For tests: sessions over the bundled routes, and an engine that panics in lookups.
//!
//! DPDK has one EAL a process, which keeps its pools until the end. So a test with lcores runs in its own process
//! (`rusty_fork_test`), which is killed if it hangs. Its lcores are those of [`dpdk_ffi::testing::eal`]: 0 to 3, and 0 is the main
//! one.

use super::{ForwardSpec, Session, TableSpec};
use crate::engines::EngineSpec;
use crate::topology::{QueueLcore, QueueMap, TopologyKind};
use fib::faulty::{Faults, FaultyEngine};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The panic message of the lookups of [`dying_session`].
pub(crate) const LAST_WORDS: &str = "an invariant, broken on purpose";

/// A file of the bundled captures.
pub(crate) fn bundled(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../pcap").join(name)
}

/// The default forwarding options, with the lcores of `tuples`.
pub(crate) fn forward_spec(topology: TopologyKind, tuples: &[(u16, u16, u16)]) -> ForwardSpec {
    let tuples = tuples.iter().map(|&(port, queue, lcore)| QueueLcore { port, queue, lcore });
    let config = Some(QueueMap::new(tuples.collect()).unwrap()).filter(|map| !map.tuples().is_empty());
    ForwardSpec { config, topology: Some(topology), rx_burst: 128, batch: None, flush_us: 20 }
}

/// The bundled routes in the engine `oracle`.
pub(crate) fn session() -> Session {
    session_of("oracle", bundled("routes.txt"))
}

/// The routes of a file in an engine.
pub(crate) fn session_of(engine: &str, file: PathBuf) -> Session {
    let spec = TableSpec { files: vec![file], routes_max: None, engine: EngineSpec::named(engine) };
    Session::open(&spec, &mut |_| ()).unwrap()
}

/// The bundled routes behind an engine whose lookups panic: those of reader number `reader`, or of all readers for `None`.
pub(crate) fn dying_session(reader: Option<u64>) -> Session {
    let mut session = session();
    let faults = Arc::new(Faults::default());
    session.replace_engine(Box::new(FaultyEngine::new(&faults)));
    faults.reader.store(reader.unwrap_or(u64::MAX), Ordering::SeqCst);
    faults.die.store(true, Ordering::SeqCst);
    session
}
