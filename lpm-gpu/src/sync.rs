//! Atomics and locks of the crate's thread protocols. `engine/grace.rs`, `engine/doorbell.rs` and `cu/shared.rs` import them
//! only from here, so that the crate `models` can compile the same files over the types of a model checker.

pub(crate) use std::sync::{Arc, Mutex, PoisonError};

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
