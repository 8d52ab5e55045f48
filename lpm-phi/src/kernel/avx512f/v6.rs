//! IPv6: the direct part, then for each key its levels, deepest first.

use super::append_words;
use super::hash::hash_64_x16;
use crate::bloom::hash::{Hash32, filter_mask_of};
use crate::bloom::v6::{self, CHUNK, LEVELS, LevelTable, MASK_SHIFT, Table6};
use crate::kernel::Piece6;
use crate::kernel::answer::{answer_all_v6, answer_v6};
use crate::kernel::lists::{
    AHEAD, BloomLists, CHUNK_SHIFT, Chunks6, LIST, List6, Lists6, PIECE, Probes6, position_of,
};
use lpm_core::lanes::{Avx512f, Lanes, Words};
use lpm_core::prefetch;
use std::arch::x86_64::*;
use std::sync::atomic::Ordering;

/// Up to this many keys are searched at all of their levels at once, with a probe for each.
const FEW: usize = 32;
const _: () = assert!(FEW * LEVELS <= PIECE, "lists hold the probes");

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(crate) fn lookup_v6(table: &Table6, lists: &mut BloomLists, batch: Piece6<'_>) {
    match table.hash {
        Hash32::H2 => lookup_v6_by::<false>(table, lists, batch),
        Hash32::Murmur => lookup_v6_by::<true>(table, lists, batch),
    }
}

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
fn lookup_v6_by<const MURMUR: bool>(table: &Table6, lists: &mut BloomLists, batch: Piece6<'_>) {
    for mut piece in batch.pieces(PIECE) {
        start_v6(table, &mut lists.v6, &mut piece);
        let is_all = list_v6::<MURMUR>(table, &mut lists.v6, &mut piece);
        finish_v6::<MURMUR>(table, &mut lists.v6, &mut piece, is_all);
    }
}

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
pub(super) fn start_v6(table: &Table6, lists: &mut Lists6, piece: &mut Piece6<'_>) {
    prefetch::piece(piece.hi, piece.out);
    top_v6(table, piece, &mut lists.chunks);
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn ask_chunks_v6(table: &Table6, lists: &Lists6, keys: usize) {
    let Chunks6 { index, lanes, .. } = &lists.chunks;
    for (indices, chunked) in index.as_chunks::<16>().0.iter().zip(&lanes[..keys.div_ceil(16)]) {
        if *chunked != 0 {
            for index in indices {
                prefetch::line(table.chunks.as_ptr().wrapping_add(*index as usize));
            }
        }
    }
}

/// Stage 1 for IPv6, second step, and stage 2 of the first round. Returns the result of [`ask_v6`].
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
pub(super) fn list_v6<const MURMUR: bool>(
    table: &Table6,
    lists: &mut Lists6,
    piece: &mut Piece6<'_>,
) -> bool {
    let Lists6 { chunks, lists: [now, next], probes } = lists;
    chunk_v6(table, piece, chunks, now);
    ask_v6::<MURMUR>(table, piece, FEW, (now, next), probes)
}

/// The rounds of a piece, from stage 3 of the first one on; `is_all` is the result of [`ask_v6`].
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
pub(super) fn finish_v6<const MURMUR: bool>(
    table: &Table6,
    lists: &mut Lists6,
    piece: &mut Piece6<'_>,
    mut is_all: bool,
) {
    let Lists6 { lists: [now, next], probes, .. } = lists;
    let (mut now, mut next, mut few) = (now, next, FEW);
    while now.len > 0 {
        probe_v6(table, probes);
        if !is_all {
            answer_v6(table, piece, probes, next);
            std::mem::swap(&mut now, &mut next);
        } else if answer_all_v6(table, piece, probes) {
            break;
        } else {
            few = 0; // a full line: the same keys again, level by level
        }
        is_all = ask_v6::<MURMUR>(table, piece, few, (now, next), probes);
    }
}

/// Stage 2: makes the probes of a round, and prefetches the first [`AHEAD`] lines. Returns whether they cover all levels of the keys in
/// `now`, at most `few`; otherwise keys that did not pass their filter are in `next`.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn ask_v6<const MURMUR: bool>(
    table: &Table6,
    piece: &mut Piece6<'_>,
    few: usize,
    (now, next): (&List6, &mut List6),
    probes: &mut Probes6,
) -> bool {
    if now.len == 0 {
        return false;
    }
    let is_all = now.len <= few && all_levels_v6::<MURMUR>(table, now, probes);
    if !is_all {
        next.len = 0;
        filter_v6::<MURMUR>(table, piece, now, probes, next);
    }
    for line in &probes.line[..AHEAD] {
        prefetch::line(table.lines.as_ptr().wrapping_add(*line as usize * v6::LINE_WORDS));
    }
    is_all
}

