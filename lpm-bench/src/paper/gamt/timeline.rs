//! The timeline of streams (figure 8): the copies and the lookup of each batch, by the device's own clock.

use super::host_tables::LEVELS;
use super::kernels::{Launcher, OnDevice, fault};
use crate::paper::bench::{Bench, Family, Figure, HopSource, Panel, Result, Start, Traffic, json};
use lpm_bench::launch::LIMIT;
use lpm_gpu::cu::{
    Arg, DeviceBuffer, DeviceWords, Event, GpuError, HostSide, Kernel, Module, Pinned, Priority, Shape,
    Stream,
};
use lpm_gpu::gamt::GamtOptions;

const STREAMS: usize = 4;
const BATCHES: usize = 8;
const KEYS: usize = 256 << 10;
const SHAPE: (u32, u32) = (256, 8);
const STEPS: [&str; 3] = ["copy in", "kernel", "copy out"];

struct Lane {
    stream: Stream,
    keys: Pinned<u32>,
    raw: Pinned<u32>,
    device_keys: DeviceBuffer<u32>,
    device_raw: DeviceWords,
}

/// The boundaries between the steps of a batch: events, or microseconds from the first event of all.
struct StepTimes<At = f64> {
    lane: usize,
    us: [At; STEPS.len() + 1],
}

impl Lane {
    fn new(launcher: &Launcher, keys: &[u32]) -> Result<Self, GpuError> {
        let (device, count) = (&launcher.device, keys.len());
        let mut lane = Self {
            stream: Stream::new(device, Priority::Usual)?,
            keys: Pinned::new(device, count, HostSide::Writes)?,
            raw: Pinned::new(device, count, HostSide::Reads)?,
            device_keys: DeviceBuffer::new(device, count)?,
            device_raw: DeviceWords::new(device, count)?,
        };
        lane.keys.slice_mut()?.copy_from_slice(keys);
        Ok(lane)
    }

    /// Enqueues the steps of a batch, with an event before each and after the last.
    fn submit(
        &mut self,
        kernel: &Kernel,
        shape: Shape,
        on: &OnDevice,
    ) -> Result<[Event; STEPS.len() + 1], GpuError> {
        let event = || self.stream.event(true);
        let mut events = [event()?, event()?, event()?, event()?];
        let count = self.keys.len();
        let number = Arg::u32(u32::try_from(count).unwrap_or(u32::MAX));
        self.stream.record(&mut events[0])?;
        self.stream.upload(&self.device_keys, 0, &mut self.keys, 0..count)?;
        self.stream.record(&mut events[1])?;
        let mut args = [
            Arg::buffer(&on.words),
            Arg::buffer(&on.header),
            Arg::buffer(&self.device_keys),
            Arg::buffer(&self.device_raw),
            number,
        ];
        self.stream.launch(kernel, shape, &mut args)?;
        self.stream.record(&mut events[2])?;
        self.stream.download(&mut self.raw, 0..count, &self.device_raw, 0)?;
        self.stream.record(&mut events[3])?;
        Ok(events)
    }
}

/// Sends the batches to `streams` streams in turn, after a warm-up of each.
fn run(launcher: &Launcher, on: &OnDevice, streams: usize, keys: &[u32]) -> Result<Vec<StepTimes>, GpuError> {
    let kernel = Module::new(&launcher.device, on.names.module)?.kernel(on.names.live)?;
    let shape = Shape::new(launcher.device.facts().multiprocessors.max(1) * SHAPE.1, SHAPE.0);
    let mut lanes = (0..streams).map(|_| Lane::new(launcher, keys)).collect::<Result<Vec<_>, _>>()?;
    for lane in &mut lanes {
        lane.submit(&kernel, shape, on)?;
        lane.stream.finish(LIMIT)?;
    }
    let batches = (0..BATCHES).map(|number| {
        let lane = number % streams;
        Ok(StepTimes { lane, us: lanes[lane].submit(&kernel, shape, on)? })
    });
    let batches = batches.collect::<Result<Vec<_>, GpuError>>()?;
    lanes.iter_mut().try_for_each(|lane| lane.stream.finish(LIMIT))?;
    let Some(first) = batches.first() else { return Ok(Vec::new()) };
    let time = |batch: &StepTimes<Event>| {
        let mut us = [0.0; STEPS.len() + 1];
        for (us, event) in us.iter_mut().zip(&batch.us) {
            *us = event.elapsed_us_since(&first.us[0])?;
        }
        Ok(StepTimes { lane: batch.lane, us })
    };
    batches.iter().map(time).collect()
}

