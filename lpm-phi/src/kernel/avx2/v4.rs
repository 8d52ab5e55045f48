//! IPv4: the direct array, then G2, then G1.

use super::probe_lines;
use crate::bloom::hash::{Hash32, filter_mask, h2, murmur32, scale};
use crate::bloom::v4::{self, DIRECT_BITS, G1_BELOW, G1_DENSE, G2_BELOW, Level4, Table4};
use crate::kernel::answer::answer_v4;
use crate::kernel::lists::{BloomLists, List4, Lists4, PIECE, Probes4};
use fib::NextHopId;
use std::arch::x86_64::*;
use std::sync::atomic::{AtomicU32, Ordering};

#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
pub(crate) fn lookup_v4(table: &Table4, lists: &mut BloomLists, keys: &[u32], out: &mut [NextHopId]) {
    match table.hash {
        Hash32::H2 => lookup_v4_by::<false>(table, &mut lists.v4, keys, out),
        Hash32::Murmur => lookup_v4_by::<true>(table, &mut lists.v4, keys, out),
    }
}

#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
fn lookup_v4_by<const MURMUR: bool>(table: &Table4, lists: &mut Lists4, keys: &[u32], out: &mut [NextHopId]) {
    let [level_g1, level_g2] = &table.levels;
    for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        direct(table, keys, out, lists);
        let Lists4 { in_g1, in_g2, g1, g2, .. } = lists;
        if in_g2.len > 0 {
            g2.len = 0;
            filter::<MURMUR, 0>(level_g2, in_g2, g2, Some(in_g1));
            probe(level_g2, g2);
            answer_v4::<true>(table, level_g2, g2, out, in_g1);
        }
        hash_all::<MURMUR>(level_g1, g1);
        filter::<MURMUR, 8>(level_g1, in_g1, g1, None);
        probe(level_g1, g1);
        answer_v4::<false>(table, level_g1, g1, out, in_g1);
    }
}

#[inline]
fn hash<const MURMUR: bool>(key: u32) -> u32 {
    if MURMUR { murmur32(key) } else { h2(key) }
}

/// The word of this hash's slot if its next-hop index is 1.
#[inline]
const fn tag_of(hash: u32) -> u32 {
    hash << 16 | 1
}

impl List4 {
    #[inline]
    fn add(&mut self, wanted: bool, pos: u32, key: u32) {
        let len = self.len.min(PIECE);
        (self.pos[len], self.key[len]) = (pos, key);
        self.len = len + usize::from(wanted);
    }
}

/// Stage 1: keys with longer prefixes below are listed; keys of blocks that are dense in G1 become probes at once.
#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
fn direct(table: &Table4, keys: &[u32], out: &mut [NextHopId], lists: &mut Lists4) {
    let Lists4 { entries, in_g1, in_g2, g1, .. } = lists;
    (in_g1.len, in_g2.len, g1.len) = (0, 0, 0);
    for ((key, answer), entry) in keys.iter().zip(&mut *out).zip(&mut entries.0) {
        *entry = table.direct[(key >> (32 - DIRECT_BITS)) as usize].load(Ordering::Acquire);
        *answer = NextHopId::from_answer(*entry & v4::HOP_MASK);
    }
    for (pos, (key, entry)) in (0_u32..).zip(keys.iter().zip(&entries.0)) {
        let below_g1 = (entry & G1_BELOW != 0) & (entry & G2_BELOW == 0);
        let dense = below_g1 & (entry & G1_DENSE != 0);
        let len = g1.len.min(PIECE);
        (g1.pos[len], g1.key[len]) = (pos, *key);
        g1.len = len + usize::from(dense);
        if below_g1 & !dense {
            in_g1.add(true, pos, *key);
        }
        if entry & G2_BELOW != 0 {
            in_g2.add(true, pos, *key);
        }
    }
}

#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
fn hash_all<const MURMUR: bool>(level: &Level4, probes: &mut Probes4) {
    let len = probes.len.min(PIECE);
    for ((key, line), tag) in probes.key[..len].iter().zip(&mut probes.line).zip(&mut probes.tag) {
        let hash = hash::<MURMUR>(key >> 8);
        *tag = tag_of(hash);
        *line = scale(hash, level.primary);
    }
}

/// Stage 2: keys that pass become probes; others are appended to `next`, if given. The level's keys omit an address's last `SHIFT` bits.
#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
fn filter<const MURMUR: bool, const SHIFT: u32>(
    level: &Level4,
    list: &List4,
    probes: &mut Probes4,
    mut next: Option<&mut List4>,
) {
    for (pos, key) in list.pos[..list.len].iter().zip(&list.key) {
        let hash = hash::<MURMUR>(key >> SHIFT);
        let mask = filter_mask(hash, level.filter_hashes);
        let word = level.filter[scale(hash, level.filter_words) as usize].load(Ordering::Acquire);
        let pass = word & mask == mask;
        let len = probes.len.min(PIECE);
        (probes.pos[len], probes.key[len], probes.tag[len]) = (*pos, *key, tag_of(hash));
        probes.line[len] = scale(hash, level.primary);
        probes.len = len + usize::from(pass);
        if let Some(next) = next.as_deref_mut() {
            next.add(!pass, *pos, *key);
        }
    }
}

/// Stage 3.
#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
fn probe(level: &Level4, probes: &mut Probes4) {
    let Probes4 { tag, line, found, len, .. } = probes;
    probe_lines::<_, _, { v4::LINE_WORDS }>(&level.lines, (line, tag), found, *len, |line, tag| {
        find(line, tag)
    });
}

/// The slot of `tag` in a line; the line's link if no slot has the tag.
#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn find(line: &[AtomicU32], tag: u32) -> u32 {
    assert_eq!(line.len(), v4::LINE_WORDS, "a line");
    let tags = _mm256_set1_epi32(tag.cast_signed());
    let last = _mm256_set1_epi32(0xfffe);
    let mut seen = [0_u32; v4::LINE_WORDS];
    let mut hits = 0;
    for half in 0..2 {
        // SAFETY: the line has 16 words, so eight from either half's start lie within it, and `seen` has as many. A slot is one aligned
        // 32-bit word, which the load reads whole; only the value loaded here is used.
        let slots = unsafe {
            let slots = _mm256_loadu_si256(line.as_ptr().add(half * 8).cast());
            _mm256_storeu_si256(seen.as_mut_ptr().add(half * 8).cast(), slots);
            slots
        };
        // Only slots of this tag exceed it by less than 65535: by their next-hop index less one.
        let index = _mm256_sub_epi32(slots, tags);
        let equal = _mm256_cmpeq_epi32(_mm256_min_epu32(index, last), index);
        hits |= _mm256_movemask_ps(_mm256_castsi256_ps(equal)).cast_unsigned() << (half * 8);
    }
    seen[(hits | 1 << v4::LINE_SLOTS).trailing_zeros() as usize]
}
