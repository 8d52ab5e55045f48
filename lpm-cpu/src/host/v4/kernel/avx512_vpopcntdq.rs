//! The AVX-512 kernel with VPOPCNTDQ. What it shares with that of AVX-512F alone is there.

use super::PIECE;
use super::avx512f::{
    PieceWords, escape, gather_blocks, gather_codes, gather_ids, gather_records, load, places, scatter, store,
};
use crate::host::v4::table::Table4;
use crate::kernel::avx512f::lanes;
use fib::NextHopId;
use lpm_core::prefetch;
use std::arch::x86_64::*;

avx512_kernel!("avx512f,avx512cd,avx512vpopcntdq,popcnt,lzcnt,bmi1,bmi2", _mm512_popcnt_epi32);
