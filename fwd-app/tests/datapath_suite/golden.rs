//! The golden results in `pcap/`: verdict, port and bytes of every packet, computed by an independent forwarder in Python.

use crate::support::{bundled, drops, number, read_pcap, read_records, replay, write_pcap_of};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn digest(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes).as_slice())
}

fn golden_of(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(bundled(name)).unwrap()).unwrap()
}

fn compare(capture: &str, golden: &str, count: Option<usize>, extra: &[&str]) {
    let golden = golden_of(golden);
    let entries: Vec<_> =
        golden["packets"].as_array().unwrap().iter().take(count.unwrap_or(usize::MAX)).collect();
    compare_packets(&bundled(capture), &golden, &entries, extra);
}

fn compare_packets(capture: &Path, golden: &Value, entries: &[&Value], extra: &[&str]) {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out");
    let mut arguments = vec!["--verify", "--out", out.to_str().unwrap()];
    arguments.extend(extra);
    let Some(summary) = replay(capture, &bundled("routes.txt"), &arguments) else { return };
    let capture = capture.display();
    assert_eq!(number(&summary, "/packets/rx"), entries.len() as u64);
    assert_eq!(number(&summary, "/verify/checked"), entries.len() as u64);
    assert_eq!(summary["trace"]["packets_from"], "copies");
    assert_eq!(summary["truncated"], Value::Bool(false));

    let ports = usize::try_from(golden["ports"].as_u64().unwrap()).unwrap();
    let mut sent: Vec<_> =
        (0..ports).map(|p| read_pcap(&out.join(format!("port{p}.pcap"))).into_iter()).collect();
    let mut wanted_drops = std::collections::BTreeMap::new();
    for entry in entries {
        let note = format!("{capture} packet {}: {}", entry["index"], entry["note"]);
        if entry["verdict"] != "tx" {
            *wanted_drops.entry(entry["verdict"].as_str().unwrap().to_owned()).or_insert(0) += 1;
            continue;
        }
        let port = usize::try_from(entry["port"].as_u64().unwrap()).unwrap();
        let (_, frame) =
            sent[port].next().unwrap_or_else(|| panic!("{note}: nothing more left by port {port}"));
        let mac = golden["source_macs"][port].as_str().unwrap().replace(':', "");
        assert_eq!(hex(&frame[6..12]), mac, "{note}");
        match entry.get("out_hex") {
            Some(wanted) => assert_eq!(hex(&frame), wanted.as_str().unwrap(), "{note}"),
            None => assert_eq!(digest(&frame), entry["out_sha256"].as_str().unwrap(), "{note}"),
        }
    }
    for (port, mut rest) in sent.into_iter().enumerate() {
        assert!(rest.next().is_none(), "port {port} sent more than the golden results say");
    }
    assert_eq!(drops(&summary), wanted_drops.into_iter().collect::<Vec<_>>());
}

#[test]
fn every_kind_of_bad_packet() {
    compare("bad.pcap", "bad.golden.json", None, &["--engine", "oracle"]);
    compare(
        "bad.pcap",
        "bad.golden.json",
        None,
        &["--engine", "bloom", "--topology", "pipeline", "--lcores", "3"],
    );
    compare("bad.pcap", "bad.golden.json", None, &["--engine", "bloom", "--isa", "scalar", "--batch", "1"]);
}

#[test]
fn the_mix_in_every_capture_format() {
    compare("mix.pcap", "mix.golden.json", None, &[]);
    compare("mix.pcapng", "mix.golden.json", None, &["--topology", "pipeline"]);
    compare("mix-ns.pcap", "mix.golden.json", Some(500), &[]);
    compare("mix-be.pcap", "mix.golden.json", Some(200), &[]);
    compare("mix-be.pcapng", "mix.golden.json", Some(200), &["--batch", "256", "--flush-us", "0"]);
}

