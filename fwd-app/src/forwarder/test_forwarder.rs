//! For tests: forwarders over the bundled routes, and an engine that panics in lookups.
//!
//! DPDK has one EAL a process, which keeps its pools until the end. So a test with lcores runs in a separate process (`rusty_fork_test`),
//! which is killed if it hangs. Its lcores are those that [`dpdk_ffi::testing::eal`] makes: 0 to 3, with 0 as the main lcore.

use super::ForwardSpec;
use crate::engines::EngineSpec;
use crate::forwarder::Forwarder;
use crate::forwarder::updates::{UpdateSpec, UpdateStream, VrfUpdate};
use crate::routes::spec::TableSpec;
pub(crate) use crate::routes::test_vrf::bundled;
use crate::topology::queue_spec::QueueEntry;
use crate::topology::{QueueSpec, TopologyKind};
use fib::faulty::{Faults, FaultyEngine};
use fib::feed::{Action, Hop, Update};
use fib::{NextHopId, PortRef};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) const LAST_WORDS: &str = "an invariant, broken on purpose";

pub(crate) fn forward_spec(topology: TopologyKind, tuples: &[(u16, u16, u16)]) -> ForwardSpec {
    let entry = |&(port, queue, lcore): &_| QueueEntry::Queue { port: PortRef::Index(port), queue, lcore };
    let config = QueueSpec::new(tuples.iter().map(entry).collect()).unwrap();
    let config = Some(config).filter(|spec| !spec.entries().is_empty());
    ForwardSpec { config, topology: Some(topology), rx_burst: 128, batch: None, flush_us: 20 }
}

pub(crate) fn forwarder() -> Forwarder {
    forwarder_of("oracle", bundled("routes.txt"))
}

pub(crate) fn forwarder_of(engine: &str, file: PathBuf) -> Forwarder {
    let spec = TableSpec { files: vec![file], routes_max: None, engine: EngineSpec::named(engine) };
    Forwarder::open(&spec, &[], &mut |_| ()).unwrap()
}

/// The bundled routes behind an engine whose lookups panic: for reader number `reader`, or for all readers.
pub(crate) fn dying_forwarder(reader: Option<u64>) -> Forwarder {
    let (forwarder, faults) = faulty_forwarder();
    faults.reader.store(reader.unwrap_or(u64::MAX), Ordering::SeqCst);
    faults.die.store(true, Ordering::SeqCst);
    forwarder
}

pub(crate) fn faulty_forwarder() -> (Forwarder, Arc<Faults>) {
    let mut forwarder = forwarder();
    let faults = Arc::new(Faults::default());
    forwarder.vrf_mut(0).replace_engine(Box::new(FaultyEngine::new(&faults)));
    (forwarder, faults)
}

/// A route that is added and withdrawn 500 times a second without end.
pub(crate) fn endless_updates() -> UpdateStream {
    let update = |action| VrfUpdate {
        vrf: 0,
        update: Update { time_s: 0.0, prefix: "203.0.113.0/24".parse().unwrap(), action, peer: None },
    };
    let updates = [Action::Announce(Hop::Id(NextHopId::new(1).unwrap())), Action::Withdraw].map(update);
    let spec = UpdateSpec { rate: Some(500), loops: u64::MAX, per_commit: 1 };
    UpdateStream::new(Arc::new(updates), spec, Arc::default())
}
