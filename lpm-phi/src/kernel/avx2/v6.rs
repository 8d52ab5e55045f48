//! IPv6: the direct part, then for each key its levels, deepest first.

use super::probe_lines;
use crate::bloom::hash::{Hash32, filter_mask, h2_64};
use crate::bloom::v6::{self, CHUNK, LEVELS, MASK_SHIFT, Table6};
use crate::kernel::Piece6;
use crate::kernel::answer::answer_v6;
use crate::kernel::lists::{
    AHEAD, BloomLists, CHUNK_SHIFT, List6, Lists6, PIECE, Probes6, chunk_of, position_of,
};
use fib::NextHopId;
use lpm_core::prefetch;
use std::arch::x86_64::*;
use std::sync::atomic::{AtomicU64, Ordering};

#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
pub(crate) fn lookup_v6(table: &Table6, lists: &mut BloomLists, batch: Piece6<'_>) {
    match table.hash {
        Hash32::H2 => lookup_v6_by::<false>(table, &mut lists.v6, batch),
        Hash32::Murmur => lookup_v6_by::<true>(table, &mut lists.v6, batch),
    }
}

#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
fn lookup_v6_by<const MURMUR: bool>(table: &Table6, lists: &mut Lists6, batch: Piece6<'_>) {
    for mut piece in batch.pieces(PIECE) {
        direct(table, &mut piece, lists);
        let Lists6 { lists: [now, next], probes, .. } = lists;
        let (mut now, mut next) = (now, next);
        while now.len > 0 {
            next.len = 0;
            filter::<MURMUR>(table, &mut piece, now, probes, next);
            probe(table, probes);
            answer_v6(table, &mut piece, probes, next);
            std::mem::swap(&mut now, &mut next);
        }
    }
}

impl List6 {
    #[inline]
    fn add(&mut self, wanted: bool, item: u32, key: u64) {
        let len = self.len.min(PIECE);
        (self.item[len], self.key[len]) = (item, key);
        self.len = len + usize::from(wanted);
    }
}

/// Stage 1: answers every key from its top entry, or from its chunk entry, which is prefetched. Keys with levels below are listed.
#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
fn direct(table: &Table6, piece: &mut Piece6<'_>, lists: &mut Lists6) {
    let Lists6 { chunks, lists: [list, chunked], .. } = lists;
    let low_bits = u32::from(table.direct_bits) - 16;
    (chunked.len, list.len) = (0, 0);
    for (group, (keys, answers)) in (0_u32..).zip(piece.hi.chunks(16).zip(piece.out.chunks_mut(16))) {
        let mut heads = 0;
        for ((key, answer), head) in keys.iter().zip(answers).zip(&mut chunks.entries) {
            *head = table.top[(key >> 48) as usize].load(Ordering::Acquire);
            *answer = NextHopId::from_answer(*head & v6::HOP_MASK);
            heads |= *head;
        }
        if heads & CHUNK == 0 {
            continue; // many top entries have no route longer than /16
        }
        for (pos, (key, head)) in (group * 16..).zip(keys.iter().zip(&chunks.entries)) {
            let within = key << 16 >> (64 - low_bits);
            #[expect(clippy::cast_possible_truncation, reason = "chunks have at most 2^24 entries in all")]
            let index = (u64::from(head & v6::HOP_MASK) << low_bits | within) as u32;
            chunks.index[chunked.len.min(PIECE)] = index;
            chunked.add(head & CHUNK != 0, head << CHUNK_SHIFT | pos, v6::rest(*key));
        }
    }
    let ask = |index: u32| table.chunks.get(index as usize).map_or((), |words| prefetch::line(words));
    chunks.index[..AHEAD].iter().for_each(|index| ask(*index));
    for at in 0..chunked.len.min(PIECE) {
        ask(chunks.index[at + AHEAD]);
        let entry = table.chunks[chunks.index[at] as usize].load(Ordering::Acquire);
        let item = chunked.item[at] & ((1 << MASK_SHIFT) - 1);
        piece.out[position_of(item)] = NextHopId::from_answer(entry & v6::HOP_MASK);
        let below = entry >> MASK_SHIFT;
        list.add(below != 0, below << MASK_SHIFT | item, chunked.key[at]);
    }
}

