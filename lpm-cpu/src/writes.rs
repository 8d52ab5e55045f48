//! Counts the stores of updates to the paper's on-chip memory (bit maps, chunk ids of B16) and the rest (section 4.2, figure 4).

use fib::Details;

/// Stores of up to 64 bits since a table was built. An update is one change of a route.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Writes {
    pub(crate) updates: u64,
    pub(crate) onchip: u64,
    pub(crate) offchip: u64,
    onchip_max: u64,
    onchip_before: u64,
}

impl Writes {
    /// Ends a step of an update. An update makes all of its stores on chip in one step.
    pub(crate) fn end_step(&mut self) {
        self.onchip_max = self.onchip_max.max(self.onchip - self.onchip_before);
        self.onchip_before = self.onchip;
    }

    pub(crate) fn details(&self) -> Details {
        Details::from([
            ("sail_updates", self.updates.into()),
            ("sail_onchip_writes", self.onchip.into()),
            ("sail_onchip_writes_max", self.onchip_max.into()),
            ("sail_offchip_writes", self.offchip.into()),
        ])
    }
}
