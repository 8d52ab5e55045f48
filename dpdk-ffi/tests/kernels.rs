//! The passes over headers: the kernels of every level compute the results of the scalar twins.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "test helpers may panic, and their counts are small"
)]

use dpdk_ffi::simd::{Entry, Indexed, Kind, LaneV4, LaneV6, LengthOrMark, Level, PAD, Parsed, Tally, rules};
use dpdk_ffi::{Burst, DROP, Mempool, MempoolConfig, testing};
use proptest::prelude::*;
use std::sync::OnceLock;

const PACKETS_MAX: usize = 150;

/// A frame of 10 to 150 bytes with valid lengths and checksum, of which some bytes are then replaced.
#[derive(Clone, Debug)]
struct HeaderRecipe {
    is_v4: bool,
    bytes: usize,
    ttl: u8,
    addresses: [[u8; 16]; 2],
    edits: Vec<(usize, u8)>,
    /// Bytes of the first segment, if it has several.
    head_bytes: Option<usize>,
}

impl HeaderRecipe {
    fn frame(&self) -> Vec<u8> {
        let mut frame = vec![2; 12];
        let [source, destination] = &self.addresses;
        if self.is_v4 {
            let total = (self.bytes.max(34) - 14) as u16;
            frame.extend([8, 0, 0x45, 0]);
            frame.extend(total.to_be_bytes());
            frame.extend([0xab, 0xcd, 0x40, 0, self.ttl, 17, 0, 0]);
            frame.extend(&source[..4]);
            frame.extend(&destination[..4]);
            let words = frame[14..34].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
            let checksum = 0xffff - words.sum::<u32>() % 0xffff;
            frame[24..26].copy_from_slice(&(checksum as u16).to_be_bytes());
        } else {
            let payload = (self.bytes.max(54) - 54) as u16;
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(payload.to_be_bytes());
            frame.extend([17, self.ttl]);
            frame.extend(source);
            frame.extend(destination);
        }
        frame.resize(self.bytes.max(frame.len()), 7);
        for (at, value) in &self.edits {
            if let Some(byte) = frame.get_mut(*at) {
                *byte = *value;
            }
        }
        frame.truncate(self.bytes);
        frame
    }
}

fn address() -> impl Strategy<Value = [u8; 16]> {
    let edge = prop::sample::select(vec![0u8, 1, 126, 127, 128, 169, 223, 224, 240, 0xfd, 0xfe, 0xff]);
    let next = prop::sample::select(vec![0u8, 0x80, 253, 254, 255]);
    let rest = prop_oneof![Just([0; 14]), any::<[u8; 14]>()];
    let good = any::<[u8; 14]>().prop_map(|rest| (0x20, 1, rest));
    prop_oneof![6 => good, 1 => (edge, next, rest)].prop_map(|(first, second, rest)| {
        let mut address = [0; 16];
        (address[0], address[1]) = (first, second);
        address[2..].copy_from_slice(&rest);
        address
    })
}

fn recipes() -> impl Strategy<Value = Vec<HeaderRecipe>> {
    let bytes = prop_oneof![4 => 54..70usize, 1 => 10..150usize];
    let ttl = prop_oneof![4 => Just(64), 1 => 0..4u8];
    let edits = prop_oneof![8 => Just(vec![]), 1 => prop::collection::vec((12..60usize, any::<u8>()), 1..3)];
    let head_bytes = prop::option::weighted(0.05, 1..80usize);
    let addresses = [address(), address()];
    let recipe = (0..2u8, bytes, ttl, addresses, edits, head_bytes).prop_map(
        |(family, bytes, ttl, addresses, edits, head_bytes)| HeaderRecipe {
            is_v4: family == 0,
            bytes,
            ttl,
            addresses,
            edits,
            head_bytes,
        },
    );
    // Bursts of one family, and mixed ones.
    (prop::collection::vec(recipe, 1..PACKETS_MAX), 0..3u8).prop_map(|(mut recipes, families)| {
        for recipe in &mut recipes {
            recipe.is_v4 = recipe.is_v4 && families != 1 || families == 0;
        }
        recipes
    })
}

