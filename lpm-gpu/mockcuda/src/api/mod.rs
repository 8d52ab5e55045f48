//! The driver functions that `lpm-gpu/src/cu/driver.rs` looks up. Each counts itself, fails on demand, and never unwinds.

pub mod device;
pub mod memory;
pub mod module;
pub mod streams;

use crate::control::control;
use crate::error::{CallResult, INVALID_VALUE, ResultCode, UNKNOWN, ends_context};
use crate::state::{current_handle, driver};
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Defines exported driver functions from bodies that return a `Result`; all are `unsafe`: the caller vouches for pointers.
macro_rules! api {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As for the driver's function: pointers must be as its documentation requires.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
                const CALL: &std::ffi::CStr =
                    match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => c"",
                    };
                $crate::api::enter(CALL, || -> $crate::error::CallResult { $body })
            }
        )*
    };
}
pub(crate) use api;

pub(crate) fn enter(name: &'static CStr, body: impl FnOnce() -> CallResult) -> u32 {
    let outcome = catch_unwind(AssertUnwindSafe(|| match control().call(name) {
        None => body(),
        Some(0) => Ok(()),
        Some(code) => {
            fail(name, code);
            Err(code)
        }
    }));
    match outcome {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code,
        Err(_) => UNKNOWN,
    }
}

fn fail(name: &CStr, code: ResultCode) {
    control().say(&format!("injected fault: {} returns {code}", name.to_string_lossy()));
    if ends_context(code)
        && let Ok(context) = driver().context(current_handle())
    {
        context.fate.end(code, &format!("injected fault: the context is lost with {code}"));
    }
}

pub(crate) fn unsupported<T>(what: &str) -> CallResult<T> {
    control().say(&format!("not supported by mockcuda: {what}"));
    Err(INVALID_VALUE)
}

/// # Safety
/// `to` is null or valid for a write of `T`.
pub(crate) unsafe fn out<T>(to: *mut T, value: T) -> CallResult {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null, and valid by the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}
