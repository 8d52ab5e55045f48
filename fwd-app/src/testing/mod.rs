//! Access for fuzz targets to private parts: the datapath, the capture reader, the control socket, the configuration and the route feeds.
//! [`Parser`] runs the parse pass at one kernel level. [`BatchForwarder`] runs all passes from parse to tx; [`BatchForwarder::wanted`] is
//! the result expected by `--verify`. Both reuse their batch between calls, like an lcore.

pub mod router;

use crate::cli::config;
use crate::console::answer::Answer;
use crate::console::grammar::{self, CtlLine};
use crate::console::server::connection::CtlConnection;
use crate::datapath::audit::AuditSampler;
use crate::datapath::check::{self, Checked, Destination};
use crate::datapath::egress::Inputs;
use crate::datapath::egress::learned::Learned;
use crate::datapath::fragment::Cut;
use crate::datapath::lookup::Lookup;
use crate::datapath::packet_state::PacketState;
use crate::datapath::parse::parse;
use crate::datapath::rewrite::rewrite;
use crate::datapath::verdict::verdict;
use crate::datapath::{Batch, DropReason, Egress, EgressPort, EgressTable, Exit};
use crate::harness::reference::{Reference, Verdict};
use crate::harness::trace::Trace;
use crate::routes::feeds::FeedEvent;
use crate::routes::feeds::fpm::{ConnectionId, Fpm, FpmOptions};
use crate::routes::feeds::kernel::{Kernel, KernelOptions};
use dpdk_ffi::simd::Level;
use dpdk_ffi::{Burst, Eal, Mempool, testing};
use fib::oracle::OracleEngine;
use fib::{EngineOptions, EngineWriter, MacAddr, NextHopTable, Rib, Routes};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// A received frame, in two segments when `head_bytes` is less than its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// All bytes of the frame.
    pub bytes: Vec<u8>,
    /// Bytes of the first segment.
    pub head_bytes: usize,
}

impl Frame {
    fn head(&self) -> &[u8] {
        &self.bytes[..self.head_bytes.min(self.bytes.len())]
    }

    fn push(&self, batch: &mut Batch, pool: &Mempool) -> Option<()> {
        let (head, tail) = self.bytes.split_at(self.head().len());
        let mut packet = pool.copy(head).ok()?;
        if !tail.is_empty() {
            testing::chain(&mut packet, pool.copy(tail).ok()?);
        }
        batch.packets.push(packet).ok()?;
        let at = batch.packets.len() - 1;
        batch.packets.set_tag(at, at as u64);
        Some(())
    }
}

fn parse_all(batch: &mut Batch, bursts: &[&[Frame]], pool: &Mempool) -> Option<()> {
    batch.packets.free_all();
    batch.clear();
    for burst in bursts {
        burst.iter().try_for_each(|frame| frame.push(batch, pool))?;
        parse(batch);
    }
    Some(())
}

/// Parses a configuration file for `run` or `replay` and renders it as an equivalent file.
///
/// # Errors
/// The message about a mistake in it.
pub fn config_shown(is_replay: bool, text: &str) -> Result<String, String> {
    config::test_show(if is_replay { "replay" } else { "run" }, text)
}

fn batch(eal: &Eal, packets_max: usize, level: Level) -> Batch {
    Batch::alone(Burst::with_capacity(eal, packets_max).with_level(level))
}

fn checked(frame: &Frame) -> Result<Checked, DropReason> {
    check::check(frame.head(), u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX))
}

/// A packet that passed its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Destination address.
    pub destination: IpAddr,
    /// Length of the IP packet by its header, bytes.
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

/// Runs the slow path's checks on a frame.
///
/// # Errors
/// The name of the drop reason.
pub fn check(frame: &Frame) -> Result<Passed, &'static str> {
    checked(frame).map(Passed::from).map_err(DropReason::name)
}

