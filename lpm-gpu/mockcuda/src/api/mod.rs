//! The driver's functions as C sees them: each counts itself, fails if told to, does its work and never unwinds.

pub mod device;
pub mod events;
pub mod graphs;
pub mod memory;
pub mod module;
pub mod streams;

use crate::control::control;
use crate::error::{Answer, Code, UNKNOWN, ends_context};
use crate::state::{current_handle, driver};
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A function of the driver, as a row of its table: name with a zero byte, address.
pub(crate) type Row = (&'static str, usize);

/// Defines driver functions: exported under their names, with a body that answers a `Result`, and the table of them.
///
/// Every one is `unsafe`: pointers are the caller's promise, as in the driver's own documentation. Out pointers that are null
/// are the caller's error there too, and answered with `INVALID_VALUE` through [`out`].
macro_rules! api {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the driver's function of this name: pointers must be what its documentation asks for.
            #[unsafe(no_mangle)]

            pub unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
                $crate::api::enter(stringify!($name), || -> $crate::error::Answer { $body })
            }
        )*

        /// The functions of this file.
        pub(crate) fn table() -> Vec<$crate::api::Row> {
            vec![$((concat!(stringify!($name), "\0"), ($name as unsafe extern "C" fn($($type),*) -> u32) as usize)),*]
        }
    };
}
pub(crate) use api;

/// What every driver call does around its work.
pub(crate) fn enter(name: &'static str, body: impl FnOnce() -> Answer) -> u32 {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        if let Some(code) = control().call(name) {
            if code == 0 {
                return Ok(());
            }
            fail(name, code);
            return Err(code);
        }
        body()
    }));
    match outcome {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code,
        Err(_) => UNKNOWN,
    }
}

/// A fault as asked for: one that ends a context does so.
fn fail(name: &str, code: Code) {
    control().say(&format!("{name} fails with {code}, as asked"));
    if ends_context(code)
        && let Ok(context) = driver().context(current_handle())
    {
        context.fate.end(code, &format!("the context is lost with {code}, as asked"));
    }
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// `to` is null or valid for a write of `T`.
pub(crate) unsafe fn out<T>(to: *mut T, value: T) -> Answer {
    if to.is_null() {
        return Err(crate::error::INVALID_VALUE);
    }
    // SAFETY: not null, and valid by the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// As [`out`], where null means that the caller does not want it.
///
/// # Safety
/// As [`out`].
pub(crate) unsafe fn out_if<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: not null, and valid by the caller's promise.
        unsafe { to.write(value) };
    }
}

/// Every function there is.
pub(crate) fn functions() -> &'static [Row] {
    static TABLE: std::sync::OnceLock<Vec<Row>> = std::sync::OnceLock::new();
    TABLE.get_or_init(|| {
        let tables = [
            device::table(),
            events::table(),
            graphs::table(),
            memory::table(),
            module::table(),
            streams::table(),
        ];
        tables.concat()
    })
}

/// The C string of a driver function's name.
pub(crate) fn c_name(name: &str) -> Option<&'static CStr> {
    let row = functions().iter().find(|row| row.0.strip_suffix('\0') == Some(name))?;
    CStr::from_bytes_with_nul(row.0.as_bytes()).ok()
}
