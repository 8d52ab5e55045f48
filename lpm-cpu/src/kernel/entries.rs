//! Loads of entries of 8, 16 or 32 bits, narrower than the words that a writer stores: the kernel needs no shift or mask.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

const _: () =
    assert!(cfg!(target_endian = "little"), "entry 0 of a word is in its low bits, and so at its address");

/// Loads entry `at` from `base`.
///
/// # Safety
/// The entry must exist, aligned, in an array of atomic words, and be an aligned part of each word that a writer stores. So it is read
/// whole, as by a gather.
#[inline(always)]
pub(crate) unsafe fn load_entry<const BITS: u32>(base: *const u8, at: u32, order: Ordering) -> u32 {
    let place = place_of::<BITS>(base, at).cast_mut();
    // SAFETY: by the caller's contract.
    unsafe {
        match BITS {
            8 => AtomicU8::from_ptr(place).load(order).into(),
            16 => AtomicU16::from_ptr(place.cast()).load(order).into(),
            _ => AtomicU32::from_ptr(place.cast()).load(order),
        }
    }
}

/// The address of entry `at`, which need not exist.
#[inline(always)]
pub(crate) fn place_of<const BITS: u32>(base: *const u8, at: u32) -> *const u8 {
    base.wrapping_add(at as usize * (BITS as usize / 8))
}
