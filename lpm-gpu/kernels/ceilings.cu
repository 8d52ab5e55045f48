// Upper limits of the device: the rate of random loads, and the time of one load. `gpu-ceilings` measures with these kernels;
// a lookup kernel is then judged by its share of the load rate at its table's size.
//
// Entries:
//   fill_words(words, count, seed)                              words[i] = mix(seed + i)
//   gather_{4|8|16}_{frozen|live}(words, bits, seed, rounds, sums)  2^bits elements of 4, 8 or 16 bytes; each thread loads
//                                                               4 x rounds of them at random and adds up their words
//   chase(words, bits, seed, steps, sums)                       each load's address depends on the word loaded before
// A thread writes its sum to sums[its number in the grid]: the loads are used, and a test can check them.
#include "common.cuh"

// The finaliser of MurmurHash3: every bit of `x` reaches every bit of the result, in 5 instructions or so. Addresses are made
// from a counter, so there are no keys to load that would count as well.
DEVICE u32 mix(u32 x) {
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    return x ^ x >> 16;
}

// Loads of 4, 8 and 16 bytes, their words added up.
struct Frozen4 {
    static const u32 WORDS = 1;
    DEVICE u32 sum(const u32 *p) { return load_frozen(p); }
};
struct Live4 {
    static const u32 WORDS = 1;
    DEVICE u32 sum(const u32 *p) { return load_live(p); }
};
#define PAIR(NAME, HOW)                                                                                              \
    struct NAME {                                                                                                    \
        static const u32 WORDS = 2;                                                                                  \
        DEVICE u32 sum(const u32 *p) {                                                                               \
            u32x2 v;                                                                                                 \
            asm volatile(HOW ".v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));                             \
            return v.x + v.y;                                                                                        \
        }                                                                                                            \
    }
#define QUAD(NAME, HOW)                                                                                              \
    struct NAME {                                                                                                    \
        static const u32 WORDS = 4;                                                                                  \
        DEVICE u32 sum(const u32 *p) {                                                                               \
            u32x4 v;                                                                                                 \
            asm volatile(HOW ".v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p)); \
            return v.x + v.y + (v.z + v.w);                                                                          \
        }                                                                                                            \
    }
PAIR(Frozen8, "ld.global.nc");
PAIR(Live8, "ld.relaxed.gpu.global");
QUAD(Frozen16, "ld.global.nc");
QUAD(Live16, "ld.relaxed.gpu.global");

// Element number `n` of the thread's sequence, out of 2^bits (1..=30): the top bits of the mix.
DEVICE u32 element(u32 n, u32 bits) { return mix(n) >> (32 - bits); }

template <class Load> DEVICE void gather(const u32 *words, u32 bits, u32 seed, u32 rounds, u32 *sums) {
    u32 n = seed + thread_in_grid(), step = grid_threads(), sum = 0;
#pragma unroll 1
    for (u32 round = 0; round < rounds; round++) {
        u32 loaded[4];
#pragma unroll
        for (int k = 0; k < 4; k++, n += step) loaded[k] = Load::sum(words + (u64)element(n, bits) * Load::WORDS);
#pragma unroll
        for (int k = 0; k < 4; k++) sum += loaded[k];
    }
    sums[thread_in_grid()] = sum;
}

#define GATHER(NAME, LOAD)                                                                       \
    GLOBAL NAME(const u32 *words, u32 bits, u32 seed, u32 rounds, u32 *sums) {                   \
        gather<LOAD>(words, bits, seed, rounds, sums);                                           \
    }
GATHER(gather_4_frozen, Frozen4)
GATHER(gather_4_live, Live4)
GATHER(gather_8_frozen, Frozen8)
GATHER(gather_8_live, Live8)
GATHER(gather_16_frozen, Frozen16)
GATHER(gather_16_live, Live16)

GLOBAL chase(const u32 *words, u32 bits, u32 seed, u32 steps, u32 *sums) {
    u32 n = seed + thread_in_grid(), sum = 0;
#pragma unroll 1
    for (u32 i = 0; i < steps; i++) {
        u32 word = load_live(words + element(n, bits));
        sum += word;
        n += word;
    }
    sums[thread_in_grid()] = sum;
}

GLOBAL fill_words(u32 *words, u32 count, u32 seed) {
    for (u32 i = thread_in_grid(); i < count; i += grid_threads()) words[i] = mix(seed + i);
}
