//! What threads share: the atomics and locks that the protocols of this crate are written with.
//!
//! Here they are those of `std`. The files that hold a protocol (`engine/grace.rs`, `engine/doorbell.rs`, `cu/shared.rs`) take them
//! from `crate::sync` only, so that the crate `models` can compile the very same files over the types of a model checker.

pub(crate) use std::sync::{Arc, Mutex, PoisonError};

/// Atomics and fences.
pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
