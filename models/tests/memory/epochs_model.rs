//! Grace periods of `lpm-phi`: what the writer does after [`Epochs::synchronize`] happens after every batch that could
//! have seen the old state.

use crate::check::{check, check_fails};
use crate::epoch::Epochs;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, UnsafeCell, thread};

/// Two places, and the index of the one that batches read. Loom detects a write to a place while another thread reads
/// it, or may.
#[derive(Default)]
struct Places {
    in_use: AtomicUsize,
    places: [UnsafeCell<()>; 2],
}

impl Places {
    fn read(&self) {
        // Acquire, as in all code here that publishes tables. For the first flip relaxed would be enough.
        let place = self.in_use.load(Ordering::Acquire);
        self.places[place].with(|_| ());
    }

    fn write(&self, place: usize) {
        self.places[place].with_mut(|_| ());
    }
}

/// `readers` threads run `batches` batches each, while the writer changes places `changes` times, with or without
/// waiting for the grace period.
fn model(readers: usize, batches: usize, changes: usize, waits: bool) {
    let (epochs, places) = (Epochs::default(), Arc::new(Places::default()));
    let threads: Vec<_> = (0..readers)
        .map(|_| {
            let (mut epoch, places) = (epochs.register(), Arc::clone(&places));
            thread::spawn(move || {
                for _ in 0..batches {
                    let _batch = epoch.enter();
                    places.read();
                }
            })
        })
        .collect();
    for change in 1..=changes {
        places.in_use.store(change % 2, Ordering::Release);
        if waits {
            epochs.synchronize();
        }
        places.write((change + 1) % 2);
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

const SPARE: [(&str, &str); 1] = [(
    "self.counter.swap(inside, Ordering::SeqCst)",
    "the fence after it orders this; on x86-64 the exchange is the fence",
)];

#[test]
fn a_writer_waits_for_every_batch_that_may_see_the_old_state() {
    check(|| model(1, 2, 1, true), &SPARE);
    check(|| model(1, 1, 2, true), &SPARE);
}

#[test]
fn it_waits_for_each_reader() {
    check(|| model(2, 1, 1, true), &SPARE);
}

#[test]
fn without_the_wait_a_batch_reads_what_is_written() {
    check_fails(|| model(1, 1, 1, false));
}
