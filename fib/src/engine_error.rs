//! Errors of engines.

use crate::{FibId, IpPrefix, IsaError};

/// Why an engine refused a call or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The table would exceed a limit of the engine; the old table stays in service.
    #[error("{what}: {used} needed, at most {limit} fit")]
    Full {
        /// The limited resource and its unit ("next hops", "table bytes").
        what: &'static str,
        /// The amount that the new table needs.
        used: u64,
        /// The limit.
        limit: u64,
    },
    /// The engine, with its parameters, cannot hold this prefix; the old table stays in service.
    #[error("{prefix}: {wanted}")]
    Prefix {
        /// The prefix.
        prefix: IpPrefix,
        /// The requirement that the prefix does not meet.
        wanted: &'static str,
    },
    /// Table memory could not be allocated; the old table stays in service.
    #[error("no memory for a table of {bytes} bytes: {reason}")]
    Memory {
        /// The bytes requested.
        bytes: u64,
        /// The system's error.
        reason: String,
    },
    /// The instruction set is unknown, or this CPU lacks it.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// No engine has this name.
    #[error("'{name}' is no engine; known are: {known}")]
    Unknown {
        /// The name as given.
        name: String,
        /// The names of all engines.
        known: String,
    },
    /// The device that the engine needs is absent.
    #[error("engine {engine} needs {device}: {reason}")]
    NoDevice {
        /// The engine.
        engine: &'static str,
        /// The device.
        device: &'static str,
        /// Why it cannot be used.
        reason: String,
    },
    /// The device failed while in use: it is lost, refused a call, or did not finish a batch. Batches in flight are
    /// lost; a caller that kept their keys may use another engine.
    #[error("engine {engine}: its device failed: {reason}")]
    Device {
        /// The engine.
        engine: &'static str,
        /// The call that failed, and its error.
        reason: String,
        /// Whether the failure is permanent, so that every later call fails, too.
        lost: bool,
    },
    /// The device has no room for another reader; existing readers are not affected.
    #[error("engine {engine} can have no more readers: {reason}")]
    Reader {
        /// The engine.
        engine: &'static str,
        /// What is short, how much was requested and how much is left.
        reason: String,
    },
    /// The batch is larger than a slot, or its arrays differ in length.
    #[error("a batch of {keys} keys does not fit a slot of {limit}")]
    Batch {
        /// The keys of the batch.
        keys: usize,
        /// The maximum number of keys of a slot.
        limit: usize,
    },
    /// The engine does not hold this FIB.
    #[error("no FIB {fib}: the engine holds {fibs}, numbered from 0")]
    NoFib {
        /// The FIB; the largest id if several are missing.
        fib: FibId,
        /// The number of FIBs that the engine holds.
        fibs: u32,
    },
    /// A parameter of the engine is unknown or out of range.
    #[error("{parameter} = {value}: {wanted}")]
    Parameter {
        /// The parameter's name.
        parameter: &'static str,
        /// The value as given.
        value: String,
        /// The values that are accepted.
        wanted: &'static str,
    },
}
