// The part of CUDA's language that our kernels use, so that clang compiles them without a CUDA toolkit.
//
// Everything here is a builtin of clang or one line of PTX. The build (scripts/ptx.sh) passes -nocudainc, so nothing
// else is in scope, and the PTX depends on this file, its .cu and the compiler alone.
//
// Loads and stores carry the cache behaviour in their name:
//   frozen  ld.global.nc: the table is not written while the kernel runs, so it may sit in L1's read-only path;
//   live    ld.relaxed.gpu: update kernels write single words meanwhile; reads and writes meet in L2;
//   sys     ld.relaxed.sys / st.relaxed.sys: shared with the host while the kernel runs;
//   stream  ld.global.cs / st.global.cs: read or written once, should not push the table out of L2.
#pragma once

// Any kernel may be launched with blocks of 1,024 threads: the compiler of the driver keeps to the registers that leaves each (`.maxntid`).
#define GLOBAL extern "C" __attribute__((global, launch_bounds(1024))) void
#define DEVICE static __attribute__((device, always_inline)) inline
#define METHOD __attribute__((device, always_inline)) inline
#define SHARED __attribute__((shared))

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u32 u32x2 __attribute__((ext_vector_type(2)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef u64 u64x2 __attribute__((ext_vector_type(2)));

// Words in front of every table (host.rs: HEADER_WORDS).
enum { HEADER_WORDS = 128 };
// In a raw answer: 64 bits matched and longer prefixes lie below (host.rs: RAW_DEEP).
static const u32 RAW_DEEP = 1u << 31;

// An argument of the write kernel (host.rs: Write).
struct alignas(8) Write {
    u32 at;
    u32 value;
};

// An argument of a table's own update kernel (host.rs: PrefixOp).
struct alignas(16) PrefixOp {
    u32 address;
    u32 how;
    u32 value;
    u32 reserved;
};

DEVICE u32 thread_in_block() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE u32 block_threads() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE u32 block() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE u32 block_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE u32 blocks() { return __nvvm_read_ptx_sreg_nctaid_x(); }

// This thread's number in the launch, and the threads of the launch: GAMT's "jump" assignment (Algorithm 1) steps by the
// second from the first.
DEVICE u32 thread_in_grid() { return block() * block_threads() + thread_in_block(); }
DEVICE u32 grid_threads() { return blocks() * block_threads(); }

DEVICE void sync_block() { __syncthreads(); }
DEVICE void fence_system() { __nvvm_membar_sys(); }
DEVICE void fence_device() { __nvvm_membar_gl(); }
DEVICE void sleep_ns(u32 ns) { asm volatile("nanosleep.u32 %0;" ::"r"(ns)); }

DEVICE u32 load_frozen(const u32 *p) { return __nvvm_ldg_ui(p); }

DEVICE u32 load_live(const u32 *p) {
    u32 v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}

DEVICE void store_live(u32 *p, u32 v) { asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }

DEVICE u64 load_sys_u64(const u64 *p) {
    u64 v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}

DEVICE void store_sys(u32 *p, u32 v) { asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }

// The two kinds of table load, one chosen per entry at compile time. `load_if` leaves `unit` alone where `wanted` is zero:
// one predicated instruction, no branch, so the keys of a thread stay in step.
struct Frozen {
    DEVICE u32 load(const u32 *p) { return load_frozen(p); }
    DEVICE void load_if(u32 wanted, u32 &unit, const u32 *p) {
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; @p ld.global.nc.u32 %0, [%2]; }"
                     : "+r"(unit)
                     : "r"(wanted), "l"(p));
    }
};
struct Live {
    DEVICE u32 load(const u32 *p) { return load_live(p); }
    DEVICE void load_if(u32 wanted, u32 &unit, const u32 *p) {
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; @p ld.relaxed.gpu.global.u32 %0, [%2]; }"
                     : "+r"(unit)
                     : "r"(wanted), "l"(p));
    }
};

