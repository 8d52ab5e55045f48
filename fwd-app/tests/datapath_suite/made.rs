//! Generated packets, their sizes, and traces whose destinations are mapped into the table.

use crate::support::{
    bundled, dropped, drops, fwd_app, ip_at, number, ran, read_pcap, replay, replay_mix, report, stderr,
    sum_v4, write_pcap,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

fn made(kind: &str, extra: &[&str]) -> Command {
    let mut command = fwd_app(&["replay", "--no-huge", "--generate", kind]);
    command.arg("--fib").arg(bundled("routes.txt")).args(extra);
    command
}

#[test]
fn packets_of_each_kind_have_routes_and_are_verified() {
    for (kind, extra) in [
        ("table", &["--spread", "--topology", "pipeline"][..]),
        ("zipf", &["--imix", "--loops", "3"]),
        ("flows=200", &["--sizes", "aabg", "--seed", "9", "--v6-share", "25"]),
        ("flows=1", &["--duration", "0.2"]),
        ("uniform", &["--rate", "200kpps"]),
    ] {
        let words = [&["--packets", "6000", "--verify"], extra].concat();
        let Some((summary, _)) = report(made(kind, &words), 0) else { return };
        let trace = &summary["trace"];
        let seed = if extra.contains(&"--seed") { 9 } else { 1 };
        let share = if extra.contains(&"25") { 25 } else { 50 };
        let wanted = serde_json::json!({"kind": kind, "seed": seed, "packets": 6000, "v6_share": share});
        assert_eq!((&trace["generated"], &trace["file"]), (&wanted, &format!("generated {kind}").into()));
        assert_eq!(number(&summary, "/verify/checked"), number(&summary, "/packets/rx"));
        if kind == "uniform" {
            // The table covers few addresses.
            assert!(drops(&summary).iter().all(|(reason, _)| reason == "no_route"), "{summary}");
        } else {
            assert_eq!(dropped(&summary), 0, "{kind}: {summary}");
        }
    }
}

#[test]
fn packets_above_the_mtu_are_fragmented_or_too_long_by_their_family() {
    let words = ["--packets", "1000", "--v6-share", "30", "--sizes", "1518,9000", "--verify"];
    let Some((summary, _)) = report(made("table", &words), 0) else { return };
    let too_long = summary["packets"]["drops"]["mtu_exceeded"].as_u64().unwrap();
    let fragmented = number(&summary, "/packets/fragmented");
    assert_eq!(too_long + fragmented, 500);
    assert!(too_long.abs_diff(150) < 60, "{too_long}");
}

/// Without `--verify` the packets are prepared in mbufs; the same seed gives the same packets.
#[test]
fn a_seed_is_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let save = |name: &str, seed: &str| {
        let path = folder.path().join(name);
        let words = ["--packets", "3000", "--seed", seed, "--save-trace", path.to_str().unwrap()];
        let (summary, _) = report(made("table", &words), 0)?;
        assert_eq!(
            (number(&summary, "/packets/tx"), &summary["trace"]["packets_from"]),
            (3000, &"ready mbufs".into())
        );
        Some(path)
    };
    let [Some(one), Some(same), Some(other)] =
        [("a", "4"), ("b", "4"), ("c", "5")].map(|(name, seed)| save(name, seed))
    else {
        return;
    };
    assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(&same).unwrap());
    assert_ne!(std::fs::read(&one).unwrap(), std::fs::read(&other).unwrap());
    let summary = replay(&one, &bundled("routes.txt"), &["--verify", "--rate", "original"]).unwrap();
    assert_eq!((number(&summary, "/packets/tx"), dropped(&summary)), (3000, 0));
    assert!(summary["trace"].get("generated").is_none());
}

fn lengths(frames: &[(u64, Vec<u8>)]) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    frames.iter().for_each(|(_, frame)| *counts.entry(frame.len()).or_default() += 1);
    counts
}

