//! The scalar kernels: the plain algorithm, one key at a time. They load through [`Loads`], so that tests can stop a lookup between any
//! two loads. The vector kernels load a key's words in the same order.

use super::{BloomLists, Piece6};
use crate::bloom::hash::{filter_mask, scale};
use crate::bloom::v4::{self, DIRECT_BITS, G1_BELOW, G1_DENSE, G2_BELOW, Level4, Table4};
use crate::bloom::v6::{self, CHUNK, DEEP_BIT, MASK_SHIFT, Table6};
use fib::NextHopId;
use fib::loads::{Loads, Plain};
use std::sync::atomic::AtomicU32;

pub(super) fn lookup_v4(table: &Table4, _lists: &mut BloomLists, keys: &[u32], out: &mut [NextHopId]) {
    for (key, answer) in keys.iter().zip(out) {
        let Ok(next_hop) = lookup_v4_one(table, *key, &mut Plain);
        *answer = NextHopId::from_answer(next_hop);
    }
}

pub(crate) fn lookup_v4_one<L: Loads>(table: &Table4, key: u32, loads: &mut L) -> Result<u32, L::Stop> {
    let direct = loads.word(&table.direct[(key >> (32 - DIRECT_BITS)) as usize])?;
    let [g1, g2] = &table.levels;
    if direct & G2_BELOW != 0 {
        let hash = table.hash.hash(key);
        if passes_v4(g2, hash, loads)?
            && let Some(next_hop) = lookup_v4_level(table, g2, hash, loads)?
        {
            return Ok(next_hop);
        }
    }
    if direct & G1_BELOW != 0 {
        let hash = table.hash.hash(key >> 8);
        if (direct & G1_DENSE != 0 || passes_v4(g1, hash, loads)?)
            && let Some(next_hop) = lookup_v4_level(table, g1, hash, loads)?
        {
            return Ok(next_hop);
        }
    }
    Ok(direct & v4::HOP_MASK)
}

fn lookup_v4_level<L: Loads>(
    table: &Table4,
    level: &Level4,
    hash: u32,
    loads: &mut L,
) -> Result<Option<u32>, L::Stop> {
    let index = probe_v4(level, scale(hash, level.primary) as usize, hash, loads)?;
    next_hop(&table.hop_ids, index, loads)
}

fn next_hop<L: Loads>(hop_ids: &[AtomicU32], index: u32, loads: &mut L) -> Result<Option<u32>, L::Stop> {
    if index == 0 {
        return Ok(None);
    }
    loads.word(&hop_ids[index as usize]).map(Some)
}

fn passes_v4<L: Loads>(level: &Level4, hash: u32, loads: &mut L) -> Result<bool, L::Stop> {
    let mask = filter_mask(hash, level.filter_hashes);
    passes(&level.filter, scale(hash, level.filter_words) as usize, mask, loads)
}

fn passes<L: Loads>(filter: &[AtomicU32], word: usize, mask: u32, loads: &mut L) -> Result<bool, L::Stop> {
    loads.word(&filter[word]).map(|word| word & mask == mask)
}

/// The next-hop index of `hash` in `line` or its overflow lines; 0 if absent.
pub(super) fn probe_v4<L: Loads>(
    level: &Level4,
    mut line: usize,
    hash: u32,
    loads: &mut L,
) -> Result<u32, L::Stop> {
    loop {
        let words = &level.lines[line * v4::LINE_WORDS..(line + 1) * v4::LINE_WORDS];
        for slot in &words[..v4::LINE_SLOTS] {
            let slot = loads.word(slot)?;
            let index = slot & 0xffff;
            if slot >> 16 == hash & 0xffff && index != 0 {
                return Ok(index);
            }
        }
        match level.linked(loads.word(&words[v4::LINE_SLOTS])?) {
            None => return Ok(0),
            Some(next) => line = next,
        }
    }
}

pub(super) fn lookup_v6(table: &Table6, _lists: &mut BloomLists, batch: Piece6<'_>) {
    for ((hi, lo), answer) in batch.hi.iter().zip(batch.lo).zip(batch.out) {
        let Ok(next_hop) = lookup_v6_one(table, *hi, *lo, &mut Plain);
        *answer = NextHopId::from_answer(next_hop);
    }
}

pub(crate) fn lookup_v6_one<L: Loads>(
    table: &Table6,
    hi: u64,
    lo: u64,
    loads: &mut L,
) -> Result<u32, L::Stop> {
    let top = loads.word(&table.top[(hi >> 48) as usize])?;
    if top & CHUNK == 0 {
        return Ok(top & v6::HOP_MASK);
    }
    let low_bits = u32::from(table.direct_bits) - 16;
    let within = hi << 16 >> (64 - low_bits);
    let chunk = u64::from(top & v6::HOP_MASK);
    let at = usize::try_from(chunk << low_bits | within).unwrap_or(usize::MAX);
    let entry = loads.word(&table.chunks[at])?;
    let mut below = entry >> MASK_SHIFT;
    while below != 0 {
        let level = below.ilog2();
        below &= !(1 << level);
        let chunk = top & v6::HOP_MASK;
        if let Some(next_hop) = lookup_v6_level(table, level as usize, chunk, [hi, lo], loads)? {
            return Ok(next_hop);
        }
    }
    Ok(entry & v6::HOP_MASK)
}

fn lookup_v6_level<L: Loads>(
    table: &Table6,
    level: usize,
    chunk: u32,
    [hi, lo]: [u64; 2],
    loads: &mut L,
) -> Result<Option<u32>, L::Stop> {
    let key = v6::rest(hi) & table.levels.key_mask[level];
    let hash = table.hash.hash_64(key);
    let in_filter = v6::filter_hash(hash, chunk);
    let mask = filter_mask(in_filter, table.levels.filter_hashes);
    if !passes(&table.filter, v6::filter_word(&table.levels, level, in_filter), mask, loads)? {
        return Ok(None);
    }
    if 1 << level == DEEP_BIT {
        let next_hop = loads.load(table.deep.place(hi), || u64::from(table.deep.lookup(hi, lo).get()))?;
        return Ok(u32::try_from(next_hop).ok().filter(|next_hop| *next_hop != 0));
    }
    let index = probe_v6(table, table.line(level, hash, chunk), key, loads)?;
    next_hop(&table.hop_ids, index, loads)
}

/// The next-hop index of `key` in `line` or its overflow lines; 0 if absent.
pub(super) fn probe_v6<L: Loads>(
    table: &Table6,
    mut line: usize,
    key: u64,
    loads: &mut L,
) -> Result<u32, L::Stop> {
    loop {
        let words = &table.lines[line * v6::LINE_WORDS..(line + 1) * v6::LINE_WORDS];
        for slot in &words[..v6::LINE_SLOTS] {
            let slot = loads.wide_word(slot)?;
            let index = slot & v6::INDEX_MASK;
            if slot - index == key && index != 0 {
                return Ok(index as u32);
            }
        }
        match v6::linked(loads.wide_word(&words[v6::LINE_SLOTS])?) {
            None => return Ok(0),
            Some(next) => line = next,
        }
    }
}
