//! Runs kernels, on the thread of their stream.
//!
//! [`grid`] runs the blocks of a launch and, in each, its warps from barrier to barrier; [`warp`] interprets the
//! bytecode of 32 lanes; [`lanes`] does the arithmetic of a warp and [`access`] its loads and stores.

mod access;
pub(crate) mod grid;
mod lanes;
pub(crate) mod warp;
