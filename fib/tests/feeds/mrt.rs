//! MRT tables: the choice among entries, every kind of record, files cut at every byte, garbage.

use crate::mrt_writer::{as_path, attribute, nlri, octets, origin, peer_index_table, record};
use crate::{LoadedTables, load_bytes, open_updates};
use fib::feed::{FeedError, FeedErrorKind, Format, Loaded, RecordError, Truncated};
use fib::{IpPrefix, NextHop, NextHopId, PortRef};
use std::collections::BTreeMap;

fn attributes(path: &[u32], next_hop: &str) -> Vec<u8> {
    let address = octets(next_hop);
    let next_hop = if address.len() == 4 {
        attribute(3, &address)
    } else {
        attribute(14, &[&[16], &address[..]].concat())
    };
    [origin(), as_path(path, 4), next_hop].concat()
}

type RibEntry = (u16, Option<u32>, Vec<u8>);

fn rib(subtype: u16, prefix: &str, entries: &[RibEntry]) -> Vec<u8> {
    let count = u16::try_from(entries.len()).unwrap().to_be_bytes();
    let mut body = [&[0, 0, 0, 7], &nlri(prefix)[..], &count].concat();
    for (peer, path_id, attributes) in entries {
        body.extend(peer.to_be_bytes());
        body.extend([0; 4]);
        body.extend(path_id.iter().flat_map(|id| id.to_be_bytes()));
        body.extend(u16::try_from(attributes.len()).unwrap().to_be_bytes());
        body.extend(attributes);
    }
    record(1_400_825_184, 13, subtype, &body)
}

type RouteGateways = BTreeMap<String, String>;

fn routes(tables: &LoadedTables) -> RouteGateways {
    let gateway = |(prefix, id): (IpPrefix, NextHopId)| match tables.hops.get(id) {
        Some(NextHop::Gateway { gateway, port: PortRef::ById }) => (prefix.to_string(), gateway.to_string()),
        other => panic!("{prefix} {other:?}"),
    };
    tables.routes().map(gateway).collect()
}

fn load_as(bytes: &[u8], format: Option<Format>) -> Result<(Loaded, RouteGateways), FeedError> {
    let (loaded, tables) = load_bytes(bytes, format)?;
    Ok((loaded, routes(&tables)))
}

fn load(bytes: &[u8]) -> Result<(Loaded, RouteGateways), FeedError> {
    load_as(bytes, None)
}

fn routes_of(records: &[Vec<u8>]) -> RouteGateways {
    load(&records.concat()).unwrap().1
}

fn one(prefix: &str, gateway: &str) -> RouteGateways {
    RouteGateways::from([(prefix.to_owned(), gateway.to_owned())])
}

#[test]
fn the_shortest_path_wins_then_the_lowest_peer() {
    let table = |entries: &[(u16, &[u32], &str)]| {
        let entries: Vec<_> =
            entries.iter().map(|(peer, path, hop)| (*peer, None, attributes(path, hop))).collect();
        routes_of(&[peer_index_table(9), rib(2, "192.0.2.0/24", &entries)])
    };
    let shortest = [(0, &[1, 2, 3][..], "10.0.0.1"), (5, &[1, 2], "10.0.0.2"), (3, &[7, 8, 9], "10.0.0.3")];
    assert_eq!(table(&shortest), one("192.0.2.0/24", "10.0.0.2"));
    let equal = [(5, &[1, 2][..], "10.0.0.1"), (3, &[7, 8], "10.0.0.2"), (8, &[4, 4], "10.0.0.3")];
    assert_eq!(table(&equal), one("192.0.2.0/24", "10.0.0.2"));
    let unusable_is_shortest = [(1, &[1][..], "0.0.0.0"), (2, &[1, 2], "10.0.0.2")];
    assert_eq!(table(&unusable_is_shortest), one("192.0.2.0/24", "10.0.0.2"));
}

