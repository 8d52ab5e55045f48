//! Tests of the grammar: every line of help parses, every request prints back, any text is parsed or refused.

use crate::console::grammar::request::{
    Clear, PortCounters, PortFacts, Ports, Request, RouteList, SOURCES, Show, WatchFilter,
};
use crate::console::grammar::table::{COMMANDS, Command};
use crate::console::grammar::{CtlLine, complete, help, is_blank, parse};
use crate::datapath::DropReason;
use crate::datapath::flow::{Flow, has_ports};
use fib::feed::Hop;
use fib::{IpPrefix, MacAddr, NextHop, NextHopId, PortRef};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::IpAddr;
use std::num::NonZeroU64;

fn request(line: &str) -> Request {
    match parse(line) {
        Ok(CtlLine::Ask(request)) => request,
        other => panic!("{line}: {other:?}"),
    }
}

fn error(line: &str) -> String {
    parse(line).unwrap_err().to_string()
}

/// All command lines that a command's usage allows, with the arguments' examples.
fn lines(command: &Command) -> Vec<String> {
    let mut lines = vec![command.path.join(" ")];
    let mut allowed = Vec::new();
    for arg in command.args {
        if arg.is_optional() {
            allowed.extend_from_slice(&lines);
        }
        lines = lines
            .iter()
            .flat_map(|line| arg.examples.iter().map(move |word| format!("{line} {word}")))
            .collect();
    }
    allowed.extend(lines);
    allowed
}

#[test]
fn every_line_of_help_parses_and_prints_back() {
    let mut parsed = 0;
    for line in COMMANDS.iter().flat_map(lines) {
        match parse(&line) {
            Ok(CtlLine::Ask(asked)) => assert_eq!(request(&asked.to_string()), asked, "{line}"),
            Ok(CtlLine::RouteDiff(diff)) => {
                assert_eq!(request(&diff.list.to_string()), diff.list, "{line}");
                assert!(!diff.file.is_empty());
            }
            Ok(CtlLine::Help(_) | CtlLine::Top { .. } | CtlLine::Quit) => {}
            Err(error) => panic!("{line}: {error}"),
        }
        parsed += 1;
    }
    assert!(parsed > 80, "{parsed}");
}

#[test]
fn required_arguments_are_missed() {
    for command in COMMANDS {
        let line = command.path.join(" ");
        let is_optional = command.args.iter().all(crate::console::grammar::table::Arg::is_optional);
        assert_eq!(parse(&line).is_ok(), is_optional, "{line}");
        if !is_optional {
            let error = error(&line);
            assert!(error.starts_with("wanted ") && error.contains(" after '"), "{error}");
        }
        let many = format!("{line} {}", "x ".repeat(9));
        assert!(command.args.iter().any(|arg| arg.usage.contains("..")) || parse(&many).is_err(), "{many}");
    }
}

#[test]
fn no_path_begins_another() {
    for (at, one) in COMMANDS.iter().enumerate() {
        for other in COMMANDS.iter().skip(at + 1) {
            assert!(
                !one.path.starts_with(other.path) && !other.path.starts_with(one.path),
                "{one:?} {other:?}"
            );
        }
    }
    // Commands with a common first word are adjacent, so that help and messages name it once.
    let mut first: Vec<_> = COMMANDS.iter().map(|command| command.path[0]).collect();
    first.dedup();
    let count = first.len();
    first.sort_unstable();
    first.dedup();
    assert_eq!(first.len(), count);
}

