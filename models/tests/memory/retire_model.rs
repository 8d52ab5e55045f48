//! Values that a writer replaces under readers: the writer's thread frees each of them, once no reader holds it.
//!
//! The production code has no ordering or fence to weaken. It relies on the count in an `Arc`, which loom models, and
//! on `arc_swap`, whose guarantees the model provides. Omitted steps are detected.

use crate::check::{check_fails, holds};
use crate::retire::Retired;
use crate::sync::UnsafeCell;
use crate::sync::counted::{Arc, ArcSwap};
use crate::sync::thread::{self, ThreadId, current};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts freed values. Not part of the model: all executions of loom are on one thread.
type Freed = std::sync::Arc<AtomicUsize>;

/// A value, and who may free it. Loom detects a read that is still in progress then.
struct RetiredValue {
    read: UnsafeCell<()>,
    writer: ThreadId,
    freed: Freed,
}

impl RetiredValue {
    fn new(freed: &Freed) -> Arc<Self> {
        Arc::new(Self { read: UnsafeCell::new(()), writer: current().id(), freed: Freed::clone(freed) })
    }
}

impl Drop for RetiredValue {
    fn drop(&mut self) {
        self.read.with_mut(|_| ());
        assert_eq!(current().id(), self.writer, "a reader freed a value");
        self.freed.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// Keeps its reference until it sees a newer value, as lcores do with tables.
    Cached,
    /// Drops it after each read, as lookups of deep routes do.
    Each,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    Retires,
    /// Drops it at once, as `ArcSwap::store` does.
    LetsGo,
    /// Drops it if the count was 2 before the value was taken out of the place.
    CountsBefore,
}

fn model(readers: usize, replacements: usize, reads: Reads, writes: Writes) {
    let freed = Freed::default();
    let place = Arc::new(ArcSwap::new(RetiredValue::new(&freed)));
    let threads: Vec<_> = (0..readers)
        .map(|_| {
            let place = Arc::clone(&place);
            thread::spawn(move || {
                let mut cached = place.load_full();
                cached.read.with(|_| ());
                if reads == Reads::Each {
                    drop(cached);
                    cached = place.load_full();
                } else {
                    let now = place.load_full();
                    if !Arc::ptr_eq(&now, &cached) {
                        cached = now;
                    }
                }
                cached.read.with(|_| ());
            })
        })
        .collect();
    let (mut retired, mut later) = (Retired::default(), Vec::new());
    for _ in 0..replacements {
        let value = RetiredValue::new(&freed);
        match writes {
            Writes::Retires => retired.replace(&place, value, 8),
            Writes::LetsGo => drop(place.swap(value)),
            Writes::CountsBefore => {
                let is_alone = Arc::strong_count(&place.load_full()) == 2;
                let before = place.swap(value);
                if is_alone { drop(before) } else { later.push(before) }
            }
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
    retired.free();
    drop(later);
    assert_eq!((retired.bytes(), freed.load(Ordering::Relaxed)), (0, replacements), "a value is kept");
}

#[test]
fn the_writer_frees_each_value_when_nobody_reads_it() {
    holds(|| model(1, 2, Reads::Cached, Writes::Retires));
    holds(|| model(1, 2, Reads::Each, Writes::Retires));
    holds(|| model(2, 1, Reads::Cached, Writes::Retires));
}

#[test]
fn a_writer_that_lets_go_or_counts_too_early_leaves_a_value_to_a_reader() {
    check_fails(|| model(1, 1, Reads::Cached, Writes::LetsGo));
    check_fails(|| model(1, 1, Reads::Each, Writes::LetsGo));
    check_fails(|| model(1, 1, Reads::Cached, Writes::CountsBefore));
}
