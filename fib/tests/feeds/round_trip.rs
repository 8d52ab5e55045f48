//! Tables written in each format are read back unchanged, and no input makes the readers panic.

use crate::{LoadedTables, load_bytes, open_updates};
use fib::feed::{self, WriteError, WriteFormat, WriteOptions};
use fib::{Group, IpPrefix, MacAddr, Neighbour, NextHop, NextHopId, PortRef, Prefix};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;

type Written = BTreeMap<IpPrefix, Meaning>;

/// A next hop. The id is part of it only for bare ids, since other ids are assigned arbitrarily.
#[derive(Clone, Debug, PartialEq)]
enum Meaning {
    Id(u32),
    Hop(NextHop),
}

fn build(table: &Written) -> LoadedTables {
    let mut tables = LoadedTables::default();
    for meaning in table.values() {
        if let Meaning::Id(id) = meaning {
            tables.hops.bare(*id).unwrap();
        }
    }
    for (prefix, meaning) in table {
        let id = match meaning {
            Meaning::Id(id) => tables.hops.bare(*id).unwrap(),
            Meaning::Hop(hop) => tables.hops.intern(hop.clone()).unwrap(),
        };
        tables.rib.set(*prefix, id);
    }
    tables
}

fn table_of(tables: &LoadedTables) -> Written {
    let meaning = |(prefix, id)| match tables.hops.get(id).unwrap() {
        NextHop::Bare => (prefix, Meaning::Id(id.get())),
        hop => (prefix, Meaning::Hop(hop.clone())),
    };
    tables.routes().map(meaning).collect()
}

fn write(
    LoadedTables { rib, hops }: &LoadedTables,
    format: WriteFormat,
    ports: u16,
) -> Result<String, WriteError> {
    let mut text = Vec::new();
    let options = WriteOptions { ports: NonZeroU16::new(ports).unwrap() };
    let written = feed::write(&mut text, format, rib, hops, &options)?;
    assert_eq!(written, rib.len() as u64);
    Ok(String::from_utf8(text).unwrap())
}

fn read(text: &[u8]) -> Result<LoadedTables, feed::FeedError> {
    load_bytes(text, None).map(|(_, tables)| tables)
}

fn again(table: &Written, format: WriteFormat) -> Written {
    let text = write(&build(table), format, 4).unwrap();
    table_of(&read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}")))
}

fn prefix() -> impl Strategy<Value = IpPrefix> {
    prop_oneof![
        (any::<u32>(), 0..=32_u8).prop_map(|(address, len)| IpPrefix::V4(Prefix::truncating(address, len))),
        (any::<u128>(), 0..=128_u8).prop_map(|(address, len)| IpPrefix::V6(Prefix::truncating(address, len))),
    ]
}

fn bare() -> impl Strategy<Value = Meaning> {
    prop_oneof![1..=20_u32, 1..=0xff_ffff_u32].prop_map(Meaning::Id)
}

fn port() -> impl Strategy<Value = PortRef> {
    prop_oneof![any::<u16>().prop_map(PortRef::Index), "[a-z][a-z0-9.:_-]{0,14}".prop_map(PortRef::Name),]
}

fn iproute2() -> impl Strategy<Value = Meaning> {
    let by_id = any::<bool>();
    prop_oneof![
        (any::<IpAddr>(), port(), by_id).prop_map(|(gateway, port, by_id)| {
            let port = if by_id { PortRef::ById } else { port };
            Meaning::Hop(NextHop::Gateway { gateway, port })
        }),
        port().prop_map(|port| Meaning::Hop(NextHop::Connected { port })),
        proptest::sample::select(vec!["blackhole", "unreachable", "prohibit"])
            .prop_map(|word| Meaning::Hop(NextHop::discarding(word).unwrap())),
        proptest::collection::vec((any::<IpAddr>(), port(), any::<bool>(), 1..=u16::MAX), 2..6).prop_map(
            |paths| {
                let paths = paths.into_iter().map(|(gateway, port, is_link, weight)| match is_link {
                    true => (NextHop::Connected { port }, weight),
                    false => (NextHop::Gateway { gateway, port }, weight),
                });
                Meaning::Hop(Group::next_hop(paths).unwrap())
            }
        ),
    ]
}

fn l3fwd() -> impl Strategy<Value = Meaning> {
    any::<u16>().prop_map(|port| Meaning::Hop(NextHop::Port { port }))
}

fn table(meaning: impl Strategy<Value = Meaning>) -> impl Strategy<Value = Written> {
    proptest::collection::btree_map(prefix(), meaning, 0..40)
}

