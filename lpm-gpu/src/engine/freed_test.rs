//! No lookup reads an unlinked node once it may be written again: the mock driver counts reads of words marked as freed. The
//! test finds these words independently of the table: a copy of the device's words follows the steps, and a walk from the
//! root finds the reachable words. Words reachable only in generations that are over are free.

use crate::cu::testing::{self, Mock, TestDriver};
use crate::engine::{GAMT, GpuEngine, HostTables, LaunchPlan, Modes};
use crate::host::{Answers, Due, HostTable, Image, KernelNames, UpdateStep};
use crate::testing::LoadedTable;
use fib::random::SplitMix64;
use fib::{
    Change, EngineError, EngineOptions, EngineReader, EngineWriter, Key, KeyBuffer, Keys, NextHopId, Prefix,
    Rib, RibTable, Route, Routes, SlotId,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct FreedWatch {
    address: u64,
    table: Option<LoadedTable>,
    /// For each word, the last update whose table reached it; 0 for never, or for freed words.
    led_to: Vec<u64>,
    last: u64,
    freed: u64,
}

impl FreedWatch {
    fn update(&mut self, update: u64) {
        self.last = update;
        let reachable = self.table.iter().flat_map(LoadedTable::reachable);
        self.led_to
            .iter_mut()
            .zip(reachable)
            .filter(|(_, reached)| *reached)
            .for_each(|(led_to, _)| *led_to = update);
    }

    /// Marks the words that only tables before update `over` reached as freed.
    fn reclaim(&mut self, over: u64, mock: Mock) {
        for (at, led_to) in (0_u64..).zip(&mut self.led_to) {
            if (1..over).contains(led_to) {
                *led_to = 0;
                if self.address != 0 {
                    mock.mark_freed(self.address + 4 * at, 1);
                    self.freed += 1;
                }
            }
        }
    }
}

struct WatchedTable<K: Key> {
    table: Box<dyn HostTable<K>>,
    watch: Arc<Mutex<FreedWatch>>,
    mock: Mock,
}

impl<K: Key> HostTable<K> for WatchedTable<K> {
    fn limit(&mut self, words_max: usize) {
        self.table.limit(words_max);
    }

    fn early_words(&self) -> Option<u64> {
        self.table.early_words()
    }

    fn put_off_rebuilds(&mut self, is_put_off: bool) {
        self.table.put_off_rebuilds(is_put_off);
    }

    fn apply(&mut self, changes: &[Change<K>], routes: &RibTable<K>) -> Result<Due, EngineError> {
        self.table.apply(changes, routes)
    }

    fn take_back(&mut self, changes: &[Change<K>], routes: &RibTable<K>) -> Result<Due, EngineError> {
        self.table.take_back(changes, routes)
    }

    fn rebuild(&mut self) -> Result<(), EngineError> {
        self.table.rebuild()
    }

    fn take_steps(&mut self, update: u64, routes: &RibTable<K>) -> Vec<UpdateStep> {
        let steps = self.table.take_steps(update, routes);
        let mut watch = self.watch.lock().unwrap();
        if let Some(table) = &mut watch.table {
            for step in &steps {
                let UpdateStep::Writes(writes) = step else { panic!("GAMT has writes only") };
                writes.iter().for_each(|write| table.words[write.at as usize] = write.value);
            }
            watch.update(update);
        }
        steps
    }

    fn reclaim(&mut self, update: u64) {
        self.watch.lock().unwrap().reclaim(update, self.mock);
        self.table.reclaim(update);
    }

    fn image(&self, routes: &RibTable<K>) -> Image<'_> {
        let image = self.table.image(routes);
        let mut watch = self.watch.lock().unwrap();
        watch.table = Some(LoadedTable::new(&*self.table, routes));
        watch.led_to = vec![0; image.words];
        watch.address = 0;
        let last = watch.last;
        watch.update(last);
        image
    }

    fn kernels(&self) -> KernelNames {
        self.table.kernels()
    }

    fn answers(&self) -> Arc<dyn Answers<K>> {
        self.table.answers()
    }

    fn routes(&self) -> u64 {
        self.table.routes()
    }

    fn host_bytes(&self) -> u64 {
        self.table.host_bytes()
    }

    fn details(&self) -> fib::Details {
        self.table.details()
    }
}

