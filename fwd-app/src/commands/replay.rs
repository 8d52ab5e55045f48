//! `fwd-app replay`: drives the forwarder with a capture, and measures it.

use super::traffic::{self, Packets};
use super::{start_eal, tables, trials};
use crate::cli::args::ReplayArgs;
use crate::cli::config::show::Shown;
use crate::console::{self, Console, Telemetry};
use crate::error::ConfigError;
use crate::forwarder::Forwarder;
use crate::forwarder::Signals;
use crate::forwarder::service::Service;
use crate::forwarder::updates::VrfUpdate;
use crate::harness::deal::{Dealer, TracePart};
use crate::harness::expected::VrfReferences;
use crate::harness::read_ahead::StreamSpec;
use crate::harness::reference::Reference;
use crate::harness::setup::{self, Lcores, Sizes};
use crate::harness::source::Source;
use crate::harness::stream::{ReadWaits, Streamed, TraceStream};
use crate::harness::trace::{Trace, TraceFacts};
use crate::harness::verify::Verifier;
use crate::harness::{HarnessSpec, Replay, ReplayOutcome, has_fragments, ports};
use crate::ports::PortTable;
use crate::report::compare::{Comparison, ReportFile};
use crate::report::console::warn;
use crate::report::periodic::Periodic;
use crate::report::ran::{Ran, RunWork};
use crate::report::trace::{GeneratedReport, StreamReport};
use crate::report::{Setup, Summary, TraceReport, Verify};
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
/// The replay cannot be set up or run, and as [`Summary::judge`].
pub(super) fn main(args: &ReplayArgs, shown: &[Shown]) -> anyhow::Result<()> {
    let signals = Signals::take_over().context("cannot install signal handlers")?;
    let ecmp_seed = args.forward.ecmp_seed.unwrap_or(0);
    let (mut ran, old) = begin(args, shown, ecmp_seed)?;
    let (spec, forward) = (args.harness.spec(args.updates.spec(), &args.search), args.forward.spec());
    spec.check()?;
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
    let (packets, generated) = traffic::packets(args, forwarder.main().rib(), ports.ports[0].mac)?;
    let file = named(args);
    let warn_of = |facts: &_| warn_of(&file, facts, args.traffic.sizes().is_some());
    packets.in_memory().into_iter().for_each(|trace| warn_of(&trace.facts));
    // Without a time limit, so that fragmentation is reproducible.
    let settings = Settings { fragments_max: None, ..forward.settings(forwarder.main()) };
    let plan = lcores.plan(settings.topology, spec.ports)?;
    let dealer = Dealer::new(&plan.inputs, spec.spread, &port_vrfs);
    let tables = args.harness.verify.then(|| references(&spec, &forwarder, ecmp_seed));
    let sizes =
        sizes((&spec, &lcores), settings.batch, packets.in_memory().map(Arc::as_ref), tables.is_some())?;
    ran.work = work(&spec, &forwarder, packets.in_memory().map(Arc::as_ref), sizes, updates.as_deref());
    old.iter().try_for_each(|old| check_work(old, &ran.work))?;
    let vrfs = dealer.vrfs();
    let input = source((packets, &spec), dealer, tables, updates.as_deref(), &signals)?;
    // `huge_pages` counts 2 MB pages.
    let is_free = host.huge_pages(2048).1 * 2 > u64::from(sizes.memory_mb(true));
    let huge_pages = !args.harness.no_huge && is_free;
    let memory_mb = sizes.memory_mb(huge_pages);
    // Before EAL pins this thread.
    let socket = args.forward.ctl.as_deref();
    let socket = socket.map(|path| super::control_socket(path, super::clients(&args.forward))).transpose()?;
    let eal = start_eal(&setup::eal_arguments(&lcores, &cpus, memory_mb, huge_pages), &signals)?;
    forwarder.set_ports(PortTable { ecmp_seed, ..ports.with_vrfs(port_vrfs) })?;
    forwarder.set_audit(args.forward.audit);
    forwarder.config = super::config_values(shown);
    tables::warn_of_neighbours(&forwarder);
    let updates = updates.as_ref();
    let replay = Replay { spec: &spec, settings, lcores: &lcores, plan: &plan, sizes, updates, vrfs };
    let tsc_hz = dpdk_ffi::tsc_hz(&eal);
    let setup = Setup::new(settings, &plan, lcores.workers.len(), huge_pages);
    let telemetry = Telemetry::register(&eal)?;
    let serve = |service: Service, running: &Handle, ports: &[Port]| {
        let site = console::Site::new(ports, &plan, setup.clone(), tsc_hz);
        let mut console = Console::new(socket, telemetry, site, None);
        console.capture_drops(args.forward.capture_drops.as_ref(), running)?;
        Ok(service.with_requests(move |forwarder| console.serve(forwarder)))
    };
    let mut periodic = Periodic::new(args.forward.stats_period, forwarder.rates());
    let housekeeping = |running: &_| periodic.tick(running, signals.stats_wanted());
    let mut outcome = replay.run(&eal, forwarder, input, &signals, housekeeping, serve)?;
    let update_error = outcome.update_error.take();
    let streamed = outcome.streamed.take();
    let stream = streamed.as_ref().map(|streamed| stream_report(streamed, tsc_hz));
    stream.iter().for_each(|_| warn_of(&outcome.trace));
    let searched = trials::judge(&outcome.conducted);
    let mut summary = summary((args, &spec), (file, generated), sizes, outcome, (setup, stream), tsc_hz);
    summary.engine.update_error = update_error.as_ref().map(|error| format!("{error:#}"));
    add_ran(&mut summary, ran, old.as_ref())?;
    summary.publish(super::files(&args.forward), &signals)?;
    streamed.and_then(|streamed| streamed.error).map_or(Ok(()), Err)?;
    summary.judge()?;
    searched?;
    update_error.map_or(Ok(()), Err)
}

