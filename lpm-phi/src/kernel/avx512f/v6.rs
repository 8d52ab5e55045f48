//! IPv6: the direct part, then each key its own levels, deepest first.

use super::{AHEAD, LIST, Lists, PIECE, lanes, prefetch};
use crate::bloom::hash::FMIX64;
use crate::bloom::v6::{self, CHUNK, DEEP_BIT, LevelTable, MASK_SHIFT, Table6};
use crate::kernel::scalar;
use fib::NextHopId;
use std::arch::x86_64::*;
use std::sync::atomic::Ordering;

/// The work lists of IPv6.
#[derive(Debug)]
pub(super) struct Lists6 {
    chunks: Chunks6,
    lists: [List6; 2],
    probes: Probes6,
}

impl Lists6 {
    pub(super) const fn new() -> Self {
        let chunks = Chunks6 { index: [0; LIST], lanes: [0; PIECE / 16] };
        Self { chunks, lists: [List6::new(), List6::new()], probes: Probes6::new() }
    }
}

/// The keys of a piece that have levels left to ask.
#[derive(Debug)]
#[repr(align(64))]
struct List6 {
    /// Position within the piece, and from bit 32 the mask of levels to ask.
    pos: [u64; LIST],
    /// The first 64 bits of the address.
    key: [u64; LIST],
    len: usize,
}

impl List6 {
    const fn new() -> Self {
        Self { pos: [0; LIST], key: [0; LIST], len: 0 }
    }
}

/// Probes of a piece: the list entry, the level's key and the line of each key that passed a filter.
#[derive(Debug)]
#[repr(align(64))]
struct Probes6 {
    pos: [u64; LIST],
    key: [u64; LIST],
    line: [u64; LIST],
    len: usize,
}

impl Probes6 {
    const fn new() -> Self {
        Self { pos: [0; LIST], key: [0; LIST], line: [0; LIST], len: 0 }
    }
}

/// A piece's keys and answers.
struct Piece6<'a> {
    hi: &'a [u64],
    lo: &'a [u64],
    out: &'a mut [NextHopId],
}

/// Answers IPv6 keys, given as two halves, into `out`, all equally long.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(in crate::kernel) fn lookup_v6(
    table: &Table6,
    lists: &mut Lists,
    hi: &[u64],
    lo: &[u64],
    out: &mut [NextHopId],
) {
    let Lists6 { chunks, lists: [now, next], probes } = &mut lists.v6;
    let (mut now, mut next) = (now, next);
    for ((hi, lo), out) in hi.chunks(PIECE).zip(lo.chunks(PIECE)).zip(out.chunks_mut(PIECE)) {
        let mut piece = Piece6 { hi, lo, out };
        top_v6(table, &mut piece, chunks);
        chunk_v6(table, &mut piece, chunks, now);
        while now.len > 0 {
            next.len = 0;
            filter_v6(table, &mut piece, now, probes, next);
            probe_v6(table, &mut piece, probes, next);
            std::mem::swap(&mut now, &mut next);
        }
    }
}

/// The chunk entries that a piece's keys lead to.
#[derive(Debug)]
#[repr(align(64))]
struct Chunks6 {
    /// For each key, the index of its chunk entry.
    index: [u32; LIST],
    /// For each 16 keys, those that a chunk follows for.
    lanes: [__mmask16; PIECE / 16],
}

