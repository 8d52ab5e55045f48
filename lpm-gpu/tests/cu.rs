//! The driver wrapper: copies, launches, events, lifetimes, and the effect of each failure; over `mockcuda`, or with
//! `LPM_GPU=real` over the real driver.

#![expect(clippy::unwrap_used, reason = "a test")]

use lpm_gpu::cu::testing::{self, Exclusive, TestDriver};
use lpm_gpu::cu::{
    Arg, Device, DeviceBuffer, DeviceWords, GpuError, HostSide, Kernel, Module, Pinned, Priority, Shape,
    Shared, Stream,
};
use lpm_gpu::host::{HEADER_WORDS, Write};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const SHAPE: Shape = Shape::new(2, 64);

/// A driver for this test alone, with its device; otherwise skips the test.
macro_rules! device {
    () => {{
        let one = testing::exclusive();
        match testing::device() {
            Some(device) => (one, device),
            None => return,
        }
    }};
}

/// A table of one level: the answer for a key is its first byte times 3.
struct ByteTable {
    words: DeviceWords,
    header: DeviceWords,
}

impl ByteTable {
    fn new(device: &Device, stream: &mut Stream) -> Result<Self, GpuError> {
        let units: Vec<u32> = (0..256).map(|byte| (byte * 3) << 8).collect();
        let mut header = [0_u32; HEADER_WORDS];
        // One level with a stride of 8 bits, at word 0 (kernels/gamt.cu).
        (header[0], header[2], header[6], header[7]) = (1, 32, 8, 0);
        let table =
            Self { words: DeviceBuffer::new(device, 256)?, header: DeviceBuffer::new(device, HEADER_WORDS)? };
        stream.upload_now(&table.words, 0, &units)?;
        stream.upload_now(&table.header, 0, &header)?;
        Ok(table)
    }

    fn args<'a>(&'a self, keys: Arg<'a>, raw: Arg<'a>, count: u32) -> [Arg<'a>; 5] {
        [Arg::buffer(&self.words), Arg::buffer(&self.header), keys, raw, Arg::u32(count)]
    }
}

fn keys(count: usize) -> Vec<u32> {
    (0..u32::try_from(count).unwrap()).map(|i| i.wrapping_mul(0x9e37_79b9)).collect()
}

fn answers(keys: &[u32]) -> Vec<u32> {
    keys.iter().map(|key| (key >> 24) * 3).collect()
}

fn lookup(device: &Device) -> Kernel {
    Module::new(device, "gamt").unwrap().kernel("gamt_lookup_v4_flat_live").unwrap()
}

fn nothing_is_left() {
    if let Some(mock) = testing::driver().and_then(TestDriver::mock) {
        assert_eq!((mock.memory_used(), mock.host_used()), (0, 0), "memory that was not freed");
    }
}

#[test]
fn what_is_copied_in_comes_back() {
    let (_one, device) = device!();
    let mut stream = Stream::new(&device, Priority::Usual).unwrap();
    let buffer = DeviceBuffer::<u64>::new(&device, 1000).unwrap();
    let mut out = Pinned::<u64>::new(&device, 1000, HostSide::Writes).unwrap();
    let mut back = Pinned::<u64>::new(&device, 1000, HostSide::Reads).unwrap();
    let values: Vec<u64> = (0..1000).map(|i| i * 0x1_0000_0001).collect();
    out.slice_mut().unwrap().copy_from_slice(&values);
    stream.upload(&buffer, 0, &mut out, 0..1000).unwrap();
    stream.download(&mut back, 10..20, &buffer, 500).unwrap();
    stream.finish(LIMIT).unwrap();
    assert_eq!(back.slice().unwrap()[10..20], values[500..510]);
    assert!(back.slice().unwrap()[20..].iter().all(|value| *value == 0), "zero when new");

    let words = DeviceWords::new(&device, 64).unwrap();
    stream.fill(&words, 0..64, 7).unwrap();
    stream.fill(&words, 5..9, 8).unwrap();
    let mut read = [0; 6];
    stream.download_now(&mut read, &words, 4).unwrap();
    assert_eq!(read, [7, 8, 8, 8, 8, 7]);
    stream.upload_now(&words, 64, &[]).unwrap();
    stream.download_now(&mut [0; 0], &words, 64).unwrap();
    stream.upload(&buffer, 1000, &mut out, 5..5).unwrap();
    stream.fill(&words, 3..3, 1).unwrap();
}

