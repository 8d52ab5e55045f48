// SAIL_L: lookups in three levels of pushing, 16, 24 and 32 (the paper's section 4.2 and its Algorithm 2).
//
// A word is `value << 8 | chunk << 7 | depth` (src/direct/unit.rs; the depth is the host's, lookups skip it). Arrays, in order:
//   BCN   2^16 words by the key's first 16 bits: next hop (N16), or chunk of BN24 (C16);
//   BN24  chunks of 256 by the key's third byte: next hop (N24), or chunk of N32 (C24);
//   N32   chunks of 256 by the key's last byte: next hop.
// Header: [0] first word of N32, [1] first word of C24 (paper's layout).
//
// In the paper's layout (src/sail/layout.rs) the arrays lie in the same order, with C24 behind BN24:
//   BCN   2^16 entries of 16 bits: B16, then N16 or the id of a chunk of BN24, from 1 on; 0 is no route;
//   BN24  chunks of 256 entries of 8 bits: N24, or 0, look in C24;
//   C24   entries of 16 bits: the id of a chunk of N32, from 1 on; 0 is no route;
//   N32   chunks of 256 entries of 8 bits.
// A next hop is a code of 8 bits. Updates store words, so lookups load words.
//
// Updates are writes of single words (write_words of gamt.cu). Entries: sail_lookup_v4_{frozen|live}(words, header, keys, raw,
// count), sail_persistent_v4(slots, done, parts), and the same with `v4_paper`.
#include "common.cuh"

enum { BCN_UNITS = 1 << 16, CHUNK = 0x80, B16 = 0x8000 };

// K keys in step: K loads of a level are under way at once, masked for those that have ended.
template <class Load> struct Search {
    const u32 *words;
    u32 n32;

    template <int K> METHOD void run(u32 (&key)[K], u32 (&raw)[K]) const {
        u32 unit[K];
        u32 any = 0;
#pragma unroll
        for (int k = 0; k < K; k++) unit[k] = Load::load(words + (key[k] >> 16));
#pragma unroll
        for (int k = 0; k < K; k++) {
            u32 more = unit[k] & CHUNK;
            u32 at = BCN_UNITS + (unit[k] & ~0xffu) + (key[k] >> 8 & 0xff);
            Load::load_if(more, unit[k], words + at);
            // Only a word that was loaded from BN24 can still be a chunk: one of N32 then.
            any |= unit[k];
        }
        if (any & CHUNK) {
#pragma unroll
            for (int k = 0; k < K; k++) {
                u32 at = n32 + (unit[k] & ~0xffu) + (key[k] & 0xff);
                Load::load_if(unit[k] & CHUNK, unit[k], words + at);
            }
        }
#pragma unroll
        for (int k = 0; k < K; k++) raw[k] = unit[k] >> 8;
    }
};

// Entry `at` of a word with entries of `BITS` bits.
template <u32 BITS> DEVICE u32 entry(u32 word, u32 at) { return word >> (at % (32 / BITS) * BITS) & ((1u << BITS) - 1); }

// Entry `byte` of chunk `id`.
DEVICE u32 in_chunk(u32 id, u32 byte) { return (id - 1) * 256 + (byte & 0xff); }

// The paper's layout, K keys in step as in the flat layout: BCN, BN24, and C24 and N32 where any key of the thread wants them.
template <class Load> struct SearchPaper {
    const u32 *words;
    u32 n32, c24;

    template <int K> METHOD void run(u32 (&key)[K], u32 (&raw)[K]) const {
        u32 at[K], word[K], chunk[K];
        u32 any = 0;
#pragma unroll
        for (int k = 0; k < K; k++) word[k] = Load::load(words + (key[k] >> 17));
#pragma unroll
        for (int k = 0; k < K; k++) {
            u32 bcn = entry<16>(word[k], key[k] >> 16);
            raw[k] = bcn & B16 ? bcn & 0xff : 0;
            chunk[k] = bcn & B16 ? 0 : bcn;
            at[k] = in_chunk(bcn, key[k] >> 8);
            Load::load_if(chunk[k], word[k], words + BCN_UNITS / 2 + at[k] / 4);
        }
#pragma unroll
        for (int k = 0; k < K; k++) {
            if (chunk[k]) raw[k] = entry<8>(word[k], at[k]);
            // From here on not zero where C24 is asked.
            chunk[k] = raw[k] ? 0 : chunk[k];
            any |= chunk[k];
        }
        if (!any) return;
#pragma unroll
        for (int k = 0; k < K; k++) Load::load_if(chunk[k], word[k], words + c24 + at[k] / 2);
#pragma unroll
        for (int k = 0; k < K; k++) {
            if (chunk[k]) chunk[k] = entry<16>(word[k], at[k]);
            at[k] = in_chunk(chunk[k], key[k]);
            Load::load_if(chunk[k], word[k], words + n32 + at[k] / 4);
        }
#pragma unroll
        for (int k = 0; k < K; k++) {
            if (chunk[k]) raw[k] = entry<8>(word[k], at[k]);
        }
    }
};

template <class Load> DEVICE Search<Load> open_flat(const u32 *words, const u32 *header) { return {words, Load::load(header)}; }
template <class Load> DEVICE SearchPaper<Load> open_paper(const u32 *words, const u32 *header) {
    return {words, Load::load(header), Load::load(header + 1)};
}

#define LOOKUP(NAME, OPEN)                                                                                          \
    GLOBAL NAME(const u32 *words, const u32 *header, const u32 *keys, u32 *raw, u32 count) {                        \
        for_keys(OPEN(words, header), keys, raw, count, thread_in_grid(), grid_threads());                  \
    }

LOOKUP(sail_lookup_v4_frozen, open_flat<Frozen>)
LOOKUP(sail_lookup_v4_live, open_flat<Live>)
LOOKUP(sail_lookup_v4_paper_frozen, open_paper<Frozen>)
LOOKUP(sail_lookup_v4_paper_live, open_paper<Live>)

struct OpenFlat {
    DEVICE Search<Live> open(const u32 *words, const u32 *header) { return open_flat<Live>(words, header); }
};
struct OpenPaper {
    DEVICE SearchPaper<Live> open(const u32 *words, const u32 *header) { return open_paper<Live>(words, header); }
};

GLOBAL sail_persistent_v4(const Slot *slots, u32 *done, u32 parts) { serve<OpenFlat, u32>(slots, done, parts); }
GLOBAL sail_persistent_v4_paper(const Slot *slots, u32 *done, u32 parts) { serve<OpenPaper, u32>(slots, done, parts); }
