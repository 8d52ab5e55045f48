//! `fwd-app run`: forward between DPDK ports.

use crate::cli::args::RunArgs;
use crate::cli::exit::CliError;
use crate::cli::message::line;
use crate::cli::values::{QueueLcore, QueueMap};
use crate::control::Signals;
use crate::datapath::EgressTable;
use crate::datapath::lookup::EngineFault;
use crate::datapath::rx::RxLimits;
use crate::ports::Ports;
use crate::report::periodic::Periodic;
use crate::report::{EngineReport, LatencyNs, PortReport, Setup, Summary, Totals, Verify, topology_name};
use crate::tables::Tables;
use crate::topology::Control;
use crate::topology::lcores::Parts;
use crate::topology::plan::{Host, Job, Plan, PlanError};
use crate::topology::running::{Idle, Running};
use anyhow::{Context as _, bail};
use arc_swap::ArcSwap;
use dpdk_ffi::{Eal, LcoreId};
use std::sync::Arc;
use std::time::Instant;

impl From<PlanError> for CliError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::NoPort { .. } | PlanError::NoPorts => Self::NoDevice(error.to_string()),
            PlanError::NoLcore { .. } | PlanError::Senders { .. } => Self::Usage(error.to_string()),
        }
    }
}

/// Forwards until a signal or `--duration` ends it.
///
/// # Errors
/// When it cannot be set up, a stage panicked, or a packet was lost track of.
pub(crate) fn main(args: &RunArgs) -> anyhow::Result<()> {
    let mut args = args.clone();
    let signals = Signals::take_over().context("cannot take over signals")?;
    args.forward.settle_topology(&args.tables.engine);
    let words = eal_arguments(&args)?;
    let tables = Tables::load(&args.tables)?;
    crate::tables::warn_of_pages();
    crate::tables::warn_of_neighbours(&tables.hops);
    args.forward.settle_batch(&args.tables.engine, tables.batch_measured());
    let eal =
        Eal::init(&words).context("DPDK does not start; its reason is above, `fwd-app check` may help")?;
    signals.drain_on_stop().context("cannot take over signals")?;
    let summary = forward(&args, &eal, &tables, &signals)?;
    // Ports are closed by now; pools and EAL follow here, before anything is written.
    drop(eal);
    summary.publish(&args.forward, &signals)?;
    judge(&summary)
}

/// Whether the run did what it is for.
fn judge(summary: &Summary) -> anyhow::Result<()> {
    if let Some(panic) = &summary.panic {
        bail!("{panic}");
    }
    let packets = &summary.packets;
    if !packets.is_conserved() || packets.held > 0 {
        bail!(
            "packets were lost track of: {} rx, {} tx, {} held, see the drops",
            packets.rx,
            packets.tx,
            packets.held
        );
    }
    if let Some(error) = &summary.engine.error {
        bail!("{error}");
    }
    Ok(())
}

/// EAL's arguments, verbatim.
fn eal_arguments(args: &RunArgs) -> Result<Vec<String>, CliError> {
    let word = |word: &std::ffi::OsString| {
        word.to_str().map(str::to_owned).ok_or_else(|| {
            CliError::Usage(format!("the EAL argument '{}' is not UTF-8", word.to_string_lossy()))
        })
    };
    args.eal.iter().map(word).collect()
}

fn forward(args: &RunArgs, eal: &Eal, tables: &Tables, signals: &Signals) -> anyhow::Result<Summary> {
    let found = Ports::open(eal)?;
    let lcores: Vec<u32> = eal.lcores().into_iter().map(|lcore| lcore.0).collect();
    let config = args.forward.config.as_ref().map(|map| map.0.as_slice());
    let tx_queues_max = Ports::tx_queues_max(&found)?;
    let host = Host { ports: found.len(), tx_queues_max, lcores: &lcores, main: eal.main_lcore().0 };
    let plan = Plan::new(args.forward.topology(), config, host).map_err(CliError::from)?;
    let ports = Ports::set_up(eal, found, &plan, args)?;
    let egress = EgressTable::new(&tables.hops, &ports.egress).map_err(CliError::from)?;
    ports.await_links(signals)?;
    let map = served(&plan);
    ports.warn_of_sockets(eal, &map.iter().map(|t| (t.port, u32::from(t.lcore))).collect::<Vec<_>>());
    let config = QueueMap(map).to_string();
    banner(args, tables, &plan, &config);

    let control = Arc::new(Control::default());
    let tsc_hz = dpdk_ffi::tsc_hz(eal);
    let mut parts = Parts {
        eal,
        ports: &ports.ports,
        engine: tables.engine.as_ref(),
        egress: Arc::new(ArcSwap::from_pointee(egress)),
        limits: RxLimits {
            burst: args.forward.rx_burst,
            batch: args.forward.batch_max(),
            flush_cycles: tsc_hz / 1_000_000 * u64::from(args.forward.flush_us),
        },
        control: Arc::clone(&control),
        stall_us: tables.stall_us(),
        fault: Arc::clone(&tables.fault),
        published: Vec::new(),
        channels: Vec::new(),
    };
    let stages = parts.build(&plan)?;
    let periodic = Periodic::new(std::mem::take(&mut parts.published), args.forward.stats_period);
    let channels = std::mem::take(&mut parts.channels);
    drop(parts);
    let idle = idle(eal, &plan);
    let start = Instant::now();
    let running = Running::launch(eal, stages, channels, idle, &control)?;
    let end = args.duration.map(|after| start + after);
    let mut house = House { periodic, signals, control: &control, fault: &tables.fault, end };
    let finished = running.run(idle, || house.keep());
    let duration_s = start.elapsed().as_secs_f64();
    let reports = ports.reports();
    ports.close().context("cannot close the ports")?;
    let workers = plan.lcores.len();
    Ok(summary(
        tables,
        &Totals::new(&finished.outcomes, tsc_hz),
        Facts {
            panic: finished.panicked.map(|panic| panic.to_string()),
            setup: Setup::new(&args.forward, config, workers, eal.has_hugepages()),
            tsc_hz,
            duration_s,
            reports,
        },
    ))
}

