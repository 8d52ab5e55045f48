//! Captures: the reader of `replay` and the reader of `lpm-bench` must agree.

use crate::scratch::with_file;
use fib::traffic::{Destinations, capture_destinations};
use fwd_app::testing::{Frame, check, read_capture};
use std::net::IpAddr;

/// Reads any bytes as pcap or pcapng with both readers.
pub fn captures(data: &[u8]) {
    let (trace, found) = with_file(data, |path| (read_capture(path), capture_destinations(path)));
    if let Ok(found) = &found {
        assert_eq!(found.frames, found.others + (found.v4.len() + found.v6.len()) as u64);
    }
    let trace = match trace {
        Ok(trace) => trace,
        Err(error) => return assert!(!format!("{error:#}").is_empty()),
    };
    // A capture that can be replayed has Ethernet frames only, which the other reader accepts too.
    let found = found.unwrap_or_else(|error| panic!("read by one alone: {error}"));
    assert_eq!((trace.frames.len() as u64, trace.is_truncated), (found.frames, found.truncated));
    assert!(trace.frames.is_sorted_by_key(|(time_ns, _)| *time_ns) && trace.snapped <= trace.frames.len());
    good_packets_are_among_the_destinations(&trace.frames, &found);
    let written = pcap(&trace.frames);
    let again = with_file(&written, read_capture).unwrap();
    let bytes = |frames: &[(u64, Vec<u8>)]| frames.iter().map(|(_, frame)| frame.clone()).collect::<Vec<_>>();
    assert_eq!((bytes(&again.frames), again.is_truncated, again.snapped), (bytes(&trace.frames), false, 0));
}

fn good_packets_are_among_the_destinations(frames: &[(u64, Vec<u8>)], found: &Destinations) {
    let (mut v4, mut v6) = (found.v4.iter(), found.v6.iter());
    for (_, bytes) in frames {
        let frame = Frame { bytes: bytes.clone(), head_bytes: bytes.len() };
        match check(&frame).map(|passed| passed.destination) {
            Ok(IpAddr::V4(address)) => assert!(v4.any(|key| *key == address.to_bits()), "{address}"),
            Ok(IpAddr::V6(address)) => assert!(v6.any(|key| *key == address.to_bits()), "{address}"),
            Err(_) => {}
        }
    }
}

fn pcap(frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 2 << 16 | 4, 0, 0, 1 << 18, 1] {
        file.extend(word.to_be_bytes());
    }
    for (time_ns, frame) in frames {
        let seconds = u32::try_from(time_ns / 1_000_000_000).unwrap_or(u32::MAX);
        let bytes = u32::try_from(frame.len()).unwrap();
        for word in [seconds, 0, bytes, bytes] {
            file.extend(word.to_be_bytes());
        }
        file.extend(frame);
    }
    file
}
