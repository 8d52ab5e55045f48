//! The CUDA driver behind a safe face: what the rest of the crate may do with a GPU, and the crate's only `unsafe` code.
//!
//! Calls go down: the engine -> objects here -> `driver` -> libcuda; answers come up as values or a [`GpuError`].
//!
//! | of the GPU | here | bound to |
//! |---|---|---|
//! | is there one, and of what kind | [`probe`], [`Device::open`], [`Facts`] | |
//! | memory on the device | [`DeviceBuffer`], [`DeviceWords`] | a [`Device`] |
//! | page-locked memory of the host | [`Pinned`] (one side at a time), [`Shared`] (both at once, by atomics) | a [`Device`] |
//! | work in order | [`Stream`], [`Event`] | a [`Device`] |
//! | code | [`Module`], [`Kernel`], [`Shape`], [`Arg`] | a [`Device`] |
//! | a batch submitted by one call | [`BatchGraph`] | a [`Device`] |
//! | a kernel that stays | [`Resident`] | a [`Stream`] |
//!
//! What makes it sound, in four rules:
//!
//! 1. Nothing is called before [`probe`] has found the library and looked up every function; a function that
//!    is not there is an error then, and cannot be one later.
//! 2. Every object holds its [`Device`], so the context outlives it. Calls bind the context to the calling thread first; that
//!    costs one thread-local load when it is bound already.
//! 3. Work runs after the call that enqueued it has returned. A [`Stream`] numbers what is enqueued on it, an [`Event`] learns
//!    how far it has come, and [`Pinned`] memory is lent to the host only when its last use is known to be over.
//! 4. Memory goes back to the driver when all that was enqueued before it was dropped is over; a [`Resident`] kernel
//!    holds its own for as long as it stays (`reclaim` tells how, and why no drop waits).
//!
//! A call that fails is a [`GpuError`] with its name and code. Errors that end the context (an illegal address, say) mark the
//! device as [lost](Device::is_lost): every later call answers with one, and what is dropped then is dropped in silence.
//!
//! The kernels are trusted as this crate's Rust is: that a kernel stays within the arrays it is handed, for the count it is
//! handed, is tested over `mockcuda`, which checks every access.

// By file, what is not in the table above: `driver` has the functions of the driver, which all others call; `probe` asks whether
// they can be called; `error` is what comes back; `ptx` has the text of the kernels; `reclaim` says when memory goes back to the
// driver; `testing` chooses the driver of a test.
mod batch_graph;
mod device;
mod driver;
mod error;
mod kernel;
mod memory;
mod pinned;
mod probe;
mod ptx;
mod reclaim;
mod resident;
mod shared;
mod stream;
#[cfg(feature = "testing")]
pub mod testing;

pub use batch_graph::BatchGraph;
pub use device::{Device, Facts};
pub use error::{DriverVersion, GpuError};
pub use kernel::{Arg, Kernel, KernelFacts, Module, Shape};
pub use memory::{DeviceBuffer, DeviceWords, Plain};
pub use pinned::{HostSide, Pinned};
pub use probe::{DRIVER_MIN, Probe, probe};
pub use resident::Resident;
pub use shared::{Element, Shared};
pub use stream::{Event, Priority, Stream};