/// Stage 1 for IPv6, first step: top entries answer the keys that no chunk follows for.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn top_v6(table: &Table6, piece: &mut Piece6<'_>, chunks: &mut Chunks6) {
    let hop_mask = _mm512_set1_epi32(v6::HOP_MASK.cast_signed());
    let chunk_flag = _mm512_set1_epi32(CHUNK.cast_signed());
    let low_bits = u32::from(table.direct_bits) - 16;
    let low_count = _mm_cvtsi32_si128(low_bits.cast_signed());
    let rest_count = _mm_cvtsi32_si128(32 - low_bits.cast_signed());
    let top = table.top.as_ptr().cast::<i32>();
    for at in (0..piece.hi.len().min(PIECE)).step_by(16) {
        let live = lanes(piece.hi.len() - at);
        // SAFETY: `live` holds lanes within `hi`: its low 8 bits for the first vector, the high 8 for the second, whose
        // address may lie behind the end but is then not read.
        let key = unsafe {
            let first = _mm512_maskz_loadu_epi64(live as u8, piece.hi.as_ptr().add(at).cast());
            let second =
                _mm512_maskz_loadu_epi64((live >> 8) as u8, piece.hi.as_ptr().wrapping_add(at + 8).cast());
            high_words(first, second)
        };
        let top_index = _mm512_srli_epi32::<16>(key);
        // SAFETY: 16-bit indices into 2^16 entries. `live` holds lanes within `out`; a `NextHopId` is a `u32`.
        let head = unsafe {
            let head = _mm512_mask_i32gather_epi32::<4>(_mm512_setzero_si512(), live, top_index, top);
            let answers = piece.out.as_mut_ptr().add(at).cast();
            _mm512_mask_storeu_epi32(answers, live, _mm512_and_si512(head, hop_mask));
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

/// Stage 1 for IPv6, second step: chunk entries, asked for ahead, answer their keys; those with levels below are listed.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn chunk_v6(table: &Table6, piece: &mut Piece6<'_>, chunks: &Chunks6, list: &mut List6) {
    let hop_mask = _mm512_set1_epi32(v6::HOP_MASK.cast_signed());
    let below_mask = _mm512_set1_epi32((0xff_u32 << MASK_SHIFT).cast_signed());
    let iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let start = table.chunks.as_ptr().cast::<i32>();
    // An index that no chunk follows for is stale: a prefetch there is wasted, no more.
    let ask = |keys: std::ops::Range<usize>| {
        for index in &chunks.index[keys.start.min(LIST)..keys.end.min(LIST)] {
            prefetch(start.cast(), *index as usize * 4);
        }
    };
    list.len = 0;
    ask(0..2 * AHEAD);
    for at in (0..piece.out.len().min(PIECE)).step_by(16) {
        let chunked = chunks.lanes[at / 16];
        if chunked == 0 {
            continue;
        }
        ask(at + 2 * AHEAD..at + 2 * AHEAD + 16);
        // SAFETY: `at` is below `PIECE`, so 16 words from it lie within the array. `top_v6` made each index of a chunk that
        // exists; all chunks have at most 64 MiB, so that none reaches 2^31. The lanes lie within `out`.
        let entry = unsafe {
            let index = _mm512_loadu_si512(chunks.index.as_ptr().add(at).cast());
            let entry = _mm512_mask_i32gather_epi32::<4>(_mm512_setzero_si512(), chunked, index, start);
            let answers = piece.out.as_mut_ptr().add(at).cast();
            _mm512_mask_storeu_epi32(answers, chunked, _mm512_and_si512(entry, hop_mask));
            entry
        };
        let below = _mm512_mask_test_epi32_mask(chunked, entry, below_mask);
        if below != 0 {
            let pos = _mm512_add_epi32(iota, _mm512_set1_epi32(at as i32));
            append_v6(list, below, pos, _mm512_srli_epi32::<MASK_SHIFT>(entry), &piece.hi[at..]);
        }
    }
}

/// The high 32 bits of sixteen 64-bit words.
#[target_feature(enable = "avx512f")]
#[inline]
fn high_words(first: __m512i, second: __m512i) -> __m512i {
    let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    _mm512_permutex2var_epi32(first, odd, second)
}

/// Adds the lanes of `below` to a list: positions, with the mask of levels in the upper half, and keys.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn append_v6(list: &mut List6, below: __mmask16, pos: __m512i, mask: __m512i, hi: &[u64]) {
    let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    for (half, part) in [(0, low), (1, high)] {
        let lanes = (below >> (half * 8)) as u8;
        let item = _mm512_permutex2var_epi32(pos, part, mask);
        let len = list.len.min(PIECE);
        // SAFETY: `lanes` are keys of the piece, so they lie within `hi`. `len` is at most `PIECE`, and both arrays have 16
        // words beyond that.
        unsafe {
            let key = _mm512_maskz_loadu_epi64(lanes, hi.as_ptr().wrapping_add(half * 8).cast());
            _mm512_storeu_si512(
                list.pos.as_mut_ptr().add(len).cast(),
                _mm512_maskz_compress_epi64(lanes, item),
            );
            _mm512_storeu_si512(
                list.key.as_mut_ptr().add(len).cast(),
                _mm512_maskz_compress_epi64(lanes, key),
            );
        }
        list.len = len + lanes.count_ones() as usize;
    }
}