#[test]
fn an_imix_is_what_it_says_to_a_thousandth() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("imix.pcap");
    let Some((summary, _)) = report(made("zipf", &["--imix", "--save-trace", path.to_str().unwrap()]), 0)
    else {
        return;
    };
    assert_eq!(
        summary["trace"]["sizes"],
        serde_json::json!({"mix": "64:7,594:4,1518:1", "seed": 1, "longer": 0})
    );
    let frames = read_pcap(&path);
    let (counts, total) = (lengths(&frames), frames.len());
    assert_eq!((total, counts.len()), (65_536, 3));
    for (bytes, weight) in [(64, 7), (594, 4), (1518, 1)] {
        assert!((counts[&(bytes - 4)] * 12).abs_diff(total * weight) * 1000 <= total * 12, "{counts:?}");
    }
    let bytes: usize = counts.iter().map(|(bytes, count)| (bytes + 4) * count).sum();
    let wanted = total * (7 * 64 + 4 * 594 + 1518) / 12;
    assert!(bytes.abs_diff(wanted) * 1000 <= wanted, "{bytes} bytes, not {wanted}");
    assert_eq!(number(&summary, "/packets/rx_bytes"), (bytes - 4 * total) as u64);
}

fn anonymised() -> Vec<Vec<u8>> {
    let mut frames: Vec<_> = read_pcap(&bundled("mix.pcap")).into_iter().map(|(_, frame)| frame).collect();
    for frame in &mut frames {
        let at = ip_at(frame);
        match frame.get(at).map(|first| first >> 4) {
            Some(4) => {
                frame[at + 16] = 25;
                sum_v4(&mut frame[at..]);
            }
            Some(6) => frame[at + 24..at + 26].copy_from_slice(&[0x3f, 0xfe]),
            _ => {}
        }
    }
    frames
}

fn addresses(frame: &[u8]) -> (&[u8], &[u8]) {
    let at = ip_at(frame);
    if frame[at] >> 4 == 4 {
        (&frame[at + 12..at + 16], &frame[at + 16..at + 20])
    } else {
        (&frame[at + 8..at + 24], &frame[at + 24..at + 40])
    }
}

#[test]
fn an_anonymised_trace_hits_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, saved) = (folder.path().join("trace.pcap"), folder.path().join("saved.pcap"));
    let frames = anonymised();
    write_pcap(&trace, &frames);
    let routes = bundled("routes.txt");
    let mut command = fwd_app(&["replay", "--no-huge", "--verify"]);
    command.arg(&trace).arg("--fib").arg(&routes);
    let Some((summary, _)) = report(command, 1) else { return };
    assert_eq!(drops(&summary), [("no_route".to_owned(), 2000)], "without a route for any packet");

    let remapped = |seed: &str, extra: &[&str]| {
        let words =
            [&["--verify", "--remap", "--seed", seed, "--save-trace", saved.to_str().unwrap()], extra]
                .concat();
        let summary = replay(&trace, &routes, &words).unwrap();
        let loops = number(&summary, "/trace/loops");
        assert_eq!((number(&summary, "/packets/tx"), dropped(&summary)), (2000 * loops, 0));
        assert_eq!(summary["trace"]["remapped"]["packets"], 2000);
        read_pcap(&saved).into_iter().map(|(_, frame)| frame).collect::<Vec<_>>()
    };
    let one = remapped("1", &[]);
    assert_eq!(one, remapped("1", &["--spread", "--loops", "3"]));
    assert_ne!(one, remapped("2", &[]));
    // The mapping of destinations is a function; sources and all other bytes are unchanged.
    let mut map = BTreeMap::new();
    for (before, after) in frames.iter().zip(&one) {
        assert_eq!((before.len(), addresses(before).0), (after.len(), addresses(after).0));
        let to = addresses(after).1.to_vec();
        assert_eq!(*map.entry(addresses(before).1.to_vec()).or_insert(to.clone()), to);
    }
    // Several routes of the table may map to the same address.
    let distinct = map.values().collect::<BTreeSet<_>>().len();
    assert!(map.len() > 500 && distinct * 10 > map.len() * 7, "{} addresses became {distinct}", map.len());
}

