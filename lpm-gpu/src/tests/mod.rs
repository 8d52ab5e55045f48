//! Tests of several tables, without a device.
//!
//! - `stores`: every store of an update under every interleaving with the loads of lookups.
//! - `direct`: directly indexed tables against the oracle, on a model of their kernels.

pub(crate) mod direct;
pub(crate) mod stores;