/// Stage 1 for IPv6, first step: top entries answer the keys that have no chunk.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn top_v6(table: &Table6, piece: &mut Piece6<'_>, chunks: &mut Chunks6) {
    let lanes = Avx512f::new();
    let hop_mask = _mm512_set1_epi32(v6::HOP_MASK.cast_signed());
    let chunk_flag = _mm512_set1_epi32(CHUNK.cast_signed());
    let low_bits = u32::from(table.direct_bits) - 16;
    let low_count = _mm_cvtsi32_si128(low_bits.cast_signed());
    let rest_count = _mm_cvtsi32_si128(32 - low_bits.cast_signed());
    let top = table.top.as_ptr().cast();
    for at in (0..piece.hi.len().min(PIECE)).step_by(16) {
        let live = lanes.first(piece.hi.len() - at);
        // SAFETY: `live` holds lanes within `hi`.
        let [first, second] = unsafe { lanes.load_wide(piece.hi.as_ptr().add(at), live) };
        let key = lanes.odd(first, second);
        let top_index = _mm512_srli_epi32::<16>(key);
        // SAFETY: 16-bit indices into 2^16 entries. `live` holds lanes within `out`; a `NextHopId` is a `u32`.
        let head = unsafe {
            let head = lanes.gather::<4>(top, top_index, live, lanes.splat(0));
            let answers = piece.out.as_mut_ptr().add(at).cast::<i32>();
            if live == 0xffff {
                _mm512_storeu_si512(answers.cast(), _mm512_and_si512(head, hop_mask));
            } else {
                _mm512_mask_storeu_epi32(answers, live, _mm512_and_si512(head, hop_mask));
            }
            head
        };
        let chunked = _mm512_test_epi32_mask(head, chunk_flag);
        chunks.lanes[at / 16] = chunked;
        if chunked != 0 {
            let within = _mm512_srl_epi32(_mm512_slli_epi32::<16>(key), rest_count);
            let first = _mm512_sll_epi32(_mm512_and_si512(head, hop_mask), low_count);
            let index = _mm512_maskz_or_epi32(chunked, first, within);
            // SAFETY: `at` is below `PIECE`, so 16 words from it lie within the array.
            unsafe { _mm512_storeu_si512(chunks.index.as_mut_ptr().add(at).cast(), index) };
        }
    }
}

