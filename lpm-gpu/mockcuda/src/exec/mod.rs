//! Runs kernels: [`warp`] interprets the bytecode of 32 lanes at a time ([`lanes`]: arithmetic,
//! [`access`]: memory, [`exchange`]: between lanes), [`grid`] schedules the warps of a block between barriers
//! and the blocks of a launch, all on the thread of the stream.

mod access;
mod exchange;
pub(crate) mod grid;
mod lanes;
pub(crate) mod warp;
