//! Room for persistent kernels: all their blocks must be on the device at once, and their streams must not share a connection.
//!
//! A block of a persistent kernel never leaves, and a block without room waits for ever. So kernels are admitted before their
//! launch, over all readers and engines of the process, by the driver's occupancy: the blocks of a kernel that a multiprocessor
//! holds. A block's share of a multiprocessor is the inverse, whichever resource is scarce. A set of kernels fits if one holds:
//!
//! - the blocks take at most `1 - s` of the device, where `s` is the largest share of a block: then some multiprocessor always
//!   has `s` free, so each block finds a place in any order;
//! - there are more multiprocessors than blocks, so one is empty.
//!
//! Kernels that end, of updates and of lookups in other modes, count as one block that is not there yet
//! ([`ResidentRoom::for_one_block`](super::ResidentRoom::for_one_block)).

/// Parts of a multiprocessor: the least common multiple of 1 to 32, the possible occupancies of any device.
pub(super) const MULTIPROCESSOR: u64 = 144_403_552_893_600;

#[derive(Debug, Default)]
pub(super) struct Admitted {
    kernels: Vec<AdmittedKernel>,
    last_id: u64,
}

#[derive(Clone, Copy, Debug)]
struct AdmittedKernel {
    id: u64,
    /// Share of a block, in [`MULTIPROCESSOR`] parts.
    share: u64,
    /// Blocks that stay; 0 for a kernel that ends.
    blocks: u64,
}

struct Sums {
    largest: u64,
    taken: u64,
    blocks: u64,
}

impl Admitted {
    fn sums(&self, share: u64) -> Sums {
        let of = |take: fn(&AdmittedKernel) -> u64| self.kernels.iter().map(take);
        Sums {
            largest: of(|kernel| kernel.share).fold(share, u64::max),
            taken: of(|kernel| kernel.share * kernel.blocks).sum(),
            blocks: of(|kernel| kernel.blocks).sum(),
        }
    }

    pub(super) fn left(&self, share: u64, multiprocessors: u64) -> u64 {
        let Sums { largest, taken, blocks } = self.sums(share);
        let by_share = (multiprocessors * (MULTIPROCESSOR - largest)).saturating_sub(taken) / share;
        by_share.max(multiprocessors.saturating_sub(blocks + 1))
    }

    /// Whether a transient block of `share` always finds a place.
    pub(super) fn is_open_to(&self, share: u64, multiprocessors: u64) -> bool {
        let Sums { largest, taken, blocks } = self.sums(share);
        taken <= multiprocessors * (MULTIPROCESSOR - largest) || blocks < multiprocessors
    }

    pub(super) fn admit(&mut self, share: u64, blocks: u64) -> u64 {
        self.last_id += 1;
        self.kernels.push(AdmittedKernel { id: self.last_id, share, blocks });
        self.last_id
    }

    pub(super) fn release(&mut self, id: u64) {
        self.kernels.retain(|kernel| kernel.id != id);
    }

    pub(super) fn residents(&self) -> usize {
        self.kernels.iter().filter(|kernel| kernel.blocks > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether all blocks find a place in the worst order, which fills multiprocessors evenly.
    fn places_all(kernels: &[AdmittedKernel], multiprocessors: usize) -> bool {
        let last = kernels.iter().map(|kernel| kernel.share).max().unwrap_or(0);
        let mut free = vec![MULTIPROCESSOR; multiprocessors];
        for kernel in kernels {
            for _ in 0..kernel.blocks {
                let Some(most) = free.iter_mut().max() else { return false };
                if *most < kernel.share {
                    return false;
                }
                *most -= kernel.share;
            }
        }
        free.iter().any(|free| *free >= last)
    }

    #[test]
    fn what_is_admitted_finds_places_and_leaves_one_for_the_largest_block() {
        for multiprocessors in [1, 2, 5, 40, 132] {
            for occupancies in [[8, 8, 2], [2, 8, 16], [1, 3, 5], [6, 6, 6], [32, 1, 1], [1, 1, 1]] {
                let mut admitted = Admitted::default();
                for occupancy in occupancies.into_iter().cycle().take(40) {
                    let share = MULTIPROCESSOR / occupancy;
                    let piece = admitted.left(share, multiprocessors).min(7);
                    if piece == 0 && !admitted.is_open_to(share, multiprocessors) {
                        continue;
                    }
                    admitted.admit(share, piece);
                    assert!(admitted.is_open_to(share, multiprocessors));
                    let fits = places_all(&admitted.kernels, usize::try_from(multiprocessors).unwrap());
                    assert!(fits, "{multiprocessors}: {:?}", admitted.kernels);
                }
            }
        }
    }

    #[test]
    fn blocks_are_summed_over_all_kernels() {
        let (eighth, half) = (MULTIPROCESSOR / 8, MULTIPROCESSOR / 2);
        let mut admitted = Admitted::default();
        assert_eq!(admitted.left(eighth, 132), 132 * 7);
        let first = admitted.admit(eighth, 924);
        assert_eq!(admitted.left(eighth, 132), 0);
        admitted.release(first);
        admitted.admit(half, 0); // an update kernel with large blocks
        assert_eq!(admitted.left(eighth, 132), 132 * 4);
        admitted.admit(eighth, 500);
        assert_eq!(admitted.left(eighth, 132), 28);
        let mut large = Admitted::default();
        assert_eq!(large.left(MULTIPROCESSOR, 40), 39);
        large.admit(MULTIPROCESSOR, 39);
        assert_eq!(large.left(MULTIPROCESSOR, 40), 0);
    }
}
