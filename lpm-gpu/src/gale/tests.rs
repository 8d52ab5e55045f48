//! GALE's table and operations against the oracle, on the model of its kernels.

use super::model::{Accesses, Lookup, Model};
use super::{DIRECT_UNITS, GaleOptions, GaleTable};
use crate::host::{HostTable, Image, PrefixOp, Step};
use crate::tests::direct::{self, Rig, made, told};
use fib::{Change, EngineError, NextHopId};

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

#[test]
fn what_is_taken_back_costs_the_device_nothing() {
    let mut table = GaleTable::new(GaleOptions::default()).unwrap();
    let delta = [made(0x0a00_0000, 8, 0, 5), made(0x0a00_0001, 32, 0, 6)];
    table.apply(&delta, usize::MAX).unwrap();
    table.apply(&delta.map(Change::reversed), usize::MAX).unwrap();
    assert!(table.take_steps(1).is_empty());
}

#[test]
fn an_image_stands_for_the_steps_before_it_and_stays_until_the_next_change() {
    let mut table = GaleTable::new(GaleOptions::default()).unwrap();
    table.apply(&[made(0x0a01_0200, 24, 0, 1), made(0x0a01_0203, 32, 0, 2)], usize::MAX).unwrap();
    let first = table.image().runs[0].1.as_ptr();
    assert!(table.take_steps(1).is_empty(), "the image has them");
    let image = table.image();
    assert_eq!(image.runs[0].1.as_ptr(), first, "painted once");
    let mut model = Model::new(&image);
    assert_eq!(Lookup::run(0x0a01_0203, &model.words), id(2));
    table.apply(&[made(0x0a01_0203, 32, 2, 0)], usize::MAX).unwrap();
    for step in table.take_steps(2) {
        let Step::Ops(ops) = step else { panic!("GALE has no single writes") };
        model.run(&ops, |_, _| {});
    }
    assert_eq!(Lookup::run(0x0a01_0203, &model.words), id(1));
    assert_eq!(Lookup::run(0x0a01_0203, &Model::new(&table.image()).words), id(1));
}

#[test]
fn accesses_are_counted_as_the_device_makes_them() {
    let mut table = GaleTable::new(GaleOptions::default()).unwrap();
    let mut model = Model::new(&table.image());
    let loads = |table: &GaleTable| table.details().get("gale_device_loads").unwrap();
    let mut run = |table: &mut GaleTable, delta: &[Change<u32>]| {
        table.apply(delta, usize::MAX).unwrap();
        let ops: Vec<PrefixOp> = table
            .take_steps(1)
            .into_iter()
            .flat_map(|step| if let Step::Ops(ops) = step { ops } else { Vec::new() })
            .collect();
        let before = model.accesses;
        model.run(&ops, |_, _| {});
        assert_eq!(
            model.accesses.loads as f64,
            loads(table),
            "what the host counts is what the device reads"
        );
        Accesses { loads: model.accesses.loads - before.loads, writes: model.accesses.writes - before.writes }
    };
    assert_eq!(run(&mut table, &[made(0x0a01_0200, 24, 0, 1)]), Accesses { loads: 1, writes: 1 });
    assert_eq!(run(&mut table, &[made(0x0a01_0000, 16, 0, 2)]), Accesses { loads: 256, writes: 255 });
    // The /25: one load and 257 stores for its chunk; the /24's unit and 128 of the chunk's to draw it.
    assert_eq!(run(&mut table, &[made(0x0a01_0200, 25, 0, 3)]), Accesses { loads: 130, writes: 385 });
    assert_eq!(run(&mut table, &[made(0x0a01_0000, 16, 2, 4)]), Accesses { loads: 512, writes: 255 });
    assert_eq!(run(&mut table, &[made(0x0a01_0200, 25, 3, 0)]), Accesses { loads: 130, writes: 129 });
}

#[test]
fn real_tables_and_the_real_stream() {
    rig(GaleOptions::default(), 11).real_table_and_stream();
}
