//! The router's protocol part: any frames, times and packets, as steps of [`drive`], which checks the router after each. A frame is a
//! template or raw bytes, with edits and an optional correction of its checksums.

use crate::bytes::Bytes;
use fwd_app::testing::router::{
    NEIGHBOURS, RouterStep, STATION, TEMPLATES, correct, drive, host_of, template,
};
use std::net::IpAddr;

const STEPS_MAX: usize = 200;
const FRAME_BYTES_MAX: usize = 2000;

/// Checksums are corrected after the edits.
const RIGHT: u8 = 0x80;

/// Frames are well formed, no packet is lost or sent twice, memory is bounded, and notifications agree with the table.
pub fn arp_ndp(data: &[u8]) {
    let mut input = Bytes(data);
    drive(std::iter::from_fn(|| (!input.is_empty()).then(|| step(&mut input))).take(STEPS_MAX));
}

/// ICMP errors and echo replies: they are well formed and short, and no error is about an error.
pub fn icmp(data: &[u8]) {
    let mut input = Bytes(data);
    let steps = std::iter::from_fn(|| {
        if input.is_empty() {
            return None;
        }
        let (cause, head_bytes, kind) = (input.u8(), 14 + 8 * usize::from(input.u8()), input.u8());
        let (port, frame) = (port_of(kind), frame(kind, &mut input));
        let received = RouterStep::Receive(port, frame.clone());
        Some([
            RouterStep::Wait(100_000),
            received,
            RouterStep::Undelivered { port, frame, head_bytes, cause },
        ])
    });
    drive(steps.take(STEPS_MAX).flatten());
}

fn step(input: &mut Bytes<'_>) -> RouterStep {
    match input.u8() {
        0x40 => RouterStep::Wait(u64::from(input.u8()) * 100),
        0x41 => RouterStep::Resolve(host(input)),
        0x42 => RouterStep::Pin(host(input)),
        0x43 => RouterStep::Unpin(host(input)),
        0x47 => RouterStep::Link(input.u8() & 1 == 1),
        0x48 => RouterStep::Clear(Some(host(input))),
        0x49 => RouterStep::Clear(None),
        0x4a => {
            let (number, station) = (NEIGHBOURS[input.below(3)], input.u8());
            let mut frame = template(number, station & 0x1f, station & 0xdf);
            correct(&mut frame);
            RouterStep::Receive(0, frame)
        }
        kind => RouterStep::Receive(port_of(kind), frame(kind, input)),
    }
}

fn port_of(kind: u8) -> u16 {
    u16::from(kind >> 5 & 1)
}

fn host(input: &mut Bytes<'_>) -> IpAddr {
    let byte = input.u8();
    host_of(byte & 0x1f, byte & 0x20 == 0)
}

fn frame(kind: u8, input: &mut Bytes<'_>) -> Vec<u8> {
    let mut frame = match kind & 0x1f {
        number @ 1..=TEMPLATES => {
            let mut frame = template(number, STATION, STATION);
            let more = usize::from(input.u8());
            // The last bit of the length byte selects a long payload.
            frame.resize(frame.len() + more / 2 * if more & 1 == 0 { 1 } else { 12 }, 7);
            for _ in 0..input.below(6) {
                let (at, value) = (input.below(100), input.u8());
                if let Some(byte) = frame.get_mut(at) {
                    *byte = value;
                }
            }
            frame
        }
        _ => {
            let bytes = usize::from(input.u8()) << 8 | usize::from(input.u8());
            input.take(bytes % FRAME_BYTES_MAX).to_vec()
        }
    };
    if kind & RIGHT != 0 {
        correct(&mut frame);
    }
    frame
}
