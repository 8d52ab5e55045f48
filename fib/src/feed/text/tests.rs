//! Lines of every form, and wrong ones.

use super::*;

fn prefix(text: &str) -> IpPrefix {
    text.parse().unwrap()
}

fn gateway(gateway: &str, port: PortRef) -> Hop {
    Hop::Hop(NextHop::Gateway { gateway: gateway.parse().unwrap(), port })
}

fn connected(port: PortRef) -> Hop {
    Hop::Hop(NextHop::Connected { port })
}

fn group(paths: &[(&str, u16, u16)]) -> Hop {
    let hop = |gateway: &str, port| NextHop::Gateway {
        gateway: gateway.parse().unwrap(),
        port: PortRef::Index(port),
    };
    let paths = paths.iter().map(|(gateway, port, weight)| (hop(gateway, *port), *weight));
    Hop::Hop(Group::next_hop(paths).unwrap())
}

#[test]
fn routes_of_every_dialect() {
    let id = |value| Hop::Id(NextHopId::new(value).unwrap());
    let eth0 = || PortRef::Name("eth0".to_owned());
    let l3fwd = |port| Hop::Hop(NextHop::Port { port });
    for (line, route, hop) in [
        ("192.0.2.0/24 1", "192.0.2.0/24", id(1)),
        ("  192.0.2.0/24\t16777215  # all ones", "192.0.2.0/24", id(0xff_ffff)),
        ("2001:db8::/32 7", "2001:db8::/32", id(7)),
        ("192.0.2.1 3", "192.0.2.1/32", id(3)),
        ("default 3", "0.0.0.0/0", id(3)),
        ("10.0.0.0/8 via 192.0.2.1 dev 1", "10.0.0.0/8", gateway("192.0.2.1", PortRef::Index(1))),
        ("10.0.0.0/8 via 192.0.2.1", "10.0.0.0/8", gateway("192.0.2.1", PortRef::ById)),
        ("unicast 10.0.0.0/8 via 192.0.2.1 dev eth0", "10.0.0.0/8", gateway("192.0.2.1", eth0())),
        (
            "10.0.0.0/8 via 192.0.2.1 dev eth0 proto bird metric 32 mtu lock 1400 onlink",
            "10.0.0.0/8",
            gateway("192.0.2.1", eth0()),
        ),
        ("default via 192.0.2.1 dev eth0", "0.0.0.0/0", gateway("192.0.2.1", eth0())),
        ("default via fe80::1 dev eth0 pref medium", "::/0", gateway("fe80::1", eth0())),
        ("default via inet6 fe80::1 dev eth0", "0.0.0.0/0", gateway("fe80::1", eth0())),
        ("10.0.0.0/8 via inet6 fe80::1 dev eth0", "10.0.0.0/8", gateway("fe80::1", eth0())),
        ("192.0.2.0/24 dev eth0 scope link src 192.0.2.9", "192.0.2.0/24", connected(eth0())),
        ("default dev eth0", "0.0.0.0/0", connected(eth0())),
        ("default dev eth0 metric 1024 pref medium", "::/0", connected(eth0())),
        ("blackhole 10.0.0.0/8", "10.0.0.0/8", Hop::Hop(NextHop::Blackhole)),
        ("unreachable 10.0.0.0/8 metric 4294967295", "10.0.0.0/8", Hop::Hop(NextHop::Unreachable)),
        ("prohibit default dev lo error -13 pref medium", "::/0", Hop::Hop(NextHop::Prohibit)),
        (
            "default proto static nexthop via 192.0.2.1 dev 1 weight 1 nexthop via 192.0.2.2 dev 2 weight 1",
            "0.0.0.0/0",
            group(&[("192.0.2.1", 1, 1), ("192.0.2.2", 2, 1)]),
        ),
        (
            "10.0.0.0/8 proto static \\  nexthop via 192.0.2.1 dev 1 weight 5 \\  nexthop via 192.0.2.2 dev 2",
            "10.0.0.0/8",
            group(&[("192.0.2.1", 1, 5), ("192.0.2.2", 2, 1)]),
        ),
        (
            "10.0.0.0/8 via 192.0.2.1 dev 1 weight 2 nexthop via 192.0.2.1 dev 1 nexthop via 192.0.2.2 dev 2",
            "10.0.0.0/8",
            group(&[("192.0.2.1", 1, 3), ("192.0.2.2", 2, 1)]),
        ),
        ("10.0.0.0/8 nexthop dev 1 nexthop dev 1", "10.0.0.0/8", connected(PortRef::Index(1))),
        (
            "default pref medium nexthop via fe80::1 dev 1 nexthop via fe80::2 dev 2",
            "::/0",
            group(&[("fe80::1", 1, 1), ("fe80::2", 2, 1)]),
        ),
        ("R192.0.2.0/24 0", "192.0.2.0/24", l3fwd(0)),
        ("R2001:0db8:0000:0000:0000:0000:0000:0000/32 65535", "2001:db8::/32", l3fwd(65535)),
    ] {
        assert_eq!(parse_route(line), Ok((prefix(route), hop)), "{line}");
    }
}

