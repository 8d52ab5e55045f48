//! GPU errors, one variant for each possible reaction.

use fib::EngineError;
use std::fmt;

/// A version of the driver API, in the driver's encoding: 12040 is CUDA 12.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverVersion(pub u32);

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA {}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

/// The oldest supported driver: CUDA 12.0 (R525). Older ones have not been tried.
pub const DRIVER_MIN: DriverVersion = DriverVersion(12_000);

/// A failed use of the GPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// This host has no driver library.
    #[error("no CUDA driver: none of {tried} can be loaded")]
    NoDriver {
        /// The names tried.
        tried: String,
    },
    /// The driver library lacks a function.
    #[error("the CUDA driver lacks {name}; {} or later is needed", DRIVER_MIN)]
    MissingSymbol {
        /// The function.
        name: &'static str,
    },
    /// The driver is older than the kernels and calls require.
    #[error("the driver is for {have}, {want} or later is needed")]
    DriverTooOld {
        /// The installed version.
        have: DriverVersion,
        /// The required version.
        want: DriverVersion,
    },
    /// The driver has no such device.
    #[error("{}", no_device(*.wanted, *.count))]
    NoDevice {
        /// The requested index.
        wanted: u32,
        /// The number of devices.
        count: u32,
    },
    /// The driver cannot use its devices.
    #[error("{reason} (cuInit: {code})")]
    NotReady {
        /// The return value of `cuInit` or `cuDeviceGetCount`.
        code: u32,
        /// The meaning of the code.
        reason: &'static str,
    },
    /// The device is older than the kernels require.
    #[error("the device has compute capability {}.{}, {}.{} or later is needed", .have.0, .have.1, .want.0, .want.1)]
    DeviceTooOld {
        /// Its compute capability, major and minor.
        have: (u32, u32),
        /// The required compute capability.
        want: (u32, u32),
    },
    /// An allocation failed.
    #[error("no {bytes} bytes of {what} memory")]
    OutOfMemory {
        /// The kind of memory: `device` or `page-locked host`.
        what: &'static str,
        /// The bytes requested.
        bytes: u64,
    },
    /// A call failed.
    #[error("{call}: {name} ({code}){}", if *.lost { ", the device's context is lost" } else { "" })]
    Call {
        /// The driver function.
        call: &'static str,
        /// Its return value.
        code: u32,
        /// Its name, as the driver reports it.
        name: String,
        /// Whether every later call fails, too.
        lost: bool,
    },
    /// A module's PTX was refused.
    #[error("module {module} is refused: {reason}")]
    Ptx {
        /// The module.
        module: String,
        /// The driver's compiler message.
        reason: String,
    },
    /// A kernel is missing, or was launched with arguments that it does not take.
    #[error("{module}: kernel {entry}: {reason}")]
    Kernel {
        /// The module.
        module: String,
        /// Entry name of the kernel.
        entry: String,
        /// The problem.
        reason: &'static str,
    },
    /// A block of the kernel cannot have that many threads on this device.
    #[error("{entry}: blocks of {wanted} threads, at most {max} fit with {registers} registers a thread")]
    Threads {
        /// Entry name of the kernel.
        entry: String,
        /// The threads requested.
        wanted: u32,
        /// Most threads of a block.
        max: u32,
        /// Registers a thread.
        registers: u32,
    },
    /// A persistent kernel's blocks do not fit on the device with those admitted before: all must run at once.
    #[error(
        "the persistent kernels of a reader need {wanted} blocks of {threads} threads at once, {left} of {limit} are left on this device: use fewer readers, fewer slots or smaller blocks"
    )]
    NoRoom {
        /// The fewest blocks that suffice.
        wanted: u64,
        /// Threads of a block.
        threads: u32,
        /// Blocks of this kernel that still fit.
        left: u64,
        /// Blocks of this kernel that fit without other persistent kernels.
        limit: u64,
    },
    /// Persistent kernels leave no room for a block of another kernel, which would wait for ever.
    #[error(
        "persistent kernels leave no room for a block of {threads} threads of {entry}: use fewer readers with persistent kernels, or smaller blocks"
    )]
    NoPlace {
        /// Entry name of the kernel.
        entry: String,
        /// Threads of a block.
        threads: u32,
    },
    /// More streams that must not wait for each other than connections to the device.
    #[error(
        "persistent kernels need {wanted} connections to the device, {limit} are available: set CUDA_DEVICE_MAX_CONNECTIONS in the environment (8 if unset, 32 at most), or use fewer readers"
    )]
    NoConnection {
        /// The connections needed.
        wanted: usize,
        /// The connections available.
        limit: usize,
    },
    /// All streams that may exist while persistent kernels run are taken.
    #[error(
        "all {limit} streams available to persistent kernels are in use: use fewer readers, or fewer streams a reader"
    )]
    NoStream {
        /// Most streams.
        limit: usize,
    },
    /// Page-locked memory was requested while the device may still use it.
    #[error("page-locked memory is still in use by the device")]
    Busy,
    /// A range outside its array, or two ranges of different lengths.
    #[error("{at}..{} of an array of {len}", at.saturating_add(*.count))]
    Range {
        /// The first element.
        at: usize,
        /// Elements.
        count: usize,
        /// The length of the array.
        len: usize,
    },
    /// Objects of different devices or streams were mixed.
    #[error("{0} belongs to another device or stream")]
    Foreign(&'static str),
    /// Work on the device exceeds the caller's wait. It may still end, and the device is not given up.
    #[error("{what} has not ended within {limit_us} us")]
    Late {
        /// The work.
        what: &'static str,
        /// The wait.
        limit_us: u64,
    },
    /// Work on the device exceeded its limit, and the device is given up.
    #[error("{what} did not end within {limit_ms} ms")]
    Stalled {
        /// The work.
        what: &'static str,
        /// The limit.
        limit_ms: u64,
    },
}

