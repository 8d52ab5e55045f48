//! Replays of the bundled capture within a test's process.

use super::deal::{Dealer, TracePart};
use super::drive::{Replay, ReplayOutcome};
use super::setup::{Lcores, Sizes};
use super::source::Source;
use super::trace::Trace;
use super::{HarnessSpec, ports};
use crate::forwarder::Forwarder;
use crate::forwarder::Signals;
use crate::forwarder::service::Service;
use crate::forwarder::test_forwarder::forward_spec;
use crate::topology::TopologyKind;
use std::sync::Arc;

pub(super) struct TestReplay<'a> {
    pub(super) trace: &'a Arc<Trace>,
    pub(super) spec: &'a HarnessSpec,
    pub(super) topology: TopologyKind,
    pub(super) cpus: usize,
    pub(super) is_seen: bool,
}

/// Runs a replay through `forwarder`, until it ends or `signals` end it; `None` without DPDK. `serve` may extend the forwarder's service.
pub(super) fn replay_in_process(
    TestReplay { trace, spec, topology, cpus, is_seen }: TestReplay<'_>,
    mut forwarder: Forwarder,
    signals: &Signals,
    serve: impl FnOnce(Service) -> Service,
) -> Option<ReplayOutcome> {
    let eal = dpdk_ffi::testing::eal()?;
    let settings = forward_spec(topology, &[]).settings(forwarder.main());
    forwarder.set_ports(ports(spec.ports)).unwrap();
    let layout = Lcores::new(spec, topology, None, cpus).unwrap();
    let frames = Some((trace.len(), trace.frame_bytes_max()));
    let plan = layout.plan(topology, spec.ports).unwrap();
    let dealer = Dealer::new(&plan.inputs, spec.spread, &[]);
    let source = Source::memory(TracePart::new(Arc::clone(trace), &dealer, None), spec.loops);
    let replay = Replay {
        spec,
        settings,
        lcores: &layout,
        plan: &plan,
        sizes: Sizes::new(spec, &layout, settings.batch, frames, is_seen).unwrap(),
        updates: None,
        vrfs: dealer.vrfs(),
    };
    Some(
        replay
            .run(eal, forwarder, (source, None), signals, |_| (), |service, _, _| Ok(serve(service)))
            .unwrap(),
    )
}
