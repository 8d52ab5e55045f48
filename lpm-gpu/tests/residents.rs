//! Limits of a GPU engine that differ between hosts. The mock varies them, so every test holds it exclusively.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use common::{Parameters, draw_keys, engine, random_rib, right};
use fib::oracle::OraclePair;
use fib::random::Seeded;
use fib::{EngineError, EngineReader, EngineWriter, IpPrefix, KeyBuffer, NextHopId, Prefix, Rib};
use lpm_gpu::cu::testing;
use lpm_gpu::cu::{Arg, Device, DeviceBuffer, DeviceWords, GpuError, Module, Priority, Shape, Stream};

struct LoadedEngine {
    writer: Box<dyn EngineWriter>,
    rib: Rib,
    dice: Seeded,
}

impl LoadedEngine {
    fn new(name: &str, parameters: Parameters<'_>) -> Self {
        let mut dice = Seeded::new(0, 5);
        let mut writer = engine(name, parameters).unwrap();
        let mut rib = random_rib(300, &mut dice);
        rib.commit_to(writer.as_mut()).unwrap();
        Self { writer, rib, dice }
    }

    fn reader(&self, slots: u16) -> Result<Box<dyn EngineReader>, EngineError> {
        self.writer.reader(slots, 64)
    }

    fn refusal(&self, slots: u16) -> String {
        match self.reader(slots) {
            Err(error @ EngineError::Reader { .. }) => error.to_string(),
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("a reader of {slots} slots was not refused"),
        }
    }

    fn check(&mut self, reader: &mut dyn EngineReader) {
        let oracle = OraclePair::from(&self.rib);
        for keys in draw_keys(&self.rib, 200, &mut self.dice) {
            self.check_keys(reader, &keys, &right(&keys, &oracle));
        }
    }

    fn check_keys(&self, reader: &mut dyn EngineReader, keys: &KeyBuffer, right: &[NextHopId]) {
        let mut answers = vec![NextHopId::MAX; keys.len()];
        reader.lookup(keys.keys(), &mut answers).unwrap();
        assert!(answers == right);
    }
}

const PERSISTENT: (&str, &str) = ("mode", "persistent");

#[test]
fn readers_beyond_the_connections_to_the_device_are_refused() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    mock.set_connections(8);
    let mut loaded = LoadedEngine::new("gamt", &[PERSISTENT, ("threads", "32"), ("blocks", "1")]);
    // Two kernels a reader, a stream of updates, and the memory pool's stream.
    let mut readers: Vec<_> = (0..3).map(|_| loaded.reader(2).unwrap()).collect();
    let refusal = loaded.refusal(2);
    assert_eq!(
        refusal,
        "engine gamt can have no more readers: persistent kernels need 10 connections to the device, 8 are available: set \
         CUDA_DEVICE_MAX_CONNECTIONS in the environment (8 if unset, 32 at most), or use fewer readers"
    );
    for reader in &mut readers {
        loaded.check(reader.as_mut());
    }
    readers.remove(1);
    let mut again = loaded.reader(2).unwrap();
    loaded.check(again.as_mut());
    loaded.refusal(2);
    mock.set_connections(32);
    readers.push(loaded.reader(2).unwrap());
    // In other modes no kernel stays on a connection.
    mock.set_connections(8);
    let copies = LoadedEngine::new("gamt", &[("mode", "copy")]);
    let _readers: Vec<_> = (0..8).map(|_| copies.reader(2).unwrap()).collect();
}