/// The description of this run, and the report to compare with, if given.
///
/// # Errors
/// As [`ReportFile::read`].
fn begin(args: &ReplayArgs, shown: &[Shown], ecmp_seed: u64) -> anyhow::Result<(Ran, Option<ReportFile>)> {
    let mut ran = Ran::new(&super::config_values(shown), super::COMMIT).with_seed("ecmp", ecmp_seed);
    ran.seeds.extend(args.traffic.seed_used().map(|seed| ("traffic", seed)));
    let old = args.harness.compare.as_deref().map(ReportFile::read).transpose()?;
    // Fails before the table is loaded, which takes long.
    if let Some(path) = &args.trace {
        std::fs::metadata(path).with_context(|| format!("{}: cannot be opened", path.display()))?;
    }
    Ok((ran, old))
}

fn work(
    spec: &HarnessSpec,
    forwarder: &Forwarder,
    trace: Option<&Trace>,
    sizes: Sizes,
    updates: Option<&[VrfUpdate]>,
) -> RunWork {
    RunWork::from([
        ("command", "replay".into()),
        ("table_hash", tables::hash(forwarder).into()),
        ("trace_hash", trace.map(Trace::hash).into()),
        ("rate", spec.rate.to_string().into()),
        ("ramp_s", spec.ramp.map(|ramp| ramp.as_secs_f64()).into()),
        ("search", spec.search.is_some().into()),
        ("tx_rate", spec.tx_rate.map(|rate| rate.to_string()).into()),
        ("ports", spec.ports.into()),
        ("spread", spec.spread.into()),
        ("packets_from", packets_from(trace.is_some(), sizes).into()),
        ("tx_slow", spec.tx_slow.into()),
        ("updates", updates.map(<[_]>::len).into()),
        ("update_rate", updates.and(spec.updates.rate).into()),
    ])
}

fn check_work(old: &ReportFile, work: &RunWork) -> anyhow::Result<()> {
    let work = serde_json::to_value(work).context("cannot write the work as JSON")?;
    Ok(old.check(&work).map_err(|error| ConfigError::Invalid(format!("--compare: {error}")))?)
}

fn add_ran(summary: &mut Summary, ran: Ran, old: Option<&ReportFile>) -> anyhow::Result<()> {
    summary.ran = Some(ran);
    if let Some(old) = old {
        summary.compared = Some(Comparison::new(old, &summary.json()?));
    }
    Ok(())
}

fn packets_from(are_in_memory: bool, sizes: Sizes) -> &'static str {
    match (are_in_memory, sizes.ready_turns) {
        (false, _) => "the file",
        (true, Some(_)) => "ready mbufs",
        (true, None) => "copies",
    }
}

fn queue_map(config: &QueueSpec, ports: &PortTable) -> Result<QueueMap, ConfigError> {
    if let Some(entry) = config.entries().iter().find(|entry| matches!(entry, QueueEntry::Auto { .. })) {
        let message = format!(
            "--config ({},auto): only `run` chooses lcores; a replay needs their numbers, or --lcores",
            entry.port()
        );
        return Err(ConfigError::Invalid(message));
    }
    let ports: Vec<_> = ports
        .ports
        .iter()
        .map(|port| QueuePort {
            name: port.name.clone(),
            device: port.device.clone(),
            node: None,
            queues_max: setup::QUEUES_MAX,
        })
        .collect();
    let site = QueueSite { ports: &ports, lcores: &[], queues_max: setup::QUEUES_MAX };
    Ok(config.resolve(&site).map_err(PlanError::from)?)
}

/// Sizes of rings and pools for batches of up to `batch` packets. `trace` is `None` for a file; `is_verified`: with `--verify`.
fn sizes(
    (spec, lcores): (&HarnessSpec, &Lcores),
    batch: usize,
    trace: Option<&Trace>,
    is_verified: bool,
) -> Result<Sizes, ConfigError> {
    // Fragments are copies; ready packets would leave no mbufs for them.
    let is_seen = is_verified || spec.out.is_some() || trace.is_some_and(has_fragments);
    let frames = trace.map(|trace| (trace.len(), trace.frame_bytes_max()));
    Sizes::new(spec, lcores, batch, frames, is_seen)
}

