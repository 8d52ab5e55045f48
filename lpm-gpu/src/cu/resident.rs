//! A persistent kernel, which runs until it is stopped.

use super::device::Device;
use super::error::GpuError;
use super::kernel::{Arg, Kernel, Shape};
use super::stream::Stream;
use std::time::Duration;

/// Time for a dropped kernel to stop; then the device is given up.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// A running persistent kernel with its own stream. Its arguments, and all page-locked memory, are freed only after its end,
/// since the driver would wait for it. Other device memory can be allocated and freed meanwhile on a device with
/// [memory pools](super::Facts::memory_pools).
///
/// Its memory must be usable by host and device at once ([`Shared`](super::Shared)), or unused by the host
/// ([`DeviceBuffer`](super::DeviceBuffer)). The caller keeps alive the device memory that it reaches through addresses in memory
/// rather than arguments.
///
/// A stream on the same connection to the device waits for the kernel (8 connections, or `CUDA_DEVICE_MAX_CONNECTIONS`, at most
/// 32). So launch one kernel for many slots. [`ResidentRoom`](super::ResidentRoom) reserves connections and blocks.
pub struct Resident {
    stream: Stream,
    stop: Box<dyn Fn() + Send>,
    over: bool,
}

impl Resident {
    /// Launches `kernel` on `stream`. `stop` ends it by a flag in shared memory, and holds the kernel's memory.
    ///
    /// # Errors
    /// Errors of [`Stream::launch`].
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

    /// Whether it runs; false after a stop.
    ///
    /// # Errors
    /// [`GpuError::Call`] if it failed.
    #[inline]
    pub fn is_running(&mut self) -> Result<bool, GpuError> {
        self.stream.is_finished().map(|over| !over)
    }

    /// Stops it and waits for its end, at most `limit`; then the device is given up.
    ///
    /// # Errors
    /// Errors of [`Self::is_running`]; [`GpuError::Stalled`].
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