#[test]
fn a_range_beyond_its_array_is_refused() {
    let (_one, device) = device!();
    let mut stream = Stream::new(&device, Priority::Usual).unwrap();
    let words = DeviceWords::new(&device, 10).unwrap();
    let mut pinned = Pinned::<u32>::new(&device, 10, HostSide::Reads).unwrap();
    let shared = Shared::<u32>::new(&device, 10).unwrap();
    let refusals = [
        stream.upload(&words, 5, &mut pinned, 0..6),
        stream.upload(&words, 0, &mut pinned, 5..11),
        stream.download(&mut pinned, 0..10, &words, usize::MAX),
        stream.upload_now(&words, 9, &[1, 2]),
        stream.download_now(&mut [0; 3], &words, 8),
        stream.fill(&words, 10..11, 0),
        shared.write(9, &[1, 2]),
        shared.read(11, &mut []),
    ];
    for (at, refusal) in refusals.into_iter().enumerate() {
        assert!(matches!(refusal, Err(GpuError::Range { .. })), "{at}: {refusal:?}");
    }
}

#[test]
fn the_host_gets_page_locked_memory_in_its_turn_only() {
    let (_one, device) = device!();
    if let Some(mock) = testing::driver().and_then(TestDriver::mock) {
        mock.set_delay_us(2000);
    }
    let mut stream = Stream::new(&device, Priority::Usual).unwrap();
    let mut other = Stream::new(&device, Priority::Usual).unwrap();
    let buffer = DeviceWords::new(&device, 1 << 16).unwrap();
    let mut memory = Pinned::<u32>::new(&device, 1 << 16, HostSide::Reads).unwrap();
    let mut event = stream.event(false).unwrap();
    assert!(event.has_come().unwrap(), "an event that was never recorded");
    for round in 0..20 {
        memory.slice_mut().unwrap().fill(round);
        stream.upload(&buffer, 0, &mut memory, 0..1 << 16).unwrap();
        assert_eq!(memory.slice().unwrap_err(), GpuError::Busy);
        assert_eq!(memory.slice_mut().unwrap_err(), GpuError::Busy);
        assert_eq!(other.upload(&buffer, 0, &mut memory, 0..1), Err(GpuError::Busy));
        stream.download(&mut memory, 0..1 << 16, &buffer, 0).unwrap();
        stream.record(&mut event).unwrap();
        event.wait(LIMIT).unwrap();
        assert!(memory.is_idle());
        assert!(memory.slice().unwrap().iter().all(|word| *word == round));
        // An event does not cover work enqueued after it.
        stream.download(&mut memory, 0..1, &buffer, 0).unwrap();
        assert!(event.has_come().unwrap());
        assert_eq!(memory.slice().unwrap_err(), GpuError::Busy);
        stream.finish(LIMIT).unwrap();
    }
    assert_eq!(other.record(&mut event), Err(GpuError::Foreign("an event")));
}

