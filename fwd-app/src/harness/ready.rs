//! Full speed without a feeder: the frames are prepared in mbufs, and callbacks on the RX queues return them.
//!
//! No copy and no other lcore is involved, so the figures belong to the forwarder alone. Sent packets are only counted: `--verify` and
//! `--out` need copies from the feeder.

use super::trace::Trace;
use dpdk_ffi::{Burst, Eal, Mempool, PortStats, ReadyPackets};

#[derive(Clone, Default)]
pub(crate) struct ReadyQueues {
    /// With the index of the receiving port.
    queues: Vec<(usize, ReadyPackets)>,
    total: u64,
}

impl ReadyQueues {
    pub(crate) fn add(&mut self, port: usize, packets: ReadyPackets, count: u64) {
        self.queues.push((port, packets));
        self.total = self.total.saturating_add(count);
    }

    pub(crate) fn fed(&self) -> u64 {
        self.queues.iter().map(|(_, queue)| queue.received().0).sum()
    }

    /// Adds the packets that callbacks returned on `port` to the statistics of its driver, which does not see them.
    pub(crate) fn add_received(&self, port: usize, stats: &mut PortStats) {
        for (_, queue) in self.queues.iter().filter(|(of, _)| *of == port) {
            let (packets, bytes) = queue.received();
            stats.ipackets += packets;
            stats.ibytes += bytes;
        }
    }

    pub(crate) fn stop(&mut self) {
        for (_, queue) in &self.queues {
            queue.stop();
        }
        self.total = 0;
    }

    pub(crate) fn is_done(&self, gone: u64) -> bool {
        let fed = self.fed();
        fed >= self.total && gone >= fed
    }
}

/// Copies the frames `numbers` of `trace`, `turns` times in a row, into mbufs of `pool`.
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