/// Result of the parse pass on a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedFrames {
    /// By packet; `None` if dropped.
    pub packets: Vec<Option<Passed>>,
    /// Packets that occur in more than one lane.
    pub twice: usize,
    /// Nonzero drop counts by reason.
    pub drops: Vec<(&'static str, u64)>,
    /// Bytes of all packets.
    pub bytes: u64,
}

/// The parse pass at one kernel level.
#[derive(Debug)]
pub struct Parser {
    level: Level,
    batch: Batch,
    pool: Mempool,
}

impl Parser {
    /// One parser per level of this CPU, for batches of at most `packets_max`; each frame must fit an mbuf of `pool`.
    #[must_use]
    pub fn all(eal: &Eal, pool: &Mempool, packets_max: usize) -> Vec<Self> {
        let parser = |level| Self { level, batch: batch(eal, packets_max, level), pool: pool.clone() };
        Level::ALL.into_iter().filter(|level| level.available() == *level).map(parser).collect()
    }

    /// The kernel level.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Parses `bursts` in order as one batch. `None` when the pool is empty.
    pub fn run(&mut self, bursts: &[&[Frame]]) -> Option<ParsedFrames> {
        let Self { batch, pool, .. } = self;
        parse_all(batch, bursts, pool)?;
        let count = batch.packets.len();
        let mut parsed =
            ParsedFrames { packets: vec![None; count], twice: 0, drops: named(batch), bytes: batch.bytes };
        let keys6 = batch.keys6.0.iter().zip(batch.keys6.1.iter());
        let keys6 = keys6.map(|(hi, lo)| IpAddr::V6((u128::from(*hi) << 64 | u128::from(*lo)).into()));
        let keys4 = batch.keys4.iter().map(|key| IpAddr::V4((*key).into()));
        let lane4 = batch.v4.packets[..batch.v4.len].iter().zip(keys4);
        let lane6 = batch.v6.packets[..batch.v6.len].iter().zip(keys6);
        for (place, destination) in lane4.chain(lane6) {
            let place = usize::from(*place);
            let PacketState::Packet { ip_bytes } = batch.slot(place) else { continue };
            let passed = Passed { destination, ip_bytes };
            parsed.twice += usize::from(parsed.packets[place].replace(passed).is_some());
        }
        Some(parsed)
    }
}

fn fragments(batch: &Batch, (i, place): (usize, usize), pieces: &mut Burst) -> Option<Outcome> {
    let tagged = batch.tagged.iter().find(|tagged| usize::from(tagged.place) == place);
    let ip_at = tagged.map_or(check::ETHERNET_BYTES, |tagged| usize::from(tagged.ip_at));
    let Egress { port, mtu_bytes, .. } = batch.egress[place];
    let mut cut = Cut::new(batch.packets.data(i), ip_at, mtu_bytes)?;
    let mut frames = Vec::new();
    while let Some((headers, payload)) = cut.next() {
        let mut bytes = Vec::new();
        pieces.push_piece(&batch.packets, i, headers, &payload).then(|| pieces.copy_to(0, &mut bytes))?;
        pieces.free_all();
        frames.push(bytes);
    }
    Some(Outcome::Fragments { port, frames })
}

fn named(batch: &Batch) -> Vec<(&'static str, u64)> {
    batch.drops.iter().filter(|(_, count)| *count > 0).map(|(reason, count)| (reason.name(), count)).collect()
}

/// A port of a [`BatchForwarder`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The name of the port.
    pub name: String,
    /// Source MAC of sent frames.
    pub mac: MacAddr,
    /// Longest IP packet sent, bytes.
    pub mtu_bytes: u16,
}

/// The fate of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Sent whole.
    Sent {
        /// The egress port.
        port: u16,
        /// The frame.
        bytes: Vec<u8>,
    },
    /// Sent as fragments.
    Fragments {
        /// The egress port.
        port: u16,
        /// The frames, in order.
        frames: Vec<Vec<u8>>,
    },
    /// Dropped. The reason is empty where it is only counted for the whole batch.
    Dropped(&'static str),
}

