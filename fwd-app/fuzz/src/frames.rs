//! Frames through the parse pass and through all passes, at every level of kernels, against the slow path and the reference. An input is a
//! plan of bursts, then frames: each a template or raw bytes, with edits, corrections, an end of the first segment, a repeat count.

use crate::bytes::Bytes;
use dpdk_ffi::simd::Level;
use dpdk_ffi::{Eal, Mempool, MempoolConfig};
use fib::feed::{self, LoadOptions};
use fib::{MacAddr, NextHopTable, Rib};
use fwd_app::testing::{BatchForwarder, Forwarded, Frame, Outcome, Parser, Port, check};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const FRAMES_MAX: usize = 160;
const FRAME_BYTES_MAX: usize = 3000;

const RAW: u8 = 0;
const V4: u8 = 1;
const V6: u8 = 2;
const V4_TAGGED: u8 = 3;
const V6_TAGGED: u8 = 4;
const V4_OPTIONS: u8 = 5;
const V4_TWO_TAGS: u8 = 6;
/// Lengths and checksum are corrected after the edits.
const RIGHT: u8 = 0x08;
/// A byte gives the end of the first segment.
const CUT: u8 = 0x10;
/// A byte gives the number of copies; their destinations count up.
const REPEAT: u8 = 0x20;
/// Pairs of bytes give the positions and values of edits.
const EDITS: u8 = 0x40;

/// The first byte of a frame in the input: kind and flags.
#[derive(Clone, Copy, Debug)]
struct Recipe(u8);

impl Recipe {
    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    fn template(self, input: &mut Bytes<'_>) -> Vec<u8> {
        let payload_bytes = match self.0 & 7 {
            RAW => {
                let bytes = usize::from(input.u8()) << 8 | usize::from(input.u8());
                return input.take(bytes % FRAME_BYTES_MAX).to_vec();
            }
            _ => usize::from(input.u8()) * if self.has(0x80) { 8 } else { 1 },
        };
        let (tags, ethertype, ip): (&[u16], u16, Vec<u8>) = match self.0 & 7 {
            V6 => (&[], 0x86dd, ipv6()),
            V4_TAGGED => (&[0x8100], 0x0800, ipv4(5)),
            V6_TAGGED => (&[0x88a8], 0x86dd, ipv6()),
            V4_OPTIONS => (&[], 0x0800, ipv4(7)),
            V4_TWO_TAGS => (&[0x88a8, 0x8100], 0x0800, ipv4(6)),
            V4 => (&[], 0x0800, ipv4(5)),
            _ => (&[], 0x0806, ipv4(5)),
        };
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0x20, 7]);
        }
        frame.extend(ethertype.to_be_bytes());
        frame.extend(ip);
        frame.extend((0..payload_bytes).map(|i| u8::try_from(i & 0xff).unwrap()));
        frame
    }
}

/// An IPv4 header of `words` words to 10.0.0.0, without length and checksum.
fn ipv4(words: u8) -> Vec<u8> {
    let mut header =
        vec![0x40 | words, 0, 0, 0, 0xab, 0xcd, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 10, 0, 0, 0];
    header.resize(usize::from(words) * 4, 1);
    header
}

fn ipv6() -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, 0, 17, 64];
    for last in [1, 0] {
        header.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    header
}

fn ip_at(frame: &[u8]) -> Option<(usize, u16)> {
    let mut at = 12;
    for _ in 0..3 {
        let ethertype = u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]);
        at += 2;
        match ethertype {
            0x8100 | 0x88a8 | 0x9100 => at += 2,
            other => return Some((at, other)),
        }
    }
    None
}

