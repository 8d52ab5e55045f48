//! What can go wrong with a GPU, by what the caller can do about it.

use fib::EngineError;
use std::fmt;

/// A version of the driver API, as the driver counts: 12040 is CUDA 12.4.
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
    /// The driver is older than what the kernels and calls need.
    #[error("the driver is for {have}, {want} or later is needed")]
    DriverTooOld {
        /// What is installed.
        have: DriverVersion,
        /// What is needed.
        want: DriverVersion,
    },
    /// The driver is there, the device is not.
    #[error("{}", no_device(*.wanted, *.count))]
    NoDevice {
        /// The index that was asked for.
        wanted: u32,
        /// The devices there are.
        count: u32,
    },
    /// The device is older than what the kernels are made for.
    #[error("the device has compute capability {}.{}, {}.{} or later is needed", .have.0, .have.1, .want.0, .want.1)]
    DeviceTooOld {
        /// Its compute capability, major and minor.
        have: (u32, u32),
        /// What is needed.
        want: (u32, u32),
    },
    /// Memory could not be had.
    #[error("no {bytes} bytes of {what} memory")]
    OutOfMemory {
        /// Whose memory: `device` or `page-locked host`.
        what: &'static str,
        /// The bytes that were asked for.
        bytes: u64,
    },
    /// A call failed.
    #[error("{call}: {name} ({code}){}", if *.lost { ", the device's context is lost" } else { "" })]
    Call {
        /// The function of the driver.
        call: &'static str,
        /// Its answer.
        code: u32,
        /// The answer's name, as the driver gives it.
        name: String,
        /// Whether the context is of no more use: every later call fails as well.
        lost: bool,
    },
    /// A module's PTX was refused.
    #[error("module {module} is refused: {reason}")]
    Ptx {
        /// The module.
        module: String,
        /// What the driver's compiler says.
        reason: String,
    },
    /// There is no such kernel in a module, or it is launched with other arguments than it takes.
    #[error("{module}: kernel {entry}: {reason}")]
    Kernel {
        /// The module.
        module: String,
        /// The kernel's name.
        entry: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// Page-locked memory was asked for while the device may still use it.
    #[error("page-locked memory is still in use by the device")]
    Busy,
    /// A range is not within its array, or two that must be equally long are not.
    #[error("{at}..{} of an array of {len}", at.saturating_add(*.count))]
    Range {
        /// The first element.
        at: usize,
        /// Elements.
        count: usize,
        /// Elements there are.
        len: usize,
    },
    /// Objects of different devices or streams were used together.
    #[error("{0} belongs to another device or stream")]
    Foreign(&'static str),
    /// Something on the device takes longer than whoever asked would wait. It may yet end, and the device is not given up.
    #[error("{what} has not ended within {limit_us} us")]
    Late {
        /// What.
        what: &'static str,
        /// How long was waited.
        limit_us: u64,
    },
    /// Something on the device did not end in time, and the device is given up.
    #[error("{what} did not end within {limit_ms} ms")]
    Stalled {
        /// What.
        what: &'static str,
        /// How long was waited.
        limit_ms: u64,
    },
}

impl GpuError {
    /// Whether the context is of no more use: whoever holds the device has to open it anew, or do without.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Call { lost: true, .. } | Self::Stalled { .. })
    }

    /// Whether there was no GPU to begin with.
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

    /// The same as an error of engine `engine`: an absent GPU is [`EngineError::NoDevice`], memory that cannot be had
    /// [`EngineError::Memory`], everything else [`EngineError::Device`].
    #[must_use]
    pub fn into_engine(self, engine: &'static str) -> EngineError {
        let reason = self.to_string();
        match self {
            _ if self.is_absent() => EngineError::NoDevice { engine, device: "GPU", reason },
            Self::OutOfMemory { bytes, .. } => EngineError::Memory { bytes, reason },
            _ => EngineError::Device { engine, reason, lost: self.is_lost() },
        }
    }
}

/// Words for [`GpuError::NoDevice`].
fn no_device(wanted: u32, count: u32) -> String {
    match count {
        0 => "the driver sees no device".to_owned(),
        _ => format!("there is no device {wanted}, the driver sees {count}"),
    }
}

/// Whether the driver's answer `code` means that the context can no longer be used ("sticky" errors of the driver API's
/// `CUresult`: after them "the process must be terminated and relaunched" or the context be made anew).
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