#[test]
fn a_kernel_runs_with_the_arguments_it_takes() {
    let (_one, device) = device!();
    let module = Module::new(&device, "gamt").unwrap();
    assert!(matches!(Module::new(&device, "gant"), Err(GpuError::Ptx { .. })));
    assert!(matches!(module.kernel("nothing"), Err(GpuError::Kernel { .. })));
    let write = module.kernel("write_words").unwrap();
    assert_eq!(write.facts().local_bytes, 0, "the kernels keep to registers");
    assert!(write.facts().threads_block_max >= 64);
    assert!(write.blocks_multiprocessor_max(64).unwrap() > 0);

    let mut stream = Stream::new(&device, Priority::First).unwrap();
    let words = DeviceWords::new(&device, 1000).unwrap();
    stream.fill(&words, 0..1000, 5).unwrap();
    let list: Vec<Write> = (0..300).map(|i| Write { at: i * 3, value: i }).collect();
    let writes = DeviceBuffer::<Write>::new(&device, 300).unwrap();
    stream.upload_now(&writes, 0, &list).unwrap();
    let mut args = [Arg::buffer(&words), Arg::buffer(&writes), Arg::u32(300)];
    stream.launch(&write, SHAPE, &mut args).unwrap();
    let mut read = vec![0; 1000];
    stream.download_now(&mut read, &words, 0).unwrap();
    for (at, word) in (0..).zip(read) {
        assert_eq!(word, if at % 3 == 0 && at < 900 { at / 3 } else { 5 }, "word {at}");
    }

    for mut wrong in [
        vec![Arg::buffer(&words), Arg::buffer(&writes)],
        vec![Arg::buffer(&words), Arg::buffer(&writes), Arg::buffer(&words)],
        vec![Arg::buffer(&words), Arg::u32(1), Arg::u32(300)],
        vec![Arg::buffer(&words), Arg::buffer(&writes), Arg::u32(300), Arg::u32(0)],
    ] {
        let refused = stream.launch(&write, SHAPE, &mut wrong);
        assert!(matches!(refused, Err(GpuError::Kernel { .. })), "{refused:?}");
    }
    // No blocks: the driver returns an error, and the context survives. Too many threads: refused before the driver call.
    let mut launch =
        |shape| stream.launch(&write, shape, &mut [Arg::buffer(&words), Arg::buffer(&writes), Arg::u32(1)]);
    let refused = launch(Shape::new(0, 32));
    assert!(matches!(refused, Err(GpuError::Call { lost: false, .. })), "{refused:?}");
    let refused = launch(Shape::new(1, 1 << 20));
    assert!(matches!(refused, Err(GpuError::Threads { .. })), "{refused:?}");
    stream.finish(LIMIT).unwrap();
}

#[test]
fn every_module_loads_with_its_kernels() {
    let (_one, device) = device!();
    for (module, entries) in [
        ("gamt", ["gamt_lookup_v4_paper_frozen", "gamt_persistent_v6_flat"].as_slice()),
        ("gale", &[]),
        ("sail", &[]),
        ("ceilings", &[]),
    ] {
        let module = Module::new(&device, module).unwrap();
        for entry in entries {
            assert_eq!(module.kernel(entry).unwrap().facts().local_bytes, 0, "{entry}");
        }
    }
}

#[test]
fn lookups_agree_by_copies_and_mapped_memory() {
    let (_one, device) = device!();
    let mut stream = Stream::new(&device, Priority::Usual).unwrap();
    let kernel = lookup(&device);
    let table = ByteTable::new(&device, &mut stream).unwrap();
    let all = keys(5000);
    let (mut out, mut back) = (
        Pinned::<u32>::new(&device, 5000, HostSide::Writes).unwrap(),
        Pinned::<u32>::new(&device, 5000, HostSide::Reads).unwrap(),
    );
    let device_keys = DeviceBuffer::<u32>::new(&device, 5000).unwrap();
    let device_raw = DeviceWords::new(&device, 5000).unwrap();
    for count in [0, 1, 3, 31, 32, 33, 4096, 4096, 5000, 2] {
        let (keys, wanted) = (&all[..count], answers(&all[..count]));
        let count_u32 = u32::try_from(count).unwrap();

        out.slice_mut().unwrap()[..count].copy_from_slice(keys);
        stream.upload(&device_keys, 0, &mut out, 0..count).unwrap();
        let mut args = table.args(Arg::buffer(&device_keys), Arg::buffer(&device_raw), count_u32);
        stream.launch(&kernel, SHAPE, &mut args).unwrap();
        stream.download(&mut back, 0..count, &device_raw, 0).unwrap();
        stream.finish(LIMIT).unwrap();
        assert_eq!(back.slice().unwrap()[..count], wanted, "copies, {count}");

        back.slice_mut().unwrap().fill(u32::MAX);
        let mut args = table.args(Arg::pinned(&mut out), Arg::pinned(&mut back), count_u32);
        stream.launch(&kernel, SHAPE, &mut args).unwrap();
        assert_eq!(out.slice_mut().unwrap_err(), GpuError::Busy);
        stream.finish(LIMIT).unwrap();
        assert_eq!(back.slice().unwrap()[..count], wanted, "mapped, {count}");
        assert!(back.slice().unwrap()[count..].iter().all(|word| *word == u32::MAX), "beyond the batch");
    }
}

