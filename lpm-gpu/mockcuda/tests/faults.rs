//! Faults of driver calls, and error messages.

mod common;

use common::{LaunchArg, MockSession, ResultCode, check, entry};
use mockcuda::api::{device, module};
use mockcuda::control;
use std::ffi::CStr;

fn session(driver: &MockSession) -> Result<u32, ResultCode> {
    let module = driver.load(&entry(
        "ld.param.u64 %rd1, [k_a]; ld.param.u32 %r1, [k_n]; ld.global.u32 %r2, [%rd1]; add.s32 %r2, %r2, %r1; st.global.u32 [%rd1], %r2;",
    ))?;
    let kernel = driver.function(module, "k")?;
    let word = driver.alloc(4)?;
    driver.upload(word, &[30_u32])?;
    driver.launch(kernel, 1, 1, &[LaunchArg::U64(word), LaunchArg::U64(0), LaunchArg::U32(12)])?;
    driver.finish()?;
    let sum = driver.download::<u32>(word, 1)?;
    driver.free(word)?;
    Ok(sum[0])
}

#[test]
fn a_fault_at_each_call_comes_out_there() {
    let mut driver = MockSession::open();
    let before = control::mockcuda_calls();
    assert_eq!(session(&driver), Ok(42));
    // At least 9: the number of polls varies.
    let calls = control::mockcuda_calls() - before;
    assert!(calls >= 9, "{calls}");
    for code in [2, 999, 700, 719] {
        for index in 0..9 {
            let at = control::mockcuda_calls() + index;
            control::mockcuda_fail_at(at, code);
            assert_eq!(session(&driver), Err(code), "call {index}");
            let name = control::mockcuda_call_name(at);
            // SAFETY: a C string of the library; the call exists, so it is not null.
            let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap();
            assert!(name.starts_with("cu"), "{name}");
            // A code that ends the context is returned by later calls, too; other codes leave the context intact.
            assert_eq!(
                session(&driver),
                if (700..800).contains(&code) { Err(code) } else { Ok(42) },
                "after call {index}"
            );
            drop(driver);
            driver = MockSession::open();
            assert_eq!(session(&driver), Ok(42));
        }
    }
}

#[test]
fn codes_have_names_and_asking_is_no_call() {
    let driver = MockSession::open();
    let before = control::mockcuda_calls();
    let mut text = std::ptr::null();
    for (code, expected) in
        [(0, "CUDA_SUCCESS"), (700, "CUDA_ERROR_ILLEGAL_ADDRESS"), (999, "CUDA_ERROR_UNKNOWN")]
    {
        // SAFETY: an out pointer to a local, which then is a C string of the library.
        unsafe {
            check(device::cuGetErrorName(code, &raw mut text)).unwrap();
            assert_eq!(CStr::from_ptr(text).to_str().unwrap(), expected);
        }
    }
    // SAFETY: an out pointer to a local.
    assert_eq!(unsafe { device::cuGetErrorName(12_345, &raw mut text) }, 1);
    assert_eq!(control::mockcuda_calls(), before);
    drop(driver);
}

#[test]
fn a_message_says_where_ptx_is_wrong() {
    let driver = MockSession::open();
    let text = std::ffi::CString::new(entry("frob.u32 %r1, %r2;")).unwrap();
    let mut log = [1_u8; 200];
    let mut options = [5_u32, 6];
    let mut values = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())];
    let mut handle = 0;
    // SAFETY: a C string, two options with a buffer of the length given, an out pointer to a local.
    let code = unsafe {
        module::cuModuleLoadDataEx(
            &raw mut handle,
            text.as_ptr().cast(),
            2,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    let message = CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap();
    assert_eq!((code, message), (218, "PTX line 10: instruction `frob.u32` is not known to mockcuda"));
    drop(driver);
}