/// Result of forwarding a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// By packet.
    pub packets: Vec<Outcome>,
    /// Nonzero drop counts by reason.
    pub drops: Vec<(&'static str, u64)>,
    /// Bytes of all packets as received.
    pub bytes: u64,
}

const ECMP_SEED: u64 = 1;

/// All passes, over a table in the engine `oracle`.
pub struct BatchForwarder {
    lookup: Lookup,
    table: EgressTable,
    reference: Reference,
    hops: NextHopTable,
    pool: Mempool,
    batches: [Batch; Level::ALL.len()],
    outs: Vec<Burst>,
    dropped: Burst,
}

impl std::fmt::Debug for BatchForwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchForwarder").field("table", &self.table).finish_non_exhaustive()
    }
}

impl BatchForwarder {
    /// For the routes of `rib`; each frame must fit an mbuf of `pool`.
    ///
    /// # Errors
    /// When the egress table or the engine refuses the routes.
    pub fn new(
        rib: &Rib,
        hops: &NextHopTable,
        ports: &[Port],
        packets_max: usize,
        eal: &Eal,
        pool: Mempool,
    ) -> anyhow::Result<Self> {
        let egress = |port: &Port| EgressPort {
            name: port.name.clone(),
            device: port.name.clone(),
            mac: port.mac,
            mtu_bytes: port.mtu_bytes,
            destination: None,
            is_up: true,
        };
        let egress: Vec<_> = ports.iter().map(egress).collect();
        let mut engine = OracleEngine::new(&EngineOptions::default());
        let mut told = Rib::new();
        told.announce(&Routes::from(rib));
        told.commit_to(&mut engine)?;
        let learned = Learned::default();
        let inputs = Inputs { ecmp_seed: ECMP_SEED, ..Inputs::new(hops, &egress, rib, &learned) };
        Ok(Self {
            lookup: Lookup::new(engine.reader(1, packets_max)?, Arc::default(), AuditSampler::default()),
            table: EgressTable::build(&inputs)?,
            reference: Reference::new(rib, egress.clone(), ECMP_SEED),
            hops: hops.clone(),
            pool,
            batches: Level::ALL.map(|level| batch(eal, packets_max, level)),
            outs: ports.iter().map(|_| Burst::with_capacity(eal, packets_max)).collect(),
            dropped: Burst::with_capacity(eal, packets_max),
        })
    }

    /// Forwards `bursts` as one batch, with at most `level`. `Err` holds the packets of a port out of order. `None` when the pool is empty.
    pub fn forward(&mut self, bursts: &[&[Frame]], level: Level) -> Option<Result<Forwarded, Vec<u64>>> {
        let Self { lookup, table, pool, batches, outs, dropped, .. } = self;
        let batch = &mut batches[level as usize];
        parse_all(batch, bursts, pool)?;
        lookup.run(batch);
        verdict(batch, table);
        rewrite(batch);
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
        let long = (0..count).filter(|place| batch.ports[*place] == Exit::Fragment.word());
        let fragmented = long.enumerate().map(|(i, place)| {
            let packet = usize::try_from(batch.packets.tag(i)).ok();
            let packet = packet.and_then(|tag| forwarded.packets.get_mut(tag));
            let fragments = fragments(batch, (i, place), dropped);
            packet.zip(fragments).map(|(packet, fragments)| *packet = fragments)
        });
        let fragmented = fragmented.flatten().count();
        batch.packets.free_all();
        Some(if stay == fragmented { order.map(|()| forwarded) } else { Err(vec![stay as u64]) })
    }

    /// Mbufs not returned to the pool.
    #[must_use]
    pub fn mbufs_in_use(&self) -> usize {
        self.pool.in_use()
    }

