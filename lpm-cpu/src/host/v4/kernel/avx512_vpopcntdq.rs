//! The AVX-512 kernel with VPOPCNTDQ. What it shares with that of AVX-512F alone is there.

use super::avx512f::{PieceWords, escape, gather_codes, gather_ids, gather_records, load, places, store};
use super::{PIECE, scalar};
use crate::host::v4::table::Table4;
use fib::NextHopId;
use lpm_core::prefetch;
use std::arch::x86_64::*;

avx512_kernel!("avx512f,avx512cd,avx512vpopcntdq,popcnt,lzcnt,bmi1,bmi2", _mm512_popcnt_epi32);
