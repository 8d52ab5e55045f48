//! The tables of the GPU engines on the host: models of the kernels search their images and steps, against a plain longest-prefix match.

use crate::bytes::Bytes;
use crate::changes::{ExpectedRoutes, changes};
use fib::{Key, NextHopId, Route};
use lpm_gpu::gale::{GaleOptions, GaleTable};
use lpm_gpu::gamt::{GamtOptions, GamtTable, Layout, NextHops};
use lpm_gpu::host::HostTable;
use lpm_gpu::sail::{SailOptions, SailTable};
use lpm_gpu::testing::HostRig;
use std::cell::RefCell;
use std::collections::HashMap;

/// Options of a GAMT table: layout, next hops, levels of IPv4 and IPv6, percent of headroom, limit in kilobytes.
type Shape = (Layout, NextHops, Option<u8>, Option<u8>, u32, u64);

/// The GAMT tables, by the number in the input; GALE and SAIL follow. Within the limits a few routes fit and many do not.
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
const USES_MAX: usize = 2000;
const DELTAS_MAX: usize = 48;

struct Side<K: Key> {
    rig: HostRig<K, dyn HostTable<K>>,
    routes: ExpectedRoutes<K>,
}

impl<K: Key> Side<K> {
    fn new(table: Box<dyn HostTable<K>>) -> Self {
        let mut rig = HostRig::new(table, 0);
        rig.in_flight_max = 0;
        rig.detours = false;
        Self { rig, routes: ExpectedRoutes::default() }
    }

    /// Applies a delta as the engine does; with `late`, grace periods end an update later.
    fn apply(&mut self, told: &[Route<K>], late: bool) {
        self.rig.grace_lag = u64::from(late);
        if self.rig.apply(told).is_ok() {
            self.routes.apply(told);
        }
        assert_eq!(self.rig.table.routes(), self.routes.0.len() as u64);
        for key in self.routes.keys(told) {
            assert_eq!(self.rig.lookup(key), self.routes.lookup(key), "{} {:?}", key.to_ip(), self.routes);
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
        let mut v6 = None;
        let v4: Box<dyn HostTable<u32>> = match number {
            GALE => {
                let options = GaleOptions { headroom_percent: 0, ..GaleOptions::default() };
                Box::new(GaleTable::new(options).unwrap())
            }
            SAIL => {
                let options = SailOptions { headroom_percent: 0, ..SailOptions::default() };
                Box::new(SailTable::new(options).unwrap())
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
                let table = GamtTable::<u128>::new(of(levels6));
                v6 = table.ok().map(|table| Side::new(Box::new(table)));
                Box::new(GamtTable::<u32>::new(of(levels)).unwrap())
            }
        };
        Self { v4: Side::new(v4), v6, uses: 0 }
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