#[test]
fn words_may_be_abbreviated() {
    for (line, wanted) in [
        ("sh dr", Request::Show(Show::Drops)),
        ("sho po x", Request::ShowPort { what: PortFacts::Xstats, ports: Ports::All }),
        (
            "show port stats all # all of them",
            Request::ShowPort { what: PortFacts::Stats, ports: Ports::All },
        ),
        ("cl n", Request::ClearNeigh { address: None }),
        ("sto --d", Request::Stop { drain: true }),
        ("sta", Request::Start),
        (
            "\t tr \t 5 ",
            Request::Trace { packets: NonZeroU64::new(5).unwrap(), filter: WatchFilter::default() },
        ),
        (
            "tr 5 r no_r p 1 t 10.0.0.0/8",
            Request::Trace {
                packets: NonZeroU64::new(5).unwrap(),
                filter: WatchFilter {
                    port: Some(PortRef::Index(1)),
                    vrf: None,
                    to: Some("10.0.0.0/8".parse().unwrap()),
                    reason: Some(DropReason::NoRoute),
                },
            },
        ),
        ("set li 1 d", Request::SetLink { port: PortRef::Index(1), up: false }),
        (
            "ro ad default dev 1 pref medium",
            Request::RouteAdd {
                prefix: "::/0".parse().unwrap(),
                hop: Hop::Hop(NextHop::Connected { port: PortRef::Index(1) }),
            },
        ),
        ("cap s", Request::CaptureStop),
        (
            "ro g 10.0.0.1 f 10.0.0.2 pr udp po 5000,53",
            Request::RouteGet {
                address: [10, 0, 0, 1].into(),
                flow: Some(Flow { source: [10, 0, 0, 2].into(), protocol: 17, ports: [5000, 53], label: 0 }),
            },
        ),
        (
            "ro l default lo so fp st",
            Request::RouteList(RouteList {
                prefix: Some("0.0.0.0/0".parse().unwrap()),
                longer: true,
                source: Some("fpm"),
                stale: true,
                after: None,
            }),
        ),
    ] {
        assert_eq!(request(line), wanted, "{line}");
    }
}

#[test]
fn errors_say_what_was_wanted_and_what_was_there() {
    for (line, message) in [
        ("", "no command is given; 'help' lists them"),
        (" # show", "no command is given; 'help' lists them"),
        ("s", "'s' is ambiguous: show, start, stop or set"),
        ("st", "'st' is ambiguous: start or stop"),
        (
            "list",
            "'list' is not understood here, wanted show, vrf, clear, route, neigh, reload, start, stop, set, trace, top, capture, help or quit",
        ),
        ("show port", "wanted stats, xstats or info after 'port'"),
        ("show port stats 0 1", "'1' is not understood here, wanted the end of the line"),
        ("show f", "'f' is ambiguous: fib or feeds"),
        ("route get", "wanted an address after 'get'"),
        ("route get 10.0.0", "'10.0.0' is not understood here, wanted an IPv4 or IPv6 address"),
        ("route add 10.0.0.1/8 1", "10.0.0.1/8 has host bits set; the prefix is 10.0.0.0/8"),
        ("route add neigh 1", "'neigh' is not a prefix such as 192.0.2.0/24 or 2001:db8::/32"),
        (
            "route add 10.0.0.0/8",
            "wanted a next-hop id, 'via GATEWAY', 'dev PORT', 'blackhole', 'unreachable' or 'prohibit' after '10.0.0.0/8'",
        ),
        ("route add 10.0.0.0/8 0", "'0' is not a next-hop id in 1..=16777215"),
        ("route add 10.0.0.0/8 via x", "'x' after 'via' is not an IP address"),
        ("neigh add 192.0.2.1 dev 1", "'lladdr' is missing"),
        ("trace 0", "'0' is not understood here, wanted a number of packets from 1"),
        ("trace +1", "'+1' is not understood here, wanted a number of packets from 1"),
        ("trace 1 from", "'from' is not understood here, wanted port, vrf, to or reason"),
        ("trace 1 to", "wanted a prefix after 'to'"),
        ("trace 1 reason no", "'no' is ambiguous: not_ip, no_route, no_neighbour or not_for_us"),
        ("trace 1 to default to ::/0", "'to' is not understood here, wanted each filter once"),
        ("capture drops /a 1 port 1 reason", "wanted a drop reason after 'reason'"),
        ("capture drops /a port 1", "'port' is not understood here, wanted a number of packets from 1"),
        ("t", "'t' is ambiguous: trace or top"),
        ("top 5", "'5' is not understood here, wanted --count"),
        ("top --count", "wanted a number of screens after '--count'"),
        ("top --count 0", "'0' is not understood here, wanted a number of screens from 1"),
        ("set promisc all", "wanted on or off after 'all'"),
        ("set promisc all o", "'o' is ambiguous: on or off"),
        ("set audit", "wanted a number of addresses, or 0 after 'audit'"),
        ("set audit 5G", "'5G' is not understood here, wanted a number from 0 to 4294967295"),
        ("set engine host x", "'x' is not understood here, wanted key=value, or force at the end"),
        (
            "vrf red",
            "wanted show, vrf, clear, route, neigh, reload, start, stop, set, trace, top, capture, help or quit after 'red'",
        ),
        ("vrf red stop", "'stop' is not understood here, wanted a command about a VRF (help vrf)"),
        (
            "vrf red show port info",
            "'show port info' is not understood here, wanted a command about a VRF (help vrf)",
        ),
        (
            "vrf red vrf red show fib",
            "'show fib' is not understood here, wanted a command about a VRF (help vrf)",
        ),
        ("vrf red route get x", "'x' is not understood here, wanted an IPv4 or IPv6 address"),
        ("stop now", "'now' is not understood here, wanted --drain"),
        (
            "help x",
            "'x' is not understood here, wanted show, vrf, clear, route, neigh, reload, start, stop, set, trace, top, capture, help or quit",
        ),
        (
            "\u{1b}[2J",
            "'\\u{1b}[2J' is not understood here, wanted show, vrf, clear, route, neigh, reload, start, stop, set, trace, top, capture, help or quit",
        ),
    ] {
        assert_eq!(error(line), message, "{line}");
    }
}

