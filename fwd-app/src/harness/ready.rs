//! Full speed without a feeder: the frames lie ready in mbufs, and the callbacks of the RX queues hand them out.
//!
//! Nothing is copied and no other lcore takes part, so the figures are those of the forwarder. What leaves is counted by the
//! forwarder and forgotten: whoever wants to see it (`--verify`, `--out`) gets copies from the feeder.

use super::trace::Trace;
use dpdk_ffi::{Burst, Eal, Mempool, ReadyPackets};

/// The tables of all inputs.
#[derive(Default)]
pub(crate) struct ReadyQueues {
    /// With the index of the port that receives them.
    queues: Vec<(usize, ReadyPackets)>,
    /// Packets to be received in all.
    total: u64,
}

impl ReadyQueues {
    /// Adds an input of port `port` that receives `count` packets.
    pub(crate) fn add(&mut self, port: usize, packets: ReadyPackets, count: u64) {
        self.queues.push((port, packets));
        self.total = self.total.saturating_add(count);
    }

    /// Packets received so far.
    pub(crate) fn fed(&self) -> u64 {
        self.queues.iter().map(|(_, queue)| queue.received().0).sum()
    }

    /// Packets and bytes received so far on port `port`.
    pub(crate) fn received(&self, port: usize) -> (u64, u64) {
        let queues = self.queues.iter().filter(|(of, _)| *of == port);
        queues.map(|(_, queue)| queue.received()).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Hands out nothing more.
    pub(crate) fn stop(&mut self) {
        for (_, queue) in &self.queues {
            queue.stop();
        }
        self.total = 0;
    }

    /// Whether every packet that was to be received has been, and `gone` of them have left.
    pub(crate) fn is_done(&self, gone: u64) -> bool {
        let fed = self.fed();
        fed >= self.total && gone >= fed
    }
}

/// The frames of `trace` with these numbers, `turns` times in a row, in mbufs of `pool`.
///
/// # Errors
/// [`dpdk_ffi::DpdkError`] when the pool has too few mbufs.
pub(crate) fn packets(
    eal: &Eal,
    pool: &Mempool,
    trace: &Trace,
    numbers: &[usize],
    turns: u64,
) -> Result<Burst, dpdk_ffi::DpdkError> {
    let turns = usize::try_from(turns).unwrap_or(usize::MAX);
    let mut burst = Burst::with_capacity(eal, numbers.len() * turns);
    for _ in 0..turns {
        for number in numbers {
            let at = burst.len();
            pool.alloc_burst(&mut burst, 1)?;
            burst.append_data(at, trace.frame(*number), pool)?;
        }
    }
    Ok(burst)
}
