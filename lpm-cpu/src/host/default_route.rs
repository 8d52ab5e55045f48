//! The default route apart from the other routes.

use fib::{Change, Key, NextHopId, Prefix};

pub(super) fn split_routes<K: Key>(
    routes: &[(Prefix<K>, NextHopId)],
) -> (NextHopId, &[(Prefix<K>, NextHopId)]) {
    match routes {
        [(prefix, next_hop), others @ ..] if prefix.len() == 0 => (*next_hop, others),
        _ => (NextHopId::NONE, routes),
    }
}

/// Splits the change of the default route from the other changes of a sorted list.
pub(super) fn split_changes<K: Key>(changes: &[Change<K>]) -> (Option<Change<K>>, &[Change<K>]) {
    match changes {
        [change, others @ ..] if change.prefix.len() == 0 => (Some(*change), others),
        _ => (None, changes),
    }
}
