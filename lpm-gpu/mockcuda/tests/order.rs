//! Order of streams, events, barriers and persistent kernels.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{Arg, Driver, HEAD, check, entry};
use mockcuda::api::{memory, streams};
use mockcuda::control;
use std::sync::atomic::{AtomicU32, Ordering};

/// Adds `n` to the word at `a`, slowly, and stores it at `b`, so that the sum shows which steps ran before.
const STEP: &str = "ld.param.u64 %rd1, [k_a]; ld.param.u64 %rd2, [k_b]; ld.param.u32 %r1, [k_n]; ld.global.u32 %r2, [%rd1];\n\
    mul.lo.s32 %r2, %r2, 10; add.s32 %r2, %r2, %r1; st.global.u32 [%rd1], %r2; st.global.u32 [%rd2], %r2;";

fn step(driver: &Driver, kernel: u64, stream: u64, (a, b): (u64, u64), n: u32) {
    driver.launch_on(stream, kernel, 1, 1, &[Arg::U64(a), Arg::U64(b), Arg::U32(n)]).unwrap();
}

#[test]
fn a_stream_keeps_order_under_delays() {
    let driver = Driver::open();
    control::mockcuda_set_delay_us(300);
    let kernel = driver.kernel(&entry(STEP));
    let streams: Vec<u64> = (0..24).map(|_| driver.stream()).collect();
    let words: Vec<u64> = streams.iter().map(|_| driver.device(&[0_u32, 0])).collect();
    for n in 1..6 {
        for (stream, word) in streams.iter().zip(&words) {
            step(&driver, kernel, *stream, (*word, word + 4), n);
        }
    }
    for (stream, word) in streams.iter().zip(&words) {
        driver.synchronize(*stream).unwrap();
        driver.query(*stream).unwrap();
        assert_eq!(driver.download::<u32>(*word, 2).unwrap(), [12_345, 12_345]);
    }
}

#[test]
fn events_tell_ready_and_time() {
    let driver = Driver::open();
    let stream = driver.stream();
    let (start, end, untimed) = (driver.event(0), driver.event(0), driver.event(2));
    let mut milliseconds = 0_f32;
    // SAFETY: takes numbers and an out pointer to a local.
    unsafe {
        assert_eq!(streams::cuEventQuery(start), 0, "never recorded: nothing to wait for");
        assert_eq!(streams::cuEventElapsedTime(&raw mut milliseconds, start, end), 400);
        control::mockcuda_set_stalled(1);
        driver.record(start, stream);
        assert_eq!(streams::cuEventQuery(start), 600);
        assert_eq!(driver.query(stream).unwrap_err(), 600);
        driver.record(end, stream);
        driver.record(untimed, stream);
        assert_eq!(streams::cuEventElapsedTime(&raw mut milliseconds, start, end), 600);
        control::mockcuda_set_stalled(0);
        driver.synchronize(stream).unwrap();
        check(streams::cuEventElapsedTime(&raw mut milliseconds, start, end)).unwrap();
        assert!(milliseconds >= 0.0);
        assert_eq!(streams::cuEventElapsedTime(&raw mut milliseconds, start, untimed), 400);
        check(streams::cuEventDestroy_v2(start)).unwrap();
        assert_eq!(streams::cuEventQuery(start), 400);
    }
}

#[test]
fn pageable_memory_may_change_after_the_call_and_pinned_may_not() {
    let driver = Driver::open();
    let stream = driver.stream();
    let address = driver.alloc(8).unwrap();
    let pinned = driver.pinned(2);
    control::mockcuda_set_stalled(1);
    let mut own = [1_u32];
    // SAFETY: memory of the length given; the pinned words live on.
    unsafe {
        pinned.write_volatile(1);
        check(memory::cuMemcpyHtoDAsync_v2(address, own.as_ptr().cast(), 4, stream)).unwrap();
        check(memory::cuMemcpyHtoDAsync_v2(address + 4, pinned.cast(), 4, stream)).unwrap();
        own[0] = 2;
        pinned.write_volatile(2);
        control::mockcuda_set_stalled(0);
        driver.synchronize(stream).unwrap();
        assert_eq!(driver.download::<u32>(address, 2).unwrap(), [1, 2]);
        // To the host: pageable memory is written when the call returns.
        check(memory::cuMemcpyDtoHAsync_v2(own.as_mut_ptr().cast(), address + 4, 4, stream)).unwrap();
    }
    assert_eq!(own, [2]);
}