proptest! {
    #[test]
    fn text_keeps_bare_ids(table in table(bare())) {
        prop_assert_eq!(again(&table, WriteFormat::Text), table);
    }

    #[test]
    fn iproute2_keeps_gateways(table in table(iproute2())) {
        prop_assert_eq!(again(&table, WriteFormat::Iproute2), table);
    }

    #[test]
    fn l3fwd_keeps_ports(table in table(l3fwd())) {
        prop_assert_eq!(again(&table, WriteFormat::L3fwd), table);
    }

    #[test]
    fn json_keeps_everything(table in table(prop_oneof![bare(), iproute2(), l3fwd()])) {
        prop_assert_eq!(again(&table, WriteFormat::Json), table);
    }

    #[test]
    fn iproute2_says_what_a_bare_id_means(table in table(prop_oneof![bare(), l3fwd()]), ports in 1..9_u16) {
        let text = write(&build(&table), WriteFormat::Iproute2, ports).unwrap();
        prop_assume!(!text.is_empty());
        let read = read(text.as_bytes()).unwrap();
        let again = table_of(&read);
        prop_assert_eq!(again.len(), table.len());
        for (prefix, meaning) in &table {
            let (id, port) = match meaning {
                Meaning::Id(id) => (*id, u16::try_from((id - 1) % u32::from(ports)).unwrap()),
                Meaning::Hop(NextHop::Port { port }) => (u32::from(*port) + 1, *port),
                Meaning::Hop(other) => panic!("{other}"),
            };
            let Some(Meaning::Hop(NextHop::Gateway { gateway, port: PortRef::Index(written) })) = again.get(prefix)
            else {
                panic!("{prefix} {:?}", again.get(prefix));
            };
            prop_assert_eq!(*written, port);
            let mac = MacAddr::of_bare_id(fib::NextHopId::new(id).unwrap());
            prop_assert_eq!(read.hops.neighbour(*gateway).unwrap().mac, mac);
        }
    }

    #[test]
    fn no_text_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        words in proptest::collection::vec(
            prop_oneof![
                Just("10.0.0.0/8"), Just("2001:db8::/32"), Just("default"), Just("R10.0.0.0/8"), Just("via"),
                Just("dev"), Just("nexthop"), Just("neigh"), Just("lladdr"), Just("02:00:00:00:00:01"), Just("inet6"),
                Just("blackhole"), Just("prohibit"), Just("192.0.2.1"), Just("fe80::1"), Just("1"), Just("0"), Just("mtu"),
                Just("lock"), Just("#"), Just("\n"), Just("\r\n"), Just("a"), Just("w"), Just("[{"), Just("\"dst\":"),
                Just("}]"), Just(","), Just("pref"), Just("\u{e9}"),
            ],
            0..60,
        ),
    ) {
        let line = words.join(" ");
        for content in [&bytes[..], line.as_bytes(), &[line.as_bytes(), b"\n", &bytes].concat()] {
            if let Err(error) = read(content) {
                prop_assert!(!error.to_string().is_empty());
            }
            if let (_folder, Ok(updates)) = open_updates(content, None) {
                prop_assert!(updates.count() <= 400);
            }
        }
    }
}

