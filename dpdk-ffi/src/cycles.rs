//! The time stamp counter: the cheapest clock, for latency stamps and cycles a packet.

use crate::eal::Eal;
use crate::sys;

/// The current time stamp counter, not ordered against surrounding loads and stores (as `rte_rdtsc`).
#[inline(always)]
#[must_use]
pub fn tsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has the instruction, and Linux leaves it enabled for user code.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let count: u64;
        // SAFETY: reads the generic timer's counter, which Linux lets user code read; touches nothing else.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack)) };
        count
    }
}

/// Ticks of [`tsc`] a second, as measured by EAL at start.
#[must_use]
pub fn tsc_hz(_eal: &Eal) -> u64 {
    // SAFETY: reads a number that rte_eal_init has set; the token proves that it ran.
    unsafe { sys::rte_get_tsc_hz() }
}

/// Hints to the CPU that this is a busy-wait loop (`rte_pause`).
#[inline(always)]
pub fn pause() {
    core::hint::spin_loop();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_moves_forward() {
        let before = tsc();
        let moved = (0..1_000_000).any(|_| {
            pause();
            tsc() > before
        });
        assert!(moved, "a million pauses and the counter stood still");
    }
}
