//! `fwd-app replay`: drives the forwarder with a capture, and measures it.
//!
//! The stages are those of `run`, over `net_ring` ports: the [`feeder`] puts packets in the ports' RX rings, the [`sink`] takes
//! them from their TX rings. Both are polled by the main lcore; the forwarder's stages run on lcores of their own, or, on a
//! single CPU, are polled in turn with them.
//!
//! | module | what lives there |
//! |---|---|
//! | [`trace`] | the capture in memory |
//! | [`setup`] | lcores, queues, sizes, EAL arguments |
//! | [`schedule`] | when each packet is meant to be sent |
//! | [`feeder`] | packets into the forwarder |
//! | [`sink`] | packets out of it: order, latency, captures |
//! | [`mod@reference`] | what must become of a packet, by the definition |
//! | [`verify`] | `--verify`: the results against the reference |
//! | [`updates`] | `--updates`: routes that change meanwhile |
//! | [`harness`] | the ports, rings and pools, and the loop |

mod feeder;
mod harness;
pub(crate) mod reference;
mod schedule;
mod setup;
mod sink;
pub(crate) mod trace;
mod updates;
mod verify;

use crate::cli::args::ReplayArgs;
use crate::cli::exit::CliError;
use crate::cli::message::warn;
use crate::cli::values::QueueMap;
use crate::control::Signals;
use crate::datapath::EgressPort;
use crate::report::{EngineReport, LatencyNs, PortReport, Setup, Summary, Totals, TraceReport, Verify};
use crate::tables::Tables;
use crate::topology::plan::Input;
use anyhow::{Context as _, bail};
use dpdk_ffi::Eal;
use fib::MacAddr;
use fib::feed::Update;
use reference::{Reference, ReferencePort};
use setup::{Lcores, Sizes};
use std::sync::Arc;
use trace::Trace;
use verify::Verifier;

/// The MTU of a replay's ports, bytes of IP packet.
const MTU_BYTES: u16 = 1500;

/// Replays the trace and reports.
///
/// # Errors
/// When it cannot be done; when nothing was sent; when a result was wrong; when a packet was lost track of or overtaken; when a stage
/// panicked.
pub(crate) fn main(args: &ReplayArgs) -> anyhow::Result<()> {
    let signals = Signals::take_over().context("cannot take over signals")?;
    let mut args = args.clone();
    args.forward.settle_topology(&args.tables.engine);
    let cpus = setup::cpus_allowed();
    let lcores = Lcores::new(&args, cpus.len())?;
    let trace = Arc::new(Trace::load(&args.trace)?);
    warn_of(&args, &trace);
    let updates = args.harness.updates.as_deref().map(updates::load).transpose()?;
    let tables = Tables::load(&args.tables)?;
    crate::tables::warn_of_pages();
    crate::tables::warn_of_neighbours(&tables.hops);
    args.forward.settle_batch(&args.tables.engine, tables.batch_measured());
    let args = &args;
    let ports = egress_ports(args.harness.ports);
    let verifier = verifier(args, &tables, &trace, updates.as_deref())?;
    let rings =
        u64::from(args.harness.ports) * (lcores.workers.len() as u64 + 1) + lcores.config.len() as u64;
    let sizes = Sizes::new(args, lcores.config.len(), lcores.workers.len(), trace.frame_bytes_max(), rings)?;
    let huge_pages = !args.harness.no_huge && setup::huge_pages_free(sizes.memory_mb(true));
    let memory_mb = sizes.memory_mb(huge_pages);
    let eal = Eal::init(&setup::eal_arguments(&lcores, &cpus, memory_mb, huge_pages))
        .context("DPDK does not start; its reason is above, `fwd-app check` may help")?;
    signals.drain_on_stop().context("cannot take over signals")?;
    let replay = harness::Replay {
        args,
        trace: &trace,
        lcores: &lcores,
        sizes,
        ports: &ports,
        updates: updates.as_ref(),
    };
    let mut outcome = replay.run(&eal, tables, verifier, &signals)?;
    let update_error = outcome.update_error.take();
    let mut summary = summary(args, &trace, &lcores, huge_pages, &eal, outcome);
    summary.engine.update_error = update_error.as_ref().map(|error| format!("{error:#}"));
    summary.publish(&args.forward, &signals)?;
    judge(&summary)?;
    update_error.map_or(Ok(()), Err)
}

fn warn_of(args: &ReplayArgs, trace: &Trace) {
    let path = args.trace.display();
    if trace.truncated {
        warn(format_args!(
            "{path} is cut short in packet {}; the {} before it are replayed",
            trace.len() + 1,
            trace.len()
        ));
    }
    if trace.snapped > 0 {
        warn(format_args!("{path} has only the first bytes of {} packets", trace.snapped));
    }
}

