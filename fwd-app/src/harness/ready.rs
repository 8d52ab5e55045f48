//! Full speed without a feeder: the frames lie ready in mbufs, and the callbacks of the RX queues hand them out.
//!
//! Nothing is copied and no other lcore takes part, so the figures are those of the forwarder. What leaves is counted by the
//! forwarder and forgotten: whoever wants to see it (`--verify`, `--out`) gets copies from the feeder.

use super::trace::Trace;
use dpdk_ffi::{Burst, Eal, Mempool, PortStats, ReadyPackets};

/// The tables of all inputs.
#[derive(Clone, Default)]
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

    /// Adds what port `port` has received so far to the statistics of its driver, which does not know of packets that a callback hands
    /// out.
    pub(crate) fn add_received(&self, port: usize, stats: &mut PortStats) {
        for (_, queue) in self.queues.iter().filter(|(of, _)| *of == port) {
            let (packets, bytes) = queue.received();
            stats.ipackets += packets;
            stats.ibytes += bytes;
        }
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
