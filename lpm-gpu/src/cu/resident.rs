//! A persistent kernel: one that runs until it is told to stop.

use super::device::Device;
use super::error::GpuError;
use super::kernel::{Arg, Kernel, Shape};
use super::stream::Stream;
use std::time::Duration;

/// How long a dropped kernel may take to stop before the device is given up.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// A kernel that runs until it is stopped, with its own stream. Its arguments are freed when it has ended and not
/// before. Nor is any page-locked memory freed before that, because the driver would wait for the kernel. Other device
/// memory is allocated and freed while it runs, where the device has [memory pools](super::Facts::memory_pools).
///
/// It must work on memory that the host may use at the same time ([`Shared`](super::Shared)), or that the host does not
/// use ([`DeviceBuffer`](super::DeviceBuffer)). The caller keeps alive what it reaches through addresses in memory
/// rather than in its arguments; those must point to device memory.
///
/// Streams share the driver's connections to the device (8, or `CUDA_DEVICE_MAX_CONNECTIONS`, at most 32): a stream on
/// the connection of a resident kernel waits for that kernel. So launch one kernel for many slots rather than one per
/// slot. [`ResidentRoom`](super::ResidentRoom) tells whether there is a connection, and room for all its blocks at once.
pub struct Resident {
    stream: Stream,
    stop: Box<dyn Fn() + Send>,
    over: bool,
}

impl Resident {
    /// Launches `kernel` on `stream`. `stop` makes it end: it sets a flag in shared memory, and holds the memory that
    /// the kernel uses.
    ///
    /// # Errors
    /// As [`Stream::launch`].
    pub fn launch(
        mut stream: Stream,
        kernel: &Kernel,
        shape: Shape,
        args: &mut [Arg<'_>],
        stop: Box<dyn Fn() + Send>,
    ) -> Result<Self, GpuError> {
        let device = stream.device().clone();
        device.resident_began(stream.progress(), args.iter().filter_map(Arg::memory).collect());
        match stream.launch(kernel, shape, args) {
            Ok(()) => Ok(Self { stream, stop, over: false }),
            Err(error) => {
                device.resident_ended(stream.progress());
                Err(error)
            }
        }
    }

    /// The device.
    #[must_use]
    pub const fn device(&self) -> &Device {
        self.stream.device()
    }

    /// Whether it still runs; otherwise it failed or was stopped.
    ///
    /// # Errors
    /// [`GpuError::Call`] when it failed.
    #[inline]
    pub fn is_running(&mut self) -> Result<bool, GpuError> {
        self.stream.is_finished().map(|over| !over)
    }

    /// Makes it stop and waits until it has ended, at most `limit`; after that the device is given up as lost.
    ///
    /// # Errors
    /// As [`Self::is_running`]; [`GpuError::Stalled`].
    pub fn stop(&mut self, limit: Duration) -> Result<(), GpuError> {
        if self.over {
            return Ok(());
        }
        (self.stop)();
        let mut ended = self.stream.finish(limit);
        if ended.as_ref().is_err_and(|error| !error.is_lost()) {
            ended = self.stream.finish(limit); // the poll failed, which says nothing about the kernel
        }
        if ended.as_ref().is_err_and(|error| !error.is_lost()) {
            ended = Err(self.stream.device().give_up("a resident kernel", limit));
        }
        self.over = true;
        self.stream.device().resident_ended(self.stream.progress());
        ended
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let _swallowed = self.stop(STOP_LIMIT);
    }
}

impl std::fmt::Debug for Resident {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Resident(over: {})", self.over)
    }
}
