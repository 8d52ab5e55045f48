// GAMT's lookup kernels (Algorithm 1), the update kernel that writes bubbles (section 3.2), and the persistent lookup kernels.
//
// A unit is `inf << 8 | jump`. jump = 0 is a leaf, inf the answer; else jump is the level of the child node, and inf where that
// node begins in its level. An inner unit of level l always has jump = l + 1, since the trie skips no level: all keys of
// a warp are at one level at a time, and its stride and base are the same for all of them. In a leaf bit 7 (0x80) says that
// longer prefixes lie below the 64 bits searched (IPv6); it goes out as RAW_DEEP.
//
// Header words: [0] levels H (1..=61); [1] array width in units (paper layout); [4 + 2l] stride of level l in bits (1..=24) and
// [5 + 2l] its first word (flat layout), l = 1..=H. Strides add up to no more than the key's bits.
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

// The block's copy of the header; every thread of the block must come here.
template <class Layout, class Load> DEVICE u32 read_levels(const u32 *header, Levels &levels) {
    u32 count = Load::load(header);
    count = count < LEVELS_MAX ? count : LEVELS_MAX;
    for (u32 l = 1 + thread_in_block(); l <= count; l += block_threads()) {
        levels.at[l - 1] = u32x2{Load::load(header + 4 + 2 * l), Layout::template base<Load>(header, l)};
    }
    sync_block();
    return count;
}

DEVICE u32 top(u32 key) { return key; }
DEVICE u32 top(u64 key) { return (u32)(key >> 32); }
DEVICE u32 answer(u32, u32 unit) { return unit >> 8; }
DEVICE u32 answer(u64, u32 unit) { return unit >> 8 | (unit & 0x80) << 24; }

// K keys searched in step, so that K loads are under way at once. A finished key keeps its unit: its loads are masked out.
template <class Load> struct Search {
    const u32 *words;
    const Levels *levels;
    u32 count;

    template <int K, class Key> METHOD void run(Key (&key)[K], u32 (&raw)[K]) const {
        u32 unit[K];
        u32x2 level = levels->at[0];
#pragma unroll
        for (int k = 0; k < K; k++) {
            unit[k] = Load::load(words + (level.y + (top(key[k]) >> (32 - level.x))));
        }
        for (u32 l = 1; l < count; l++) {
            u32 any = 0;
#pragma unroll
            for (int k = 0; k < K; k++) any |= unit[k];
            if ((any & 0x7f) == 0) break;
            u32 consumed = level.x;
            level = levels->at[l];
#pragma unroll
            for (int k = 0; k < K; k++) {
                key[k] <<= consumed;
                u32 at = level.y + (unit[k] >> 8) + (top(key[k]) >> (32 - level.x));
                Load::load_if(unit[k] & 0x7f, unit[k], words + at);
            }
        }
#pragma unroll
        for (int k = 0; k < K; k++) raw[k] = answer(key[k], unit[k]);
    }
};

template <class Layout, class Load, class Key>
DEVICE void lookup(const u32 *words, const u32 *header, const Key *keys, u32 *raw, u32 count) {
    SHARED static Levels levels;
    Search<Load> search = {words, &levels, read_levels<Layout, Load>(header, levels)};
    for_keys<Stream>(search, keys, raw, count, thread_in_grid(), grid_threads());
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
// them is open; steps that depend on each other are launches of their own, in one stream.
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