fn of_link(link: u32, frame: &[u8]) -> Option<Vec<u8>> {
    let (kind, packet) = (&frame[12..14], &frame[14..]);
    let family: u32 = match kind {
        [0x08, 0x00] => 2,
        [0x86, 0xdd] => 10,
        _ => 0,
    };
    let is_group = frame[0] % 2 == 1;
    Some(match link {
        0 if family > 0 => [&family.to_le_bytes()[..], packet].concat(),
        101 if family > 0 && matches!((family, packet.first()? >> 4), (2, 4) | (10, 6)) => packet.to_vec(),
        113 => [&[0, 2 * u8::from(is_group), 0, 1, 0, 6], &frame[6..12], &[0, 0], kind, packet].concat(),
        276 => [kind, &[0, 0, 0, 0, 0, 1, 0, 1, 2 * u8::from(is_group), 6], &frame[6..12], &[0, 0], packet]
            .concat(),
        _ => return None,
    })
}

#[test]
fn the_same_packets_of_other_links_and_packed() {
    let folder = tempfile::tempdir().unwrap();
    for capture in ["mix", "bad"] {
        let golden = golden_of(&format!("{capture}.golden.json"));
        let entries = golden["packets"].as_array().unwrap();
        let frames = read_records(&bundled(&format!("{capture}.pcap")));
        for (link, packer) in [(0, "gzip"), (101, "xz"), (113, "bzip2"), (276, "gzip")] {
            let made = frames.iter().map(|(_, frame, _)| frame.get(14..).and_then(|_| of_link(link, frame)));
            let (made, kept): (Vec<_>, Vec<_>) =
                made.zip(entries).filter_map(|(frame, entry)| Some((frame?, entry))).unzip();
            assert!(kept.len() > 150, "{capture} of link type {link}: {}", kept.len());
            let path = folder.path().join(format!("{capture}-{link}.pcap"));
            write_pcap_of(&path, link, &made);
            compare_packets(&path, &golden, &kept, &[]);
            assert!(Command::new(packer).arg("-f").arg(&path).status().unwrap().success(), "{packer}");
            let ending = if packer == "gzip" {
                "gz"
            } else if packer == "xz" {
                "xz"
            } else {
                "bz2"
            };
            compare_packets(&path.with_extension(format!("pcap.{ending}")), &golden, &kept, &[]);
        }
    }
}

/// At full speed nothing captures the packets, which are replayed several times: only counts are compared.
#[test]
fn packets_that_lie_ready_have_the_golden_counts() {
    const LOOPS: u64 = 9;
    for (capture, extra) in [
        ("mix", &[][..]),
        ("bad", &["--spread", "--lcores", "2"]),
        ("mix", &["--spread", "--batch", "1", "--topology", "pipeline", "--lcores", "3"]),
        ("bad", &["--topology", "pipeline", "--lcores", "4", "--batch", "64"]),
    ] {
        let golden = golden_of(&format!("{capture}.golden.json"));
        let mut arguments = vec!["--loops", "9"];
        arguments.extend(extra);
        let trace = bundled(&format!("{capture}.pcap"));
        let Some(summary) = replay(&trace, &bundled("routes.txt"), &arguments) else { return };
        assert_eq!(summary["trace"]["packets_from"], "ready mbufs");
        let stages = summary["stages"].as_array().unwrap();
        let hands_over = stages.iter().any(|stage| stage["name"] == "hand-over");
        assert_eq!(hands_over, extra.contains(&"pipeline"), "{extra:?}: {stages:?}");
        let entries = golden["packets"].as_array().unwrap();
        let (mut sent, mut dropped) = (vec![0; 4], std::collections::BTreeMap::new());
        for entry in entries {
            match entry["port"].as_u64() {
                Some(port) => sent[usize::try_from(port).unwrap()] += LOOPS,
                None => *dropped.entry(entry["verdict"].as_str().unwrap().to_owned()).or_insert(0) += LOOPS,
            }
        }
        let ports = summary["ports"].as_array().unwrap();
        let count = |key: &str| ports.iter().map(|port| port[key].as_u64().unwrap()).collect::<Vec<_>>();
        assert_eq!(
            (count("tx"), count("rx").iter().sum()),
            (sent, entries.len() as u64 * LOOPS),
            "{extra:?}"
        );
        assert_eq!(drops(&summary), dropped.into_iter().collect::<Vec<_>>(), "{extra:?}");
    }
}
