//! The commands: parses the command line, runs the command, returns the exit code.
//!
//! A command only wires: it turns its arguments into plain values, drives the modules below, and passes the results to `report`.
//!
//! | module | what lives there |
//! |---|---|
//! | [`run`] | `run`: forward between DPDK ports |
//! | [`replay`] | `replay`: drive the forwarder with a capture, and measure it |
//! | [`lookup`] | `lookup`: look addresses up, one output line for each |
//! | [`fib`] | `fib`: inspect, convert or generate a table |
//! | [`check`] | `check`: whether this host is ready |
//! | [`ctl`] | `ctl`: steer a running forwarder |
//! | [`completions`] | `completions`: a script for shells |
//! | [`tables`] | loading of route files with a progress bar and warnings, for all commands |
//! | [`exit`] | maps errors to exit codes |

mod check;
mod completions;
mod ctl;
#[cfg(test)]
mod docs_test;
mod exit;
mod fib;
mod lookup;
mod replay;
mod run;
mod tables;

use crate::cli::args::{REPLAY_EXAMPLES, RUN_EXAMPLES, ReplayArgs, RunArgs, UpdateArgs};
use crate::console::server::Limits;
use crate::console::{Inbox, Server};
use crate::error::ConfigError;
use crate::forwarder::Signals;
use crate::forwarder::updates::{self, VrfUpdate};
use crate::notice::{self, LogLevel};
use crate::report::console::{self, Printer};
use crate::routes::spec::VrfSpec;
use anyhow::Context as _;
use clap::{CommandFactory as _, Parser, Subcommand};
use dpdk_ffi::{DpdkLogLevel, Eal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Forwards IPv4 and IPv6 packets between DPDK ports by longest-prefix match, and measures how well.
#[derive(Debug, Parser)]
#[command(name = "fwd-app", version, propagate_version = true, max_term_width = 110, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  fwd-app check
  fwd-app fib generate --family both --routes 100000 -o routes.txt
  fwd-app lookup --fib routes.txt 192.0.2.1 2001:db8::1
  fwd-app replay trace.pcap --fib routes.txt --verify
  fwd-app run --fib routes.txt --config '(0,0,1)' -- -l 1 --vdev net_null0
  fwd-app ctl show port stats

Exit codes: 0 done, 1 failed, 2 bad usage or configuration, 3 a named device is absent.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Forward between DPDK ports.
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunArgs>),
    /// Drive the forwarder with a capture, and measure it.
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(Box<ReplayArgs>),
    /// Look addresses up: one line an address, `ADDR<TAB>NEXT-HOP-ID`.
    #[command(after_help = lookup::EXAMPLES)]
    Lookup(Box<lookup::LookupArgs>),
    /// Look at a table, change its format, make one.
    #[command(after_help = fib::EXAMPLES)]
    Fib(fib::FibArgs),
    /// Say whether this host is ready: pages, IOMMU, drivers, NUMA, CPU, DPDK, memory, GPU.
    #[command(after_help = check::EXAMPLES)]
    Check(check::CheckArgs),
    /// Talk to a running forwarder, in testpmd's words: show, set, clear, start, stop, route, neigh, ..
    #[command(after_help = ctl::EXAMPLES)]
    Ctl(ctl::CtlArgs),
    /// Print a script with which a shell completes this command line.
    #[command(after_help = completions::EXAMPLES)]
    Completions(completions::CompletionsArgs),
}

/// Parses the command line, runs the command, and prints an error to stderr.
pub(crate) fn main() -> ExitCode {
    match completions::answer(Cli::command) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return exit::of_clap(&error),
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::of_clap(&error),
    };
    notice::listen(console::notice);
    let forward = match &cli.command {
        Command::Run(args) => Some(&args.forward),
        Command::Replay(args) => Some(&args.forward),
        _ => None,
    };
    forward.into_iter().for_each(|forward| notice::set_level(forward.log_level));
    // First, for two reasons: messages posted while lcores run must not wait for stderr, and the printer inherits the CPUs of this
    // thread, which EAL pins later.
    let printer = matches!(cli.command, Command::Run(_) | Command::Replay(_)).then(Printer::start);
    let result = match &cli.command {
        Command::Run(args) => run::main(args),
        Command::Replay(args) => replay::main(args),
        Command::Lookup(args) => lookup::main(args),
        Command::Fib(args) => fib::main(args),
        Command::Check(args) => check::main(args),
        Command::Ctl(args) => ctl::main(args),
        Command::Completions(args) => completions::main(args, &Cli::command()),
    };
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::of_error(&error),
    };
    drop(printer);
    code
}

/// The update streams of all VRFs; `None` without any.
///
/// # Errors
/// [`ConfigError::Invalid`] for a VRF that does not exist, and as [`updates::load`].
fn updates(args: &UpdateArgs, vrfs: &[VrfSpec]) -> anyhow::Result<Option<Arc<[VrfUpdate]>>> {
    let mut streams: Vec<_> = args.updates.iter().map(|path| (0, path.clone())).collect();
    for named in &args.vrf_updates {
        streams.push((VrfSpec::number_of(vrfs, "--vrf-updates", &named.vrf)?, named.file.clone()));
    }
    let load = || updates::load(&streams, args.update_rate.is_some());
    (!streams.is_empty()).then(load).transpose()
}

/// The control socket at `path`, and the requests of its clients.
///
/// # Errors
/// [`ConfigError::Invalid`] when nothing can listen there.
fn control_socket(path: &Path) -> Result<(Server, Inbox), ConfigError> {
    Server::start(path, Limits::default()).map_err(|error| ConfigError::Invalid(format!("--ctl: {error}")))
}

/// Starts DPDK, then installs the handlers with which SIGINT and SIGTERM drain.
fn start_eal(arguments: &[String], signals: &Signals) -> anyhow::Result<Eal> {
    // Without a listener DPDK writes to stderr by itself.
    if let Err(error) = dpdk_ffi::listen_to_log(dpdk_says) {
        notice::warn(error);
    }
    let eal =
        Eal::init(arguments).context("DPDK does not start; its reason is above, `fwd-app check` may help")?;
    signals.drain_on_stop().context("cannot take over signals")?;
    Ok(eal)
}

/// Prints a line of DPDK's log.
fn dpdk_says(level: DpdkLogLevel, text: &str) {
    let level = match level {
        DpdkLogLevel::Error => LogLevel::Error,
        DpdkLogLevel::Warning => LogLevel::Warn,
        DpdkLogLevel::Info => LogLevel::Info,
        DpdkLogLevel::Debug => LogLevel::Debug,
    };
    console::line(level, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
