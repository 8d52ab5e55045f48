//! Tests of the engine's insides over the mock driver.
//!
//! - `freed`: no lookup reads a word of the device that may be written again.

#[expect(clippy::unwrap_used, clippy::panic, reason = "a test")]
mod freed;
