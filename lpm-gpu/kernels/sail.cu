// SAIL_L: lookups in three levels of pushing, 16, 24 and 32 (the paper's section 4.2 and its Algorithm 2).
//
// A word is `value << 8 | chunk << 7 | depth` (src/direct/unit.rs; the depth is the host's, lookups skip it). Arrays, in order:
//   BCN   2^16 words by the key's first 16 bits: next hop (N16), or chunk of BN24 (C16);
//   BN24  chunks of 256 by the key's third byte: next hop (N24), or chunk of N32 (C24);
//   N32   chunks of 256 by the key's last byte: next hop.
// Header: [0] first word of N32, [1] chunks BN24 has room for, [2] chunks N32 has room for.
//
// Updates are writes of single words (write_words of gamt.cu). Entries: sail_lookup_v4_{frozen|live}(words, header, keys, raw,
// count), sail_persistent_v4(slots, done, parts).
#include "common.cuh"

enum { BCN_WORDS = 1 << 16, CHUNK = 0x80 };

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
            u32 at = BCN_WORDS + (unit[k] & ~0xffu) + (key[k] >> 8 & 0xff);
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

#define LOOKUP(NAME, LOAD)                                                                                          \
    GLOBAL NAME(const u32 *words, const u32 *header, const u32 *keys, u32 *raw, u32 count) {                        \
        Search<LOAD> search = {words, LOAD::load(header)};                                                          \
        for_keys<Stream>(search, keys, raw, count, thread_in_grid(), grid_threads());                               \
    }

LOOKUP(sail_lookup_v4_frozen, Frozen)
LOOKUP(sail_lookup_v4_live, Live)

struct Open {
    DEVICE Search<Live> open(const u32 *words, const u32 *header) { return Search<Live>{words, load_live(header)}; }
};
GLOBAL sail_persistent_v4(const Slot *slots, u32 *done, u32 parts) { serve<Open, u32>(slots, done, parts); }