#[derive(Debug, Default, PartialEq)]
struct Results {
    tallies: Vec<Tally>,
    v4: Vec<(u32, u16)>,
    v6: Vec<(u64, u64, u16)>,
    kinds: Vec<Kind>,
    merged: Vec<u32>,
    /// Only packets that passed.
    ip_bytes: Vec<u32>,
    ports: (bool, Vec<u16>),
    with_code: Vec<[u64; 2]>,
    entries: Vec<Entry>,
    rewritten: Vec<Vec<u8>>,
    /// By port, then the dropped packets, then those that stay.
    scattered: Vec<Vec<u64>>,
}

fn run(
    level: Level,
    recipes: &[HeaderRecipe],
    cut: usize,
    table: &[Entry],
    indices: &[u32],
    outs: usize,
) -> Option<Results> {
    static POOL: OnceLock<Mempool> = OnceLock::new();
    let eal = testing::eal()?;
    let config = MempoolConfig { mbufs: 1023, data_room_bytes: 256, ..MempoolConfig::default() };
    let pool = POOL.get_or_init(|| Mempool::new(eal, "kernels", &config).unwrap());
    let count = recipes.len();
    let mut burst = Burst::with_capacity(eal, PACKETS_MAX).with_level(level);
    let (mut keys, mut places4, mut places6) =
        ([0; PACKETS_MAX + PAD], [0; PACKETS_MAX + PAD], [0; PACKETS_MAX + PAD]);
    let (mut his, mut los) = ([0; PACKETS_MAX + PAD], [0; PACKETS_MAX + PAD]);
    let (mut kinds, mut lengths) =
        ([Kind::V6; PACKETS_MAX + PAD], [LengthOrMark::default(); PACKETS_MAX + PAD]);
    let mut results = Results::default();
    let (mut len4, mut len6, mut first) = (0, 0, 0);
    let (before, after) = recipes.split_at(cut.min(count));
    for part in [before, after] {
        for recipe in part {
            let frame = recipe.frame();
            let (head, tail) = frame.split_at(recipe.head_bytes.unwrap_or(frame.len()).min(frame.len()));
            let mut packet = pool.copy(head).unwrap();
            if !tail.is_empty() {
                testing::chain(&mut packet, pool.copy(tail).unwrap());
            }
            burst.push(packet).unwrap();
            burst.set_tag(burst.len() - 1, burst.len() as u64);
        }
        let v4 = LaneV4 { keys: &mut keys, places: &mut places4, len: len4 };
        let v6 = LaneV6 { his: &mut his, los: &mut los, places: &mut places6, len: len6 };
        let mut parsed = Parsed { v4, v6, kinds: &mut kinds, lengths: &mut lengths };
        results.tallies.push(burst.parse(first, &mut parsed));
        (len4, len6, first) = (parsed.v4.len, parsed.v6.len, burst.len());
    }
    results.v4 = (0..len4).map(|k| (keys[k], places4[k])).collect();
    results.v6 = (0..len6).map(|k| (his[k], los[k], places6[k])).collect();
    results.kinds = kinds[..count].to_vec();
    let (lasts, mut merged) = (los.map(|lo| lo as u32), [7; PACKETS_MAX + PAD]);
    burst.merge(&kinds, [&keys, &lasts], &mut merged);
    results.merged = merged[..count].to_vec();
    let passed = (0..count).filter(|i| kinds[*i] != Kind::Other);
    results.ip_bytes = passed.map(|i| lengths[i].get().unwrap()).collect();
    // As a caller does for packets that did not pass.
    for (length, _) in lengths.iter_mut().zip(&kinds).filter(|(_, kind)| **kind == Kind::Other) {
        *length = LengthOrMark::default();
    }
    let mut ports = [7; PACKETS_MAX + PAD];
    let mut own = [Entry::default(); PACKETS_MAX + PAD];
    let of = Indexed { indices, lengths: &lengths };
    let care = burst.verdict(table, of, &mut own, &mut ports);
    results.ports = (care, ports[..count].to_vec());
    for (code, at) in [(Entry::CODES, 0), (Entry::CODES + 3, count / 2), (DROP, count.saturating_sub(64))] {
        results.with_code.push(burst.with_code(&ports, at, code));
    }
    results.entries = own[..count].to_vec();
    burst.rewrite(&kinds, &own);
    results.rewritten = burst.iter().map(|packet| packet.data().to_vec()).collect();
    let mut outs: Vec<_> = (0..outs).map(|_| Burst::with_capacity(eal, PACKETS_MAX)).collect();
    let mut dropped = Burst::with_capacity(eal, PACKETS_MAX);
    for port in &mut ports[..count] {
        *port = if *port >= Entry::CODES { DROP } else { *port };
    }
    let stay = burst.scatter(&ports[..count], &mut outs, &mut dropped);
    assert_eq!(stay, burst.len());
    let tags = |burst: &Burst| (0..burst.len()).map(|i| burst.tag(i)).collect();
    results.scattered = outs.iter().chain([&dropped, &burst]).map(tags).collect();
    drop((outs, dropped, burst));
    assert_eq!(pool.in_use(), 0);
    Some(results)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn kernels_compute_what_the_twins_compute(
        recipes in recipes(), cut in 0..PACKETS_MAX, outs in 0..20usize,
        codes in prop::collection::vec((any::<[u8; 12]>(), 0..20u16, 0..40u8), 1..100usize),
        indices in prop::collection::vec(prop_oneof![20 => 0..100u32, 1 => any::<u32>()], PACKETS_MAX + PAD),
    ) {
        let table: Vec<_> = codes.iter().map(|(macs, port, how)| match how {
            0 => Entry { macs: *macs, port: Entry::TOO_LONG + 1 + port, mtu_bytes: u16::MAX },
            1 => Entry { macs: *macs, port: DROP, mtu_bytes: u16::MAX },
            2 => Entry { macs: *macs, port: *port, mtu_bytes: 45 },
            _ => Entry { macs: *macs, port: *port % outs.max(1) as u16, mtu_bytes: 1500 },
        }).collect();
        let Some(wanted) = run(Level::Scalar, &recipes, cut, &table, &indices, outs) else { return Ok(()) };
        for level in Level::ALL {
            let found = run(level, &recipes, cut, &table, &indices, outs).unwrap();
            prop_assert_eq!(&found, &wanted, "{:?}", level.available());
        }
        // Each packet has its result, and the entry at its index; packets that passed are correct after the hop, others get MACs.
        let found = wanted.v4.iter().map(|(key, place)| (*key, *place));
        let found = found.chain(wanted.v6.iter().map(|(_, lo, place)| (*lo as u32, *place)));
        for (word, place) in found {
            prop_assert_eq!(wanted.merged[usize::from(place)], word);
        }
        for (i, (recipe, after)) in recipes.iter().zip(&wanted.rewritten).enumerate() {
            prop_assert_eq!(&wanted.entries[i], table.get(indices[i] as usize).unwrap_or(&table[0]));
            let (mut before, kind) = (recipe.frame(), wanted.kinds[i]);
            before.truncate(after.len());
            let macs = before.len().min(12);
            before[..macs].copy_from_slice(&wanted.entries[i].macs[..macs]);
            match kind {
                Kind::Other => {}
                Kind::V4 => {
                    before[22] -= 1;
                    before[24..26].copy_from_slice(&after[24..26]);
                    let words = after[14..34].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
                    prop_assert!(rules::checksum_is_right(words.sum()));
                }
                Kind::V6 => before[21] -= 1,
            }
            prop_assert_eq!(&before, after, "packet {}", i);
        }
    }
}

