//! A libcuda for tests: it runs the committed PTX on the CPU, and finds out what a program does wrong with it.
//!
//! The library is built as `libmockcuda.so` with the SONAME `libcuda.so`. A test opens it by its path before anything asks
//! for the driver; any program runs over it with `LD_PRELOAD=.../libmockcuda.so`. Programs then call the very functions, and
//! load the very PTX, that they would on a GPU. See `README.md` for what it models and what it does not.
//!
//! - [`api`]: the driver's functions (`cu*`) as C sees them; [`control`]: the switches and counters (`mockcuda_*`).
//! - `ptx`: text to bytecode. `exec`: bytecode to effects, 32 threads at a time.
//! - `memory`: what kernels and copies can reach, each access checked. `stream`: queues, threads, events.
//! - `state`: contexts, handles.

#![expect(
    clippy::cast_possible_truncation,
    reason = "PTX computes modulo 2^8 to 2^64, and addresses of this 64-bit platform are u64 and usize by turns"
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
