//! A libcuda for tests.
pub mod api;
pub mod control;
mod error;
mod exec;
mod memory;
mod ptx;
mod state;
mod stream;
