//! GALE's table and operations against the oracle, on the model of its kernels.

use super::model::{Accesses, Lookup, Model};
use super::{DIRECT_UNITS, GaleOptions, GaleTable};
use crate::host::{HostTable, Image, PrefixOp, Step};
use crate::tests::direct::{self, Rig, told};
use fib::{Change, EngineError, NextHopId, Rib, Route};

impl direct::Model for Model {
    type Lookup = Lookup;

    fn new(image: &Image<'_>) -> Self {
        Self::new(image)
    }

    fn run(&mut self, step: &Step, _shuffle: u64, stored: &mut dyn FnMut(&[u32])) {
        let Step::Ops(ops) = step else { panic!("GALE has no single writes") };
        self.run(ops, |words, _| stored(words));
    }

    fn words(&self) -> &[u32] {
        &self.words
    }

    fn lookups(&self) -> Box<dyn Fn(u32) -> Lookup> {
        Box::new(Lookup::new)
    }

    fn load(lookup: &mut Lookup, words: &[u32]) -> Option<NextHopId> {
        lookup.step(words)
    }
}

fn rig(options: GaleOptions, seed: u64) -> Rig<GaleTable, Model> {
    Rig::new(GaleTable::new(options).unwrap(), seed)
}

fn id(value: u32) -> NextHopId {
    NextHopId::from_answer(value)
}

#[test]
fn every_length_comes_and_goes() {
    // Beyond 2^20 units an image would do: so this one has no limit.
    let mut rig = rig(GaleOptions { rebuild_turns: u64::MAX, ..GaleOptions::default() }, 1);
    for len in (0..=32).rev() {
        rig.apply(&[told(0x0a01_0203, len, 100 + u32::from(len))]);
    }
    rig.check_all();
    for len in [0, 25, 24, 8, 32, 31] {
        rig.apply(&[told(0x0a01_0203, len, 0)]);
        rig.check_all();
        rig.apply(&[told(0x0a01_0203, len, 7)]);
    }
    rig.check_all();
    for len in 0..=32 {
        rig.apply(&[told(0x0a01_0203, len, 0)]);
    }
    assert!(rig.model.words[..DIRECT_UNITS].iter().all(|word| *word == 0), "nothing is left");
    assert_eq!(rig.rebuilds, 0);
}

#[test]
fn no_store_shows_a_lookup_anything_but_old_or_new() {
    let options = GaleOptions { rebuild_turns: u64::MAX, ..GaleOptions::default() };
    for seed in 0..4 {
        let mut rig = rig(options, seed);
        rig.churn(400, 12);
        assert_eq!(rig.rebuilds, 0);
        assert!(rig.stores > 100_000);
        rig.withdraw_all();
        assert_eq!(rig.table.chunks_in_use(), 0);
        assert!(rig.model.words[..DIRECT_UNITS].iter().all(|word| *word == 0), "nothing is left");
    }
}

#[test]
fn a_lookup_never_meets_a_chunk_used_again() {
    rig(GaleOptions::default(), 5).flicker_without_rebuilds();
}

#[test]
fn chunks_run_out_and_a_rebuild_makes_room() {
    let mut rig = rig(GaleOptions { headroom_percent: 0, ..GaleOptions::default() }, 7);
    for n in 0..1500u32 {
        rig.apply(&[told(0x0a00_0000 + n * 256, 28, 1 + n)]);
    }
    assert!(rig.rebuilds >= 1, "1024 chunks are there at first");
    rig.check_all();
    rig.withdraw_all();
}

#[test]
fn a_table_that_does_not_fit_is_refused_and_the_old_one_stays() {
    let direct = 4 * DIRECT_UNITS as u64;
    let too_small = GaleTable::new(GaleOptions { table_bytes_max: direct - 1, ..GaleOptions::default() });
    assert!(matches!(too_small, Err(EngineError::Full { what: "table bytes", .. })));
    let options = GaleOptions { table_bytes_max: direct + 3 * 1024, ..GaleOptions::default() };
    let mut rig = rig(options, 3);
    let changes: Vec<_> = (0..5).map(|n| told(0x0a00_0000 + n * 256, 32, 1 + n)).collect();
    rig.apply(&changes);
    assert_eq!((rig.refused, rig.table.routes()), (1, 0), "five /24s need five chunks");
    rig.apply(&changes[..3]);
    rig.apply(&changes[3..4]);
    assert_eq!((rig.refused, rig.table.routes()), (2, 3));
    rig.apply(&[told(0x0a00_0000, 32, 0)]);
    rig.apply(&changes[3..4]);
    assert_eq!((rig.refused, rig.table.routes()), (2, 3));
    rig.check_all();
}

