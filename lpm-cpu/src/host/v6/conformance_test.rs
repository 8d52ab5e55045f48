//! The engine in the conformance suite, both families: every instruction set, with IPv6 entries of every form.

use super::{EveryForm, Form, Forms};
use crate::host::HostEngine;
use crate::host::params::{Gathers, HostParams};
use fib::{EngineError, EngineOptions, EngineWriter, Isa, Keys, NextHopId, Prefix6, Rib, conformance};
use lpm_core::engine::CpuEngine;

pub(super) enum WideForms {}

impl Forms for WideForms {
    const FORMS: &'static [Form] = &[Form::Ids32];
}

/// Entries of 16 bits with an array of ids, while next hops are few.
pub(super) enum CodedForms {}

impl Forms for CodedForms {
    const FORMS: &'static [Form] = &[Form::Codes16, Form::Ids32];
}

pub(super) fn engine<F: Forms>(options: &EngineOptions) -> Result<CpuEngine<HostEngine<F>>, EngineError> {
    CpuEngine::new(HostParams::from_options(options, |_| Gathers::BOTH)?)
}

fn bounded<F: Forms>(isa: Isa, table_bytes_max: u64) -> Result<Box<dyn EngineWriter>, EngineError> {
    with_gather::<F>(isa, table_bytes_max, "yes")
}

fn with_gather<F: Forms>(
    isa: Isa,
    table_bytes_max: u64,
    gather: &str,
) -> Result<Box<dyn EngineWriter>, EngineError> {
    let options = EngineOptions {
        isa: Some(isa),
        table_bytes_max,
        ..EngineOptions::with_parameters(&[("gather", gather)])
    };
    Ok(Box::new(engine::<F>(&options)?))
}

fib::conformance_tests!(scalar, slow_updates, || bounded::<EveryForm>(Isa::Scalar, 4 << 30));
fib::conformance_tests!(avx2, lookups_alone, || bounded::<EveryForm>(Isa::Avx2, 4 << 30));
fib::conformance_tests!(avx512f, lookups_alone, || bounded::<EveryForm>(Isa::Avx512f, 4 << 30));
fib::conformance_tests!(singles, lookups_alone, || with_gather::<EveryForm>(Isa::Avx512f, 4 << 30, "no"));
fib::conformance_tests!(wide_singles, lookups_alone, || with_gather::<WideForms>(
    Isa::Avx512f,
    4 << 30,
    "no"
));
fib::conformance_tests!(wide_scalar, || bounded::<WideForms>(Isa::Scalar, 4 << 30));
fib::conformance_tests!(wide_avx2, lookups_alone, || bounded::<WideForms>(Isa::Avx2, 4 << 30));
fib::conformance_tests!(wide_avx512f, lookups_alone, || bounded::<WideForms>(Isa::Avx512f, 4 << 30));

#[test]
fn memory_limits() {
    let options = conformance::Options::from_env();
    conformance::limited(&|bytes| bounded::<EveryForm>(Isa::Scalar, bytes), options);
    conformance::limited(&|bytes| bounded::<WideForms>(Isa::Scalar, bytes), options);
}

fn figure(engine: &dyn EngineWriter, name: &str) -> f64 {
    engine.stats().details.get(name).unwrap()
}

fn lookup_in(engine: &dyn EngineWriter, address: u128) -> u32 {
    let mut answer = [NextHopId::NONE];
    let keys = Keys::V6 { hi: &[(address >> 64) as u64], lo: &[address as u64] };
    engine.reader(1, 1).unwrap().lookup(keys, &mut answer).unwrap();
    answer[0].get()
}

