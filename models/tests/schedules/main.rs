//! Protocols with too many steps to try them all, under schedules drawn at random (`shuttle`), sequentially consistent. What rests on
//! orderings and fences is in the target `memory`.
//!
//! | model | production code | what could go wrong |
//! |---|---|---|
//! | `coop_model` | all of `lpm-phi/src/coop`, `lend.rs`, `lpm-core/src/failover` | a half fails: an answer is lost, is of a table that was given up, or nobody wakes |
//! | `pipeline_model` | `fwd-app/src/topology/pipeline.rs`, `datapath/{batch,lookup}.rs` | a batch is lost, comes twice or overtakes another; a stage never ends |
//!
//! Time is a count of looks at the clock, so a thread may be late at any place. `FWD_MODELS=full` draws a hundred times as many
//! schedules, from another seed each time; the usual number comes from one seed. A failure prints a schedule for `shuttle::replay`.

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
mod pipeline_model;
mod sync;
mod topology;

#[path = "../../../lpm-phi/src/coop/mod.rs"]
mod coop;
#[path = "../../../lpm-core/src/failover/mod.rs"]
mod failover;
#[path = "../../../lpm-phi/src/lend.rs"]
mod lend;

/// The engine that `coop` takes unless it is told: not made in the models.
mod bloom {
    use fib::oracle::OracleEngine;
    use fib::{EngineError, EngineOptions};

    pub(crate) struct BloomEngine;

    impl BloomEngine {
        pub(crate) const NAME: &'static str = "bloom";

        #[expect(clippy::new_ret_no_self, clippy::unnecessary_wraps, reason = "as the real one is used")]
        pub(crate) fn new(options: &EngineOptions) -> Result<OracleEngine, EngineError> {
            Ok(OracleEngine::new(options))
        }
    }
}

/// `dpdk_ffi`, and what else of the forwarder the pipeline names.
mod dpdk;
pub(crate) use dpdk::{Burst, tsc};
extern crate self as dpdk_ffi;

pub(crate) use channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, TrySendError, bounded};
// `crossbeam_channel` is this crate here.
extern crate self as crossbeam_channel;
