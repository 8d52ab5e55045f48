//! Which grace periods an update of bit maps owes to running lookups.
//!
//! A lookup asks the deepest level first. One that found no bit there goes on to shallower levels, and must not find them changed once
//! that bit is set: it would answer with a shorter route that is no longer the longest match. So after a bit was set, by this delta or
//! an earlier one, a grace period comes before the first store to a shallower level for addresses below that node.

use fib::Prefix4;

/// Bits that tell blocks of addresses apart.
const BLOCK_BITS: u32 = 12;
const WORDS: usize = (1 << BLOCK_BITS) / 64;

/// Where bits were set since the last grace period: a bit for each /12, and the deepest level in all of them.
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

/// The words of blocks that `prefix` has bits in, and which bits.
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
    /// A grace period has ended.
    pub(crate) fn ended(&mut self) {
        if self.deepest > 0 {
            *self = Self::default();
        }
    }

    /// Bits of `level` were set below `prefix`.
    pub(crate) fn note(&mut self, level: u8, prefix: Prefix4) {
        self.deepest = self.deepest.max(level);
        words(prefix).for_each(|(word, bits)| self.blocks[word] |= bits);
    }

    /// Whether a running lookup may go on to `level` below `prefix` past a bit that is set by now.
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
