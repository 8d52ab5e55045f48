//! The FPGA of section 5.1, as a model: one pipeline stage for the on-chip structure of each level, and the block RAMs these take.
//!
//! It says whether the on-chip part of a table fits a device. A stage's structure is one memory, rounded up to whole block RAMs; how a
//! synthesis tool shapes it is not modelled, and nothing is said about a clock.

use crate::bit_maps::{Levels as _, onchip_bits};
use crate::chunks::CHUNK_ENTRIES;
use crate::sail_b::EveryLevel;
use crate::sail_l::layout::ENTRIES16;
use crate::sail_u::EverySixthLevel;

/// The block RAMs of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The device's name.
    pub name: &'static str,
    /// Block RAMs.
    pub block_rams: u64,
    /// Bits of each.
    pub block_ram_bits: u64,
}

/// The device of the paper: 1,880 block RAMs of 36 Kb, 8.26 MiB.
pub const XC7VX1140T: Device = Device { name: "XC7VX1140T", block_rams: 1880, block_ram_bits: 36 << 10 };

impl Device {
    /// On-chip memory, bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.block_rams * self.block_ram_bits / 8
    }
}

/// A pipeline stage: the on-chip structure of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The level.
    pub level: u8,
    /// Bits of its structure.
    pub bits: u64,
}

/// An algorithm's pipeline, the deepest level's stage last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// The stages, by level.
    pub stages: Vec<Stage>,
}

impl Pipeline {
    /// SAIL_B: the bit maps of levels 0 to 24, whatever the table.
    #[must_use]
    pub fn sail_b() -> Self {
        Self::of_bit_maps(EveryLevel::LEVELS)
    }

    /// SAIL_U: the bit maps of levels 6, 12, 18 and 24, whatever the table.
    #[must_use]
    pub fn sail_u() -> Self {
        Self::of_bit_maps(EverySixthLevel::LEVELS)
    }

    /// SAIL_L with so many chunks of level 24: BCN, of 16 bits an entry, and B24 (section 4.2: what is on chip on an FPGA).
    #[must_use]
    pub fn sail_l(chunks24: u64) -> Self {
        let bcn = Stage { level: 16, bits: 16 * ENTRIES16 as u64 };
        let b24 = Stage { level: 24, bits: chunks24 * CHUNK_ENTRIES as u64 };
        Self { stages: vec![bcn, b24] }
    }

    fn of_bit_maps(levels: &[u8]) -> Self {
        let stages = levels.iter().map(|level| Stage { level: *level, bits: onchip_bits(&[*level]) });
        Self { stages: stages.collect() }
    }

    /// Bits of all stages.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.stages.iter().map(|stage| stage.bits).sum()
    }

    /// The block RAMs of `device` that the stages take, each its own.
    #[must_use]
    pub fn block_rams(&self, device: Device) -> u64 {
        self.stages.iter().map(|stage| stage.bits.div_ceil(device.block_ram_bits)).sum()
    }

    /// Whether the pipeline fits `device`.
    #[must_use]
    pub fn fits(&self, device: Device) -> bool {
        self.block_rams(device) <= device.block_rams
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mebibytes, to two digits.
    fn mib(bytes: u64) -> String {
        #[expect(clippy::cast_precision_loss, reason = "two digits are asked for")]
        let mib = bytes as f64 / f64::from(1 << 20);
        format!("{mib:.2}")
    }

    #[test]
    fn the_device_has_the_memory_that_the_paper_says() {
        assert_eq!((XC7VX1140T.bytes(), mib(XC7VX1140T.bytes())), (8_663_040, "8.26".to_owned()));
    }

    #[test]
    fn all_three_algorithms_fit_the_device_with_any_table() {
        let (b, u, l) = (Pipeline::sail_b(), Pipeline::sail_u(), Pipeline::sail_l(1 << 16));
        assert_eq!((b.stages.len(), b.bits()), (25, (1 << 25) - 1));
        assert_eq!((u.stages.len(), u.bits()), (4, (1 << 6) + (1 << 12) + (1 << 18) + (1 << 24)));
        assert_eq!((l.stages.len(), l.bits()), (2, (1 << 20) + (1 << 24)));
        assert_eq!([&b, &u, &l].map(|pipeline| mib(pipeline.bits().div_ceil(8))), ["4.00", "2.03", "2.12"]);
        assert_eq!([&b, &u, &l].map(|pipeline| pipeline.block_rams(XC7VX1140T)), [929, 466, 485]);
        assert!([b, u, l].iter().all(|pipeline| pipeline.fits(XC7VX1140T)));
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let small = Device { name: "small", block_rams: 400, ..XC7VX1140T };
        assert!(!Pipeline::sail_u().fits(small) && !Pipeline::sail_b().fits(small));
        assert!(Pipeline::sail_l(30_000).fits(small));
    }
}
