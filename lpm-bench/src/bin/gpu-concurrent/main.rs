//! `gpu-concurrent`: concurrent lookups and updates in every mode, with repeated rebuilds. Every answer is checked against the generations
//! between its submit and its collect. `lpm_gpu::hardware` lists the assumptions about a GPU and the run that tests each.
//!
//! | module | contents |
//! |---|---|
//! | `cycle` | a cycle of deltas that returns to its start, and the right answers of every generation |
//! | `run` | one engine, its readers on a thread each, its writer |
//! | `report` | the figures as JSON and as lines |
//!
//! Exit codes: 0 all answers right, 1 a wrong answer or a device that failed, 2 wrong options, 3 no device.

#![forbid(unsafe_code)]

mod cycle;
mod report;
mod run;

use clap::Parser;
use cycle::Cycle;
use fib::EngineError;
use lpm_gpu::cu::GpuError;
use report::{ConcurrencyReport, Row};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "Examples:
  gpu-concurrent                                      gamt in every mode, by 1, 4, 8 and 16 readers
  gpu-concurrent --modes persistent --readers 16 --seconds 10
  gpu-concurrent --engines gale,sail-gpu --modes copy --json concurrent.json
  CUDA_DEVICE_MAX_CONNECTIONS=8 gpu-concurrent --modes persistent --readers 2     the default is 32

Exit codes: 0 all answers right, 1 a wrong answer or a failed device, 2 bad usage, 3 no driver or no device.";

/// Looks up and updates at the same time, and checks every answer.
#[derive(Debug, Parser)]
#[command(name = "gpu-concurrent", version, after_help = EXAMPLES)]
struct ConcurrentOptions {
    /// Engines.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = lpm_gpu::engine::GAMT,
          value_parser = clap::builder::PossibleValuesParser::new(fib::Registry::new(&[lpm_gpu::ENGINES]).device_names()))]
    engines: Vec<String>,
    /// Transport of batches.
    #[arg(long, value_name = "MODE", value_delimiter = ',', default_value = "copy,mapped,persistent",
          value_parser = ["copy", "mapped", "persistent"])]
    modes: Vec<String>,
    /// Readers, each on a separate thread.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,4,8,16",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    readers: Vec<u16>,
    /// Seconds of each run, and at least one whole cycle of deltas.
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Routes of each family that are added and removed together, which causes rebuilds.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    routes: u32,
    /// Keys of a batch.
    #[arg(long, value_name = "KEYS", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch: u32,
    /// Slots of a reader; half of them hold IPv6 keys.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=64))]
    slots: u16,
    /// The device, as the driver numbers the ones visible to this process.
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: u32,
    /// File for the figures as JSON; `-` is standard output, without the lines.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seed of random routes and keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    lpm_gpu::cu::prepare_environment(); // while there is one thread: it sets environment variables
    let options = ConcurrentOptions::parse();
    if let Err(error) = lpm_gpu::cu::probe() {
        eprintln!("gpu-concurrent: {error}");
        return if error.is_absent() { ExitCode::from(3) } else { ExitCode::FAILURE };
    }
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("gpu-concurrent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether everything was right.
fn run(options: &ConcurrentOptions) -> anyhow::Result<bool> {
    let cycle = Cycle::new(options.seed, options.routes, options.batch as usize);
    let mut report = ConcurrencyReport::new(options.json.as_deref(), options.seed);
    for name in &options.engines {
        for mode in &options.modes {
            let mut failed = None;
            for &readers in &options.readers {
                let mut row = Row::new(name, mode, readers);
                row.device = options.device;
                if let Some(at) = failed {
                    // The next run would wait for the same lost device.
                    row.skipped = Some(format!("{at} readers have failed"));
                } else {
                    match run::run(&mut row, options, &cycle) {
                        Ok(()) => {}
                        // Refused at the start: this number of readers does not fit.
                        Err(error @ EngineError::Reader { .. }) if row.batches == 0 => {
                            row.skipped = Some(error.to_string());
                        }
                        Err(error) => row.error = Some(error.to_string()),
                    }
                }
                if row.is_failed() && failed.is_none() {
                    failed = Some(readers);
                }
                report.push(row);
            }
        }
    }
    report.finish()
}

fn used_bytes(device: u32) -> Result<u64, GpuError> {
    lpm_gpu::cu::Device::open(device)?.used_bytes()
}
