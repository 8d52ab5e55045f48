//! The sink: takes sent packets from the TX rings, verifies them, records their latency and writes them to captures.

use super::deal::FedFrame;
use super::feeder::{Feeder, Tag};
use super::link::TxLink;
use super::pcap_file::PcapFile;
use super::source::Source;
use super::verify::Verifier;
use crate::datapath::latency::LatencyBySize;
use anyhow::Context as _;
use dpdk_ffi::{Burst, Eal, RingConsumer};
use std::path::Path;

const BURST: usize = 256;
/// Packets between the prefetch of an mbuf and its use.
const AHEAD: usize = 16;
/// Packets per dequeue with a slow sink.
const SLOW_BURST: usize = 32;

pub(crate) struct Sink {
    /// Consumer ends of the TX rings, each with its port index.
    outlets: Vec<(usize, RingConsumer)>,
    burst: Burst,
    /// Packets are taken on every `slow`-th poll.
    slow: u32,
    polls: u32,
    /// The modelled link of each port; empty without `--tx-rate`.
    links: Vec<TxLink>,
    /// The pause of the trial as already charged to the links, cycles.
    paused_cycles: u64,
    /// Last sequence number plus one, by port, VRF and input.
    last: Vec<Vec<Vec<u64>>>,
    /// By port; empty unless the output is captured.
    writers: Vec<PcapFile>,
    scratch: Vec<u8>,
    pub(crate) latency: LatencyBySize,
    /// Packets that overtook another of the same input, VRF and port.
    pub(crate) reordered: u64,
}

/// The numbers of ports, inputs and VRFs: packets of one path stay in order.
pub(crate) struct SinkPaths {
    pub(crate) ports: usize,
    pub(crate) inputs: usize,
    pub(crate) vrfs: usize,
}

impl Sink {
    pub(crate) fn new(eal: &Eal, outlets: Vec<(usize, RingConsumer)>, paths: &SinkPaths, slow: u32) -> Self {
        let capacity = if slow > 1 { SLOW_BURST } else { BURST };
        Self {
            outlets,
            burst: Burst::with_capacity(eal, capacity),
            slow,
            polls: 0,
            links: Vec::new(),
            paused_cycles: 0,
            last: vec![vec![vec![0; paths.inputs]; paths.vrfs]; paths.ports],
            writers: Vec::new(),
            scratch: Vec::new(),
            latency: LatencyBySize::new(dpdk_ffi::tsc_hz(eal)),
            reordered: 0,
        }
    }

    pub(crate) fn limit_to(&mut self, eal: &Eal, link: &TxLink) {
        self.links = vec![link.clone(); self.last.len()];
        self.burst = Burst::with_capacity(eal, 1);
    }

    /// Captures the output of port N in `dir`/portN.pcap with the time stamps of the trace.
    pub(crate) fn write_to(&mut self, dir: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
        for port in 0..self.last.len() {
            self.writers.push(PcapFile::create(&dir.join(format!("port{port}.pcap")))?);
        }
        Ok(())
    }

    /// Takes the waiting packets of every ring and returns their number. A slow sink skips polls.
    pub(crate) fn poll(
        &mut self,
        feeder: &Feeder,
        source: &mut Source,
        verifier: Option<&mut Verifier>,
    ) -> anyhow::Result<u64> {
        self.polls = self.polls.wrapping_add(1);
        if self.slow > 1 && !self.polls.is_multiple_of(self.slow) {
            return Ok(0);
        }
        if self.links.is_empty() {
            self.drain(feeder, source, verifier)
        } else {
            self.take_by_links(feeder, source, verifier)
        }
    }