#[test]
fn metrics_of_routes() {
    for (line, wanted) in [
        ("10.0.0.0/8 via 192.0.2.1 dev 1", Some(0)),
        ("10.0.0.0/8 via 192.0.2.1 dev 1 metric 32", Some(32)),
        ("10.0.0.0/8 dev 1 priority 7 proto static", Some(7)),
        ("10.0.0.0/8 preference 8 nexthop dev 1 nexthop dev 2", Some(8)),
        ("2001:db8::/32 dev 1", Some(1024)),
        ("2001:db8::/32 dev 1 metric 0", Some(1024)),
        ("default dev 1 metric 256 pref medium", Some(256)),
        ("unreachable default dev lo metric 4294967295 pref medium", Some(u32::MAX)),
        ("blackhole 10.0.0.0/8", Some(0)),
        ("10.0.0.0/8 17", None),
        ("R10.0.0.0/8 1", None),
    ] {
        let Ok(TextLine::Route(_, _, metric)) = parse(line.as_bytes()) else { panic!("{line}") };
        assert_eq!(metric, wanted, "{line}");
    }
}

#[test]
fn neighbours_and_lines_that_say_nothing() {
    for line in ["", "   \t", "# 10.0.0.0/8 1", "   #", "#10.0.0.1/8"] {
        assert_eq!(parse(line.as_bytes()), Ok(TextLine::Nothing), "{line}");
    }
    let wanted = Neighbour {
        address: "192.0.2.1".parse().unwrap(),
        port: PortRef::Index(3),
        mac: MacAddr([2, 0, 0, 0, 0, 9]),
    };
    for line in [
        "neigh 192.0.2.1 lladdr 02:00:00:00:00:09 dev 3",
        "neigh 192.0.2.1 dev 3 lladdr 02:00:00:00:00:09 router REACHABLE # as ip neigh",
    ] {
        assert_eq!(parse(line.as_bytes()), Ok(TextLine::Neighbour(wanted.clone())), "{line}");
    }
}

#[test]
fn one_route_or_neighbour() {
    let route = parse_route("10.0.0.0/8 via 192.0.2.1 dev 1");
    assert_eq!(route, Ok((prefix("10.0.0.0/8"), gateway("192.0.2.1", PortRef::Index(1)))));
    assert_eq!(parse_route("10.0.0.0/8 proto static"), Err(LineError::NoNextHop));
    for text in ["", "# 10.0.0.0/8 1", "nexthop dev 1", "neigh 192.0.2.1 lladdr 02:00:00:00:00:01 dev 1"] {
        assert!(matches!(parse_route(text), Err(LineError::Word { .. })), "{text}");
    }
    let neighbour = parse_neighbour("192.0.2.1 lladdr 02:00:00:00:00:09 dev 3").unwrap();
    assert_eq!((neighbour.port, neighbour.mac), (PortRef::Index(3), MacAddr([2, 0, 0, 0, 0, 9])));
    assert!(parse_neighbour("192.0.2.1").is_err() && parse_neighbour("").is_err());
}

