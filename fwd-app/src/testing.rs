//! The datapath on frames of plain bytes, and the capture reader, for fuzz targets: what is private everywhere else.
//!
//! [`Parser`] is the parse pass on one instruction set, [`Forwarder`] all passes from parse to tx with [`Forwarder::wanted`], what
//! `--verify` holds them to. Both keep their batch from call to call, as an lcore does. Nothing here judges.

use crate::datapath::check::{self, Checked, Destination};
use crate::datapath::lookup::Lookup;
use crate::datapath::packets::PlainFrame;
use crate::datapath::parse::Parse;
use crate::datapath::rewrite::rewrite;
use crate::datapath::verdict::{verdict, verdict_and_rewrite};
use crate::datapath::{Batch, Code, DropReason, EgressPort, EgressTable, Packets};
use crate::harness::reference::{Reference, Verdict};
use crate::harness::trace::Trace;
use dpdk_ffi::{Burst, Eal, Mempool};
use fib::oracle::OracleEngine;
use fib::{EngineOptions, EngineWriter, Isa, MacAddr, NextHopTable, Rib, Routes};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

/// A frame as a driver hands it over: in two segments when `head_bytes` is less than its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// Bytes of the first segment, at most all.
    pub head_bytes: usize,
}

impl PlainFrame for Frame {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn head(&self) -> &[u8] {
        &self.bytes[..self.head_bytes.min(self.bytes.len())]
    }

    fn head_mut(&mut self) -> &mut [u8] {
        let head_bytes = self.head_bytes.min(self.bytes.len());
        &mut self.bytes[..head_bytes]
    }
}

/// The slow path on a frame.
fn checked(frame: &Frame) -> Result<Checked, DropReason> {
    check::check(frame.head(), u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX))
}

/// A packet that passed its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Where to.
    pub destination: IpAddr,
    /// Length of the IP packet as its header says, bytes.
    pub ip_bytes: u32,
}

impl From<Checked> for Passed {
    fn from(checked: Checked) -> Self {
        let destination = match checked.destination {
            Destination::V4(key) => IpAddr::V4(key.into()),
            Destination::V6(key) => IpAddr::V6(key.into()),
        };
        Self { destination, ip_bytes: checked.ip_bytes }
    }
}

/// What the slow path says of a frame: passed, or the name of its drop reason.
///
/// # Errors
/// The name of the drop reason.
pub fn check(frame: &Frame) -> Result<Passed, &'static str> {
    checked(frame).map(Passed::from).map_err(DropReason::name)
}

/// What the parse pass made of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// By packet; `None` for a dropped one.
    pub packets: Vec<Option<Passed>>,
    /// Packets that stand in more than one place of the lanes.
    pub twice: usize,
    /// Dropped packets by the name of the reason, zeros left out.
    pub drops: Vec<(&'static str, u64)>,
    /// Bytes of all packets.
    pub bytes: u64,
    /// No packet that passed is longer.
    pub ip_bytes_max: u32,
}

/// The parse pass on one instruction set.
#[derive(Debug)]
pub struct Parser {
    isa: Isa,
    parse: Parse,
    batch: Batch<Vec<Frame>>,
}

impl Parser {
    /// One for each instruction set of this CPU, for batches of at most `packets_max`.
    #[must_use]
    pub fn all(packets_max: usize) -> Vec<Self> {
        let parser = |isa| Self { isa, parse: Parse::new(isa), batch: Batch::new(Vec::new(), packets_max) };
        Isa::ALL.into_iter().filter(|isa| isa.is_available()).map(parser).collect()
    }

    /// The instruction set.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Parses the frames that come in `bursts`, one after another, as one batch.
    pub fn run(&mut self, bursts: &[&[Frame]]) -> Parsed {
        let Self { parse, batch, .. } = self;
        batch.packets.clear();
        batch.clear();
        for burst in bursts {
            batch.packets.extend_from_slice(burst);
            parse.run(batch);
        }
        let count = batch.packets.len();
        let mut parsed = Parsed {
            packets: vec![None; count],
            twice: 0,
            drops: named(batch),
            bytes: batch.bytes,
            ip_bytes_max: batch.ip_bytes_max,
        };
        let keys6 = batch.keys6.0.iter().zip(&batch.keys6.1);
        let keys6 = keys6.map(|(hi, lo)| IpAddr::V6((u128::from(*hi) << 64 | u128::from(*lo)).into()));
        let keys4 = batch.keys4.iter().map(|key| IpAddr::V4((*key).into()));
        let lane4 = batch.v4.packets[..batch.v4.len].iter().zip(&batch.v4.ip_bytes).zip(keys4);
        let lane6 = batch.v6.packets[..batch.v6.len].iter().zip(&batch.v6.ip_bytes).zip(keys6);
        let of = |((place, ip_bytes), destination): ((&u16, &u32), IpAddr)| {
            (*place, Passed { destination, ip_bytes: *ip_bytes })
        };
        for (place, passed) in lane4.map(of).chain(lane6.map(of)) {
            let place = &mut parsed.packets[usize::from(place)];
            parsed.twice += usize::from(place.replace(passed).is_some());
        }
        parsed
    }
}

