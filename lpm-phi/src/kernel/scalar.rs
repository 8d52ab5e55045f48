//! The scalar kernels: the algorithm as it reads, one key at a time. Never tuned.

use super::Lists;
use crate::bloom::hash::{filter_mask, scale};
use crate::bloom::v4::{self, DIRECT_BITS, G1_BELOW, G1_DENSE, G2_BELOW, Level4, Table4};
use crate::bloom::v6::{self, CHUNK, DEEP_BIT, MASK_SHIFT, Table6};
use fib::NextHopId;
use std::sync::atomic::{AtomicU32, Ordering};

pub(super) fn lookup_v4(table: &Table4, _lists: &mut Lists, keys: &[u32], out: &mut [NextHopId]) {
    for (key, answer) in keys.iter().zip(out) {
        *answer = NextHopId::from_answer(lookup_v4_one(table, *key));
    }
}

fn lookup_v4_one(table: &Table4, key: u32) -> u32 {
    let direct = table.direct[(key >> (32 - DIRECT_BITS)) as usize].load(Ordering::Acquire);
    let [g1, g2] = &table.levels;
    if direct & G2_BELOW != 0 {
        let hash = table.hash.hash(key);
        if passes_v4(g2, hash)
            && let Some(next_hop) = lookup_v4_level(table, g2, hash)
        {
            return next_hop;
        }
    }
    if direct & G1_BELOW != 0 {
        let hash = table.hash.hash(key >> 8);
        if (direct & G1_DENSE != 0 || passes_v4(g1, hash))
            && let Some(next_hop) = lookup_v4_level(table, g1, hash)
        {
            return next_hop;
        }
    }
    direct & v4::HOP_MASK
}

fn lookup_v4_level(table: &Table4, level: &Level4, hash: u32) -> Option<u32> {
    let index = probe_v4(level, scale(hash, level.primary) as usize, hash);
    (index != 0).then(|| table.hop_ids[index as usize].load(Ordering::Relaxed))
}

fn passes_v4(level: &Level4, hash: u32) -> bool {
    let mask = filter_mask(hash, level.filter_hashes);
    passes(&level.filter, scale(hash, level.filter_words) as usize, mask)
}

fn passes(filter: &[AtomicU32], word: usize, mask: u32) -> bool {
    filter[word].load(Ordering::Acquire) & mask == mask
}

/// The next-hop index of `hash` in `line` or the overflow lines behind it; 0 when it is in none.
pub(super) fn probe_v4(level: &Level4, mut line: usize, hash: u32) -> u32 {
    loop {
        let words = &level.lines[line * v4::LINE_WORDS..(line + 1) * v4::LINE_WORDS];
        for slot in &words[..v4::LINE_SLOTS] {
            let slot = slot.load(Ordering::Acquire);
            let index = slot & 0xffff;
            if slot >> 16 == hash & 0xffff && index != 0 {
                return index;
            }
        }
        match level.linked(words[v4::LINE_SLOTS].load(Ordering::Acquire)) {
            None => return 0,
            Some(next) => line = next,
        }
    }
}

pub(super) fn lookup_v6(table: &Table6, _lists: &mut Lists, hi: &[u64], lo: &[u64], out: &mut [NextHopId]) {
    for ((hi, lo), answer) in hi.iter().zip(lo).zip(out) {
        *answer = NextHopId::from_answer(lookup_v6_one(table, *hi, *lo));
    }
}

fn lookup_v6_one(table: &Table6, hi: u64, lo: u64) -> u32 {
    let top = table.top[(hi >> 48) as usize].load(Ordering::Acquire);
    if top & CHUNK == 0 {
        return top & v6::HOP_MASK;
    }
    let low_bits = u32::from(table.direct_bits) - 16;
    let within = hi << 16 >> (64 - low_bits);
    let chunk = u64::from(top & v6::HOP_MASK);
    let at = usize::try_from(chunk << low_bits | within).unwrap_or(usize::MAX);
    let entry = table.chunks[at].load(Ordering::Acquire);
    let mut below = entry >> MASK_SHIFT;
    while below != 0 {
        let level = below.ilog2();
        below &= !(1 << level);
        if let Some(next_hop) = lookup_v6_level(table, level as usize, top & v6::HOP_MASK, [hi, lo]) {
            return next_hop;
        }
    }
    entry & v6::HOP_MASK
}

fn lookup_v6_level(table: &Table6, level: usize, chunk: u32, [hi, lo]: [u64; 2]) -> Option<u32> {
    let key = v6::rest(hi) & table.levels.key_mask[level];
    let hash = table.hash.hash_64(key);
    let in_filter = v6::filter_hash(hash, chunk);
    let mask = filter_mask(in_filter, table.levels.filter_hashes);
    if !passes(&table.filter, v6::filter_word(&table.levels, level, in_filter), mask) {
        return None;
    }
    if 1 << level == DEEP_BIT {
        let next_hop = table.deep.lookup(hi, lo);
        return (!next_hop.is_none()).then(|| next_hop.get());
    }
    let index = probe_v6(table, table.line(level, hash, chunk), key);
    (index != 0).then(|| table.hop_ids[index as usize].load(Ordering::Relaxed))
}

/// The next-hop index of `key` in `line` or the overflow lines behind it; 0 when it is in none.
pub(super) fn probe_v6(table: &Table6, mut line: usize, key: u64) -> u32 {
    loop {
        let words = &table.lines[line * v6::LINE_WORDS..(line + 1) * v6::LINE_WORDS];
        for slot in &words[..v6::LINE_SLOTS] {
            let slot = slot.load(Ordering::Acquire);
            let index = slot & v6::INDEX_MASK;
            if slot - index == key && index != 0 {
                return index as u32;
            }
        }
        match v6::linked(words[v6::LINE_SLOTS].load(Ordering::Acquire)) {
            None => return 0,
            Some(next) => line = next,
        }
    }
}
