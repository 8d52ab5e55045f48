//! A program's memory errors, and the driver's codes for them.

mod common;

use common::{LaunchArg, MockSession, ResultCode, check, entry};
use mockcuda::api::{device, memory, streams};
use mockcuda::control;

const COPY_WORD: &str = "ld.param.u64 %rd1, [k_a]; ld.param.u64 %rd2, [k_b]; ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd2], %r1;";

fn copy_word(driver: &MockSession, from: u64, to: u64) -> Result<(), ResultCode> {
    let kernel = driver.kernel(&entry(COPY_WORD));
    driver.launch(kernel, 1, 1, &[LaunchArg::U64(from), LaunchArg::U64(to), LaunchArg::U32(0)])?;
    driver.finish()
}

fn again(driver: MockSession) -> MockSession {
    drop(driver);
    MockSession::open()
}

#[test]
fn fresh_memory_is_poison_and_not_zero() {
    let driver = MockSession::open();
    let address = driver.alloc(12).unwrap();
    assert_eq!(driver.download::<u32>(address, 3).unwrap(), [0xa5a5_a5a5; 3]);
    driver.upload(address, &[1_u32, 2, 3]).unwrap();
    driver.free(address).unwrap();
    assert_eq!(driver.free(address).unwrap_err(), 1);
    assert_ne!(driver.alloc(12).unwrap(), address, "an address is not reused soon");
}

