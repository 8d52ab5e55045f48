//! Raw answers that are next-hop ids already.

use crate::host::{Answers, KeySlice};
use fib::{Key, NextHopId};

/// The device answers with next-hop ids: nothing is left to look up.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainAnswers;

impl<K: Key> Answers<K> for PlainAnswers {
    fn reads_keys(&self) -> bool {
        false
    }

    fn resolve(&self, _keys: KeySlice<'_, K>, raw: &[u32], out: &mut [NextHopId]) {
        for (raw, out) in raw.iter().zip(out) {
            *out = NextHopId::from_answer(*raw);
        }
    }
}
