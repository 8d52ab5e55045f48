//! Protocols with too many steps to try all executions, under random schedules (`shuttle`), sequentially consistent.
//! The target `memory` covers what depends on orderings and fences.
//!
//! | model | production code | what could go wrong |
//! |---|---|---|
//! | `coop_model` | `lpm-phi/src/coop`, `lpm-core/src/{lend.rs,pair}` | a half fails: answers lost or from an abandoned table; missed wake-ups |
//! | `pipeline_model` | `fwd-app/src/topology/pipeline.rs`, `datapath/{batch,lookup}.rs` | batches lost, doubled, reordered; stage hangs |
//!
//! `check` runs the models, `sync` and `channel` are the primitives over shuttle, `coop_engines` has engines that fail
//! on demand; `dpdk`, `memory`, `datapath` and `topology` replace what surrounds the forwarder's production files.
//!
//! Time advances with each read of the clock, so a thread may be late at any point. `FWD_MODELS=full` draws a hundred times as many
//! schedules, from a new seed each time; the usual schedules come from a fixed seed. A failure prints a schedule for `shuttle::replay`.

#![expect(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "production files are compiled whole, as parts of their crates"
)]
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails loudly")]

mod channel;
mod check;
mod coop_engines;
mod coop_model;
mod datapath;
mod memory;
mod pipeline_model;
mod sync;
mod topology;

#[path = "../../../lpm-phi/src/coop/mod.rs"]
mod coop;
#[path = "../../../lpm-core/src/lend.rs"]
mod lend;
#[path = "../../../lpm-core/src/pair/mod.rs"]
mod pair;

/// The default engine of `coop`, which the models never create.
mod bloom {
    pub(crate) const NAME: &str = "bloom";
}

mod dpdk;
pub(crate) use dpdk::{Burst, simd, tsc};
extern crate self as dpdk_ffi;
extern crate self as lpm_core;

pub(crate) use channel::{
    Receiver, RecvTimeoutError, Sender, TryRecvError, TrySendError, bounded, unbounded,
};
// In this crate, `crossbeam_channel` is the crate itself.
extern crate self as crossbeam_channel;
