//! The driver's error codes that the mock returns, with their names.

use std::ffi::CStr;

pub(crate) type ResultCode = u32;
pub(crate) type CallResult<T = ()> = Result<T, ResultCode>;

macro_rules! codes {
    ($($name:ident = $code:literal, $cuda:literal;)*) => {
        $(pub(crate) const $name: ResultCode = $code;)*

        pub(crate) fn name(code: ResultCode) -> Option<&'static CStr> {
            match code {
                0 => Some(c"CUDA_SUCCESS"),
                $($code => Some($cuda),)*
                _ => None,
            }
        }
    };
}

codes! {
    INVALID_VALUE = 1, c"CUDA_ERROR_INVALID_VALUE";
    OUT_OF_MEMORY = 2, c"CUDA_ERROR_OUT_OF_MEMORY";
    NOT_INITIALIZED = 3, c"CUDA_ERROR_NOT_INITIALIZED";
    NO_DEVICE = 100, c"CUDA_ERROR_NO_DEVICE";
    INVALID_DEVICE = 101, c"CUDA_ERROR_INVALID_DEVICE";
    INVALID_IMAGE = 200, c"CUDA_ERROR_INVALID_IMAGE";
    INVALID_CONTEXT = 201, c"CUDA_ERROR_INVALID_CONTEXT";
    NO_BINARY = 209, c"CUDA_ERROR_NO_BINARY_FOR_GPU";
    _ECC = 214, c"CUDA_ERROR_ECC_UNCORRECTABLE";
    INVALID_PTX = 218, c"CUDA_ERROR_INVALID_PTX";
    UNSUPPORTED_PTX = 222, c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION";
    _OPERATING_SYSTEM = 304, c"CUDA_ERROR_OPERATING_SYSTEM";
    INVALID_HANDLE = 400, c"CUDA_ERROR_INVALID_HANDLE";
    _ILLEGAL_STATE = 401, c"CUDA_ERROR_ILLEGAL_STATE";
    NOT_FOUND = 500, c"CUDA_ERROR_NOT_FOUND";
    NOT_READY = 600, c"CUDA_ERROR_NOT_READY";
    ILLEGAL_ADDRESS = 700, c"CUDA_ERROR_ILLEGAL_ADDRESS";
    OUT_OF_RESOURCES = 701, c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES";
    LAUNCH_TIMEOUT = 702, c"CUDA_ERROR_LAUNCH_TIMEOUT";
    CONTEXT_DESTROYED = 709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED";
    MISALIGNED_ADDRESS = 716, c"CUDA_ERROR_MISALIGNED_ADDRESS";
    LAUNCH_FAILED = 719, c"CUDA_ERROR_LAUNCH_FAILED";
    ALREADY_REGISTERED = 712, c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED";
    NOT_REGISTERED = 713, c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED";
    NOT_SUPPORTED = 801, c"CUDA_ERROR_NOT_SUPPORTED";
    _MISMATCH = 803, c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
    UNKNOWN = 999, c"CUDA_ERROR_UNKNOWN";
}

/// Whether the driver returns `code` from all later calls until the context is destroyed.
pub(crate) fn ends_context(code: ResultCode) -> bool {
    matches!(code, 214 | 220 | ILLEGAL_ADDRESS | LAUNCH_TIMEOUT | 710 | 714..=LAUNCH_FAILED)
}
