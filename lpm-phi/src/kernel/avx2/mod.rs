//! The AVX2 kernels, for CPUs without AVX-512: the stages of `avx512f`, key by key.
//!
//! An AVX2 gather is no faster than eight loads, and AVX2 cannot compress the lanes of a mask. So keys are loaded and listed one at a
//! time, without a branch on the value loaded; only hashes and the slots of a line use vectors. The gain is the stage's independent loads.

mod v4;
mod v6;

use super::lists::{AHEAD, LIST, PIECE};
use lpm_core::prefetch;

pub(super) use v4::lookup_v4;
pub(super) use v6::lookup_v6;

/// Stage 3: finds the tag of each of `len` probes in its line of `LINE_WORDS` words, which was prefetched [`AHEAD`] probes earlier.
#[inline(always)]
fn probe_lines<W, T: Copy, const LINE_WORDS: usize>(
    words: &[W],
    (line, tag): (&[u32; LIST], &[T; LIST]),
    found: &mut [u32; LIST],
    len: usize,
    find: impl Fn(&[W], T) -> u32,
) {
    let words_of = |line: u32| &words[line as usize * LINE_WORDS..][..LINE_WORDS];
    // Entries past the list's length are left from earlier pieces: prefetching for them is harmless.
    let ask = |line: u32| words.get(line as usize * LINE_WORDS).map_or((), |word| prefetch::line(word));
    line[..AHEAD].iter().for_each(|line| ask(*line));
    for at in 0..len.min(PIECE) {
        ask(line[at + AHEAD]);
        found[at] = find(words_of(line[at]), tag[at]);
    }
}
