//! `fwd-app run`: forward between DPDK ports.

use super::{start_eal, tables};
use crate::cli::args::RunArgs;
use crate::control::ports::{LINK_WAIT, PortCounts, Ports};
use crate::control::session::Ended;
use crate::control::{Session, Signals, Site};
use crate::error::ConfigError;
use crate::notice;
use crate::report::console::line;
use crate::report::periodic::Periodic;
use crate::report::{Setup, Summary, text};
use crate::topology::plan::{Host, Plan};
use crate::topology::running::Idle;
use anyhow::Context as _;
use dpdk_ffi::{Eal, LcoreId};
use std::time::Instant;

/// Forwards until a signal or `--duration` ends it.
///
/// # Errors
/// When it cannot be set up, and as [`Summary::judge`].
pub(super) fn main(args: &RunArgs) -> anyhow::Result<()> {
    let signals = Signals::take_over().context("cannot take over signals")?;
    let words = eal_arguments(args)?;
    let mut session = tables::open_to_forward(&args.tables)?;
    let eal = start_eal(&words, &signals)?;
    let summary = forward(args, &eal, &mut session, &signals)?;
    // The ports are closed by now. Pools and EAL are released here, before any output is written.
    drop(eal);
    summary.publish(args.forward.json.as_deref(), args.forward.hgrm.as_deref(), &signals)?;
    summary.judge()
}

/// EAL's arguments, verbatim.
fn eal_arguments(args: &RunArgs) -> Result<Vec<String>, ConfigError> {
    let word = |word: &std::ffi::OsString| {
        word.to_str().map(str::to_owned).ok_or_else(|| {
            ConfigError::Invalid(format!("the EAL argument '{}' is not UTF-8", word.to_string_lossy()))
        })
    };
    args.eal.iter().map(word).collect()
}

fn forward(args: &RunArgs, eal: &Eal, session: &mut Session, signals: &Signals) -> anyhow::Result<Summary> {
    let forward = args.forward.spec();
    let settings = forward.settings(session);
    let found = Ports::open(eal)?;
    let lcores: Vec<u32> = eal.lcores().into_iter().map(|lcore| lcore.0).collect();
    let tx_queues_max = Ports::tx_queues_max(&found)?;
    let host = Host { ports: found.len(), tx_queues_max, lcores: &lcores, main: eal.main_lcore().0 };
    let plan = Plan::new(settings.topology, forward.config.as_ref(), host).map_err(ConfigError::from)?;
    let ports = Ports::set_up(eal, found, &plan, &args.ports.spec(), settings.batch)?;
    session.set_ports(ports.egress.clone())?;
    await_links(&ports, &plan, signals)?;
    ports.warn_of_sockets(eal, &plan);
    text::banner(session, settings, &plan).into_iter().for_each(line);
    line("forwarding; Ctrl-C stops");

    let mut periodic = Periodic::new(args.forward.stats_period);
    let idle = idle(eal, &plan);
    let running = session.start(&Site { eal, ports: &ports.ports, plan: &plan, settings, idle })?;
    let start = Instant::now();
    let end = args.duration.map(|after| start + after);
    let finished = running.run(idle, || {
        if signals.is_stopping() || end.is_some_and(|end| Instant::now() >= end) {
            session.running().stop_rx();
        }
        periodic.tick(session.running(), signals.stats_wanted());
    });
    let ended = Ended {
        finished,
        duration_s: start.elapsed().as_secs_f64(),
        ports: PortCounts::of(&ports.ports, &plan),
    };
    ports.close().context("cannot close the ports")?;
    let setup = Setup::new(settings, &plan, plan.lcores.len(), eal.has_hugepages());
    Ok(Summary::new("run", session, &ended, setup, dpdk_ffi::tsc_hz(eal)))
}

/// Waits until every link is up, at most [`LINK_WAIT`] in all, and prints the state of each port.
fn await_links(ports: &Ports, plan: &Plan, signals: &Signals) -> anyhow::Result<()> {
    let end = Instant::now() + LINK_WAIT;
    for (index, granted) in ports.granted.iter().enumerate() {
        let link = ports.await_link(index, end, || signals.is_stopping())?;
        text::port(ports, index, &link, plan).into_iter().for_each(line);
        if granted.rx_queues > 1 && granted.rss.is_empty() {
            let name = &ports.egress[index].name;
            notice::warn(format_args!("port {name} has no RSS: only its queue 0 will receive"));
        }
    }
    Ok(())
}

/// Lcores yield when they outnumber the CPUs that they run on.
fn idle(eal: &Eal, plan: &Plan) -> Idle {
    let mut cpus: Vec<u16> = Vec::new();
    for (lcore, _) in &plan.lcores {
        cpus.extend(eal.lcore_cpus(LcoreId(*lcore)).unwrap_or_default());
    }
    cpus.sort_unstable();
    cpus.dedup();
    if plan.lcores.len() > cpus.len() { Idle::Yield } else { Idle::Spin }
}

#[cfg(test)]
mod panics;
