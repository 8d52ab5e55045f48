//! A libcuda for tests.
mod api;
pub mod control;
mod error;
mod exec;
mod memory;
mod ptx;
mod state;
mod stream;