#[test]
fn errors_of_flows_and_lists_of_routes() {
    for (line, message) in [
        ("route get 10.0.0.1 to", "'to' is not understood here, wanted from"),
        (
            "route get 10.0.0.1 from ::1",
            "'::1' is not understood here, wanted an address of the family of 10.0.0.1",
        ),
        (
            "route get 10.0.0.1 from 10.0.0.2 proto gre",
            "'gre' is not understood here, wanted tcp, udp, icmp, icmp6, sctp or a number up to 255",
        ),
        (
            "route get 10.0.0.1 from 10.0.0.2 proto icmp ports 1,2",
            "'ports' is not understood here, wanted a protocol with ports before it",
        ),
        (
            "route get 10.0.0.1 from 10.0.0.2 proto tcp ports 1",
            "'1' is not understood here, wanted two ports such as 49152,443",
        ),
        (
            "route get ::1 from ::2 label 1048576",
            "'1048576' is not understood here, wanted a flow label up to 1048575",
        ),
        (
            "route get 10.0.0.1 from 10.0.0.2 label 1",
            "'label' is not understood here, wanted proto or ports: IPv4 has no flow labels",
        ),
        ("route list x", "'x' is not a prefix such as 192.0.2.0/24 or 2001:db8::/32"),
        ("route list longer", "'longer' is not a prefix such as 192.0.2.0/24 or 2001:db8::/32"),
        ("route list s", "'s' is ambiguous: source or stale"),
        ("route list 10.0.0.0/8 x", "'x' is not understood here, wanted longer, source, stale or after"),
        (
            "route list source bgp",
            "'bgp' is not understood here, wanted addresses, ctl, files, fpm or kernel",
        ),
        ("route list source", "wanted addresses, ctl, files, fpm or kernel after 'source'"),
        ("route diff", "wanted a route file after 'diff'"),
        ("route diff x stale", "'stale' is not understood here, wanted source"),
    ] {
        assert_eq!(error(line), message, "{line}");
    }
}

