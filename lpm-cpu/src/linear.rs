//! The engine `linear`: a scan of all routes for each key. It is the smallest engine, a template for new ones that
//! `docs/add-an-engine.md` goes through, and of no use on a router.

use fib::{Details, EngineError, EngineOptions, EngineWriter, Isa, Key, NextHopId, Prefix};
use lpm_core::engine::{Algorithm, Budget, CpuEngine, FibTable, Routes};
use lpm_core::params::{Common, Parameter};
use std::sync::Arc;

/// The engine's name on the command line.
pub const NAME: &str = "linear";

/// The default limit of routes of a family: a scan of this many takes a few microseconds.
const ROUTES_MAX: u64 = 10_000;

#[derive(Clone, Debug)]
struct LinearParams {
    common: Common,
    routes_max: u64,
}

impl AsRef<Common> for LinearParams {
    fn as_ref(&self) -> &Common {
        &self.common
    }
}

/// An empty engine.
///
/// # Errors
/// [`EngineError::Parameter`] for any parameter except `routes`, a number above 0; else as [`CpuEngine::new`].
pub fn make(options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    let common = Common::new(options, Isa::Scalar.checked()?);
    let mut params = LinearParams { common, routes_max: ROUTES_MAX };
    for parameter in Parameter::all(options) {
        params.routes_max = match parameter.name {
            "routes" => parameter.within("routes", &(1..=u64::MAX), "wanted a number above 0")?,
            _ => return Err(parameter.refuse_name("engine linear has the parameter routes")),
        };
    }
    Ok(Box::new(CpuEngine::<Linear>::new(params)?))
}

/// The routes of a family, longest prefixes first.
type Scan<K> = Vec<(Prefix<K>, NextHopId)>;

/// The next hop of the first prefix that contains `key`.
fn scan<K: Key>(routes: &Scan<K>, key: K) -> NextHopId {
    routes.iter().find(|(prefix, _)| prefix.contains(key)).map_or(NextHopId::NONE, |(_, next_hop)| *next_hop)
}

/// The table of a family. It admits no changes, so each delta rebuilds it.
struct LinearTable<K: Key>(Arc<Scan<K>>);

impl<K: Key> FibTable<K> for LinearTable<K> {
    type Params = LinearParams;
    type Shared = Scan<K>;
    type Size = usize;

    fn size(
        routes: &[(Prefix<K>, NextHopId)],
        params: &LinearParams,
        _: Budget,
    ) -> Result<usize, EngineError> {
        let (used, limit) = (routes.len() as u64, params.routes_max);
        if used > limit {
            return Err(EngineError::Full { what: "routes that are scanned for each key", used, limit });
        }
        Ok(routes.len())
    }

    fn size_bytes(routes: &usize) -> u64 {
        (routes * size_of::<(Prefix<K>, NextHopId)>()) as u64
    }

    fn build(_: usize, mut routes: Routes<K>, _: &LinearParams) -> Result<Self, EngineError> {
        routes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Ok(Self(Arc::new(routes)))
    }

    fn shared(&self) -> &Arc<Scan<K>> {
        &self.0
    }

    fn bytes(&self) -> u64 {
        Self::size_bytes(&self.0.len())
    }

    fn writer_bytes(&self) -> u64 {
        0
    }

    fn details(&self) -> Details {
        Details::default()
    }
}

enum Linear {}

impl Algorithm for Linear {
    type Params = LinearParams;
    type V4 = LinearTable<u32>;
    type V6 = LinearTable<u128>;
    type Scratch = ();

    fn name(_: &LinearParams) -> &'static str {
        NAME
    }

    fn scratch() {}

    fn lookup_v4(_: &LinearParams, routes: &Scan<u32>, (): &mut (), keys: &[u32], out: &mut [NextHopId]) {
        for (key, next_hop) in keys.iter().zip(out) {
            *next_hop = scan(routes, *key);
        }
    }

    fn lookup_v6(
        _: &LinearParams,
        routes: &Scan<u128>,
        (): &mut (),
        (high, low): (&[u64], &[u64]),
        out: &mut [NextHopId],
    ) {
        for ((high, low), next_hop) in high.iter().zip(low).zip(out) {
            *next_hop = scan(routes, u128::from(*high) << 64 | u128::from(*low));
        }
    }
}
