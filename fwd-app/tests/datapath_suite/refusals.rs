//! Requests that cannot be fulfilled: a clear message, the documented exit code, and no partial output.

use crate::support::{
    bundled, drops, number, ran, read_pcap, replay, replay_command, stderr, v4_frame, write_pcap,
};
use std::path::Path;

fn refused(trace: &Path, extra: &[&str], code: i32, words: &[&str]) {
    let scratch = tempfile::tempdir().unwrap();
    let (out, json) = (scratch.path().join("out"), scratch.path().join("summary.json"));
    let mut command = replay_command(trace, &bundled("routes.txt"));
    let Some(output) =
        ran(command.arg("--out").arg(&out).arg("--json").arg(&json).args(extra).output().unwrap())
    else {
        return;
    };
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains("fwd-app: ") && !text.contains("panicked"), "{text}");
    for word in words {
        assert!(text.contains(word), "no '{word}' in: {text}");
    }
    assert!(!out.exists() && !json.exists() && output.stdout.is_empty(), "no partial output");
}

#[test]
fn configurations_that_cannot_be() {
    let mix = bundled("mix.pcap");
    refused(&mix, &["--config", "(0,0,1),(0,0,2)"], 2, &["queue 0 of port 0", "lcore 1", "lcore 2"]);
    refused(&mix, &["--config", "(4,0,1)"], 3, &["port 4", "there are 4"]);
    refused(&mix, &["--config", "(1,0,1)"], 2, &["port 0"]);
    refused(&mix, &["--config", "(0,0,900)"], 2, &["lcore 900"]);
    refused(&mix, &["--lcores", "100"], 2, &["16"]);
    refused(&mix, &["--engine", "warp"], 2, &["warp", "bloom"]);
    refused(&mix, &["--rate", "fast"], 2, &["fast"]);
    refused(&mix, &["--batch", "0"], 2, &["batch"]);
    refused(&mix, &["--mbufs", "500", "--lcores", "1"], 2, &["500", "1024"]);
}

#[test]
fn traces_that_cannot_be_replayed() {
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = scratch.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let whole = std::fs::read(bundled("mix.pcap")).unwrap();
    refused(scratch.path(), &[], 1, &["directory"]);
    refused(&scratch.path().join("absent.pcap"), &[], 1, &["absent.pcap", "No such file"]);
    refused(&file("zero", b""), &[], 1, &["zero", "empty"]);
    refused(&file("text", b"192.0.2.0/24 7\n192.0.2.0/25 8\n"), &[], 1, &["no capture"]);
    refused(&file("header", &whole[..24]), &[], 1, &["no packet"]);
    refused(&file("first", &whole[..50]), &[], 1, &["cut short within its first packet"]);
}

#[test]
fn ports_that_routes_name_and_that_do_not_exist() {
    let scratch = tempfile::tempdir().unwrap();
    for (route, word) in [("10.0.0.0/8 via 192.0.2.1 dev eth9", "eth9"), ("R10.0.0.0/8 9", "9")] {
        let routes = scratch.path().join("routes.txt");
        std::fs::write(&routes, format!("{route}\n")).unwrap();
        let Some(output) = ran(replay_command(&bundled("mix.pcap"), &routes).output().unwrap()) else {
            return;
        };
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(
            stderr(&output).contains(word) && stderr(&output).contains("net_ring_port0"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn a_capture_cut_short_is_replayed_as_far_as_it_goes() {
    let scratch = tempfile::tempdir().unwrap();
    let whole = std::fs::read(bundled("mix.pcap")).unwrap();
    for cut in [1, 7, 16, 500] {
        let path = scratch.path().join("cut.pcap");
        std::fs::write(&path, &whole[..whole.len() - cut]).unwrap();
        let Some(summary) = replay(&path, &bundled("routes.txt"), &["--verify"]) else { return };
        assert_eq!(summary["truncated"], true);
        let packets = number(&summary, "/trace/packets");
        assert!((1990..2000).contains(&packets), "{packets}");
        assert_eq!(number(&summary, "/packets/rx"), packets);
    }
}

#[test]
fn every_drop_reason_of_a_route() {
    // Next hops: three that drop, gateways without and with a neighbour, and destinations on a connected link.
    let scratch = tempfile::tempdir().unwrap();
    let routes = scratch.path().join("routes.txt");
    let text = "blackhole 10.1.0.0/16\nunreachable 10.1.1.0/24\nprohibit 10.1.2.0/24\n10.2.0.0/16 via 192.0.2.1 dev 1\n10.3.0.0/16 via 192.0.2.2 dev 2\n\
                10.4.0.0/16 dev 3\n10.6.0.0/16 via 192.0.2.1\n10.7.0.0/16 via 192.0.2.2\nneigh 192.0.2.2 lladdr 02:aa:bb:cc:dd:ee dev 2\n\
                neigh 10.4.0.1 lladdr 02:aa:bb:cc:dd:ff dev 3\n";
    std::fs::write(&routes, text).unwrap();
    let trace = scratch.path().join("trace.pcap");
    let to = |b: u32, d: u32| v4_frame(0xc000_0201, 10 << 24 | b << 16 | d, 60, &[]);
    let destinations =
        [(1, 0x101), (1, 0x201), (1, 0x202), (1, 1), (2, 1), (3, 1), (4, 1), (4, 2), (5, 1), (6, 1), (7, 1)];
    write_pcap(&trace, &destinations.map(|(b, d)| to(b, d)));
    let out = scratch.path().join("out");
    let extra = ["--verify", "--out", out.to_str().unwrap()];
    let Some(summary) = replay(&trace, &routes, &extra) else { return };
    let wanted =
        [("blackhole", 1), ("no_neighbour", 3), ("no_route", 1), ("prohibited", 2), ("unreachable", 1)];
    assert_eq!(drops(&summary), wanted.map(|(name, n)| (name.to_owned(), n)));
    let sent = |port: u8| read_pcap(&out.join(format!("port{port}.pcap")));
    assert_eq!(sent(2).len(), 2);
    assert!(sent(2).iter().all(|(_, frame)| frame[..6] == [2, 0xaa, 0xbb, 0xcc, 0xdd, 0xee]));
    assert_eq!(sent(3)[0].1[..6], [2, 0xaa, 0xbb, 0xcc, 0xdd, 0xff]);
}
