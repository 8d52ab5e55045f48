//! Values that a writer replaces under readers: the writer's thread frees each of them, when nobody reads it.
//!
//! The production code has no ordering or fence of its own, so there is none to weaken: it stands on those of the count in an `Arc`,
//! which loom models, and of `arc_swap`, of which the model has what it promises. Left-out steps are noticed.

use crate::check::{check_fails, holds};
use crate::retire::Retired;
use crate::sync::UnsafeCell;
use crate::sync::counted::{Arc, ArcSwap};
use crate::sync::thread::{self, ThreadId, current};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts freed values. No part of the model: all executions of loom are on one thread.
type Freed = std::sync::Arc<AtomicUsize>;

/// A value, and who may free it. Loom notices a read that is not over then.
struct Value {
    read: UnsafeCell<()>,
    writer: ThreadId,
    freed: Freed,
}

impl Value {
    fn new(freed: &Freed) -> Arc<Self> {
        Arc::new(Self { read: UnsafeCell::new(()), writer: current().id(), freed: Freed::clone(freed) })
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.read.with_mut(|_| ());
        assert_eq!(current().id(), self.writer, "a reader freed a value");
        self.freed.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a reader does with a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// Keeps its reference until it sees a newer value, as lcores do with tables.
    Cached,
    /// Lets go of it after each read, as lookups of deep routes do.
    Each,
}

/// What the writer does when it has replaced a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    Retires,
    /// Lets go at once, as `ArcSwap::store` does.
    LetsGo,
    /// Lets go when the count was 2 before the value was taken out of the place.
    CountsBefore,
}

fn model(readers: usize, replacements: usize, reads: Reads, writes: Writes) {
    let freed = Freed::default();
    let place = Arc::new(ArcSwap::new(Value::new(&freed)));
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
        let value = Value::new(&freed);
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
