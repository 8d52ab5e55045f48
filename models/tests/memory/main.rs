//! Protocols that depend on orderings and fences, over every execution that the C11 memory model allows (`loom`).
//!
//! | model | production code | what could go wrong |
//! |---|---|---|
//! | `copies` | `lpm-core/src/copies.rs`, `lpm-core/src/epoch.rs` | a batch sees a copy that is being written, or two generations |
//! | `retire` | `lpm-core/src/retire.rs` | a reader frees a value, or a value is freed that a reader reads |
//! | `lend` | `lpm-core/src/lend.rs` | a key is answered twice or never, terms change while a grain is being looked up |
//! | `pins` | `lpm-gpu/src/engine/grace.rs` | an update's memory is reused while a batch in flight may read it |
//! | `doorbell` | `lpm-gpu/src/engine/doorbell.rs`, `lpm-gpu/src/cu/shared.rs` | half a request served, or one twice; answers read early |
//!
//! `check` runs the models, `sync` is `crate::sync` over loom, `cu` replaces the driver around the doorbell.
//!
//! Each model is run again with each ordering and each fence of the production code weakened in turn, and must fail
//! ([`check::check`]). This shows why each is needed, and that the model can fail.
//!
//! Limits of loom: it treats `SeqCst` accesses as acquire and release (it does model fences of `SeqCst`), and it
//! reorders nothing within a thread except the visibility of stores. `FWD_MODELS=full` lifts the bound on preemptions.

#![expect(
    dead_code,
    unreachable_pub,
    reason = "production files are compiled whole, as parts of their crates"
)]
#![expect(clippy::arc_with_non_send_sync, reason = "loom runs all threads of a model on one")]
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails loudly")]

mod check;
mod copies_model;
mod doorbell_model;
mod lend_model;
mod pins_model;
mod retire_model;
mod sync;

#[path = "../../../lpm-core/src/copies.rs"]
mod copies;
#[path = "../../../lpm-gpu/src/engine/doorbell.rs"]
mod doorbell;
#[path = "../../../lpm-core/src/epoch.rs"]
mod epoch;
#[path = "../../../lpm-gpu/src/engine/grace.rs"]
mod grace;
#[path = "../../../lpm-core/src/lend.rs"]
mod lend;
#[path = "../../../lpm-core/src/retire.rs"]
mod retire;

mod publish {
    pub(crate) fn report<T>(_: &T) {}
}

mod cu;
