//! A libcuda for tests: it runs the committed PTX on the CPU, and finds out what a program does wrong with it.
//!
//! The library is built as `libmockcuda.so` with the SONAME `libcuda.so`. A test opens it by its path before anything asks
//! for the driver; any program runs over it with `LD_PRELOAD=.../libmockcuda.so`. Programs then call the very functions, and
//! load the very PTX, that they would on a GPU. See `README.md` for what it models and what it does not.
//!
//! A call comes in through [`api`], which checks it against `state` and hands an operation to a `stream`. The stream's thread
//! does it: a copy on `memory`, or a kernel, which `ptx` compiled when its module was loaded and `exec` runs on `memory`.
//!
//! - [`api`]: the driver's functions (`cu*`) as C sees them.
//! - [`control`]: switches and counters for tests (`mockcuda_*`).
//! - `error`: the driver's codes and their names.
//! - `state`: the context, and what was made in it, by handle.
//! - `stream`: queues of operations, their threads, events.
//! - `memory`: what kernels and copies can reach, each access checked.
//! - `ptx`: PTX text to bytecode.
//! - `exec`: bytecode to effects, 32 threads at a time.
//! - [`testing`]: PTX to bytecode alone, for fuzz targets.

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
