//! Choose: replaces the entry of each packet to a group by the entry of its path, selected by the flow hash.
//!
//! Part of the verdict, called only when the table has groups and the kernel has found a code. Headers are in the L1 cache, since parse has
//! read them. It is tested against the reference (`harness::reference`).

use super::batch::{Batch, Tagged};
use super::check::ETHERNET_BYTES;
use super::{EgressTable, Exit, flow};
use dpdk_ffi::simd::Kind;

/// Selects paths and replaces the entries and indices of packets. Returns whether packets remain that need care.
#[inline(never)]
pub(crate) fn choose(batch: &mut Batch, table: &EgressTable) -> bool {
    let Batch { packets, kinds, slots, tagged, indices, egress, ports, .. } = batch;
    let key = table.hash_key();
    let mut need_care = false;
    for at in (0..packets.len()).step_by(64) {
        let [mut groups, others] = packets.with_code(ports, at, Exit::Group.word());
        need_care |= others != 0;
        while groups != 0 {
            let place = at + groups.trailing_zeros() as usize;
            groups &= groups - 1;
            let data = packets.head(place);
            let plain = match kinds[place] {
                Kind::V4 => flow::hash_plain_v4(key, data),
                Kind::V6 => flow::hash_plain_v6(key, data),
                _ => None,
            };
            let hash = plain.unwrap_or_else(|| {
                let ip_at = if kinds[place] == Kind::Other { ip_at(tagged, place) } else { ETHERNET_BYTES };
                flow::hash(key, data.get(ip_at..).unwrap_or_default())
            });
            let (id, entry) = table.path(egress[place], hash);
            let port = Exit::for_length(entry, slots[place]);
            (indices[place], egress[place], ports[place]) = (id.get(), entry, port);
            need_care |= !Exit::is_port(port);
        }
    }
    need_care
}

/// `tagged` is sorted by place.
#[cold]
pub(super) fn ip_at(tagged: &[Tagged], place: usize) -> usize {
    let found = tagged.binary_search_by_key(&place, |tagged| usize::from(tagged.place));
    found.map_or(ETHERNET_BYTES, |found| usize::from(tagged[found].ip_at))
}
