//! What a program does wrong with memory, and what the driver says to it.

mod common;

use common::{Arg, Code, Driver, check, entry};
use mockcuda::api::{device, memory, module};
use mockcuda::control;

/// Loads a word from `a` and stores it to `b`.
const COPY_WORD: &str = "ld.param.u64 %rd1, [k_a]; ld.param.u64 %rd2, [k_b]; ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd2], %r1;";

fn copy_word(driver: &Driver, from: u64, to: u64) -> Result<(), Code> {
    let kernel = driver.kernel(&entry(COPY_WORD));
    driver.launch(kernel, 1, 1, 0, &[Arg::U64(from), Arg::U64(to), Arg::U32(0)])?;
    driver.synchronize(0)
}

/// A fresh primary context in place of a lost one.
fn again(driver: Driver) -> Driver {
    drop(driver);
    Driver::open()
}

#[test]
fn fresh_memory_is_poison_and_not_zero() {
    let driver = Driver::open();
    let address = driver.alloc(12).unwrap();
    assert_eq!(driver.download::<u32>(address, 3).unwrap(), [0xa5a5_a5a5; 3]);
    driver.upload(address, &[1_u32, 2, 3]).unwrap();
    driver.free(address).unwrap();
    assert_eq!(driver.free(address).unwrap_err(), 1);
    assert_ne!(driver.alloc(12).unwrap(), address, "an address is not used again soon");
}

#[test]
fn a_word_too_far_ends_the_context() {
    let mut driver = Driver::open();
    for (what, from, to, code) in
        [("read behind", 8, 0, 700), ("write behind", 0, 8, 700), ("misaligned", 2, 0, 716)]
    {
        let address = driver.device(&[1_u32, 2]);
        assert_eq!(copy_word(&driver, address + from, address + to).unwrap_err(), code, "{what}");
        // From now on everything says so, but another context works.
        assert_eq!(driver.alloc(4).unwrap_err(), code, "{what}");
        assert_eq!(driver.free(address).unwrap_err(), code, "{what}");
        driver = again(driver);
        let address = driver.device(&[7_u32, 2]);
        copy_word(&driver, address, address + 4).unwrap();
        assert_eq!(driver.download::<u32>(address, 2).unwrap(), [7, 7]);
    }
}

#[test]
fn memory_is_gone_when_freed() {
    let mut driver = Driver::open();
    let (kept, freed) = (driver.device(&[1_u32]), driver.device(&[2_u32]));
    driver.free(freed).unwrap();
    assert_eq!(driver.upload(freed, &[1_u32]).unwrap_err(), 1);
    assert_eq!(copy_word(&driver, freed, kept).unwrap_err(), 700);
    driver = again(driver);
    assert_eq!(control::mockcuda_memory_used(), 0, "a context takes its memory along");
    assert_eq!(driver.download::<u32>(kept, 1).unwrap_err(), 1);
}

#[test]
fn a_device_address_is_no_host_address_and_null_is_none() {
    let driver = Driver::open();
    let to = driver.device(&[0_u32]);
    let host = Box::new(5_u32);
    let address = std::ptr::from_ref(&*host).expose_provenance() as u64;
    assert_eq!(copy_word(&driver, address, to).unwrap_err(), 700, "the program's memory is not the device's");
    let driver = again(driver);
    let to = driver.device(&[0_u32]);
    assert_eq!(copy_word(&driver, 0, to).unwrap_err(), 700);
}

#[test]
fn copies_and_fills_are_checked_when_asked_for() {
    let driver = Driver::open();
    let address = driver.device(&[1_u32, 2, 3]);
    assert_eq!(driver.upload(address + 4, &[1_u32, 2, 3]).unwrap_err(), 1);
    assert_eq!(driver.download::<u32>(address, 4).unwrap_err(), 1);
    // SAFETY: numbers only.
    unsafe {
        assert_eq!(memory::cuMemcpyDtoD_v2(address, address + 8, 8), 1);
        assert_eq!(memory::cuMemcpyDtoD_v2(address, address + 8, 4), 0);
        assert_eq!(memory::cuMemsetD32_v2(address + 4, 9, 3), 1);
        assert_eq!(memory::cuMemsetD32_v2(address + 2, 9, 1), 1);
        assert_eq!(memory::cuMemsetD32_v2(address + 4, 9, 1), 0);
        assert_eq!(memory::cuMemsetD8_v2(address + 8, 1, 3), 0);
    }
    assert_eq!(driver.download::<u32>(address, 3).unwrap(), [3, 9, 0x10101]);
}

