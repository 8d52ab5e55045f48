//! The forwarder's program: it only wires. `cli` reads the command line and maps errors to exit codes, each command
//! lives in a module of its own.
//!
//! | module | what lives there |
//! |---|---|
//! | `cli` | options, their parsers, `--help`, exit codes |
//! | `engines` | names of engines, and how each is made |
//! | `tables` | route files to RIB to engine |
//! | `commands` | `lookup`, `fib`, `check` |
//! | `run` | `run`: forward between DPDK ports |
//! | `replay` | `replay`: drive the forwarder with a capture, measure |

#![forbid(unsafe_code)]

mod cli;
mod commands;
mod engines;
mod replay;
mod run;
mod tables;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