fn make_right(frame: &mut [u8]) {
    let Some((at, ethertype)) = ip_at(frame) else { return };
    let Some(packet) = frame.get_mut(at..) else { return };
    match ethertype {
        0x0800 if packet.len() >= 20 => {
            let total = u16::try_from(packet.len()).unwrap();
            packet[2..4].copy_from_slice(&total.to_be_bytes());
            packet[10..12].fill(0);
            let header_bytes = usize::from(packet[0] & 15) * 4;
            let Some(header) = packet.get(..header_bytes) else { return };
            let words = header.chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
            let sum = words.sum::<u32>() % 0xffff; // one's complement, by its definition
            let [.., high, low] = (0xffff - sum).to_be_bytes();
            if let Some(place) = packet.get_mut(10..12) {
                place.copy_from_slice(&[high, low]);
            }
        }
        0x86dd if packet.len() >= 40 => {
            let payload = u16::try_from(packet.len() - 40).unwrap();
            packet[4..6].copy_from_slice(&payload.to_be_bytes());
        }
        _ => {}
    }
}

fn count_up(frame: &mut [u8], count: u8) {
    let place = match ip_at(frame) {
        Some((at, 0x0800)) => at + 19,
        Some((at, 0x86dd)) => at + 39,
        _ => return,
    };
    if let Some(byte) = frame.get_mut(place) {
        *byte = byte.wrapping_add(count);
    }
}

fn frames(input: &mut Bytes<'_>) -> Vec<Frame> {
    let mut frames = Vec::new();
    while !input.is_empty() && frames.len() < FRAMES_MAX {
        let recipe = Recipe(input.u8());
        let mut bytes = recipe.template(input);
        if recipe.has(EDITS) {
            for _ in 0..1 + input.below(8) {
                let (at, value) = (usize::from(input.u8()), input.u8());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
        }
        let head_bytes = if recipe.has(CUT) { usize::from(input.u8()).min(bytes.len()) } else { bytes.len() };
        let count = if recipe.has(REPEAT) { 1 + input.u8() % 48 } else { 1 };
        for number in 0..count {
            let mut bytes = bytes.clone();
            count_up(&mut bytes, number);
            if recipe.has(RIGHT) {
                make_right(&mut bytes);
            }
            frames.push(Frame { bytes, head_bytes });
        }
    }
    frames.truncate(FRAMES_MAX);
    frames
}

fn bursts<'a>(frames: &'a [Frame], plan: &[usize]) -> Vec<&'a [Frame]> {
    let (mut rest, mut bursts) = (frames, Vec::new());
    for size in plan.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (burst, left) = rest.split_at((*size).min(rest.len()));
        bursts.push(burst);
        rest = left;
    }
    bursts
}

/// The sizes of the bursts, and the number of frames in the first of two batches.
fn plan(input: &mut Bytes<'_>) -> (Vec<usize>, usize) {
    let sizes = (0..3).map(|_| 1 + input.below(64)).collect();
    (sizes, usize::from(input.u8()))
}

fn pool() -> Option<(&'static Eal, Mempool)> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let (eal, number) = (dpdk_ffi::testing::eal()?, NUMBER.fetch_add(1, Relaxed));
    let config = MempoolConfig { mbufs: 1023, data_room_bytes: 3072, ..MempoolConfig::default() };
    Some((eal, Mempool::new(eal, &format!("fuzz{number}"), &config).unwrap()))
}

/// At every level of kernels, the parse pass agrees with the slow path on each packet.
pub fn parse(data: &[u8]) {
    thread_local!(static PARSERS: RefCell<Vec<Parser>> = RefCell::new(
        pool().map_or_else(Vec::new, |(eal, pool)| Parser::all(eal, &pool, FRAMES_MAX))
    ));
    let mut input = Bytes(data);
    let (sizes, cut) = plan(&mut input);
    let frames = frames(&mut input);
    let (first, second) = frames.split_at(cut.min(frames.len()));
    for batch in [first, second] {
        let bursts = bursts(batch, &sizes);
        let wanted: Vec<_> = batch.iter().map(check).collect();
        let mut drops = BTreeMap::new();
        for reason in wanted.iter().filter_map(|result| result.err()) {
            *drops.entry(reason).or_insert(0_u64) += 1;
        }
        let bytes: u64 = batch.iter().map(|frame| frame.bytes.len() as u64).sum();
        PARSERS.with_borrow_mut(|parsers| {
            for parser in parsers {
                let parsed = parser.run(&bursts).unwrap();
                let level = parser.level();
                assert_eq!(parsed.packets.len(), batch.len(), "{level:?}");
                for (i, (found, wanted)) in parsed.packets.iter().zip(&wanted).enumerate() {
                    assert_eq!(*found, wanted.ok(), "{level:?}: packet {i}: {wanted:?} {:?}", batch[i]);
                }
                assert_eq!((parsed.twice, parsed.bytes), (0, bytes), "{level:?}");
                assert_eq!(parsed.drops.into_iter().collect::<BTreeMap<_, _>>(), drops, "{level:?}");
            }
        });
    }
}

