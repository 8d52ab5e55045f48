//! VRFs: sixteen with the same prefixes and different next hops, each checked by a separate oracle while all tables change.

use crate::ports::{PortBench, SHORT};
use crate::support::{
    bundled, drops, fwd_app, is_full, number, ran, read_pcap, replay, stderr, v4_frame, v6_frame, write_pcap,
};
use fib::random::Seeded;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const VRFS: u32 = 16;

/// Random routes of a VRF: prefixes within 10.0.0.0/12 and 2001:db8::/44, with at least 13 and 45 bits.
struct RandomPrefixes {
    rng: Seeded,
    has_v6: bool,
}

impl RandomPrefixes {
    fn prefix(&mut self) -> String {
        if self.has_v6 && self.rng.percent(50) {
            let address = 0x2001_0db8 << 96 | u128::from(self.rng.u32() & 0x3fff) << 66;
            let len = self.rng.between(45, 64);
            let masked = address >> (128 - u32::from(len)) << (128 - u32::from(len));
            return format!("{}/{len}", std::net::Ipv6Addr::from(masked));
        }
        let len = self.rng.between(13, 32);
        let address = 10 << 24 | self.rng.u32() & 0xf_3333;
        let masked = u64::from(address) >> (32 - len) << (32 - len);
        format!("{}/{len}", std::net::Ipv4Addr::from(u32::try_from(masked).unwrap()))
    }
}

/// The files of one VRF: routes and updates. Its next hops are `vrf * 1000 + 1` to `vrf * 1000 + 999`.
fn files(folder: &Path, vrf: u32, has_v6: bool) -> (PathBuf, PathBuf) {
    let mut routes = RandomPrefixes { rng: Seeded::new(71, u64::from(vrf)), has_v6 };
    let (mut table, mut updates, mut known) = (String::new(), String::new(), BTreeSet::new());
    for default in if has_v6 { &["0.0.0.0/0", "::/0"][..] } else { &["0.0.0.0/0"] } {
        writeln!(table, "{default} {}", vrf * 1000 + 1).unwrap();
    }
    for _ in 0..400 {
        let prefix = routes.prefix();
        if known.insert(prefix.clone()) {
            writeln!(table, "{prefix} {}", vrf * 1000 + 1 + routes.rng.u32() % 999).unwrap();
        }
    }
    for _ in 0..600 {
        let prefix = routes.prefix();
        let withdraws = routes.rng.percent(40);
        let prefix = if withdraws {
            known.iter().nth(routes.rng.u32() as usize % known.len()).unwrap()
        } else {
            &prefix
        };
        match withdraws {
            true => writeln!(updates, "w {prefix}").unwrap(),
            false => writeln!(updates, "a {prefix} {}", vrf * 1000 + 1 + routes.rng.u32() % 999).unwrap(),
        }
    }
    let [one, two] = ["routes", "updates"].map(|name| folder.join(format!("{name}{vrf}.txt")));
    std::fs::write(&one, table).unwrap();
    std::fs::write(&two, updates).unwrap();
    (one, two)
}

fn frame(rng: &mut Seeded, has_v6: bool, tags: &[u16]) -> Vec<u8> {
    if has_v6 && rng.percent(50) {
        let to = 0x2001_0db8 << 96 | u128::from(rng.u32() & 0x3fff) << 66 | u128::from(rng.u32());
        return v6_frame(0x2001_0db9 << 96 | u128::from(rng.u32()), to, 90, tags);
    }
    v4_frame(192 << 24 | rng.u32() & 0xffff, 10 << 24 | rng.u32() & 0xf_3333, 70, tags)
}

fn trace(folder: &Path, has_v6: bool) -> PathBuf {
    let mut rng = Seeded::new(72, 0);
    let mut any = |_| {
        let tags = if rng.percent(6) { &[0x8100_u16][..] } else { &[] };
        frame(&mut rng, has_v6, tags)
    };
    let file = folder.join("trace.pcap");
    write_pcap(&file, &(0..4000).map(&mut any).collect::<Vec<_>>());
    file
}

