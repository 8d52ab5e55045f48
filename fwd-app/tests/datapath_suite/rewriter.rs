//! Byte-exact output captures, against an independent forwarder: a linear scan over all routes, one packet at a time.

use crate::support::{bundled, ip_at, number, read_pcap, replay, sum_v4, v4_frame, v6_frame, write_pcap};
use fib::random::SplitMix64;
use std::net::IpAddr;
use std::path::Path;

/// A route: family, prefix in the top bits of 128, length, id.
pub(crate) type ScannedRoute = (bool, u128, u32, u32);

pub(crate) fn routes(path: &Path) -> Vec<ScannedRoute> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| {
            let (prefix, id) = line.split_once(' ').unwrap();
            let (address, len) = prefix.split_once('/').unwrap();
            let (len, id) = (len.parse().unwrap(), id.trim().parse().unwrap());
            match address.parse().unwrap() {
                IpAddr::V4(address) => (false, u128::from(u32::from(address)) << 96, len, id),
                IpAddr::V6(address) => (true, u128::from(address), len, id),
            }
        })
        .collect()
}

fn longest(routes: &[ScannedRoute], v6: bool, key: u128) -> Option<u32> {
    let covers = |&&(family, prefix, len, _): &&ScannedRoute| {
        family == v6 && (len == 0 || (prefix ^ key) >> (128 - len) == 0)
    };
    routes.iter().filter(covers).max_by_key(|(_, _, len, _)| *len).map(|(_, _, _, id)| *id)
}

/// Port and bytes of the forwarded frame; `None` for packets without a route. Only for packets that pass every check.
pub(crate) fn forward(frame: &[u8], routes: &[ScannedRoute], ports: u32) -> Option<(usize, Vec<u8>)> {
    let ip = ip_at(frame);
    let v6 = frame[ip - 2..ip] == [0x86, 0xdd];
    let key = if v6 {
        u128::from_be_bytes(frame[ip + 24..ip + 40].try_into().unwrap())
    } else {
        u128::from(u32::from_be_bytes(frame[ip + 16..ip + 20].try_into().unwrap())) << 96
    };
    let id = longest(routes, v6, key)?;
    let port = (id - 1) % ports;
    let mut out = vec![2, 0, 0];
    out.extend(&id.to_be_bytes()[1..]);
    out.extend([2, 0xf0, 0, 0, 0, u8::try_from(port).unwrap()]);
    out.extend(&frame[12..]);
    if v6 {
        out[ip + 7] -= 1;
    } else {
        out[ip + 8] -= 1;
        sum_v4(&mut out[ip..]);
    }
    Some((port as usize, out))
}

fn compare(trace: &Path, loops: usize, ports: u32, extra: &[&str]) {
    let frames = read_pcap(trace);
    let routes = routes(&bundled("routes.txt"));
    let mut wanted = vec![Vec::new(); ports as usize];
    for _ in 0..loops {
        for (time_ns, frame) in &frames {
            if let Some((port, out)) = forward(frame, &routes, ports) {
                wanted[port].push((*time_ns, out));
            }
        }
    }
    let scratch = tempfile::tempdir().unwrap();
    let (out, loops, count) = (scratch.path().join("out"), loops.to_string(), ports.to_string());
    let mut arguments = vec!["--out", out.to_str().unwrap(), "--loops", &loops, "--ports", &count];
    arguments.extend(extra);
    if replay(trace, &bundled("routes.txt"), &arguments).is_none() {
        return;
    }
    for (port, wanted) in wanted.iter().enumerate() {
        let sent = read_pcap(&out.join(format!("port{port}.pcap")));
        assert_eq!(sent.len(), wanted.len(), "port {port}");
        for (i, (sent, wanted)) in sent.iter().zip(wanted).enumerate() {
            assert_eq!(sent, wanted, "port {port}, packet {i}");
        }
    }
}

#[test]
fn the_bundled_mix_byte_for_byte() {
    compare(&bundled("mix-ns.pcap"), 3, 4, &[]);
    compare(&bundled("mix.pcap"), 2, 4, &["--topology", "pipeline", "--lcores", "3"]);
    compare(&bundled("mix.pcap"), 1, 7, &["--batch", "1"]);
}

fn generated(count: usize) -> Vec<Vec<u8>> {
    let routes = routes(&bundled("routes.txt"));
    let mut state = SplitMix64(7);
    let mut frames = Vec::with_capacity(count);
    while frames.len() < count {
        let (v6, prefix, len, _) = routes[usize::try_from(state.u64()).unwrap_or(0) % routes.len()];
        let host = u128::from(state.u64()) << 64 | u128::from(state.u64());
        let key = if len == 0 { host } else { prefix | host.checked_shr(len).unwrap_or(0) };
        let bytes = usize::try_from(42 + state.u64() % 1470).unwrap();
        let tags: &[u16] = match state.u64() % 8 {
            0 => &[0x8100],
            1 => &[0x88a8, 0x8100],
            2 => &[0x9100, 0x8100],
            _ => &[],
        };
        let bytes = bytes + 4 * tags.len();
        if v6 {
            frames.push(v6_frame(0x2001_0db8 << 96 | 1, key, bytes.max(62), tags));
        } else if !matches!(key >> 120, 0 | 127 | 169 | 224..) {
            frames.push(v4_frame(0xc000_0201, u32::try_from(key >> 96).unwrap(), bytes, tags));
        }
    }
    frames
}

#[test]
fn generated_packets_byte_for_byte() {
    let scratch = tempfile::tempdir().unwrap();
    let trace = scratch.path().join("generated.pcap");
    write_pcap(&trace, &generated(5000));
    compare(&trace, 1, 4, &["--verify"]);
    compare(&trace, 2, 3, &["--verify", "--topology", "pipeline", "--batch", "256", "--lcores", "4"]);
}

#[test]
fn frames_longer_than_an_mbuf_are_chains() {
    // Longer than the largest mbuf of a replay, 16 KB: they arrive as chains. They exceed the MTU: IPv4 is fragmented, IPv6 dropped.
    let scratch = tempfile::tempdir().unwrap();
    let trace = scratch.path().join("long.pcap");
    let mut frames = generated(50);
    frames.push(v4_frame(0xc000_0201, 0x0a00_0001, 40_000, &[]));
    frames.push(v6_frame(1 << 100, 0x2001_0db8 << 96 | 5, 65_000, &[]));
    write_pcap(&trace, &frames);
    let Some(summary) = replay(&trace, &bundled("routes.txt"), &["--verify", "--loops", "20"]) else {
        return;
    };
    let exceeded = number(&summary, "/packets/drops/mtu_exceeded");
    assert_eq!((exceeded, number(&summary, "/packets/fragmented")), (20, 20), "{summary}");
}
