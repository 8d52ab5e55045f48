//! A safe wrapper around the CUDA driver: what the rest of the crate may do with a GPU, and the crate's only `unsafe`
//! code.
//!
//! The engine calls the objects here, which call `driver`, which calls libcuda. Results are values or a [`GpuError`].
//!
//! | purpose | type | belongs to |
//! |---|---|---|
//! | find and open a GPU, its properties | [`probe`], [`Device::open`], [`Facts`] | |
//! | device memory | [`DeviceBuffer`], [`DeviceWords`] | a [`Device`] |
//! | page-locked host memory | [`Pinned`] (host and device in turn), [`Shared`] (both at once, by atomics) | a [`Device`] |
//! | ordered work | [`Stream`], [`Event`] | a [`Device`] |
//! | code and its launch | [`Module`], [`Kernel`], [`Shape`], [`Arg`] | a [`Device`] |
//! | a batch submitted by one call | [`BatchGraph`] | a [`Device`] |
//! | a persistent kernel, and its room on the device | [`Resident`], [`ResidentRoom`] | a [`Stream`], a [`Device`] |
//!
//! Four rules make it sound:
//!
//! 1. No driver function is called before [`probe`] has found the library and looked up every function; a missing
//!    function is an error then, and cannot be one later.
//! 2. Every object holds its [`Device`], so the context outlives it. A call binds the context to the calling thread
//!    first, which costs one thread-local load when it is bound already.
//! 3. Work runs after the call that enqueued it has returned. A [`Stream`] numbers its work, an [`Event`] shows how
//!    much of it is done, and [`Pinned`] memory is lent to the host only when its last use is known to be done.
//! 4. Memory goes back to the driver when all work enqueued before its drop is done; a [`Resident`] kernel holds its
//!    own memory for as long as it runs (`reclaim` has the details, and the reason why no drop waits).
//!
//! A call that fails returns a [`GpuError`] with the call's name and code. Errors that end the context (an illegal
//! address, for example) mark the device as [lost](Device::is_lost): every later call returns an error, and later drops
//! report none.
//!
//! The kernels are trusted as this crate's Rust code is. Tests over `mockcuda`, which checks every access, show that a
//! kernel stays within its arrays for the count it is given.

// Files that the table above lacks: `driver` has the driver's functions; `probe` checks that they can be called;
// `error` has the error type; `connections` is what streams share; `ptx` has the text of the kernels; `reclaim` frees memory when its last use is done;
// `testing` chooses the driver of a test.
mod batch_graph;
mod connections;
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
mod room;
mod shared;
mod stream;
#[cfg(feature = "testing")]
pub mod testing;

pub use batch_graph::BatchGraph;
pub use connections::ask_for_connections;
pub use device::{Device, Facts};
pub use error::{DriverVersion, GpuError};
pub use kernel::{Arg, Kernel, KernelFacts, Module, Shape};
pub use memory::{DeviceBuffer, DeviceWords, Plain, as_next_hops};
pub use pinned::{HostSide, Pinned};
pub use probe::{DRIVER_MIN, Probe, probe};
pub use resident::Resident;
pub use room::ResidentRoom;
pub use shared::{Element, Shared};
pub use stream::{Event, Priority, Stream};