struct FreedRig {
    engine: GpuEngine,
    rib: Rib,
    watches: [Arc<Mutex<FreedWatch>>; 2],
    mock: Mock,
}

impl FreedRig {
    fn new(parameters: &[(&str, &str)]) -> Option<Self> {
        let Some(TestDriver::Mock(mock)) = testing::driver() else {
            eprintln!("SKIPPED: only the mock driver knows which words were read");
            return None;
        };
        let options = EngineOptions::with_parameters(parameters);
        let params = crate::engine::GpuParams::from_options(&options).unwrap();
        let tables = HostTables::new(GAMT, &params).unwrap();
        let watches: [Arc<Mutex<FreedWatch>>; 2] = Default::default();
        let [v4, v6] = watches.clone();
        let host = HostTables {
            v4: Box::new(WatchedTable { table: tables.v4, watch: v4, mock }),
            v6: Box::new(WatchedTable { table: tables.v6, watch: v6, mock }),
        };
        let gpu = crate::engine::Gpu::open(GAMT, 0).unwrap();
        let plan = LaunchPlan::new(&params, gpu.device.facts().multiprocessors);
        let engine =
            GpuEngine::assemble(GAMT, params, host, gpu, (plan, Modes::in_order(&[plan.mode]))).unwrap();
        Some(Self { engine, rib: Rib::new(), watches, mock })
    }

    fn apply(&mut self, routes: &Routes) {
        self.rib.announce(routes);
        self.rib.commit_to(&mut self.engine).unwrap();
        let tables = [&self.engine.v4.current, &self.engine.v6.current];
        for (watch, table) in self.watches.iter().zip(tables) {
            watch.lock().unwrap().address = table.words.address();
        }
    }

    fn freed(&self) -> u64 {
        self.watches.iter().map(|watch| watch.lock().unwrap().freed).sum()
    }
}

/// Keys and prefixes are in few places, so that nodes are made and unlinked.
const PLACES: u64 = 24;

fn address(dice: &mut SplitMix64) -> u64 {
    let place = dice.u64() % PLACES;
    let noise = dice.u64() >> (14 + dice.u64() % 40);
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ noise) & !(7 << 61) | 1 << 61
}

fn delta(
    dice: &mut SplitMix64,
    installed: &mut VecDeque<(Prefix<u32>, Prefix<u128>)>,
    changes: usize,
) -> Routes {
    let mut delta = Routes::new();
    for _ in 0..changes {
        let len = u8::try_from(dice.u64() % 12).unwrap_or(0);
        let v4 = Prefix::truncating((address(dice) >> 32) as u32, 21 + len);
        let v6 = Prefix::truncating(u128::from(address(dice)) << 64, 40 + 2 * len);
        if installed.iter().any(|(one, two)| *one == v4 || *two == v6) {
            continue;
        }
        installed.push_back((v4, v6));
        let next_hop = NextHopId::from_answer(u32::try_from(1 + dice.u64() % 1000).unwrap_or(1));
        delta.v4.push(Route { prefix: v4, next_hop });
        delta.v6.push(Route { prefix: v6, next_hop });
    }
    while installed.len() > 150 {
        if let Some((v4, v6)) = installed.pop_front() {
            delta.v4.push(Route { prefix: v4, next_hop: NextHopId::NONE });
            delta.v6.push(Route { prefix: v6, next_hop: NextHopId::NONE });
        }
    }
    delta
}

#[derive(Default)]
struct Signals {
    /// Ends the readers; set when the writer ends, also by a panic.
    stop: AtomicBool,
    batches: AtomicU64,
}

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

struct Stop<'a>(&'a Signals);

