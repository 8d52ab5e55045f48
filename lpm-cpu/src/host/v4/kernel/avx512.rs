//! The kernel of the AVX-512 modules, as a macro: its functions need the target features of the module that instantiates it.

/// The IPv4 kernel with the target features `$features`; `$ones` counts the set bits of sixteen words.
macro_rules! avx512_kernel {
    ($features:literal, $ones:path) => {
        #[target_feature(enable = $features)]
        #[inline]
        fn cells<const GATHER: bool>(table: &Table4, keys: __m512i) -> __m512i {
            // SAFETY: `records` has an entry for each /17, and a key shifted by 15 is below 2^17.
            let (maps, before) = unsafe { gather_records::<GATHER>(table, _mm512_srli_epi32::<15>(keys)) };
            let behind = _mm512_andnot_si512(_mm512_srli_epi32::<10>(keys), _mm512_set1_epi32(31));
            _mm512_add_epi32(before, $ones(_mm512_sllv_epi32(maps, behind)))
        }

        #[target_feature(enable = $features)]
        pub(super) fn lookup<const GATHER: bool, const BITS: u32, const INDEXED: bool>(
            table: &Table4,
            keys: &[u32],
            out: &mut [NextHopId],
        ) {
            let mut scratch = PieceWords([0; PIECE]);
            for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
                prefetch::piece(keys, out);
                for at in (0..keys.len()).step_by(16) {
                    scratch.set(at, cells::<GATHER>(table, load(keys, at).0));
                }
                // Indices of the keys in blocks; they overwrite cells that were read already.
                let mut aside = 0;
                for at in (0..keys.len()).step_by(16) {
                    let (key, live) = load(keys, at);
                    // SAFETY: the cells come from published records.
                    let code = unsafe { gather_codes::<GATHER, BITS>(table, scratch.get(at), key) };
                    // SAFETY: the codes come from published cells, and `ids` has an entry for each code.
                    store(out, at, live, unsafe { gather_ids::<GATHER, INDEXED>(table, code) });
                    let escaped = _mm512_mask_cmpeq_epi32_mask(live, code, escape::<BITS>());
                    if escaped != 0 {
                        scratch.set(aside, places(at, escaped));
                        aside += escaped.count_ones() as usize;
                    }
                }
                if aside > 0 {
                    scalar::blocks::<BITS>(table, keys, out, &scratch.0[..aside]);
                }
            }
        }
    };
}