#[test]
fn a_barrier_holds_all_warps_of_a_block() {
    let driver = Driver::open();
    // Every thread writes its number, then reads that of the last thread of the block, 500 times.
    let body = ".shared .align 8 .b8 s[8192]; ld.param.u64 %rd1, [k_b]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ntid.x; mov.u32 %r5, 0; mov.u32 %r9, 0;\n\
        mov.u64 %rd2, s; mul.wide.u32 %rd3, %r0, 8; add.s64 %rd3, %rd3, %rd2; sub.s32 %r2, %r1, 1; sub.s32 %r2, %r2, %r0; mul.wide.u32 %rd4, %r2, 8;\n\
        add.s64 %rd4, %rd4, %rd2; $L: add.s32 %r6, %r0, %r5; st.shared.v2.u32 [%rd3], {%r6, %r6}; bar.sync 0; ld.shared.v2.u32 {%r7, %r4}, [%rd4];\n\
        add.s32 %r8, %r2, %r5; setp.ne.s32 %p1, %r7, %r8; selp.b32 %r7, 1, 0, %p1; add.s32 %r9, %r9, %r7; bar.sync 0; add.s32 %r5, %r5, 1;\n\
        setp.lt.u32 %p2, %r5, 500; @%p2 bra $L; mul.wide.u32 %rd5, %r0, 4; add.s64 %rd5, %rd5, %rd1; st.global.u32 [%rd5], %r9;";
    for threads in [1, 32, 33, 256, 1000] {
        assert_eq!(driver.run::<u32, u32>(body, threads, &[0], threads as usize), vec![0; threads as usize]);
    }
    // A barrier does not wait for a thread that has exited.
    let left = "ld.param.u64 %rd1, [k_b]; mov.u32 %r0, %tid.x; setp.gt.u32 %p1, %r0, 39; @%p1 bra $E; bar.sync 0; mul.wide.u32 %rd2, %r0, 4;\n\
        add.s64 %rd2, %rd2, %rd1; st.global.u32 [%rd2], 1; $E:";
    assert_eq!(driver.run::<u32, u32>(left, 100, &[0], 40), vec![1; 40]);
}

/// Waits until word 0 of `a` differs from `last`, writes it plus one to word 1; exits when word 2 is set.
fn resident() -> String {
    entry(
        ".shared .align 8 .b8 s[8]; ld.param.u64 %rd1, [k_a]; mov.u32 %r0, %tid.x; mov.u32 %r9, 0; mov.u64 %rd2, s;\n\
         $L: setp.ne.s32 %p1, %r0, 0; @%p1 bra $W;\n\
         $P: ld.relaxed.sys.global.u32 %r1, [%rd1]; ld.relaxed.sys.global.u32 %r2, [%rd1+8]; setp.ne.s32 %p2, %r2, 0; @%p2 bra $Q; setp.ne.s32 %p3, %r1, %r9; @%p3 bra $Q;\n\
         nanosleep.u32 100; bra.uni $P;\n\
         $Q: st.shared.v2.u32 [%rd2], {%r1, %r2};\n\
         $W: bar.sync 0; ld.shared.v2.u32 {%r9, %r3}, [%rd2]; setp.ne.s32 %p4, %r3, 0; @%p4 bra $E; bar.sync 0; @%p1 bra $L;\n\
         membar.sys; add.s32 %r4, %r9, 1; st.relaxed.sys.global.u32 [%rd1+4], %r4; bra.uni $L; $E:",
    )
}

#[test]
fn a_kernel_that_stays_answers_while_others_run() {
    let driver = Driver::open();
    let words = driver.pinned(16);
    // SAFETY: sixteen words, zeroed first; both sides use them as atomics.
    let word = |i: usize| unsafe { AtomicU32::from_ptr(words.add(i)) };
    for i in 0..16 {
        word(i).store(0, Ordering::Relaxed);
    }
    let address = words.expose_provenance() as u64;
    let (kernel, stream, other) = (driver.kernel(&resident()), driver.stream(), driver.stream());
    let step_kernel = driver.kernel(&entry(STEP));
    driver.launch_on(stream, kernel, 1, 64, &[Arg::U64(address), Arg::U64(0), Arg::U32(0)]).unwrap();
    let sum = driver.device(&[0_u32, 0]);
    for n in 1..50 {
        word(0).store(n, Ordering::Release);
        step(&driver, step_kernel, other, (sum, sum + 4), 0);
        driver.synchronize(other).unwrap();
        while word(1).load(Ordering::Acquire) != n + 1 {
            std::thread::yield_now();
        }
        assert_eq!(driver.query(stream).unwrap_err(), 600);
    }
    word(2).store(1, Ordering::Release);
    driver.synchronize(stream).unwrap();
}

#[test]
fn a_context_ends_with_a_kernel_that_stays() {
    let driver = Driver::open();
    let address = driver.device(&[0_u32; 4]);
    let (kernel, stream) = (driver.kernel(&resident()), driver.stream());
    driver.launch_on(stream, kernel, 2, 64, &[Arg::U64(address), Arg::U64(0), Arg::U32(0)]).unwrap();
    drop(driver);
    let driver = Driver::open();
    assert_eq!(driver.query(stream).unwrap_err(), 400);
    assert_eq!(driver.run::<u32, u32>("ld.param.u64 %rd1, [k_b]; st.global.u32 [%rd1], 4;", 1, &[0], 1), [4]);
}

#[test]
fn blocks_may_wait_for_each_other() {
    let driver = Driver::open();
    // Each of the 40 blocks waits for the next block's word before it writes its own.
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 k_a)\n{{\n.reg .b64 %rd<4>;\n.reg .b32 %r<4>;\n.reg .pred %p<2>;\nld.param.u64 %rd1, [k_a];\n\
         mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;\n\
         $L: ld.relaxed.gpu.global.u32 %r2, [%rd3+4]; setp.eq.s32 %p1, %r2, 0; @%p1 bra $L; st.relaxed.gpu.global.u32 [%rd3], %r2; ret;\n}}\n"
    );
    let kernel = driver.kernel(&text);
    let mut words = [0_u32; 41];
    words[40] = 7;
    let address = driver.device(&words);
    driver.launch(kernel, 40, 1, &[Arg::U64(address)]).unwrap();
    assert_eq!(driver.download::<u32>(address, 41).unwrap(), [7; 41]);
}
