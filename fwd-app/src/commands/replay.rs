//! `fwd-app replay`: drives the forwarder with a capture, and measures it.

use super::{start_eal, tables, traffic};
use crate::cli::args::ReplayArgs;
use crate::cli::config::show::Shown;
use crate::console::{self, Console, Telemetry};
use crate::error::ConfigError;
use crate::forwarder::Forwarder;
use crate::forwarder::Signals;
use crate::forwarder::service::Service;
use crate::forwarder::updates::VrfUpdate;
use crate::harness::reference::{Reference, vrfs_of_frames};
use crate::harness::setup::{self, Lcores, Sizes};
use crate::harness::trace::Trace;
use crate::harness::verify::{Verifier, VrfReferences};
use crate::harness::{HarnessSpec, Replay, ReplayOutcome, has_fragments, ports};
use crate::ports::PortTable;
use crate::report::console::warn;
use crate::report::made::MadeReport;
use crate::report::periodic::Periodic;
use crate::report::{LatencyNs, Setup, Summary, TraceReport, Verify};
use crate::routes::Vrf;
use crate::routes::spec::{VrfSpec, vrfs_of_ports};
use crate::topology::plan::PlanError;
use crate::topology::queue_spec::{QueueEntry, QueuePort, QueueSite};
use crate::topology::{Handle, QueueMap, QueueSpec, Settings};
use anyhow::Context as _;
use dpdk_ffi::Port;
use fib::host::Host;
use std::sync::Arc;

/// Replays the trace and reports.
///
/// # Errors
/// When the replay cannot be set up or run, and as [`Summary::judge`].
pub(super) fn main(args: &ReplayArgs, shown: &[Shown]) -> anyhow::Result<()> {
    let signals = Signals::take_over().context("cannot take over signals")?;
    let (spec, forward) = (args.harness.spec(args.updates.spec()), args.forward.spec());
    let topology = forward.topology(&args.tables.spec().engine);
    let host = Host::here();
    let cpus = host.cpus_allowed();
    let ports = ports(spec.ports);
    let map = forward.config.as_ref().map(|config| queue_map(config, &ports)).transpose()?;
    let lcores = Lcores::new(&spec, topology, map.as_ref(), cpus.len())?;
    let vrf_specs = VrfSpec::all(&args.vrfs.vrf, &args.vrfs.vrf_fib)?;
    let port_vrfs = vrfs_of_ports(&vrf_specs, &ports.ports)?;
    let updates = super::updates(&args.updates, &vrf_specs)?;
    let mut forwarder = tables::open_to_forward(&args.tables, &vrf_specs)?;
    let (trace, made) = traffic::packets(args, forwarder.main().rib(), ports.ports[0].mac)?;
    let (trace, file) = (Arc::new(trace), source(args));
    warn_of(&file, &trace, args.traffic.sizes().is_some());
    let ecmp_seed = args.forward.ecmp_seed.unwrap_or(0);
    // Without a limit by time, so that the same packets are fragmented each time.
    let settings = Settings { fragments_max: None, ..forward.settings(forwarder.main()) };
    let plan = lcores.plan(settings.topology, spec.ports)?;
    let vrf_of = vrfs_of_frames(&trace, &plan.inputs, &port_vrfs);
    let verifier = if args.harness.verify {
        Some(verifier(&spec, (&forwarder, ecmp_seed), Arc::clone(&vrf_of), &trace, updates.as_deref())?)
    } else {
        None
    };
    // Fragments are copies, for which packets that lie ready leave no mbufs.
    let is_seen = verifier.is_some() || spec.out.is_some() || has_fragments(&trace);
    let frames = (trace.len(), trace.frame_bytes_max());
    let sizes = Sizes::new(&spec, &lcores, settings.batch, frames, is_seen)?;
    // Counts 2 MB pages.
    let is_free = |memory_mb: u32| host.huge_pages(2048).1 * 2 > u64::from(memory_mb);
    let huge_pages = !args.harness.no_huge && is_free(sizes.memory_mb(true));
    let memory_mb = sizes.memory_mb(huge_pages);
    // Before EAL pins this thread.
    let socket = args
        .forward
        .ctl
        .as_deref()
        .map(|path| super::control_socket(path, super::clients(&args.forward)))
        .transpose()?;
    let eal = start_eal(&setup::eal_arguments(&lcores, &cpus, memory_mb, huge_pages), &signals)?;
    forwarder.set_ports(PortTable { ecmp_seed, ..ports.with_vrfs(port_vrfs) })?;
    forwarder.set_config(super::config_values(shown));
    tables::warn_of_neighbours(&forwarder);
    let updates = updates.as_ref();
    let replay =
        Replay { spec: &spec, settings, trace: &trace, lcores: &lcores, plan: &plan, sizes, updates, vrf_of };
    let tsc_hz = dpdk_ffi::tsc_hz(&eal);
    let setup = Setup::new(settings, &plan, lcores.workers.len(), huge_pages);
    let telemetry = Telemetry::register(&eal)?;
    let serve = |service: Service, running: &Handle, ports: &[Port]| {
        let site = console::Site::new(ports, &plan, setup.clone(), tsc_hz);
        let mut console = Console::new(socket, telemetry, site, None);
        console.capture_drops(args.forward.capture_drops.as_ref(), running)?;
        Ok(service.with_requests(move |forwarder| console.turn(forwarder)))
    };
    let mut periodic = Periodic::new(args.forward.stats_period, forwarder.rates());
    let housekeeping = |running: &_| periodic.tick(running, signals.stats_wanted());
    let mut outcome = replay.run(&eal, forwarder, verifier, &signals, housekeeping, serve)?;
    let update_error = outcome.update_error.take();
    let mut summary = summary(args, (&trace, file, made), sizes, outcome, setup, tsc_hz);
    summary.engine.update_error = update_error.as_ref().map(|error| format!("{error:#}"));
    summary.publish(args.forward.json.as_deref(), args.forward.hgrm.as_deref(), &signals)?;
    summary.judge()?;
    update_error.map_or(Ok(()), Err)
}