/// The low 64 bits of the product of each lane, from three 32-bit products (VPMULLQ is DQ).
#[target_feature(enable = "avx512f")]
#[inline]
fn mullo_x8(x: __m512i, y: u64) -> __m512i {
    let low = _mm512_set1_epi64(y.cast_signed());
    let high = _mm512_set1_epi64((y >> 32).cast_signed());
    let cross =
        _mm512_add_epi64(_mm512_mul_epu32(_mm512_srli_epi64::<32>(x), low), _mm512_mul_epu32(x, high));
    _mm512_add_epi64(_mm512_mul_epu32(x, low), _mm512_slli_epi64::<32>(cross))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn murmur64_x8(x: __m512i) -> __m512i {
    let x = mullo_x8(_mm512_xor_si512(_mm512_srli_epi64::<33>(x), x), FMIX64[0]);
    let x = mullo_x8(_mm512_xor_si512(_mm512_srli_epi64::<33>(x), x), FMIX64[1]);
    _mm512_xor_si512(_mm512_srli_epi64::<33>(x), x)
}

/// The bits of a filter word that eight hashes set, as [`filter_mask_x16`] in 64-bit lanes.
#[target_feature(enable = "avx512f")]
#[inline]
fn filter_mask_x8(hash: __m512i, k: u32) -> __m512i {
    let one = _mm512_set1_epi64(1);
    let low = _mm512_set1_epi64(31);
    let step = _mm512_or_si512(_mm512_srli_epi64::<5>(hash), one);
    let mut at = hash;
    let mut bits = _mm512_setzero_si512();
    for _ in 0..k {
        bits = _mm512_or_si512(bits, _mm512_sllv_epi64(one, _mm512_and_si512(at, low)));
        at = _mm512_add_epi64(at, step);
    }
    bits
}

/// The level table in registers, one level a lane.
#[derive(Clone, Copy)]
struct Levels8 {
    key_mask: __m512i,
    filter_start: __m512i,
    filter_words: __m512i,
    line_start: __m512i,
    lines: __m512i,
    filter_hashes: u32,
}

/// What eight keys ask, each at its own level.
struct Asked8 {
    level: __m512i,
    key: __m512i,
    /// The filter word to read, and the bits to find in it.
    word: __m512i,
    bits: __m512i,
    line: __m512i,
}

impl Levels8 {
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn load(levels: &LevelTable) -> Self {
        // SAFETY: each of the level table's arrays is eight 64-bit words.
        let [key_mask, filter_start, filter_words, line_start, lines] = unsafe {
            [&levels.key_mask, &levels.filter_start, &levels.filter_words, &levels.line_start, &levels.lines]
                .map(|array| _mm512_loadu_si512(array.as_ptr().cast()))
        };
        Self { key_mask, filter_start, filter_words, line_start, lines, filter_hashes: levels.filter_hashes }
    }

    /// What the list entries `items` ask next for `address`: their deepest level left, the highest bit of the mask.
    #[target_feature(enable = "avx512f,avx512cd")]
    #[inline]
    fn ask(&self, items: __m512i, address: __m512i) -> Asked8 {
        let level = _mm512_sub_epi64(_mm512_set1_epi64(31), _mm512_lzcnt_epi64(items));
        let key = _mm512_and_si512(address, _mm512_permutexvar_epi64(level, self.key_mask));
        let hash = murmur64_x8(key);
        let high = _mm512_srli_epi64::<32>(hash);
        let word = scale_x8(high, level, self.filter_words, self.filter_start);
        let line = scale_x8(high, level, self.lines, self.line_start);
        Asked8 { level, key, word, bits: filter_mask_x8(high, self.filter_hashes), line }
    }
}

/// Maps 32-bit hashes onto each level's range: `start + (hash * n >> 32)`.
#[target_feature(enable = "avx512f")]
#[inline]
fn scale_x8(hash: __m512i, level: __m512i, n: __m512i, start: __m512i) -> __m512i {
    let product = _mm512_mul_epu32(hash, _mm512_permutexvar_epi64(level, n));
    _mm512_add_epi64(_mm512_permutexvar_epi64(level, start), _mm512_srli_epi64::<32>(product))
}

/// Stage 2 for IPv6: each key asks the filter of its own deepest level. Keys that pass become probes with their lines
/// prefetched; keys that do not go on to `next` with that level struck off, if any is left.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn filter_v6(table: &Table6, piece: &mut Piece6<'_>, list: &List6, probes: &mut Probes6, next: &mut List6) {
    let levels = Levels8::load(&table.levels);
    let position = _mm512_set1_epi64(0xffff_ffff);
    let filter = table.filter.as_ptr().cast::<i32>();
    probes.len = 0;
    for at in (0..list.len.min(PIECE)).step_by(8) {
        let live = lanes(list.len - at) as u8;
        // SAFETY: `at` is below `PIECE`, so 8 words from it lie within the arrays.
        let (item, address) = unsafe {
            (
                _mm512_loadu_si512(list.pos.as_ptr().add(at).cast()),
                _mm512_loadu_si512(list.key.as_ptr().add(at).cast()),
            )
        };
        let Asked8 { level, key, word, bits, line } = levels.ask(item, address);
        // SAFETY: a scaled hash is below the level's filter words, and the level's filter lies within the array.
        let word =
            unsafe { _mm512_mask_i64gather_epi32::<4>(_mm256_setzero_si256(), live, word, filter.cast()) };
        let found = _mm512_and_si512(_mm512_cvtepu32_epi64(word), bits);
        let mut pass = _mm512_mask_cmpeq_epi64_mask(live, found, bits);
        // Strike the level off: it is asked now, and not again.
        let struck = _mm512_sllv_epi64(_mm512_set1_epi64(1), _mm512_add_epi64(level, _mm512_set1_epi64(32)));
        let item = _mm512_andnot_si512(struck, item);
        let left = _mm512_cmpgt_epu64_mask(item, position);
        let mut more = live & !pass & left;
        let deep = _mm512_mask_cmpeq_epi64_mask(pass, level, _mm512_set1_epi64(DEEP_BIT.ilog2().into()));
        if deep != 0 {
            more |= finish_deep(table, piece, deep, &list.pos[at..at + 8]) & left;
            pass &= !deep;
        }
        let (len, next_len) = (probes.len.min(PIECE), next.len.min(PIECE));
        // SAFETY: both lengths are at most `PIECE`, and the arrays have 16 words beyond that.
        unsafe {
            let store = |array: &mut [u64; LIST], at, lanes, vector| {
                _mm512_storeu_si512(
                    array.as_mut_ptr().add(at).cast(),
                    _mm512_maskz_compress_epi64(lanes, vector),
                );
            };
            store(&mut next.pos, next_len, more, item);
            store(&mut next.key, next_len, more, address);
            store(&mut probes.pos, len, pass, item);
            store(&mut probes.key, len, pass, key);
            store(&mut probes.line, len, pass, line);
        }
        next.len = next_len + more.count_ones() as usize;
        probes.len = len + pass.count_ones() as usize;
    }
}

