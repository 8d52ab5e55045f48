//! GPU errors: one variant for each thing that a caller can do about them.

use fib::EngineError;
use std::fmt;

/// A version of the driver API, as the driver encodes it: 12040 is CUDA 12.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverVersion(pub u32);

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA {}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

/// Why the GPU could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// There is no driver library on this host.
    #[error("no CUDA driver: none of {tried} can be loaded")]
    NoDriver {
        /// The names that were tried.
        tried: String,
    },
    /// The driver library lacks a function that we need.
    #[error("the CUDA driver lacks {name}; {} or later is needed", super::DRIVER_MIN)]
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
    /// The driver exists, the device does not.
    #[error("{}", no_device(*.wanted, *.count))]
    NoDevice {
        /// The index that was requested.
        wanted: u32,
        /// The number of devices.
        count: u32,
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
        /// The bytes that were requested.
        bytes: u64,
    },
    /// A call failed.
    #[error("{call}: {name} ({code}){}", if *.lost { ", the device's context is lost" } else { "" })]
    Call {
        /// The driver function.
        call: &'static str,
        /// Its return value.
        code: u32,
        /// The name of the return value, as the driver reports it.
        name: String,
        /// Whether the context is unusable: every later call fails as well.
        lost: bool,
    },
    /// A module's PTX was refused.
    #[error("module {module} is refused: {reason}")]
    Ptx {
        /// The module.
        module: String,
        /// The message of the driver's compiler.
        reason: String,
    },
    /// A module has no such kernel, or the kernel is launched with arguments that it does not take.
    #[error("{module}: kernel {entry}: {reason}")]
    Kernel {
        /// The module.
        module: String,
        /// The kernel's name.
        entry: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A block of a kernel cannot have so many threads on this device.
    #[error("{entry}: blocks of {wanted} threads, at most {max} fit with {registers} registers a thread")]
    Threads {
        /// The kernel's name.
        entry: String,
        /// The threads that were asked for.
        wanted: u32,
        /// The most threads of a block.
        max: u32,
        /// Registers of a thread.
        registers: u32,
    },
    /// The blocks of a persistent kernel do not fit the device beside those that are there: they must all run at once.
    #[error(
        "the persistent kernels of a reader need {wanted} blocks of {threads} threads at once, {left} of {limit} are left on this device: use fewer readers, fewer slots or smaller blocks"
    )]
    NoRoom {
        /// The fewest blocks that would do.
        wanted: u64,
        /// Threads of a block.
        threads: u32,
        /// Blocks of this kernel that would still fit.
        left: u64,
        /// Blocks of this kernel that would fit a device without other persistent kernels.
        limit: u64,
    },
    /// There are more streams that must not wait for each other than connections to the device.
    #[error(
        "persistent kernels need {wanted} connections to the device and there are {limit}: set CUDA_DEVICE_MAX_CONNECTIONS in the environment (8 if unset, 32 at most), or use fewer readers"
    )]
    NoConnection {
        /// The connections that would do.
        wanted: usize,
        /// The connections there are.
        limit: usize,
    },
    /// All streams that there may be beside persistent kernels are taken.
    #[error(
        "beside persistent kernels a device has {limit} streams, and all are taken: use fewer readers, or fewer streams a reader"
    )]
    NoStream {
        /// The streams there may be.
        limit: usize,
    },
    /// Page-locked memory was requested while the device may still use it.
    #[error("page-locked memory is still in use by the device")]
    Busy,
    /// A range is not within its array, or two ranges have different lengths.
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
    /// Work on the device takes longer than the caller waits. It may still finish, and the device is not given up.
    #[error("{what} has not ended within {limit_us} us")]
    Late {
        /// The work.
        what: &'static str,
        /// How long the caller waited.
        limit_us: u64,
    },
    /// Work on the device did not finish in time, and the device is given up.
    #[error("{what} did not end within {limit_ms} ms")]
    Stalled {
        /// The work.
        what: &'static str,
        /// How long the caller waited.
        limit_ms: u64,
    },
}

impl GpuError {
    /// Whether the context is unusable: the owner of the device has to open it again, or continue without it.
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
                | Self::DeviceTooOld { .. }
        )
    }

    /// Converts to an error of engine `engine`: an absent GPU is [`EngineError::NoDevice`], a failed allocation
    /// [`EngineError::Memory`], no room for persistent kernels [`EngineError::Reader`], everything else
    /// [`EngineError::Device`].
    #[must_use]
    pub fn into_engine(self, engine: &'static str) -> EngineError {
        let reason = self.to_string();
        match self {
            _ if self.is_absent() => EngineError::NoDevice { engine, device: "GPU", reason },
            Self::OutOfMemory { bytes, .. } => EngineError::Memory { bytes, reason },
            Self::NoRoom { .. } | Self::NoConnection { .. } | Self::NoStream { .. } => {
                EngineError::Reader { engine, reason }
            }
            _ => EngineError::Device { engine, reason, lost: self.is_lost() },
        }
    }
}

/// The text of [`GpuError::NoDevice`].
fn no_device(wanted: u32, count: u32) -> String {
    match count {
        0 => "the driver sees no device".to_owned(),
        _ => format!("there is no device {wanted}, the driver sees {count}"),
    }
}

/// Whether the driver's error `code` makes the context unusable ("sticky" errors of the driver API's `CUresult`: after
/// them "the process must be terminated and relaunched" or the context be made anew).
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