#[test]
fn auto_measures_once_and_readers_without_room_for_a_persistent_kernel_have_another_mode() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    mock.set_connections(6);
    let mut loaded = LoadedEngine::new("gamt", &[("mode", "auto")]);
    let launches = |size: usize, readers: &mut Vec<_>| {
        let calls = mock.calls_of(|| readers.push(loaded.writer.reader(2, size).unwrap()));
        calls.iter().find(|(call, _)| call == "cuLaunchKernel").map_or(0, |(_, count)| *count)
    };
    let mut readers = Vec::new();
    assert!(launches(64, &mut readers) > 6, "three modes and two families are measured");
    assert_eq!(launches(64, &mut readers), 0, "known");
    assert!(launches(200, &mut readers) > 4, "another size");
    (0..5).for_each(|_| assert_eq!(launches(200, &mut readers), 0));
    for reader in &mut readers {
        loaded.check(reader.as_mut());
    }
    // Not even one persistent kernel has a connection.
    drop((readers, loaded));
    mock.set_connections(3);
    let mut few = LoadedEngine::new("gamt", &[("mode", "auto")]);
    let mut reader = few.reader(2).unwrap();
    few.check(reader.as_mut());
    let chosen = few.writer.stats().details.get("mode_2_slots_of_64").unwrap();
    assert!(chosen < 2.0, "mode {chosen}");
}

#[test]
fn blocks_of_all_readers_fit_the_device_at_once_or_the_reader_is_refused() {
    let Some((_one, _mock)) = testing::exclusive_mock() else { return };
    // Two blocks of 1,024 threads fit on each of the mock's 132 multiprocessors: half of that stays free, so 132 blocks may stay.
    let parameters = [PERSISTENT, ("threads", "1024")];
    let mut loaded = LoadedEngine::new("gamt", &parameters);
    let mut first = loaded.reader(16).unwrap(); // 4 blocks a slot, 64 a family
    let refusal = loaded.refusal(16);
    assert_eq!(
        refusal,
        "engine gamt can have no more readers: the persistent kernels of a reader need 32 blocks of 1024 threads at once, 4 of 132 \
         are left on this device: use fewer readers, fewer slots or smaller blocks"
    );
    let mut second = loaded.reader(2).unwrap(); // only one block a slot is left
    loaded.check(first.as_mut());
    loaded.check(second.as_mut());
    assert!(loaded.refusal(1).contains("need 2 blocks of 1024 threads at once, 0 of 132"));
    // Another engine of the process has the same device.
    let mut other = LoadedEngine::new("gamt", &parameters);
    assert!(other.refusal(1).contains("0 of 132 are left"));
    // A dropped reader returns its room, and a refused one takes none.
    drop(first);
    let mut third = other.reader(16).unwrap();
    other.check(third.as_mut());
    loaded.check(second.as_mut());
    drop((second, third));
    let mut all = loaded.reader(16).unwrap();
    loaded.check(all.as_mut());
}

#[test]
fn kernels_that_end_find_room_beside_persistent_ones_or_are_refused() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    mock.set_connections(32);
    // Eight blocks of 256 threads fit on each of 132 multiprocessors; 7 readers take 2 * 16 * 4 of them each, 112 multiprocessors in all.
    let mut loaded = LoadedEngine::new("gamt", &[PERSISTENT]);
    let mut readers: Vec<_> = (0..7).map(|_| loaded.reader(16).unwrap()).collect();
    loaded.check(readers[0].as_mut());
    // Blocks of 1,024 threads need half a multiprocessor, which may be left on none.
    let mut large = LoadedEngine::new("gamt", &[("mode", "copy"), ("threads", "1024")]);
    let refusal = large.refusal(2);
    assert_eq!(
        refusal,
        "engine gamt can have no more readers: persistent kernels leave no room for a block of 1024 threads of \
         gamt_lookup_v4_flat_live: use fewer readers with persistent kernels, or smaller blocks"
    );
    let updates = engine("gale", &[("update-threads", "1024")]).err();
    assert!(matches!(updates, Some(EngineError::Reader { .. })), "{updates:?}");
    let mut small = LoadedEngine::new("gamt", &[("mode", "mapped")]);
    let mut beside = small.reader(2).unwrap();
    small.check(beside.as_mut());
    // 4 * 128 blocks leave half of each of 132 multiprocessors.
    readers.truncate(4);
    let mut copying = large.reader(2).unwrap();
    large.check(copying.as_mut());
    // The room stays free as long as the engine may launch: 528 blocks may stay.
    assert!(
        loaded.refusal(16).contains("need 32 blocks of 256 threads at once, 16 of 924"),
        "{}",
        loaded.refusal(16)
    );
    drop(copying);
    loaded.refusal(16);
    drop(large);
    readers.push(loaded.reader(16).unwrap());
    for reader in &mut readers {
        loaded.check(reader.as_mut());
    }
}

