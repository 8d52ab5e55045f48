//! Traces that are read while they are replayed, and the interfaces of captured packets.

use crate::support::{
    bundled, drops, fwd_app, mix_command, number, ran, read_pcap, replay, replay_command, report, stderr,
    v4_frame, wait, write_pcap,
};
use serde_json::Value;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

const ALWAYS: [&str; 2] = ["--stream", "always"];

fn write_mix(path: &Path, times: usize) {
    let mix = std::fs::read(bundled("mix.pcap")).unwrap();
    let (header, packets) = mix.split_at(24);
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    file.write_all(header).unwrap();
    for _ in 0..times {
        file.write_all(packets).unwrap();
    }
    file.flush().unwrap();
}

/// The results that do not depend on whether a trace is in memory.
fn result(summary: &Value) -> (u64, u64, Vec<(String, u64)>, Vec<u64>) {
    let ports = summary["ports"].as_array().unwrap().iter();
    let counts =
        ports.flat_map(|port| [port["rx"].as_u64().unwrap(), port["tx"].as_u64().unwrap()]).collect();
    (number(summary, "/packets/rx"), number(summary, "/packets/tx"), drops(summary), counts)
}

#[test]
fn a_trace_that_is_read_meanwhile_gives_what_one_in_memory_gives() {
    for extra in [
        &["--loops", "40"][..],
        &["--limit", "700", "--loops", "50", "--spread"],
        &["--loops", "9", "--topology", "pipeline", "--lcores", "3", "--spread"],
        &["--imix", "--remap", "--seed", "7", "--loops", "3"],
        &["--rate", "x2", "--loops", "3"],
        &["--rate", "300Mbps", "--loops", "3"],
        &["--rate", "100kpps", "--loops", "3"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let out = |name: &str| folder.path().join(name);
        let run = |name: &str, when: &str| {
            let out = out(name);
            let more = ["--verify", "--stream", when, "--out", out.to_str().unwrap()];
            replay(&bundled("mix.pcap"), &bundled("routes.txt"), &[extra, &more].concat())
        };
        let Some(memory) = run("memory", "never") else { return };
        let stream = run("stream", "always").unwrap();
        assert_eq!(result(&stream), result(&memory), "{extra:?}");
        assert_eq!(
            (&memory["trace"]["packets_from"], memory["trace"].get("stream")),
            (&"copies".into(), None)
        );
        assert_eq!(stream["trace"]["packets_from"], "the file");
        assert_eq!(stream["verify"], memory["verify"], "{extra:?}");
        for key in ["packets", "snapped", "sizes", "remapped"] {
            assert_eq!(stream["trace"][key], memory["trace"][key], "{extra:?}");
        }
        assert_eq!(stream["latency_ns"]["count"], memory["latency_ns"]["count"]);
        for port in 0..4 {
            let sorted = |name: &str| {
                let mut sent = read_pcap(&out(name).join(format!("port{port}.pcap")));
                // With several inputs the interleaving of packets varies.
                sent.sort_unstable();
                sent
            };
            assert!(sorted("stream") == sorted("memory"), "{extra:?}: port {port}");
        }
    }
}

fn memory_max_kb(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.split_whitespace().next()?.parse().ok()
}

#[test]
fn memory_does_not_grow_with_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, json) = (folder.path().join("long.pcap"), folder.path().join("summary.json"));
    write_mix(&trace, 800);
    let file_kb = std::fs::metadata(&trace).unwrap().len() / 1024;
    let mut command = replay_command(&trace, &bundled("routes.txt"));
    let mut child = command.args(ALWAYS).args(["--verify", "--json"]).arg(&json).spawn().unwrap();
    let mut most_kb = 0;
    while child.try_wait().unwrap().is_none() {
        most_kb = most_kb.max(memory_max_kb(child.id()).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(20));
    }
    let Some(output) = ran(child.wait_with_output().unwrap()) else { return };
    assert!(output.status.success(), "{}", stderr(&output));
    let summary = crate::support::json(&json);
    assert_eq!(
        (number(&summary, "/packets/rx"), number(&summary, "/verify/checked")),
        (1_600_000, 1_600_000)
    );
    assert!(file_kb > 400_000 && most_kb < 300_000, "{file_kb} kB were read with {most_kb} kB");
    assert!(number(&summary, "/trace/stream/chunks_max") <= 16, "{}", summary["trace"]);
}