/// Stage 1 for IPv6, second step: chunk entries answer the other keys. Keys with levels below are listed.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn chunk_v6(table: &Table6, piece: &mut Piece6<'_>, chunks: &mut Chunks6, list: &mut List6) {
    let lanes = Avx512f::new();
    let hop_mask = _mm512_set1_epi32(v6::HOP_MASK.cast_signed());
    let below_mask = _mm512_set1_epi32((0xff_u32 << MASK_SHIFT).cast_signed());
    let iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let low_count = _mm_cvtsi32_si128(i32::from(table.direct_bits) - 16);
    let start = table.chunks.as_ptr();
    let keys = piece.hi.len().min(PIECE);
    let groups = chunks.index.as_chunks::<16>().0.iter().zip(chunks.entries.as_chunks_mut::<16>().0);
    for ((indices, entries), chunked) in groups.zip(&chunks.lanes[..keys.div_ceil(16)]) {
        if *chunked != 0 {
            for (index, entry) in indices.iter().zip(entries) {
                // SAFETY: `top_v6` made each index: within an existing chunk, or 0 for a key without one; a chunk exists, since one of
                // these sixteen keys has a chunk.
                *entry = unsafe { (*start.add(*index as usize)).load(Ordering::Acquire) };
            }
        }
    }
    list.len = 0;
    for at in (0..keys).step_by(16) {
        let chunked = chunks.lanes[at / 16];
        if chunked == 0 {
            continue;
        }
        // SAFETY: `at` is below `PIECE`, so 16 words from it lie within the array. The lanes lie within `out`.
        let entry = unsafe {
            let entry = _mm512_load_si512(chunks.entries.as_ptr().add(at).cast());
            let answers = piece.out.as_mut_ptr().add(at).cast::<i32>();
            if chunked == 0xffff {
                _mm512_storeu_si512(answers.cast(), _mm512_and_si512(entry, hop_mask));
            } else {
                _mm512_mask_storeu_epi32(answers, chunked, _mm512_and_si512(entry, hop_mask));
            }
            entry
        };
        let below = _mm512_mask_test_epi32_mask(chunked, entry, below_mask);
        let pos = _mm512_add_epi32(iota, _mm512_set1_epi32(at as i32));
        // SAFETY: `at` is below `PIECE`, so 16 words from it lie within the array. The lanes of `below` are keys of the piece.
        let (chunk, keys) = unsafe {
            let index = _mm512_loadu_si512(chunks.index.as_ptr().add(at).cast());
            let keys = lanes.load_wide(piece.hi.as_ptr().add(at), below);
            (_mm512_srl_epi32(index, low_count), keys.map(|keys| _mm512_slli_epi64::<16>(keys)))
        };
        let item = _mm512_or_si512(
            _mm512_or_si512(pos, _mm512_slli_epi32::<CHUNK_SHIFT>(chunk)),
            _mm512_and_si512(entry, below_mask),
        );
        list.append(below, item, keys);
    }
}

impl List6 {
    #[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
    #[inline]
    fn append(&mut self, mask: __mmask16, item: __m512i, keys: [__m512i; 2]) {
        let len = self.len.min(PIECE);
        // SAFETY: `len` is at most `PIECE`.
        unsafe { append_words(&mut self.item, len, mask, item) };
        append_keys(&mut self.key, len, mask, keys);
        self.len = len + mask.count_ones() as usize;
    }
}

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn append_keys(array: &mut [u64; LIST], len: usize, mask: __mmask16, keys: [__m512i; 2]) {
    let (first, second) = (mask as u8, (mask >> 8) as u8);
    let middle = len.min(PIECE) + first.count_ones() as usize;
    // SAFETY: `len` is at most `PIECE`, and the array has 16 words and more beyond that: eight for each half.
    unsafe {
        let start = array.as_mut_ptr();
        _mm512_storeu_si512(start.add(len.min(PIECE)).cast(), _mm512_maskz_compress_epi64(first, keys[0]));
        _mm512_storeu_si512(start.add(middle).cast(), _mm512_maskz_compress_epi64(second, keys[1]));
    }
}

/// The level table in registers, one level a lane.
#[derive(Clone, Copy)]
struct Levels6 {
    key_mask: __m512i,
    filter_start: __m512i,
    filter_words: __m512i,
    line_start: __m512i,
    lines: __m512i,
}