#[test]
fn blocks_have_no_more_threads_than_registers_allow() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    mock.set_threads_block_max(512);
    for mode in ["copy", "mapped", "persistent"] {
        match engine("gamt", &[("mode", mode), ("threads", "1024")]).err() {
            Some(EngineError::Parameter { parameter: "threads", value, .. }) => assert_eq!(value, "1024"),
            other => panic!("{mode}: {other:?}"),
        }
        let mut fits = LoadedEngine::new("gamt", &[("mode", mode), ("threads", "512")]);
        let mut reader = fits.reader(2).unwrap();
        fits.check(reader.as_mut());
    }
    // The kernel of operations has up to 1,024 threads.
    let mut gale = LoadedEngine::new("gale", &[]);
    gale.rib.set(IpPrefix::V4(Prefix::truncating(0x0a01_0203, 32)), NextHopId::new(9).unwrap());
    gale.rib.commit_to(gale.writer.as_mut()).unwrap();
    let mut reader = gale.reader(2).unwrap();
    gale.check(reader.as_mut());
    assert!(gale.writer.stats().details.get("device_ops").unwrap() > 0.0);
    // The launch fails before the driver call.
    let device = Device::open(0).unwrap();
    let write = Module::new(&device, "gamt").unwrap().kernel("write_words").unwrap();
    assert_eq!(write.facts().threads_block_max, 512);
    let (words, writes) = (
        DeviceWords::new(&device, 8).unwrap(),
        DeviceBuffer::<lpm_gpu::host::Write>::new(&device, 8).unwrap(),
    );
    let mut stream = Stream::new(&device, Priority::Usual).unwrap();
    let mut launch = |threads| {
        let args = &mut [Arg::buffer(&words), Arg::buffer(&writes), Arg::u32(0)];
        stream.launch(&write, Shape::new(1, threads), args)
    };
    assert!(matches!(launch(544), Err(GpuError::Threads { wanted: 544, max: 512, .. })));
    launch(512).unwrap();
}

/// The driver's fill kernel and its buffer for pageable memory may wait for a persistent kernel, so no engine uses either.
#[test]
fn tables_go_up_without_fills_and_pageable_copies() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    for (name, mode) in
        [("gamt", "persistent"), ("gamt", "copy"), ("gale", "persistent"), ("sail-gpu", "persistent")]
    {
        let before = mock.pageable_copies();
        let calls = mock.calls_of(|| {
            let mut loaded = LoadedEngine::new(name, &[("mode", mode), ("headroom", "0")]);
            let mut reader = loaded.reader(2).unwrap();
            loaded.check(reader.as_mut());
            let more = random_rib(2000, &mut loaded.dice);
            more.v4.iter().for_each(|(prefix, next_hop)| _ = loaded.rib.v4.set(prefix, next_hop));
            more.v6.iter().for_each(|(prefix, next_hop)| _ = loaded.rib.v6.set(prefix, next_hop));
            loaded.rib.commit_to(loaded.writer.as_mut()).unwrap();
            assert!(loaded.writer.stats().details.get("swaps").unwrap() > 0.0, "{name}: nothing was rebuilt");
            loaded.check(reader.as_mut());
        });
        assert_eq!(mock.pageable_copies(), before, "{name}, {mode}");
        let fills = calls.iter().find(|(call, _)| call.starts_with("cuMemset"));
        assert_eq!(fills, None, "{name}, {mode}");
    }
}

