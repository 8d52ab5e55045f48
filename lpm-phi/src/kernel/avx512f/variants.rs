//! The lookups of `bloom-naive` and `bloom-baseline`, sixteen keys at a time. A key is one 32-bit word (IPv4) or two (the first half of an
//! IPv6 address), and a vector holds one word of each, so all hashes are 32-bit arithmetic, which Knights Landing supports.

use crate::bloom::hash::h2_of;
use crate::kernel::Piece6;
use crate::variants::hash::{HashName, KNUTH_32, KNUTH_64, murmur3_32_of, murmur3_64_of};
use crate::variants::table::{Filter, VariantLevel, VariantShape, VariantTable, VariantWords, next_hop};
use fib::NextHopId;
use lpm_core::lanes::{Avx512f, HashWords, Lanes, Words};
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
struct Keys16 {
    low: __m512i,
    high: __m512i,
}

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(in crate::kernel) fn lookup_v4(table: &VariantTable, keys: &[u32], out: &mut [NextHopId]) {
    let (lanes, words) = (Avx512f::new(), table.live());
    for (keys, out) in keys.chunks(16).zip(out.chunks_mut(16)) {
        let live = lanes.first(keys.len());
        // SAFETY: `live` holds lanes within `keys`.
        let low = unsafe { lanes.load(keys.as_ptr(), live) };
        let address = Keys16 { low, high: _mm512_setzero_si512() };
        lookup_levels::<false>(table, words, address, live, out);
    }
}

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(in crate::kernel) fn lookup_v6(table: &VariantTable, batch: Piece6<'_>) {
    let (lanes, words) = (Avx512f::new(), table.live());
    let has_deep = words.deep.len() > 0;
    for Piece6 { hi, lo, out } in batch.pieces(16) {
        let mut live = lanes.first(hi.len());
        // SAFETY: `live` holds lanes within `hi`.
        let [first, second] = unsafe { lanes.load_wide(hi.as_ptr(), live) };
        let address = Keys16 { low: lanes.even(first, second), high: lanes.odd(first, second) };
        if let Some(filter) = table.shape.deep.as_ref().filter(|_| has_deep) {
            let name = table.shape.filter_hash;
            let mut maybe = passes(words, filter, name, hash_x16::<true>(name, address), live);
            while maybe != 0 {
                let lane = maybe.trailing_zeros() as usize;
                maybe &= maybe - 1;
                let next_hop = words.deep.lookup(hi[lane], lo[lane]);
                if !next_hop.is_none() {
                    out[lane] = next_hop;
                    live &= !(1 << lane);
                }
            }
        }
        lookup_levels::<true>(table, words, address, live, out);
    }
}

/// Looks up the lanes of `live` in the levels, longest first, else in the direct entries.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn lookup_levels<const V6: bool>(
    table: &VariantTable,
    words: &VariantWords,
    address: Keys16,
    mut live: __mmask16,
    out: &mut [NextHopId],
) {
    let shape = &table.shape;
    for level in shape.levels.iter().rev() {
        if live == 0 {
            return;
        }
        let key = first_bits::<V6>(address, level.len);
        let hash = hash_x16::<V6>(shape.filter_hash, key);
        let maybe = passes(words, &level.filter, shape.filter_hash, hash, live);
        if maybe != 0 {
            live &= !lookup_lists::<V6>(table, words, level, key, hash, maybe, out);
        }
    }
    let first = if V6 { address.high } else { address.low };
    // With a single direct entry the shift is by 32, which gives index 0.
    let shift = _mm_cvtsi32_si128(32 - i32::from(shape.direct_bits));
    let index = _mm512_srl_epi32(first, shift);
    // SAFETY: an index of `direct_bits` bits lies within the direct entries, the first words of the copy. `live` holds lanes within
    // `out`; a `NextHopId` is a `u32`.
    unsafe {
        let entry = gather(words, live, index);
        _mm512_mask_storeu_epi32(out.as_mut_ptr().cast(), live, entry);
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn first_bits<const V6: bool>(address: Keys16, len: u8) -> Keys16 {
    let mask = |bits: u32| _mm512_set1_epi32(u32::MAX.checked_shl(32 - bits).unwrap_or(0).cast_signed());
    let len = u32::from(len);
    if V6 {
        let high = _mm512_and_si512(address.high, mask(len.min(32)));
        Keys16 { low: _mm512_and_si512(address.low, mask(len.saturating_sub(32))), high }
    } else {
        Keys16 { low: _mm512_and_si512(address.low, mask(len)), high: address.high }
    }
}

/// Loads the words of the copy at `index` in the lanes of `mask`; other lanes are 0.
///
/// # Safety
/// Each such index must be below the number of words.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn gather(words: &VariantWords, mask: __mmask16, index: __m512i) -> __m512i {
    let (lanes, start) = (Avx512f::new(), words.words.as_ptr().cast());
    // SAFETY: the caller keeps each index below the number of words; a table has fewer than 2^31, so no index is negative.
    unsafe { lanes.gather::<4>(start, index, mask, lanes.splat(0)) }
}

/// The lanes of `live` whose keys pass the filter; `at` holds their hashes.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn passes(
    words: &VariantWords,
    filter: &Filter,
    name: HashName,
    mut at: __m512i,
    mut live: __mmask16,
) -> __mmask16 {
    let step = if filter.hashes > 1 { word_hash_x16(name, at) } else { at };
    for _ in 0..filter.hashes {
        let bit = filter.bits.remainder_of(Avx512f::new(), at);
        let index = _mm512_add_epi32(_mm512_srli_epi32::<5>(bit), _mm512_set1_epi32(filter.start as i32));
        // SAFETY: a remainder is below the filter's bits, so its word is one of the filter's, and those lie within the copy.
        let word = unsafe { gather(words, live, index) };
        let within = _mm512_and_si512(bit, _mm512_set1_epi32(31));
        live = _mm512_mask_test_epi32_mask(live, word, _mm512_sllv_epi32(_mm512_set1_epi32(1), within));
        if live == 0 {
            break;
        }
        at = _mm512_add_epi32(at, step);
    }
    live
}

