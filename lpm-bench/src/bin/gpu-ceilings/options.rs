//! The command line, and its plan: the measurements with their sizes and repetitions.

use clap::{Parser, ValueEnum};
use fib::units;
use lpm_gpu::cu::Facts;
use serde::Serialize;
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  gpu-ceilings                                        everything, as a table; about half a minute
  gpu-ceilings --json ceilings.json                   also as JSON, for comparisons
  gpu-ceilings --only gather --footprints 32M,1G      random loads only, with two footprints
  gpu-ceilings --only latency --modes mapped,persistent --batches 1K,64K
  gpu-ceilings --quick --json -                       tiny sizes, as a test; JSON on standard output

Exit codes: 0 success, 1 failure, 2 bad usage, 3 no driver or no device.";

/// Measures the limits of this host's GPU: copies, random loads, and round trips.
#[derive(Debug, Parser)]
#[command(name = "gpu-ceilings", version, after_help = EXAMPLES)]
pub(crate) struct CeilingOptions {
    /// The device, numbered from 0 as the driver does.
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    pub(crate) device: u32,
    /// File for the figures as JSON; `-` is standard output, without the table.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Tiny sizes, as a test; the figures are meaningless.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure only these.
    #[arg(long, value_name = "PART", value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Streams that copy at the same time.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=64))]
    streams: Vec<u16>,
    /// Bytes of one copy.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = size)]
    copy_bytes: Vec<u64>,
    /// Footprints of random loads in bytes, powers of two.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = footprint)]
    footprints: Vec<u64>,
    /// Keys of a batch whose latency is measured.
    #[arg(long, value_name = "KEYS", value_delimiter = ',', value_parser = batch)]
    batches: Vec<u64>,
    /// Transports of batches.
    #[arg(long, value_name = "MODE", value_enum, value_delimiter = ',')]
    modes: Vec<Mode>,
    /// Repetitions of each bandwidth and load rate; the median counts.
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u16).range(1..))]
    repeat: Option<u16>,
    /// Seed of random addresses and keys.
    #[arg(long, default_value_t = 1)]
    seed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Bandwidth between host and device.
    Copy,
    /// Random loads a second.
    Gather,
    /// Time of one load.
    Chase,
    /// Round trip of a batch.
    Latency,
}

/// Transport of a batch and its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Copy, launch, copy: three calls.
    Copy,
    /// One launch that reads and writes the host's memory.
    Mapped,
    /// A persistent kernel that polls the host's memory.
    Persistent,
}

#[derive(Debug)]
pub(crate) struct CeilingsPlan {
    pub(crate) parts: Vec<Part>,
    pub(crate) streams: Vec<u16>,
    pub(crate) copy_bytes: Vec<u64>,
    /// Bytes copied in each direction in a measured run.
    pub(crate) copy_total_bytes: u64,
    pub(crate) footprints: Vec<u64>,
    /// Blocks of 256 threads that load.
    pub(crate) gather_blocks: u32,
    /// Rounds of four loads a thread.
    pub(crate) gather_rounds: u32,
    pub(crate) chase_steps: u32,
    pub(crate) batches: Vec<u64>,
    pub(crate) modes: Vec<Mode>,
    pub(crate) latency_batches_max: u32,
    pub(crate) repeat: u16,
    pub(crate) seed: u32,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

impl CeilingsPlan {
    /// The plan of `options` for a device with `facts` and `free_bytes` of memory. Footprints that do not fit are left out.
    pub(crate) fn new(options: &CeilingOptions, facts: &Facts, free_bytes: u64) -> Self {
        let quick = options.quick;
        // From within L1 to far beyond L2; 4 GiB is the largest table that 32-bit words can index.
        let footprints = if quick { 16..=18 } else { 20..=32 };
        let footprints = or(&options.footprints, || footprints.map(|bits| 1 << bits).collect());
        Self {
            parts: or(&options.only, || Part::value_variants().to_vec()),
            streams: or(&options.streams, || if quick { vec![1, 2] } else { vec![1, 2, 4, 8, 16, 24] }),
            copy_bytes: or(&options.copy_bytes, || {
                if quick { vec![4 * KIB] } else { vec![64 * KIB, MIB, 16 * MIB] }
            }),
            copy_total_bytes: if quick { 16 * KIB } else { 512 * MIB },
            footprints: footprints.into_iter().filter(|&bytes| bytes <= free_bytes / 2).collect(),
            gather_blocks: if quick { 2 } else { facts.multiprocessors.max(1) * 8 },
            gather_rounds: if quick { 1 } else { 64 },
            chase_steps: if quick { 16 } else { 4096 },
            batches: or(&options.batches, || {
                if quick {
                    vec![1, 256]
                } else {
                    (4..=10).map(|bits| 1 << (2 * bits)).take_while(|&n| n <= MIB).collect()
                }
            }),
            modes: or(&options.modes, || Mode::value_variants().to_vec()),
            latency_batches_max: if quick { 3 } else { 2000 },
            repeat: options.repeat.unwrap_or(if quick { 1 } else { 5 }),
            seed: options.seed,
        }
    }
}

fn or<T: Clone>(given: &[T], usual: impl FnOnce() -> Vec<T>) -> Vec<T> {
    if given.is_empty() { usual() } else { given.to_vec() }
}

/// A number with the suffix `K`, `M` or `G`, powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let size = units::size(text);
    size.ok_or_else(|| format!("'{text}' is not a number above 0 such as 512, 64K, 16M or 1G"))
}

fn footprint(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes.is_power_of_two() && (64..=1 << 32).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("'{text}' is not a power of two from 64 to 4G"))
    }
}

fn batch(text: &str) -> Result<u64, String> {
    match size(text)? {
        keys if keys <= 1 << 24 => Ok(keys),
        _ => Err(format!("'{text}' is above 16M")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn options_hold_together() {
        CeilingOptions::command().debug_assert();
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!((size("64K"), size("1.5M").is_err()), (Ok(65_536), true));
        assert!(footprint("96K").is_err());
        assert!(footprint("8G").is_err());
        assert!(batch("17M").is_err());
    }
}
