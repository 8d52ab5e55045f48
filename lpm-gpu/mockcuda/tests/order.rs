//! Streams, events, barriers and blocks, where the engines' suites do not cover them.

mod common;

use common::{HEAD, LaunchArg, MockSession, check};
use mockcuda::api::{memory, streams};
use mockcuda::control;

#[test]
fn events_without_a_time_have_none() {
    let driver = MockSession::open();
    let stream = driver.stream();
    let (start, end, untimed) = (driver.event(0), driver.event(0), driver.event(2));
    let mut milliseconds = 0_f32;
    let mut elapsed = |end| {
        // SAFETY: an out pointer to a local, and numbers.
        check(unsafe { streams::cuEventElapsedTime(&raw mut milliseconds, start, end) })
    };
    assert_eq!(elapsed(end), Err(400), "never recorded");
    control::mockcuda_set_stalled(1);
    [start, end, untimed].into_iter().for_each(|event| driver.record(event, stream));
    assert_eq!(elapsed(end), Err(600));
    control::mockcuda_set_stalled(0);
    driver.synchronize(stream).unwrap();
    assert_eq!((elapsed(end), elapsed(untimed)), (Ok(()), Err(400)));
    // SAFETY: takes a number.
    assert_eq!(unsafe { [streams::cuEventDestroy_v2(start), streams::cuEventQuery(start)] }, [0, 400]);
}

#[test]
fn pageable_memory_may_change_after_the_call_and_pinned_may_not() {
    let driver = MockSession::open();
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
fn a_barrier_does_not_wait_for_a_thread_that_has_exited() {
    let left = "ld.param.u64 %rd1, [k_b]; mov.u32 %r0, %tid.x; setp.gt.u32 %p1, %r0, 39; @%p1 bra $E; bar.sync 0; mul.wide.u32 %rd2, %r0, 4;\n\
        add.s64 %rd2, %rd2, %rd1; st.global.u32 [%rd2], 1; $E:";
    assert_eq!(MockSession::open().run::<u32, u32>(left, 100, &[0], 40), vec![1; 40]);
}

#[test]
fn blocks_may_wait_for_each_other() {
    let driver = MockSession::open();
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
    driver.launch(kernel, 40, 1, &[LaunchArg::U64(address)]).unwrap();
    assert_eq!(driver.download::<u32>(address, 41).unwrap(), [7; 41]);
}
