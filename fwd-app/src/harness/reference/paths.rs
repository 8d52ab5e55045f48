//! The flow hash and path selection of [`crate::datapath::flow`], implemented independently: wide integers, lists of fields, one bucket.

use fib::NextHopId;
use std::net::IpAddr;

const BUCKETS: u64 = 4096;
/// Constants shared by both definitions.
const K: [u128; 4] =
    [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3];

#[derive(Clone, Copy, Debug)]
pub(super) struct AlivePath {
    pub(super) id: NextHopId,
    pub(super) gateway: Option<IpAddr>,
    pub(super) port: Option<usize>,
    pub(super) weight: u16,
}

/// Selects the path for a flow's hash; `depth` groups were resolved before this one.
pub(super) fn choose(paths: &[AlivePath], hash: u64, depth: u32) -> Option<NextHopId> {
    let bucket = hash.rotate_left(12 * (depth + 1)) % BUCKETS;
    let mut least = None;
    for path in paths {
        let cost = cost(path, bucket);
        if least.is_none_or(|(least, _)| cost < least) {
            least = Some((cost, path.id));
        }
    }
    least.map(|(_, id)| id)
}

#[expect(clippy::cast_possible_truncation, reason = "the definition rounds")]
fn cost(path: &AlivePath, bucket: u64) -> f32 {
    let address = match path.gateway {
        Some(IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(address)) => address.octets(),
        None => [0; 16],
    };
    let address = u128::from_be_bytes(address);
    let port = path.port.map_or(u64::MAX.into(), |port| port as u128);
    let (first, last) = (address >> 64, address % (1 << 64));
    let identity = fold(fold(first ^ K[0], last ^ K[1]) ^ port ^ K[2], K[3]);
    let mut rank = u128::from(bucket);
    for round in 0..3 {
        let key = identity >> (21 * round);
        rank = (rank + key) % 4096 * (key >> 12 | 1) % 4096;
        rank ^= rank / 64;
    }
    -((rank as f64 + 0.5) / BUCKETS as f64).ln() as f32 / f32::from(path.weight)
}

#[expect(clippy::cast_possible_truncation, reason = "a fold has 64 bits")]
pub(super) fn hash(seed: u64, packet: &[u8]) -> u64 {
    let number = |from: usize, bytes: usize| {
        packet[from..from + bytes].iter().fold(0_u128, |number, byte| number << 8 | u128::from(*byte))
    };
    let key = fold(u128::from(seed) ^ K[0], K[1]);
    let hash = match packet.first().map(|first| first >> 4) {
        Some(6) if packet.len() >= 40 => {
            let end = |address: usize, k| fold(number(address, 8) ^ key, number(address + 8, 8) ^ k);
            fold(end(8, K[1]) ^ l4_v6(packet) ^ K[2], end(24, K[2]) ^ K[3])
        }
        Some(_) if packet.len() >= 20 => fold(fold(number(12, 8) ^ key, l4_v4(packet) ^ K[1]) ^ K[2], K[3]),
        _ => 0,
    };
    hash as u64
}

fn l4_v4(packet: &[u8]) -> u128 {
    let (more, offset) = (packet[6] & 0x20 != 0, u32::from(packet[6] & 0x1f) << 8 | u32::from(packet[7]));
    if more || offset > 0 {
        return 0;
    }
    protocol_and_ports(packet[9], packet.get(usize::from(packet[0] % 16) * 4..).unwrap_or_default())
}

fn l4_v6(packet: &[u8]) -> u128 {
    let label = u128::from(packet[1] & 15) << 16 | u128::from(packet[2]) << 8 | u128::from(packet[3]);
    let (mut next, mut rest) = (packet[6], &packet[40..]);
    let mut extensions = 0;
    while [0, 43, 44, 51, 60].contains(&next) {
        extensions += 1;
        if extensions > 9 || rest.len() < 2 {
            return label << 40;
        }
        if next == 44 {
            return 0;
        }
        let bytes = if next == 51 { (usize::from(rest[1]) + 2) * 4 } else { (usize::from(rest[1]) + 1) * 8 };
        next = rest[0];
        rest = rest.get(bytes..).unwrap_or_default();
    }
    if extensions > 8 {
        return label << 40;
    }
    label << 40 | protocol_and_ports(next, rest)
}

fn protocol_and_ports(protocol: u8, rest: &[u8]) -> u128 {
    let ports = match (protocol, rest) {
        (6 | 17 | 33 | 132 | 136, [a, b, c, d, ..]) => u32::from_be_bytes([*a, *b, *c, *d]),
        _ => 0,
    };
    u128::from(protocol) << 32 | u128::from(ports)
}

fn fold(a: u128, b: u128) -> u128 {
    let product = a * b;
    (product >> 64) ^ (product % (1 << 64))
}
