//! The passes in plain Rust, which define the result of each kernel.

use super::rules::{
    checksum_after_hop, checksum_is_right, lengths_agree_v4, lengths_agree_v6, may_hop, surely_unicast_v6,
    unicast_v4,
};
use super::{Entry, IP_AT, IPV4_BYTES, IPV6_BYTES, Indexed, Kind, LengthOrMark, Parsed, START_BYTES, Tally};
use crate::burst::{Burst, DROP};
use std::ops::Range;

/// # Safety
/// The pointers of the packets of `range` must be cached.
#[expect(clippy::cast_possible_truncation, reason = "fields of a word, and indices below 65,536")]
pub(super) unsafe fn parse(
    heads: &[*mut u8],
    lengths: &[u64],
    range: Range<usize>,
    out: &mut Parsed<'_>,
) -> Tally {
    let mut tally = Tally::default();
    for i in range {
        let (frame_bytes, head_bytes) = (lengths[i] as u32, (lengths[i] >> 32) as u16);
        tally.bytes += u64::from(frame_bytes);
        out.kinds[i] = Kind::Other;
        if usize::from(head_bytes) < START_BYTES {
            continue;
        }
        // SAFETY: a cached pointer, and its segment has that many bytes.
        let start = unsafe { &*heads[i].cast::<[u8; START_BYTES]>() };
        let be16 = |at: usize| u16::from_be_bytes([start[at], start[at + 1]]);
        let be32 = |at: usize| u32::from(be16(at)) << 16 | u32::from(be16(at + 2));
        let be64 = |at: usize| u64::from(be32(at)) << 32 | u64::from(be32(at + 4));
        let there = frame_bytes.wrapping_sub(IP_AT);
        match (be16(12), start[14]) {
            (0x0800, 0x45) => {
                let ip_bytes = u32::from(be16(16));
                let sum = (14..34).step_by(2).map(|at| u32::from(be16(at))).sum();
                let is_good = lengths_agree_v4(IPV4_BYTES, ip_bytes, there)
                    & checksum_is_right(sum)
                    & may_hop(start[22])
                    & unicast_v4(be32(26))
                    & unicast_v4(be32(30));
                if is_good {
                    (out.kinds[i], out.lengths[i]) = (Kind::V4, LengthOrMark::length(ip_bytes));
                    (out.v4.keys[out.v4.len], out.v4.places[out.v4.len]) = (be32(30), i as u16);
                    out.v4.len += 1;
                    tally.passed += 1;
                }
            }
            (0x86dd, 0x60..=0x6f) => {
                let ip_bytes = IPV6_BYTES + u32::from(be16(18));
                let is_good = lengths_agree_v6(ip_bytes, there)
                    & may_hop(start[21])
                    & surely_unicast_v6(be64(22))
                    & surely_unicast_v6(be64(38));
                if is_good {
                    (out.kinds[i], out.lengths[i]) = (Kind::V6, LengthOrMark::length(ip_bytes));
                    (out.v6.his[out.v6.len], out.v6.los[out.v6.len]) = (be64(38), be64(46));
                    out.v6.places[out.v6.len] = i as u16;
                    out.v6.len += 1;
                    tally.passed += 1;
                }
            }
            _ => {}
        }
    }
    tally
}

pub(super) fn with_code(ports: &[u16], range: Range<usize>, code: u16) -> [u64; 2] {
    let mut found = [0; 2];
    for (place, port) in ports.get(range).unwrap_or_default().iter().enumerate() {
        found[0] |= u64::from(*port == code) << place;
        found[1] |= u64::from(*port >= Entry::CODES && *port != code) << place;
    }
    found
}

pub(super) fn merge<T: Copy + Into<u32>>(kinds: &[Kind], lanes: [&[T]; 2], words: &mut [u32]) {
    let [mut v4, mut v6] = lanes.map(|lane| lane.iter().copied().map(T::into));
    for (kind, word) in kinds.iter().zip(words) {
        let next = match kind {
            Kind::Other => None,
            Kind::V4 => v4.next(),
            Kind::V6 => v6.next(),
        };
        *word = next.unwrap_or(0);
    }
}

pub(super) fn verdict(
    count: usize,
    table: &[Entry],
    inputs: Indexed<'_>,
    entries: &mut [Entry],
    ports: &mut [u16],
) -> bool {
    let mut any = false;
    let outs = entries.iter_mut().zip(&mut ports[..count]);
    for ((index, length), (entry, port)) in inputs.indices.iter().zip(inputs.lengths).zip(outs) {
        let found = table.get(*index as usize);
        *entry = *found.unwrap_or(&table[0]);
        *port = if length.is_above(entry.mtu_bytes) { entry.port.max(Entry::TOO_LONG) } else { entry.port };
        if found.is_none() {
            *port = DROP;
        }
        any |= *port >= Entry::CODES;
    }
    any
}

/// # Safety
/// The pointers must be cached, of packets that are borrowed uniquely.
pub(super) unsafe fn rewrite(heads: &[*mut u8], kinds: &[Kind], entries: &[Entry]) {
    for ((&head, kind), entry) in heads.iter().zip(kinds).zip(entries) {
        // SAFETY: the packet's buffer has these bytes from its data's start on, borrowed uniquely.
        let start = unsafe { &mut *head.cast::<[u8; START_BYTES]>() };
        start[..12].copy_from_slice(&entry.macs);
        match kind {
            Kind::Other => {}
            Kind::V4 => {
                start[22] = start[22].wrapping_sub(1);
                [start[24], start[25]] = checksum_after_hop([start[24], start[25]]);
            }
            Kind::V6 => start[21] = start[21].wrapping_sub(1),
        }
    }
}

pub(super) fn scatter(burst: &mut Burst, to: &[u16], outs: &mut [Burst], dropped: &mut Burst) -> usize {
    burst.distribute(to, |target, packet| {
        let out = match outs.get_mut(usize::from(target)) {
            Some(out) => out,
            None if target == DROP => &mut *dropped,
            None => return false,
        };
        out.put(packet)
    })
}
