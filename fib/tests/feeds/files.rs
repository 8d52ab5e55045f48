//! Route files as users have them: compressed, cut short, with errors, several at once, in every format but MRT.

use crate::{Folder, LoadedTables, load};
use fib::feed::{self, Compression, FeedError, FeedErrorKind, Format, LineError, LoadOptions, Loaded};
use fib::{Group, MacAddr, NextHop, PortRef};
use std::io::Write;
use std::path::Path;

fn refusal(path: &Path) -> String {
    let Err(error) = load(path) else { panic!("{} was loaded", path.display()) };
    assert_eq!(error.path, path);
    error.to_string().replace(&path.display().to_string(), "FILE")
}

fn compress(compression: Compression, content: &[u8]) -> Vec<u8> {
    match compression {
        Compression::None => content.to_vec(),
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Bzip2 => {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Xz => {
            let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Zstd => zstd::encode_all(content, 1).unwrap(),
    }
}

const COMPRESSED: [Compression; 4] =
    [Compression::Gzip, Compression::Bzip2, Compression::Xz, Compression::Zstd];

/// Several thousand routes that compress badly, so that the compressed file can be cut in many places.
fn many_routes() -> String {
    let address = |i: u32| std::net::Ipv4Addr::from_bits(i.wrapping_mul(2_654_435_761) & 0xffff_ff00);
    (1..5000).map(|i| format!("{}/24 {}\n", address(i), 1 + i % 1000)).collect()
}

#[test]
fn compression_is_found_by_content_not_by_name() {
    let folder = Folder::new();
    let text = many_routes();
    for compression in COMPRESSED.into_iter().chain([Compression::None]) {
        let path = folder.file("routes.mrt.zip", compress(compression, text.as_bytes()));
        let (loaded, tables) = load(&path).unwrap();
        assert_eq!((loaded.compression, loaded.format), (compression, Format::Text));
        assert_eq!((loaded.routes(), loaded.bytes), (4999, text.len() as u64), "{compression}");
        assert_eq!(tables.rib.len() as u64 + loaded.duplicates, 4999);
    }
}

#[test]
fn several_streams_in_one_compressed_file_are_read_all() {
    let folder = Folder::new();
    for compression in COMPRESSED {
        let both =
            [compress(compression, b"10.0.0.0/8 1\n"), compress(compression, b"11.0.0.0/8 2\n")].concat();
        let (loaded, _) = load(&folder.file("f", both)).unwrap();
        assert_eq!(loaded.routes_v4, 2, "{compression}");
    }
}

#[test]
fn a_compressed_text_cut_anywhere_is_refused() {
    let folder = Folder::new();
    let text = many_routes();
    for compression in COMPRESSED {
        let whole = compress(compression, text.as_bytes());
        for cut in [7, 12, 20, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
            let path = folder.file("f", &whole[..cut]);
            let error = load(&path).err().unwrap_or_else(|| panic!("{compression} cut at {cut} was loaded"));
            assert!(
                matches!(error.kind, FeedErrorKind::CutShort { compression: named, .. } if named == compression),
                "{compression} cut at {cut} of {}: {error}",
                whole.len()
            );
        }
    }
}

#[test]
fn a_damaged_compressed_file_is_refused() {
    let folder = Folder::new();
    for compression in COMPRESSED {
        let mut bytes = compress(compression, many_routes().as_bytes());
        let middle = bytes.len() / 2;
        for byte in &mut bytes[middle..middle + 16] {
            *byte ^= 0x55;
        }
        let error = load(&folder.file("f", bytes)).err().map(|error| error.kind);
        assert!(
            matches!(
                error,
                Some(
                    FeedErrorKind::Corrupt { .. }
                        | FeedErrorKind::Line { .. }
                        | FeedErrorKind::CutShort { .. }
                )
            ),
            "{compression}: {error:?}"
        );
    }
}

#[test]
fn a_file_without_content_is_a_table_without_routes() {
    let folder = Folder::new();
    let contents = ["", "# no route yet\n", "\n\n", "[]", " [ ] \n[]\n"];
    let mut files: Vec<_> =
        (0..).zip(contents).map(|(n, content)| folder.file(&format!("{n}"), content)).collect();
    files.extend(
        COMPRESSED.map(|compression| folder.file(&format!("{compression}"), compress(compression, b""))),
    );
    for file in files {
        let (loaded, tables) = load(&file).unwrap();
        assert_eq!((loaded.routes(), tables.rib.len(), tables.hops.len()), (0, 0, 0), "{}", file.display());
    }
}

#[test]
fn what_is_no_route_file_is_refused_by_name() {
    let folder = Folder::new();
    assert_eq!(refusal(folder.0.path()), "FILE: is a directory, wanted a file");
    let missing = folder.0.path().join("missing");
    assert_eq!(refusal(&missing), "FILE: cannot be opened: No such file or directory (os error 2)");
    let unknown = "FILE: is neither route text nor `ip -j route` JSON nor MRT";
    for garbage in
        [&b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"[..], b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0", b"PK\x03\x04x"]
    {
        assert_eq!(refusal(&folder.file("f", garbage)), unknown, "{garbage:?}");
    }
    let lz4 = folder.file("f", b"\x04\x22\x4d\x18\x64\x40\xa7\x00\x00");
    assert_eq!(refusal(&lz4), "FILE: is compressed with lz4; wanted plain, gzip, bzip2, xz or zstd");
}

#[test]
fn a_wrong_line_is_named_and_nothing_is_loaded() {
    let folder = Folder::new();
    let good = "10.0.0.0/8 1\r\n# comment\r\n\r\n";
    for (bad, line, message) in [
        ("10.0.0.1/8 1\n", 4, "10.0.0.1/8 has host bits set; the prefix is 10.0.0.0/8"),
        ("11.0.0.0/8 0", 4, "'0' is not a next-hop id in 1..=16777215"),
        ("11.0.0.0/8 16777216\r\n", 4, "'16777216' is not a next-hop id in 1..=16777215"),
        ("11.0.0.0/8 5\n\n2001:db8::/129 7\n", 6, "prefix length 129 is above 128"),
        ("nexthop dev 1\n", 4, "a 'nexthop' line without a route before it"),
        (
            "11.0.0.0/8 proto static\n12.0.0.0/8 1\n",
            4,
            "the route has no next hop, wanted an id, 'via GATEWAY', 'dev PORT' or a 'nexthop' line",
        ),
        (
            "\n11.0.0.0/8\n# the end\n",
            5,
            "the route has no next hop, wanted an id, 'via GATEWAY', 'dev PORT' or a 'nexthop' line",
        ),
        (
            "11.0.0.0/8\n nexthop dev 1\n nexthop weight 1\n",
            6,
            "the route has no next hop, wanted an id, 'via GATEWAY', 'dev PORT' or a 'nexthop' line",
        ),
    ] {
        let path = folder.file("routes.txt", format!("{good}{bad}"));
        let mut tables = LoadedTables::default();
        let error = tables.load(&[&path]).unwrap_err();
        assert_eq!(error.to_string(), format!("{}:{line}: {message}", path.display()));
        assert_eq!(error.line(), Some(line));
    }
}

#[test]
fn a_wrong_last_file_leaves_the_tables_as_they_were() {
    let folder = Folder::new();
    let first = folder.file("first", "10.0.0.0/8 1\n11.0.0.0/8 via 192.0.2.1 dev 1\n");
    let wrong =
        folder.file("wrong", "10.0.0.0/8 9\nneigh 192.0.2.1 lladdr 02:00:00:00:00:01 dev 1\n10.0.0.0/8 x\n");
    let mut tables = LoadedTables::default();
    tables.load(&[&first]).unwrap();
    let (before, hops_before) = (tables.rib.v4.sorted(), tables.hops.len());
    let error = tables.load(&[&first, &wrong]).unwrap_err();
    assert_eq!((error.line(), error.path), (Some(3), wrong));
    assert_eq!((tables.rib.v4.sorted(), tables.hops.len()), (before, hops_before));
    assert_eq!(tables.hops.neighbours().count(), 0);
}

#[test]
fn a_long_line_is_refused_before_it_fills_the_memory() {
    let folder = Folder::new();
    let path = folder.file("f", format!("10.0.0.0/8 1\n{}", "x".repeat(1 << 20)));
    assert_eq!(refusal(&path), "FILE:2: the line is longer than 65536 bytes");
}

#[test]
fn the_last_route_of_a_prefix_wins_and_duplicates_are_counted() {
    let folder = Folder::new();
    let first = folder.file("first", "10.0.0.0/8 1\n10.0.0.0/8 2\n2001:db8::/32 5\n");
    let second = folder.file("second", "10.0.0.0/8 3\n11.0.0.0/8 4\n");
    let mut tables = LoadedTables::default();
    let loaded = tables.load(&[&first, &second]).unwrap();
    let counts = |loaded: &Loaded| (loaded.routes_v4, loaded.routes_v6, loaded.duplicates);
    assert_eq!((counts(&loaded[0]), counts(&loaded[1])), ((2, 1, 1), (2, 0, 1)));
    assert_eq!((tables.id("10.0.0.0/8").get(), tables.rib.len()), (3, 3));
}

#[test]
fn bare_ids_of_all_files_are_taken_before_gateways_get_ids() {
    let folder = Folder::new();
    let via = folder.file("via", "10.0.0.0/8 via 192.0.2.1 dev 1\n11.0.0.0/8 via 192.0.2.2\n");
    let bare = folder.file("bare", "12.0.0.0/8 1\n13.0.0.0/8 3\n");
    let mut tables = LoadedTables::default();
    tables.load(&[&via, &bare]).unwrap();
    assert_eq!(tables.id("12.0.0.0/8").get(), 1);
    assert_eq!((tables.id("10.0.0.0/8").get(), tables.id("11.0.0.0/8").get()), (2, 4));
    assert_eq!((tables.hop("12.0.0.0/8"), tables.hop("13.0.0.0/8")), (&NextHop::Bare, &NextHop::Bare));
}

#[test]
fn a_bare_id_that_an_earlier_load_gave_to_a_gateway_is_refused_or_gets_another() {
    let folder = Folder::new();
    let via = folder.file("via", "10.0.0.0/8 via 192.0.2.1 dev 1\n");
    let bare = folder.file("bare", "\n12.0.0.0/8 7\n13.0.0.0/8 1\n14.0.0.0/8 1\n");
    let mut tables = LoadedTables::default();
    tables.load(&[&via]).unwrap();
    let error = tables.load(&[&bare]).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{}:3: next-hop id 1 is in use for via 192.0.2.1 dev 1", bare.display())
    );
    assert_eq!((tables.rib.len(), tables.hops.len()), (1, 1));
    tables.hops.move_ids();
    tables.load(&[&bare]).unwrap();
    assert_eq!((tables.id("10.0.0.0/8").get(), tables.id("12.0.0.0/8").get()), (1, 7));
    let moved = tables.id("13.0.0.0/8");
    assert_eq!((moved, tables.hops.announced_id(moved).get()), (tables.id("14.0.0.0/8"), 1));
    assert_eq!(tables.hop("13.0.0.0/8"), &NextHop::Moved(tables.id("10.0.0.0/8")));
}

#[test]
fn a_kernel_table_with_multipath_and_neighbours() {
    let folder = Folder::new();
    let path = folder.file(
        "ip-route",
        "\u{feff}default proto static metric 20 \n\
         \tnexthop via 192.0.2.1 dev eth0 weight 1 \n\
         \tnexthop via 192.0.2.2 dev eth1 weight 1 \n\
         10.0.0.0/8 via 192.0.2.3 dev eth0 proto bird metric 32 \n\
         192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.9 \n\
         blackhole 198.51.100.0/24 proto static \n\
         2001:db8::/32 proto ra metric 1024 pref medium\n\
         \tnexthop via fe80::1 dev eth1 weight 1 \n\
         neigh 192.0.2.1 lladdr 02:00:00:00:00:01 dev eth0\n",
    );
    let (loaded, tables) = load(&path).unwrap();
    assert_eq!((loaded.routes_v4, loaded.routes_v6, loaded.neighbours), (4, 1, 1));
    let port = |name: &str| PortRef::Name(name.to_owned());
    let gateway =
        |gateway: &str, name| NextHop::Gateway { gateway: gateway.parse().unwrap(), port: port(name) };
    let both = [(gateway("192.0.2.1", "eth0"), 1), (gateway("192.0.2.2", "eth1"), 1)];
    assert_eq!(*tables.hop("0.0.0.0/0"), Group::next_hop(both).unwrap());
    assert_eq!(*tables.hop("10.0.0.0/8"), gateway("192.0.2.3", "eth0"));
    assert_eq!(*tables.hop("192.0.2.0/24"), NextHop::Connected { port: port("eth0") });
    assert_eq!(*tables.hop("198.51.100.0/24"), NextHop::Blackhole);
    assert_eq!(*tables.hop("2001:db8::/32"), gateway("fe80::1", "eth1"));
    let neighbour = tables.hops.neighbour("192.0.2.1".parse().unwrap()).unwrap();
    assert_eq!(neighbour.mac, MacAddr([2, 0, 0, 0, 0, 1]));
}

#[test]
fn json_of_iproute2() {
    let folder = Folder::new();
    let text = r#"[{"dst":"default","gateway":"192.0.2.1","dev":"eth0","protocol":"dhcp","metric":100,"flags":[]},
        {"dst":"10.0.0.0/8","protocol":"static","flags":[],
         "nexthops":[{"gateway":"192.0.2.2","dev":"1","weight":9,"flags":[]},{"gateway":"192.0.2.3","dev":"2"}]},
        {"type":"unreachable","dst":"198.51.100.0/24","flags":[]},
        {"dst":"203.0.113.0/24","via":{"family":"inet6","host":"fe80::1"},"dev":"eth0","flags":["onlink"]},
        {"dst":"192.0.2.9","dev":"eth0","scope":"link"},
        {"dst":"100.64.0.0/10","id":77},{"dst":"172.16.0.0/12","port":3}]
        [{"dst":"default","gateway":"fe80::1","dev":"eth0","protocol":"ra","metric":1024,"flags":[],"pref":"medium"},
         {"dst":"2001:db8::/32","dev":"eth1","metric":256,"pref":"medium"},
         {"type":"blackhole","dst":"default","dev":"lo","metric":4294967295,"pref":"medium"},
         {"dst":"fe80::1","dev":"eth0","lladdr":"02:00:00:00:00:01","router":null,"state":["REACHABLE"]}]
    "#;
    let (loaded, tables) = load(&folder.file("ip.json", text)).unwrap();
    assert_eq!((loaded.format, loaded.routes_v4, loaded.routes_v6), (Format::Json, 7, 3));
    assert_eq!((loaded.neighbours, loaded.duplicates), (1, 1));
    let gateway = |gateway: &str, port| NextHop::Gateway { gateway: gateway.parse().unwrap(), port };
    let eth0 = || PortRef::Name("eth0".to_owned());
    assert_eq!(*tables.hop("0.0.0.0/0"), gateway("192.0.2.1", eth0()));
    let both = [("192.0.2.2", 1, 9), ("192.0.2.3", 2, 1)];
    let both = both.map(|(via, port, weight)| (gateway(via, PortRef::Index(port)), weight));
    assert_eq!(*tables.hop("10.0.0.0/8"), Group::next_hop(both).unwrap());
    assert_eq!(*tables.hop("198.51.100.0/24"), NextHop::Unreachable);
    assert_eq!(*tables.hop("203.0.113.0/24"), gateway("fe80::1", eth0()));
    assert_eq!(*tables.hop("192.0.2.9/32"), NextHop::Connected { port: eth0() });
    assert_eq!((tables.id("100.64.0.0/10").get(), tables.hop("100.64.0.0/10")), (77, &NextHop::Bare));
    assert_eq!(*tables.hop("172.16.0.0/12"), NextHop::Port { port: 3 });
    assert_eq!(*tables.hop("::/0"), gateway("fe80::1", eth0()), "the lowest metric");
}

