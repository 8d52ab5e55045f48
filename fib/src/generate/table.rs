//! Making a table.

use super::lengths::shares;
use super::{GenerateError, TableSpec};
use crate::random::Seeded;
use crate::{Key, NextHopId, Prefix};
use rustc_hash::FxHashMap;

/// The routes that `spec` wants, sorted by prefix, each prefix once.
///
/// # Errors
/// [`GenerateError::Family`] when `K` is not of the spec's family; [`GenerateError::NextHops`] and
/// [`GenerateError::Routes`] when a number is out of range.
pub fn table<K: Key>(spec: &TableSpec) -> Result<Vec<(Prefix<K>, NextHopId)>, GenerateError> {
    spec.check(K::FAMILY)?;
    let mut rng = Seeded::new(spec.seed, 0);
    let mut routes: FxHashMap<Prefix<K>, NextHopId> = FxHashMap::default();
    let mut order: Vec<Prefix<K>> = Vec::new();
    for (len, count) in shares(K::FAMILY, spec.routes) {
        let mut made = 0;
        while made < count {
            let base = match rng.pick(&order) {
                Some(parent) if rng.percent(50) => {
                    let host = !K::mask(parent.len()).to_high_bits();
                    parent.address().to_high_bits() | rng.u128() & host
                }
                _ if K::BITS == 32 => u128::from(rng.between(1, 223)) << 120 | rng.u128() >> 8,
                _ => 0x2a << 120 | u128::from(rng.between(0, 15)) << 112 | rng.u128() >> 16,
            };
            let prefix = Prefix::truncating(K::from_high_bits(base), len);
            let id = 1 + u32::try_from(rng.below(spec.next_hops as usize)).unwrap_or(0);
            if let Ok(id) = NextHopId::new(id)
                && routes.insert(prefix, id).is_none()
            {
                order.push(prefix);
                made += 1;
            }
        }
    }
    let mut routes: Vec<_> = routes.into_iter().collect();
    routes.sort_unstable();
    Ok(routes)
}