// Keys are read once, 16 bytes or one key at a time. A warp's loads of memory of the host are put together to requests of whole
// lines; loads of system scope are not, and take 30 to 60 ns each (H100).
DEVICE u32x4 load_stream(const u32x4 *p) {
    u32x4 v;
    asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
DEVICE u32 load_stream(const u32 *p) {
    u32 v;
    asm volatile("ld.global.cs.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}
DEVICE u64 load_stream(const u64 *p) {
    u64 v;
    asm volatile("ld.global.cs.u64 %0, [%1];" : "=l"(v) : "l"(p));
    return v;
}

DEVICE void store_stream(u32 *p, u32 v) { asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
DEVICE void store_stream(u32x2 *p, u32x2 v) {
    asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(v.x), "r"(v.y) : "memory");
}
DEVICE void store_stream(u32x4 *p, u32x4 v) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// Runs `search` over `count` keys: 16 bytes of keys a thread and step where the addresses allow it (4 IPv4, 2 IPv6), one key
// a thread for the rest. `first` and `step` number the threads that share the batch. `Search::run<K>(keys, raw)` answers K
// keys at once. Blocks that share a cache line of keys are neighbours, so loads and stores coalesce.
template <class Search> DEVICE void for_keys(const Search &search, const u32 *keys, u32 *raw, u32 count, u32 first, u32 step) {
    u32 done = 0;
    if ((((u64)keys | (u64)raw) & 15) == 0) {
        u32 fours = count / 4;
        for (u32 i = first; i < fours; i += step) {
            u32x4 v = load_stream((const u32x4 *)keys + i);
            u32 key[4] = {v.x, v.y, v.z, v.w}, answer[4];
            search.template run<4>(key, answer);
            store_stream((u32x4 *)raw + i, u32x4{answer[0], answer[1], answer[2], answer[3]});
        }
        done = fours * 4;
    }
    for (u32 i = done + first; i < count; i += step) {
        u32 key[1] = {load_stream(keys + i)}, answer[1];
        search.template run<1>(key, answer);
        store_stream(raw + i, answer[0]);
    }
}
template <class Search> DEVICE void for_keys(const Search &search, const u64 *keys, u32 *raw, u32 count, u32 first, u32 step) {
    u32 done = 0;
    if (((u64)keys & 15) == 0 && ((u64)raw & 7) == 0) {
        u32 twos = count / 2;
        for (u32 i = first; i < twos; i += step) {
            u32x4 v = load_stream((const u32x4 *)keys + i);
            u64 key[2] = {(u64)v.y << 32 | v.x, (u64)v.w << 32 | v.z};
            u32 answer[2];
            search.template run<2>(key, answer);
            store_stream((u32x2 *)raw + i, u32x2{answer[0], answer[1]});
        }
        done = twos * 2;
    }
    for (u32 i = done + first; i < count; i += step) {
        u64 key[1] = {load_stream(keys + i)};
        u32 answer[1];
        search.template run<1>(key, answer);
        store_stream(raw + i, answer[0]);
    }
}

// Persistent lookups: one launch stays on the device and serves slots that the host fills, without a driver call a batch.
//
// Launch (slots, done, blocks a slot) with grid (blocks a slot, slots, 1): blockIdx.y is the slot, blockIdx.x the block's part
// of it. All blocks must be resident at once (at most the driver's occupancy, less room for write_words).
//
// For a batch the host writes words, header, keys, raw of the slot, then, last and as one 64-bit store (release), the
// doorbell: batch number in the low half (1, 2, .. counted per slot, never STOP), keys in the high half. Each block that has
// answered its part writes the batch number to done[slot * blocks a slot + part]; the batch is complete once all parts wrote it.
// Doorbell and done start at zero. The slot's fields may change again only then. A doorbell of STOP ends the slot's blocks.
//
// All four are device addresses; keys and raw lie in mapped memory. The thread that has seen the doorbell executes a fence of
// system scope, which makes its load an acquire pattern and empties L1, and then meets the others at a barrier. So their ordinary
// loads after it see all that the host wrote before it rang (PTX ISA, causality order), and a batch after a swap or an update sees
// that. While this kernel runs, driver calls that wait for the whole device would wait for ever (cuMemFree, cuCtxSynchronize, the
// first launch of a lazily loaded kernel): stop it first.
struct alignas(64) Slot {
    u64 doorbell;
    u64 reserved;
    const u32 *words;
    const u32 *header;
    const void *keys;
    u32 *raw;
    u64 unused[2];
};

static const u32 STOP = 0xffffffffu;

// Long enough to keep polls from all blocks off the bus, and short compared to a trip to host memory (about 1 us).
static const u32 POLL_NS = 100;

DEVICE u64x2 load_pair(const void *p) {
    u64x2 v;
    asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(p) : "memory");
    return v;
}

// `Table::open(words, header)` returns the search object of `for_keys`; all threads of the block call it together.
template <class Table, class Key> DEVICE void serve(const Slot *slots, u32 *done, u32 parts) {
    SHARED static u64 rung;
    const Slot *slot = slots + block_y();
    u32 part = block();
    u32 served = 0;
    for (;;) {
        if (thread_in_block() == 0) {
            u64 bell = load_sys_u64(&slot->doorbell);
            while ((u32)bell == served) {
                sleep_ns(POLL_NS);
                bell = load_sys_u64(&slot->doorbell);
            }
            fence_system();
            rung = bell;
        }
        sync_block();
        u64 bell = rung;
        served = (u32)bell;
        if (served == STOP) return;
        u64x2 table = load_pair(&slot->words);
        u64x2 batch = load_pair(&slot->keys);
        auto search = Table::open((const u32 *)table.x, (const u32 *)table.y);
        for_keys(search, (const Key *)batch.x, (u32 *)batch.y, (u32)(bell >> 32), part * block_threads() + thread_in_block(),
                 parts * block_threads());
        sync_block();
        if (thread_in_block() == 0) {
            fence_system();
            store_sys(done + block_y() * parts + part, served);
        }
    }
}
