//! One word in a general register, for the plain form of an algorithm.

use super::{HashWords, Words};

/// Words one at a time, on every CPU.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

macro_rules! plain {
    ($($name:ident($($argument:ident: $type:ty),+) = $operation:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($argument: $type),+) -> u32 {
            $operation
        }
    )*};
}

impl Words for Scalar {
    type Vector = u32;

    plain! {
        splat(word: u32) = word;
        and(a: u32, b: u32) = a & b;
        or(a: u32, b: u32) = a | b;
        add(a: u32, b: u32) = a.wrapping_add(b);
        sub(a: u32, b: u32) = a.wrapping_sub(b);
        mul(a: u32, b: u32) = a.wrapping_mul(b);
        shift_left(a: u32, bits: i32) = a.wrapping_shl(bits.cast_unsigned());
        shift_right(a: u32, bits: i32) = a.wrapping_shr(bits.cast_unsigned());
        shift_left_each(a: u32, b: u32) = a.wrapping_shl(b);
        shift_right_each(a: u32, b: u32) = a.wrapping_shr(b);
    }
}

impl HashWords for Scalar {
    plain! {
        xor(a: u32, b: u32) = a ^ b;
        mul_high_by(a: u32, word: u32) = ((u64::from(a) * u64::from(word)) >> 32) as u32;
        rotate_left(a: u32, bits: i32) = a.rotate_left(bits.cast_unsigned());
    }
}