/// Stage 2: tests each key at its deepest level and clears that level. Keys that pass become probes; others with a level left join `next`.
#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
fn filter<const MURMUR: bool>(
    table: &Table6,
    piece: &mut Piece6<'_>,
    list: &List6,
    probes: &mut Probes6,
    next: &mut List6,
) {
    probes.len = 0;
    for (item, address) in list.item[..list.len].iter().zip(&list.key) {
        let deepest = item.ilog2();
        let level = (deepest - MASK_SHIFT) as usize;
        let item = item & !(1 << deepest);
        let key = address & table.levels.key_mask[level];
        let hash = if MURMUR { Hash32::Murmur.hash_64(key) } else { h2_64(key) };
        let in_filter = v6::filter_hash(hash, chunk_of(item));
        let mask = filter_mask(in_filter, table.levels.filter_hashes);
        let word = table.filter[v6::filter_word(&table.levels, level, in_filter)].load(Ordering::Acquire);
        let mut pass = word & mask == mask;
        if pass & (level == LEVELS) {
            let pos = position_of(item);
            let next_hop = table.deep.lookup(piece.hi[pos], piece.lo[pos]);
            if !next_hop.is_none() {
                piece.out[pos] = next_hop;
                continue;
            }
            pass = false;
        }
        let len = probes.len.min(PIECE);
        (probes.item[len], probes.tag[len]) = (item, key | 1);
        probes.line[len] = line_of(table, level, hash, chunk_of(item));
        probes.len = len + usize::from(pass);
        next.add(!pass & (item >> MASK_SHIFT != 0), item, *address);
    }
}

/// The line of a key of `level`. Meaningless for the level past /64, which has no lines.
#[inline]
fn line_of(table: &Table6, level: usize, hash: u32, chunk: u32) -> u32 {
    table.levels.line_start[level] + crate::bloom::hash::scale(hash, table.levels.lines[level]) + chunk
}

/// Stage 3.
#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
fn probe(table: &Table6, probes: &mut Probes6) {
    let Probes6 { tag, line, found, len, .. } = probes;
    probe_lines::<_, _, { v6::LINE_WORDS }>(&table.lines, (line, tag), found, *len, |line, tag| {
        find(line, tag)
    });
}

/// The lower half of the slot of `tag` in a line; the lower half of the line's link if no slot has the tag.
#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn find(line: &[AtomicU64], tag: u64) -> u32 {
    assert_eq!(line.len(), v6::LINE_WORDS, "a line");
    let key = _mm256_set1_epi64x((tag - 1).cast_signed());
    let index_mask = _mm256_set1_epi64x(v6::INDEX_MASK.cast_signed());
    let zero = _mm256_setzero_si256();
    let mut seen = [0_u64; v6::LINE_WORDS];
    let mut hits = 0;
    for half in 0..2 {
        // SAFETY: the line has 8 words, so four from either half's start lie within it, and `seen` has as many. A slot is one aligned
        // 64-bit word, which the load reads whole; only the value loaded here is used.
        let slots = unsafe {
            let slots = _mm256_loadu_si256(line.as_ptr().add(half * 4).cast());
            _mm256_storeu_si256(seen.as_mut_ptr().add(half * 4).cast(), slots);
            slots
        };
        let equal = _mm256_cmpeq_epi64(_mm256_andnot_si256(index_mask, slots), key);
        let used = _mm256_andnot_si256(_mm256_cmpeq_epi64(slots, zero), equal);
        hits |= _mm256_movemask_pd(_mm256_castsi256_pd(used)).cast_unsigned() << (half * 4);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the lower half distinguishes a slot, a link and 0")]
    let found = seen[(hits | 1 << v6::LINE_SLOTS).trailing_zeros() as usize] as u32;
    found
}
