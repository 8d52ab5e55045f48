//! The forwarder: commands over a core that knows no command line and does not print.
//!
//! The program `fwd-app` calls [`main`] and nothing else; the library is there so that fuzz targets reach the modules.
//!
//! A module may use those in the rows below its own, and none above; `tests/house.rs` has the exact table.
//!
//! | module | what lives there |
//! |---|---|
//! | `commands` | `run`, `replay`, `lookup`, `fib`, `check`; exit codes |
//! | `cli` | options and the parsers of their values: text to plain structs |
//! | `harness` | a capture in, measured and verified results out |
//! | `report` | summary as text and JSON, lines on stderr, output files |
//! | `control` | the session: tables, commits, ports, the running topology; signals |
//! | `topology` | which stage runs on which lcore |
//! | `datapath` | the passes over a batch of packets, rx to tx |
//! | `engines` | names of engines, and how each is made |
//! | `fallback` | a second engine that takes over when the first fails |
//! | `error`, `notice` | wrong configurations; what happens unasked |
//! | `testing` | what fuzz targets see of the datapath (feature `testing`) |

#![forbid(unsafe_code)]

mod cli;
mod commands;
mod control;
mod datapath;
mod engines;
mod error;
mod fallback;
mod harness;
mod notice;
mod report;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod topology;

use std::process::ExitCode;

/// Runs the command line of this process; errors are on stderr by then.
#[must_use]
pub fn main() -> ExitCode {
    commands::main()
}