/// All VRFs change. The first is the default one; each other VRF has a port, or the ports of `moved`. Every result must be right.
fn replay_vrfs(
    trace: &Path,
    files: &[(PathBuf, PathBuf)],
    moved: &[(&str, &str)],
    extra: &[&str],
) -> Option<Value> {
    let mut options = vec!["--updates".to_owned(), files[0].1.display().to_string()];
    for (vrf, (routes, updates)) in files.iter().enumerate().skip(1) {
        let (name, port) = (format!("v{vrf}"), vrf.to_string());
        let port = moved.iter().find(|(moved, _)| *moved == name).map_or(&*port, |(_, ports)| ports);
        options.extend(["--vrf".to_owned(), format!("{name}={port}")]);
        options.extend(["--vrf-fib".to_owned(), format!("{name}={}", routes.display())]);
        options.extend(["--vrf-updates".to_owned(), format!("{name}={}", updates.display())]);
    }
    let mut words: Vec<_> = options.iter().map(String::as_str).collect();
    words.extend(["--verify", "--update-rate", "40000", "--update-loops", "1000"]);
    words.extend(extra);
    let summary = replay(trace, &files[0].0, &words)?;
    Some(summary)
}

/// The frames sent by `ports` ports, each with its next hop: the MAC of a bare id ends with the id.
fn sent(out: &Path, ports: usize) -> Vec<(u32, Vec<u8>)> {
    let frames = (0..ports).flat_map(|port| read_pcap(&out.join(format!("port{port}.pcap"))));
    frames.map(|(_, frame)| (u32::from_be_bytes([0, frame[3], frame[4], frame[5]]), frame)).collect()
}

#[test]
fn sixteen_vrfs_against_sixteen_oracles_under_churn() {
    for (engine, has_v6) in [("host", true), ("bloom", true), ("oracle", true), ("sail-m", false)] {
        let scratch = tempfile::tempdir().unwrap();
        let files: Vec<_> = (0..VRFS).map(|vrf| files(scratch.path(), vrf, has_v6)).collect();
        let trace = trace(scratch.path(), has_v6);
        for topology in ["run-to-completion", "pipeline"] {
            let more = ["--engine", engine, "--topology", topology, "--ports", "16", "--spread"];
            let (loops, packets) = if is_full() { ("40", 160_000) } else { ("8", 32_000) };
            let extra = [&more[..], &["--loops", loops, "--rate", "100kpps", "--audit", "16"]].concat();
            let Some(summary) = replay_vrfs(&trace, &files, &[], &extra) else { return };
            assert_eq!(number(&summary, "/verify/checked"), packets);
            assert!(number(&summary, "/audit/checked") > 0);
            assert_eq!(
                number(&summary, "/audit/wrong"),
                0,
                "each answer is compared with the routes of its VRF"
            );
            let vrfs = summary["vrfs"].as_array().unwrap();
            assert_eq!(vrfs.len(), VRFS as usize);
            for vrf in vrfs {
                assert!(vrf["updates"].as_u64().unwrap() > 100, "{vrf}");
                assert_eq!(
                    (vrf["engine"].as_str(), vrf["is_shared"].as_bool()),
                    (Some(engine), Some(engine == "sail-m"))
                );
            }
        }
    }
}

#[test]
fn a_next_hop_of_one_vrf_is_never_used_for_packets_of_another() {
    let scratch = tempfile::tempdir().unwrap();
    let files: Vec<_> = (0..VRFS).map(|vrf| files(scratch.path(), vrf, false)).collect();
    let trace = trace(scratch.path(), false);
    for (engine, topology) in
        [("host", "run-to-completion"), ("sail-m", "run-to-completion"), ("sail-m", "pipeline")]
    {
        let out = scratch.path().join(format!("{engine}-{topology}"));
        let more = ["--engine", engine, "--topology", topology, "--ports", "16", "--rate", "400kpps"];
        let extra = [&more[..], &["--loops", "20", "--out", out.to_str().unwrap()]].concat();
        // All packets are received by port 0, which is moved to VRF v7: the VRF default has no port that receives.
        if replay_vrfs(&trace, &files, &[("v7", "0")], &extra).is_none() {
            return;
        }
        let sent = sent(&out, 16);
        assert_eq!(sent.len(), 80_000, "VRF v7 has a default route that stays");
        for (id, _) in sent {
            assert_eq!(id / 1000, 7, "{engine} {topology}: next hop {id}");
        }
    }
}

