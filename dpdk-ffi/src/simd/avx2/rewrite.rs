//! Rewrite with AVX2: frame bytes 0 to 31 of a packet in one vector.

use super::super::{Entry, Kind};
use crate::vector::LANES;
use std::arch::x86_64::*;

/// By [`Kind`], the addend of the 16-bit words of frame bytes 0 to 31. Words are little-endian and frames are big-endian, so the
/// checksum's addend has its bytes swapped; one's complement sums are the same in either byte order (RFC 1071 2 B). TTL and hop limit are
/// at least 2, so the byte above lends no borrow.
static HOP: [[u16; 16]; 3] = {
    let none = [0; 16];
    let (mut v4, mut v6) = (none, none);
    // TTL in the low byte; the checksum grows by 1, and by the end-around carry.
    (v4[11], v4[12]) = (0_u16.wrapping_sub(1), 1);
    // The hop limit in the high byte.
    v6[10] = 0_u16.wrapping_sub(0x100);
    [none, v4, v6]
};

/// The largest value of each word without a carry; only the IPv4 checksum, to which [`HOP`] adds 1, can carry.
static LIMIT: [u16; 16] = {
    let mut limit = [u16::MAX; 16];
    limit[12] = 0xfffd;
    limit
};

/// A load, a blend, two additions and a store a packet, without a branch. While 16 packets are of one kind, the addend stays in registers.
///
/// # Safety
/// As for `scalar::rewrite`; the CPU must have AVX2; `kinds` and `entries` must have as many entries as `heads`.
#[target_feature(enable = "avx2")]
pub(in super::super) unsafe fn rewrite(heads: &[*mut u8], kinds: &[Kind], entries: &[Entry]) {
    let (groups, rest) = heads.as_chunks::<LANES>();
    for (group, heads) in groups.iter().enumerate() {
        let at = group * LANES;
        let first = kinds[at];
        // SAFETY: `kinds` has 16 entries from `at` on (the caller's contract).
        let group_kinds = unsafe { _mm_loadu_si128(kinds.as_ptr().add(at).cast()) };
        let equal = _mm_cmpeq_epi8(group_kinds, _mm_set1_epi8(first as i8));
        let is_one_kind = _mm_movemask_epi8(equal) == 0xffff;
        for (k, head) in heads.iter().enumerate() {
            let kind = if is_one_kind { first } else { kinds[at + k] };
            // SAFETY: by the caller's contract.
            unsafe { rewrite_one(*head, kind, entries.as_ptr().add(at + k)) };
        }
    }
    for (k, head) in rest.iter().enumerate() {
        let i = groups.len() * LANES + k;
        // SAFETY: by the caller's contract.
        unsafe { rewrite_one(*head, kinds[i], entries.as_ptr().add(i)) };
    }
}

/// # Safety
/// `head` must be a cached pointer of a packet that is borrowed uniquely, and `entry` be readable.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn rewrite_one(head: *mut u8, kind: Kind, entry: *const Entry) {
    // SAFETY: the packet's buffer has these bytes from its data's start on, borrowed uniquely; the other pointers have as many bytes as
    // are loaded.
    unsafe {
        let old = _mm256_loadu_si256(head.cast());
        let add = _mm256_loadu_si256(HOP[kind as usize].as_ptr().cast());
        // At most the checksum's addend 1, and 0 in other kinds.
        let carry = _mm256_subs_epu16(old, _mm256_loadu_si256(LIMIT.as_ptr().cast()));
        let carry = _mm256_min_epu16(carry, add);
        let macs = _mm_load_si128(entry.cast());
        let new = _mm256_blend_epi32::<7>(old, _mm256_castsi128_si256(macs));
        _mm256_storeu_si256(head.cast(), _mm256_add_epi16(_mm256_add_epi16(new, add), carry));
    }
}
