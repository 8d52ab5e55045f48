//! A stalled device costs only the batches that wait for it, each for the configured time; later work does not wait.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{draw_keys, random_rib, right};
use fib::oracle::OraclePair;
use fib::random::Seeded;
use fib::{EngineError, EngineOptions, EngineReader, EngineWriter, Keys, NextHopId, SlotId};
use lpm_gpu::cu::testing;
use lpm_gpu::engine::GpuEngine;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

fn engine(name: &'static str, mode: &str, stall_us: u64) -> Box<dyn EngineWriter> {
    let options =
        EngineOptions { stall_us: Some(stall_us), ..EngineOptions::with_parameters(&[("mode", mode)]) };
    Box::new(GpuEngine::new(name, &options).unwrap())
}

/// Runs a lookup that the stalled device does not answer; returns the time until its error.
fn stalls(reader: &mut dyn EngineReader, keys: Keys<'_>) -> Duration {
    let start = Instant::now();
    let refused = reader.lookup(keys, &mut vec![NextHopId::NONE; keys.len()]);
    assert!(matches!(refused, Err(EngineError::Device { lost: false, .. })), "{refused:?}");
    start.elapsed()
}

#[test]
fn a_lookup_waits_as_long_as_the_user_says_and_the_next_ones_do_not_wait_again() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    for mode in ["copy", "mapped", "persistent"] {
        let mut dice = Seeded::new(0, 5);
        let mut rib = random_rib(300, &mut dice);
        let mut writer = engine("gamt", mode, 200_000);
        rib.commit_to(writer.as_mut()).unwrap();
        let [keys, _] = draw_keys(&rib, 500, &mut dice);
        let right = right(&keys, &OraclePair::from(&rib));
        let keys = keys.keys();
        let mut reader = writer.reader(3, 100).unwrap();
        let mut answers = vec![NextHopId::NONE; 500];
        reader.lookup(keys, &mut answers).unwrap();
        assert_eq!(answers, right, "{mode}");

        mock.set_stalled(1);
        // A lookup must not abandon a batch that its owner has yet to collect.
        reader.submit(SlotId(2), keys.part(0..100)).unwrap();
        let waited = stalls(reader.as_mut(), keys);
        assert!(
            waited >= Duration::from_millis(200) && waited < Duration::from_secs(10),
            "{mode}: {waited:?}"
        );
        // No slot is left, so later lookups do not wait for the same batches again.
        let waited: Duration = (0..20).map(|_| stalls(reader.as_mut(), keys)).sum();
        assert!(waited < Duration::from_secs(3), "{mode}: 20 lookups took {waited:?}");
        // Nor does a submit to one of the lookup's slots.
        let start = Instant::now();
        for _ in 0..20 {
            let refused = reader.submit(SlotId(0), Keys::V4(&[1]));
            assert!(matches!(refused, Err(EngineError::Device { lost: false, .. })), "{mode}: {refused:?}");
            assert!(reader.collect(SlotId(0), Keys::V4(&[1])).is_pending(), "{mode}");
        }
        assert!(start.elapsed() < Duration::from_secs(3), "{mode}: {:?}", start.elapsed());
        mock.set_stalled(0);

        let start = Instant::now();
        while reader.lookup(keys, &mut answers).is_err() {
            assert!(start.elapsed() < LIMIT, "{mode}: the slots never come back");
        }
        assert_eq!(answers, right, "{mode}: answers of another batch");
        assert_eq!(
            common::collect(reader.as_mut(), 2, keys.part(0..100)).unwrap(),
            right[..100],
            "{mode}: the batch in flight"
        );
        // The earlier batch may take a while on a busy machine.
        while reader.submit(SlotId(0), keys.part(0..7)).is_err() {
            assert!(start.elapsed() < LIMIT, "{mode}: slot 0 never comes back");
        }
        assert_eq!(common::collect(reader.as_mut(), 0, keys.part(0..7)).unwrap(), right[..7], "{mode}");
    }
}

#[test]
fn a_batch_that_was_given_up_holds_its_pin_until_it_is_over() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    let mut writer = engine("sail-gpu", "copy", 1000);
    let mut reader = writer.reader(1, 100).unwrap();
    // Adds and removes a route that needs two chunks; returns the number of chunks that wait for a batch.
    let mut rib = fib::Rib::new();
    let mut flicker = |writer: &mut dyn EngineWriter| {
        for next_hop in [NextHopId::new(1).unwrap(), NextHopId::NONE] {
            rib.v4.set(fib::Prefix::truncating(0x0a00_0001, 32), next_hop);
            rib.commit_to(writer).unwrap();
        }
        writer.stats().details.get("sail_chunks_waiting").unwrap()
    };
    assert_eq!(flicker(writer.as_mut()), 0.0);
    mock.set_stalled(1);
    stalls(reader.as_mut(), Keys::V4(&[1, 2, 3]));
    mock.set_stalled(0);
    assert_eq!(flicker(writer.as_mut()), 2.0, "the batch may still be under way");
    let start = Instant::now();
    while reader.lookup(Keys::V4(&[1, 2, 3]), &mut [NextHopId::NONE; 3]).is_err() {
        assert!(start.elapsed() < LIMIT, "the slot never comes back");
    }
    assert_eq!(flicker(writer.as_mut()), 0.0, "the batch is over");
}

#[test]
fn a_device_that_hangs_while_modes_are_measured_is_given_up() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    let writer = engine("gamt", "auto", 1000);
    mock.set_stalled(1);
    let start = Instant::now();
    let refused = writer.reader(2, 100).err();
    assert!(matches!(refused, Some(EngineError::Device { lost: true, .. })), "{refused:?}");
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
    drop(writer);
    mock.set_stalled(0);
    mock.reset_device(0);
}