    /// The result expected by the reference of `--verify`.
    #[must_use]
    pub fn wanted(&self, frame: &Frame) -> Outcome {
        let checked = match checked(frame) {
            Ok(checked) => checked,
            Err(reason) => return Outcome::Dropped(reason.name()),
        };
        let id = self.reference.next_hop(checked.destination);
        match self.reference.verdict_by(frame.head(), checked, id, &self.hops) {
            Verdict::Drop(reason) => Outcome::Dropped(reason.name()),
            Verdict::Fragments { port, destination, ip_at, mtu_bytes } => Outcome::Fragments {
                port: u16::try_from(port).unwrap_or(u16::MAX),
                frames: self.reference.fragments(&frame.bytes, port, destination, ip_at, mtu_bytes),
            },
            Verdict::Tx { port, destination, ip_at } => {
                let mut bytes = Vec::new();
                self.reference.rewrite(&frame.bytes, port, destination, ip_at, &mut bytes);
                Outcome::Sent { port: u16::try_from(port).unwrap_or(u16::MAX), bytes }
            }
        }
    }
}

/// A capture as read by `replay`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Each frame with its time in nanoseconds since 1970.
    pub frames: Vec<(u64, Vec<u8>)>,
    /// Frames that were longer on the wire.
    pub snapped: usize,
    /// Whether the file ends within a packet.
    pub is_truncated: bool,
}

/// Reads a capture like `replay`.
///
/// # Errors
/// When it cannot be replayed.
pub fn read_capture(path: &Path) -> anyhow::Result<Capture> {
    let trace = Trace::load(path)?;
    let facts = trace.facts;
    let frames = (0..trace.len()).map(|i| (trace.time_ns(i), trace.frame(i).to_vec())).collect();
    Ok(Capture { frames, snapped: facts.snapped, is_truncated: facts.truncated })
}

/// Parses a line of `fwd-app ctl` and renders its request as a line; `None` when it is refused or needs no session.
#[must_use]
pub fn ctl_words(line: &str) -> Option<String> {
    let _ = grammar::complete(line);
    match grammar::parse(line) {
        Ok(CtlLine::Ask(request)) => Some(request.to_string()),
        Ok(CtlLine::RouteDiff(_) | CtlLine::Help(_) | CtlLine::Top { .. } | CtlLine::Quit) | Err(_) => None,
    }
}

/// Feeds `input` to a control connection in pieces of at most `piece` bytes. Returns the replies and the number of invalid lines.
#[must_use]
pub fn ctl_replies(mut input: &[u8], piece: usize) -> (Vec<u8>, u64) {
    let (mut client, mut replies) = (CtlConnection::new(), Vec::new());
    while !client.is_over() {
        if let Some(request) = client.next_request() {
            client.answer(&Ok(Answer::new(request.to_string())));
        } else if client.output().is_empty() && !client.is_over() {
            let (now, later) = input.split_at(client.room().min(piece).min(input.len()));
            client.receive(now);
            input = later;
        }
        replies.extend_from_slice(client.output());
        client.sent(client.output().len());
    }
    (replies, client.take_errors())
}

/// Runs the FPM feed on the reads of a connection. Returns its events, then its counters or the reason to close, as text.
#[must_use]
pub fn fpm_events(reads: &[&[u8]]) -> Vec<String> {
    let (now, id) = (Instant::now(), ConnectionId(1));
    let mut fpm = Fpm::new(FpmOptions::default());
    let mut events = Vec::new();
    fpm.opened(id);
    let result = reads.iter().try_for_each(|bytes| fpm.received(id, bytes, now, &mut events).map(drop));
    let end = result.map_or_else(|error| error.to_string(), |()| format!("{:?}", fpm.counts()));
    as_text(&events, end)
}

/// Runs the kernel feed on datagrams received after its first request. Returns its events, then its counters, as text.
#[must_use]
pub fn kernel_events(datagrams: &[&[u8]]) -> Vec<String> {
    let now = Instant::now();
    let mut kernel = Kernel::new(KernelOptions::default(), now);
    let mut events = Vec::new();
    let _ = kernel.request(now, &mut events);
    for datagram in datagrams {
        kernel.received(datagram, now, &mut events);
    }
    as_text(&events, format!("{:?}", kernel.counts()))
}

fn as_text(events: &[FeedEvent], end: String) -> Vec<String> {
    events.iter().map(|event| format!("{event:?}")).chain([end]).collect()
}
