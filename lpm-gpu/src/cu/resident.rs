//! A persistent kernel, which runs until it is stopped, and its room on the device.

use super::device::Device;
use super::environment::connections;
use super::error::GpuError;
use super::kernel::{Arg, Kernel, Shape};
use super::room::{Admitted, MULTIPROCESSOR};
use super::stream::Stream;
use std::time::Duration;

/// Time for a dropped kernel to stop; then the device is given up. Devices have stalled for 2.5 s without a fault, and a service manager's
/// watchdog waits 10 s for the thread that drops it.
const STOP_LIMIT: Duration = Duration::from_secs(4);

/// A running persistent kernel with its own stream. Its arguments, and all page-locked memory, are freed only after its end,
/// since the driver would wait for it. Its memory must be usable by host and device at once ([`Shared`](super::Shared)), or
/// unused by the host ([`DeviceBuffer`](super::DeviceBuffer)). The caller keeps alive the device memory that it reaches
/// through addresses in memory rather than arguments.
///
/// A stream on the same connection to the device waits for the kernel, so launch one kernel for many slots.
/// [`ResidentRoom`](super::ResidentRoom) reserves connections and blocks.
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

/// Room on a device for the blocks of a kernel, until it is dropped.
#[derive(Debug)]
pub struct ResidentRoom {
    device: Device,
    id: u64,
    parts: u32,
    threads: u32,
}

impl ResidentRoom {
    /// Room for `rows` rows of up to `parts_max` blocks of `threads`. Leaves the same share for `rooms - 1` later calls.
    ///
    /// # Errors
    /// [`GpuError::NoRoom`] if one block a row does not fit; [`GpuError::NoConnection`]; [`GpuError::Threads`],
    /// [`GpuError::Call`].
    pub fn for_rows(
        kernel: &Kernel,
        threads: u32,
        rows: u32,
        parts_max: u32,
        rooms: u32,
    ) -> Result<Self, GpuError> {
        let device = kernel.device();
        let share = share(kernel, threads)?;
        device.prepare_streams()?;
        let multiprocessors = u64::from(device.facts().multiprocessors.max(1));
        let wanted = u64::from(rows) * u64::from(rooms.max(1));
        device.with_admitted(|admitted, others| {
            // New kernels, update streams, and the pool's stream.
            let streams = admitted.residents() + rooms.max(1) as usize + others + 1;
            if streams > connections() {
                return Err(GpuError::NoConnection { wanted: streams, limit: connections() });
            }
            let left = admitted.left(share, multiprocessors);
            let parts = (left / wanted.max(1)).min(parts_max.into());
            if parts == 0 {
                let limit = Admitted::default().left(share, multiprocessors);
                return Err(GpuError::NoRoom { wanted, threads, left, limit });
            }
            let id = admitted.admit(share, parts * u64::from(rows));
            let parts = u32::try_from(parts).unwrap_or(parts_max);
            Ok(Self { device: device.clone(), id, parts, threads })
        })
    }

    /// Room for one block of `threads` of an update or lookup kernel at any time, among persistent kernels. Other blocks may
    /// wait for it; each of them ends.
    ///
    /// # Errors
    /// [`GpuError::NoPlace`] if persistent kernels leave none; [`GpuError::Threads`], [`GpuError::Call`].
    pub fn for_one_block(kernel: &Kernel, threads: u32) -> Result<Self, GpuError> {
        let device = kernel.device();
        let share = share(kernel, threads)?;
        let multiprocessors = u64::from(device.facts().multiprocessors.max(1));
        device.with_admitted(|admitted, _| {
            if !admitted.is_open_to(share, multiprocessors) {
                return Err(GpuError::NoPlace { entry: kernel.entry().to_owned(), threads });
            }
            Ok(Self { device: device.clone(), id: admitted.admit(share, 0), parts: 0, threads })
        })
    }

    /// Blocks a row.
    #[must_use]
    pub const fn parts(&self) -> u32 {
        self.parts
    }

    /// Threads a block.
    #[must_use]
    pub const fn threads(&self) -> u32 {
        self.threads
    }
}

impl Drop for ResidentRoom {
    fn drop(&mut self) {
        self.device.with_admitted(|admitted, _| admitted.release(self.id));
    }
}

fn share(kernel: &Kernel, threads: u32) -> Result<u64, GpuError> {
    kernel.accepts_threads(threads)?;
    // Occupancy 0: the kernel cannot be launched, and its launch says why.
    Ok(MULTIPROCESSOR.div_ceil(u64::from(kernel.blocks_multiprocessor_max(threads)?.max(1))))
}
