//! The tables of the GPU engines on the host: their images and steps, searched by models of the kernels, compared with a plain
//! longest-prefix match.

use crate::bytes::Bytes;
use crate::changes::{ExpectedRoutes, changes};
use fib::{Change, EngineError, Key, NextHopId, Rib, Route};
use lpm_gpu::direct::{CHUNK_UNITS, Unit};
use lpm_gpu::gale::{GaleOptions, GaleTable, model};
use lpm_gpu::gamt::{GamtOptions, GamtTable, Layout, NextHops, code};
use lpm_gpu::host::{Due, HEADER_WORDS, HostTable, Image, KeySlice, Step};
use lpm_gpu::sail::{BCN_WORDS, SailOptions, SailTable};
use std::cell::RefCell;
use std::collections::HashMap;

/// How a kernel finds the raw answer for the first 64 bits of a key.
#[derive(Clone, Copy)]
enum KernelModel {
    Gamt(Layout),
    Gale,
    Sail,
}

/// Options of a GAMT table: layout, next hops, levels of IPv4 and IPv6, percent of headroom, most kilobytes.
type Shape = (Layout, NextHops, Option<u8>, Option<u8>, u32, u64);

/// The GAMT tables under test, by number; GALE and SAIL follow. Within the limits a few routes fit and many do not.
const SHAPES: [Shape; 7] = [
    (Layout::Flat, NextHops::Together, None, None, 25, 1 << 20),
    (Layout::Paper, NextHops::Apart, None, None, 25, 1 << 20),
    (Layout::Flat, NextHops::Apart, Some(4), Some(8), 0, 1 << 20),
    (Layout::Paper, NextHops::Together, Some(6), Some(12), 0, 1 << 20),
    (Layout::Flat, NextHops::Together, Some(20), Some(30), 100, 1 << 20),
    (Layout::Flat, NextHops::Apart, Some(10), Some(20), 10, 24),
    (Layout::Paper, NextHops::Together, Some(8), Some(16), 10, 24),
];
const GALE: usize = SHAPES.len();
const SAIL: usize = GALE + 1;
/// Executions after which a table is made anew.
const USES_MAX: usize = 2000;
/// The most deltas in an execution.
const DELTAS_MAX: usize = 48;

/// One family: the table, the device's words, and the expected routes.
struct Side<K: Key> {
    table: Box<dyn HostTable<K>>,
    kernel: KernelModel,
    words: Vec<u32>,
    header: [u32; HEADER_WORDS],
    routes: ExpectedRoutes<K>,
    /// The routes that the table is given.
    rib: Rib,
    /// Whether `words` no longer match the table.
    stale: bool,
    update: u64,
}

impl<K: Key> Side<K> {
    fn new(table: Box<dyn HostTable<K>>, kernel: KernelModel) -> Self {
        let mut side = Self {
            table,
            kernel,
            words: Vec::new(),
            header: [0; HEADER_WORDS],
            routes: ExpectedRoutes::default(),
            rib: Rib::plain(),
            stale: false,
            update: 0,
        };
        side.upload();
        side
    }

    fn upload(&mut self) {
        let Image { header, runs, words } = self.table.image(K::table(&self.rib));
        self.header = header;
        self.words.clear();
        self.words.resize(words, 0);
        for (start, run) in runs {
            self.words[start as usize..start as usize + run.len()].copy_from_slice(run);
        }
        self.stale = false;
    }

    /// A delta as the engine makes it; `late`: grace periods end an update later.
    fn apply(&mut self, told: &[Route<K>], late: bool) {
        let change = |route: &Route<K>| {
            let old = self.routes.0.get(&route.prefix).copied().unwrap_or(NextHopId::NONE);
            Change { prefix: route.prefix, old, new: route.next_hop }
        };
        let changes: Vec<_> = told.iter().map(change).filter(|change| change.old != change.new).collect();
        self.tell(changes.iter().copied());
        match self.table.apply(&changes, K::table(&self.rib), usize::MAX).map(|due| self.note(due)) {
            Ok(()) => self.routes.apply(told),
            Err(EngineError::Full { used, limit, .. }) => {
                assert!(used > limit, "full at {used} of {limit}");
                self.tell(changes.iter().map(|change| change.reversed()));
                let due = self.table.take_back(&changes, K::table(&self.rib)).unwrap();
                self.note(due);
            }
            Err(error) => panic!("{error}"),
        }
        self.deliver();
        self.table.reclaim(self.update.saturating_sub(u64::from(late)));
        assert_eq!(self.table.routes(), self.routes.0.len() as u64);
        for key in self.routes.keys(told) {
            assert_eq!(self.lookup(key), self.routes.lookup(key), "{} {:?}", key.to_ip(), self.routes);
        }
    }

    fn tell(&mut self, changes: impl Iterator<Item = Change<K>>) {
        for change in changes {
            self.rib.set(K::wrap(change.prefix), change.new);
        }
        self.rib.take_delta();
    }

    fn note(&mut self, due: Due) {
        self.stale |= due == Due::Image;
    }