/// The ports of a replay: `net_ring0`, .. with MACs `02:f0:00:00:00:PP`.
fn egress_ports(count: u16) -> Vec<EgressPort> {
    let port = |i: u16| {
        let [high, low] = i.to_be_bytes();
        let mac = MacAddr([0x02, 0xf0, 0, 0, high, low]);
        EgressPort { name: harness::port_name(i), mac, mtu_bytes: MTU_BYTES, destination: None }
    };
    (0..count).map(port).collect()
}

fn verifier(
    args: &ReplayArgs,
    tables: &Tables,
    trace: &Trace,
    updates: Option<&[Update]>,
) -> anyhow::Result<Option<Verifier>> {
    if !args.harness.verify {
        return Ok(None);
    }
    let port = |port: EgressPort| ReferencePort {
        name: port.name,
        mac: port.mac,
        mtu_bytes: u32::from(port.mtu_bytes),
    };
    let ports = egress_ports(args.harness.ports).into_iter().map(port).collect();
    let reference = Reference::new(&tables.rib, ports);
    let updates = updates.map(|updates| (updates, args.harness.update_loops));
    Verifier::new(reference, &tables.hops, trace, updates).map(Some)
}

fn summary(
    args: &ReplayArgs,
    trace: &Trace,
    lcores: &Lcores,
    huge_pages: bool,
    eal: &Eal,
    outcome: harness::Outcome,
) -> Summary {
    let tsc_hz = dpdk_ffi::tsc_hz(eal);
    let totals = Totals::new(&outcome.stages, tsc_hz);
    let mut packets = totals.packets();
    packets.reordered = outcome.reordered;
    // What is in a ring still is inside: the forwarder counts what it took, the harness what it fed.
    packets.held += outcome.fed.saturating_sub(packets.rx);
    packets.rx = packets.rx.max(outcome.fed);
    let (latency, measured) = match outcome.latency {
        Some(latency) => (latency, "intended send time to arrival"),
        None => (totals.latency.clone(), "rx to tx"),
    };
    let mut engine = EngineReport::new(&outcome.tables);
    (engine.generations_applied, engine.updates_applied) = (outcome.deltas, outcome.updates);
    let config = QueueMap(lcores.config.clone()).to_string();
    Summary {
        command: "replay",
        version: env!("CARGO_PKG_VERSION"),
        rate: totals.rate(outcome.duration_s, tsc_hz),
        latency_ns: LatencyNs::new(latency.histogram(), measured),
        stages: totals.stages(tsc_hz),
        engine,
        setup: Setup::new(&args.forward, config, lcores.workers.len(), huge_pages),
        verify: Verify { checked: outcome.verified.checked, mismatches: outcome.verified.mismatches },
        trace: Some(TraceReport {
            file: args.trace.display().to_string(),
            packets: trace.len(),
            snapped: trace.snapped,
            loops: args.harness.loops,
            rate: args.harness.rate.to_string(),
            fed: outcome.fed,
        }),
        truncated: trace.truncated,
        ports: outcome.ports,
        histogram: latency.histogram().clone(),
        packets,
        panic: outcome.panicked.map(|panic| panic.to_string()),
    }
}

/// Whether the replay did what it is for.
fn judge(summary: &Summary) -> anyhow::Result<()> {
    if let Some(panic) = &summary.panic {
        bail!("{panic}");
    }
    let packets = &summary.packets;
    if !packets.is_conserved() || packets.held > 0 {
        let drops: u64 = packets.drops.values().sum();
        bail!(
            "packets were lost track of: {} rx, but {} tx, {drops} dropped and {} held",
            packets.rx,
            packets.tx,
            packets.held
        );
    }
    if packets.reordered > 0 {
        bail!("{} packets overtook one of their own queue and port", packets.reordered);
    }
    if summary.verify.mismatches > 0 {
        bail!("{} of {} results differ from the oracle's", summary.verify.mismatches, summary.verify.checked);
    }
    if let Some(error) = &summary.engine.error {
        bail!("{error}");
    }
    if packets.tx == 0 {
        bail!("nothing was sent: all of {} packets were dropped; the drop reasons say why", packets.rx);
    }
    Ok(())
}

impl From<crate::datapath::EgressError> for CliError {
    fn from(error: crate::datapath::EgressError) -> Self {
        Self::NoDevice(error.to_string())
    }
}

/// What a port's driver counted, for every port.
fn port_reports(ports: &[dpdk_ffi::Port], inputs: &[Input]) -> Vec<PortReport> {
    let receives = |index| inputs.iter().any(|input| input.port == index);
    (0..).zip(ports).map(|(index, port)| PortReport::new(port, receives(index))).collect()
}
