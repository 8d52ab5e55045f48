//! The forwarder. `cli` reads the command line and maps errors to exit codes, each command lives in a module of its own.
//!
//! The program `fwd-app` calls [`main`] and nothing else; the library is there so that fuzz targets reach the modules.
//!
//! | module | what lives there |
//! |---|---|
//! | `cli` | options, their parsers, `--help`, exit codes |
//! | `engines` | names of engines, and how each is made |
//! | `fallback` | a second engine that takes over when the first fails |
//! | `tables` | route files to RIB to engine |
//! | `commands` | `lookup`, `fib`, `check` |
//! | `datapath` | the passes over a batch of packets, rx to tx |
//! | `topology` | which stage runs on which lcore |
//! | `control` | signals |
//! | `ports` | DPDK ports: configured, started, closed |
//! | `report` | the summary, as text and JSON |
//! | `run` | `run`: forward between DPDK ports |
//! | `replay` | `replay`: drive the forwarder with a capture, measure |
//! | `testing` | what fuzz targets see of the datapath (feature `testing`) |

#![forbid(unsafe_code)]

mod cli;
mod commands;
mod control;
mod datapath;
mod engines;
mod fallback;
mod ports;
mod replay;
mod report;
mod run;
mod tables;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod topology;

use std::process::ExitCode;

/// Runs the command line of this process; errors are on stderr by then.
#[must_use]
pub fn main() -> ExitCode {
    cli::main()
}
