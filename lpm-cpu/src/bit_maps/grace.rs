//! Decides when an update of bit maps needs a grace period.
//!
//! A lookup reads the deepest level first. If it finds no bit there and the bit is set afterwards, a store to a shallower level would let
//! it answer with a shorter route that is no longer the longest match. So a grace period separates setting a bit, in this delta or an
//! earlier one, from the first store to a shallower level for addresses below that node.

use fib::Prefix4;

const BLOCK_BITS: u32 = 12;
const WORDS: usize = (1 << BLOCK_BITS) / 64;

/// Bits set since the last grace period: one bit for each /12, and the deepest level of all.
#[derive(Debug)]
pub(crate) struct Grace {
    blocks: [u64; WORDS],
    deepest: u8,
}

impl Default for Grace {
    fn default() -> Self {
        Self { blocks: [0; WORDS], deepest: 0 }
    }
}

/// The words of `blocks` that `prefix` covers, with a mask of its bits.
fn words(prefix: Prefix4) -> impl Iterator<Item = (usize, u64)> {
    let [first, last] =
        [prefix.address(), prefix.last_address()].map(|address| (address >> (32 - BLOCK_BITS)) as usize);
    (first / 64..=last / 64).map(move |word| {
        let from = if word == first / 64 { u64::MAX << (first % 64) } else { u64::MAX };
        let to = if word == last / 64 { u64::MAX >> (63 - last % 64) } else { u64::MAX };
        (word, from & to)
    })
}

impl Grace {
    pub(crate) fn ended(&mut self) {
        if self.deepest > 0 {
            *self = Self::default();
        }
    }

    pub(crate) fn note(&mut self, level: u8, prefix: Prefix4) {
        self.deepest = self.deepest.max(level);
        words(prefix).for_each(|(word, bits)| self.blocks[word] |= bits);
    }

    /// Returns whether a lookup in flight may have read a bit below `prefix` before it was set and still read `level`.
    pub(crate) fn is_owed(&self, level: u8, prefix: Prefix4) -> bool {
        self.deepest > level && words(prefix).any(|(word, bits)| self.blocks[word] & bits != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_period_is_owed_above_a_bit_that_was_set() {
        let mut grace = Grace::default();
        grace.note(18, Prefix4::truncating(0x0a12_3400, 24));
        for (address, len, owed) in [
            (0, 0, true),
            (0x0a00_0000, 8, true),
            (0x0a10_0000, 12, true),
            (0x0a20_0000, 12, false),
            (0x0c00_0000, 6, false),
            (0x0800_0000, 6, true),
        ] {
            assert_eq!(grace.is_owed(12, Prefix4::truncating(address, len)), owed, "{address:#x}/{len}");
            assert!(!grace.is_owed(18, Prefix4::truncating(address, len)), "the same level");
        }
        grace.ended();
        assert!(!grace.is_owed(0, Prefix4::DEFAULT));
    }
}
