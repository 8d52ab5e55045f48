//! Grace pins: unlinked memory is reused only when every batch that was submitted before the update was finished has been collected.

use crate::check::{check, check_fails};
use crate::grace::{GracePeriods, Pins};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, UnsafeCell, thread};

/// Device memory: update `n` puts place `n % 2` in service, and unlinks the other.
#[derive(Default)]
struct PinnedTables {
    in_service: AtomicUsize,
    memory: [UnsafeCell<()>; 2],
}

impl PinnedTables {
    fn batch(&self, pins: &Pins) {
        pins.pin(0);
        let table = self.in_service.load(Ordering::Acquire);
        self.memory[table % 2].with(|_| ());
        pins.unpin(0);
    }

    /// Puts update `update` in service and finishes it; `over` then returns the last update whose memory may be reused.
    fn update(&self, update: usize, over: impl FnOnce(u64) -> u64) {
        self.in_service.store(update, Ordering::Release);
        if over(update as u64) >= update as u64 {
            self.memory[(update + 1) % 2].with_mut(|_| ());
        }
    }
}

fn model(readers: usize, batches: usize, updates: usize, over: fn(&GracePeriods, u64) -> u64) {
    let (grace, tables) = (Arc::new(GracePeriods::default()), Arc::new(PinnedTables::default()));
    let threads: Vec<_> = (0..readers)
        .map(|_| {
            let (pins, tables) = (grace.register(1), Arc::clone(&tables));
            thread::spawn(move || {
                (0..batches).for_each(|_| tables.batch(&pins));
                pins // readers are dropped on the control thread, when their lcores are done
            })
        })
        .collect();
    let (mut overs, mut last) = (0, 0);
    for update in 1..=updates {
        tables.update(update, |number| {
            (overs, last) = (over(&grace, number), number);
            overs
        });
        if overs < update as u64 {
            break; // the next update would need memory that is in use: it gets other memory, or is postponed
        }
    }
    let pins: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(grace.over(), last, "in the end all is over");
    drop(pins);
}

const SPARE: [(&str, &str); 2] = [
    ("= self.finished.load(Ordering::Acquire)", "the writer's own store"),
    ("= self.grace.finished.load(Ordering::Acquire)", "the fence after the pin acquires too"),
];

#[test]
fn memory_is_written_again_under_no_batch() {
    check(|| model(1, 2, 1, GracePeriods::finish), &SPARE);
}

#[test]
fn every_reader_holds_memory_back() {
    let [own, fence] = SPARE;
    let first = (
        "self.slots[slot].store(finished + 1, Ordering::Release)",
        "orders what comes before a second batch",
    );
    check(|| model(2, 1, 1, GracePeriods::finish), &[own, fence, first]);
    check(|| model(1, 1, 2, GracePeriods::finish), &[own, fence, first]);
}

#[test]
fn memory_written_at_once_is_read() {
    check_fails(|| {
        model(1, 1, 1, |grace, update| {
            grace.finish(update);
            update
        });
    });
}
