//! A burst of packets and the time stamp counter, without DPDK.

use crate::sync::time::Instant;

/// Packets, which are numbers.
#[derive(Debug, Default)]
pub(crate) struct Burst(pub(crate) Vec<u32>);

impl Burst {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A clock that advances with every read.
pub(crate) fn tsc() -> u64 {
    Instant::now().as_micros()
}
