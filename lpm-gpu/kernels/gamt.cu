// GAMT's lookup kernels (Algorithm 1), the update kernel that writes bubbles (section 3.2), and the persistent lookup kernels.
//
// A unit is `inf << 8 | jump`. jump = 0 is a leaf, inf the answer; else jump is the level of the child node, and inf where that
// node begins in its level. An inner unit of level l always has jump = l + 1, since the trie skips no level: all keys of
// a warp are at one level at a time, and its stride and base are the same for all its keys. In a leaf bit 7 (0x80) says that
// longer prefixes lie below the 64 bits searched (IPv6); it goes out as RAW_DEEP.
//
// Header words: [0] levels H (1..=61); [1] array width in units (paper layout); [4 + 2l] stride of level l in bits (1..=24) and
// [5 + 2l] its first word (flat layout), l = 1..=H. Strides add up to at most the key's bits.
//
// Entries: gamt_lookup_{v4|v6}_{paper|flat}_{frozen|live}(words, header, keys, raw, count), gamt_persistent_{..}, write_words.
#include "common.cuh"

enum { LEVELS_MAX = 61 };

// Stride and first word of each level, level 1 at index 0.
struct Levels {
    u32x2 at[LEVELS_MAX];
};

// The flat layout has each level's base in the header; the paper's has rows of one width, level l in row l (row 0 unused).
struct Flat {
    template <class Load> DEVICE u32 base(const u32 *header, u32 level) { return Load::load(header + 5 + 2 * level); }
};
struct Paper {
    template <class Load> DEVICE u32 base(const u32 *header, u32 level) { return Load::load(header + 1) * level; }
};

// The block's copy of the header; every thread of the block must come here. Levels beyond the last are copied too: waiting for
// their number before would cost small batches a trip to L2.
template <class Layout, class Load> DEVICE u32 read_levels(const u32 *header, Levels &levels) {
    u32 count = Load::load(header);
    for (u32 l = 1 + thread_in_block(); l <= LEVELS_MAX; l += block_threads()) {
        levels.at[l - 1] = u32x2{Load::load(header + 4 + 2 * l), Layout::template base<Load>(header, l)};
    }
    sync_block();
    return count < LEVELS_MAX ? count : LEVELS_MAX;
}

// The first 32 of the key's bits from bit `at` on, counted from the top; at < 32 (IPv4), < 64 (IPv6).
DEVICE u32 bits_from(u32 key, u32 at) { return key << at; }
DEVICE u32 bits_from(u64 key, u32 at) { return (u32)(key << at >> 32); }
DEVICE u32 answer(u32, u32 unit) { return unit >> 8; }
DEVICE u32 answer(u64, u32 unit) { return unit >> 8 | (unit & 0x80) << 24; }

template <int K> DEVICE u32 inner(const u32 (&unit)[K]) {
    u32 any = 0;
#pragma unroll
    for (int k = 0; k < K; k++) any |= unit[k];
    return any & 0x7f;
}

// K keys searched in step, so that K loads are under way at once. A finished key keeps its unit: its loads are masked out.
//
// SASS for sm_90 (ptxas 13.5), 4 IPv4 keys: 32 instructions around the first level, 34 a level more, 12 for the answers; so
// 19.5 a key that ends at level 2, 28 at level 3. 2 IPv6 keys: 25, 21 and 12; 50 a key at level 4. Entries with the levels
// compiled in would save the LDS, the counting and the branch, 2 a key and level of IPv4. We have none: at 28 instructions an
// H200 could issue 1 T lookups/s (132 multiprocessors x 4 x 32 lanes x 1.75 GHz), far beyond what its caches load.
template <class Load> struct Search {
    const u32 *words;
    const Levels *levels;
    u32 count;

    template <int K, class Key> METHOD void run(Key (&key)[K], u32 (&raw)[K]) const {
        u32 unit[K];
        u32x2 level = levels->at[0];
        const u32 *row = words + level.y;
#pragma unroll
        for (int k = 0; k < K; k++) unit[k] = Load::load(row + (bits_from(key[k], 0) >> (32 - level.x)));
        u32 taken = level.x;
        // One condition, no short cut: one branch a level.
        for (u32 l = 1; (inner(unit) != 0) & (l < count); l++) {
            level = levels->at[l];
            row = words + level.y;
#pragma unroll
            for (int k = 0; k < K; k++) {
                u32 at = (unit[k] >> 8) + (bits_from(key[k], taken) >> (32 - level.x));
                Load::load_if(unit[k] & 0x7f, unit[k], row + at);
            }
            taken += level.x;
        }
#pragma unroll
        for (int k = 0; k < K; k++) raw[k] = answer(key[k], unit[k]);
    }
};

template <class Layout, class Load, class Key>
DEVICE void lookup(const u32 *words, const u32 *header, const Key *keys, u32 *raw, u32 count) {
    SHARED static Levels levels;
    Search<Load> search = {words, &levels, read_levels<Layout, Load>(header, levels)};
    for_keys(search, keys, raw, count, thread_in_grid(), grid_threads());
}

#define LOOKUP(NAME, LAYOUT, LOAD, KEY)                                                                        \
    GLOBAL NAME(const u32 *words, const u32 *header, const KEY *keys, u32 *raw, u32 count) {                   \
        lookup<LAYOUT, LOAD, KEY>(words, header, keys, raw, count);                                            \
    }

LOOKUP(gamt_lookup_v4_flat_frozen, Flat, Frozen, u32)
LOOKUP(gamt_lookup_v4_flat_live, Flat, Live, u32)
LOOKUP(gamt_lookup_v4_paper_frozen, Paper, Frozen, u32)
LOOKUP(gamt_lookup_v4_paper_live, Paper, Live, u32)
LOOKUP(gamt_lookup_v6_flat_frozen, Flat, Frozen, u64)
LOOKUP(gamt_lookup_v6_flat_live, Flat, Live, u64)
LOOKUP(gamt_lookup_v6_paper_frozen, Paper, Frozen, u64)
LOOKUP(gamt_lookup_v6_paper_live, Paper, Live, u64)

// Writes bubbles: one aligned 32-bit store each, so that a running lookup sees the old unit or the new one. The order among
// them is open; steps that depend on each other are separate launches in one stream.
GLOBAL write_words(u32 *words, const Write *writes, u32 count) {
    for (u32 i = thread_in_grid(); i < count; i += grid_threads()) {
        store_live(words + writes[i].at, writes[i].value);
    }
}

// Persistent lookups (common.cuh has the protocol).
template <class Layout> struct Open {
    DEVICE Search<Live> open(const u32 *words, const u32 *header) {
        SHARED static Levels levels;
        return {words, &levels, read_levels<Layout, Live>(header, levels)};
    }
};

#define PERSISTENT(NAME, LAYOUT, KEY) \
    GLOBAL NAME(const Slot *slots, u32 *done, u32 parts) { serve<Open<LAYOUT>, KEY>(slots, done, parts); }

PERSISTENT(gamt_persistent_v4_flat, Flat, u32)
PERSISTENT(gamt_persistent_v4_paper, Paper, u32)
PERSISTENT(gamt_persistent_v6_flat, Flat, u64)
PERSISTENT(gamt_persistent_v6_paper, Paper, u64)