/// Every kind of next hop for the destinations of frames; four ports, one of them named and with a small MTU.
const MANY: &str = include_str!("routes-of-every-kind.txt");
/// Only bare ids, so that whole batches take the fast path.
const BARE: &str = "0.0.0.0/0 1\n10.0.0.0/28 2\n10.0.0.128/25 300\n::/0 3\n2001:db8::/124 65535\n";

fn forwarder(text: &str, ports: u8) -> Option<BatchForwarder> {
    let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
    crate::scratch::with_file(text.as_bytes(), |path| {
        feed::load(&[path], &mut rib, &mut hops, LoadOptions::default()).unwrap();
    });
    let port = |i: u8| Port {
        name: if i == 3 { "narrow".to_owned() } else { format!("p{i}") },
        mac: MacAddr([2, 0xf0, 0, 0, 0, i]),
        mtu_bytes: if i == 3 { 600 } else { 1500 },
    };
    let ports: Vec<_> = (0..ports).map(port).collect();
    let (eal, pool) = pool()?;
    Some(BatchForwarder::new(&rib, &hops, &ports, FRAMES_MAX, eal, pool).unwrap())
}

/// All passes agree with the reference at every level, in one mbuf or two. Every packet is sent or counted exactly once.
pub fn forward(data: &[u8]) {
    thread_local!(static FORWARDERS: RefCell<[Option<BatchForwarder>; 3]> =
        RefCell::new([forwarder(MANY, 4), forwarder(BARE, 3), forwarder(BARE, 7)]));
    let mut input = Bytes(data);
    let how = input.u8();
    let (sizes, _) = plan(&mut input);
    let frames = frames(&mut input);
    let bursts = bursts(&frames, &sizes);
    FORWARDERS.with_borrow_mut(|forwarders| {
        let Some(forwarder) = &mut forwarders[usize::from(how % 3)] else { return };
        for level in Level::ALL {
            match forwarder.forward(&bursts, level).unwrap() {
                Ok(forwarded) => judge(forwarder, &frames, forwarded, level),
                Err(order) => panic!("{level:?}: packets left out of order, or stayed: {order:?}"),
            }
        }
        assert_eq!(forwarder.mbufs_in_use(), 0, "mbufs are lost");
    });
}

fn judge(forwarder: &BatchForwarder, frames: &[Frame], forwarded: Forwarded, level: Level) {
    assert_eq!(forwarded.packets.len(), frames.len(), "{level:?}");
    let mut drops = BTreeMap::new();
    for (i, (frame, found)) in frames.iter().zip(&forwarded.packets).enumerate() {
        let wanted = forwarder.wanted(frame);
        match (&wanted, found) {
            (Outcome::Dropped(reason), Outcome::Dropped(_)) => *drops.entry(*reason).or_insert(0_u64) += 1,
            _ => assert_eq!(*found, wanted, "{level:?}: packet {i}: {frame:?}"),
        }
    }
    let bytes: u64 = frames.iter().map(|frame| frame.bytes.len() as u64).sum();
    assert_eq!(
        (forwarded.drops.into_iter().collect::<BTreeMap<_, _>>(), forwarded.bytes),
        (drops, bytes),
        "{level:?}"
    );
}
