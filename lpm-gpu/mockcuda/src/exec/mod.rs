//! Runs kernels, on the thread of their stream.
//!
//! [`grid`] takes the blocks of a launch and, in each, the warps between barriers; [`warp`] interprets the bytecode of 32 lanes;
//! [`lanes`] does the arithmetic of a warp and [`access`] its loads and stores.

mod access;
pub(crate) mod grid;
mod lanes;
pub(crate) mod warp;