#[test]
fn there_is_only_so_much() {
    let driver = Driver::open();
    control::mockcuda_set_memory_bytes(1 << 20);
    let first = driver.alloc(600 << 10).unwrap();
    assert_eq!(driver.alloc(600 << 10).unwrap_err(), 2);
    let (mut free, mut total) = (0, 0);
    // SAFETY: out pointers to locals.
    check(unsafe { memory::cuMemGetInfo_v2(&raw mut free, &raw mut total) }).unwrap();
    assert_eq!((free, total), (424 << 10, 1 << 20));
    driver.free(first).unwrap();
    driver.alloc(600 << 10).unwrap();
    assert_eq!(driver.alloc(0).unwrap_err(), 1);
}

#[test]
fn pinned_memory_is_seen_by_both_sides() {
    let driver = Driver::open();
    let pinned = driver.pinned(4);
    let mut address = 0;
    // SAFETY: memory of four words that was just allocated; an out pointer to a local.
    unsafe {
        pinned.write_volatile(11);
        check(memory::cuMemHostGetDevicePointer_v2(&raw mut address, pinned.cast(), 0)).unwrap();
    }
    copy_word(&driver, address, address + 8).unwrap();
    // SAFETY: as above; the kernel is done.
    assert_eq!(unsafe { pinned.add(2).read_volatile() }, 11);
    assert_eq!(control::mockcuda_host_used(), 16);
    // SAFETY: what was allocated; then what no longer is.
    unsafe {
        assert_eq!(memory::cuMemFreeHost(pinned.cast()), 0);
        assert_eq!(memory::cuMemFreeHost(pinned.cast()), 1);
    }
    let mut own = vec![3_u32, 0];
    let at = own.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: registered for as long as the kernel runs.
    unsafe {
        check(memory::cuMemHostRegister_v2(own.as_mut_ptr().cast(), 8, 0)).unwrap();
        assert_eq!(memory::cuMemHostRegister_v2(own.as_mut_ptr().cast(), 8, 0), 712);
        copy_word(&driver, at, at + 4).unwrap();
        check(memory::cuMemHostUnregister(own.as_mut_ptr().cast())).unwrap();
        assert_eq!(memory::cuMemHostUnregister(own.as_mut_ptr().cast()), 713);
    }
    assert_eq!(own, [3, 3]);
}

#[test]
fn words_that_must_not_be_read_are_counted() {
    let driver = Driver::open();
    let address = driver.device(&[1_u32, 2, 3, 4]);
    control::mockcuda_mark_freed(address + 4, 2);
    copy_word(&driver, address, address + 12).unwrap();
    assert_eq!(control::mockcuda_violations(), 0);
    copy_word(&driver, address + 4, address).unwrap();
    copy_word(&driver, address + 8, address).unwrap();
    assert_eq!(control::mockcuda_violations(), 2);
    assert_eq!(control::mockcuda_first_violation(), address + 4);
    // Written, it is in use again: by a kernel, by a copy.
    copy_word(&driver, address, address + 4).unwrap();
    driver.upload(address + 8, &[1_u32]).unwrap();
    copy_word(&driver, address + 4, address).unwrap();
    copy_word(&driver, address + 8, address).unwrap();
    assert_eq!(control::mockcuda_violations(), 2);
    // A write that must not be.
    assert_eq!(control::mockcuda_mark(address, 1, 2), 1);
    copy_word(&driver, address + 4, address).unwrap();
    assert_eq!((control::mockcuda_bad_writes(), control::mockcuda_violations()), (1, 3));
    assert_eq!(control::mockcuda_mark(16, 1, 2), 0, "no device address");
    driver.free(address).unwrap();
}

#[test]
fn words_are_counted_as_kernels_touch_them() {
    let driver = Driver::open();
    let (read, written) = (control::mockcuda_words_read(), control::mockcuda_words_written());
    let body = "ld.param.u64 %rd1, [k_a]; ld.param.u64 %rd2, [k_b]; mov.u32 %r0, %tid.x; mad.wide.u32 %rd1, %r0, 16, %rd1; mad.wide.u32 %rd2, %r0, 8, %rd2;\n\
        ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1]; setp.lt.u32 %p1, %r0, 10; @%p1 st.global.u64 [%rd2], %rd1;";
    let _: Vec<u64> = driver.run(body, 40, &[0_u32; 160], 40);
    assert_eq!(control::mockcuda_words_read() - read, 160);
    assert_eq!(control::mockcuda_words_written() - written, 20);
    assert_eq!(control::mockcuda_bytes_to_device(), 640);
    assert_eq!(control::mockcuda_bytes_to_host(), 320);
}