#[test]
fn each_format_looks_as_its_program_wants_it() {
    let hop = |hop| Meaning::Hop(hop);
    let gateway = |gateway: &str, port| hop(NextHop::Gateway { gateway: gateway.parse().unwrap(), port });
    let paths = [("192.0.2.1", PortRef::Index(2), 3), ("fe80::1", PortRef::ById, 1)];
    let paths = paths.map(|(gateway, port, weight)| {
        (NextHop::Gateway { gateway: gateway.parse().unwrap(), port }, weight)
    });
    let group = hop(Group::next_hop(paths).unwrap());
    let table: Written = [
        ("2001:db8::/32", Meaning::Id(6)),
        ("10.0.0.0/24", Meaning::Id(6)),
        ("10.0.0.0/8", gateway("192.0.2.1", PortRef::Index(2))),
        ("11.0.0.0/8", gateway("fe80::1", PortRef::ById)),
        ("9.0.0.0/8", hop(NextHop::Port { port: 1 })),
        ("12.0.0.0/8", group),
    ]
    .map(|(prefix, meaning)| (prefix.parse().unwrap(), meaning))
    .into();
    let mut built = build(&table);
    let mac = MacAddr([2, 0, 0, 0, 9, 9]);
    built.hops.set_neighbour(Neighbour {
        address: "192.0.2.1".parse().unwrap(),
        port: PortRef::Index(2),
        mac,
    });
    // Interned in order: 9/8 is 1, 10/8 is 2, 11/8 is 3, the group of 12/8 is 4.
    let text = |format| write(&built, format, 4).unwrap();
    assert_eq!(
        text(WriteFormat::Text),
        "9.0.0.0/8 1\n10.0.0.0/8 2\n10.0.0.0/24 6\n11.0.0.0/8 3\n12.0.0.0/8 4\n2001:db8::/32 6\n"
    );
    assert_eq!(
        text(WriteFormat::Iproute2),
        "9.0.0.0/8 via 10.0.0.2 dev 1\n10.0.0.0/8 via 192.0.2.1 dev 2\n10.0.0.0/24 via 10.0.0.6 dev 1\n\
         11.0.0.0/8 via inet6 fe80::1\n\
         12.0.0.0/8 nexthop via 192.0.2.1 dev 2 weight 3 nexthop via inet6 fe80::1 weight 1\n2001:db8::/32 via fd00::6 dev 1\n\
         neigh 10.0.0.2 lladdr 02:00:00:00:00:02 dev 1\nneigh 10.0.0.6 lladdr 02:00:00:00:00:06 dev 1\n\
         neigh fd00::6 lladdr 02:00:00:00:00:06 dev 1\nneigh 192.0.2.1 lladdr 02:00:00:00:09:09 dev 2\n"
    );
    let refused = write(&built, WriteFormat::L3fwd, 4).unwrap_err().to_string();
    assert!(refused.starts_with("12.0.0.0/8 nexthop via 192.0.2.1 dev 2"), "{refused}");
    let mut without = LoadedTables { rib: built.rib.clone(), hops: built.hops.clone() };
    without.rib.set("12.0.0.0/8".parse().unwrap(), NextHopId::NONE);
    assert_eq!(
        write(&without, WriteFormat::L3fwd, 4).unwrap(),
        "R9.0.0.0/8 1\nR10.0.0.0/8 2\nR10.0.0.0/24 1\nR11.0.0.0/8 2\n\
         R2001:0db8:0000:0000:0000:0000:0000:0000/32 1\n"
    );
    assert_eq!(
        text(WriteFormat::Json),
        "[{\"dst\":\"9.0.0.0/8\",\"port\":1},\n{\"dst\":\"10.0.0.0/8\",\"gateway\":\"192.0.2.1\",\"dev\":\"2\"},\n\
         {\"dst\":\"10.0.0.0/24\",\"id\":6},\n\
         {\"dst\":\"11.0.0.0/8\",\"via\":{\"family\":\"inet6\",\"host\":\"fe80::1\"}},\n\
         {\"dst\":\"12.0.0.0/8\",\"nexthops\":[{\"gateway\":\"192.0.2.1\",\"dev\":\"2\",\"weight\":3},\
         {\"via\":{\"family\":\"inet6\",\"host\":\"fe80::1\"},\"weight\":1}]},\n\
         {\"dst\":\"2001:db8::/32\",\"id\":6},\n\
         {\"dst\":\"192.0.2.1\",\"lladdr\":\"02:00:00:00:09:09\",\"dev\":\"2\"}]\n"
    );
}

#[test]
fn what_l3fwd_cannot_say_is_refused() {
    let name = PortRef::Name("eth0".to_owned());
    for hop in [NextHop::Blackhole, NextHop::Unreachable, NextHop::Connected { port: name.clone() }] {
        let table: Written = [("10.0.0.0/8".parse().unwrap(), Meaning::Hop(hop.clone()))].into();
        let error = write(&build(&table), WriteFormat::L3fwd, 4).unwrap_err();
        assert_eq!(error.to_string(), format!("10.0.0.0/8 {hop} cannot be written as l3fwd"));
    }
}

#[test]
fn an_output_that_takes_no_more_is_an_error() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let table: Written = [("10.0.0.0/8".parse().unwrap(), Meaning::Id(1))].into();
    let LoadedTables { rib, hops } = build(&table);
    for format in [WriteFormat::Text, WriteFormat::Iproute2, WriteFormat::L3fwd, WriteFormat::Json] {
        let error = feed::write(&mut Full, format, &rib, &hops, &WriteOptions::default()).unwrap_err();
        assert!(
            matches!(&error, WriteError::Io(error) if error.kind() == std::io::ErrorKind::BrokenPipe),
            "{error}"
        );
        assert_eq!(format.to_string().parse(), Ok(format));
    }
}