/// The driver waits for running kernels before it loads or unloads a module, even a loaded one.
#[test]
fn nothing_is_loaded_beside_persistent_kernels() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    let mut loaded = LoadedEngine::new("gamt", &[PERSISTENT]);
    let mut reader = loaded.reader(2).unwrap();
    loaded.check(reader.as_mut());
    let calls = mock.calls_of(|| {
        for name in ["gamt", "gale", "sail-gpu"] {
            let mut other = LoadedEngine::new(name, &[PERSISTENT]);
            let mut reader = other.reader(2).unwrap();
            other.check(reader.as_mut());
        }
    });
    assert!(calls.iter().any(|(call, _)| call == "cuModuleGetFunction"), "{calls:?}");
    assert!(calls.iter().all(|(call, _)| !call.starts_with("cuModuleLoad")), "{calls:?}");
    loaded.check(reader.as_mut());
}

/// The driver waits for running kernels when it creates a new lot of streams, so all are created before.
#[test]
fn readers_beside_persistent_kernels_have_streams_or_are_refused() {
    let Some((_one, _)) = testing::exclusive_mock() else { return };
    let mut loaded = LoadedEngine::new("gamt", &[PERSISTENT]);
    let mut resident = loaded.reader(2).unwrap();
    loaded.check(resident.as_mut());
    let mut copying = LoadedEngine::new("gamt", &[("mode", "copy"), ("streams", "24")]);
    let mut readers = Vec::new();
    let refused = loop {
        match copying.reader(24) {
            Ok(mut reader) => {
                copying.check(reader.as_mut());
                readers.push(reader);
            }
            Err(error) => break error.to_string(),
        }
    };
    assert!(refused.contains("all 256 streams available to persistent kernels are in use"), "{refused}");
    assert_eq!(readers.len(), 10, "24 streams each; four serve two kernels and the updates of two engines");
    loaded.check(resident.as_mut());
    // The streams of dropped readers serve the next ones.
    readers.truncate(5);
    copying.reader(24).unwrap();
    loaded.check(resident.as_mut());
    drop((resident, loaded));
    readers.extend((0..8).map(|_| copying.reader(24).unwrap()));
    readers.iter_mut().for_each(|reader| copying.check(reader.as_mut()));
}

/// Section 4.4: keys to the device, lookup, answers back. Of an IPv6 key the device gets the first 64 bits.
#[test]
fn a_batch_is_a_copy_a_kernel_and_a_copy() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    let mut loaded = LoadedEngine::new("gamt", &[("mode", "copy")]);
    let mut reader = loaded.reader(2).unwrap();
    for (keys, key_bytes) in draw_keys(&loaded.rib, 50, &mut loaded.dice).iter().zip([4, 8]) {
        let right = right(keys, &OraclePair::from(&loaded.rib));
        loaded.check_keys(reader.as_mut(), keys, &right);
        let before = mock.bytes_copied_in();
        let calls = mock.calls_of(|| loaded.check_keys(reader.as_mut(), keys, &right));
        let steps = ["cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuMemcpyDtoHAsync_v2"];
        let work: Vec<_> = calls
            .iter()
            .filter(|(call, _)| call.starts_with("cuMemcpy") || call.starts_with("cuLaunch"))
            .collect();
        assert_eq!(
            work.iter().map(|(call, count)| (call.as_str(), *count)).collect::<Vec<_>>(),
            steps.map(|step| (step, 1))
        );
        assert_eq!(mock.bytes_copied_in() - before, key_bytes * keys.len() as u64);
    }
}

