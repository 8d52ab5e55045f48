//! What tests of host tables share, in this crate and in others; no device is needed.
//!
//! | file | contents |
//! |---|---|
//! | `device` | a table as the device has it: its words, and the lookups of its kernels, load by load |
//! | `rig` | drives a host table as the engine does, store by store, beside lookups in flight |

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::cast_possible_truncation,
    reason = "a test fails loudly; halves of keys are cut"
)]

mod device;
mod rig;

pub use device::{LoadedTable, LookupModel, high_bits};
pub use rig::HostRig;
