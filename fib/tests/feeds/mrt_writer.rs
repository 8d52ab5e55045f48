//! Writes MRT (RFC 6396) byte by byte, independently of the library that reads it.

use std::net::IpAddr;

pub(crate) fn octets(address: &str) -> Vec<u8> {
    match address.parse::<IpAddr>().unwrap() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

pub(crate) fn nlri(prefix: &str) -> Vec<u8> {
    let (address, len) = prefix.split_once('/').unwrap();
    let len: u8 = len.parse().unwrap();
    [&[len][..], &octets(address)[..usize::from(len.div_ceil(8))]].concat()
}

/// A path attribute, with the extended length if the value is longer than 255 bytes.
pub(crate) fn attribute(kind: u8, value: &[u8]) -> Vec<u8> {
    match u8::try_from(value.len()) {
        Ok(length) => [&[0x40, kind, length], value].concat(),
        Err(_) => {
            let length = u16::try_from(value.len()).unwrap().to_be_bytes();
            [&[0x50, kind], &length[..], value].concat()
        }
    }
}

pub(crate) fn origin() -> Vec<u8> {
    attribute(1, &[0])
}

/// An AS_PATH attribute of one sequence, with AS numbers of `as_bytes` bytes.
pub(crate) fn as_path(path: &[u32], as_bytes: usize) -> Vec<u8> {
    let mut value = vec![2, u8::try_from(path.len()).unwrap()];
    for asn in path {
        value.extend(&asn.to_be_bytes()[4 - as_bytes..]);
    }
    attribute(2, &value)
}

pub(crate) fn record(time_s: u32, kind: u16, subtype: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&time_s.to_be_bytes()[..], &kind.to_be_bytes(), &subtype.to_be_bytes(), &length, body].concat()
}

pub(crate) fn peer_index_table(peers: u16) -> Vec<u8> {
    let mut body = [&octets("192.0.2.255")[..], &[0, 0], &peers.to_be_bytes()].concat();
    for peer in 0..peers {
        let [high, low] = peer.to_be_bytes();
        body.extend([2, 10, 0, high, low, 192, 0, high, low, 0, 0, 0xfc, low]);
    }
    record(1_400_825_184, 13, 1, &body)
}
