//! Runs kernels, on the thread of their stream: [`grid`] runs blocks and their warps from barrier to barrier, [`warp`] interprets the
//! bytecode of 32 lanes, [`lanes`] does arithmetic, and [`access`] loads and stores.

mod access;
pub(crate) mod grid;
mod lanes;
pub(crate) mod warp;
