//! The command line: which command, with which options, and the exit code that comes of it.
//!
//! `args` holds the options, `values` the parsers of their values, `exit` the one place where errors become exit codes,
//! `message` what is said on stderr.

pub(crate) mod args;
pub(crate) mod exit;
pub(crate) mod message;
pub(crate) mod values;

use crate::commands::{check, fib, lookup};
use args::{ReplayArgs, RunArgs};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

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

Exit codes: 0 done, 1 failed, 2 bad usage or configuration, 3 a named device is absent.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Forward between DPDK ports.
    #[command(after_help = args::RUN_EXAMPLES)]
    Run(Box<RunArgs>),
    /// Drive the forwarder with a capture, and measure it.
    #[command(after_help = args::REPLAY_EXAMPLES)]
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
}

/// Reads the command line, runs the command, and says on stderr what went wrong.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::of_clap(&error),
    };
    // Before anything else: what is said while lcores run must not wait for stderr, nor the thread that writes it be on their CPUs.
    let printer = matches!(cli.command, Command::Run(_) | Command::Replay(_)).then(message::Printer::start);
    let result = match &cli.command {
        Command::Run(args) => crate::run::main(args),
        Command::Replay(args) => crate::replay::main(args),
        Command::Lookup(args) => lookup::main(args),
        Command::Fib(args) => fib::main(args),
        Command::Check(args) => check::main(args),
    };
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::of_error(&error),
    };
    drop(printer);
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