#[test]
fn shared_memory_has_bounds() {
    let mut driver = Driver::open();
    let bodies = [
        (".shared .align 4 .b8 s[64]; mov.u64 %rd1, s; st.shared.u32 [%rd1+64], 1;", 700),
        (".shared .align 4 .b8 s[64]; mov.u64 %rd1, s; ld.shared.u32 %r1, [%rd1+2];", 716),
        (
            ".shared .align 4 .b8 s[64]; mov.u64 %rd1, s; cvta.shared.u64 %rd1, %rd1; ld.u32 %r1, [%rd1+4096];",
            700,
        ),
    ];
    for (body, code) in bodies {
        assert_eq!(driver.try_run::<u32, u32>(body, 1, &[0], 1).unwrap_err(), code, "{body}");
        driver = again(driver);
    }
    let poisoned = ".shared .align 4 .b8 s[64]; ld.param.u64 %rd1, [k_b]; mov.u64 %rd2, s; ld.shared.u32 %r1, [%rd2+8]; st.global.u32 [%rd1], %r1;";
    assert_eq!(driver.run::<u32, u32>(poisoned, 1, &[0], 1), [0xa5a5_a5a5]);
}

#[test]
fn module_variables_have_their_values() {
    let driver = Driver::open();
    let text = format!(
        "{}.global .align 4 .b8 table[16] = {{1, 0, 0, 0, 2, 0, 0, 0}};\n.const .align 4 .u32 three = 3;\n.extern .shared .align 4 .b8 dyn[];\n\
         .visible .entry k(.param .u64 k_b)\n{{\n.reg .b64 %rd<5>;\n.reg .b32 %r<5>;\nld.param.u64 %rd1, [k_b]; ld.global.u32 %r1, [table+4];\n\
         ld.const.u32 %r2, [three]; mov.u32 %r4, 40; mov.u64 %rd2, dyn; st.shared.u32 [%rd2+60], %r4; ld.shared.u32 %r3, [dyn+60];\n\
         add.s32 %r1, %r1, %r2; add.s32 %r1, %r1, %r3; st.global.u32 [%rd1], %r1; ret;\n}}\n",
        common::HEAD
    );
    let module_handle = driver.load(&text).unwrap();
    let kernel = driver.function(module_handle, "k").unwrap();
    assert_eq!(driver.function(module_handle, "other").unwrap_err(), 500);
    let out = driver.alloc(4).unwrap();
    let mut value = out;
    let mut params = [std::ptr::from_mut(&mut value).cast()];
    let null = std::ptr::null_mut();
    // SAFETY: one parameter, of its size.
    check(unsafe { module::cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 64, 0, params.as_mut_ptr(), null) })
        .unwrap();
    assert_eq!(driver.download::<u32>(out, 1).unwrap(), [45]);
    let (mut address, mut bytes) = (0, 0);
    // SAFETY: out pointers to locals, a string that ends in zero.
    check(unsafe {
        module::cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module_handle, c"table".as_ptr())
    })
    .unwrap();
    assert_eq!((driver.download::<u32>(address, 2).unwrap(), bytes), (vec![1, 2], 16));
}

#[test]
fn launches_are_checked() {
    let driver = Driver::open();
    let kernel = driver.kernel(&entry(""));
    let args = [Arg::U64(0), Arg::U64(0), Arg::U32(0)];
    assert_eq!(driver.launch(kernel, 0, 1, 0, &args).unwrap_err(), 1);
    assert_eq!(driver.launch(kernel, 1, 1025, 0, &args).unwrap_err(), 1);
    assert_eq!(driver.launch(kernel, 1, 0, 0, &args).unwrap_err(), 1);
    assert_eq!(driver.launch(kernel + 1, 1, 1, 0, &args).unwrap_err(), 400);
    assert_eq!(driver.launch(kernel, 1, 1, 12_345, &args).unwrap_err(), 400);
    driver.launch(kernel, 1, 1024, 0, &args).unwrap();
    driver.synchronize(0).unwrap();
}

#[test]
fn a_thread_without_a_context_has_none() {
    let driver = Driver::open();
    let context = driver.context();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(driver.alloc(4).unwrap_err(), 201);
            assert_eq!(driver.synchronize(0).unwrap_err(), 201);
            // SAFETY: takes a number.
            check(unsafe { device::cuCtxSetCurrent(context) }).unwrap();
            driver.alloc(4).unwrap();
            // SAFETY: takes a number.
            assert_eq!(unsafe { device::cuCtxSetCurrent(context + 1) }, 201);
        });
    });
    // SAFETY: takes a number.
    check(unsafe { device::cuDevicePrimaryCtxRelease_v2(0) }).unwrap();
    assert_eq!(driver.alloc(4).unwrap_err(), 201);
    // SAFETY: takes a number.
    assert_eq!(unsafe { device::cuDevicePrimaryCtxRelease_v2(0) }, 201);
}
