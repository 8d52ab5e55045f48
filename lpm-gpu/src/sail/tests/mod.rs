//! SAIL_L's table and writes against the oracle, on a model of its kernels.

pub(crate) mod model;

use super::{BCN_WORDS, SailOptions, SailTable};
use crate::direct::{CHUNK_UNITS, Unit};
use crate::host::{HostTable, Image, Step};
use crate::tests::direct::{self, Rig, made, told};
use fib::{EngineError, NextHopId, Rib};
use model::Lookup;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeSet;

/// The words, and the header's first.
struct Model {
    words: Vec<u32>,
    n32: usize,
}

impl direct::Model for Model {
    type Lookup = Lookup;

    fn new(image: &Image<'_>) -> Self {
        let mut words = vec![0; image.words];
        for (first, run) in &image.runs {
            words[*first as usize..*first as usize + run.len()].copy_from_slice(run);
        }
        Self { words, n32: image.header[0] as usize }
    }

    fn run(&mut self, step: &Step, shuffle: u64, stored: &mut dyn FnMut(&[u32])) {
        let Step::Writes(writes) = step else { panic!("SAIL_L has no operations") };
        let places: BTreeSet<_> = writes.iter().map(|write| write.at).collect();
        assert_eq!(places.len(), writes.len(), "a word is written once in a step");
        let mut rng = ChaCha8Rng::seed_from_u64(shuffle);
        let mut order: Vec<_> = writes.iter().map(|write| (rng.next_u32(), write)).collect();
        order.sort_by_key(|(random, _)| *random);
        for (_, write) in order {
            self.words[write.at as usize] = write.value;
            stored(&self.words);
        }
    }

    fn words(&self) -> &[u32] {
        &self.words
    }

    fn lookups(&self) -> Box<dyn Fn(u32) -> Lookup> {
        let n32 = self.n32;
        Box::new(move |key| Lookup::new(key, n32))
    }

    fn load(lookup: &mut Lookup, words: &[u32]) -> Option<NextHopId> {
        lookup.step(words)
    }
}

fn rig(options: SailOptions, seed: u64) -> Rig<SailTable, Model> {
    Rig::new(SailTable::new(options).unwrap(), seed)
}

#[test]
fn every_length_comes_and_goes() {
    let mut rig = rig(SailOptions::default(), 1);
    for len in (0..=32).rev() {
        rig.apply(&[told(0x0a01_0203, len, 100 + u32::from(len))]);
    }
    rig.check_all();
    for len in [0, 25, 16, 17, 24, 8, 32, 31] {
        rig.apply(&[told(0x0a01_0203, len, 0)]);
        rig.check_all();
        rig.apply(&[told(0x0a01_0203, len, 7)]);
    }
    rig.check_all();
    for len in 0..=32 {
        rig.apply(&[told(0x0a01_0203, len, 0)]);
    }
    assert!(rig.model.words[..BCN_WORDS].iter().all(|word| Unit(*word).value() == 0), "nothing is left");
}

#[test]
fn no_store_shows_a_lookup_anything_but_old_or_new() {
    for (seed, len_min) in [(0, 12), (1, 12), (2, 0), (3, 20)] {
        let mut rig = rig(SailOptions::default(), seed);
        rig.churn(600, len_min);
        assert!(rig.stores > 50_000);
        rig.withdraw_all();
        assert_eq!(rig.table.chunks_in_use(), (0, 0));
    }
}

#[test]
fn a_lookup_never_meets_a_chunk_used_again() {
    rig(SailOptions::default(), 5).flicker_without_rebuilds();
}

#[test]
fn chunks_run_out_and_a_rebuild_makes_room() {
    let mut rig = rig(SailOptions { headroom_percent: 0, ..SailOptions::default() }, 7);
    for n in 0..400u32 {
        rig.apply(&[told(0x0a00_0000 + (n << 16), 20, 1 + n)]);
    }
    let after_bn24 = rig.rebuilds;
    assert!(after_bn24 >= 1, "256 chunks of BN24 are there at first");
    for n in 0..400u32 {
        rig.apply(&[told(0x0a00_0000 + n * 256, 30, 1 + n)]);
    }
    assert!(rig.rebuilds > after_bn24, "and as many of N32");
    rig.check_all();
    rig.withdraw_all();
}

#[test]
fn a_table_that_does_not_fit_is_refused_and_the_old_one_stays() {
    let bcn = 4 * BCN_WORDS as u64;
    let too_small = SailTable::new(SailOptions { table_bytes_max: bcn - 1, ..SailOptions::default() });
    assert!(matches!(too_small, Err(EngineError::Full { what: "table bytes", .. })));
    let mut rig = rig(SailOptions { table_bytes_max: bcn + 4 * 1024, ..SailOptions::default() }, 3);
    let hosts: Vec<_> = (0..4).map(|n| told(0x0a00_0000 + (n << 16), 32, 1 + n)).collect();
    rig.apply(&hosts);
    assert_eq!((rig.refused, rig.table.routes()), (1, 0), "four hosts need four chunks of each array");
    rig.apply(&hosts[..2]);
    rig.apply(&hosts[2..3]);
    assert_eq!((rig.refused, rig.table.routes()), (2, 2));
    rig.apply(&[told(0x0a00_0000, 32, 0)]);
    rig.apply(&hosts[2..3]);
    assert_eq!((rig.refused, rig.table.routes()), (2, 2));
    rig.check_all();
}

#[test]
fn what_is_taken_back_is_as_it_was() {
    let mut table = SailTable::new(SailOptions::default()).unwrap();
    let mut before = Rib::plain();
    let first = made(0x0a00_0000, 20, 0, 5);
    before.v4.set(first.prefix, first.new);
    before.take_delta();
    table.apply(&[first], &before.v4, usize::MAX).unwrap();
    let words: Vec<u32> = table
        .take_steps(1, &before.v4)
        .iter()
        .flat_map(|step| match step {
            Step::Writes(writes) => writes.iter().map(|write| write.value).collect(),
            Step::Ops(_) => Vec::new(),
        })
        .collect();
    assert_eq!(words.len(), CHUNK_UNITS + 1, "a new chunk and the word that leads there");
    let delta = [made(0x0a00_0000, 20, 5, 6), made(0x0a00_0001, 32, 0, 6)];
    let mut after = before.clone();
    delta.iter().for_each(|change| _ = after.v4.set(change.prefix, change.new));
    after.take_delta();
    table.apply(&delta, &after.v4, usize::MAX).unwrap();
    table.take_back(&delta, &before.v4).unwrap();
    for step in table.take_steps(2, &before.v4) {
        let Step::Writes(writes) = step else { panic!("SAIL_L has no operations") };
        assert!(writes.iter().all(|write| Unit(write.value).value() == 5), "{writes:?}");
    }
}

#[test]
fn real_tables_and_the_real_stream() {
    rig(SailOptions::default(), 11).real_table_and_stream();
}