impl Levels6 {
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn load(levels: &LevelTable) -> Self {
        // SAFETY: the key masks are eight words of 64 bits; each of the other arrays is eight words of 32.
        unsafe {
            let words = |array: &[u32; 8]| _mm512_castsi256_si512(_mm256_loadu_si256(array.as_ptr().cast()));
            Self {
                key_mask: _mm512_loadu_si512(levels.key_mask.as_ptr().cast()),
                filter_start: words(&levels.filter_start),
                filter_words: words(&levels.filter_words),
                line_start: words(&levels.line_start),
                lines: words(&levels.lines),
            }
        }
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn keys(&self, addresses: __m512i, level: __m256i) -> __m512i {
        _mm512_and_si512(addresses, _mm512_permutexvar_epi64(_mm512_cvtepu32_epi64(level), self.key_mask))
    }
}

struct Search {
    /// The items without that level.
    item: __m512i,
    /// 0 if the level is past /64.
    above: __m512i,
    level: __m512i,
    keys: [__m512i; 2],
    hash: __m512i,
    chunk: __m512i,
}

impl Search {
    /// The highest bit of an item's mask is the deepest level left. It is searched now, so its bit is cleared.
    #[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
    #[inline]
    fn new<const MURMUR: bool>(levels: &Levels6, item: __m512i, addresses: [__m512i; 2]) -> Self {
        let position = _mm512_set1_epi32((1 << MASK_SHIFT) - 1);
        let above = _mm512_lzcnt_epi32(item);
        let level = _mm512_sub_epi32(_mm512_set1_epi32(LEVELS as i32), above);
        let item = _mm512_andnot_si512(_mm512_srlv_epi32(_mm512_set1_epi32(i32::MIN), above), item);
        let keys = [
            levels.keys(addresses[0], _mm512_castsi512_si256(level)),
            levels.keys(addresses[1], _mm512_extracti64x4_epi64::<1>(level)),
        ];
        let hash = hash_64_x16::<MURMUR>(keys);
        let chunk = _mm512_srli_epi32::<CHUNK_SHIFT>(_mm512_and_si512(item, position));
        Self { item, above, level, keys, hash, chunk }
    }