#[test]
fn a_packet_that_is_too_long_has_a_code_of_its_own() {
    let Some(eal) = testing::eal() else { return };
    let pool = testing::pool(eal, "too_long", 511);
    for mark in [0, 1, 17, u8::MAX] {
        assert_eq!(LengthOrMark::mark(mark).get(), Err(mark), "no length is taken for a mark");
    }
    let codes = (1..=0x90).map(|code| Entry::CODES + code).chain([DROP]);
    let all: Vec<u16> = (0..600).chain([0x8000, Entry::CODES - 1]).chain(codes).collect();
    let entry = |port: &u16| Entry { macs: [0; 12], port: *port, mtu_bytes: 1500 };
    let table: Vec<_> = all.iter().map(entry).collect();
    for level in Level::ALL {
        for first in (0..table.len()).step_by(PACKETS_MAX) {
            let count = PACKETS_MAX.min(table.len() - first);
            let mut burst = Burst::with_capacity(eal, PACKETS_MAX).with_level(level);
            pool.copy_burst(&mut burst, &vec![[2_u8; 60]; count]).unwrap();
            let mut indices = [0; PACKETS_MAX + PAD];
            indices[..count].iter_mut().zip(first as u32..).for_each(|(index, at)| *index = at);
            let (mut entries, mut ports) = ([Entry::default(); PACKETS_MAX + PAD], [0; PACKETS_MAX + PAD]);
            for (bytes, is_long) in [(1500, false), (1501, true), (65_575, true)] {
                let lengths = [LengthOrMark::length(bytes); PACKETS_MAX + PAD];
                let of = Indexed { indices: &indices, lengths: &lengths };
                burst.verdict(&table, of, &mut entries, &mut ports);
                for (port, found) in all[first..].iter().zip(&ports[..count]) {
                    let wanted = if is_long && *port < Entry::CODES { Entry::CODES } else { *port };
                    assert_eq!(*found, wanted, "{bytes} bytes to port {port:#x} at {:?}", level.available());
                }
            }
        }
    }
}

