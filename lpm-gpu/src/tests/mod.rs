//! Tests of several tables, without a device: `stores` store by store with lookups, `direct` against the oracle.

pub(crate) mod direct;
pub(crate) mod stores;