/// A table and the RIB that its changes come from.
struct TableWithRib {
    table: GaleTable,
    rib: Rib,
}

impl TableWithRib {
    fn new() -> Self {
        Self { table: GaleTable::new(GaleOptions::default()).unwrap(), rib: Rib::plain() }
    }

    fn tell(&mut self, routes: &[Route<u32>]) -> Vec<Change<u32>> {
        for route in routes {
            self.rib.v4.set(route.prefix, route.next_hop);
        }
        let delta = self.rib.take_delta().v4;
        self.table.apply(&delta, &self.rib.v4, usize::MAX).unwrap();
        delta
    }

    fn ops(&mut self, update: u64) -> Vec<PrefixOp> {
        let steps = self.table.take_steps(update, &self.rib.v4);
        let ops = |step| if let Step::Ops(ops) = step { ops } else { panic!("GALE has no single writes") };
        steps.into_iter().flat_map(ops).collect()
    }

    fn image(&self) -> Image<'_> {
        self.table.image(&self.rib.v4)
    }
}

#[test]
fn what_is_taken_back_costs_the_device_nothing() {
    let mut gale = TableWithRib::new();
    let delta = gale.tell(&[told(0x0a00_0000, 8, 5), told(0x0a00_0001, 32, 6)]);
    gale.rib = Rib::plain();
    gale.table.take_back(&delta, &gale.rib.v4).unwrap();
    assert!(gale.ops(1).is_empty());
}

#[test]
fn an_image_stands_for_the_steps_before_it_and_stays_until_the_next_change() {
    let mut gale = TableWithRib::new();
    gale.tell(&[told(0x0a01_0200, 24, 1), told(0x0a01_0203, 32, 2)]);
    let first = gale.image().runs[0].1.as_ptr();
    assert!(gale.ops(1).is_empty(), "the image has them");
    let image = gale.image();
    assert_eq!(image.runs[0].1.as_ptr(), first, "painted once");
    let mut model = Model::new(&image);
    assert_eq!(Lookup::run(0x0a01_0203, &model.words), id(2));
    gale.tell(&[told(0x0a01_0203, 32, 0)]);
    model.run(&gale.ops(2), |_, _| {});
    assert_eq!(Lookup::run(0x0a01_0203, &model.words), id(1));
    assert_eq!(Lookup::run(0x0a01_0203, &Model::new(&gale.image()).words), id(1));
}

#[test]
fn accesses_are_counted_as_the_device_makes_them() {
    let mut gale = TableWithRib::new();
    let mut model = Model::new(&gale.image());
    let mut run = |route: Route<u32>| {
        gale.tell(&[route]);
        let ops = gale.ops(1);
        let before = model.accesses;
        model.run(&ops, |_, _| {});
        let loads = gale.table.details().get("gale_device_loads").unwrap();
        assert_eq!(model.accesses.loads as f64, loads, "what the host counts is what the device reads");
        Accesses { loads: model.accesses.loads - before.loads, writes: model.accesses.writes - before.writes }
    };
    assert_eq!(run(told(0x0a01_0200, 24, 1)), Accesses { loads: 1, writes: 1 });
    assert_eq!(run(told(0x0a01_0000, 16, 2)), Accesses { loads: 256, writes: 255 });
    // The /25: one load and 257 stores for its chunk; the /24's unit and 128 of the chunk's to draw it.
    assert_eq!(run(told(0x0a01_0200, 25, 3)), Accesses { loads: 130, writes: 385 });
    assert_eq!(run(told(0x0a01_0000, 16, 4)), Accesses { loads: 512, writes: 255 });
    assert_eq!(run(told(0x0a01_0200, 25, 0)), Accesses { loads: 130, writes: 129 });
}

#[test]
fn real_tables_and_the_real_stream() {
    rig(GaleOptions::default(), 11).real_table_and_stream();
}
