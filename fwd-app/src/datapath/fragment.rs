//! Fragments of IPv4 packets that exceed the MTU of their egress port (RFC 791 3.2).
//!
//! A [`Cut`] yields the headers of each fragment and the range of its payload; the packet already has its final headers. DPDK's
//! `rte_ipv4_fragment_packet` is not used: it needs indirect mbufs, hence ports that take chains, and leaves checksums to devices.

use super::check::{ETHERNET_BYTES, IPV4_BYTES};
use std::ops::Range;

/// The longest headers of a frame: Ethernet, two VLAN tags, and IPv4 with 40 bytes of options.
const HEADERS_BYTES_MAX: usize = ETHERNET_BYTES + 8 + 60;
/// "Don't fragment", in the word with flags and offset.
const DONT: u16 = 0x4000;
const MORE: u16 = 0x2000;
/// The offset, in units of 8 bytes.
const OFFSET: u16 = 0x1fff;

#[derive(Clone, Copy, Debug)]
struct Headers {
    bytes: [u8; HEADERS_BYTES_MAX],
    len: usize,
    /// Payload bytes that fit the MTU. Only in the last fragment may the payload be no multiple of 8.
    room: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Cut {
    ip_at: usize,
    /// Headers of the next fragment; later fragments lack the options that are not copied.
    headers: Headers,
    later: Headers,
    /// Flags and offset of the packet.
    word: u16,
    payload: Range<u32>,
    done: u32,
}

impl Cut {
    /// Plans the fragments, of at most `mtu_bytes`, of a checked packet; `frame` is its first segment. `None` for a packet that must not be
    /// fragmented: IPv6, "don't fragment", or an offset out of range.
    pub(crate) fn new(frame: &[u8], ip_at: usize, mtu_bytes: u16) -> Option<Self> {
        let packet = frame.get(ip_at..)?;
        let header = packet
            .get(..usize::from(packet.first()? & 15) * 4)
            .filter(|header| header.len() >= IPV4_BYTES)?;
        let word = u16::from_be_bytes([header[6], header[7]]);
        let total_bytes = u32::from(u16::from_be_bytes([header[2], header[3]]));
        let start = u32::try_from(ip_at + header.len()).ok()?;
        let payload = start..u32::try_from(ip_at).ok()? + total_bytes;
        let reaches = u32::from(word & OFFSET) * 8 + payload.end.checked_sub(start)?;
        if header[0] >> 4 != 4 || word & DONT != 0 || reaches > u32::from(u16::MAX) {
            return None;
        }
        let headers = |options: &mut dyn Iterator<Item = u8>| -> Option<Headers> {
            let mut bytes = [0; HEADERS_BYTES_MAX];
            let mut len = ip_at + IPV4_BYTES;
            bytes.get_mut(..len)?.copy_from_slice(&frame[..len]);
            for option in options {
                *bytes.get_mut(len)? = option;
                len += 1;
            }
            // "End of options" fills the last word (RFC 791 3.1, "Padding").
            len = ip_at + (len - ip_at).next_multiple_of(4);
            let header_bytes = u16::try_from(len - ip_at).ok()?;
            bytes[ip_at] = 0x40 | u8::try_from(header_bytes / 4).ok()?;
            let room = u32::from(mtu_bytes.checked_sub(header_bytes)?);
            (room >= 8).then_some(Headers { bytes, len, room })
        };
        let options = &header[IPV4_BYTES..];
        let first = headers(&mut options.iter().copied())?;
        let later = headers(&mut copied(options).flatten().copied())?;
        Some(Self { ip_at, headers: first, later, word, payload, done: 0 })
    }

    pub(crate) fn fragments(&self) -> u32 {
        let all = self.payload.end - self.payload.start;
        if all <= self.headers.room {
            return 1;
        }
        let rest = all - (self.headers.room & !7);
        2 + rest.saturating_sub(self.later.room).div_ceil(self.later.room & !7)
    }

    pub(crate) fn next(&mut self) -> Option<(&[u8], Range<u32>)> {
        let left = (self.payload.end - self.payload.start).checked_sub(self.done).filter(|left| *left > 0)?;
        if self.done > 0 {
            self.headers = self.later;
        }
        let Headers { bytes, len, room } = &mut self.headers;
        let count = if left <= *room { left } else { *room & !7 };
        let from = self.payload.start + self.done;
        // If the packet is itself a fragment, its last fragment inherits its flag.
        let more = if count < left { MORE } else { 0 };
        // Cannot carry: the end of the payload is within the range of offsets.
        let word = (self.word | more) + u16::try_from(self.done / 8).unwrap_or(0);
        self.done += count;
        let header = &mut bytes[self.ip_at..*len];
        let total_bytes = u16::try_from(header.len()).unwrap_or(0) + u16::try_from(count).unwrap_or(0);
        header[2..4].copy_from_slice(&total_bytes.to_be_bytes());
        header[6..8].copy_from_slice(&word.to_be_bytes());
        header[10..12].fill(0);
        let sum = checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        Some((&bytes[..*len], from..from + count))
    }
}

/// The options of every fragment: those with the "copied" bit (RFC 791 3.1). Options after a malformed one are not copied.
fn copied(options: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = options;
    std::iter::from_fn(move || {
        loop {
            let bytes = match rest {
                [] | [0, ..] => return None,
                [1, ..] => 1,
                [_, bytes, ..] if (2..=rest.len()).contains(&usize::from(*bytes)) => usize::from(*bytes),
                _ => return None,
            };
            let (option, later) = rest.split_at(bytes);
            rest = later;
            if option[0] & 0x80 != 0 {
                return Some(option);
            }
        }
    })
}

/// The checksum of a header whose checksum field is 0 (RFC 1071). At most 30 words, so two folds suffice.
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap_or(0)
}

#[cfg(test)]
#[path = "fragment_test.rs"]
mod tests;