/// The VRF of a frame by its outermost tag: VLANs 101 to 103 of its port are in v1 to v3, and 4094 in v3.
fn vrf_of(frame: &[u8]) -> u32 {
    match (u16::from_be_bytes([frame[12], frame[13]]), u16::from_be_bytes([frame[14], frame[15]]) & 0xfff) {
        (0x8100 | 0x88a8 | 0x9100, id @ 101..=103) => u32::from(id - 100),
        (0x8100 | 0x88a8 | 0x9100, 4094) => 3,
        _ => 0,
    }
}

#[test]
fn vlans_of_one_port_are_in_the_vrfs_of_their_tags() {
    let scratch = tempfile::tempdir().unwrap();
    let mut rng = Seeded::new(73, 0);
    let ids = [0, 101, 102, 103, 104, 4094, 101];
    let mut any = |has_v6| {
        let tags: Vec<_> =
            (0..rng.u32() % 3).map(|_| [0x8100, 0x8100, 0x88a8, 0x9100][rng.u32() as usize % 4]).collect();
        let mut frame = frame(&mut rng, has_v6, &tags);
        for at in 0..tags.len() {
            let tci = ids[rng.u32() as usize % ids.len()] | u16::from(rng.percent(50)) << 13;
            frame[14 + 4 * at..][..2].copy_from_slice(&tci.to_be_bytes());
        }
        frame
    };
    for (engine, has_v6, topology, batch) in [
        ("host", true, "run-to-completion", "32"),
        ("host", true, "pipeline", "32"),
        ("sail-m", false, "run-to-completion", "256"),
        ("bloom", true, "run-to-completion", "256"),
        ("oracle", true, "pipeline", "256"),
    ] {
        let files: Vec<_> = (0..4).map(|vrf| files(scratch.path(), vrf, has_v6)).collect();
        let trace = scratch.path().join("vlans.pcap");
        write_pcap(&trace, &(0..4000).map(|_| any(has_v6)).collect::<Vec<_>>());
        let out = scratch.path().join(format!("{engine}-{topology}"));
        let moved = [("v1", "0.101,1"), ("v2", "net_ring_port0.102,2"), ("v3", "0.103,3,0.4094")];
        let more = ["--engine", engine, "--topology", topology, "--ports", "4", "--batch", batch];
        let paced = ["--loops", "8", "--rate", "200kpps", "--out", out.to_str().unwrap()];
        let extra = [&more[..], &paced].concat();
        let Some(summary) = replay_vrfs(&trace, &files, &moved, &extra) else { return };
        assert_eq!(number(&summary, "/verify/checked"), 32_000);
        let names = |vrf: usize| summary["vrfs"][vrf]["ports"].clone();
        assert_eq!(names(0), serde_json::json!(["net_ring_port0"]));
        assert_eq!(
            names(3),
            serde_json::json!(["net_ring_port0.103", "net_ring_port0.4094", "net_ring_port3"])
        );
        let mut seen = [0; 4];
        for (id, frame) in sent(&out, 4) {
            let vrf = vrf_of(&frame);
            assert_eq!(id / 1000, vrf, "{engine} {topology}: next hop {id}");
            seen[vrf as usize] += 1;
        }
        assert_eq!((seen.iter().sum::<u32>(), seen.iter().all(|count| *count > 400)), (32_000, true));
    }
}