#[test]
fn json_routes_with_a_tos_are_left_out_and_counted() {
    let folder = Folder::new();
    let text = r#"[{"dst":"10.0.0.0/8","tos":"0x10","gateway":"192.0.1.2","dev":"1","flags":[]},
        {"dst":"10.0.0.0/8","gateway":"192.0.0.2","dev":"0","flags":[]}]
        [{"dst":"11.0.0.0/8","tos":"lowdelay","gateway":"192.0.1.2","dev":"1"},{"dst":"12.0.0.0/8","tos":"0","id":7}]"#;
    let (loaded, tables) = load(&folder.file("ip.json", text)).unwrap();
    assert_eq!((loaded.routes_v4, loaded.with_tos), (2, 2));
    let gateway = NextHop::Gateway { gateway: [192, 0, 0, 2].into(), port: PortRef::Index(0) };
    assert_eq!((tables.hop("10.0.0.0/8"), tables.id("12.0.0.0/8").get()), (&gateway, 7));
}

/// The routes of a kernel with several of a prefix, as `ip route`, `ip -6 route` and `ip -j route` show them: the best comes first.
const WITH_METRICS: [(&str, &str); 2] = [
    (
        "ip-route",
        "default via 192.0.2.1 dev 0 proto dhcp metric 100\n\
         default via 192.0.2.2 dev 1 proto dhcp metric 600\n\
         10.0.0.0/8 via 192.0.2.3 dev 0\n\
         10.0.0.0/8 via 192.0.2.4 dev 1\n\
         10.0.0.0/8 proto static metric 20\n\
         \tnexthop via 192.0.2.5 dev 0 weight 1\n\
         \tnexthop via 192.0.2.6 dev 1 weight 1\n\
         blackhole 10.0.0.0/8 metric 4294967295\n\
         2001:db8::/32 via fe80::1 dev 0 metric 5 pref medium\n\
         2001:db8::/32 dev 1 metric 1024 pref medium\n\
         default via fe80::2 dev 1 proto static metric 1024 pref medium\n\
         unreachable default dev lo metric 4294967295 pref medium\n",
    ),
    (
        "ip.json",
        r#"[{"dst":"default","gateway":"192.0.2.1","dev":"0","metric":100},
            {"dst":"default","gateway":"192.0.2.2","dev":"1","metric":600},
            {"dst":"10.0.0.0/8","gateway":"192.0.2.3","dev":"0"},
            {"dst":"10.0.0.0/8","gateway":"192.0.2.4","dev":"1"},
            {"dst":"10.0.0.0/8","metric":20,"nexthops":[{"gateway":"192.0.2.5","dev":"0"},{"gateway":"192.0.2.6","dev":"1"}]},
            {"type":"blackhole","dst":"10.0.0.0/8","metric":4294967295}]
           [{"dst":"2001:db8::/32","gateway":"fe80::1","dev":"0","metric":5,"pref":"medium"},
            {"dst":"2001:db8::/32","dev":"1","metric":1024,"pref":"medium"},
            {"dst":"default","gateway":"fe80::2","dev":"1","metric":1024,"pref":"medium"},
            {"type":"unreachable","dst":"default","dev":"lo","metric":4294967295,"pref":"medium"}]"#,
    ),
];