#[test]
fn events_say_when_and_measure() {
    let (_one, device) = device!();
    if let Some(mock) = testing::driver().and_then(TestDriver::mock) {
        mock.set_delay_us(500);
    }
    let mut first = Stream::new(&device, Priority::Usual).unwrap();
    let mut second = Stream::new(&device, Priority::First).unwrap();
    let words = DeviceWords::new(&device, 1).unwrap();
    let (mut start, mut end) = (first.event(true).unwrap(), first.event(true).unwrap());
    for round in 1..50 {
        first.record(&mut start).unwrap();
        first.fill(&words, 0..1, round).unwrap();
        first.record(&mut end).unwrap();
        end.wait(LIMIT).unwrap();
        let mut read = [0];
        second.download_now(&mut read, &words, 0).unwrap();
        assert_eq!(read, [round], "the event completed too early");
        assert!(end.has_come().unwrap() && end.elapsed_us_since(&start).unwrap() >= 0.0);
    }
}

#[test]
fn memory_that_is_not_there_is_an_error_of_its_own() {
    let (_one, device) = device!();
    let too_much = usize::try_from(device.facts().memory_bytes.unwrap()).unwrap() / 4 + 1;
    let refused = DeviceWords::new(&device, too_much).map(drop);
    assert_eq!(refused, Err(GpuError::OutOfMemory { what: "device", bytes: too_much as u64 * 4 }));
    assert!(matches!(DeviceWords::new(&device, usize::MAX).map(drop), Err(GpuError::OutOfMemory { .. })));
    let before = device.free_bytes().unwrap();
    let some = DeviceWords::new(&device, 1 << 22).unwrap();
    assert!(device.free_bytes().unwrap() < before);
    drop(some);
    assert!(!device.is_lost());
    drop(device);
    nothing_is_left();
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let (_one, device) = device!();
    drop(device);
    assert!(matches!(Device::open(1000), Err(GpuError::NoDevice { wanted: 1000, .. })));
}

#[test]
fn an_illegal_address_loses_the_device_until_it_is_opened_anew() {
    // Not on a real device, for the sake of its other users.
    let Some((one, _mock)) = testing::exclusive_mock() else { return };
    let device = testing::device().unwrap();
    let mut stream = Stream::new(&device, Priority::Usual).unwrap();
    let mut event = stream.event(false).unwrap();
    let words = DeviceWords::new(&device, 4).unwrap();
    let mut memory = Pinned::<u32>::new(&device, 4, HostSide::Reads).unwrap();
    let writes = DeviceBuffer::<Write>::new(&device, 1).unwrap();
    let write = Module::new(&device, "gamt").unwrap().kernel("write_words").unwrap();
    stream.upload_now(&writes, 0, &[Write { at: 1 << 30, value: 1 }]).unwrap();
    stream.launch(&write, SHAPE, &mut [Arg::buffer(&words), Arg::buffer(&writes), Arg::u32(1)]).unwrap();
    let _enqueued = stream.download(&mut memory, 0..4, &words, 0);
    let _recorded = stream.record(&mut event);
    let error = stream.finish(LIMIT).unwrap_err();
    assert!(matches!(error, GpuError::Call { code: 700, lost: true, .. }), "{error:?}");
    assert!(device.is_lost() && error.is_lost());
    assert!(matches!(event.has_come(), Err(GpuError::Call { code: 700, lost: true, .. })));
    assert!(matches!(DeviceWords::new(&device, 4).map(drop), Err(GpuError::Call { code: 700, .. })));
    assert!(matches!(memory.slice(), Err(GpuError::Call { code: 700, .. })));
    drop((stream, event, words, memory, writes, write, device));
    nothing_is_left();
    let device = testing::device().unwrap();
    works(&device, &one).unwrap();
}