fn named<P>(batch: &Batch<P>) -> Vec<(&'static str, u64)> {
    batch.drops.iter().filter(|(_, count)| *count > 0).map(|(reason, count)| (reason.name(), count)).collect()
}

/// A port of a [`Forwarder`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Source MAC of what it sends.
    pub mac: MacAddr,
    /// The longest IP packet that it sends, bytes.
    pub mtu_bytes: u16,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It leaves.
    Sent {
        /// By this port.
        port: u16,
        /// With these bytes.
        bytes: Vec<u8>,
    },
    /// It is dropped; the reason is known to those who decide it for one packet alone, and is empty else.
    Dropped(&'static str),
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// By packet.
    pub packets: Vec<Outcome>,
    /// Dropped packets by the name of the reason, zeros left out.
    pub drops: Vec<(&'static str, u64)>,
    /// Bytes of all packets as they came.
    pub bytes: u64,
}

/// All passes, over a table in the engine `oracle`.
pub struct Forwarder {
    parse: Parse,
    lookup: Lookup,
    table: EgressTable,
    batch: Batch<Vec<Frame>>,
    reference: Reference,
    hops: NextHopTable,
    /// Packets in mbufs, where EAL runs.
    mbufs: Option<Mbufs>,
}

impl std::fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forwarder").field("table", &self.table).finish_non_exhaustive()
    }
}

struct Mbufs {
    pool: Mempool,
    batch: Batch<Burst>,
    outs: Vec<Burst>,
    dropped: Burst,
}

impl Forwarder {
    /// For the routes of `rib`; with an EAL and a mempool, [`Self::forward_mbufs`] works too.
    ///
    /// # Errors
    /// What the egress table or the engine refuses.
    pub fn new(
        rib: &Rib,
        hops: &NextHopTable,
        ports: &[Port],
        packets_max: usize,
        mbufs: Option<(&Eal, Mempool)>,
    ) -> anyhow::Result<Self> {
        let egress = |port: &Port| EgressPort {
            name: port.name.clone(),
            mac: port.mac,
            mtu_bytes: port.mtu_bytes,
            destination: None,
        };
        let egress: Vec<_> = ports.iter().map(egress).collect();
        let mut engine = OracleEngine::new(&EngineOptions::default());
        let mut told = Rib::new();
        told.tell(&Routes::of(rib));
        told.commit_to(&mut engine)?;
        let mbufs = mbufs.map(|(eal, pool)| Mbufs {
            pool,
            batch: Batch::new(Burst::with_capacity(eal, packets_max), packets_max),
            outs: ports.iter().map(|_| Burst::with_capacity(eal, packets_max)).collect(),
            dropped: Burst::with_capacity(eal, packets_max),
        });
        Ok(Self {
            parse: Parse::new(Isa::detect()),
            lookup: Lookup::new(engine.reader(1, packets_max)?, Arc::default()),
            table: EgressTable::new(hops, &egress)?,
            batch: Batch::new(Vec::new(), packets_max),
            reference: Reference::new(rib, egress),
            hops: hops.clone(),
            mbufs,
        })
    }

    /// Forwards frames that come in `bursts` as one batch; `is_fused`: verdict and rewrite in one pass.
    pub fn forward(&mut self, bursts: &[&[Frame]], is_fused: bool) -> Forwarded {
        let Self { parse, lookup, table, batch, .. } = self;
        batch.packets.clear();
        batch.clear();
        for burst in bursts {
            batch.packets.extend_from_slice(burst);
            parse.run(batch);
        }
        passes(lookup, table, batch, is_fused);
        let packets = batch.packets.iter().zip(&batch.ports).map(|(frame, port)| {
            if *port < Code::FIRST {
                Outcome::Sent { port: *port, bytes: frame.bytes.clone() }
            } else {
                Outcome::Dropped("")
            }
        });
        Forwarded { packets: packets.collect(), drops: named(batch), bytes: batch.bytes }
    }

