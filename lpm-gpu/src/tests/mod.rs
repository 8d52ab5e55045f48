//! What the tests of several tables share, all without a device.
//!
//! - `stores`: every store of an update under every interleaving with the loads of lookups.
//! - `direct`: a table that is indexed by the key, beside the oracle, on a model of its kernels.

pub(crate) mod direct;
pub(crate) mod stores;
