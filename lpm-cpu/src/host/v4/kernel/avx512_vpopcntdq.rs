//! The AVX-512 kernel with VPOPCNTDQ. `avx512f` has the parts that both modules share.

use super::avx512f::{PieceWords, escape, gather_codes, gather_ids, gather_records, load, places, store};
use super::{PIECE, scalar};
use crate::host::v4::table::Table4;
use fib::NextHopId;
use lpm_core::prefetch;
use std::arch::x86_64::*;

avx512_kernel!("avx512f,avx512cd,avx512vpopcntdq,popcnt,lzcnt,bmi1,bmi2", _mm512_popcnt_epi32);
