//! A libcuda for tests, `libmockcuda.so`: runs the committed PTX on the CPU, and detects errors of its user (`README.md`).
//!
//! A driver call enters through [`api`] (`cu*`), which checks it against `state` (contexts, objects by handle) and submits an operation
//! to a `stream`. The stream's thread runs it: a copy on `memory`, which checks each access, or a kernel, compiled by `ptx` when its
//! module was loaded and run by `exec`, 32 threads at a time. [`control`] has the tests' switches and counters (`mockcuda_*`).

#![expect(
    clippy::cast_possible_truncation,
    reason = "PTX computes modulo 2^8 to 2^64, and addresses of this 64-bit platform are u64 or usize"
)]

pub mod api;
pub mod control;
mod error;
mod exec;
mod memory;
mod ptx;
mod state;
mod stream;
#[doc(hidden)]
pub mod testing;

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!(
    "mockcuda shares memory between the host and its kernels as a 64-bit little-endian device does"
);