#[test]
fn entries_widen_when_next_hops_ask_for_it() {
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let mut engine = bounded::<EveryForm>(isa, 4 << 30).unwrap();
        let mut rib = Rib::plain();
        let prefix = |at: u32| Prefix6::truncating(0x2001_0db8 << 96 | u128::from(at) << 64, 64);
        let mut set = |engine: &mut dyn EngineWriter, ids: std::ops::Range<u32>, add: u32| {
            for at in ids.clone() {
                rib.v6.set(prefix(at), NextHopId::new(at + add).unwrap());
            }
            rib.commit_to(engine).unwrap();
            for at in ids.step_by(13) {
                assert_eq!(lookup_in(engine, prefix(at).address() | 7), at + add, "{isa}: {at}");
            }
            (figure(engine, "v6_entry_bits"), engine.stats().table_bytes)
        };
        let (bits, narrow) = set(engine.as_mut(), 1..6000, 0);
        assert_eq!(bits, 16.0);
        let (bits, coded) = set(engine.as_mut(), 1..100, 1 << 20);
        assert_eq!((bits, coded > narrow), (16.0, true), "{isa}: an array of ids");
        let (bits, wide) = set(engine.as_mut(), 6000..20_000, 0);
        assert_eq!((bits, wide > coded), (16.0, true), "{isa}: more codes");
        let (bits, wider) = set(engine.as_mut(), 20_000..34_000, 0);
        assert_eq!((bits, wider > wide), (32.0, true));
        for route in rib.v6.withdrawn() {
            rib.v6.set(route.prefix, route.next_hop);
        }
        rib.commit_to(engine.as_mut()).unwrap();
        assert_eq!(lookup_in(engine.as_ref(), prefix(1).address()), 0);
    }
}

#[test]
fn rows_are_used_again() {
    let mut engine = bounded::<EveryForm>(Isa::Scalar, 4 << 30).unwrap();
    let mut rib = Rib::plain();
    let mut bytes = Vec::new();
    for round in 0..300_u32 {
        for (round, next_hop) in [(round, 7), (round.wrapping_sub(1), 0)] {
            for at in 0..20_u32 {
                let block =
                    0x2a00_0000 | (round.wrapping_mul(20).wrapping_add(at)).wrapping_mul(0x9e37_79b9) >> 8;
                let len = 33 + (at * 5) as u8;
                let prefix = Prefix6::truncating(u128::from(block) << 96 | u128::MAX >> 32, len);
                rib.v6.set(prefix, NextHopId::from_answer(next_hop));
            }
        }
        rib.commit_to(engine.as_mut()).unwrap();
        bytes.push((engine.stats().table_bytes, figure(engine.as_ref(), "v6_rows")));
    }
    assert!(bytes[299].0 == bytes[9].0 && bytes[299].1 < 400.0, "{bytes:?}");
}

#[test]
fn long_prefixes_in_scattered_tables() {
    for blocks in [1_u32, 300, 3000, 20_000] {
        let mut rib = Rib::plain();
        for at in 0..blocks {
            let block = u128::from(at.wrapping_mul(0x9e37_79b9)) << 96;
            rib.v6.set(Prefix6::truncating(block | 0xabcd << 64 | 1, 128), NextHopId::new(at + 1).unwrap());
            rib.v6
                .set(Prefix6::truncating(block, 17 + (at % 60) as u8), NextHopId::new(70_000 + at).unwrap());
        }
        let _committed = rib.take_delta();
        let routes: Vec<_> = rib.v6.iter().collect();
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let mut engine = bounded::<EveryForm>(isa, 4 << 30).unwrap();
            rib.load(engine.as_mut()).unwrap();
            let keys: Vec<u128> =
                routes.iter().flat_map(|(prefix, _)| [prefix.address(), prefix.last_address()]).collect();
            let oracle: fib::oracle::Oracle6 = routes.iter().copied().collect();
            let (hi, lo): (Vec<_>, Vec<_>) = keys.iter().map(|key| ((key >> 64) as u64, *key as u64)).unzip();
            let mut answers = vec![NextHopId::NONE; keys.len()];
            engine.reader(1, 1).unwrap().lookup(Keys::V6 { hi: &hi, lo: &lo }, &mut answers).unwrap();
            for (key, answer) in keys.iter().zip(&answers) {
                assert_eq!(*answer, oracle.lookup(*key), "{isa}, {blocks} blocks: {key:#x}");
            }
        }
    }
}