    /// The table's changes to the device, by steps or as a new image.
    fn deliver(&mut self) {
        self.update += 1;
        let steps = self.table.take_steps(self.update, K::table(&self.rib));
        if self.stale {
            self.upload();
        } else {
            for step in &steps {
                self.run(step);
            }
        }
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Writes(writes) => {
                for write in writes {
                    self.words[write.at as usize] = write.value;
                }
            }
            Step::Ops(ops) => {
                let words = std::mem::take(&mut self.words);
                let mut device = model::Model { words, accesses: model::Accesses::default() };
                device.run(ops, |_, _| {});
                self.words = device.words;
            }
        }
    }

    fn lookup(&self, key: K) -> NextHopId {
        let bits = key.to_high_bits();
        let (hi, lo) =
            (u64::try_from(bits >> 64).unwrap(), u64::try_from(bits & u128::from(u64::MAX)).unwrap());
        let first = u32::try_from(hi >> 32).unwrap();
        let raw = match self.kernel {
            KernelModel::Gamt(layout) => code::search(&self.words, &self.header, layout, hi),
            KernelModel::Gale => return model::Lookup::run(first, &self.words),
            KernelModel::Sail => return self.search_sail(first),
        };
        let mut out = [NextHopId::MAX];
        let keys = if K::BITS == 32 { KeySlice::Whole(&[key]) } else { KeySlice::Halves(&[hi], &[lo]) };
        self.table.answers().resolve(keys, &[raw], &mut out);
        out[0]
    }

    /// SAIL_L: levels of 16, 8 and 8 bits (`kernels/sail.cu`).
    fn search_sail(&self, key: u32) -> NextHopId {
        let (mut at, mut level) = ((key >> 16) as usize, 16);
        loop {
            let unit = Unit(self.words[at]);
            let Some(chunk) = unit.to_chunk() else { return NextHopId::from_answer(unit.value()) };
            level += 8;
            assert!(level <= 32, "the last table leads nowhere");
            let first = if level == 24 { BCN_WORDS } else { self.header[0] as usize };
            at = first + chunk as usize * CHUNK_UNITS + (key >> (32 - level) & 0xff) as usize;
        }
    }
}

struct HostTableRig {
    v4: Side<u32>,
    v6: Option<Side<u128>>,
    uses: usize,
}

impl HostTableRig {
    fn new(number: usize) -> Self {
        let (v4, v6) = match number {
            GALE => {
                let table =
                    GaleTable::new(GaleOptions { headroom_percent: 0, ..GaleOptions::default() }).unwrap();
                (Side::new(Box::new(table), KernelModel::Gale), None)
            }
            SAIL => {
                let options = SailOptions { headroom_percent: 0, ..SailOptions::default() };
                (Side::new(Box::new(SailTable::new(options).unwrap()), KernelModel::Sail), None)
            }
            _ => {
                let (layout, next_hops, levels, levels6, headroom_percent, kilobytes) = SHAPES[number];
                let table_bytes_max = kilobytes << 10;
                let of = |levels| GamtOptions {
                    layout,
                    next_hops,
                    levels,
                    headroom_percent,
                    table_bytes_max,
                    ..GamtOptions::default()
                };
                let kernel = KernelModel::Gamt(layout);
                let v6 = GamtTable::<u128>::new(of(levels6)).ok();
                let v4 = GamtTable::<u32>::new(of(levels)).unwrap();
                (
                    Side::new(Box::new(v4), kernel),
                    v6.map(|table| Side::new(Box::new(table) as Box<dyn HostTable<u128>>, kernel)),
                )
            }
        };
        Self { v4, v6, uses: 0 }
    }
}

/// Applies deltas to one table.
pub fn host_tables(data: &[u8]) {
    thread_local!(static RIGS: RefCell<HashMap<usize, HostTableRig>> = RefCell::new(HashMap::new()));
    let mut input = Bytes(data);
    let how = input.u8();
    let (number, late) = (usize::from(how & 0x7f) % (SAIL + 1), how & 0x80 != 0);
    RIGS.with_borrow_mut(|rigs| {
        let rig = rigs.remove(&number).filter(|rig| rig.uses < USES_MAX);
        let mut rig = rig.unwrap_or_else(|| HostTableRig::new(number));
        for _ in 0..DELTAS_MAX {
            if input.is_empty() {
                break;
            }
            rig.v4.apply(&changes(&mut input, NextHopId::MAX.get()), late);
            let v6 = changes(&mut input, NextHopId::MAX.get());
            if let Some(side) = &mut rig.v6 {
                side.apply(&v6, late);
            }
        }
        let withdrawn = rig.v4.routes.withdrawn();
        rig.v4.apply(&withdrawn, late);
        if let Some(side) = &mut rig.v6 {
            side.apply(&side.routes.withdrawn(), late);
        }
        assert!(rig.v4.routes.0.is_empty(), "a withdraw was refused");
        rig.uses += 1;
        rigs.insert(number, rig);
    });
}