/// Tests the vector kernel's carry: every checksum before the hop.
#[test]
fn every_checksum_is_adjusted_alike() {
    let Some(eal) = testing::eal() else { return };
    let pool = testing::pool(eal, "checksums", 1023);
    let entries = [Entry::default(); 512 + PAD];
    let kinds = [Kind::V4; 512 + PAD];
    for level in Level::ALL {
        let mut burst = Burst::with_capacity(eal, 512).with_level(level);
        pool.copy_burst(&mut burst, &[[2; 60]; 512]).unwrap();
        for first in (0..=u16::MAX).step_by(512) {
            for (old, i) in (first..=u16::MAX).zip(0..burst.len()) {
                burst.data_mut(i)[24..26].copy_from_slice(&old.to_be_bytes());
            }
            burst.rewrite(&kinds, &entries);
            for (old, packet) in (first..=u16::MAX).zip(burst.iter()) {
                assert_eq!(
                    packet.data()[24..26],
                    rules::checksum_after_hop(old.to_be_bytes()),
                    "{old:x} at {level:?}"
                );
            }
            (0..burst.len()).for_each(|i| burst.data_mut(i)[22] = 2);
        }
    }
}

#[test]
fn cached_starts_follow_the_packets() {
    let Some(eal) = testing::eal() else { return };
    let pool = testing::pool(eal, "starts", 511);
    let frame = |number: u8| {
        let addresses = [[10; 16], [10, 0, 0, number, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]];
        HeaderRecipe { is_v4: true, bytes: 60, ttl: 64, addresses, edits: vec![], head_bytes: None }.frame()
    };
    let check = |burst: &mut Burst| {
        let (mut keys, mut places, mut none) = ([0; 128], [0; 128], [0; 128]);
        let (mut his, mut los) = ([0; 128], [0; 128]);
        let v6 = LaneV6 { his: &mut his, los: &mut los, places: &mut none, len: 0 };
        let v4 = LaneV4 { keys: &mut keys, places: &mut places, len: 0 };
        let (mut kinds, mut lengths) = ([Kind::Other; 128], [LengthOrMark::default(); 128]);
        let mut parsed = Parsed { v4, v6, kinds: &mut kinds, lengths: &mut lengths };
        let tally = burst.parse(0, &mut parsed);
        let bytes = (0..burst.len()).map(|i| u64::from(burst.pkt_len(i))).sum();
        assert_eq!(tally, Tally { bytes, passed: burst.len() });
        for (i, key) in keys[..burst.len()].iter().enumerate() {
            assert_eq!(key.to_be_bytes(), burst.data(i)[30..34], "packet {i}");
        }
    };
    let mut burst = Burst::with_capacity(eal, 64);
    check(&mut burst);
    let frames: Vec<_> = (0..40).map(frame).collect();
    pool.copy_burst(&mut burst, &frames).unwrap();
    check(&mut burst);
    let (mut one, mut two) = (Burst::with_capacity(eal, 64), Burst::with_capacity(eal, 64));
    drop(burst.pop());
    burst.push(pool.copy(&frame(99)).unwrap()).unwrap();
    check(&mut burst);
    burst.append_data(5, &[1, 2, 3], &pool).unwrap();
    check(&mut burst);
    let to: Vec<u16> = (0..burst.len()).map(|i| if i % 3 == 0 { 0 } else { 7 }).collect();
    burst.scatter(&to, std::slice::from_mut(&mut two), &mut one);
    check(&mut burst);
    check(&mut two);
    burst.swap(&mut two);
    burst.append(&mut two);
    check(&mut burst);
    burst.truncate_free(17);
    pool.copy_burst(&mut burst, &[frame(7)]).unwrap();
    check(&mut burst);
}
