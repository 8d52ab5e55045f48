//! Remainders without a division instruction, for lookups: the paper takes each hash modulo a size (section 4.1).
//!
//! The quotient by a constant n is a multiplication by 2^(32+s)/n, rounded up, whose 33rd bit is implicit, after Granlund and Montgomery,
//! "Division by invariant integers using multiplication" (1994), section 4. It is exact for every 32-bit value.

use lpm_core::lanes::{HashWords, Scalar};

/// A divisor from 2 to 2^32 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divisor {
    pub(crate) n: u32,
    /// The multiplier without its 33rd bit.
    magic: u32,
    shift: u32,
}

impl Divisor {
    /// Division by `n`; 0 and 1 count as 2.
    #[expect(clippy::cast_possible_truncation, reason = "the 33rd bit is cut off on purpose")]
    pub(crate) const fn new(n: u32) -> Self {
        let n = if n < 2 { 2 } else { n };
        // With l = ceil(lg n): magic = floor(2^32 (2^l - n) / n) + 1.
        let l = 32 - (n - 1).leading_zeros();
        let magic = ((((1_u64 << l) - n as u64) << 32) / n as u64 + 1) as u32;
        Self { n, magic, shift: l - 1 }
    }

    #[inline]
    pub(crate) fn remainder(&self, x: u32) -> u32 {
        self.remainder_of(Scalar, x)
    }

    /// The remainder of each word.
    #[inline(always)]
    pub(crate) fn remainder_of<W: HashWords>(&self, words: W, x: W::Vector) -> W::Vector {
        let high = words.mul_high_by(x, self.magic);
        let half = words.shift_right(words.sub(x, high), 1);
        let quotient = words.shift_right(words.add(half, high), self.shift.cast_signed());
        words.sub(x, words.mul(quotient, words.splat(self.n)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn remainders_at_the_edges() {
        for n in (2..2000)
            .chain((1..32).flat_map(|bit| [(1_u32 << bit) - 1, 1 << bit, (1 << bit) + 1]))
            .chain([u32::MAX - 1, u32::MAX])
        {
            let divisor = Divisor::new(n);
            for x in [
                0,
                1,
                n - 1,
                n,
                n.wrapping_add(1),
                n.wrapping_mul(2).wrapping_sub(1),
                u32::MAX - 1,
                u32::MAX,
                u32::MAX / n * n,
                (u32::MAX / n * n).wrapping_sub(1),
            ] {
                assert_eq!(divisor.remainder(x), x % divisor.n, "{x} modulo {n}");
            }
        }
    }

    proptest! {
        #[test]
        fn remainders_are_right(x in any::<u32>(), n in prop_oneof![2_u32..5_000_000, 2_u32..]) {
            prop_assert_eq!(Divisor::new(n).remainder(x), x % n);
        }
    }
}
