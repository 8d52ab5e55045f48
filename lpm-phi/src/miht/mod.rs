//! The engine `miht`: the Multi-Index Hybrid Trie, which the paper compares itself with (section 5).
//!
//! A (k, m)-MIHT is a B+ tree of order `m` over the first `k` bits of routes at least that long, a priority trie of the suffixes for each
//! of its keys, and one more priority trie for shorter routes. The paper uses (16, 16) for IPv4 and (32, 32) for IPv6. Nothing is
//! expanded, so every route is one node, and an IPv6 suffix reaches to bit 128. Lookups are scalar, as in the paper: it found that vectors
//! gain nothing in so short a search (section 5.2.2).

mod family;
pub mod params;
mod search;
mod table;
mod tree;
mod trie;
mod words;

use family::MihtFamily;
use fib::{EngineError, EngineOptions, EngineWriter, NextHopId};
use lpm_core::copies::Copies;
use lpm_core::engine::{Algorithm, CpuEngine};
use params::MihtParams;
use std::marker::PhantomData;
use table::MihtTable;
use words::IndexKey;

/// The engine's name on the command line.
pub const NAME: &str = "miht";

/// An empty engine.
///
/// # Errors
/// [`EngineError::Parameter`] for parameters that cannot be met, else as [`CpuEngine::new`].
pub fn make(options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    let params = MihtParams::from_options(options)?;
    Ok(match params.v6.k {
        ..=32 => Box::new(CpuEngine::<Miht<u32>>::new(params)?),
        33..=64 => Box::new(CpuEngine::<Miht<u64>>::new(params)?),
        _ => Box::new(CpuEngine::<Miht<u128>>::new(params)?),
    })
}

struct Miht<W>(PhantomData<W>);

impl<W: IndexKey> Algorithm for Miht<W> {
    type Params = MihtParams;
    type V4 = MihtFamily<u32, u32>;
    type V6 = MihtFamily<u128, W>;
    type Scratch = ();

    fn name(_: &MihtParams) -> &'static str {
        NAME
    }

    fn scratch() {}

    fn lookup_v4(
        params: &MihtParams,
        table: &Copies<MihtTable<u32, u32>>,
        (): &mut (),
        keys: &[u32],
        out: &mut [NextHopId],
    ) {
        search::answer(table.live(), params.descent, keys, out);
    }

    fn lookup_v6(
        params: &MihtParams,
        table: &Copies<MihtTable<u128, W>>,
        (): &mut (),
        keys: (&[u64], &[u64]),
        out: &mut [NextHopId],
    ) {
        search::answer(table.live(), params.descent, keys, out);
    }
}