/// Section 4.3: two tables, one for lookups and one for the rebuild.
#[test]
fn a_table_that_is_built_anew_goes_up_beside_the_one_in_service() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    let mut loaded = LoadedEngine::new("gamt", &[("mode", "copy"), ("headroom", "0")]);
    let mut reader = loaded.reader(2).unwrap();
    loaded.check(reader.as_mut());
    let more = random_rib(6000, &mut loaded.dice);
    let (mut used, mut swaps) = (Vec::new(), Vec::new());
    for round in 1..=4 {
        // Changes enough next hops for a rebuild of the same size.
        for (prefix, number) in more.v4.prefixes().zip(1_u32..) {
            loaded.rib.v4.set(prefix, NextHopId::from_answer(round << 20 | number));
        }
        loaded.rib.commit_to(loaded.writer.as_mut()).unwrap();
        used.push(mock.memory_used());
        swaps.push(loaded.writer.stats().details.get("swaps").unwrap());
        loaded.check(reader.as_mut());
    }
    assert!(swaps.windows(2).all(|pair| pair[1] > pair[0]), "{swaps:?}");
    // The first rebuild allocates the second table; then the two swap.
    assert!(used[1] > used[0] && used[2] == used[1] && used[3] == used[1], "{used:?}");
}

#[test]
fn an_engine_runs_on_the_device_it_is_told() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    mock.set_devices(2);
    for (name, mode) in [("gamt", "copy"), ("gamt", "mapped"), ("gamt", "persistent"), ("gale", "copy")] {
        match engine(name, &[("device", "2")]).err() {
            Some(EngineError::NoDevice { reason, .. }) => {
                assert_eq!(reason, "there is no device 2, the driver sees 2")
            }
            other => panic!("{other:?}"),
        }
        let mut first = LoadedEngine::new(name, &[("mode", mode)]);
        let mut second = LoadedEngine::new(name, &[("mode", mode), ("device", "1")]);
        let (mut on_first, mut on_second) = (first.reader(2).unwrap(), second.reader(2).unwrap());
        first.check(on_first.as_mut());
        second.check(on_second.as_mut());
        // The loss of one device leaves the other usable.
        mock.reset_device(0);
        assert!(on_first.lookup(fib::Keys::V4(&[1]), &mut [NextHopId::NONE]).is_err(), "{name}, {mode}");
        second.rib.set(IpPrefix::V4(Prefix::truncating(0x0a01_0203, 30)), NextHopId::new(9).unwrap());
        second.rib.commit_to(second.writer.as_mut()).unwrap();
        second.check(on_second.as_mut());
    }
    let device = Device::open(1).unwrap();
    assert_eq!((device.facts().index, device.facts().name.as_str()), (1, "mockcuda interpreter 1"));
}

#[test]
fn a_property_that_only_informs_may_be_unknown() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    let calls = mock.calls_of(|| drop(Device::open(0).unwrap()));
    let attributes = calls.iter().find(|(name, _)| name == "cuDeviceGetAttribute").unwrap().1;
    let mut fatal = 0;
    for index in 0..attributes {
        mock.fail_call("cuDeviceGetAttribute", index, 1);
        match Device::open(0) {
            Ok(device) => {
                let facts = device.facts();
                let numbers =
                    [facts.copy_engines, facts.clock_khz, facts.memory_clock_khz, facts.memory_bus_bits];
                let sizes = [facts.l2_bytes, facts.l2_persisting_bytes_max];
                let unknown = numbers.iter().filter(|number| number.is_none()).count()
                    + usize::from(facts.pci_address.is_none())
                    + usize::from(facts.registers_read_only.is_none())
                    + sizes.iter().filter(|size| size.is_none()).count();
                assert_eq!(unknown, 1, "attribute {index}: {facts:?}");
            }
            Err(GpuError::Call { call: "cuDeviceGetAttribute", .. }) => fatal += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(fatal, 4, "capability, in two parts, multiprocessors and memory pools");
    mock.fail_call("cuDeviceGetName", 0, 1);
    assert_eq!(Device::open(0).unwrap().facts().name, "unnamed device 0");
    assert_eq!(Device::open(0).unwrap().facts().pci_address.as_deref(), Some("10ff:c1:1f.0"));
    mock.fail_call("cuDeviceTotalMem_v2", 0, 1);
    assert_eq!(Device::open(0).unwrap().facts().memory_bytes, None);
}