#[test]
fn help_lists_commands_and_completion_follows_them() {
    let all = help(&[]).unwrap().to_string();
    assert_eq!(all.lines().count(), COMMANDS.len());
    let some = help(&["cap"]).unwrap().to_string();
    assert!(some.lines().count() == 2 && some.contains("write the next N dropped"), "{some}");
    for (line, start, words) in [
        (
            "",
            0,
            &[
                "show", "vrf", "clear", "route", "neigh", "reload", "start", "stop", "set", "trace", "top",
                "capture", "help", "quit",
            ][..],
        ),
        ("s", 0, &["show", "start", "stop", "set"]),
        ("sh po ", 6, &["stats", "xstats", "info"]),
        ("show port stats ", 16, &["all"]),
        ("set promisc 1 o", 14, &["on", "off"]),
        ("route add 10.0.0.0/8 ", 21, &["via", "dev", "nexthop", "blackhole", "unreachable", "prohibit"]),
        ("route add 10.0.0.0/8 via 1.1.1.1 d", 33, &["dev"]),
        ("neigh add 192.0.2.1 ", 20, &["lladdr"]),
        ("route list source f", 18, &["files", "fpm"]),
        ("route list 10.0.0.0/8 ", 22, &["longer", "source", "stale", "after"]),
        ("route diff routes.txt source k", 29, &["kernel"]),
        ("route get ::1 from ::2 proto i", 29, &["icmp", "icmp6"]),
        ("trace 5 ", 8, &["port", "vrf", "to", "reason"]),
        ("trace 5 port ", 13, &[]),
        ("trace 5 port 1 r", 15, &["reason"]),
        ("capture drops /a 5 reason m", 26, &["malformed", "martian", "multicast", "mtu_exceeded"]),
        ("set engine sail-", 11, &["sail-b", "sail-u", "sail-l", "sail-m", "sail-gpu"]),
        ("vrf red set engine blo", 19, &["bloom", "bloom-baseline", "bloom-naive"]),
        ("show dropz ", 11, &[]),
        ("start ", 6, &[]),
        ("v", 0, &["vrf"]),
        ("vrf r", 4, &[]),
        ("vrf red ro", 8, &["route"]),
        ("vrf red route add 10.0.0.0/8 b", 29, &["blackhole"]),
    ] {
        assert_eq!(complete(line), (start, words.to_vec()), "{line}");
    }
    assert!(is_blank(" # quit") && !is_blank("quit # now"));
}

fn port() -> impl Strategy<Value = PortRef> {
    prop_oneof![
        any::<u16>().prop_map(PortRef::Index),
        "[a-z]{2}[a-z0-9:._]{0,12}[x-z]".prop_map(PortRef::Name)
    ]
}

fn ports() -> impl Strategy<Value = Ports> {
    prop_oneof![Just(Ports::All), port().prop_map(Ports::One)]
}

fn prefix() -> impl Strategy<Value = IpPrefix> {
    prop_oneof![
        (any::<u32>(), 0..=32_u8)
            .prop_map(|(address, len)| IpPrefix::V4(fib::Prefix::truncating(address, len))),
        (any::<u128>(), 0..=128_u8)
            .prop_map(|(address, len)| IpPrefix::V6(fib::Prefix::truncating(address, len))),
    ]
}

fn flow() -> impl Strategy<Value = Flow> {
    (any::<IpAddr>(), any::<u8>(), any::<[u16; 2]>(), 0..1_u32 << 20).prop_map(
        |(source, protocol, ports, label)| {
            let ports = if has_ports(protocol) { ports } else { [0, 0] };
            Flow { source, protocol, ports, label: if source.is_ipv4() { 0 } else { label } }
        },
    )
}

fn route_list() -> impl Strategy<Value = RouteList> {
    let some = || proptest::option::of(prefix());
    let source = proptest::option::of(proptest::sample::select(SOURCES.to_vec()));
    (some(), any::<bool>(), source, any::<bool>(), some()).prop_map(
        |(prefix, longer, source, stale, after)| RouteList {
            prefix,
            longer: longer && prefix.is_some(),
            source,
            stale,
            after,
        },
    )
}

fn hop() -> impl Strategy<Value = Hop> {
    let by_id = prop_oneof![Just(PortRef::ById), port()];
    prop_oneof![
        (1..=0xff_ffff_u32).prop_map(|id| Hop::Id(NextHopId::new(id).unwrap())),
        (any::<IpAddr>(), by_id).prop_map(|(gateway, port)| Hop::Hop(NextHop::Gateway { gateway, port })),
        port().prop_map(|port| Hop::Hop(NextHop::Connected { port })),
        vec((any::<IpAddr>(), port(), 1..=u16::MAX), 2..5).prop_map(|paths| {
            let path = |(gateway, port, weight)| (NextHop::Gateway { gateway, port }, weight);
            Hop::Hop(fib::Group::next_hop(paths.into_iter().map(path)).unwrap())
        }),
        proptest::sample::select(vec![NextHop::Blackhole, NextHop::Unreachable, NextHop::Prohibit])
            .prop_map(Hop::Hop),
    ]
}

