//! Link types: the protocol at the first byte of a captured packet, and the Ethernet frame with the same packet.
//!
//! Captures of raw IP, of a loopback interface or of all interfaces (Linux cooked) have no Ethernet header, so one is made: to
//! 02:f0:00:00:00:00, the broadcast or a group address, as the capture says; from the sender's address, else 02:00:00:00:00:01.

use super::Packet;

const ROUTER: [u8; 6] = [0x02, 0xf0, 0, 0, 0, 0];
const SENDER: [u8; 6] = [0x02, 0, 0, 0, 0, 1];
/// The type of a frame that is made for a packet that is not IP: reserved (IEEE 802), so that no protocol uses it.
const NOT_IP: u16 = 0xffff;

/// A link type that is converted to Ethernet frames. Numbers are from <https://www.tcpdump.org/linktypes.html>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// 1: Ethernet.
    Ethernet,
    /// 101, and 12 and 14 on some BSDs: an IP packet of either version.
    RawIp,
    /// 228 and 229: an IP packet of one version.
    Ip(u16),
    /// 0 and 108: an address family in four bytes, in either byte order.
    Loopback,
    /// 113: Linux cooked, version 1.
    Cooked,
    /// 276: Linux cooked, version 2.
    Cooked2,
}

/// An unsupported link type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "link type {number}{}; wanted Ethernet (1), raw IP (101), loopback (0, 108) or Linux cooked (113, 276)",
    name(*.number).map(|name| format!(" ({name})")).unwrap_or_default()
)]
pub struct UnknownLink {
    /// Its number; -1 on an interface that the capture does not describe.
    pub number: i32,
}

fn name(number: i32) -> Option<&'static str> {
    Some(match number {
        6 => "Token Ring",
        8 => "SLIP",
        9 | 50 => "PPP",
        10 => "FDDI",
        51 => "PPPoE",
        104 => "Cisco HDLC",
        105 => "IEEE 802.11",
        107 => "Frame Relay",
        119 => "IEEE 802.11 with a Prism header",
        127 => "IEEE 802.11 with a radiotap header",
        163 => "IEEE 802.11 with an AVS header",
        182 => "multi-link Frame Relay",
        187 | 201 | 254 => "Bluetooth",
        189 | 220 => "USB",
        239 => "NFLOG",
        195 | 230 | 283 => "IEEE 802.15.4",
        _ => return None,
    })
}

impl Link {
    fn from_number(number: i32) -> Result<Self, UnknownLink> {
        Ok(match number {
            1 => Self::Ethernet,
            12 | 14 | 101 => Self::RawIp,
            228 => Self::Ip(0x0800),
            229 => Self::Ip(0x86dd),
            0 | 108 => Self::Loopback,
            113 => Self::Cooked,
            276 => Self::Cooked2,
            _ => return Err(UnknownLink { number }),
        })
    }
}

fn by_version(packet: &[u8]) -> u16 {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => 0x0800,
        Some(6) => 0x86dd,
        _ => NOT_IP,
    }
}

/// The Ethernet type of an address family, as Linux, the BSDs and macOS number it.
fn by_family(family: [u8; 4]) -> u16 {
    let family = u32::from_le_bytes(family);
    // It is below 65,536 in the right byte order.
    match if family > 0xffff { family.swap_bytes() } else { family } {
        2 => 0x0800,
        10 | 24 | 28 | 30 => 0x86dd,
        _ => NOT_IP,
    }
}

/// The destination MAC by the packet type that Linux recorded (`sll_pkttype`).
fn destination(packet_type: u16) -> [u8; 6] {
    match packet_type {
        1 => [0xff; 6],
        2 => [0x01, 0, 0x5e, 0, 0, 0],
        _ => ROUTER,
    }
}

/// Destination, source and type of the frame, and the offset of the packet in `bytes`. `None` if the header is cut.
fn header(link: Link, bytes: &[u8]) -> Option<([u8; 6], [u8; 6], u16, usize)> {
    let word = |at: usize| bytes.get(at..at + 2).map(|word| u16::from_be_bytes([word[0], word[1]]));
    let sender = |length: u16, at: usize| match (length, bytes.get(at..at + 6)) {
        (6, Some(address)) => address.try_into().unwrap_or(SENDER),
        _ => SENDER,
    };
    Some(match link {
        Link::Ethernet => return None,
        Link::RawIp => (ROUTER, SENDER, by_version(bytes), 0),
        Link::Ip(kind) => (ROUTER, SENDER, kind, 0),
        Link::Loopback => (ROUTER, SENDER, by_family(*bytes.first_chunk()?), 4),
        // Type of packet, ARPHRD, length of the address, 8 bytes of it, protocol.
        Link::Cooked => (destination(word(0)?), sender(word(4)?, 6), word(14)?, 16),
        // Protocol, two bytes of zeros, interface, ARPHRD, type of packet and length of the address in a byte each, 8 bytes of it.
        Link::Cooked2 => {
            let [kind, length] = word(10)?.to_be_bytes();
            bytes.get(12..20)?;
            (destination(kind.into()), sender(length.into(), 12), word(0)?, 20)
        }
    })
}

