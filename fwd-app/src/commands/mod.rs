//! The commands: parses the command line, runs the command, returns the exit code.
//!
//! A command turns its arguments into plain values, calls the modules below, and passes the results to `report`.

mod check;
mod compare;
mod completions;
mod config;
mod ctl;
#[cfg(test)]
mod docs_test;
mod exit;
mod fib;
mod lookup;
mod man;
mod reload;
mod replay;
mod run;
mod tables;
mod traffic;
mod trials;

use crate::cli::args::{ForwardArgs, REPLAY_EXAMPLES, RUN_EXAMPLES, ReplayArgs, RunArgs, UpdateArgs};
use crate::cli::config::show::{self, Shown};
use crate::cli::config::{DEFAULT_FILE, Layers, environment};
use crate::console::server::Limits;
use crate::console::server::access::CtlGroups;
use crate::console::{Inbox, Server};
use crate::error::ConfigError;
use crate::forwarder::Signals;
use crate::forwarder::in_effect::ConfigValue;
use crate::forwarder::updates::{self, VrfUpdate};
use crate::notice::{self, LogLevel};
use crate::report::SummaryFiles;
use crate::report::console::{self, Printer};
use crate::routes::spec::VrfSpec;
use anyhow::Context as _;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use dpdk_ffi::{DpdkLogLevel, Eal};
use reload::ConfigReader;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Forwards IPv4 and IPv6 packets between DPDK ports by longest-prefix match, and measures it.
#[derive(Debug, Parser)]
#[command(name = "fwd-app", version = version(), propagate_version = true, max_term_width = 110, after_help = EXAMPLES)]
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

Exit codes: 0 success, 1 failure, 2 bad usage or configuration, 3 a required device is absent.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Forward packets between DPDK ports.
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunArgs>),
    /// Send a capture through the forwarder, and measure it.
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(Box<ReplayArgs>),
    /// Compare two reports of run or replay.
    #[command(after_help = compare::EXAMPLES)]
    Compare(compare::CompareArgs),
    /// Look up addresses: one line an address, `ADDR<TAB>NEXT-HOP-ID`.
    #[command(after_help = lookup::EXAMPLES)]
    Lookup(Box<lookup::LookupArgs>),
    /// Inspect, convert or generate a routing table.
    #[command(after_help = fib::EXAMPLES)]
    Fib(fib::FibArgs),
    /// Check whether this host is ready: pages, IOMMU, drivers, NUMA, CPU, DPDK, memory, GPU.
    #[command(after_help = check::EXAMPLES)]
    Check(check::CheckArgs),
    /// Control a running forwarder: show, set, clear, start, stop, route, neigh, ..
    #[command(after_help = ctl::EXAMPLES)]
    Ctl(ctl::CtlArgs),
    /// Check the configuration of `run`, and print each value with its origin.
    #[command(after_help = config::EXAMPLES)]
    Config(Box<config::ConfigArgs>),
    /// Print a completion script for a shell.
    #[command(after_help = completions::EXAMPLES)]
    Completions(completions::CompletionsArgs),
    /// Write the manual pages of all commands.
    #[command(after_help = man::EXAMPLES)]
    Man(man::ManArgs),
}

const COMMIT: Option<&str> = option_env!("FWD_APP_COMMIT");

fn version() -> String {
    let commit = COMMIT.map(|commit| format!("commit {commit}, "));
    format!("{} ({}{})", env!("CARGO_PKG_VERSION"), commit.unwrap_or_default(), dpdk_ffi::version())
}

pub(crate) fn main() -> ExitCode {
    match completions::answer(Cli::command) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return exit::of_clap(&error),
    }
    let (program, words) = (Cli::command(), std::env::args_os().collect::<Vec<_>>());
    if let Some(line) = config::line_to_show(&words) {
        return match config::from_flags(&program, &line) {
            Ok(printed) => code_of(printed, |_| None),
            Err(error) => exit::of_clap(&error),
        };
    }
    let (layers, matches, cli) = match parse(&program, &words) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    notice::listen(console::notice);
    let forward = match &cli.command {
        Command::Run(args) => Some(&args.forward),
        Command::Replay(args) => Some(&args.forward),
        _ => None,
    };
    forward.into_iter().for_each(|forward| notice::set_level(forward.log_level));
    // First: messages posted while lcores run must not wait for stderr, and the printer inherits this thread's CPUs, which EAL pins later.
    let printer = matches!(cli.command, Command::Run(_) | Command::Replay(_)).then(Printer::start);
    let shown = matches
        .subcommand()
        .and_then(|(name, given)| Some(show::shown(program.find_subcommand(name)?, given, &layers)));
    let shown = shown.unwrap_or_default();
    let result = layers.check_files().map_err(anyhow::Error::from).and_then(|()| match &cli.command {
        Command::Run(args) => {
            let (words, default) = (words.clone(), Some(PathBuf::from(DEFAULT_FILE)));
            run::main(
                args,
                ConfigReader { words, default, ports: args.ports.ports.clone(), vrfs: args.vrfs.vrf.clone() },
                &shown,
            )
        }
        Command::Replay(args) => replay::main(args, &shown),
        Command::Compare(args) => compare::main(args),
        Command::Lookup(args) => lookup::main(args),
        Command::Fib(args) => fib::main(args),
        Command::Check(args) => check::main(args),
        Command::Ctl(args) => ctl::main(args),
        Command::Config(args) => config::main(args, &shown),
        Command::Completions(args) => completions::main(args, &Cli::command()),
        Command::Man(args) => man::main(args, Cli::command()),
    });
    let code = code_of(result, |message| {
        let (key, origin) = layers.blame(&program, message)?;
        Some(format!("{origin}: {key}"))
    });
    drop(printer);
    code
}

