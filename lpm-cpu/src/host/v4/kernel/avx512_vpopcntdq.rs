//! The AVX-512 kernel with VPOPCNTDQ.

use super::vector;
use crate::host::v4::table::Table4;
use crate::kernel::fetch::Fetch;
use fib::NextHopId;
use lpm_core::lanes::Avx512f;
use std::arch::x86_64::_mm512_popcnt_epi32;

#[target_feature(enable = "avx512f,avx512cd,avx512vpopcntdq,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn lookup<F: Fetch<Avx512f>, const BITS: u32, const INDEXED: bool>(
    table: &Table4,
    keys: &[u32],
    out: &mut [NextHopId],
) {
    let ones = |words| _mm512_popcnt_epi32(words);
    vector::lookup::<_, F, BITS, INDEXED>(Avx512f::new(), ones, table, keys, out);
}