#[test]
fn work_that_does_not_end_is_given_up_and_its_memory_left_alone() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    let device = testing::device().unwrap();
    let limit = Duration::from_millis(20);
    let mut stream = Stream::new(&device, Priority::Usual).unwrap();
    let mut event = stream.event(false).unwrap();
    let words = DeviceWords::new(&device, 1 << 10).unwrap();
    let memory = Pinned::<u32>::new(&device, 1 << 10, HostSide::Reads).unwrap();
    mock.set_stalled(1);
    stream.fill(&words, 0..1 << 10, 1).unwrap();
    stream.record(&mut event).unwrap();
    assert!(!event.has_come().unwrap() && !stream.is_finished().unwrap());
    assert_eq!(event.wait(limit), Err(GpuError::Stalled { what: "a batch", limit_ms: 20 }));
    assert!(device.is_lost());
    assert!(matches!(stream.fill(&words, 0..1, 1), Err(GpuError::Stalled { .. })));
    drop((stream, event, words, memory, device));
    // No drop waited, so all the memory is still allocated.
    assert!(mock.memory_used() >= 1 << 12 && mock.host_used() >= 1 << 12);
    mock.set_stalled(0);
    mock.reset_device(0);
    nothing_is_left();
}

#[test]
fn threads_share_a_device() {
    let (_one, device) = device!();
    let kernel = lookup(&device);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut stream = Stream::new(&device, Priority::Usual).unwrap();
                let table = ByteTable::new(&device, &mut stream).unwrap();
                let mut out = Pinned::<u32>::new(&device, 500, HostSide::Writes).unwrap();
                let mut back = Pinned::<u32>::new(&device, 500, HostSide::Reads).unwrap();
                let keys = keys(500);
                for _ in 0..20 {
                    out.slice_mut().unwrap().copy_from_slice(&keys);
                    let mut args = table.args(Arg::pinned(&mut out), Arg::pinned(&mut back), 500);
                    stream.launch(&kernel, SHAPE, &mut args).unwrap();
                    stream.finish(LIMIT).unwrap();
                    assert_eq!(back.slice().unwrap(), answers(&keys));
                }
            });
        }
    });
    drop((kernel, device));
    nothing_is_left();
}

