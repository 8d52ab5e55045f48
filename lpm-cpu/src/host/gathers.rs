//! Measures whether kernels with gathers beat kernels with single loads: the cost of a gather depends on the CPU and its microcode.

use super::algorithm::HostEngine;
use super::params::{Gathers, HostKernel, HostParams};
use super::v4::Writer4;
use super::v6::{EveryForm, Table6};
use fib::generate::{self, DEFAULT_NEXT_HOPS, TableSpec};
use fib::traffic::Traffic;
use fib::{Isa, Key, NextHopId};
use lpm_core::engine::{Algorithm, Budget, FibTable};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Routes of the measured tables and keys of a pass: small enough for the caches, where the cost of an instruction shows most.
const FEW: (usize, usize) = (8192, 4096);
/// As `FEW` for AVX2: larger than L1, as full tables are. Of the IPv6 kernels only the scalar one prefetches, so it would lose in L1.
const MORE: (usize, usize) = (1 << 15, 1 << 14);
const CALL: usize = 128;
const PASSES: usize = 7;

/// The faster kernels with the instruction set of `params`, measured once a process in a few milliseconds. Gathers if the measurement
/// fails, and in builds with assertions, where it would not apply to a release.
pub(crate) fn measured(params: HostParams) -> Gathers {
    if cfg!(debug_assertions) {
        return Gathers::BOTH;
    }
    static AVX2: OnceLock<Gathers> = OnceLock::new();
    static AVX512F: OnceLock<Gathers> = OnceLock::new();
    let once = if params.common.isa.get() == Isa::Avx2 { &AVX2 } else { &AVX512F };
    *once.get_or_init(|| measure(params).unwrap_or(Gathers::BOTH))
}

fn measure(params: HostParams) -> Option<Gathers> {
    let (mut scratch, mut out) = (<HostEngine>::scratch(), [NextHopId::NONE; CALL]);
    let size = if params.common.isa.get() == Isa::Avx2 { MORE } else { FEW };
    let (table4, keys4) = table::<u32, Writer4>(params, size)?;
    let (table6, keys6) = table::<u128, Table6<EveryForm>>(params, size)?;
    let (hi, lo): (Vec<_>, Vec<_>) = keys6.into_iter().map(fib::keys::halves).unzip();
    Some(Gathers {
        v4: is_faster(params, |params| {
            for keys in keys4.chunks_exact(CALL) {
                <HostEngine>::lookup_v4(params, table4.shared(), &mut scratch, keys, &mut out);
            }
        }),
        v6: is_faster(params, |params| {
            for keys in hi.chunks_exact(CALL).zip(lo.chunks_exact(CALL)) {
                <HostEngine>::lookup_v6(params, table6.shared(), &mut scratch, keys, &mut out);
            }
        }),
    })
}

fn table<K: Key, T: FibTable<K, Params = HostParams>>(
    params: HostParams,
    (routes, keys): (usize, usize),
) -> Option<(T, Vec<K>)> {
    let spec = TableSpec { family: K::FAMILY, routes, seed: 1, next_hops: DEFAULT_NEXT_HOPS };
    let routes = generate::table(&spec).ok()?;
    let keys = Traffic::Table.keys(&routes, keys, 1).ok()?;
    let table = T::size(&routes, &params, Budget::Tight).and_then(|size| T::build(size, routes, &params));
    Some((table.ok()?, keys))
}

fn is_faster(params: HostParams, mut pass: impl FnMut(&HostParams)) -> bool {
    let mut best = [Duration::MAX; 2];
    for _ in 0..PASSES {
        for (best, gathers) in best.iter_mut().zip([Gathers::BOTH, Gathers::NONE]) {
            let params = HostParams { kernel: HostKernel { gathers, ..params.kernel }, ..params };
            let began = Instant::now();
            pass(&params);
            *best = began.elapsed().min(*best);
        }
    }
    best[0] <= best[1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::EngineOptions;

    #[test]
    fn every_vector_kernel_that_this_cpu_has_is_measured() {
        for isa in [Isa::Avx2, Isa::Avx512f] {
            let options =
                EngineOptions { isa: Some(isa), ..EngineOptions::with_parameters(&[("gather", "yes")]) };
            let Ok(params) = HostParams::from_options(&options, |_| Gathers::BOTH) else {
                println!("skipped: this CPU has no {isa}");
                continue;
            };
            assert!(measure(params).is_some(), "{isa}");
        }
    }
}
