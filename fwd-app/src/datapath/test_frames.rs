//! Frames for unit tests, built field by field, and batches of them in mbufs.

use super::Batch;
use dpdk_ffi::{Burst, Mempool, MempoolConfig, testing};
use std::sync::OnceLock;

/// A batch of these frames, with room for 128 packets; `None` where EAL does not start.
pub(crate) fn batch(frames: &[Vec<u8>]) -> Option<Batch> {
    let mut batch = Batch::alone(Burst::with_capacity(testing::eal()?, 128));
    add(&mut batch, frames);
    Some(batch)
}

pub(crate) fn add(batch: &mut Batch, frames: &[Vec<u8>]) {
    static POOL: OnceLock<Mempool> = OnceLock::new();
    let pool = POOL
        .get_or_init(|| Mempool::new(testing::eal().unwrap(), "frames", &MempoolConfig::default()).unwrap());
    pool.copy_burst(&mut batch.packets, frames).unwrap();
}

fn ethernet(tags: &[u16], ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for (i, tag) in tags.iter().enumerate() {
        frame.extend(tag.to_be_bytes());
        frame.extend([0x20, u8::try_from(i).unwrap() + 100]);
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    frame
}

/// An IPv4 packet, by default with 8 bytes of payload. The checksum is always right for the header fields.
#[derive(Clone)]
pub(crate) struct V4 {
    /// Version and IHL.
    pub(crate) first: u8,
    /// Total length; the actual length when `None`.
    pub(crate) total: Option<u16>,
    pub(crate) ttl: u8,
    pub(crate) source: [u8; 4],
    pub(crate) destination: [u8; 4],
    pub(crate) options: Vec<u8>,
    pub(crate) payload_bytes: usize,
}

impl Default for V4 {
    fn default() -> Self {
        let (source, destination) = ([192, 0, 2, 1], [198, 51, 100, 7]);
        Self { first: 0x45, total: None, ttl: 64, source, destination, options: Vec::new(), payload_bytes: 8 }
    }
}

impl V4 {
    pub(crate) fn frame(&self) -> Vec<u8> {
        self.tagged(&[])
    }

    pub(crate) fn tagged(&self, tags: &[u16]) -> Vec<u8> {
        let there = 20 + self.options.len() + self.payload_bytes;
        let total = self.total.unwrap_or_else(|| u16::try_from(there).unwrap());
        let [high, low] = total.to_be_bytes();
        let mut packet = vec![self.first, 0, high, low, 0xab, 0xcd, 0x40, 0, self.ttl, 17, 0, 0];
        packet.extend(self.source);
        packet.extend(self.destination);
        packet.extend(&self.options);
        let words = packet.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
        let sum = words.sum::<u32>();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !((sum & 0xffff) + (sum >> 16));
        packet[10..12].copy_from_slice(&u16::try_from(sum & 0xffff).unwrap().to_be_bytes());
        packet.extend((0..self.payload_bytes).map(|i| u8::try_from(i & 0xff).unwrap()));
        ethernet(tags, 0x0800, &packet)
    }
}

/// An IPv6 packet, by default with 8 bytes of payload.
#[derive(Clone)]
pub(crate) struct V6 {
    /// Version and the upper half of the traffic class.
    pub(crate) first: u8,
    /// Payload length; the actual length when `None`.
    pub(crate) payload: Option<u16>,
    pub(crate) hop_limit: u8,
    pub(crate) source: [u8; 16],
    pub(crate) destination: [u8; 16],
    pub(crate) payload_bytes: usize,
}

impl Default for V6 {
    fn default() -> Self {
        let address = |last| {
            let mut bytes = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            bytes[15] = last;
            bytes
        };
        let (source, destination) = (address(1), address(2));
        Self { first: 0x60, payload: None, hop_limit: 64, source, destination, payload_bytes: 8 }
    }
}

impl V6 {
    pub(crate) fn frame(&self) -> Vec<u8> {
        self.tagged(&[])
    }

    pub(crate) fn tagged(&self, tags: &[u16]) -> Vec<u8> {
        let payload = self.payload.unwrap_or_else(|| u16::try_from(self.payload_bytes).unwrap());
        let [high, low] = payload.to_be_bytes();
        let mut packet = vec![self.first, 0, 0, 0, high, low, 17, self.hop_limit];
        packet.extend(self.source);
        packet.extend(self.destination);
        packet.extend((0..self.payload_bytes).map(|i| u8::try_from(i & 0xff).unwrap()));
        ethernet(tags, 0x86dd, &packet)
    }
}
