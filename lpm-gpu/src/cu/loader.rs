//! Loads the embedded modules into a context, and finds their kernels.

use super::driver::{Driver, RawHandle, call};
use super::error::GpuError;
use super::ptx::{self, ARGUMENTS_MAX};
use cudarc::driver::sys;
use std::ffi::{CString, c_void};

const LOG_BYTES: usize = 8192;

pub(super) type LoadedModule = (&'static str, RawHandle<sys::CUmodule>);

pub(super) struct LoadedKernel {
    pub(super) raw: RawHandle<sys::CUfunction>,
    /// Size of each parameter, bytes.
    pub(super) parameters: Vec<u8>,
    pub(super) facts: KernelFacts,
}

/// Resources of a kernel, as reported by the driver's compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFacts {
    /// Registers a thread.
    pub registers: u32,
    /// Memory a thread that did not fit in registers, bytes; must be 0.
    pub local_bytes: u32,
    /// Shared memory a block, bytes.
    pub shared_bytes: u32,
    /// Most threads of a block.
    pub threads_block_max: u32,
}

/// Loads all modules and kernels: at first use the driver would wait for running kernels, for persistent ones for ever. The context must be
/// bound, also for the functions below.
pub(super) fn load_all(driver: &Driver) -> Result<Vec<LoadedModule>, GpuError> {
    ptx::MODULES
        .iter()
        .map(|&(name, text)| {
            let module = (name, load(driver, name, text)?);
            for entry in ptx::entries(text) {
                find_kernel(driver, module, entry)?;
            }
            Ok(module)
        })
        .collect()
}

fn load(driver: &Driver, name: &str, text: &str) -> Result<RawHandle<sys::CUmodule>, GpuError> {
    let refused = |reason: String| GpuError::Ptx { module: name.to_owned(), reason };
    let image = CString::new(text).map_err(|_| refused("it contains a NUL byte".to_owned()))?;
    let mut log = vec![0_u8; LOG_BYTES];
    let mut options =
        [sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // Each value fits its option: an address, and a number stored as one.
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(LOG_BYTES - 1)];
    let mut raw = std::ptr::null_mut();
    // SAFETY: the caller has bound the context; an out pointer for the handle, text that ends in zero, two options with values; the driver writes
    // at most the given bytes of the log, and keeps no pointer.
    unsafe {
        call!(
            driver,
            cuModuleLoadDataEx(
                &raw mut raw,
                image.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr()
            )
        )
    }
    .map_err(|error| match error {
        GpuError::Call { lost: true, .. } | GpuError::Stalled { .. } => error,
        other => {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            let log = String::from_utf8_lossy(&log[..end]);
            refused(format!("{other}; {}", log.trim()).trim_end_matches("; ").to_owned())
        }
    })?;
    Ok(RawHandle(raw))
}

pub(super) fn find_kernel(
    driver: &Driver,
    (module, module_raw): LoadedModule,
    entry: &str,
) -> Result<LoadedKernel, GpuError> {
    let wrong = |reason| GpuError::Kernel { module: module.to_owned(), entry: entry.to_owned(), reason };
    let text = ptx::text(module).unwrap_or_default();
    let parameters = ptx::parameters(text, entry).ok_or_else(|| wrong("not found"))?;
    if parameters.len() > ARGUMENTS_MAX || parameters.iter().any(|&bytes| bytes == 0 || bytes > 8) {
        return Err(wrong("unsupported number or size of parameters"));
    }
    let name = CString::new(entry).map_err(|_| wrong("not found"))?;
    let mut raw = std::ptr::null_mut();
    // SAFETY: an out pointer for the handle, a loaded module, and a string that ends in zero; the caller has bound the context.
    unsafe { call!(driver, cuModuleGetFunction(&raw mut raw, module_raw.0, name.as_ptr())) }?;
    // Reading the register count makes the driver load the kernel now, not at its first launch.
    let attribute = |attribute| -> Result<u32, GpuError> {
        let mut value = 0;
        // SAFETY: an out pointer for a number, an attribute of the enum, and a function of a loaded module; the context is bound.
        unsafe { call!(driver, cuFuncGetAttribute(&raw mut value, attribute, raw)) }?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    use sys::CUfunction_attribute as A;
    let facts = KernelFacts {
        registers: attribute(A::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
        local_bytes: attribute(A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
        shared_bytes: attribute(A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
        threads_block_max: attribute(A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
    };
    Ok(LoadedKernel { raw: RawHandle(raw), parameters, facts })
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn text_that_is_no_module_is_refused_with_the_compilers_words() {
        let _one = testing::exclusive();
        let Some(device) = testing::device() else { return };
        let driver = device.bind("cuModuleLoadDataEx").unwrap();
        let text = ptx::text("gamt").unwrap();
        let half = &text[..text.len() / 2];
        for wrong in ["no PTX at all", "", half, ".version 6.3\n.target sm_75\n\0"] {
            match load(driver, "wrong", wrong) {
                Err(GpuError::Ptx { module, reason }) => {
                    assert_eq!(module, "wrong");
                    assert!(!reason.is_empty());
                }
                other => panic!("{:?}", other.map(|_| "loaded")),
            }
        }
        assert!(!device.is_lost());
        load(driver, "right", text).unwrap();
    }
}