/// Looks for prefixes past /64 of the lanes of `deep`, whose positions are in `items`. Returns the lanes without an answer.
#[cold]
fn finish_deep(table: &Table6, piece: &mut Piece6<'_>, deep: u8, items: &[u64]) -> u8 {
    let mut missed = 0;
    for (lane, item) in items.iter().enumerate().filter(|(lane, _)| deep >> lane & 1 == 1) {
        let pos = *item as u32 as usize;
        let next_hop = table.deep.lookup(piece.hi[pos], piece.lo[pos]);
        if next_hop.is_none() {
            missed |= 1 << lane;
        } else {
            piece.out[pos] = next_hop;
        }
    }
    missed
}

/// Stage 3 for IPv6: finds each probe's key in its line; keys that are not there go on to `next` if a level is left.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn probe_v6(table: &Table6, piece: &mut Piece6<'_>, probes: &Probes6, next: &mut List6) {
    let lines = table.lines.as_ptr();
    let line_bytes = lines.cast::<i8>();
    for line in &probes.line[..AHEAD] {
        prefetch(line_bytes, *line as usize * 64);
    }
    for at in 0..probes.len.min(PIECE) {
        prefetch(line_bytes, probes.line[at + AHEAD] as usize * 64);
        let (item, key) = (probes.pos[at], probes.key[at]);
        // SAFETY: `filter_v6` made a line within its level, so its 8 words lie within the array, aligned to 64 bytes. Each
        // key is one aligned 64-bit word, taken whole.
        let (slots, words) = unsafe {
            let line = lines.add(probes.line[at] as usize * v6::LINE_WORDS);
            (_mm512_load_si512(line.cast()), std::slice::from_raw_parts(line, v6::LINE_WORDS))
        };
        let hit = _mm512_mask_cmpeq_epi64_mask(0x3f, slots, _mm512_set1_epi64(key.cast_signed()));
        let mut index = if hit != 0 { v6::index_at(words, hit.trailing_zeros() as usize) } else { 0 };
        if index == 0 {
            let link = v6::link_of(words);
            if link != 0 {
                index = scalar::probe_v6(table, link as usize, key);
            }
        }
        if index != 0 {
            let next_hop = table.hop_ids[usize::from(index)].load(Ordering::Relaxed);
            piece.out[item as u32 as usize] = NextHopId::from_answer(next_hop);
        } else if item >> 32 != 0 {
            let len = next.len.min(PIECE);
            next.pos[len] = item;
            next.key[len] = piece.hi[item as u32 as usize];
            next.len = len + 1;
        }
    }
}
