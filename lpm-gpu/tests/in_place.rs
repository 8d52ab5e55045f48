//! Keys in adopted memory: read where they lie in every mode, registered once for all readers, and unregistered after the last one.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{KeysInPlace, collect, draw_keys, engine, random_rib, right};
use fib::oracle::{OracleEngine, OraclePair};
use fib::random::Seeded;
use fib::{EngineError, EngineOptions, EngineReader, EngineWriter, KeyBuffer, Keys, NextHopId, Rib, SlotId};
use lpm_core::pair::fallback::Fallback;
use lpm_gpu::cu::testing;
use std::task::Poll;
use std::time::{Duration, Instant};

const MODES: [&str; 3] = ["copy", "mapped", "persistent"];
const LIMIT: Duration = Duration::from_secs(20);
const LEN: usize = 100;

struct Loaded {
    writer: Box<dyn EngineWriter>,
    /// Keys of each family and their answers: those submitted, then those that overwrite them.
    batches: [[(KeyBuffer, Vec<NextHopId>); 2]; 2],
}

impl Loaded {
    fn new(mode: &str) -> Self {
        let mut dice = Seeded::new(0, 3);
        let mut rib: Rib = random_rib(500, &mut dice);
        let mut writer = engine("gamt", &[("mode", mode)]).unwrap();
        rib.commit_to(writer.as_mut()).unwrap();
        let oracle = OraclePair::from(&rib);
        let mut draw = || draw_keys(&rib, LEN, &mut dice).map(|keys| (keys.clone(), right(&keys, &oracle)));
        let (first, second) = (draw(), draw());
        let [[first4, first6], [second4, second6]] = [first, second];
        assert!(first4.1 != second4.1 && first6.1 != second6.1, "the answers tell the batches apart");
        Self { writer, batches: [[first4, second4], [first6, second6]] }
    }

    fn refused(&self) -> f64 {
        self.writer.stats().details.get("key_memory_refused").unwrap()
    }
}

/// Submits `first` to a stalled device, overwrites it with `second`, and returns the answers to it.
fn overwritten(
    reader: &mut dyn EngineReader,
    keys: &mut KeysInPlace,
    [first, second]: [Keys<'_>; 2],
    mock: testing::Mock,
) -> Vec<NextHopId> {
    mock.set_stalled(1);
    reader.submit(SlotId(1), keys.put(first)).unwrap();
    let second = keys.put(second);
    mock.set_stalled(0);
    collect(reader, 1, second).unwrap()
}

#[test]
fn nothing_copies_keys_that_lie_in_adopted_memory() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    for mode in MODES {
        let loaded = Loaded::new(mode);
        let mut reader = loaded.writer.reader(2, LEN).unwrap();
        let (mut keys, memory) = KeysInPlace::new(LEN, 2);
        for [(first, right_first), (second, _)] in &loaded.batches {
            let answers =
                overwritten(reader.as_mut(), &mut keys[1], [first, second].map(KeyBuffer::keys), mock);
            // The last 64 bits of IPv6 keys are read at `collect`, for few of the answers.
            let same = answers.iter().zip(right_first).filter(|(answer, right)| answer == right).count();
            assert!(same > LEN / 2, "{mode}: {same} of the keys before the reader adopts their memory");
        }
        reader.adopt(&memory).unwrap();
        reader.adopt(&memory).unwrap();
        for [(first, _), (second, right)] in &loaded.batches {
            let answers =
                overwritten(reader.as_mut(), &mut keys[1], [first, second].map(KeyBuffer::keys), mock);
            assert!(answers == *right, "{mode}, {}", first.family());
            // Keys elsewhere, and unaligned ones, are copied.
            for from in [1, 3] {
                let part = keys[0].put(second.keys()).part(from..LEN);
                reader.submit(SlotId(0), part).unwrap();
                assert_eq!(collect(reader.as_mut(), 0, part).unwrap(), right[from..], "{mode}: from {from}");
            }
            let mut out = vec![NextHopId::MAX; LEN];
            reader.lookup(second.keys(), &mut out).unwrap();
            assert!(out == *right, "{mode}: keys elsewhere");
        }
        assert_eq!(loaded.refused(), 0.0);
        // The registration keeps the memory mapped.
        drop((keys, memory));
        let ([_, (second, right)], mut out) = (&loaded.batches[0], vec![NextHopId::MAX; LEN]);
        reader.lookup(second.keys(), &mut out).unwrap();
        assert!(out == *right && mock.registered() > 0, "{mode}");
        drop((reader, loaded));
        assert_eq!(mock.registered(), 0, "{mode}");
    }
}

#[test]
fn keys_are_copied_if_the_driver_refuses_their_memory() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    for (call, mode) in [("cuMemHostRegister_v2", "copy"), ("cuMemHostGetDevicePointer_v2", "mapped")] {
        let loaded = Loaded::new(mode);
        let mut reader = loaded.writer.reader(2, LEN).unwrap();
        let (mut keys, memory) = KeysInPlace::new(LEN, 1);
        mock.fail_call(call, 0, 801);
        reader.adopt(&memory).unwrap();
        assert_eq!(loaded.refused(), 1.0, "{call}");
        let [[(first, right), (second, _)], _] = &loaded.batches;
        let answers = overwritten(reader.as_mut(), &mut keys[0], [first, second].map(KeyBuffer::keys), mock);
        assert!(answers == *right, "{call}");
        drop((reader, loaded));
        assert_eq!(mock.registered(), 0, "{call}");
    }
}

