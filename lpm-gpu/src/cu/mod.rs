//! A safe wrapper around the CUDA driver, with most of the crate's `unsafe` code.
//!
//! | purpose | type | part of |
//! |---|---|---|
//! | find and open a GPU, its properties | [`probe`], [`Device::open`], [`Facts`] | |
//! | device memory | [`DeviceBuffer`], [`DeviceWords`] | a [`Device`] |
//! | page-locked host memory | [`Pinned`] (host and device in turn), [`Shared`] (both at once, by atomics) | a [`Device`] |
//! | a caller's memory, read in place | [`RegisteredMemory`], [`InPlace`] | a [`Device`] |
//! | ordered work | [`Stream`], [`Event`] | a [`Device`] |
//! | code and its launch | [`Module`], [`Kernel`], [`Shape`], [`Arg`] | a [`Device`] |
//! | a persistent kernel, and its room on the device | [`Resident`], [`ResidentRoom`] | a [`Stream`], a [`Device`] |
//!
//! Four rules make it sound:
//!
//! 1. [`probe`] finds the library and looks up every function before any call; a missing one is an error then, not later.
//! 2. Every object holds its [`Device`], so the context outlives it. A call first binds the context to its thread, a
//!    thread-local load if it is bound already.
//! 3. Work runs after the call that enqueued it. A [`Stream`] numbers its work, an [`Event`] shows how much is done, and
//!    [`Pinned`] memory is lent to the host only when its last use is known to be done.
//! 4. Memory returns to the driver when all work enqueued before its drop is done; a [`Resident`] kernel holds its memory as
//!    long as it runs (`reclaim`).
//!
//! Errors that end the context, such as an illegal address, mark the device as [lost](Device::is_lost): later calls fail,
//! and drops are silent. Kernels are trusted like this crate's Rust code: tests over `mockcuda`, which checks every access,
//! show that a kernel stays within its arrays for its count.

mod device;
mod driver;
mod environment;
mod error;
mod kernel;
mod loader;
mod memory;
mod node;
mod pinned;
mod probe;
mod progress;
mod ptx;
mod reclaim;
mod registered;
mod resident;
mod room;
mod shared;
mod stream;
#[cfg(feature = "testing")]
pub mod testing;

pub use device::{Device, Facts};
pub use environment::prepare_environment;
pub use error::{DRIVER_MIN, DriverVersion, GpuError};
pub use kernel::{Arg, Kernel, Module, Shape};
pub use loader::KernelFacts;
pub use memory::{DeviceBuffer, DeviceWords, Plain, as_next_hops};
pub use pinned::{HostSide, Pinned};
pub use probe::{Probe, probe};
pub use registered::{InPlace, RegisteredMemory};
pub use resident::{Resident, ResidentRoom};
pub use shared::{Element, Shared};
pub use stream::{Event, Priority, Stream};