/// Draws the steps as a line a stream, records their overlap, and returns the microseconds from begin to end.
fn draw(figure: &mut Figure, streams: usize, batches: &[StepTimes]) -> f64 {
    let mut panel = Panel::new("stream; a third up: kernel, two: copy out");
    let [mut busy, mut end] = [0.0_f64; 2];
    for (number, batch) in batches.iter().enumerate() {
        for (step, name) in STEPS.iter().enumerate() {
            let (from, to) = (batch.us[step], batch.us[step + 1]);
            let height = (batch.lane + 1) as f64 + step as f64 / STEPS.len() as f64;
            [from, to].iter().for_each(|us| panel.add(&format!("stream {}", batch.lane + 1), *us, height));
            (busy, end) = (busy + to - from, end.max(to));
            figure.rows.push(json!({
                "streams": streams, "batch": number, "stream": batch.lane + 1, "step": name, "begin_us": from, "end_us": to,
            }));
        }
    }
    let what = format!("{streams} streams");
    // The clock's resolution is half a microsecond.
    figure.record_unclaimed("steps under way at once, mean", &what, "steps", busy / end.max(0.5));
    figure.record_unclaimed("all batches", &what, "microseconds", end);
    figure.panels.push(panel);
    end
}

pub(super) fn figure_8(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let Some(set) = bench.main_set(Family::V4) else { return figure.without(Family::V4) };
    let keys = bench.stream(set, Family::V4, &Traffic::Random)?;
    let keys = keys.of_round(0).v4();
    let keys = &keys[..keys.len().min(KEYS)];
    let mut launcher = Launcher::open(bench.args.device())?;
    let options = GamtOptions { levels: Some(LEVELS), ..GamtOptions::default() };
    let on = launcher.gamt(options, &set.start(Family::V4, HopSource::Origin, Start::Table), Family::V4)?;
    let mut ends = Vec::new();
    for streams in [1, STREAMS] {
        let batches = run(&launcher, &on, streams, keys).map_err(fault)?;
        ends.push(draw(figure, streams, &batches));
    }
    figure.record_unclaimed("one stream's time over that of 4", "", "times", ends[0] / ends[1].max(0.5));
    figure.fill("batches", &BATCHES);
    figure.fill("keys", &keys.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_under_way_at_once_are_their_sum_over_the_whole() {
        let mut figure = Figure::default();
        // Two batches of 30 us each: in sequence, then in parallel.
        let batch = |lane, from: f64| StepTimes { lane, us: [from, from + 10.0, from + 25.0, from + 30.0] };
        assert_eq!(draw(&mut figure, 1, &[batch(0, 0.0), batch(0, 30.0)]), 60.0);
        assert_eq!(draw(&mut figure, 2, &[batch(0, 0.0), batch(1, 10.0)]), 40.0);
        let at_once = |of: &str| figure.ours_at("steps under way at once, mean", of).unwrap();
        assert_eq!((at_once("1 streams"), at_once("2 streams")), (1.0, 1.5));
        let line = |name: &str| figure.panels[1].points(name).iter().map(|point| (point.x, point.y.median));
        assert_eq!(line("stream 1").count(), 6);
        assert_eq!(line("stream 2").take(2).collect::<Vec<_>>(), [(10.0, 2.0), (20.0, 2.0)]);
        assert_eq!(figure.rows.len(), 12);
    }
}