/// Which lcore serves which queue of the ports of a replay.
fn queue_map(config: &QueueSpec, ports: &PortTable) -> Result<QueueMap, ConfigError> {
    if let Some(entry) = config.entries().iter().find(|entry| matches!(entry, QueueEntry::Auto { .. })) {
        let message = format!(
            "--config ({},auto): the lcores of a replay are named, or --lcores says how many",
            entry.port()
        );
        return Err(ConfigError::Invalid(message));
    }
    let ports: Vec<_> = ports
        .ports
        .iter()
        .map(|port| QueuePort { name: port.name.clone(), node: None, queues_max: setup::QUEUES_MAX })
        .collect();
    let site = QueueSite { ports: &ports, lcores: &[], queues_max: setup::QUEUES_MAX };
    Ok(config.resolve(&site).map_err(PlanError::from)?)
}

/// Where the packets come from, for people.
fn source(args: &ReplayArgs) -> String {
    let made =
        || format!("generated {}", args.traffic.generate.map(|kind| kind.to_string()).unwrap_or_default());
    args.trace.as_ref().map_or_else(made, |path| path.display().to_string())
}

/// Warns about packets that are not there, or not whole; `are_filled`, where they have other sizes now.
fn warn_of(path: &str, trace: &Trace, are_filled: bool) {
    if trace.truncated {
        warn(format_args!(
            "{path} is cut short in packet {}; the {} before it are replayed",
            trace.len() + 1,
            trace.len()
        ));
    }
    if trace.snapped > 0 && !are_filled {
        warn(format_args!(
            "{path} has only the first bytes of {} packets; --sizes original fills them with zeros",
            trace.snapped
        ));
    }
}

fn verifier(
    spec: &HarnessSpec,
    (forwarder, ecmp_seed): (&Forwarder, u64),
    vrf_of: Arc<[usize]>,
    trace: &Trace,
    updates: Option<&[VrfUpdate]>,
) -> anyhow::Result<Verifier> {
    let reference = |vrf: &Vrf| {
        let reference = Reference::new(vrf.rib(), ports(spec.ports).egress(), ecmp_seed);
        (reference, vrf.hops().clone())
    };
    let tables = VrfReferences::new(forwarder.vrfs().iter().map(reference).collect(), vrf_of);
    let updates = updates.map(|updates| (updates, spec.updates.loops));
    Verifier::new(tables, trace, updates)
}

/// The summary of the forwarder, with the numbers that only the harness has.
fn summary(
    args: &ReplayArgs,
    (trace, file, made): (&Trace, String, MadeReport),
    sizes: Sizes,
    outcome: ReplayOutcome,
    setup: Setup,
    tsc_hz: u64,
) -> Summary {
    let ReplayOutcome { ended, forwarder, fed, reordered, latency, verified, .. } = outcome;
    let mut summary = Summary::new("replay", &forwarder, &ended, setup, tsc_hz);
    let packets = &mut summary.packets;
    packets.reordered = reordered;
    // The forwarder counts packets it received, the harness packets it fed: the difference is still in a ring, and counts as held.
    packets.held += fed.saturating_sub(packets.rx);
    packets.rx = packets.rx.max(fed);
    if let Some(latency) = latency {
        summary.latency_ns = LatencyNs::new(latency.histogram(), "intended send time to arrival");
        summary.histogram = latency.histogram().clone();
    }
    summary.verify = Verify { checked: verified.checked, mismatches: verified.mismatches };
    summary.truncated = trace.truncated;
    summary.trace = Some(TraceReport {
        file,
        made,
        packets: trace.len(),
        snapped: trace.snapped,
        loops: args.harness.duration.map_or(args.harness.loops, |_| fed.div_ceil(trace.len().max(1) as u64)),
        rate: args.harness.rate.to_string(),
        packets_from: if sizes.ready_turns.is_some() { "ready mbufs" } else { "copies" },
        fed,
    });
    summary
}