impl GpuError {
    /// Whether the context is unusable: the device's owner must reopen it, or continue without it.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Call { lost: true, .. } | Self::Stalled { .. })
    }

    /// Whether there was no usable GPU from the start.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(
            self,
            Self::NoDriver { .. }
                | Self::MissingSymbol { .. }
                | Self::DriverTooOld { .. }
                | Self::NoDevice { .. }
                | Self::NotReady { .. }
                | Self::DeviceTooOld { .. }
        )
    }

    /// Converts to an error of `engine`: an absent GPU to [`EngineError::NoDevice`], a failed allocation to
    /// [`EngineError::Memory`], no room for a kernel to [`EngineError::Reader`], others to [`EngineError::Device`].
    #[must_use]
    pub fn into_engine(self, engine: &'static str) -> EngineError {
        let reason = self.to_string();
        match self {
            _ if self.is_absent() => EngineError::NoDevice { engine, device: "GPU", reason },
            Self::OutOfMemory { bytes, .. } => EngineError::Memory { bytes, reason },
            Self::NoRoom { .. }
            | Self::NoPlace { .. }
            | Self::NoConnection { .. }
            | Self::NoStream { .. } => EngineError::Reader { engine, reason },
            _ => EngineError::Device { engine, reason, lost: self.is_lost() },
        }
    }
}

/// The meaning of an initialisation's `code`, if it says that no device can be used (`CUresult` in the driver API's documentation).
pub(super) fn absence(code: u32) -> Option<GpuError> {
    let reason = match code {
        100 => return Some(GpuError::NoDevice { wanted: 0, count: 0 }),
        46 => "the device is in use by a process with exclusive access, or was lost",
        802 => "the system is not ready: the driver or NVIDIA's fabric manager has not started",
        803 => "the driver's library and its kernel module are of different versions",
        804 => "the device does not support the driver's library of forward compatibility",
        _ => return None,
    };
    Some(GpuError::NotReady { code, reason })
}

fn no_device(wanted: u32, count: u32) -> String {
    match count {
        0 => "the driver sees no device".to_owned(),
        _ => format!("there is no device {wanted}, the driver sees {count}"),
    }
}

/// Whether `code` makes the context unusable (a "sticky" error of `CUresult` in the driver API's documentation).
pub(super) const fn ends_context(code: u32) -> bool {
    matches!(
        code,
        4           // DEINITIALIZED
        | 46        // DEVICE_UNAVAILABLE
        | 201       // INVALID_CONTEXT
        | 214       // ECC_UNCORRECTABLE
        | 220       // NVLINK_UNCORRECTABLE
        | 226       // CONTAINED
        | 700       // ILLEGAL_ADDRESS
        | 702       // LAUNCH_TIMEOUT
        | 709       // CONTEXT_IS_DESTROYED
        | 710       // ASSERT
        | 714
            ..=719  // HARDWARE_STACK_ERROR .. LAUNCH_FAILED
        | 999 // UNKNOWN
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_error_is_chosen_by_what_can_be_done_about_it() {
        let absent = GpuError::NoDriver { tried: "libcuda.so".into() }.into_engine("gamt");
        assert_eq!(
            absent.to_string(),
            "engine gamt needs GPU: no CUDA driver: none of libcuda.so can be loaded"
        );
        assert!(matches!(absent, EngineError::NoDevice { .. }));
        let memory = GpuError::OutOfMemory { what: "device", bytes: 7 }.into_engine("gamt");
        assert!(matches!(memory, EngineError::Memory { bytes: 7, .. }));
        let call = |code| GpuError::Call {
            call: "cuLaunchKernel",
            code,
            name: "X".into(),
            lost: ends_context(code),
        };
        assert!(matches!(call(700).into_engine("gamt"), EngineError::Device { lost: true, .. }));
        assert!(matches!(call(1).into_engine("gamt"), EngineError::Device { lost: false, .. }));
        assert_eq!(call(700).to_string(), "cuLaunchKernel: X (700), the device's context is lost");
    }

    #[test]
    fn versions_read_as_nvidia_writes_them() {
        assert_eq!(DriverVersion(12_040).to_string(), "CUDA 12.4");
        assert_eq!(DriverVersion(11_000).to_string(), "CUDA 11.0");
    }
}