/// Keys of a batch: enough that its lookup overlaps an update.
const BATCH: usize = 1024;

fn look_up(mut reader: Box<dyn EngineReader>, seed: u64, signals: &Signals) {
    let _others = Stop(signals); // if this thread panics
    let mut dice = SplitMix64(seed);
    let slots = reader.slots();
    let mut flying: Vec<Option<KeyBuffer>> = vec![None; slots.into()];
    for turn in 0_u64.. {
        let slot = SlotId(u16::try_from(turn % u64::from(slots)).unwrap_or(0));
        if let Some(keys) = flying[usize::from(slot.0)].take() {
            while reader.collect(slot, keys.keys()).map(|answers| answers.unwrap().len()).is_pending() {
                std::thread::yield_now();
            }
            signals.batches.fetch_add(1, Ordering::Relaxed);
        }
        if signals.stop.load(Ordering::Relaxed) {
            return;
        }
        let hi: Vec<u64> = (0..BATCH).map(|_| address(&mut dice)).collect();
        let v4: Vec<u32> = hi.iter().map(|key| (key >> 32) as u32).collect();
        let keys: KeyBuffer = if turn.is_multiple_of(2) { v4.into() } else { (hi.clone(), hi).into() };
        reader.submit(slot, keys.keys()).unwrap();
        flying[usize::from(slot.0)] = Some(keys);
    }
}

fn write(rig: &mut FreedRig, signals: &Signals) {
    let _readers = Stop(signals);
    let (mut dice, mut installed) = (SplitMix64(99), VecDeque::new());
    for turn in 0..300 {
        let delta = delta(&mut dice, &mut installed, if turn == 0 { 150 } else { 6 });
        rig.apply(&delta);
        let seen = signals.batches.load(Ordering::Relaxed);
        let wanted = if turn % 8 == 0 { 15 } else { 0 };
        while signals.batches.load(Ordering::Relaxed) < seen + wanted && !signals.stop.load(Ordering::Relaxed)
        {
            std::thread::yield_now();
        }
    }
}

#[test]
fn what_was_freed_is_never_read() {
    for parameters in [
        &[("headroom", "400")][..],
        &[("headroom", "400"), ("levels", "12"), ("levels6", "25"), ("next-hops", "apart")][..],
        &[("headroom", "0"), ("mode", "persistent")][..],
        &[("headroom", "50"), ("mode", "mapped")][..],
    ] {
        let _exclusive = testing::exclusive();
        let Some(mut rig) = FreedRig::new(parameters) else { return };
        let before = rig.mock.violations();
        rig.mock.set_delay_us(200);
        let signals = Signals::default();
        let readers: Vec<_> = (0..2).map(|_| rig.engine.reader(5, BATCH).unwrap()).collect();
        std::thread::scope(|scope| {
            for (seed, reader) in (1..).zip(readers) {
                let signals = &signals;
                scope.spawn(move || look_up(reader, seed, signals));
            }
            write(&mut rig, &signals);
        });
        assert!(rig.freed() > 0, "{parameters:?}: nothing was freed, so the test proves nothing");
        assert_eq!(
            rig.mock.violations(),
            before,
            "{parameters:?}: freed words were read; {} freed",
            rig.freed()
        );
    }
}

#[test]
fn a_read_of_what_was_freed_is_found() {
    let _exclusive = testing::exclusive();
    let Some(mut rig) = FreedRig::new(&[]) else { return };
    rig.apply(&delta(&mut SplitMix64(1), &mut VecDeque::new(), 20));
    let words = rig.engine.v4.current.words.address();
    let before = rig.mock.violations();
    rig.mock.mark_freed(words, 1 << 10);
    let mut reader = rig.engine.reader(1, 64).unwrap();
    let keys: Vec<u32> = (0..64).map(|at| at << 26).collect();
    reader.lookup(Keys::V4(&keys), &mut [NextHopId::NONE; 64]).unwrap();
    assert!(rig.mock.violations() > before);
    rig.mock.unmark_freed(words, 1 << 10);
}