fn named(args: &ReplayArgs) -> String {
    let made =
        || format!("generated {}", args.traffic.generate.map(|kind| kind.to_string()).unwrap_or_default());
    args.trace.as_ref().map_or_else(made, |path| path.display().to_string())
}

/// Warns about truncated traces and packets; `are_filled`: packets were padded to other sizes.
fn warn_of(path: &str, trace: &TraceFacts, are_filled: bool) {
    let TraceFacts { frames, snapped, truncated, .. } = *trace;
    if truncated {
        warn(format_args!(
            "{path} is cut short in packet {}; the {frames} before it are replayed",
            frames + 1
        ));
    }
    if snapped > 0 && !are_filled {
        warn(format_args!(
            "{path} has only the first bytes of {snapped} packets; --sizes original fills them with zeros"
        ));
    }
}

fn references(spec: &HarnessSpec, forwarder: &Forwarder, ecmp_seed: u64) -> VrfReferences {
    let reference = |vrf: &Vrf| {
        let reference = Reference::new(vrf.rib(), ports(spec.ports).egress(), ecmp_seed);
        (reference, vrf.hops().clone())
    };
    VrfReferences { vrfs: forwarder.vrfs().iter().map(reference).collect() }
}

/// The source of packets, distributed by `dealer`, and the verifier for `tables`, if given.
///
/// # Errors
/// The file cannot be read, or not in the wanted way.
fn source(
    (packets, spec): (Packets, &HarnessSpec),
    dealer: Dealer,
    tables: Option<VrfReferences>,
    updates: Option<&[VrfUpdate]>,
    signals: &Signals,
) -> anyhow::Result<(Source, Option<Verifier>)> {
    match packets {
        Packets::InMemory(trace) => {
            let part = TracePart::new(trace, &dealer, tables.as_ref());
            let verifier = |tables| match updates {
                Some(updates) => Verifier::with_updates(tables, &part, (updates, spec.updates.loops)),
                None => Ok(Verifier::new(Arc::new(tables))),
            };
            let verifier = tables.map(verifier).transpose()?;
            Ok((Source::memory(part, spec.source_loops()), verifier))
        }
        Packets::InFile(trace) if tables.is_some() && updates.is_some() => {
            let message = format!(
                "--verify with --updates needs all packets of {} in memory: use --stream never, or --limit N for a part",
                trace.path.display()
            );
            Err(ConfigError::Invalid(message).into())
        }
        Packets::InFile(trace) => {
            let tables = tables.map(Arc::new);
            let verifier = tables.clone().map(Verifier::new);
            let stream =
                StreamSpec { trace: *trace, loops: spec.source_loops(), rate: spec.rate, dealer, tables };
            Ok((Source::Stream(TraceStream::open(stream, || signals.is_stopping())?), verifier))
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "times of days in cycles fit 53 bits")]
fn stream_report(streamed: &Streamed, tsc_hz: u64) -> StreamReport {
    let seconds = |cycles: u64| cycles as f64 / tsc_hz as f64;
    let ReadWaits { count, cycles, cycles_max } = streamed.waits;
    StreamReport {
        waits: count,
        waited_s: seconds(cycles),
        waited_max_s: seconds(cycles_max),
        chunks_max: streamed.chunks_max,
        error: streamed.error.as_ref().map(ToString::to_string),
    }
}

fn summary(
    (args, spec): (&ReplayArgs, &HarnessSpec),
    (file, generated): (String, Option<GeneratedReport>),
    sizes: Sizes,
    outcome: ReplayOutcome,
    (setup, stream): (Setup, Option<StreamReport>),
    tsc_hz: u64,
) -> Summary {
    let ReplayOutcome { ended, forwarder, fed, reordered, conducted, verified, trace, .. } = outcome;
    let mut summary = Summary::new("replay", &forwarder, &ended, setup, tsc_hz);
    let packets = &mut summary.packets;
    packets.reordered = reordered;
    // Packets fed but not yet received are still in a ring, and count as held.
    packets.held += fed.saturating_sub(packets.rx);
    packets.rx = packets.rx.max(fed);
    trials::add(&mut summary, &conducted, spec, sizes.window, tsc_hz);
    summary.verify = Verify { checked: verified.checked, mismatches: verified.mismatches };
    summary.truncated = trace.truncated;
    summary.trace = Some(TraceReport {
        file,
        made: traffic::made(&args.traffic, generated, &trace),
        packets: trace.frames,
        snapped: trace.snapped,
        loops: if spec.loops == u64::MAX || spec.has_lossy_trials() {
            fed.div_ceil(trace.frames.max(1) as u64)
        } else {
            spec.loops
        },
        rate: args.harness.rate.to_string(),
        warmup_s: conducted.warmup_s,
        lossless_pps: conducted.reference_pps,
        packets_from: packets_from(stream.is_none(), sizes),
        stream,
        fed,
        feeder: trials::feeder(&conducted, summary.search.as_ref(), tsc_hz),
    });
    summary
}
