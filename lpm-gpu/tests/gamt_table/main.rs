//! GAMT's host table against the oracle, on a device in host memory ([`lpm_gpu::testing`]).
//!
//! | module | checks |
//! |---|---|
//! | `churn` | random deltas: every answer belongs to a generation between submit and collect, at every write |
//! | `rules` | rules of the paper on bubbles, GAMT_S and lazy deletion; memory limits; undo |
//! | `full_tables` | full-size tables and a real update stream, if `FWD_DATA` has them |

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

mod churn;
mod full_tables;
mod random;
mod rules;
