//! The doorbell of persistent kernels: the host's production code, and a [`ModelBlock`] that follows `serve` of `kernels/common.cuh`. One model
//! thread represents a block, because `sync_block` orders the threads of a block.

use crate::check::{check, check_fails};
use crate::cu::{Device, Shared, memory};
use crate::doorbell::{BatchNumber, Doorbells, Request};
use crate::sync::atomic::{Ordering, fence};
use crate::sync::thread;

const DOORBELL: usize = 0;
const WORDS: usize = 2;
const HEADER: usize = 3;
const KEYS: usize = 4;
const RAW: usize = 5;
const STOP: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lacks {
    Nothing,
    FenceAfterBell,
    FenceBeforeDone,
    /// The block serves any bell that is not 0, even one that equals the last bell.
    LastBell,
}

struct ModelBlock {
    control: Shared<u64>,
    done: Shared<u32>,
    keys: Shared<u32>,
    raw: Shared<u32>,
    part: usize,
    served: u32,
    lacks: Lacks,
    /// Batches after which the block exits; `u32::MAX` if it waits to be stopped.
    ends_after: u32,
}

impl ModelBlock {
    /// `serve`, line by line. Its doorbell and `done` are `relaxed.sys`. Other accesses are plain there and relaxed here: the
    /// asserts hold if each reads the one value that was written before the bell. Returns the number of batches served.
    fn serve(mut self) -> u32 {
        let word = |at: usize| self.control.atomics()[at].load(Ordering::Relaxed);
        let mut batches = 0;
        loop {
            let mut bell = word(DOORBELL);
            while low(bell) == self.served && (self.lacks != Lacks::LastBell || low(bell) == 0) {
                thread::yield_now();
                bell = word(DOORBELL);
            }
            if self.lacks != Lacks::FenceAfterBell {
                fence(Ordering::SeqCst); // fence_system
            }
            self.served = low(bell);
            if self.served == STOP {
                return batches;
            }
            batches += 1;
            assert!(batches < 4, "a bell served again");
            let [words, header, keys, raw] = [WORDS, HEADER, KEYS, RAW].map(word);
            assert_eq!(words + 1, header, "half of a request");
            assert_eq!(keys + 1, raw, "half of a request");
            // Each block serves its share of the keys: here one key, at the block's index.
            assert_eq!(bell >> 32, self.done.len() as u64);
            let key = self.keys.atomics()[self.part].load(Ordering::Relaxed);
            self.raw.atomics()[self.part].store(answer(key, words), Ordering::Relaxed);
            if self.lacks != Lacks::FenceBeforeDone {
                fence(Ordering::SeqCst); // fence_system
            }
            self.done.atomics()[self.part].store(self.served, Ordering::Relaxed);
            if batches == self.ends_after {
                return batches;
            }
        }
    }
}

fn low(bell: u64) -> u32 {
    u32::try_from(bell & 0xffff_ffff).unwrap()
}

fn answer(key: u32, words: u64) -> u32 {
    key * 100 + u32::try_from(words).unwrap()
}

/// The host submits `batches` batches, each with other keys and another table, numbered from `first` on, to `parts` blocks.
fn model(parts: usize, batches: u32, first: u32, lacks: Lacks) {
    memory::forget_all();
    let shared = |len| Shared::<u32>::new(&Device, len).unwrap();
    let (done, keys, raw) = (shared(parts), shared(parts), shared(parts));
    let control = Shared::<u64>::new(&Device, Doorbells::control_words(1)).unwrap();
    control.atomics()[DOORBELL].store(first.into(), Ordering::Relaxed);
    done.atomics().iter().for_each(|done| done.store(first, Ordering::Relaxed));
    let begin = |part| {
        let (control, done, keys, raw) = (control.clone(), done.clone(), keys.clone(), raw.clone());
        let ends_after = if parts == 1 { u32::MAX } else { batches };
        let block = ModelBlock { control, done, keys, raw, part, served: first, lacks, ends_after };
        thread::spawn(move || block.serve())
    };
    // Several blocks that spin concurrently have too many executions: they start when the bell has rung, and wait for no stop.
    let mut blocks: Vec<_> = if parts == 1 { vec![begin(0)] } else { Vec::new() };
    let (doorbells, mut last) =
        (Doorbells::new(control.clone(), done.clone(), parts), BatchNumber::numbered(first));
    for batch in 1..=batches {
        let mine: Vec<u32> = (0..).take(parts).map(|part| batch * 10 + part).collect();
        keys.write(0, &mine).unwrap();
        let table = u64::from(batch) * 2;
        let request = Request {
            table: [table, table + 1],
            batch: [table + 7, table + 8],
            count: u32::try_from(parts).unwrap(),
        };
        doorbells.ring(0, &mut last, request).unwrap();
        if parts > 1 {
            blocks.extend((0..parts).map(begin));
        }
        while !doorbells.is_over(0, last) {
            thread::yield_now();
        }
        let mut answers = vec![0; parts];
        raw.read(0, &mut answers).unwrap();
        assert!(
            answers.iter().zip(mine).all(|(&got, key)| got == answer(key, table)),
            "answers of batch {batch}: {answers:?}"
        );
    }
    doorbells.stop();
    for block in blocks {
        assert_eq!(block.join().unwrap(), batches, "each block serves each batch once");
    }
}

#[test]
fn each_batch_is_served_once_as_it_was_written_and_read_when_it_is_over() {
    check(|| model(1, 2, 0, Lacks::Nothing), &[]);
}

#[test]
fn a_batch_is_over_when_all_its_blocks_are_done() {
    let bell = ("element!(u64, AtomicU64)", "the blocks begin after the bell");
    check(|| model(2, 1, 0, Lacks::Nothing), &[bell]);
}

#[test]
fn numbers_begin_again_before_the_one_that_stops() {
    check(|| model(1, 2, STOP - 3, Lacks::Nothing), &[]);
    check(|| model(1, 2, STOP - 2, Lacks::Nothing), &[]);
    check(|| model(1, 1, STOP - 1, Lacks::Nothing), &[]);
}

#[test]
fn a_block_needs_its_fences_and_the_last_bell() {
    check_fails(|| model(1, 1, 0, Lacks::FenceAfterBell));
    check_fails(|| model(1, 1, 0, Lacks::FenceBeforeDone));
    check_fails(|| model(1, 1, 0, Lacks::LastBell));
}

/// [`ModelBlock`] follows this text. When this test fails, compare the two, then store the new digest here.
#[test]
fn the_kernel_is_the_one_that_the_model_follows() {
    let source = include_str!("../../../lpm-gpu/kernels/common.cuh");
    let from = source.find("struct alignas(64) Slot").unwrap();
    let code: String =
        source[from..].lines().map(|line| line.split("//").next().unwrap_or_default().trim()).collect();
    let digest = code
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    assert_eq!(digest, 0xb5445dd329914dca, "common.cuh: struct Slot, load_pair or serve has changed");
}