#[test]
fn sets_count_one_and_confederations_nothing() {
    let path = |segments: &[(u8, u8)]| {
        let mut value = Vec::new();
        for (kind, count) in segments {
            value.extend([*kind, *count]);
            value.extend(vec![1; usize::from(*count) * 4]);
        }
        attribute(2, &value)
    };
    let entry =
        |peer, path: Vec<u8>, hop| (peer, None, [origin(), path, attribute(3, &octets(hop))].concat());
    let set = [entry(0, path(&[(2, 3)]), "10.0.0.1"), entry(1, path(&[(2, 1), (1, 200)]), "10.0.0.2")];
    let confederation =
        [entry(0, path(&[(2, 1)]), "10.0.0.1"), entry(1, path(&[(3, 9), (4, 9)]), "10.0.0.2")];
    let none = [entry(0, vec![], "10.0.0.1"), entry(1, path(&[(2, 255)]), "10.0.0.2")];
    for entries in [set, confederation, none] {
        assert_eq!(
            routes_of(&[peer_index_table(2), rib(2, "10.0.0.0/8", &entries)]),
            one("10.0.0.0/8", "10.0.0.2")
        );
    }
}

#[test]
fn every_kind_of_rib_record() {
    let v4 = |hop| attributes(&[64496, 64497], hop);
    let table = [
        peer_index_table(2),
        rib(2, "0.0.0.0/0", &[(0, None, v4("10.0.0.1"))]),
        rib(2, "192.0.2.1/32", &[(0, None, v4("10.0.0.2"))]),
        rib(2, "172.31.0.0/12", &[(0, None, v4("10.0.0.3"))]),
        // RFC 8950: an IPv4 route whose next hop is IPv6.
        rib(2, "203.0.113.0/24", &[(0, None, v4("2001:db8::5"))]),
        rib(8, "198.51.100.0/24", &[(1, Some(9), v4("10.0.0.4")), (1, Some(8), v4("10.0.0.5"))]),
        rib(4, "::/0", &[(0, None, v4("2001:db8::1"))]),
        rib(4, "2001:db8::1/128", &[(0, None, v4("2001:db8::2"))]),
        rib(10, "2001:db8::/33", &[(0, Some(1), v4("2001:db8::3"))]),
        rib(3, "224.0.0.0/4", &[(0, None, v4("10.0.0.9"))]),
        record(0, 13, 6, &[1, 2, 3]),
        record(0, 11, 0, &[1, 2, 3]),
    ];
    let (loaded, routes) = load(&table.concat()).unwrap();
    assert_eq!((loaded.routes_v4, loaded.routes_v6), (5, 3));
    assert_eq!((loaded.skipped_records, loaded.unusable, loaded.truncated), (3, 0, None));
    let wanted = [
        ("0.0.0.0/0", "10.0.0.1"),
        ("192.0.2.1/32", "10.0.0.2"),
        ("172.16.0.0/12", "10.0.0.3"),
        ("203.0.113.0/24", "2001:db8::5"),
        ("198.51.100.0/24", "10.0.0.4"),
        ("::/0", "2001:db8::1"),
        ("2001:db8::1/128", "2001:db8::2"),
        ("2001:db8::/33", "2001:db8::3"),
    ];
    let wanted: RouteGateways = wanted.map(|(prefix, hop)| (prefix.to_owned(), hop.to_owned())).into();
    assert_eq!(routes, wanted);
}

#[test]
fn next_hops_of_ipv6_in_every_form() {
    let global = octets("2001:db8::1");
    let both = [&[32], &global[..], &octets("fe80::1")].concat();
    let whole = [&[0, 2, 1, 16], &global[..], &[0], &nlri("2001:db8:7::/48")].concat();
    for value in [[&[16], &global[..]].concat(), both, whole] {
        let entry = (0, None, [origin(), as_path(&[1], 4), attribute(14, &value)].concat());
        let table = [peer_index_table(1), rib(4, "2001:db8:7::/48", &[entry])];
        assert_eq!(routes_of(&table), one("2001:db8:7::/48", "2001:db8::1"));
    }
    let none = (0, None, [origin(), as_path(&[1], 4)].concat());
    let (loaded, routes) = load(&[peer_index_table(1), rib(4, "2001:db8:7::/48", &[none])].concat()).unwrap();
    assert_eq!((loaded.unusable, loaded.routes(), routes.len()), (1, 0, 0));
}