#[test]
fn of_the_routes_of_a_prefix_the_lowest_metric_wins_within_a_file() {
    let folder = Folder::new();
    let gateway = |gateway: &str, port| NextHop::Gateway {
        gateway: gateway.parse().unwrap(),
        port: PortRef::Index(port),
    };
    for (name, text) in WITH_METRICS {
        let (loaded, tables) = load(&folder.file(name, text)).unwrap();
        assert_eq!((loaded.routes_v4, loaded.routes_v6, loaded.duplicates), (6, 4, 6), "{name}");
        assert_eq!((tables.rib.v4.len(), tables.rib.v6.len()), (2, 2), "{name}");
        for (prefix, wanted) in [
            ("0.0.0.0/0", gateway("192.0.2.1", 0)),
            ("10.0.0.0/8", gateway("192.0.2.3", 0)),
            ("2001:db8::/32", gateway("fe80::1", 0)),
            ("::/0", gateway("fe80::2", 1)),
        ] {
            assert_eq!(*tables.hop(prefix), wanted, "{name}: {prefix}");
        }
    }
}

#[test]
fn metrics_are_not_compared_across_files_nor_with_other_forms() {
    let folder = Folder::new();
    let gateway = |last: u8| NextHop::Gateway { gateway: [192, 0, 2, last].into(), port: PortRef::Index(0) };
    let first = folder.file("first", "10.0.0.0/8 via 192.0.2.1 dev 0\n11.0.0.0/8 via 192.0.2.1 dev 0\n");
    let second = folder.file(
        "second",
        "10.0.0.0/8 via 192.0.2.9 dev 0 metric 9\n10.0.0.0/8 via 192.0.2.8 dev 0 metric 8\n\
         11.0.0.0/8 via 192.0.2.7 dev 0 metric 7\n12.0.0.0/8 7\n12.0.0.0/8 8\n\
         13.0.0.0/8 via 192.0.2.1 dev 0\n13.0.0.0/8 9\n14.0.0.0/8 9\n14.0.0.0/8 via 192.0.2.2 dev 0 metric 2\n\
         14.0.0.0/8 via 192.0.2.3 dev 0 metric 3\nR15.0.0.0/8 1\nR15.0.0.0/8 2\n",
    );
    let mut tables = LoadedTables::default();
    tables.load(&[&first, &second]).unwrap();
    assert_eq!((tables.hop("10.0.0.0/8"), tables.hop("11.0.0.0/8")), (&gateway(8), &gateway(7)));
    assert_eq!(tables.id("12.0.0.0/8").get(), 8);
    assert_eq!(tables.id("13.0.0.0/8").get(), 9);
    assert_eq!(*tables.hop("14.0.0.0/8"), gateway(2));
    assert_eq!(*tables.hop("15.0.0.0/8"), NextHop::Port { port: 2 });
}