/// RFC 1812 5.3.4: a port with an address and a VLAN in another VRF.
#[test]
fn a_vlan_of_another_vrf_forwards_only_what_is_sent_to_the_port() {
    let bench = PortBench::new();
    let (trace, routes) = (bench.path("trace.pcap"), bench.path("routes.txt"));
    std::fs::write(&routes, "10.0.0.0/8 2\n2001:db8::/32 2\n").unwrap();
    let mac = [2, 0x70, 0x63, 0x61, 0x70, 0];
    let frames_to = |mac: [u8; 6]| {
        let v4 = v4_frame(0xc612_0102, 10 << 24 | 1, 70, &[0x8100]);
        let v6 = v6_frame(0x2001_0db9 << 96 | 1, 0x2001_0db8 << 96 | 1, 90, &[0x8100]);
        [v4, v6].map(|mut frame| {
            frame[..6].copy_from_slice(&mac);
            frame[14..16].copy_from_slice(&[0, 101]);
            frame
        })
    };
    let group = [0x33, 0x33, 0, 0, 0, 1];
    let mut multicast = frames_to(group)[1].clone();
    multicast[18 + 24] = 0xff;
    let all = [mac, [2, 0, 0, 0, 0, 9], [0xff; 6], group].map(frames_to).concat();
    write_pcap(&trace, &[&all[..], &[multicast]].concat());
    let red = format!("red={}", routes.display());
    for topology in ["run-to-completion", "pipeline"] {
        let vrf = ["--vrf", "red=0.101", "--vrf-fib", &red, "--address", "0=198.18.1.1/24"];
        let options = [&SHORT[..], &vrf, &["--topology", topology]].concat();
        let vdevs = [bench.vdev(0, &trace), bench.vdev(1, &bench.path("nothing.pcap"))];
        let Some(output) = ran(bench.run(&routes, &options, &vdevs)) else { return };
        let summary = bench.summary(&output);
        let wanted = [("multicast".to_owned(), 1), ("not_for_us".to_owned(), 6)];
        assert_eq!(drops(&summary), wanted, "{topology}");
        assert_eq!(bench.sent(1).len(), 2, "{topology}");
    }
}

#[test]
fn vrfs_that_cannot_be_are_refused() {
    let routes = bundled("routes.txt");
    for (options, code, message) in [
        (&["--vrf", "red=1", "--vrf", "red=2"][..], 2, "--vrf red: another VRF has this name"),
        (&["--vrf", "red=1", "--vrf", "blue=1"], 2, "port 1 is in the VRFs red and blue"),
        (&["--vrf", "red=9"], 3, "--vrf red names port 9, which does not exist"),
        (&["--vrf", "red=1.100", "--vrf", "blue=1.100"], 2, "port 1.100 is in the VRFs red and blue"),
        (&["--vrf", "red=1.4095"], 3, "--vrf red names port 1.4095, which does not exist"),
        (
            &["--vrf", "red=1", "--vrf-fib", "blue=x"],
            2,
            "--vrf-fib blue: no --vrf has this name; there are: red",
        ),
        (&["--vrf", "red=1", "--vrf-updates", "blue=x"], 2, "--vrf-updates blue: no --vrf has this name"),
        (&["--vrf", "red"], 2, "'red' is not NAME=PORT,.. such as red=0,1"),
        (&["--vrf", "red=1", "--engine", "sail-m", "--engine-arg", "fibs=1"], 2, "there are 2 VRFs"),
        (&["--vrf", "red=1", "--vrf-fib", "red=/nonexistent/routes"], 1, "/nonexistent/routes"),
    ] {
        let mut command = fwd_app(&["replay"]);
        command.arg(bundled("mix.pcap")).arg("--fib").arg(&routes).args(options);
        let Some(output) = ran(command.output().unwrap()) else { return };
        let said = stderr(&output);
        assert!(said.contains(message), "{options:?}: {said}");
        assert_eq!(output.status.code(), Some(code), "{options:?}: {said}");
    }
}