impl Packet<'_> {
    /// The packet as an Ethernet frame: its own, or one made in `frame`; two addresses and nothing else if its header is cut.
    ///
    /// # Errors
    /// [`UnknownLink`].
    pub fn ethernet<'a>(&'a self, frame: &'a mut Vec<u8>) -> Result<&'a [u8], UnknownLink> {
        let link = Link::from_number(self.link)?;
        if link == Link::Ethernet {
            return Ok(self.bytes);
        }
        frame.clear();
        let Some((to, from, kind, at)) = header(link, self.bytes) else {
            frame.extend([ROUTER, SENDER].concat());
            return Ok(frame);
        };
        frame.extend(to);
        frame.extend(from);
        frame.extend(kind.to_be_bytes());
        frame.extend(self.bytes.get(at..).unwrap_or_default());
        Ok(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(link: i32, bytes: &[u8]) -> Result<Vec<u8>, UnknownLink> {
        let (interface, interface_name) = (0, None);
        let packet =
            Packet { number: 1, link, interface, interface_name, time_ns: 0, bytes, wire_bytes: bytes.len() };
        packet.ethernet(&mut Vec::new()).map(<[u8]>::to_vec)
    }

    fn frame(to: [u8; 6], from: [u8; 6], kind: u16, packet: &[u8]) -> Vec<u8> {
        [&to[..], &from, &kind.to_be_bytes(), packet].concat()
    }

    #[test]
    fn each_link_type_gives_the_frame_with_the_same_packet() {
        let (v4, v6) = ([0x45, 1, 2, 3], [0x60, 1, 2, 3]);
        let usual = |kind, packet: &[u8]| frame(ROUTER, SENDER, kind, packet);
        let own = frame([1; 6], [2; 6], 0x0800, &v4);
        assert_eq!(framed(1, &own).unwrap(), own);
        for link in [12, 14, 101] {
            assert_eq!(framed(link, &v4).unwrap(), usual(0x0800, &v4));
            assert_eq!(framed(link, &v6).unwrap(), usual(0x86dd, &v6));
            assert_eq!(framed(link, &[0x10]).unwrap(), usual(0xffff, &[0x10]));
        }
        assert_eq!(framed(228, &v4).unwrap(), usual(0x0800, &v4));
        assert_eq!(framed(229, &v6).unwrap(), usual(0x86dd, &v6));
        for link in [0, 108] {
            for (family, kind) in
                [(2_u32, 0x0800), (10, 0x86dd), (24, 0x86dd), (28, 0x86dd), (30, 0x86dd), (7, 0xffff)]
            {
                for family in [family.to_le_bytes(), family.to_be_bytes()] {
                    assert_eq!(framed(link, &[&family[..], &v4].concat()).unwrap(), usual(kind, &v4));
                }
            }
        }
        for (packet_type, to) in [(0, ROUTER), (1, [0xff; 6]), (2, [1, 0, 0x5e, 0, 0, 0]), (4, ROUTER)] {
            let cooked = [&[0, packet_type, 0, 1, 0, 6], &[7; 6][..], &[0, 0, 0x86, 0xdd], &v6].concat();
            assert_eq!(framed(113, &cooked).unwrap(), frame(to, [7; 6], 0x86dd, &v6));
            let cooked =
                [&[0x08, 0, 0, 0, 0, 0, 0, 3, 0, 1, packet_type, 6], &[7; 6][..], &[0, 0], &v4].concat();
            assert_eq!(framed(276, &cooked).unwrap(), frame(to, [7; 6], 0x0800, &v4));
        }
        let tunnel = [&[0, 0, 0x03, 0x0a, 0, 0], &[0; 8][..], &[0x81, 0], &[0, 5, 8, 0], &v4].concat();
        assert_eq!(framed(113, &tunnel).unwrap(), usual(0x8100, &[0, 5, 8, 0, 0x45, 1, 2, 3]));
    }

    #[test]
    fn what_is_cut_and_what_is_unknown() {
        for (link, whole) in [(0, 4), (108, 4), (113, 16), (276, 20)] {
            for bytes in 0..whole {
                assert_eq!(
                    framed(link, &vec![0; bytes]).unwrap().len(),
                    12,
                    "{bytes} bytes of link type {link}"
                );
            }
            assert_eq!(framed(link, &vec![0; whole]).unwrap().len(), 14, "link type {link}");
        }
        assert_eq!(framed(101, &[]).unwrap().len(), 14);
        let said = |number| framed(number, &[0; 40]).unwrap_err().to_string();
        assert!(
            said(105).starts_with("link type 105 (IEEE 802.11); wanted Ethernet (1), raw IP"),
            "{}",
            said(105)
        );
        assert!(said(127).contains("radiotap") && said(147).starts_with("link type 147; wanted"));
    }
}