#[test]
fn drops_fragments_and_slow_links_are_accounted_for() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("long.pcap");
    let long = |i: u32| {
        let mut frame = v4_frame(0x0a00_0001 + i, 0xc633_6401 + i % 5, 1400 + i as usize % 3000, &[]);
        frame[20] = if i.is_multiple_of(7) { 0x40 } else { 0 };
        crate::support::sum_v4(&mut frame[14..34]);
        frame
    };
    write_pcap(&trace, &(0..3000).map(long).collect::<Vec<_>>());
    let routes = folder.path().join("routes.txt");
    std::fs::write(&routes, "198.51.100.0/30 1\n198.51.100.4/30 2\n").unwrap();
    for extra in [&[][..], &["--topology", "pipeline", "--lcores", "3"], &["--spread", "--lcores", "2"]] {
        let arguments = [&ALWAYS[..], &["--verify", "--loops", "20"], extra].concat();
        let Some(summary) = replay(&trace, &routes, &arguments) else { return };
        assert!(number(&summary, "/packets/originated") > 20_000, "{}", summary["packets"]);
        assert!(number(&summary, "/packets/drops/mtu_exceeded") > 1000, "{}", summary["packets"]);
    }
    // Packets sent while the ring is full are lost and cannot be identified.
    let slow = [&ALWAYS[..], &["--verify", "--loops", "50", "--tx-slow", "200", "--rate", "2Mpps"]].concat();
    let summary = replay(&bundled("mix.pcap"), &bundled("routes.txt"), &slow).unwrap();
    assert!(number(&summary, "/packets/drops/tx_full") > 0, "{}", summary["packets"]);
}

#[test]
fn a_duration_ends_a_trace_that_would_go_on() {
    let mut command = mix_command();
    command.args(ALWAYS).args(["--verify", "--duration", "0.5"]);
    let Some((summary, _)) = report(command, 0) else { return };
    assert!(number(&summary, "/trace/loops") > 1, "{}", summary["trace"]);
    assert_eq!(number(&summary, "/trace/packets"), 2000);
}

#[test]
fn a_pipe_is_read_once() {
    let mut command = replay_command(Path::new("/dev/stdin"), &bundled("routes.txt"));
    let file = std::fs::File::open(bundled("mix.pcap")).unwrap();
    let (read, mut write) = std::io::pipe().unwrap();
    let writer = std::thread::spawn(move || {
        let mut file = file;
        let _ = std::io::copy(&mut file, &mut write);
    });
    command.stdin(read).args(ALWAYS).args(["--verify", "--duration", "20"]);
    let report = report(command, 0);
    writer.join().unwrap();
    let Some((summary, _)) = report else { return };
    assert_eq!(number(&summary, "/verify/checked"), 2000);
}

fn blocks(file: &[u8]) -> Vec<usize> {
    let mut at = 0;
    let next = |at: usize| at + u32::from_le_bytes(file[at + 4..at + 8].try_into().unwrap()) as usize;
    std::iter::from_fn(|| {
        let here = at;
        (here < file.len()).then(|| at = next(here))?;
        Some(here)
    })
    .collect()
}

#[test]
fn damage_ends_a_replay_with_its_report_and_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("damaged.pcapng");
    let mut file = std::fs::read(bundled("mix.pcapng")).unwrap();
    let packets: Vec<_> = blocks(&file).into_iter().filter(|at| file[*at] == 6).collect();
    assert_eq!(packets.len(), 2000);
    // The block of packet 1,901 claims a length of 13 bytes.
    file[packets[1900] + 4] = 13;
    std::fs::write(&trace, &file).unwrap();
    for (when, is_replayed) in [("never", false), ("always", true)] {
        let json = folder.path().join(when);
        let mut command = replay_command(&trace, &bundled("routes.txt"));
        command.args(["--verify", "--stream", when, "--loops", "3", "--json"]).arg(&json);
        let Some(output) = ran(wait(command.spawn().unwrap(), Duration::from_secs(60))) else { return };
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("damaged.pcapng: after 1900 packets, at byte"), "{said}");
        assert_eq!(json.exists(), is_replayed, "{said}");
        if is_replayed {
            let summary = crate::support::json(&json);
            assert_eq!(number(&summary, "/verify/checked"), 1900);
            let error = summary["trace"]["stream"]["error"].as_str().unwrap();
            assert!(error.contains("after 1900 packets"), "{error}");
        }
    }
}