fn any_request() -> impl Strategy<Value = Request> {
    let about_vrf = (plain_request(), "[a-z0-9_-]{1,9}").prop_map(|(request, name)| {
        if request.is_about_vrf() { Request::Vrf { name, request: Box::new(request) } } else { request }
    });
    prop_oneof![plain_request(), about_vrf]
}

fn filter() -> impl Strategy<Value = WatchFilter> {
    use proptest::option::of;
    let reason = of(proptest::sample::select(DropReason::ALL.to_vec()));
    (of(port()), of("[a-z0-9_-]{1,9}"), of(prefix()), reason)
        .prop_map(|(port, vrf, to, reason)| WatchFilter { port, vrf, to, reason })
}

fn plain_request() -> impl Strategy<Value = Request> {
    use Show::*;
    let count = || any::<NonZeroU64>();
    let shows = [
        Drops, Engine, Fib, Neigh, Latency, Lcores, Queues, Config, Stats, Routes, Feeds, Vrfs, Addresses,
        NextHops,
    ];
    let facts = proptest::sample::select(vec![PortFacts::Stats, PortFacts::Xstats, PortFacts::Info]);
    let counters = proptest::sample::select(vec![PortCounters::Stats, PortCounters::Xstats]);
    let parameters = vec(("[a-z-]{1,9}", "[!-~]{0,9}"), 0..4);
    prop_oneof![
        proptest::sample::select(shows.to_vec()).prop_map(Request::Show),
        (facts, ports()).prop_map(|(what, ports)| Request::ShowPort { what, ports }),
        proptest::sample::select(vec![Clear::Drops, Clear::Latency]).prop_map(Request::Clear),
        (counters, ports()).prop_map(|(what, ports)| Request::ClearPort { what, ports }),
        any::<Option<IpAddr>>().prop_map(|address| Request::ClearNeigh { address }),
        (any::<IpAddr>(), proptest::option::of(flow())).prop_map(|(address, flow)| {
            let flow = flow.filter(|flow| flow.source.is_ipv4() == address.is_ipv4());
            Request::RouteGet { address, flow }
        }),
        route_list().prop_map(Request::RouteList),
        (prefix(), hop()).prop_map(|(prefix, hop)| Request::RouteAdd { prefix, hop }),
        prefix().prop_map(|prefix| Request::RouteDel { prefix }),
        (any::<IpAddr>(), any::<[u8; 6]>(), port()).prop_map(|(address, mac, port)| Request::NeighAdd {
            address,
            mac: MacAddr(mac),
            port
        }),
        any::<IpAddr>().prop_map(|address| Request::NeighDel { address }),
        Just(Request::Start),
        any::<bool>().prop_map(|drain| Request::Stop { drain }),
        ("[a-z][!-~]{0,9}", parameters, any::<bool>())
            .prop_map(|(name, parameters, force)| Request::SetEngine { name, parameters, force }),
        (ports(), any::<bool>()).prop_map(|(ports, on)| Request::SetPromiscuous { ports, on }),
        (port(), any::<bool>()).prop_map(|(port, up)| Request::SetLink { port, up }),
        (count(), filter()).prop_map(|(packets, filter)| Request::Trace { packets, filter }),
        ("/[!-~]{1,20}", count(), filter()).prop_map(|(file, packets, filter)| Request::CaptureDrops {
            file,
            packets,
            filter
        }),
        Just(Request::CaptureStop),
        any::<bool>().prop_map(|on| Request::SetNextHopCounters { on }),
        any::<u32>().prop_map(|one_in| Request::SetAudit { one_in }),
    ]
}

proptest! {
    #[test]
    fn every_request_prints_words_that_parse_to_it(asked in any_request()) {
        prop_assert_eq!(request(&asked.to_string()), asked);
    }

    #[test]
    fn any_text_is_refused_or_understood(text in ".*", words in vec("[a-z/.:#-]{1,8}|[0-9./:]{1,12}|show|route|add|set|via|dev|neigh", 0..8)) {
        for line in [text, words.join(" ")] {
            if let Ok(CtlLine::Ask(asked)) = parse(&line) {
                prop_assert_eq!(request(&asked.to_string()), asked);
            }
            let (start, found) = complete(&line);
            prop_assert!(line.is_char_boundary(start) && found.iter().all(|word| word.starts_with(&line[start..])));
        }
    }
}
