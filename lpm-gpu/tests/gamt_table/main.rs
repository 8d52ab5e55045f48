//! GAMT's host table, compared with the oracle through a device in plain Rust ([`lpm_gpu::testing`]).
//!
//! | module | what it checks |
//! |---|---|
//! | `churn` | random deltas: every answer belongs to a generation between submit and collect, at every write |
//! | `rules` | rules of the paper on bubbles, GAMT_S and lazy deletion; memory limits; undo |
//! | `full_tables` | full-size tables and a real update stream, when `FWD_DATA` names their folder |

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

mod churn;
mod full_tables;
mod random;
mod rules;
