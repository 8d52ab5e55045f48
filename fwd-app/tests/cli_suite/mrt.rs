//! A small MRT TABLE_DUMP_V2 file (RFC 6396), written like in the tests of `fib`.

#[path = "../../../fib/tests/feeds/mrt_writer.rs"]
mod mrt_writer;

use mrt_writer::{as_path, attribute, nlri, octets, origin, peer_index_table, record};

/// One peer, then a RIB_IPV4_UNICAST record per route, with one entry: a prefix and its gateway.
pub(crate) fn table(routes: &[(&str, &str)]) -> Vec<u8> {
    let rib = |(prefix, gateway): &(&str, &str)| {
        let attributes = [origin(), as_path(&[64_500], 4), attribute(3, &octets(gateway))].concat();
        let length = u16::try_from(attributes.len()).unwrap().to_be_bytes();
        // Sequence, prefix, one entry: peer, time, attributes.
        record(
            1_700_000_000,
            13,
            2,
            &[&[0; 4], &nlri(prefix)[..], &[0, 1], &[0; 6], &length, &attributes].concat(),
        )
    };
    peer_index_table(1).into_iter().chain(routes.iter().flat_map(rib)).collect()
}
