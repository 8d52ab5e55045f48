//! The forwarder: commands over a core that does not know the command line and does not print.
//!
//! The program `fwd-app` calls [`main`] and nothing else; as a library, fuzz targets can reach the modules. A module may use the modules in
//! the rows below its own; `tests/house` has the exact table.
//!
//! | module | contents |
//! |---|---|
//! | `commands` | `run`, `replay`, `lookup`, `fib`, `check`, `ctl`, `config`, `completions`; exit codes |
//! | `cli` | options, and the parsers of their values |
//! | `harness` | replays a capture, measures, verifies |
//! | `report` | summary as text and JSON, lines on stderr, output files |
//! | `console` | the control socket: grammar, server, client and answers |
//! | `metrics` | metrics over HTTP, and a web page for them |
//! | `forwarder` | owns ports, VRFs, feeds and the running topology; the control thread, signals |
//! | `routes` | VRFs: candidates of all sources, selection, commits, engines |
//! | `neighbours` | the router: neighbours, ICMP, and its thread |
//! | `ports` | the table of ports, their devices, addresses and TAPs |
//! | `topology` | which stage runs on which lcore |
//! | `datapath` | the passes over a batch of packets, rx to tx |
//! | `engines` | the registry of engines, and their construction |
//! | `error`, `notice`, `threads` | configuration errors; messages on unsolicited events; threads other than lcores |
//! | `testing` | access for fuzz targets to the datapath, the router and the feeds (feature `testing`) |

#![forbid(unsafe_code)]

mod cli;
mod commands;
mod console;
mod datapath;
mod engines;
mod error;
mod forwarder;
mod harness;
mod metrics;
mod neighbours;
mod notice;
mod ports;
mod report;
mod routes;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
mod threads;
mod topology;

use std::process::ExitCode;

/// Runs the command line of this process. Errors have been printed to stderr when it returns.
#[must_use]
pub fn main() -> ExitCode {
    lpm_gpu::cu::prepare_environment(); // while there is one thread: it sets environment variables
    commands::main()
}