#[test]
fn wrong_json_is_refused_with_its_line() {
    let folder = Folder::new();
    let good = "[{\"dst\":\"10.0.0.0/8\",\"id\":1},\n";
    for (bad, line, message) in [
        ("{\"dst\":\"10.0.0.1/8\",\"id\":1}]", 2, "10.0.0.1/8 has host bits set; the prefix is 10.0.0.0/8"),
        ("\n{\"dst\":\"11.0.0.0/8\",\n\"id\":0},\n{}]", 4, "'0' is not a next-hop id in 1..=16777215"),
        ("{\"gateway\":\"10.0.0.1\"}]", 2, "'dst' is missing"),
        ("{\"dst\":\"11.0.0.0/8\",\"port\":70000}]", 2, "'70000' is not an l3fwd port in 0..=65535"),
        ("{\"dst\":\"11.0.0.0/8\",\"gateway\":\"x\"}]", 2, "'x' after 'gateway' is not an IP address"),
        (
            "{\"dst\":\"11.0.0.0/8\",\"encap\":\"mpls\",\"dev\":\"1\"}]",
            2,
            "'encap' is not understood here, wanted a route without this key",
        ),
        (
            "{\"type\":\"multicast\",\"dst\":\"ff00::/8\",\"dev\":\"1\"}]",
            2,
            "a 'multicast' route is not for forwarding, wanted unicast, blackhole, unreachable or prohibit",
        ),
        (
            "{\"dst\":\"11.0.0.0/8\"}]",
            2,
            "the route has no next hop, wanted an id, 'via GATEWAY', 'dev PORT' or a 'nexthop' line",
        ),
    ] {
        let path = folder.file("f", format!("{good}{bad}"));
        assert_eq!(refusal(&path), format!("FILE:{line}: {message}"));
    }
    for (bad, line) in [("\n{\"dst\":\"11.0.0.0/8\"", 3), ("{\"dst\":7}]", 2), ("]\n\n[{]", 4), ("]\nx", 3)] {
        let path = folder.file("f", format!("{}{bad}", good.replace(",\n", "\n")));
        let error = load(&path).err().unwrap_or_else(|| panic!("{bad} was loaded"));
        assert!(
            matches!(error.kind, FeedErrorKind::Json { .. }) && error.line() == Some(line),
            "{bad}: {error}"
        );
    }
    let cut = compress(
        Compression::Gzip,
        format!("[{}]", "{\"dst\":\"10.0.0.0/8\",\"id\":1},".repeat(5000)).as_bytes(),
    );
    let error = load(&folder.file("f", &cut[..cut.len() - 20])).err().map(|error| error.kind);
    assert!(matches!(error, Some(FeedErrorKind::CutShort { .. })), "{error:?}");
}