    #[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
    #[inline]
    fn add_probes(&self, levels: &Levels6, mask: __mmask16, probes: &mut Probes6) {
        let line = Avx512f::new().mul_high(self.hash, _mm512_permutexvar_epi32(self.level, levels.lines));
        let line = _mm512_add_epi32(line, _mm512_permutexvar_epi32(self.level, levels.line_start));
        let line = _mm512_add_epi32(line, self.chunk);
        let len = probes.len.min(PIECE);
        // SAFETY: `len` is at most `PIECE`.
        unsafe {
            append_words(&mut probes.item, len, mask, self.item);
            append_words(&mut probes.line, len, mask, line);
        }
        let one = _mm512_set1_epi64(1);
        append_keys(&mut probes.tag, len, mask, self.keys.map(|keys| _mm512_or_si512(keys, one)));
        probes.len = len + mask.count_ones() as usize;
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn items(list: &List6, at: usize) -> (__m512i, [__m512i; 2]) {
    let at = at.min(PIECE);
    // SAFETY: 16 words from `at` on lie within the arrays, which have that many more than `PIECE`.
    unsafe {
        let key = list.key.as_ptr().add(at);
        (
            _mm512_loadu_si512(list.item.as_ptr().add(at).cast()),
            [_mm512_loadu_si512(key.cast()), _mm512_loadu_si512(key.add(8).cast())],
        )
    }
}

/// Stage 2 for the last keys of a piece: probes for all of their levels, where a round for each level would wait for few loads. Returns
/// `false` if a key has a level past /64. The update protocol requires that the lines of a key are loaded deepest level first, and that a
/// level's filter is read only after the deeper lines. So no filter is read here.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn all_levels_v6<const MURMUR: bool>(table: &Table6, list: &List6, probes: &mut Probes6) -> bool {
    let lanes = Avx512f::new();
    let levels = Levels6::load(&table.levels);
    let position = _mm512_set1_epi32((1 << MASK_SHIFT) - 1);
    probes.len = 0;
    for at in (0..list.len.min(FEW)).step_by(16) {
        let (mut item, addresses) = items(list, at);
        let mut live = lanes.first(list.len - at);
        while live != 0 {
            let search = Search::new::<MURMUR>(&levels, item, addresses);
            if _mm512_mask_cmpeq_epi32_mask(live, search.above, _mm512_setzero_si512()) != 0 {
                return false;
            }
            search.add_probes(&levels, live, probes);
            item = search.item;
            live = _mm512_mask_cmpgt_epu32_mask(live, item, position);
        }
    }
    true
}

/// Stage 2: tests each key at its deepest level and clears that level. Keys that pass become probes; others with a level left join `next`.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn filter_v6<const MURMUR: bool>(
    table: &Table6,
    piece: &mut Piece6<'_>,
    list: &List6,
    probes: &mut Probes6,
    next: &mut List6,
) {
    let lanes = Avx512f::new();
    let levels = Levels6::load(&table.levels);
    let position = _mm512_set1_epi32((1 << MASK_SHIFT) - 1);
    let multiplier = _mm512_set1_epi32(v6::CHUNK_MULTIPLIER.cast_signed());
    let filter = table.filter.as_ptr().cast();
    probes.len = 0;
    for at in (0..list.len.min(PIECE)).step_by(16) {
        let live = lanes.first(list.len - at);
        let (item, addresses) = items(list, at);
        let search = Search::new::<MURMUR>(&levels, item, addresses);
        let Search { item, level, .. } = search;
        let in_filter = _mm512_add_epi32(search.hash, _mm512_mullo_epi32(search.chunk, multiplier));
        let word = lanes.mul_high(in_filter, _mm512_permutexvar_epi32(level, levels.filter_words));
        let word = _mm512_add_epi32(word, _mm512_permutexvar_epi32(level, levels.filter_start));
        let bits = filter_mask_of(lanes, in_filter, table.levels.filter_hashes);
        // SAFETY: a live item has a level, a scaled hash is below the level's filter words, the level's filter lies within the array, and
        // the array has fewer than 2^31 words.
        let word = unsafe { lanes.gather::<4>(filter, word, live, lanes.splat(0)) };
        let mut pass = _mm512_mask_cmpeq_epi32_mask(live, _mm512_and_si512(word, bits), bits);
        let left = _mm512_mask_cmpgt_epu32_mask(live, item, position);
        let mut more = !pass & left;
        let deep = _mm512_mask_cmpeq_epi32_mask(pass, search.above, _mm512_setzero_si512());
        if deep != 0 {
            more |= finish_deep(table, piece, deep, &list.item[at..at + 16]) & left;
            pass &= !deep;
        }
        next.append(more, item, addresses);
        search.add_probes(&levels, pass, probes);
    }
}

/// Looks up the lanes of `deep` among the prefixes past /64; `items` has their positions. Returns the lanes without an answer.
#[cold]
fn finish_deep(table: &Table6, piece: &mut Piece6<'_>, deep: __mmask16, items: &[u32]) -> __mmask16 {
    let mut missed = 0;
    for (lane, item) in items.iter().enumerate().filter(|(lane, _)| deep >> lane & 1 == 1) {
        let pos = position_of(*item);
        let next_hop = table.deep.lookup(piece.hi[pos], piece.lo[pos]);
        if next_hop.is_none() {
            missed |= 1 << lane;
        } else {
            piece.out[pos] = next_hop;
        }
    }
    missed
}

/// Stage 3: finds each probe's tag in its line, which was prefetched [`AHEAD`] probes earlier; [`answer_v6`] is a second loop.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn probe_v6(table: &Table6, probes: &mut Probes6) {
    // Only slots of a tag exceed it by less than 65535: by their next-hop index less one. The link's lane always matches, so the link is
    // found if no slot is.
    let found_below = _mm512_mask_set1_epi64(_mm512_set1_epi64(0xfffe), 1 << v6::LINE_SLOTS, -1);
    let lines = table.lines.as_ptr();
    for at in 0..probes.len.min(PIECE) {
        prefetch::line(lines.wrapping_add(probes.line[at + AHEAD] as usize * v6::LINE_WORDS));
        let tag = _mm512_set1_epi64(probes.tag[at].cast_signed());
        // SAFETY: `filter_v6` made a line within its level, so its 8 words lie within the array, aligned to 64 bytes. A slot is one
        // aligned 64-bit word, which the load reads whole; only the value loaded here is used.
        let words = unsafe { _mm512_load_si512(lines.add(probes.line[at] as usize * v6::LINE_WORDS).cast()) };
        let hit = _mm512_cmple_epu64_mask(_mm512_sub_epi64(words, tag), found_below);
        let first = _mm512_castsi512_si128(_mm512_maskz_compress_epi64(hit, words));
        probes.found[at] = _mm_cvtsi128_si32(first).cast_unsigned();
    }
}
