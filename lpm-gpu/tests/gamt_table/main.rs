//! GAMT's table on the host, held against the oracle through a device of plain Rust.
//!
//! | module | what it checks |
//! |---|---|
//! | `device` | the device: Algorithm 1, steps write by write in any order, lookups that take their time |
//! | `churn` | random deltas: every answer belongs to a generation between submit and collect, at every write |
//! | `rules` | what the paper says of bubbles, GAMT_S, lazy deletion; memory limits; taking back |
//! | `full_tables` | full-size tables and a real update stream, when `FWD_DATA` names their folder |

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

mod churn;
mod device;
mod full_tables;
mod random;
mod rules;