#[test]
fn wrong_lines_say_what_was_wanted() {
    for (line, message) in [
        ("10.0.0.1/8 1", "10.0.0.1/8 has host bits set; the prefix is 10.0.0.0/8"),
        ("10.0.0.0/33 1", "prefix length 33 is above 32"),
        ("10.0.0/8 1", "'10.0.0/8' is not a prefix such as 192.0.2.0/24 or 2001:db8::/32"),
        ("010.0.0.0/8 1", "'010.0.0.0/8' is not a prefix such as 192.0.2.0/24 or 2001:db8::/32"),
        ("10.0.0.0/8 0", "'0' is not a next-hop id in 1..=16777215"),
        ("10.0.0.0/8 16777216", "'16777216' is not a next-hop id in 1..=16777215"),
        ("10.0.0.0/8 99999999999999999999", "'99999999999999999999' is not a next-hop id in 1..=16777215"),
        ("10.0.0.0/8 -1", "'-1' is not a next-hop id in 1..=16777215"),
        ("10.0.0.0/8 +1", "'+1' is not a next-hop id in 1..=16777215"),
        ("10.0.0.0/8 1x", "'1x' is not a next-hop id in 1..=16777215"),
        ("10.0.0.0/8 1 2", "'2' is not understood here, wanted the end of the line"),
        (
            "10.0.0.0/8 foo",
            "'foo' is not understood here, wanted a next-hop id, 'via', 'dev', 'nexthop' or another word of \
             `ip route`",
        ),
        ("10.0.0.0/8 via", "wanted a gateway after 'via'"),
        ("10.0.0.0/8 via # 1", "wanted a gateway after 'via'"),
        ("10.0.0.0/8 via x dev 1", "'x' after 'via' is not an IP address"),
        ("10.0.0.0/8 via inet6 1.2.3.4", "'1.2.3.4' after 'via' is not an IP address"),
        (
            "10.0.0.0/8 via fe80::1 dev 1",
            "the gateway fe80::1 is not ipv4 like the route; if intended, name its family: 'via inet6'",
        ),
        ("10.0.0.0/8 dev", "wanted a port after 'dev'"),
        (
            "10.0.0.0/8 dev 1 dev 2",
            "'dev' is not understood here, wanted each word once in a route or nexthop",
        ),
        (
            "10.0.0.0/8 nexthop weight 1",
            "the route has no next hop, wanted an id, 'via GATEWAY', 'dev PORT' or a 'nexthop' line",
        ),
        ("blackhole", "wanted a prefix after 'blackhole'"),
        (
            "local 10.0.0.1 dev lo",
            "a 'local' route is not for forwarding, wanted unicast, blackhole, unreachable or prohibit",
        ),
        ("R10.0.0.0/8", "wanted a port after 'R10.0.0.0/8'"),
        ("R10.0.0.0/8 65536", "'65536' is not an l3fwd port in 0..=65535"),
        ("R10.0.0.0/8 +1", "'+1' is not an l3fwd port in 0..=65535"),
        ("R10.0.0.1/8 1", "10.0.0.1/8 has host bits set; the prefix is 10.0.0.0/8"),
        ("neigh 192.0.2.1 dev 1", "'lladdr' is missing"),
        ("neigh 192.0.2.1 lladdr 02:00:00:00:00:01", "'dev' is missing"),
        (
            "neigh 192.0.2.1 lladdr 2:0:0:0:0:1 dev 1",
            "'2:0:0:0:0:1' is not a MAC address such as 02:00:00:00:00:01",
        ),
        ("10.0.0.0/8 dev 1 metric -1", "'-1' is not a metric in 0..=4294967295"),
        ("10.0.0.0/8 dev 1 metric 4294967296", "'4294967296' is not a metric in 0..=4294967295"),
        ("10.0.0.0/8 nexthop via 192.0.2.1 weight 0", "'0' is not a weight in 1..=65535"),
        ("10.0.0.0/8 nexthop via 192.0.2.1 weight 65536", "'65536' is not a weight in 1..=65535"),
        ("10.0.0.0/8 nexthop via 192.0.2.1 weight", "wanted a weight after 'weight'"),
        (
            "default nexthop via 192.0.2.1 nexthop via fe80::1",
            "the gateway fe80::1 is not ipv4 like the route; if intended, name its family: 'via inet6'",
        ),
        ("w 10.0.0.0/8", "'w' is not a prefix such as 192.0.2.0/24 or 2001:db8::/32"),
    ] {
        assert_eq!(parse(line.as_bytes()).unwrap_err().to_string(), message, "{line}");
    }
    assert_eq!(parse(b"10.0.0.0/8 \xff"), Err(LineError::NotText));
    let many: String = (0..65).map(|port| format!(" nexthop dev {port}")).collect();
    let error = parse(format!("10.0.0.0/8{many}").as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "a route has 1 to 64 paths, not 65");
    let encap = parse(b"10.0.0.0/8 encap mpls 100 via 192.0.2.1 dev 1");
    assert!(matches!(encap, Err(LineError::Word { text, .. }) if text == "encap"));
}

proptest::proptest! {
    #[test]
    fn the_quick_path_agrees(
        line in "(10|0|00|255|256|1\\.2|9)(\\.[0-9]{1,3}){3}(/[0-9]{0,3})?[ \t]{0,2}[0-9]{0,10} ?",
    ) {
        if let Some((prefix, id)) = quick(line.as_bytes()) {
            proptest::prop_assert_eq!(parse(line.as_bytes()), Ok(TextLine::Route(prefix, Hop::Id(id), None)));
        }
    }

    #[test]
    fn the_quick_path_takes_plain_lines(address: u32, len in 0..=32_u8, v6: u128, len6 in 0..=128_u8,
                                        id in 1..=0xff_ffff_u32) {
        let id = NextHopId::new(id).unwrap();
        let v4 = IpPrefix::V4(crate::Prefix::truncating(address, len));
        let v6 = IpPrefix::V6(crate::Prefix::truncating(v6, len6));
        for prefix in [v4, v6] {
            proptest::prop_assert_eq!(quick(format!("{prefix} {id}").as_bytes()), Some((prefix, id)));
        }
    }
}
