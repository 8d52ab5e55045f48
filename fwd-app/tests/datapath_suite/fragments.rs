//! IPv4 packets above the MTU of their egress port: the fragments reassemble to the received packets.

use crate::ports::{PortBench, SHORT};
use crate::support::{
    drops, ip_at, number, ran, read_pcap, replay, stderr, sum_v4, v4_frame, v6_frame, write_pcap,
};
use std::collections::BTreeMap;

fn word(bytes: &[u8], at: usize) -> usize {
    usize::from(bytes[at]) << 8 | usize::from(bytes[at + 1])
}

fn sum(frame: &mut [u8]) {
    let at = ip_at(frame);
    sum_v4(&mut frame[at..]);
}

fn special(mut frame: Vec<u8>, id: u16, flags: u16, options: &[u8]) -> Vec<u8> {
    let at = ip_at(&frame);
    frame.splice(at + 20..at + 20, options.iter().copied());
    let bytes = u16::try_from(frame.len() - at).unwrap();
    frame[at] += u8::try_from(options.len() / 4).unwrap();
    frame[at + 2..at + 4].copy_from_slice(&bytes.to_be_bytes());
    frame[at + 4..at + 6].copy_from_slice(&id.to_be_bytes());
    frame[at + 6..at + 8].copy_from_slice(&flags.to_be_bytes());
    sum(&mut frame);
    frame
}

/// Reassembles the fragments of each packet, by identification, with the header of the first. Each must fit the MTU.
fn reassembled(frames: &[Vec<u8>], mtu_bytes: usize) -> BTreeMap<usize, Vec<u8>> {
    let mut packets: BTreeMap<usize, Vec<&Vec<u8>>> = BTreeMap::new();
    for frame in frames {
        let at = ip_at(frame);
        let bytes = word(frame, at + 2);
        // The shortest frame sent has 60 bytes.
        assert!(
            bytes <= mtu_bytes
                && frame.len() == (at + bytes).max(60)
                && frame[at + bytes..].iter().all(|byte| *byte == 0)
        );
        let mut summed = frame.clone();
        sum(&mut summed);
        assert_eq!(summed, *frame, "the checksum is right");
        packets.entry(word(frame, at + 4)).or_default().push(frame);
    }
    let whole = |(id, mut pieces): (usize, Vec<&Vec<u8>>)| {
        let offset = |piece: &&Vec<u8>| word(piece, ip_at(piece) + 6) & 0x1fff;
        pieces.sort_by_key(offset);
        let (first, start) = (pieces[0], offset(&pieces[0]));
        let at = ip_at(first);
        let mut whole = first[..at + usize::from(first[at] & 15) * 4].to_vec();
        let header_bytes = whole.len();
        for (place, piece) in pieces.iter().enumerate() {
            assert_eq!((offset(piece) - start) * 8, whole.len() - header_bytes, "no gap, nothing twice");
            assert_eq!(piece[..at], first[..at], "the same MACs and tags");
            let header = &piece[at..at + usize::from(piece[at] & 15) * 4];
            let payload = &piece[at + header.len()..at + word(piece, at + 2)];
            let is_last = place + 1 == pieces.len();
            assert!(
                is_last || payload.len() % 8 == 0 && header[6] & 0x20 != 0,
                "multiples of 8, and more follow"
            );
            assert_eq!((header[1], header[8], header[9]), (first[at + 1], first[at + 8], first[at + 9]));
            assert_eq!(header[12..20], first[at + 12..at + 20]);
            whole.extend(payload);
        }
        // Only the last fragment has the packet's own "more fragments".
        let more = pieces.last().unwrap()[at + 6] & 0x20;
        whole[at + 6] = whole[at + 6] & !0x20 | more;
        let bytes = u16::try_from(whole.len() - at).unwrap();
        whole[at + 2..at + 4].copy_from_slice(&bytes.to_be_bytes());
        sum(&mut whole);
        (id, whole)
    };
    packets.into_iter().map(whole).collect()
}

/// Router alert, which is copied to every fragment, and record route, which is not.
const OPTIONS: [u8; 12] = [0x94, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0];

/// Frames of at least 1,501 bytes to `10.0.0.9` without "don't fragment", with identifications 1, 2, ..
fn long_frames() -> Vec<Vec<u8>> {
    let frame = |bytes, tags: &[u16]| v4_frame(0xc000_0201, 10 << 24 | 9, bytes, tags);
    let frames = [
        special(frame(1515, &[]), 1, 0, &[]),
        special(frame(3000, &[]), 2, 0, &[]),
        special(frame(1519, &[0x8100]), 3, 0, &[]),
        special(frame(2900, &[0x88a8, 0x8100]), 4, 0, &OPTIONS),
        special(frame(4000, &[]), 5, 0, &OPTIONS),
        // Fragments themselves: in the middle and at the end of a datagram.
        special(frame(1600, &[]), 6, 0x2000 | 100, &[]),
        special(frame(1600, &[]), 7, 200, &OPTIONS),
        special(frame(9014, &[]), 8, 0, &[]),
        special(frame(60_014, &[]), 9, 0, &OPTIONS),
    ];
    frames.to_vec()
}

