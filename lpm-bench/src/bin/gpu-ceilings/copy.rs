//! Bandwidth between page-locked host memory and the device, by direction, concurrent streams and bytes of a copy.
//!
//! An IPv4 lookup moves 4 bytes each way, an IPv6 lookup 8 and 4, so these figures bound every engine end to end.

use crate::bench::{DeviceBench, progress};
use crate::options::CeilingsPlan;
use crate::report::CopyRow;
use lpm_bench::launch::LIMIT;
use lpm_bench::stats::quantile;
use lpm_gpu::cu::{Device, DeviceBuffer, GpuError, HostSide, Pinned, Priority, Stream};
use serde::Serialize;
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CopyDirection {
    Up,
    Down,
    /// Both at the same time, each on separate streams.
    Both,
}

struct CopyLane {
    stream: Stream,
    host: Pinned<u64>,
    device: DeviceBuffer<u64>,
    up: bool,
}

impl CopyLane {
    fn new(device: &Device, words: usize, up: bool) -> Result<Self, GpuError> {
        Ok(Self {
            stream: Stream::new(device, Priority::Usual)?,
            host: Pinned::new(device, words, if up { HostSide::Writes } else { HostSide::Reads })?,
            device: DeviceBuffer::new(device, words)?,
            up,
        })
    }

    fn copy(&mut self, words: usize) -> Result<(), GpuError> {
        if self.up {
            self.stream.upload(&self.device, 0, &mut self.host, 0..words)
        } else {
            self.stream.download(&mut self.host, 0..words, &self.device, 0)
        }
    }
}

pub(crate) fn measure(bench: &mut DeviceBench, plan: &CeilingsPlan) -> Result<Vec<CopyRow>, GpuError> {
    let streams_max = usize::from(plan.streams.iter().copied().max().unwrap_or(0));
    let bytes_max = plan.copy_bytes.iter().copied().max().unwrap_or(0);
    let mut lanes: [Vec<CopyLane>; 2] = [Vec::new(), Vec::new()];
    for (side, up) in lanes.iter_mut().zip([true, false]) {
        for _ in 0..streams_max {
            side.push(CopyLane::new(&bench.device, words(bytes_max), up)?);
        }
    }
    let bar = progress("copies", 3 * plan.streams.len() * plan.copy_bytes.len());
    let mut rows = Vec::new();
    for direction in [CopyDirection::Up, CopyDirection::Down, CopyDirection::Both] {
        for &streams in &plan.streams {
            for &bytes in &plan.copy_bytes {
                let mut lanes: Vec<&mut CopyLane> = lanes
                    .iter_mut()
                    .flat_map(|side| side.iter_mut().take(usize::from(streams)))
                    .filter(|lane| {
                        direction == CopyDirection::Both || lane.up == (direction == CopyDirection::Up)
                    })
                    .collect();
                let copied = 8 * words(bytes) as u64;
                let rounds = plan.copy_total_bytes.div_ceil(copied * u64::from(streams)).max(1);
                run(&mut lanes, words(bytes), rounds.min(2))?; // touches every page and wakes the bus
                let mut rates = Vec::new();
                for _ in 0..plan.repeat {
                    let seconds = run(&mut lanes, words(bytes), rounds)?;
                    rates.push((copied * rounds * lanes.len() as u64) as f64 / seconds / 1e9);
                }
                rows.push(CopyRow {
                    direction,
                    streams,
                    bytes: copied,
                    gb_s: quantile(&rates, 0.5),
                    gb_s_min: quantile(&rates, 0.0),
                    gb_s_max: quantile(&rates, 1.0),
                });
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// `rounds` copies of `words` words on each lane, in turn; seconds from the first call to the last end.
fn run(lanes: &mut [&mut CopyLane], words: usize, rounds: u64) -> Result<f64, GpuError> {
    let start = Instant::now();
    for _ in 0..rounds {
        for lane in &mut *lanes {
            lane.copy(words)?;
        }
    }
    for lane in lanes {
        lane.stream.finish(LIMIT)?;
    }
    Ok(start.elapsed().as_secs_f64().max(1e-9))
}

fn words(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(8)).unwrap_or(usize::MAX).max(1)
}