/// What the main lcore looks after.
struct House<'a> {
    periodic: Periodic,
    signals: &'a Signals,
    control: &'a Control,
    fault: &'a EngineFault,
    end: Option<Instant>,
}

impl House<'_> {
    /// Signals, clock, statistics.
    fn keep(&mut self) {
        if self.signals.is_stopping() || self.end.is_some_and(|end| Instant::now() >= end) {
            self.control.stop_rx();
        }
        self.periodic.tick(self.signals.stats_wanted());
        self.fault.say();
    }
}

/// Which lcore serves which queue, as planned.
fn served(plan: &Plan) -> Vec<QueueLcore> {
    let mut map = Vec::with_capacity(plan.inputs.len());
    for (lcore, jobs) in &plan.lcores {
        let inputs = jobs.iter().flat_map(|job| match job {
            Job::Worker { inputs, .. } => inputs.clone(),
            Job::Rx { input } => vec![*input],
            Job::Engine | Job::Tx { .. } => Vec::new(),
        });
        let lcore = u16::try_from(*lcore).unwrap_or(u16::MAX);
        map.extend(inputs.map(|i| plan.inputs[i]).map(|i| QueueLcore {
            port: i.port,
            queue: i.queue,
            lcore,
        }));
    }
    map
}

/// Lcores yield when there are more of them than CPUs under them.
fn idle(eal: &Eal, plan: &Plan) -> Idle {
    let mut cpus: Vec<u16> = Vec::new();
    for (lcore, _) in &plan.lcores {
        cpus.extend(eal.lcore_cpus(LcoreId(*lcore)).unwrap_or_default());
    }
    cpus.sort_unstable();
    cpus.dedup();
    if plan.lcores.len() > cpus.len() { Idle::Yield } else { Idle::Spin }
}

/// Everything that was decided, once, before the first packet.
fn banner(args: &RunArgs, tables: &Tables, plan: &Plan, config: &str) {
    let engine = &tables.engine;
    let stats = engine.stats();
    #[expect(clippy::cast_precision_loss, reason = "table sizes below 2^53")]
    let table_mb = stats.table_bytes as f64 / 1e6;
    line(format_args!(
        "engine   {} ({}), {} IPv4 and {} IPv6 routes in {table_mb:.1} MB, read in {:.2} s, built in {:.2} s",
        engine.name(),
        engine.isa_name(),
        stats.routes_v4,
        stats.routes_v6,
        tables.load_s,
        tables.build_s
    ));
    let forward = &args.forward;
    line(format_args!(
        "setup    {}, {config}, rx burst {}, batch {}, flush {} us, {}",
        topology_name(forward.topology()),
        forward.rx_burst,
        forward.batch_max(),
        forward.flush_us,
        dpdk_ffi::version()
    ));
    for (lcore, jobs) in &plan.lcores {
        let job = |job: &Job| match job {
            Job::Worker { inputs, tx } => format!("rx to tx of {} queues, TX queue {tx}", inputs.len()),
            Job::Rx { input } => {
                format!("rx of port {} queue {}", plan.inputs[*input].port, plan.inputs[*input].queue)
            }
            Job::Engine => "engine".to_owned(),
            Job::Tx { tx } => format!("tx by queue {tx}"),
        };
        line(format_args!("lcore {lcore:<3}{}", jobs.iter().map(job).collect::<Vec<_>>().join(", ")));
    }
    line("forwarding; Ctrl-C stops");
}

/// What the summary needs besides the counters.
struct Facts {
    panic: Option<String>,
    setup: Setup,
    tsc_hz: u64,
    duration_s: f64,
    reports: Vec<PortReport>,
}

fn summary(tables: &Tables, totals: &Totals, facts: Facts) -> Summary {
    let histogram = totals.latency.histogram();
    Summary {
        command: "run",
        version: env!("CARGO_PKG_VERSION"),
        packets: totals.packets(),
        rate: totals.rate(facts.duration_s, facts.tsc_hz),
        latency_ns: LatencyNs::new(histogram, "rx to tx"),
        stages: totals.stages(facts.tsc_hz),
        engine: EngineReport::new(tables),
        setup: facts.setup,
        verify: Verify::default(),
        trace: None,
        truncated: false,
        ports: facts.reports,
        panic: facts.panic,
        histogram: histogram.clone(),
    }
}

#[cfg(test)]
mod panics;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::TopologyKind;

    #[test]
    fn the_map_that_is_shown_is_the_one_that_was_planned() {
        let config =
            [(0, 0, 1), (1, 0, 2), (0, 1, 1)].map(|(port, queue, lcore)| QueueLcore { port, queue, lcore });
        for kind in [TopologyKind::RunToCompletion, TopologyKind::Pipeline] {
            let host = Host { ports: 2, tx_queues_max: 4, lcores: &[0, 1, 2, 3], main: 0 };
            let plan = Plan::new(kind, Some(&config), host).unwrap();
            let mut shown = served(&plan);
            shown.sort_unstable();
            let mut wanted = config;
            wanted.sort_unstable();
            assert_eq!(shown, wanted);
        }
    }
}
