//! Dropped memory returns to the driver, also with persistent kernels, without waiting, and never before its last use is done.

#![expect(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

mod common;

use common::{collect, engine, id};
use fib::random::Seeded;
use fib::{EngineWriter, Keys, NextHopId, Prefix, Rib, Route, Routes, SlotId};
use lpm_gpu::cu::testing::{self, Mock};
use lpm_gpu::cu::{
    Arg, Device, DeviceWords, Kernel, Module, Pinned, Priority, Resident, Shape, Shared, Stream,
};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// Waits until `used` is at most `bytes`. Each drop in the loop frees earlier memory whose last use is done.
fn comes_down_to(device: &Device, used: impl Fn() -> u64, bytes: u64) {
    let start = Instant::now();
    while used() > bytes {
        assert!(start.elapsed() < LIMIT, "{} bytes are still allocated, wanted {bytes}", used());
        drop(DeviceWords::new(device, 1).unwrap());
        std::thread::yield_now();
    }
}

/// A persistent kernel with one slot of one block (kernels/common.cuh).
struct RunningKernel {
    resident: Resident,
    control: Shared<u64>,
    done: Shared<u32>,
}

impl RunningKernel {
    fn launch(device: &Device, kernel: &Kernel) -> Self {
        let control = Shared::<u64>::new(device, 8).unwrap();
        let done = Shared::<u32>::new(device, 1).unwrap();
        let stop = {
            let held = (control.clone(), done.clone());
            Box::new(move || held.0.store(0, u64::from(u32::MAX)))
        };
        let stream = Stream::new(device, Priority::Usual).unwrap();
        let mut args = [Arg::shared(&control), Arg::shared(&done), Arg::u32(1)];
        let resident = Resident::launch(stream, kernel, Shape::new(1, 32), &mut args, stop).unwrap();
        Self { resident, control, done }
    }
}

fn persistent(device: &Device) -> Kernel {
    Module::new(device, "gamt").unwrap().kernel("gamt_persistent_v4_flat").unwrap()
}

#[test]
fn a_drop_does_not_wait_for_a_device_that_stands_still() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    let device = Device::open(0).unwrap();
    let mut stream = Stream::new(&device, Priority::Usual).unwrap();
    let (used, unused) =
        (DeviceWords::new(&device, 1 << 16).unwrap(), DeviceWords::new(&device, 1 << 10).unwrap());
    let locked = Pinned::<u32>::new(&device, 1 << 10, lpm_gpu::cu::HostSide::Reads).unwrap();
    let (device_bytes, host_bytes) = (mock.memory_used(), mock.host_used());
    mock.set_stalled(1);
    stream.fill(&used, 0..1 << 16, 1).unwrap();
    let (done, over) = std::sync::mpsc::channel();
    let dropping = std::thread::spawn(move || {
        drop((used, unused, locked));
        done.send(()).unwrap();
    });
    let waited = over.recv_timeout(Duration::from_secs(5));
    let kept = (mock.memory_used(), mock.host_used());
    mock.set_stalled(0);
    assert_eq!(waited, Ok(()), "a drop waits for a stalled device");
    assert!(
        kept.0 >= 4 << 16 && kept.0 <= device_bytes && kept.1 == host_bytes,
        "freed while in use: {kept:?}"
    );
    dropping.join().unwrap();
    stream.finish(LIMIT).unwrap();
    comes_down_to(&device, || mock.memory_used(), 0);
    comes_down_to(&device, || mock.host_used(), 0);
    assert!(!device.is_lost());
}

#[test]
fn a_kernel_that_stays_may_start_while_something_is_dropped() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    let device = Device::open(0).unwrap();
    let kernel = persistent(&device);
    let mut busy = Stream::new(&device, Priority::Usual).unwrap();
    let (words, dropped) = (DeviceWords::new(&device, 64).unwrap(), DeviceWords::new(&device, 64).unwrap());
    mock.set_stalled(1);
    busy.fill(&words, 0..64, 1).unwrap();
    let (done, over) = std::sync::mpsc::channel();
    let dropping = std::thread::spawn(move || {
        drop(dropped);
        done.send(()).unwrap();
    });
    std::thread::sleep(Duration::from_millis(20)); // the drop has started, and waits if it waits at all
    let mut stays = RunningKernel::launch(&device, &kernel);
    mock.set_stalled(0);
    let waited = over.recv_timeout(Duration::from_secs(5));
    stays.resident.stop(LIMIT).unwrap();
    dropping.join().unwrap();
    assert_eq!(waited, Ok(()), "a drop waits for the persistent kernel");
    busy.finish(LIMIT).unwrap();
    drop((stays, words, busy));
    comes_down_to(&device, || mock.memory_used(), 0);
}

