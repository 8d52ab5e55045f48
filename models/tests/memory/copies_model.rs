//! Grace periods and the two-copy writer of `variants` and `miht`: the order of its steps, over the real [`Copies`] and [`Epochs`].
//! The writer's actions after [`Epochs::synchronize`] happen after every batch that could have seen the old state.

use crate::check::{check, check_fails};
use crate::copies::Copies;
use crate::epoch::Epochs;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, UnsafeCell, thread};

/// The words of a copy, accessed with relaxed loads and stores as in the engines, and a cell that detects concurrent access.
#[derive(Default)]
struct Copy {
    words: [AtomicUsize; 2],
    access: UnsafeCell<()>,
}

impl Copy {
    fn read(&self) -> usize {
        self.access.with(|_| ());
        let words = [0, 1].map(|at| self.words[at].load(Ordering::Relaxed));
        assert_eq!(words[0], words[1], "a batch saw two generations");
        words[0]
    }

    fn write(&self, generation: usize) {
        self.access.with_mut(|_| ());
        self.words.iter().for_each(|word| word.store(generation, Ordering::Relaxed));
    }
}

type Write = fn(&Copies<Copy>, &Epochs, usize);

/// The engine shell's update of two copies: wait, apply the previous change to the spare copy, apply the new one, flip.
fn update(copies: &Copies<Copy>, epochs: &Epochs, generation: usize) {
    if generation > 1 {
        epochs.synchronize();
        copies.spare().write(generation - 1);
    }
    copies.spare().write(generation);
    copies.flip();
}

fn no_wait(copies: &Copies<Copy>, _: &Epochs, generation: usize) {
    copies.spare().write(generation);
    copies.flip();
    copies.spare().write(generation);
}

fn no_flip(copies: &Copies<Copy>, epochs: &Epochs, generation: usize) {
    copies.spare().write(generation);
    epochs.synchronize();
    copies.both()[copies.live_number()].write(generation);
}

fn wait_before_flip(copies: &Copies<Copy>, epochs: &Epochs, generation: usize) {
    copies.spare().write(generation);
    epochs.synchronize();
    copies.flip();
    copies.spare().write(generation);
}

fn model(write: Write, readers: usize, batches: usize, generations: usize) {
    let (epochs, copies) = (Epochs::default(), Arc::new(Copies::new([Copy::default(), Copy::default()])));
    let threads: Vec<_> = (0..readers)
        .map(|_| {
            let (mut epoch, copies) = (epochs.register(), Arc::clone(&copies));
            thread::spawn(move || {
                let mut last = 0;
                for _ in 0..batches {
                    let _batch = epoch.enter();
                    let seen = copies.live().read();
                    assert!(seen >= last, "generation {seen} after {last}");
                    last = seen;
                }
            })
        })
        .collect();
    for generation in 1..=generations {
        write(&copies, &epochs, generation);
    }
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(copies.live().read(), generations);
}

const SPARE: [(&str, &str); 1] = [(
    "self.counter.swap(inside, Ordering::SeqCst)",
    "the fence after it orders this; on x86-64 the exchange is the fence",
)];

#[test]
fn what_is_caught_up_with_later_is_seen_by_no_batch() {
    check(|| model(update, 1, 1, 2), &SPARE);
    check(|| model(update, 1, 2, 2), &SPARE);
}

#[test]
fn a_writer_waits_for_each_reader() {
    check(|| model(update, 2, 1, 2), &SPARE);
}

#[test]
fn a_step_left_out_or_out_of_turn_is_noticed() {
    check_fails(|| model(no_wait, 1, 1, 1));
    check_fails(|| model(no_flip, 1, 1, 1));
    check_fails(|| model(wait_before_flip, 1, 1, 1));
}
