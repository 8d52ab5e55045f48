//! Grouping by egress port with one pointer a port: for many ports, and for CPUs without AVX-512.

use crate::burst::{Burst, DROP};
use crate::mbuf::Raw;

pub(super) const PORTS_MAX: usize = 64;

/// [`scalar::scatter`](super::scalar::scatter) without a check of room, length or bounds for each packet.
///
/// # Safety
/// There must be at most [`PORTS_MAX`] targets, and each burst must have room for all packets.
pub(super) unsafe fn scatter(
    burst: &mut Burst,
    to: &[u16],
    outs: &mut [Burst],
    dropped: &mut Burst,
) -> usize {
    let packets = burst.give_all();
    let mut ends = [std::ptr::null_mut::<Raw>(); PORTS_MAX];
    for (end, out) in ends.iter_mut().zip(&mut *outs) {
        *end = out.free_part().cast();
    }
    let starts = ends;
    let ports = &mut ends[..outs.len()];
    for (i, &target) in to.iter().enumerate() {
        // SAFETY: an entry from `i` on is not overwritten yet, since fewer packets stay than were read.
        let packet = unsafe { *packets.add(i) };
        if let Some(end) = ports.get_mut(usize::from(target)) {
            // SAFETY: the burst has room for all packets.
            unsafe {
                end.write(packet);
                *end = end.add(1);
            }
        } else {
            // Both have the room.
            let _ = if target == DROP { dropped.put(packet) } else { burst.put(packet) };
        }
    }
    for ((start, end), out) in starts.into_iter().zip(ends).zip(outs) {
        // SAFETY: this many packets were written after the burst's packets, and `burst` no longer owns them.
        unsafe { out.grow(end.offset_from_unsigned(start)) };
    }
    burst.len()
}