    /// Takes as many packets as the links have time for, round robin over the rings of a port.
    fn take_by_links(
        &mut self,
        feeder: &Feeder,
        source: &mut Source,
        mut verifier: Option<&mut Verifier>,
    ) -> anyhow::Result<u64> {
        // The links are part of the harness: while it is descheduled they stand still.
        let paused_cycles = feeder.pacer().paused_cycles();
        let pause = paused_cycles.saturating_sub(std::mem::replace(&mut self.paused_cycles, paused_cycles));
        self.links.iter_mut().for_each(|link| link.pause(pause));
        let now_tsc = dpdk_ffi::tsc();
        let mut taken = 0;
        loop {
            let before = taken;
            for at in 0..self.outlets.len() {
                if self.links[self.outlets[at].0].is_free(now_tsc) {
                    taken += self.drain_ring(at, (feeder, source), verifier.as_deref_mut())?;
                }
            }
            if taken == before {
                break;
            }
        }
        self.links.iter_mut().filter(|link| link.is_free(now_tsc)).for_each(|link| link.idle(now_tsc));
        Ok(taken)
    }

    /// [`Self::poll`] without the limits of a slow sink.
    pub(crate) fn drain(
        &mut self,
        feeder: &Feeder,
        source: &mut Source,
        mut verifier: Option<&mut Verifier>,
    ) -> anyhow::Result<u64> {
        let mut taken = 0;
        for at in 0..self.outlets.len() {
            taken += self.drain_ring(at, (feeder, source), verifier.as_deref_mut())?;
        }
        Ok(taken)
    }

    fn drain_ring(
        &mut self,
        at: usize,
        (feeder, source): (&Feeder, &mut Source),
        mut verifier: Option<&mut Verifier>,
    ) -> anyhow::Result<u64> {
        let (port, ring) = &mut self.outlets[at];
        let (port, came) = (*port, ring.dequeue_burst(&mut self.burst));
        if came == 0 {
            return Ok(0);
        }
        let now_tsc = dpdk_ffi::tsc();
        for i in 0..came {
            self.burst.prefetch_mbuf(i + AHEAD);
            self.judge((i, now_tsc), port, (feeder, source), verifier.as_deref_mut())?;
            if let Some(link) = self.links.get_mut(port) {
                link.charge(self.burst.pkt_len(i) as usize);
            }
        }
        self.burst.free_all();
        Ok(came as u64)
    }

    fn judge(
        &mut self,
        (i, now_tsc): (usize, u64),
        port: usize,
        (feeder, source): (&Feeder, &mut Source),
        verifier: Option<&mut Verifier>,
    ) -> anyhow::Result<()> {
        let tag = Tag::unpack(self.burst.tag(i));
        let sequence = tag.sequence;
        let Some(FedFrame { part, frame }) = source.find(sequence) else {
            verifier.into_iter().for_each(|verifier| verifier.came_too_late(sequence));
            return Ok(());
        };
        // Fragments leave after the other packets of their batch. Only fragmentation shortens a frame.
        let frame_bytes = self.burst.pkt_len(i);
        let is_fragment = (frame_bytes as usize) < part.trace.frame(frame).len();
        if !is_fragment {
            let last = &mut self.last[port][part.vrf_of[frame]][usize::from(part.ring_of[frame])];
            self.reordered += u64::from(sequence < *last);
            *last = sequence + 1;
        }
        if let Some(intended) = feeder.intended_tsc(sequence) {
            self.latency.record(now_tsc.saturating_sub(intended), frame_bytes);
        }
        if verifier.is_none() && self.writers.is_empty() {
            return Ok(());
        }
        self.scratch.clear();
        let mut bytes: &[u8] = self.burst.data(i);
        if self.burst.segments(i) > 1 {
            self.burst.copy_to(i, &mut self.scratch);
            bytes = &self.scratch;
        }
        if let Some(verifier) = verifier {
            let begun = feeder.updates_begun();
            let updates = (tag.updates_done(begun), begun);
            verifier.sent(sequence, FedFrame { part: &mut *part, frame }, port, bytes, updates);
        }
        if let Some(writer) = self.writers.get_mut(port) {
            writer.write(part.trace.time_ns(frame), bytes)?;
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self) -> anyhow::Result<()> {
        self.writers.drain(..).try_for_each(PcapFile::finish)
    }
}
