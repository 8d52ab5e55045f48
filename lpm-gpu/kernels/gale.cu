// GALE: lookups in the direct table and its second stage, and the kernel that draws routes on it.
//
// A unit is `value << 8 | chunk << 7 | depth` (src/direct/unit.rs): next hop and length of the route that it came from, or
// the number of a chunk. Words 0..2^24 are indexed by the key's first 24 bits; chunk c is the 256 words from
// 2^24 + 256 c, indexed by the last 8. The kernels need nothing of the header.
//
// Entries: gale_lookup_v4_{frozen|live}(words, header, keys, raw, count), gale_persistent_v4(slots, done, parts); the same with
// `v4_direct` for tables without a second stage, as in the poster; gale_operations(words, header, ops, count), which is to be
// launched as one block.
#include "common.cuh"

enum { DIRECT_UNITS = 1 << 24, CHUNK_UNITS = 256, CHUNK = 0x80, DEPTH = 0x3f };
enum { INSERT = 1, MODIFY = 2, DELETE = 3, EXTEND = 4, FOLD = 5 };

// First word of the chunk that `unit` leads to: its value times 256, without the shift by 8 that would be undone.
DEVICE u32 chunk_of(u32 unit) { return DIRECT_UNITS + (unit & ~0xffu); }

// K keys in step: K loads are under way at once, and a second each for those that found a chunk.
template <class Load> struct Search {
    const u32 *words;

    template <int K> METHOD void run(u32 (&key)[K], u32 (&raw)[K]) const {
        u32 unit[K];
#pragma unroll
        for (int k = 0; k < K; k++) unit[k] = Load::load(words + (key[k] >> 8));
#pragma unroll
        for (int k = 0; k < K; k++) Load::load_if(unit[k] & CHUNK, unit[k], words + (chunk_of(unit[k]) + (key[k] & 0xff)));
#pragma unroll
        for (int k = 0; k < K; k++) raw[k] = unit[k] >> 8;
    }
};

// The poster's lookup: one load a key, and nothing to test.
template <class Load> struct SearchDirect {
    const u32 *words;

    template <int K> METHOD void run(u32 (&key)[K], u32 (&raw)[K]) const {
#pragma unroll
        for (int k = 0; k < K; k++) raw[k] = Load::load(words + (key[k] >> 8)) >> 8;
    }
};

#define LOOKUP(NAME, SEARCH)                                                                                        \
    GLOBAL NAME(const u32 *words, const u32 *, const u32 *keys, u32 *raw, u32 count) {                              \
        for_keys(SEARCH{words}, keys, raw, count, thread_in_grid(), grid_threads());                        \
    }

LOOKUP(gale_lookup_v4_frozen, Search<Frozen>)
LOOKUP(gale_lookup_v4_live, Search<Live>)
LOOKUP(gale_lookup_v4_direct_frozen, SearchDirect<Frozen>)
LOOKUP(gale_lookup_v4_direct_live, SearchDirect<Live>)

template <class Search> struct Open {
    DEVICE Search open(const u32 *words, const u32 *) { return {words}; }
};

#define PERSISTENT(NAME, SEARCH) \
    GLOBAL NAME(const Slot *slots, u32 *done, u32 parts) { serve<Open<SEARCH>, u32>(slots, done, parts); }

PERSISTENT(gale_persistent_v4, Search<Live>)
PERSISTENT(gale_persistent_v4_direct, SearchDirect<Live>)

// A route over a run of units: the depth test, and what passes it becomes. The poster's delete needs a second pass over the
// stencil buffer, since OpenGL's depth test knows no "exactly this depth with another depth written"; here a unit is one
// thread's, which compares and writes, so both passes are one.
struct Draw {
    u32 *words;
    u32 depth_min, depth_span, unit;

    METHOD void one(u32 at, u32 old) const {
        if ((old & DEPTH) - depth_min <= depth_span) store_live(words + at, unit);
    }

    // The 256 units of a chunk by one thread, eight loads under way: a wide route meets a chunk now and then.
    METHOD void chunk(u32 base) const {
#pragma unroll 1
        for (u32 i = 0; i < CHUNK_UNITS; i += 8) {
            u32 old[8];
#pragma unroll
            for (int k = 0; k < 8; k++) old[k] = load_live(words + base + i + k);
#pragma unroll
            for (int k = 0; k < 8; k++) one(base + i + k, old[k]);
        }
    }

    // One thread's `K` units, `step` apart; a unit of the direct table that points to a chunk is drawn inside the chunk.
    template <int K> METHOD void some(u32 at, u32 step) const {
        u32 old[K], any = 0;
#pragma unroll
        for (u32 k = 0; k < K; k++) old[k] = load_live(words + at + k * step);
#pragma unroll
        for (u32 k = 0; k < K; k++) {
            any |= old[k];
            if (!(old[k] & CHUNK)) one(at + k * step, old[k]);
        }
        if (!(any & CHUNK)) return;
        // Rare, so the units are read again rather than kept in registers by number.
#pragma unroll 1
        for (u32 k = 0; k < K; k++, at += step) {
            u32 unit = load_live(words + at);
            if (unit & CHUNK) chunk(chunk_of(unit));
        }
    }

    // `count` units by the block.
    METHOD void run(u32 first, u32 count) const {
        u32 i = thread_in_block(), step = block_threads();
#pragma unroll 1
        for (; i + 3 * step < count; i += 4 * step) some<4>(first + i, step);
#pragma unroll 1
        for (; i < count; i += step) some<1>(first + i, step);
    }
};

// Runs `count` operations in order: each reads what the previous one wrote. A unit is written once in an operation, by
// one 32-bit store, so a running lookup sees the unit of before or of after.
GLOBAL gale_operations(u32 *words, const u32 *, const PrefixOp *ops, u32 count) {
    for (u32 n = 0; n < count; n++) {
        u32 address = ops[n].address, how = ops[n].how, value = ops[n].value;
        u32 kind = how & 0xff, length = how >> 8 & 0xff, depth = how >> 16 & 0xff;
        u32 *slot = words + (address >> 8);
        if (kind == EXTEND) {
            u32 under = load_live(slot);
            for (u32 i = thread_in_block(); i < CHUNK_UNITS; i += block_threads()) {
                store_live(words + DIRECT_UNITS + value * CHUNK_UNITS + i, under);
            }
            // Every lookup sees the chunk before the unit that leads to it: the barrier makes the block's stores visible to
            // the first thread, whose fence orders these stores before its own.
            sync_block();
            if (thread_in_block() == 0) {
                fence_device();
                store_live(slot, value << 8 | CHUNK);
            }
        } else if (kind == FOLD) {
            if (thread_in_block() == 0) store_live(slot, load_live(words + DIRECT_UNITS + value * CHUNK_UNITS));
        } else {
            u32 depth_min = kind == INSERT ? 0 : length;
            Draw draw = {words, depth_min, length - depth_min, value << 8 | depth};
            u32 first = address >> 8, units = 1u << (24 - length);
            if (length > 24) {
                u32 unit = load_live(slot);
                first = chunk_of(unit) + (address & 0xff);
                units = unit & CHUNK ? 1u << (32 - length) : 0;
            }
            draw.run(first, units);
        }
        fence_device();
        sync_block();
    }
}