    /// As [`Self::forward`] over mbufs, whose size decides how frames are cut into segments, and dealt to the ports as tx does:
    /// `Err` holds the packets of a port that are not in the order in which they came. `None` without a pool, or when it is empty.
    pub fn forward_mbufs(
        &mut self,
        bursts: &[&[Frame]],
        is_fused: bool,
    ) -> Option<Result<Forwarded, Vec<u64>>> {
        let Self { parse, lookup, table, mbufs, .. } = self;
        let Mbufs { pool, batch, outs, dropped } = mbufs.as_mut()?;
        batch.packets.free_all();
        batch.clear();
        for burst in bursts {
            for frame in *burst {
                let at = batch.packets.len();
                pool.alloc_burst(&mut batch.packets, 1).ok()?;
                batch.packets.append_data(at, &frame.bytes, pool).ok()?;
                batch.packets.set_tag(at, at as u64);
            }
            parse.run(batch);
        }
        passes(lookup, table, batch, is_fused);
        let count = batch.packets.len();
        let mut forwarded =
            Forwarded { packets: vec![Outcome::Dropped(""); count], drops: named(batch), bytes: batch.bytes };
        let stay = batch.packets.scatter(&batch.ports[..count], outs, dropped);
        let mut order = Ok(());
        for (port, out) in (0..).zip(outs) {
            let tags: Vec<u64> = (0..out.len()).map(|i| out.tag(i)).collect();
            for (i, tag) in tags.iter().enumerate() {
                let mut bytes = Vec::new();
                out.copy_to(i, &mut bytes);
                if let Some(packet) =
                    usize::try_from(*tag).ok().and_then(|tag| forwarded.packets.get_mut(tag))
                {
                    *packet = Outcome::Sent { port, bytes };
                }
            }
            if !tags.is_sorted_by(|a, b| a < b) {
                order = Err(tags);
            }
            out.free_all();
        }
        dropped.free_all();
        batch.packets.free_all();
        Some(if stay == 0 { order.map(|()| forwarded) } else { Err(vec![stay as u64]) })
    }

    /// Bytes of a frame that fit the first mbuf, where there are mbufs.
    #[must_use]
    pub fn mbuf_bytes(&self) -> Option<usize> {
        self.mbufs.as_ref().map(|mbufs| usize::from(mbufs.pool.config().data_room_bytes))
    }

    /// Mbufs that are not back in the pool.
    #[must_use]
    pub fn mbufs_in_use(&self) -> usize {
        self.mbufs.as_ref().map_or(0, |mbufs| mbufs.pool.in_use())
    }

    /// What must become of a frame, by the definition that `--verify` uses.
    #[must_use]
    pub fn wanted(&self, frame: &Frame) -> Outcome {
        let checked = match checked(frame) {
            Ok(checked) => checked,
            Err(reason) => return Outcome::Dropped(reason.name()),
        };
        let id = self.reference.next_hop(checked.destination);
        match self.reference.verdict_by(checked, id, &self.hops) {
            Verdict::Drop(reason) => Outcome::Dropped(reason.name()),
            Verdict::Tx { port, destination, ip_at } => {
                let mut bytes = Vec::new();
                self.reference.rewrite(&frame.bytes, port, destination, ip_at, &mut bytes);
                Outcome::Sent { port: u16::try_from(port).unwrap_or(u16::MAX), bytes }
            }
        }
    }
}

fn passes<P: Packets>(lookup: &mut Lookup, table: &EgressTable, batch: &mut Batch<P>, is_fused: bool) {
    lookup.run(batch);
    if is_fused {
        verdict_and_rewrite(batch, table);
    } else {
        verdict(batch, table);
        rewrite(batch);
    }
}

/// What `replay` reads of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Each frame, with its time in nanoseconds since 1970.
    pub frames: Vec<(u64, Vec<u8>)>,
    /// Frames that were longer on the wire.
    pub snapped: usize,
    /// Whether the file ends within a packet.
    pub is_truncated: bool,
}

/// Reads a capture as `replay` does.
///
/// # Errors
/// Why it cannot be replayed.
pub fn read_capture(path: &Path) -> anyhow::Result<Capture> {
    let trace = Trace::load(path)?;
    let frames = (0..trace.len()).map(|i| (trace.time_ns(i), trace.frame(i).to_vec())).collect();
    Ok(Capture { frames, snapped: trace.snapped, is_truncated: trace.truncated })
}
