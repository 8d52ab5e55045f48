//! Full speed without a feeder: the frames are prepared, and callbacks on the RX queues return them in mbufs.
//!
//! No copy and no other lcore is involved, so the figures belong to the forwarder alone. Sent packets are only counted: `--verify` and
//! `--out` need copies from the feeder.

use dpdk_ffi::{PortStats, ReadyPackets};

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