#[test]
fn the_format_can_be_forced() {
    let folder = Folder::new();
    let path = folder.file("f", "[10.0.0.0/8 1\n");
    let error = LoadedTables::default().load_as(&[&path], Some(Format::Text)).unwrap_err();
    assert!(matches!(error.kind, FeedErrorKind::Line { line: 1, source: LineError::Prefix(_) }), "{error}");
    assert!(matches!(load(&path), Err(FeedError { kind: FeedErrorKind::Json { line: 1, .. }, .. })));
    for format in [Format::Text, Format::Json, Format::Mrt] {
        assert_eq!(format.to_string().parse(), Ok(format));
    }
    assert_eq!(
        "yaml".parse::<Format>().unwrap_err().to_string(),
        "'yaml' is not a feed format, wanted text, json or mrt"
    );
}

#[test]
fn progress_reaches_the_total_and_never_goes_back() {
    let folder = Folder::new();
    let text = many_routes().repeat(20);
    let plain = folder.file("plain", &text);
    let packed = folder.file("packed", compress(Compression::Xz, text.as_bytes()));
    let total = std::fs::metadata(&plain).unwrap().len() + std::fs::metadata(&packed).unwrap().len();
    let mut calls = Vec::new();
    let mut hook = |done, total| calls.push((done, total));
    let mut tables = LoadedTables::default();
    let options = LoadOptions { on_progress: Some(&mut hook), ..LoadOptions::default() };
    feed::load(&[&plain, &packed], &mut tables.rib, &mut tables.hops, options).unwrap();
    assert!(calls.len() > 3, "{calls:?}");
    assert!(calls.is_sorted() && calls.iter().all(|call| call.1 == total), "{calls:?}");
    assert_eq!(calls.last(), Some(&(total, total)));
}