#[test]
fn an_address_that_the_driver_did_not_tell_is_asked_for_again() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    let loaded = Loaded::new("persistent");
    let mut readers = [0, 1].map(|_| loaded.writer.reader(2, LEN).unwrap());
    let (mut keys, memory) = KeysInPlace::new(LEN, 1);
    let [[(batch, right), _], _] = &loaded.batches;
    // A persistent kernel runs, so the memory stays registered.
    readers[0].lookup(batch.keys(), &mut vec![NextHopId::MAX; LEN]).unwrap();
    mock.fail_call("cuMemHostGetDevicePointer_v2", 0, 801);
    for reader in &mut readers {
        reader.adopt(&memory).unwrap();
    }
    assert_eq!((loaded.refused(), mock.registered()), (1.0, memory.addresses().len() as u64));
    let asked = keys[0].put(batch.keys());
    for reader in &mut readers {
        reader.submit(SlotId(0), asked).unwrap();
        assert!(collect(reader.as_mut(), 0, asked).unwrap() == *right);
    }
}

#[test]
fn engines_and_a_fallback_pair_share_memory_until_the_last_reader_is_gone() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    for mode in MODES {
        let (one, two) = (Loaded::new(mode), Loaded::new(mode));
        let oracle = Box::new(OracleEngine::new(&EngineOptions::default()));
        let primary = engine("gamt", &[("mode", mode)]);
        let pair = Fallback::new("gamt", primary, oracle, LIMIT, Box::new(|_, _| {})).unwrap();
        let (mut keys, memory) = KeysInPlace::new(LEN, 1);
        let mut readers = [&*one.writer, &*two.writer, &pair].map(|writer| writer.reader(2, LEN).unwrap());
        for reader in &mut readers {
            reader.adopt(&memory).unwrap();
        }
        let bytes = memory.addresses().len() as u64;
        assert_eq!((mock.registered(), one.refused() + two.refused()), (bytes, 0.0), "{mode}");
        let [_, (second, right)] = &one.batches[0];
        let asked = keys[0].put(second.keys());
        for reader in &mut readers[..2] {
            reader.submit(SlotId(0), asked).unwrap();
        }
        for reader in &mut readers[..2] {
            assert!(collect(reader.as_mut(), 0, asked).unwrap() == *right, "{mode}");
        }
        readers[2].submit(SlotId(0), asked).unwrap();
        let none = collect(readers[2].as_mut(), 0, asked).unwrap();
        assert!(none.iter().all(|answer| answer.is_none()), "{mode}: the pair has no routes");
        let [first, second, third] = readers;
        drop((first, second));
        assert_eq!(mock.registered(), bytes, "{mode}: the pair's reader reads it");
        // Another reader's persistent kernel runs: the driver would wait for it.
        let mut other = one.writer.reader(1, LEN).unwrap();
        other.lookup(asked, &mut [NextHopId::NONE; LEN]).unwrap();
        drop(third);
        let left = if mode == "persistent" { bytes } else { 0 };
        assert_eq!(mock.registered(), left, "{mode}");
        // A new reader takes the registration over.
        other.adopt(&memory).unwrap();
        assert_eq!((mock.registered(), one.refused()), (bytes, 0.0), "{mode}");
        drop(other);
        drop((one, two, pair));
        assert_eq!(mock.registered(), 0, "{mode}");
    }
}

/// The datapath reuses a batch that a stalled device has not answered.
#[test]
fn no_answer_is_given_to_keys_that_were_overwritten_after_a_stall() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    for mode in MODES {
        let loaded = Loaded::new(mode);
        let mut reader = loaded.writer.reader(2, LEN).unwrap();
        let (mut keys, memory) = KeysInPlace::new(LEN, 1);
        reader.adopt(&memory).unwrap();
        for [(first, _), (second, right)] in &loaded.batches {
            mock.set_stalled(1);
            reader.submit(SlotId(0), keys[0].put(first.keys())).unwrap();
            assert!(reader.discard(SlotId(0)).is_pending(), "{mode}");
            let asked = keys[0].put(second.keys());
            assert!(reader.collect(SlotId(0), asked).is_pending(), "{mode}: the device has it");
            mock.set_stalled(0);
            let start = Instant::now();
            while reader.discard(SlotId(0)).is_pending() {
                assert!(start.elapsed() < LIMIT, "{mode}: the slot never comes back");
                std::thread::yield_now();
            }
            let none = reader.collect(SlotId(0), asked);
            assert!(matches!(none, Poll::Ready(Err(EngineError::Batch { .. }))), "{mode}: {none:?}");
            reader.submit(SlotId(0), asked).unwrap();
            assert!(collect(reader.as_mut(), 0, asked).unwrap() == *right, "{mode}");
        }
    }
}
