//! What updates store, by where the paper keeps it: the bit maps and B16's chunk ids on chip, next hops and the rest off chip
//! (section 4.2, figure 4).

use fib::Details;

/// Stores of 64 bits or less since a table was built. An update is one change of a route.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Writes {
    /// Changes applied.
    pub(crate) updates: u64,
    /// Stores that the paper makes on chip.
    pub(crate) onchip: u64,
    /// Stores that the paper makes off chip.
    pub(crate) offchip: u64,
    /// Stores on chip of one update at most.
    onchip_max: u64,
    /// [`Self::onchip`] when the update under way began.
    onchip_before: u64,
}

impl Writes {
    /// One step of an update is over: all of its stores on chip, or none, are made in one step.
    pub(crate) fn end_step(&mut self) {
        self.onchip_max = self.onchip_max.max(self.onchip - self.onchip_before);
        self.onchip_before = self.onchip;
    }

    /// Figures for [`fib::EngineStats::details`].
    pub(crate) fn details(&self) -> Details {
        Details::from([
            ("sail_updates", self.updates.into()),
            ("sail_onchip_writes", self.onchip.into()),
            ("sail_onchip_writes_max", self.onchip_max.into()),
            ("sail_offchip_writes", self.offchip.into()),
        ])
    }
}
