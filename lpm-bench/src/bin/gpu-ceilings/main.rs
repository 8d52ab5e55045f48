//! `gpu-ceilings`: the limits of this host's GPU. A lookup kernel or an engine is judged by its share of these figures.
//!
//! | module | contents |
//! |---|---|
//! | `options` | the command line, and the plan of measurements |
//! | `bench` | the opened device and its kernels |
//! | `copy` | bandwidth between host and device, by direction, streams and size |
//! | `gather` | random loads by footprint and width, and the time of one load |
//! | `latency` | the round trip of a small lookup, by mode and batch |
//! | `report` | the figures as JSON and as a table |
//!
//! Exit codes: 0 done, 1 failed, 2 wrong options, 3 no device.

#![forbid(unsafe_code)]

mod bench;
mod copy;
mod gather;
mod latency;
mod options;
mod report;

use anyhow::Context as _;
use clap::Parser as _;
use lpm_gpu::cu::GpuError;
use options::{CeilingOptions, CeilingsPlan, Part};
use report::CeilingsReport;
use std::process::ExitCode;

const EXIT_NO_DEVICE: u8 = 3;

fn main() -> ExitCode {
    lpm_gpu::cu::prepare_environment(); // while there is one thread: it sets environment variables
    let options = CeilingOptions::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpu-ceilings: {error:#}");
            let absent = error.downcast_ref::<GpuError>().is_some_and(GpuError::is_absent);
            if absent { ExitCode::from(EXIT_NO_DEVICE) } else { ExitCode::FAILURE }
        }
    }
}

fn run(options: &CeilingOptions) -> anyhow::Result<()> {
    let mut bench = bench::DeviceBench::open(options.device)?;
    let plan = CeilingsPlan::new(options, bench.device.facts(), bench.device.free_bytes()?);
    let mut report = CeilingsReport::new(&bench.device, plan.seed, plan.repeat);
    report.kernels = bench::kernels(&bench.device).context("kernels")?;
    if plan.parts.contains(&Part::Copy) {
        report.copy = copy::measure(&mut bench, &plan).context("copies")?;
    }
    if plan.parts.contains(&Part::Gather) {
        report.gather = gather::measure_rate(&mut bench, &plan).context("random loads")?;
    }
    if plan.parts.contains(&Part::Chase) {
        report.chase = gather::measure_time(&mut bench, &plan).context("one load at a time")?;
    }
    if plan.parts.contains(&Part::Latency) {
        report.latency = latency::measure(&mut bench, &plan).context("latency")?;
    }
    report.write(options.json.as_deref())
}