#[test]
fn memory_comes_back_while_a_kernel_stays_but_for_its_own() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    let device = Device::open(0).unwrap();
    let kernel = persistent(&device);
    let RunningKernel { mut resident, control, done } = RunningKernel::launch(&device, &kernel);
    for _ in 0..50 {
        drop(DeviceWords::new(&device, 1 << 20).unwrap());
        comes_down_to(&device, || mock.memory_used(), 0);
    }
    // Page-locked memory is freed later, and reused meanwhile.
    let before = mock.host_used();
    for _ in 0..50 {
        drop(Shared::<u32>::new(&device, 1 << 16).unwrap());
    }
    assert!(mock.host_used() <= before + (4 << 16), "{} bytes after {before}", mock.host_used());
    assert!(resident.is_running().unwrap());
    drop((control, done));
    assert!(
        resident.is_running().unwrap() && mock.host_used() > 0,
        "the kernel's own memory is freed while it runs"
    );
    resident.stop(LIMIT).unwrap();
    drop(resident);
    comes_down_to(&device, || mock.host_used(), 0);
}

fn table(count: u32, dice: &mut Seeded) -> Routes {
    let mut delta = Routes::new();
    for at in 0..count {
        let v4 = Prefix::truncating(at << 12 | dice.below(1 << 12) as u32, 28);
        let v6 = Prefix::truncating(u128::from(at) << 90 | 0x2001 << 112, 56);
        delta.v4.push(Route { prefix: v4, next_hop: id(dice) });
        delta.v6.push(Route { prefix: v6, next_hop: id(dice) });
    }
    delta
}

fn peak_of(mock: Mock, parameters: &[(&str, &str)], rounds: usize) -> (u64, u64) {
    let mut writer = engine("gamt", parameters).unwrap();
    let mut reader = writer.reader(2, 64).unwrap();
    let (mut dice, mut rib) = (Seeded::new(0, 3), Rib::new());
    let mut apply = |writer: &mut dyn EngineWriter, routes: &Routes| {
        rib.announce(routes);
        rib.commit_to(writer).unwrap();
    };
    let (mut first, mut last) = (0, 0);
    for round in 0..rounds {
        // A large table, then one of a hundredth: neither fits in the other's memory.
        let mut delta = table(3000, &mut dice);
        apply(writer.as_mut(), &delta);
        let keys = [Keys::V4(&[1, 2, 3]), Keys::V6 { hi: &[1, 2], lo: &[0, 0] }];
        (0..).zip(keys).for_each(|(slot, keys)| reader.submit(SlotId(slot), keys).unwrap());
        for (slot, keys) in (0..).zip(keys) {
            collect(reader.as_mut(), slot, keys).unwrap();
        }
        delta.v4.iter_mut().for_each(|change| change.next_hop = NextHopId::NONE);
        delta.v6.iter_mut().for_each(|change| change.next_hop = NextHopId::NONE);
        apply(writer.as_mut(), &delta);
        apply(writer.as_mut(), &table(20 + round as u32, &mut dice));
        last = mock.memory_used();
        if round == 1 {
            first = last;
        }
    }
    let swaps = writer.stats().details.get("swaps").unwrap();
    assert!(swaps >= 4.0 * rounds as f64, "{swaps} swaps: nothing was rebuilt");
    (first, last)
}

#[test]
fn tables_built_anew_for_ever_take_no_more_memory_than_a_few() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    for mode in ["copy", "mapped", "persistent"] {
        let (first, last) = peak_of(mock, &[("mode", mode), ("frozen", "1"), ("headroom", "0")], 12);
        assert!(last < 2 * first, "mode {mode}: {first} bytes after two rounds, {last} after twelve");
    }
}

/// Without memory pools a persistent kernel would prevent frees: the mode is refused; all others work.
#[test]
fn a_device_without_memory_pools_serves_every_mode_but_persistent() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    mock.set_no_pools(1);
    for mode in ["copy", "mapped", "auto"] {
        let (first, last) = peak_of(mock, &[("mode", mode), ("frozen", "1"), ("headroom", "0")], 8);
        assert!(last < 2 * first, "mode {mode}: {first} bytes after two rounds, {last} after eight");
    }
    let refused = engine("gamt", &[("mode", "persistent")]).map(drop).unwrap_err().to_string();
    assert!(refused.contains("mode = persistent") && refused.contains("memory pools"), "{refused}");
}