fn parse(program: &clap::Command, words: &[OsString]) -> Result<(Layers, ArgMatches, Cli), ExitCode> {
    // `replay` is a measurement: it reads no default file.
    let default = words.get(1).is_some_and(|command| command != "replay").then_some(DEFAULT_FILE.as_ref());
    let layers = Layers::read(program, words, &environment(), default);
    let layers = layers.map_err(|mistake| exit::of_error(&mistake.into()))?;
    let parsed = program.clone().try_get_matches_from(layers.merge(program, words));
    let parsed = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    match parsed {
        Ok((cli, matches)) => Ok((layers, matches, cli)),
        Err(error) => Err(match layers.mistake(program, words, &error) {
            Some(mistake) => exit::of_error(&mistake.into()),
            None => exit::of_clap(&error),
        }),
    }
}

/// Maps a result to an exit code; prints an error with the line of the file that caused it.
fn code_of(result: anyhow::Result<()>, blame: impl Fn(&str) -> Option<String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            exit::of_error(&match blame(&exit::message(&error)).filter(|_| exit::is_configuration(&error)) {
                Some(place) => error.context(place),
                None => error,
            })
        }
    }
}

fn config_values(shown: &[Shown]) -> Vec<ConfigValue> {
    let value = |shown: &Shown| ConfigValue {
        path: shown.path(),
        value: serde_json::to_value(shown.value()).unwrap_or_default(),
        origin: shown.origin.to_string(),
    };
    shown.iter().map(value).collect()
}

/// The update streams of all VRFs; `None` without any.
///
/// # Errors
/// [`ConfigError::Invalid`] for an unknown VRF, and as [`updates::load`].
fn updates(args: &UpdateArgs, vrfs: &[VrfSpec]) -> anyhow::Result<Option<Arc<[VrfUpdate]>>> {
    let mut streams: Vec<_> = args.updates.iter().map(|path| (0, path.clone())).collect();
    for named in &args.vrf_updates {
        streams.push((VrfSpec::number_of(vrfs, "--vrf-updates", &named.vrf)?, named.file.clone()));
    }
    let load = || updates::load(&streams, args.update_rate.is_some());
    (!streams.is_empty()).then(load).transpose()
}

fn files(args: &ForwardArgs) -> SummaryFiles<'_> {
    SummaryFiles { json: args.json.as_deref(), hgrm: args.hgrm.as_deref(), svg: args.svg.as_deref() }
}

fn clients(args: &ForwardArgs) -> Limits {
    let groups = CtlGroups { all: args.ctl_group, read: args.ctl_read_group };
    Limits { groups, ..Limits::default() }
}

/// Opens the control socket at `path`.
///
/// # Errors
/// [`ConfigError::Invalid`] when it cannot listen.
fn control_socket(path: &Path, limits: Limits) -> Result<(Server, Inbox), ConfigError> {
    Server::start(path, limits).map_err(|error| ConfigError::Invalid(format!("--ctl: {error}")))
}

/// Starts DPDK, then installs the handlers of SIGINT and SIGTERM, which drain.
fn start_eal(arguments: &[String], signals: &Signals) -> anyhow::Result<Eal> {
    // Without a listener DPDK writes directly to stderr.
    if let Err(error) = dpdk_ffi::listen_to_log(dpdk_says, console::drain) {
        notice::warn(error);
    }
    let eal =
        Eal::init(arguments).context("DPDK does not start: see its messages above, and `fwd-app check`")?;
    signals.drain_on_stop().context("cannot install signal handlers")?;
    Ok(eal)
}

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