#[test]
fn a_word_too_far_ends_the_context() {
    let mut driver = MockSession::open();
    for (what, from, to, code) in
        [("read behind", 8, 0, 700), ("write behind", 0, 8, 700), ("misaligned", 2, 0, 716)]
    {
        let address = driver.device(&[1_u32, 2]);
        assert_eq!(copy_word(&driver, address + from, address + to).unwrap_err(), code, "{what}");
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
    let mut driver = MockSession::open();
    let (kept, freed) = (driver.device(&[1_u32]), driver.device(&[2_u32]));
    driver.free(freed).unwrap();
    assert_eq!(driver.upload(freed, &[1_u32]).unwrap_err(), 1);
    assert_eq!(copy_word(&driver, freed, kept).unwrap_err(), 700);
    driver = again(driver);
    assert_eq!(control::mockcuda_memory_used(), 0, "a context's memory is freed with it");
    assert_eq!(driver.download::<u32>(kept, 1).unwrap_err(), 1);
}

#[test]
fn a_device_address_is_no_host_address_and_null_is_none() {
    let driver = MockSession::open();
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
    let driver = MockSession::open();
    let address = driver.device(&[1_u32, 2, 3]);
    assert_eq!(driver.upload(address + 4, &[1_u32, 2, 3]).unwrap_err(), 1);
    assert_eq!(driver.download::<u32>(address, 4).unwrap_err(), 1);
    let stream = driver.stream();
    // SAFETY: numbers only.
    unsafe {
        assert_eq!(memory::cuMemsetD32Async(address + 4, 9, 3, stream), 1);
        assert_eq!(memory::cuMemsetD32Async(address + 2, 9, 1, stream), 1);
        assert_eq!(memory::cuMemsetD32Async(address + 4, 9, 1, stream), 0);
    }
    driver.synchronize(stream).unwrap();
    assert_eq!(driver.download::<u32>(address, 3).unwrap(), [1, 9, 3]);
}

#[test]
fn words_that_must_not_be_read_are_counted() {
    let driver = MockSession::open();
    let address = driver.device(&[1_u32, 2, 3, 4]);
    control::mockcuda_mark_freed(address + 4, 2);
    copy_word(&driver, address, address + 12).unwrap();
    assert_eq!(control::mockcuda_violations(), 0);
    copy_word(&driver, address + 4, address).unwrap();
    copy_word(&driver, address + 8, address).unwrap();
    assert_eq!(control::mockcuda_violations(), 2);
    // Words that a kernel or a copy writes are in use again.
    copy_word(&driver, address, address + 4).unwrap();
    driver.upload(address + 8, &[1_u32]).unwrap();
    copy_word(&driver, address + 4, address).unwrap();
    copy_word(&driver, address + 8, address).unwrap();
    assert_eq!(control::mockcuda_violations(), 2);
    // Unmarked words are not counted, and an address outside device memory has no marks.
    control::mockcuda_mark_freed(address, 1);
    control::mockcuda_unmark_freed(address, 1);
    control::mockcuda_mark_freed(16, 2);
    copy_word(&driver, address, address + 4).unwrap();
    assert_eq!(control::mockcuda_violations(), 2);
    driver.free(address).unwrap();
}

#[test]
fn words_are_counted_as_kernels_touch_them() {
    let driver = MockSession::open();
    let (read, written) = (control::mockcuda_words_read(), control::mockcuda_words_written());
    let body = "ld.param.u64 %rd1, [k_a]; ld.param.u64 %rd2, [k_b]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd3, %r0, 16; add.s64 %rd1, %rd1, %rd3;\n\
        mul.wide.u32 %rd3, %r0, 8; add.s64 %rd2, %rd2, %rd3; ld.global.cs.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1]; setp.lt.u32 %p1, %r0, 10;\n\
        @%p1 st.global.cs.v2.u32 [%rd2], {%r1, %r2};";
    let _: Vec<u64> = driver.run(body, 40, &[0_u32; 160], 40);
    assert_eq!(control::mockcuda_words_read() - read, 160);
    assert_eq!(control::mockcuda_words_written() - written, 20);
}

#[test]
fn shared_memory_has_bounds() {
    let mut driver = MockSession::open();
    let bodies = [
        (".shared .align 8 .b8 s[64]; mov.u64 %rd1, s; st.shared.u64 [%rd1+64], 1;", 700),
        (".shared .align 8 .b8 s[64]; mov.u64 %rd1, s; ld.shared.v2.u32 {%r1, %r2}, [%rd1+4];", 716),
        (".shared .align 8 .b8 s[64]; mov.u64 %rd1, s; ld.shared.u64 %rd2, [%rd1+-8];", 700),
    ];
    for (body, code) in bodies {
        assert_eq!(driver.try_run::<u32, u32>(body, 1, &[0], 1).unwrap_err(), code, "{body}");
        driver = again(driver);
    }
    let poisoned = ".shared .align 8 .b8 s[64]; ld.param.u64 %rd1, [k_b]; mov.u64 %rd2, s; ld.shared.v2.u32 {%r1, %r2}, [%rd2+8]; st.global.u32 [%rd1], %r1;";
    assert_eq!(driver.run::<u32, u32>(poisoned, 1, &[0], 1), [0xa5a5_a5a5]);
}

#[test]
fn calls_are_checked() {
    let driver = MockSession::open();
    let kernel = driver.kernel(&entry(""));
    let args = [LaunchArg::U64(0), LaunchArg::U64(0), LaunchArg::U32(0)];
    let pinned = driver.pinned(4);
    let (mut stream, mut value) = (0, 0);
    // SAFETY: out pointers to locals, numbers, and memory that is freed once, then refused.
    let codes = unsafe {
        [
            memory::cuMemFreeHost(pinned.cast()),
            memory::cuMemFreeHost(pinned.cast()),
            streams::cuStreamCreateWithPriority(&raw mut stream, 0, 0),
            device::cuDeviceGetAttribute(&raw mut value, 16, 0),
            device::cuDeviceGetAttribute(&raw mut value, 16, 1),
            device::cuDeviceGetAttribute(&raw mut value, 2, 0),
        ]
    };
    // A stream that waits for the default stream, and most attributes, are not served.
    assert_eq!((codes, value), ([0, 1, 1, 0, 101, 1], 132));
    assert_eq!(driver.alloc(0), Err(1));
    for (stream, function, blocks, threads, expected) in [
        (driver.stream(), kernel, 0, 1, Err(1)),
        (driver.stream(), kernel, 1, 1025, Err(1)),
        (driver.stream(), kernel, 1, 0, Err(1)),
        (driver.stream(), kernel + 1, 1, 1, Err(400)),
        (12_345, kernel, 1, 1, Err(400)),
        (driver.stream(), kernel, 1, 1024, Ok(())),
    ] {
        assert_eq!(
            driver.launch_on(stream, function, (blocks, 1), threads, &args),
            expected,
            "{blocks} {threads}"
        );
    }
    driver.finish().unwrap();
}

#[test]
fn a_thread_without_a_context_has_none() {
    let driver = MockSession::open();
    let context = driver.context();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(driver.alloc(4).unwrap_err(), 201);
            assert_eq!(driver.poll().unwrap_err(), 201);
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

#[test]
fn registered_memory_is_the_devices_to_read_until_it_is_unregistered() {
    let mut driver = MockSession::open();
    let mut words = vec![5_u32; 4096];
    let (host, bytes) = (words.as_mut_ptr(), words.len() * 4);
    // SAFETY: `words` outlives its registration; null and empty ranges are refused.
    let register =
        |at: *mut u32, bytes, flags| check(unsafe { memory::cuMemHostRegister_v2(at.cast(), bytes, flags) });
    // SAFETY: no work is left that reads it.
    let unregister = |at: *mut u32| check(unsafe { memory::cuMemHostUnregister(at.cast()) });
    let mapped = |at: *mut u32| {
        let mut address = 0;
        // SAFETY: an out pointer.
        check(unsafe { memory::cuMemHostGetDevicePointer_v2(&raw mut address, at.cast(), 0) })
            .map(|()| address)
    };
    assert_eq!(register(std::ptr::null_mut(), 4, 3), Err(1));
    assert_eq!((register(host, 0, 3), register(host, bytes, 16), mapped(host)), (Err(1), Err(1), Err(1)));
    register(host, bytes, 0b1011).unwrap();
    assert_eq!(control::mockcuda_registered(), bytes as u64);
    let last = host.wrapping_add(4095);
    assert_eq!(
        [register(host, bytes, 3), register(last, 4, 3)],
        [Err(712), Err(712)],
        "a part is registered"
    );
    assert_eq!(unregister(last), Err(713), "no registration starts here");
    let (first, second) = (mapped(host).unwrap(), mapped(last).unwrap());
    assert!(first != host.addr() as u64 && second == first + 4 * 4095);
    let to = driver.device(&[0_u32]);
    copy_word(&driver, second, to).unwrap();
    assert_eq!(driver.download::<u32>(to, 1).unwrap(), [5]);
    unregister(host).unwrap();
    assert_eq!((unregister(host), control::mockcuda_registered()), (Err(713), 0));
    for (what, from, into) in
        [("after its end", second, to), ("behind it", second + 4, to), ("a write", to, second)]
    {
        driver = again(driver);
        let to = driver.device(&[0_u32]);
        if what != "after its end" {
            register(host, bytes, 0b1011).unwrap();
        }
        let place = |at| if at == second || at == second + 4 { at } else { to };
        assert_eq!(copy_word(&driver, place(from), place(into)), Err(700), "{what}");
    }
    let _next = again(driver);
    assert_eq!(control::mockcuda_registered(), 0, "a context's registrations end with it");
}