#[test]
fn a_prefix_in_consecutive_records_is_one_route() {
    let entry = |peer, path: &[u32], hop| [(peer, None, attributes(path, hop))];
    let table = [
        peer_index_table(4),
        rib(2, "10.0.0.0/8", &entry(3, &[1, 2, 3], "10.0.0.1")),
        rib(2, "10.0.0.0/8", &entry(2, &[1], "10.0.0.2")),
        rib(2, "10.0.0.0/8", &entry(1, &[1, 2], "10.0.0.3")),
    ];
    let (loaded, routes) = load(&table.concat()).unwrap();
    assert_eq!((loaded.routes(), loaded.duplicates), (1, 0));
    assert_eq!(routes, one("10.0.0.0/8", "10.0.0.2"));
}

/// TABLE_DUMP has one entry a record, 2-byte AS numbers and no peer index.
#[test]
fn table_dump_version_1() {
    let entry = |prefix: &str, peer: &str, path: &[u32], next_hop: Vec<u8>| {
        let (address, len) = prefix.split_once('/').unwrap();
        let attributes = [origin(), as_path(path, 2), next_hop].concat();
        let length = u16::try_from(attributes.len()).unwrap().to_be_bytes();
        let mut body = vec![0, 0, 0, 1];
        body.extend(octets(address));
        body.extend([len.parse().unwrap(), 1, 0, 0, 0, 9]);
        body.extend(octets(peer));
        body.extend([0xfc, 0x01]);
        body.extend([&length[..], &attributes].concat());
        record(1_000_000_000, 12, if address.contains(':') { 2 } else { 1 }, &body)
    };
    let v4 = |hop| attribute(3, &octets(hop));
    let v6 = |hop| attribute(14, &[&[0, 2, 1, 16], &octets(hop)[..], &[0]].concat());
    let table = [
        entry("10.0.0.0/8", "192.0.2.9", &[1, 2], v4("192.0.2.9")),
        entry("10.0.0.0/8", "192.0.2.2", &[1, 2], v4("192.0.2.2")),
        entry("10.0.0.0/8", "192.0.2.1", &[1, 2, 3], v4("192.0.2.1")),
        entry("11.0.0.0/8", "192.0.2.1", &[1], v4("192.0.2.1")),
        entry("2001:db8::/32", "2001:db8::9", &[1], v6("2001:db8::9")),
    ];
    let (loaded, routes) = load(&table.concat()).unwrap();
    assert_eq!((loaded.routes_v4, loaded.routes_v6, loaded.duplicates), (2, 1, 0));
    let wanted = [("10.0.0.0/8", "192.0.2.2"), ("11.0.0.0/8", "192.0.2.1"), ("2001:db8::/32", "2001:db8::9")];
    assert_eq!(routes, wanted.map(|(prefix, hop)| (prefix.to_owned(), hop.to_owned())).into());
}

fn small_table() -> Vec<Vec<u8>> {
    let entry = |hop| [(0, None, attributes(&[1, 2], hop))];
    vec![
        peer_index_table(1),
        rib(2, "10.0.0.0/8", &entry("192.0.2.1")),
        rib(2, "11.0.0.0/8", &entry("192.0.2.2")),
        rib(4, "2001:db8::/32", &entry("2001:db8::1")),
    ]
}

#[test]
fn a_table_cut_at_any_byte_keeps_the_records_before() {
    let records = small_table();
    let ends: Vec<usize> = records
        .iter()
        .scan(0, |end, record| {
            *end += record.len();
            Some(*end)
        })
        .collect();
    let whole = records.concat();
    for cut in 6..whole.len() {
        let (loaded, routes) =
            load_as(&whole[..cut], Some(Format::Mrt)).unwrap_or_else(|error| panic!("{cut}: {error}"));
        let intact = ends.iter().filter(|end| **end <= cut).count();
        let start = if intact == 0 { 0 } else { ends[intact - 1] };
        let truncated = Truncated { record: intact as u64 + 1, offset_bytes: start as u64 };
        let wanted = (cut != start).then_some(truncated);
        assert_eq!(loaded.truncated, wanted, "cut at {cut}");
        assert_eq!(
            (loaded.routes(), routes.len()),
            (intact.saturating_sub(1) as u64, intact.saturating_sub(1))
        );
        if let Some(truncated) = wanted {
            let text = format!("cut short in record {} at byte {start}", intact + 1);
            assert_eq!(truncated.to_string(), text);
        }
    }
}