fn works(device: &Device, _one: &Exclusive) -> Result<(), GpuError> {
    let mut stream = Stream::new(device, Priority::Usual)?;
    let mut update = Stream::new(device, Priority::First)?;
    let (mut start, mut end) = (stream.event(true)?, stream.event(true)?);
    let table = ByteTable::new(device, &mut update)?;
    let module = Module::new(device, "gamt")?;
    let (kernel, write) = (module.kernel("gamt_lookup_v4_flat_live")?, module.kernel("write_words")?);
    kernel.blocks_multiprocessor_max(64)?;
    let mut sent = Pinned::<u32>::new(device, 64, HostSide::Writes)?;
    let mut raw = Pinned::<u32>::new(device, 64, HostSide::Reads)?;
    let writes = DeviceBuffer::<Write>::new(device, 1)?;
    let keys = keys(64);
    for count in [64, 64, 17] {
        stream.record(&mut start)?;
        sent.slice_mut()?[..count].copy_from_slice(&keys[..count]);
        let count_u32 = u32::try_from(count).unwrap();
        stream.launch(
            &kernel,
            SHAPE,
            &mut table.args(Arg::pinned(&mut sent), Arg::pinned(&mut raw), count_u32),
        )?;
        stream.record(&mut end)?;
        end.wait(LIMIT)?;
        assert_eq!(raw.slice()?[..count], answers(&keys[..count]));
        end.elapsed_us_since(&start)?;
        update.upload_now(&writes, 0, &[Write { at: 0, value: 0 }])?;
        update.launch(&write, SHAPE, &mut [Arg::buffer(&table.words), Arg::buffer(&writes), Arg::u32(1)])?;
        update.finish(LIMIT)?;
    }
    let mut out = Pinned::<u32>::new(device, 64, HostSide::Writes)?;
    let mut back = Pinned::<u32>::new(device, 64, HostSide::Reads)?;
    out.slice_mut()?.copy_from_slice(&keys);
    let mut args = table.args(Arg::pinned(&mut out), Arg::pinned(&mut back), 64);
    stream.launch(&kernel, SHAPE, &mut args)?;
    stream.finish(LIMIT)?;
    assert_eq!(back.slice()?, answers(&keys));
    let shared = Shared::<u32>::new(device, 64)?;
    shared.store(0, 1);
    stream.download(&mut back, 0..64, &table.words, 0)?;
    stream.finish(LIMIT)?;
    device.free_bytes().map(drop)
}

fn session(one: &Exclusive) -> Result<(), GpuError> {
    Device::open(0).and_then(|device| works(&device, one))
}

/// A fault gives an error, or nothing if a drop made the call; never a panic or a hang.
#[test]
fn a_fault_at_every_call_is_an_error_and_the_next_session_works() {
    let Some((one, mock)) = testing::exclusive_mock() else { return };
    let session = || session(&one);
    let calls = mock.calls_of(|| session().unwrap());
    assert!(calls.len() > 30, "{calls:?}");
    nothing_is_left();
    let (mut tried, mut errors, mut lost) = (0, 0, 0);
    for (name, count) in calls {
        // The number of polls varies.
        let count = if name.ends_with("Query") { 3 } else { count };
        for (code, index) in
            [1, 2, 304, 700, 999].into_iter().flat_map(|code| (0..count).map(move |index| (code, index)))
        {
            mock.fail_call(&name, index, code);
            tried += 1;
            if let Err(error) = session() {
                errors += 1;
                lost += u32::from(error.is_lost());
                assert!(!error.to_string().is_empty());
            }
            mock.never_fail();
            if name == "cuDevicePrimaryCtxRelease_v2" {
                mock.reset_device(0); // the context after its failed release
            }
            nothing_is_left();
            session().unwrap_or_else(|error| panic!("after {code} at {name}, {index}: {error}"));
        }
    }
    assert!(tried > 400 && errors > tried / 2 && errors < tried, "{errors} errors of {tried} faults");
    assert!(lost > tried / 4, "{lost} of {tried} lost the device");
}

#[test]
fn a_fault_of_every_operation_is_found_out_and_the_next_session_works() {
    let Some((one, mock)) = testing::exclusive_mock() else { return };
    let session = || session(&one);
    let before = mock.operations();
    session().unwrap();
    let operations = mock.operations() - before;
    assert!(operations > 15, "{operations} operations");
    for index in 0..operations {
        mock.fail_operation(mock.operations() + index, 719);
        let error = session().unwrap_err();
        assert!(matches!(error, GpuError::Call { code: 719, lost: true, .. }), "{index}: {error:?}");
        mock.never_fail();
        nothing_is_left();
        session().unwrap_or_else(|error| panic!("after operation {index}: {error}"));
    }
}