/// Looks up the lanes of `maybe` in the level's hash table, key by key. Returns the lanes that were found.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn lookup_lists<const V6: bool>(
    table: &VariantTable,
    words: &VariantWords,
    level: &VariantLevel,
    key: Keys16,
    hash: __m512i,
    mut maybe: __mmask16,
    out: &mut [NextHopId],
) -> __mmask16 {
    let heads = heads::<V6>(&table.shape, words, level, key, hash, maybe);
    let (mut head, mut low, mut high) = ([0_u32; 16], [0_u32; 16], [0_u32; 16]);
    // SAFETY: each array has the 64 bytes that are stored.
    unsafe {
        _mm512_storeu_si512(head.as_mut_ptr().cast(), heads);
        _mm512_storeu_si512(low.as_mut_ptr().cast(), key.low);
        _mm512_storeu_si512(high.as_mut_ptr().cast(), key.high);
    }
    let mut found = 0;
    while maybe != 0 {
        let lane = maybe.trailing_zeros() as usize;
        maybe &= maybe - 1;
        if let Some(next_hop) = next_hop(table, words, head[lane], [low[lane], high[lane]]) {
            out[lane] = NextHopId::from_answer(next_hop);
            found |= 1 << lane;
        }
    }
    found
}

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn heads<const V6: bool>(
    shape: &VariantShape,
    words: &VariantWords,
    level: &VariantLevel,
    key: Keys16,
    hash: __m512i,
    maybe: __mmask16,
) -> __m512i {
    let hash = if shape.reuses_hash() { hash } else { hash_x16::<V6>(shape.table_hash, key) };
    let bucket = level.bucket_count.remainder_of(Avx512f::new(), hash);
    let index = _mm512_add_epi32(bucket, _mm512_set1_epi32(level.buckets as i32));
    // SAFETY: a remainder is below the level's number of buckets, and those lie within the copy.
    unsafe { gather(words, maybe, index) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn hash_x16<const V6: bool>(name: HashName, key: Keys16) -> __m512i {
    if !V6 {
        return word_hash_x16(name, key.low);
    }
    let lanes = Avx512f::new();
    match name {
        HashName::Knuth => {
            let [low, high] = [KNUTH_64 as u32, (KNUTH_64 >> 32) as u32];
            let crossed =
                lanes.add(lanes.mul(key.low, lanes.splat(high)), lanes.mul(key.high, lanes.splat(low)));
            lanes.add(lanes.mul_high_by(key.low, low), crossed)
        }
        _ => murmur3_64_of(lanes, key.low, key.high),
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn word_hash_x16(name: HashName, x: __m512i) -> __m512i {
    let lanes = Avx512f::new();
    match name {
        HashName::Knuth => lanes.mul(x, lanes.splat(KNUTH_32)),
        HashName::H2 => h2_of(lanes, x),
        // `rand` has no vector form: an engine that uses it runs the scalar kernel.
        HashName::Murmur | HashName::Rand => murmur3_32_of(lanes, x),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variants::divisor::Divisor;
    use crate::variants::hash::LevelKey;
    use fib::Isa;
    use fib::random::SplitMix64;

    const VECTORISED: [HashName; 3] = [HashName::Murmur, HashName::Knuth, HashName::H2];

    fn stored(x: __m512i) -> [u32; 16] {
        let mut out = [0; 16];
        // SAFETY: `out` has 64 bytes; only called if AVX-512F was detected.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), x) };
        out
    }

    fn loaded(x: &[u32; 16]) -> __m512i {
        // SAFETY: `x` has 64 bytes; only called if AVX-512F was detected.
        unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
    }

    #[test]
    fn vectors_hash_and_divide_as_scalars_do() {
        if !Isa::Avx512f.is_available() {
            return fib::testing::skip("avx512f", "this CPU has no avx512f");
        }
        let mut numbers = SplitMix64(1);
        for round in 0..5000_u32 {
            let keys: [u64; 16] = std::array::from_fn(|lane| {
                let number = numbers.u64();
                if round % 3 == 0 { number >> 40 << (lane * 3) } else { number }
            });
            let low = keys.map(|key| key as u32);
            let high = keys.map(|key| (key >> 32) as u32);
            let key = Keys16 { low: loaded(&low), high: loaded(&high) };
            for name in VECTORISED {
                // SAFETY: AVX-512F was detected above.
                let (v4, v6) = unsafe { (hash_x16::<false>(name, key), hash_x16::<true>(name, key)) };
                assert_eq!(stored(v4), low.map(|x| x.hash(name)), "{name}");
                assert_eq!(stored(v6), keys.map(|x| x.hash(name)), "{name}");
            }
            let n = [2, 3, 1 << 20, round + 2, low[0], u32::MAX][round as usize % 6];
            let divisor = Divisor::new(n);
            // SAFETY: AVX-512F was detected above.
            let found = unsafe { divisor.remainder_of(Avx512f::new(), key.high) };
            assert_eq!(stored(found), high.map(|x| x % divisor.n));
            let len = (round % 64 + 1) as u8;
            // SAFETY: AVX-512F was detected above.
            let cut = unsafe { first_bits::<true>(key, len) };
            assert_eq!(stored(cut.low), keys.map(|key| key.first_bits(len) as u32));
            assert_eq!(stored(cut.high), keys.map(|key| (key.first_bits(len) >> 32) as u32));
        }
    }
}
