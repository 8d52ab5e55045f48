//! Whether gathers pay, which is measured: what they cost differs by tens between CPUs, and microcode changes it.

use super::params::{HostKernel, HostParams};
use super::{
    HostEngine,
    v4::Writer4,
    v6::{EveryForm, Table6},
};
use fib::{Details, EngineError, Isa, Key, NextHopId, Prefix};
use lpm_core::engine::{Algorithm, Budget, FibTable, Routes};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Routes of a table that is measured: it fits the L2 cache, where what an instruction costs shows most.
const ROUTES: usize = 8192;
/// Keys of a pass, and of a call, as of a forwarder's burst.
const KEYS: usize = 4096;
const CALL: usize = 128;
/// Passes of either kernel, in turn; the best counts.
const PASSES: usize = 7;

/// Which families' kernels gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gathers {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
}

impl Gathers {
    pub(crate) const BOTH: Self = Self { v4: true, v6: true };
    pub(crate) const NONE: Self = Self { v4: false, v6: false };

    /// Figures for `EngineStats::details`.
    pub(crate) fn details(self) -> Details {
        Details::from([("v4_gathers", u8::from(self.v4).into()), ("v6_gathers", u8::from(self.v6).into())])
    }
}

/// What is faster on this CPU with the instruction set of `params`. Measured once a process, in some milliseconds; gathers where it
/// cannot be.
pub(crate) fn measured(params: HostParams) -> Gathers {
    static AVX2: OnceLock<Gathers> = OnceLock::new();
    static AVX512F: OnceLock<Gathers> = OnceLock::new();
    let once = if params.common.isa.get() == Isa::Avx2 { &AVX2 } else { &AVX512F };
    *once.get_or_init(|| measure(params).unwrap_or(Gathers::BOTH))
}

fn measure(params: HostParams) -> Result<Gathers, EngineError> {
    let mut random = 1_u64;
    let mut draw = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random >> 32
    };
    // /24s anywhere, and /48s in a few /16s, as routes are.
    let routes4 = routes(|| Prefix::truncating(draw() as u32, 24));
    let routes6 = routes(|| Prefix::truncating(u128::from(draw() % 8 << 48 | draw() << 16) << 64, 48));
    let keys4: Vec<_> = (0..KEYS).map(|at| routes4[at * 7919 % routes4.len()].0.address()).collect();
    let keys6: Vec<_> =
        (0..KEYS).map(|at| (routes6[at * 7919 % routes6.len()].0.address() >> 64) as u64).collect();
    let zeros = vec![0; CALL];
    let v4 = Writer4::build(Writer4::size(&routes4, &params, Budget::Tight)?, routes4, &params)?;
    let v6 = Table6::<EveryForm>::build(
        Table6::<EveryForm>::size(&routes6, &params, Budget::Tight)?,
        routes6,
        &params,
    )?;
    let (mut scratch, mut out) = (<HostEngine>::scratch(), [NextHopId::NONE; CALL]);
    Ok(Gathers {
        v4: is_faster(params, |params| {
            for keys in keys4.chunks(CALL) {
                <HostEngine>::lookup_v4(params, v4.shared(), &mut scratch, keys, &mut out);
            }
        }),
        v6: is_faster(params, |params| {
            for keys in keys6.chunks(CALL) {
                <HostEngine>::lookup_v6(params, v6.shared(), &mut scratch, (keys, &zeros), &mut out);
            }
        }),
    })
}

/// [`ROUTES`] routes or a few less, in order.
fn routes<K: Key>(draw: impl FnMut() -> Prefix<K>) -> Routes<K> {
    let mut prefixes: Vec<_> = std::iter::repeat_with(draw).take(ROUTES).collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    (1..).zip(prefixes).map(|(at, prefix)| (prefix, NextHopId::from_answer(1 + at % 200))).collect()
}

/// Whether a pass with gathers is faster than one without.
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
