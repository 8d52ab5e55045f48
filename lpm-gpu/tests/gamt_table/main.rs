//! GAMT's host table against the oracle, on a device in host memory ([`lpm_gpu::testing`]).

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

mod churn;
mod early;
mod full_tables;
mod random;
mod rules;