#[test]
fn what_cannot_be_done_with_part_of_a_trace_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (updates, empty) = (folder.path().join("updates.txt"), folder.path().join("empty.pcap"));
    std::fs::write(&updates, crate::support::changes(2)).unwrap();
    std::fs::write(&empty, &std::fs::read(bundled("mix.pcap")).unwrap()[..24]).unwrap();
    let updates = updates.to_str().unwrap();
    let made = folder.path().join("made.pcap");
    let save = ["--save-trace", made.to_str().unwrap()];
    for (trace, extra, code, parts) in [
        (
            bundled("mix.pcap"),
            &["--verify", "--updates", updates][..],
            2,
            &["--limit N", "--stream never"][..],
        ),
        (bundled("mix.pcap"), &save, 2, &["--save-trace", "--stream never"]),
        (empty, &[], 1, &["there is no packet in it"]),
        (folder.path().join("none.pcap"), &[], 1, &["none.pcap"]),
    ] {
        let output =
            replay_command(&trace, &bundled("routes.txt")).args(ALWAYS).args(extra).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    }
    let mut command = mix_command();
    command.args(ALWAYS).args(["--updates", updates, "--loops", "20"]);
    let _ = report(command, 0);
}

/// Writes the mixed capture as pcapng. Packet `i` has interface `i % 3`: `eth0`, `eth1`, and one without a name.
fn write_interfaces(path: &Path) {
    let mut file = Vec::new();
    let mut block = |kind: u32, body: &[u8]| {
        let bytes = u32::try_from(12 + body.len().next_multiple_of(4)).unwrap();
        file.extend(kind.to_le_bytes());
        file.extend(bytes.to_le_bytes());
        file.extend(body);
        file.resize(file.len().next_multiple_of(4), 0);
        file.extend(bytes.to_le_bytes());
    };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
    for name in ["eth0", "eth1", ""] {
        let option = [&[2, 0, 4, 0], name.as_bytes(), &[0; 4]].concat();
        block(1, &[words(&[1, 0]), if name.is_empty() { Vec::new() } else { option }].concat());
    }
    for (i, (_, frame)) in (0..).zip(read_pcap(&bundled("mix.pcap"))) {
        let bytes = u32::try_from(frame.len()).unwrap();
        block(6, &[words(&[i % 3, 0, i, bytes, bytes]), frame].concat());
    }
    std::fs::write(path, file).unwrap();
}

#[test]
fn packets_of_an_interface_arrive_on_its_port() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("interfaces.pcapng");
    write_interfaces(&trace);
    for (of, wanted) in [
        (&["eth0=3", "eth1=1"][..], [666, 667, 0, 667]),
        (&["0=2", "2=1"], [667, 666, 667, 0]),
        (&["eth1=1", "0=1"], [666, 1334, 0, 0]),
    ] {
        for (when, lcores) in [("never", "1"), ("always", "3")] {
            let of = of.iter().flat_map(|of| ["--port-of", *of]);
            let arguments: Vec<_> =
                ["--verify", "--stream", when, "--lcores", lcores].into_iter().chain(of).collect();
            let Some(summary) = replay(&trace, &bundled("routes.txt"), &arguments) else { return };
            let rx: Vec<_> = (0..4).map(|port| number(&summary, &format!("/ports/{port}/rx"))).collect();
            assert_eq!(rx, wanted, "{arguments:?}");
        }
    }
}

#[test]
fn interfaces_and_ports_that_are_not_there_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("interfaces.pcapng");
    write_interfaces(&trace);
    let routes = bundled("routes.txt");
    for (extra, code, parts) in [
        (&["--port-of", "eth7=1"][..], 1, &["--port-of eth7", "there are eth0 (0), eth1 (1), 2"][..]),
        (&["--port-of", "eth7=1", "--stream", "always"], 1, &["--port-of eth7", "eth0 (0)"]),
        (&["--port-of", "eth0=4"], 3, &["--port-of eth0=4", "there are 4 ports"]),
        (&["--port-of", "eth0=1", "--spread"], 2, &["cannot be used with"]),
        (&["--port-of", "eth0"], 2, &["'eth0' is not IFACE=PORT"]),
        (&["--port-of", "eth0=1", "--config", "(0,0,1)"], 2, &["port 1", "--config"]),
    ] {
        let mut command = fwd_app(&["replay", "--no-huge"]);
        let Some(output) = ran(command.arg(&trace).arg("--fib").arg(&routes).args(extra).output().unwrap())
        else {
            return;
        };
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    }
}
