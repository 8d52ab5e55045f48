//! A small MRT TABLE_DUMP_V2 file, byte by byte (RFC 6396).

use std::net::Ipv4Addr;

fn record(subtype: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = 1_700_000_000_u32.to_be_bytes().to_vec();
    bytes.extend(13_u16.to_be_bytes()); // TABLE_DUMP_V2
    bytes.extend(subtype.to_be_bytes());
    bytes.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    bytes.extend(body);
    bytes
}

/// One peer, then one RIB_IPV4_UNICAST record a route, each with one entry.
pub(crate) fn table(routes: &[(Ipv4Addr, u8, Ipv4Addr)]) -> Vec<u8> {
    let mut peers = vec![192, 0, 2, 254, 0, 0, 0, 1]; // collector, no view name, one peer
    peers.push(2); // IPv4 address, 4-byte AS
    peers.extend([192, 0, 2, 1, 192, 0, 2, 1]);
    peers.extend(64_500_u32.to_be_bytes());
    let mut file = record(1, &peers);
    for (sequence, (address, len, gateway)) in (0_u32..).zip(routes) {
        let mut body = sequence.to_be_bytes().to_vec();
        body.push(*len);
        body.extend(&address.octets()[..usize::from(len.div_ceil(8))]);
        body.extend([0, 1, 0, 0]); // one entry, of peer 0
        body.extend(1_700_000_000_u32.to_be_bytes());
        let mut attributes = vec![0x40, 1, 1, 0]; // ORIGIN: IGP
        attributes.extend([0x40, 2, 6, 2, 1]); // AS_PATH: a sequence of one
        attributes.extend(64_500_u32.to_be_bytes());
        attributes.extend([0x40, 3, 4]); // NEXT_HOP
        attributes.extend(gateway.octets());
        body.extend(u16::try_from(attributes.len()).unwrap().to_be_bytes());
        body.extend(attributes);
        file.extend(record(2, &body));
    }
    file
}