#[test]
fn a_trace_gets_sizes_and_cut_packets_are_filled() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved.pcap");
    let words = ["--verify", "--sizes", "128:3,1000:1", "--save-trace", saved.to_str().unwrap()];
    let Some(summary) = replay_mix(&words) else { return };
    let counts = lengths(&read_pcap(&saved));
    assert_eq!((counts[&124], counts[&996], counts.len()), (1500, 500, 2), "{counts:?}");
    assert_eq!(number(&summary, "/trace/sizes/longer"), 0);
    assert_eq!(number(&summary, "/packets/tx") + dropped(&summary), 2000);

    let cut = folder.path().join("cut.pcap");
    let whole: Vec<_> = read_pcap(&bundled("mix.pcap")).into_iter().map(|(_, frame)| frame).collect();
    write_pcap(&cut, &whole.iter().map(|frame| frame[..frame.len().min(96)].to_vec()).collect::<Vec<_>>());
    let routes = bundled("routes.txt");
    let tx = |trace: &Path, extra: &[&str]| number(&replay(trace, &routes, extra).unwrap(), "/packets/tx");
    let wanted = tx(&bundled("mix.pcap"), &[]);
    assert!(tx(&cut, &["--verify"]) < wanted, "some are malformed");
    assert_eq!(
        tx(&cut, &["--verify", "--sizes", "original", "--save-trace", saved.to_str().unwrap()]),
        wanted
    );
    let filled = read_pcap(&saved);
    assert!(filled.iter().zip(&whole).all(|((_, filled), whole)| filled.len() == whole.len()));
}

#[test]
fn what_cannot_be_is_refused() {
    let mix = bundled("mix.pcap");
    let mix = mix.to_str().unwrap();
    let v4 = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(v4.path(), "10.0.0.0/8 1\n").unwrap();
    let v4 = v4.path().to_str().unwrap();
    let routes = bundled("routes.txt");
    let routes = routes.to_str().unwrap();
    for (words, said) in [
        (&[mix, "--generate", "table"][..], "--generate"),
        (&[], "TRACE.pcap"),
        (&["--generate", "tables"], "flows=N"),
        (&["--generate", "table", "--limit", "5"], "--limit"),
        (&["--generate", "table", "--remap"], "--remap"),
        (&["--generate", "table", "--rate", "original"], "--rate original"),
        (&["--generate", "table", "--rate", "x2"], "--rate x2"),
        (&["--generate", "flows=10", "--packets", "9"], "--packets 9"),
        (&["--generate", "table", "--v6-share", "50", "--fib", v4], "--v6-share 0"),
        (&["--generate", "table", "--v6-share", "101"], "101"),
        (&[mix, "--packets", "5"], "TRACE.pcap"),
        (&[mix, "--v6-share", "5"], "TRACE.pcap"),
        (&[mix, "--seed", "5"], "--remap"),
        (&[mix, "--sizes", "63"], "64:7,594:4,1518:1"),
        (&[mix, "--sizes", "64", "--imix"], "--imix"),
    ] {
        let mut command = fwd_app(&["replay", "--no-huge"]);
        if !words.contains(&v4) {
            command.args(["--fib", routes]);
        }
        let output = command.args(words).output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
        assert!(text.starts_with("fwd-app: ") && text.contains(said), "{words:?}: {text}");
    }
    let unwritable = ["--save-trace", "/nonexistent/made.pcap"];
    let Some(output) = ran(made("table", &unwritable).output().unwrap()) else { return };
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/nonexistent/made.pcap"), "{}", stderr(&output));
}
