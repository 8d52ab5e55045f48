//! Measures engines and the peers of DPDK on the same work, and checks each against the oracle.
//!
//! ```text
//! routes -> contenders (one table each) -> check against the oracle -> rounds of interleaved sweeps -> rows
//! ```
//! | module | contents |
//! |---|---|
//! | `args` | the command line |
//! | `tables`, `keys` | routes and key streams, made before any measurement |
//! | `wanted`, `contenders` | from names to built tables |
//! | `table`, `device`, `peers` | measured tables: engines of ours on a CPU or a device, and DPDK's libraries (feature `dpdk`) |
//! | `threads` | several threads over one table |
//! | `check` | a sample of every contender's answers against the oracle |
//! | `measure`, `clock` | rates of lookups; the clocks |
//! | `profile`, `analysis` | properties of a traffic over a table; the analysis sentence of a row |
//! | `host`, `report` | conditions of a figure; rows as text and JSON |
//! | `updates`, `pace` | updates as deltas, forward and backward; their application |
//! | `lookup`, `update`, `paper` | the subcommands |

#![forbid(unsafe_code)]

mod analysis;
mod args;
mod check;
mod clock;
mod contenders;
mod device;
mod fault;
mod host;
mod keys;
mod lookup;
mod measure;
mod pace;
mod paper;
#[cfg(feature = "dpdk")]
mod peers;
mod profile;
mod report;
mod table;
mod tables;
mod threads;
mod update;
mod updates;
mod wanted;

use args::{BenchCommand, Cli};
use clap::Parser;
use fault::{FAILED, Fault};
use report::RunReport;
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;

fn main() -> ExitCode {
    lpm_gpu::cu::prepare_environment(); // while there is one thread: it sets environment variables
    let done = match Cli::parse().command {
        BenchCommand::Lookup(args) => lookup::run(&args).and_then(|report| {
            let code = exit_code_of(report.rows.iter().map(|row| row.wrong));
            finish(&report, &report::lookup_table(&report.rows), args.engine.json.as_deref()).map(|()| code)
        }),
        BenchCommand::Update(args) => update::run(&args).and_then(|report| {
            // A peer that refused updates has wrong answers from then on: a finding in its row, no failure.
            let code = exit_code_of(report.rows.iter().filter(|row| row.refused == 0).map(|row| row.wrong));
            finish(&report, &report::update_table(&report.rows), args.engine.json.as_deref()).map(|()| code)
        }),
        BenchCommand::Paper(args) => paper::run(&args),
        BenchCommand::Report(args) => paper::report::run(&args),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(why) => {
            eprintln!("lpm-bench: {why}");
            ExitCode::from(why.exit_code())
        }
    }
}

fn exit_code_of(mut wrong: impl Iterator<Item = u64>) -> u8 {
    if wrong.any(|wrong| wrong > 0) { FAILED } else { 0 }
}

fn finish<Row: Serialize>(report: &RunReport<Row>, table: &str, json: Option<&Path>) -> Result<(), Fault> {
    if !report.build.is_optimised() {
        eprintln!("lpm-bench: warning: built with {}; the figures are meaningless", report.build.profile);
    }
    if report.host.load_average > 1.0 {
        eprintln!(
            "lpm-bench: warning: the load was {:.1} at the start; trust the ratios, not the figures",
            report.host.load_average
        );
    }
    let text = format!("{}\n\n{table}{}", report.heading(), report.refusals());
    // A closed pipe (`| head`) is no failure of the run.
    if let Err(source) = std::io::stdout().write_all(text.as_bytes())
        && source.kind() != std::io::ErrorKind::BrokenPipe
    {
        return Err(Fault::Write { path: "standard output".into(), source });
    }
    match json {
        Some(path) => report.write(path),
        None => Ok(()),
    }
}

/// [`Fault::Pin`] when the process may not run there.
fn pin(cpu: Option<usize>) -> Result<(), Fault> {
    let Some(cpu) = cpu else { return Ok(()) };
    let allowed = cpus_allowed();
    if core_affinity::set_for_current(core_affinity::CoreId { id: cpu }) {
        return Ok(());
    }
    let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
    Err(Fault::Pin { cpu, allowed: allowed.join(", ") })
}

/// The CPUs of this process before any thread was pinned.
fn cpus_allowed() -> &'static [usize] {
    static ALLOWED: OnceLock<Vec<usize>> = OnceLock::new();
    ALLOWED.get_or_init(|| {
        core_affinity::get_core_ids().unwrap_or_default().iter().map(|core| core.id).collect()
    })
}