#[test]
fn a_replay_fragments_as_the_oracle_says() {
    let scratch = tempfile::tempdir().unwrap();
    let (trace, routes) = (scratch.path().join("trace.pcap"), scratch.path().join("routes.txt"));
    std::fs::write(&routes, "10.0.0.0/8 1\n2001:db8::/32 2\n").unwrap();
    let long = long_frames();
    let refused = [
        special(v4_frame(0xc000_0201, 10 << 24 | 9, 1515, &[]), 20, 0x4000, &[]),
        v6_frame(0x2001_0db8 << 96 | 1, 0x2001_0db8 << 96 | 2, 1515, &[]),
    ];
    let short = special(v4_frame(0xc000_0201, 10 << 24 | 9, 1514, &[]), 21, 0, &OPTIONS[..0]);
    write_pcap(&trace, &[&long[..], &refused[..], &[short]].concat());
    for topology in ["run-to-completion", "pipeline"] {
        let out = scratch.path().join(topology);
        let extra = ["--ports", "2", "--topology", topology, "--verify", "--out", out.to_str().unwrap()];
        let Some(summary) = replay(&trace, &routes, &extra) else { return };
        assert_eq!(drops(&summary), [("mtu_exceeded".to_owned(), 2)], "{topology}");
        let count = |name: &str| number(&summary, &format!("/packets/{name}"));
        assert_eq!((count("fragmented"), count("punted"), count("rx")), (9, 9, 12));
        assert_eq!(count("tx"), count("originated") + 1);
        let sent: Vec<_> = read_pcap(&out.join("port0.pcap")).into_iter().map(|(_, frame)| frame).collect();
        let whole = reassembled(&sent, 1500);
        assert_eq!(whole.len(), 10);
        for (id, frame) in (1..).zip(&long) {
            let (mut wanted, at) = (frame.clone(), ip_at(frame));
            wanted[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0xf0, 0, 0, 0, 0]);
            wanted[at + 8] -= 1;
            sum(&mut wanted);
            assert_eq!(whole[&id], wanted, "{topology}: packet {id}");
        }
        // Later fragments have only the options with the copied flag.
        let later = |frame: &&Vec<u8>| {
            word(frame, ip_at(frame) + 4) == 5 && word(frame, ip_at(frame) + 6) & 0x1fff > 0
        };
        for frame in sent.iter().filter(later) {
            let at = ip_at(frame);
            assert_eq!((frame[at], &frame[at + 20..at + 24]), (0x46, &OPTIONS[..4]));
        }
    }
}

#[test]
fn a_port_with_a_smaller_mtu_gets_fragments() {
    let bench = PortBench::new();
    let (trace, routes) = (bench.path("trace.pcap"), bench.path("routes.txt"));
    std::fs::write(&routes, "10.0.0.0/8 2\n").unwrap();
    let long = [1514, 1414, 700, 600].map(|bytes| v4_frame(0xc000_0201, 10 << 24 | 9, bytes, &[]));
    let frames: Vec<_> = (1..).zip(long).map(|(id, frame)| special(frame, id, 0, &[])).collect();
    write_pcap(&trace, &frames);
    for topology in ["run-to-completion", "pipeline"] {
        let options = [&SHORT[..], &["--mtu", "1=600", "--topology", topology]].concat();
        let Some(output) = ran(bench.run(
            &routes,
            &options,
            &[bench.vdev(0, &trace), bench.vdev(1, &bench.path("nothing.pcap"))],
        )) else {
            return;
        };
        let summary = bench.summary(&output);
        assert_eq!(drops(&summary), [], "{}", stderr(&output));
        assert_eq!(
            (number(&summary, "/packets/fragmented"), number(&summary, "/packets/originated")),
            (3, 8)
        );
        let whole = reassembled(&bench.sent(1), 600);
        assert_eq!(whole.len(), 4);
        for (id, frame) in (1..).zip(&frames) {
            assert_eq!(whole[&id][34..], frame[34..], "packet {id}");
        }
        let report = String::from_utf8_lossy(&output.stdout);
        assert!(report.contains("3 left as fragments"), "{report}");
    }
}
