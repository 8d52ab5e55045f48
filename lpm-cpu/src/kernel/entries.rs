//! Entries of 8, 16 or 32 bits, each by a load of its own, whatever the words are that a writer stores: neither a shift nor a mask is left for
//! a kernel to do, and without vectors these are most of its instructions.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

const _: () =
    assert!(cfg!(target_endian = "little"), "entry 0 of a word is in its low bits, and so at its address");

/// Entry `at` of those from `base` on.
///
/// # Safety
/// There is such an entry, aligned, in an array of atomic words. A writer stores words of which it is an aligned part, so it is read whole, as
/// by a gather.
#[inline(always)]
pub(crate) unsafe fn load_entry<const BITS: u32>(base: *const u8, at: u32, order: Ordering) -> u32 {
    let place = place_of::<BITS>(base, at).cast_mut();
    // SAFETY: as the caller says.
    unsafe {
        match BITS {
            8 => AtomicU8::from_ptr(place).load(order).into(),
            16 => AtomicU16::from_ptr(place.cast()).load(order).into(),
            _ => AtomicU32::from_ptr(place.cast()).load(order),
        }
    }
}

/// The address of entry `at`, which need not be there.
#[inline(always)]
pub(crate) fn place_of<const BITS: u32>(base: *const u8, at: u32) -> *const u8 {
    base.wrapping_add(at as usize * (BITS as usize / 8))
}
