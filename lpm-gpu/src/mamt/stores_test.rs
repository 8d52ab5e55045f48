//! Every store of an update under every interleaving with lookups ([`fib::stores`]), which load the pointer to the current
//! table, then its words in the scalar kernel's order, and resolve their answer last.

use crate::gamt::Layout;
use crate::gamt::code::search_by;
use crate::mamt::Mamt;
use crate::mamt::params::MamtParams;
use crate::mamt::table::Words;
use crate::tests::stores::sequences;
use arc_swap::ArcSwap;
use fib::loads::Loads as _;
use fib::stores::{Checker, Steps, Stopped};
use fib::{EngineOptions, EngineWriter as _, Key, NextHopId};
use lpm_core::engine::CpuEngine;
use std::ops::RangeInclusive;
use std::sync::Arc;

fn engine(parameters: &[(&str, &str)]) -> CpuEngine<Mamt> {
    let options = EngineOptions { huge_pages: false, ..EngineOptions::with_parameters(parameters) };
    CpuEngine::new(MamtParams::from_options(&options).unwrap()).unwrap()
}

#[expect(clippy::cast_possible_truncation, reason = "halves of 128 bits")]
fn look_up<K: Key>(table: &Words, key: K, steps: &mut Steps<'_>) -> Result<u32, Stopped> {
    let (high, low) = ((key.to_high_bits() >> 64) as u64, key.to_high_bits() as u64);
    let raw = search_by(&table.header, Layout::Flat, high, |at| steps.word(&table.words[at]))?;
    table.answers.resolve_by(raw, low, steps).map(NextHopId::get)
}

fn tables_built<K: Key + 'static>(
    parameters: &[(&str, &str)],
    place: impl Fn(&CpuEngine<Mamt>) -> Arc<ArcSwap<Words>>,
    count: usize,
    lengths: &[RangeInclusive<u8>],
) -> usize {
    let mut engine = engine(parameters);
    let place = place(&engine);
    let checker = Checker::of_tables(Arc::clone(&place), |place| place.load_full(), look_up::<K>);
    let _listening = checker.listen();
    let mut built = 0;
    sequences(&checker, count, lengths, |delta, rib| {
        let before = place.load_full();
        engine.apply(delta, rib).unwrap();
        built += usize::from(!Arc::ptr_eq(&before, &place.load()));
    });
    assert!(checker.tried().0 > 1000);
    built
}

#[test]
fn ipv4_sequences() {
    let lengths = [4..=32, 20..=32];
    let of = |parameters: &[_]| tables_built::<u32>(parameters, |engine| engine.places().0, 300, &lengths);
    assert!(of(&[("levels", "6"), ("headroom", "400")]) + of(&[("headroom", "0")]) > 0);
}

#[test]
fn ipv6_sequences() {
    let lengths = [12..=128, 40..=64, 60..=128];
    let of = |parameters: &[_]| tables_built::<u128>(parameters, |engine| engine.places().1, 200, &lengths);
    assert!(of(&[("levels6", "12"), ("headroom", "400")]) + of(&[("headroom", "0")]) > 0);
}