#[test]
fn a_compressed_table_cut_in_its_compression_keeps_the_records_before() {
    use std::io::Write;
    let entry = [(0, None, attributes(&[1, 2], "192.0.2.1"))];
    let mut table = peer_index_table(1);
    for i in 0..20_000_u32 {
        let prefix = std::net::Ipv4Addr::from_bits(i.wrapping_mul(2_654_435_761) & 0xffff_ff00);
        table.extend(rib(2, &format!("{prefix}/24"), &entry));
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&table).unwrap();
    let bytes = encoder.finish().unwrap();
    let (loaded, routes) = load(&bytes[..bytes.len() / 2]).unwrap();
    assert!(loaded.truncated.is_some_and(|truncated| truncated.record == loaded.routes() + 2));
    assert!(routes.len() > 5000 && routes.len() < 15_000, "{}", routes.len());
    // Only the checksum at the end is missing. All records are complete, but the file counts as cut short.
    let (loaded, _) = load(&bytes[..bytes.len() - 4]).unwrap();
    assert_eq!((loaded.routes(), loaded.truncated.map(|cut| cut.record)), (20_000, Some(20_002)));
}

#[test]
fn broken_records_are_refused_with_number_and_place() {
    let good = small_table().concat();
    let at = good.len() as u64;
    let rib_body = |body: &[u8]| record(0, 13, 2, body);
    let cases = [
        (vec![1; 40], RecordError::Type { value: 0x0101 }),
        (
            [&[0, 0, 0, 0, 0, 13, 0, 2][..], &[0xff; 8]].concat(),
            RecordError::Length { length_bytes: u32::MAX, limit_bytes: 16 << 20 },
        ),
        (
            rib_body(&[0, 0, 0, 1, 33, 1, 2, 3, 4, 5]),
            RecordError::Prefix(fib::PrefixError::Length { len: 33, max: 32 }),
        ),
        (
            rib_body(&[0, 0, 0, 1, 24, 1, 2]),
            RecordError::Short { what: "the prefix", wanted_bytes: 3, left_bytes: 2 },
        ),
        (
            rib_body(&[0, 0, 0, 1, 8, 10, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3]),
            RecordError::Short { what: "the attributes", wanted_bytes: 9, left_bytes: 3 },
        ),
        (
            rib(2, "10.0.0.0/8", &[(0, None, vec![0x40, 3, 4, 1, 2])]),
            RecordError::Short { what: "an attribute", wanted_bytes: 4, left_bytes: 2 },
        ),
        (rib(2, "10.0.0.0/8", &[(7, None, vec![])]), RecordError::Peer { index: 7, peers: 1 }),
    ];
    for (bad, wanted) in cases {
        let refused = load(&[&good[..], &bad].concat()).err().map(|error| error.kind);
        let Some(FeedErrorKind::Record { record, offset_bytes, source }) = refused else {
            panic!("{wanted} was loaded");
        };
        assert_eq!((record, offset_bytes, source), (5, at, wanted));
    }
}

#[test]
fn garbage_is_no_mrt() {
    let text = b"10.0.0.0/8 1\n11.0.0.0/8 2\n";
    let error = load_as(text, Some(Format::Mrt)).unwrap_err();
    assert!(error.to_string().ends_with("is not an MRT type, so this is no MRT record"), "{error}");
    let updates = record(0, 16, 4, &[0; 40]);
    let error = load(&updates).unwrap_err();
    assert!(error.to_string().ends_with("mrt that holds updates, wanted a table"), "{error}");
    let error = load(&record(0, 11, 0, &[1])).unwrap_err();
    assert!(matches!(error.kind, FeedErrorKind::Content { .. }), "{error}");
}

proptest::proptest! {
    #[test]
    fn damage_never_panics(
        garbage in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
        hits in proptest::collection::vec((0..1000_usize, proptest::num::u8::ANY), 1..8),
        cut in 0..1000_usize,
    ) {
        let _ = load_as(&garbage, Some(Format::Mrt));
        let mut table = small_table().concat();
        for (at, value) in hits {
            let at = at % table.len();
            table[at] = value;
        }
        table.truncate(cut.max(1));
        let _ = load_as(&table, Some(Format::Mrt));
        if let (_folder, Ok(updates)) = open_updates(&table, Some(Format::Mrt)) {
            proptest::prop_assert!(updates.count() < 1000);
        }
    }
}
