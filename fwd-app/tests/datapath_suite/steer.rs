//! Control of a running forwarder: by `fwd-app ctl`, and by SIGHUP.

use crate::forwarder::Steered;
use crate::ports::{PortBench, SHORT};
use crate::support::{bundled, comments, drops, fwd_app, number, ran, stderr, v4_frame, write_pcap};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn every_engine_takes_over_and_every_packet_is_right() {
    for topology in ["run-to-completion", "pipeline"] {
        let scratch = tempfile::tempdir().unwrap();
        let extra = ["--topology", topology, "--engine", "oracle"];
        let Some(forwarder) = Steered::replay(scratch.path(), &extra) else { return };
        for engine in
            ["host", "bloom", "bloom-baseline", "bloom-naive", "miht", "mamt", "coop", "oracle", "host"]
        {
            forwarder.ask(&format!("set engine {engine}"));
            let name = forwarder.ask("show engine")["name"].clone();
            assert_eq!(name, engine);
            let before = number(&forwarder.ask("show stats"), "/packets/rx");
            forwarder.ask_until("show stats", |stats| number(stats, "/packets/rx") > before + 2000);
        }
        // It has no IPv6 table, so the current engine stays.
        assert!(forwarder.refuses("set engine sail-l").contains("no table for ipv6"));
        assert!(forwarder.refuses("set engine no-such").contains("known are"));
        assert_eq!(forwarder.ask("show engine")["name"], "host");
        let (summary, _) = forwarder.end();
        assert!(number(&summary, "/verify/checked") > 18_000);
        assert_eq!(number(&summary, "/packets/reordered"), 0);
        assert_eq!(number(&summary, "/packets/drops/engine_stall"), 0);
    }
}

#[test]
fn a_hangup_applies_the_difference_or_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let routes = scratch.path().join("more.txt");
    let text = "240.0.0.0/8 7\n203.0.113.0/24 via 192.0.2.1 dev 1\n";
    let Some(forwarder) = Steered::run(scratch.path(), "hangup", text) else { return };
    let next_hop = |prefix: &str| {
        let address = prefix.split('/').next().unwrap();
        let route = forwarder.ask(&format!("route get {address}"));
        assert_eq!(route["engine_id"].as_u64().unwrap() == 0, route["prefix"].is_null(), "{route}");
        (route["prefix"].clone(), route["id"].as_u64().unwrap())
    };
    assert_eq!(next_hop("240.0.0.0/8"), ("240.0.0.0/8".into(), 7));
    let generation = || number(&forwarder.ask("show fib"), "/generation");
    let loaded = generation();

    // One route gets the number of a gateway's engine id, one is removed, one is added.
    let gateway = forwarder.ask("route get 203.0.113.1")["engine_id"].as_u64().unwrap();
    let text =
        format!("240.0.0.0/8 {gateway}\n241.0.0.0/8 9\nneigh 192.0.2.1 lladdr 02:00:00:00:00:09 dev 1\n");
    std::fs::write(&routes, text).unwrap();
    forwarder.hang_up();
    forwarder.ask_until("show fib", |fib| number(fib, "/generation") > loaded);
    assert_eq!(next_hop("240.0.0.0/8"), ("240.0.0.0/8".into(), gateway));
    assert_eq!(next_hop("241.0.0.0/8"), ("241.0.0.0/8".into(), 9));
    assert_ne!(next_hop("203.0.113.0/24").0, "203.0.113.0/24");
    assert_eq!(forwarder.ask("show neigh").as_array().unwrap().len(), 1);

    // A broken file, then an unchanged one: nothing changes.
    let changed = generation();
    let good = std::fs::read(&routes).unwrap();
    std::fs::write(&routes, "240.0.0.0/8 1\n240.0.0.0/33 1\n").unwrap();
    forwarder.hang_up();
    std::thread::sleep(Duration::from_millis(500));
    std::fs::write(&routes, good).unwrap();
    forwarder.hang_up();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!((next_hop("240.0.0.0/8").1, generation()), (gateway, changed));
    let (summary, text) = forwarder.end();
    assert!(number(&summary, "/packets/tx") > 0);
    assert!(text.contains("more.txt:2") && text.contains("0 changed"), "{text}");
}

#[test]
fn routes_that_drop_are_shown_by_kind() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(forwarder) = Steered::run(scratch.path(), "dropping", "# none\n") else { return };
    for (prefix, word) in [
        ("192.0.2.0/25", "blackhole"),
        ("192.0.2.0/26", "prohibit"),
        ("192.0.2.0/27", "unreachable"),
        ("2001:db8:7::/48", "unreachable"),
    ] {
        forwarder.ask(&format!("route add {prefix} {word}"));
        let address = prefix.split('/').next().unwrap();
        assert_eq!(forwarder.ask(&format!("route get {address}"))["next_hop"], word);
    }
    let fib = forwarder.ask("show fib");
    assert_eq!(["/blackhole", "/unreachable", "/prohibit"].map(|key| number(&fib, key)), [1, 2, 1]);
    forwarder.ask("route add default unreachable");
    forwarder.ask_until("show drops", |drops| number(drops, "/unreachable") > 0);
    forwarder.end();
}

fn without_file(socket: &Path, line: &str) -> String {
    let stream = UnixStream::connect(socket).unwrap();
    writeln!(&stream, "{}", serde_json::json!({ "line": line })).unwrap();
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).unwrap();
    reply
}

#[test]
fn a_port_has_the_name_that_its_user_gives_it() {
    let scratch = tempfile::tempdir().unwrap();
    let extra = ["--port-name", "1=uplink", "--address", "uplink=198.18.9.1/24"];
    let Some(forwarder) =
        Steered::run_with(scratch.path(), "names", &crate::forwarder::endless_mix(), &extra)
    else {
        return;
    };
    let names = |words: &str| {
        let all = forwarder.ask(words);
        all.as_array().unwrap().iter().map(|port| port["name"].clone()).collect::<Vec<_>>()
    };
    let all = names("show port info all");
    assert!(all.len() > 1 && all[0] != "uplink" && all[1] == "uplink", "{all:?}");
    assert_eq!(names("show addresses"), ["uplink", "uplink"], "that of the option and the link-local one");
    for port in ["1", "uplink", "net_null1"] {
        assert_eq!(names(&format!("show port info {port}")), ["uplink"]);
        forwarder.ask(&format!("route add 192.0.2.0/24 via 198.18.9.7 dev {port}"));
        forwarder.ask(&format!("neigh add 198.18.9.7 lladdr 02:00:00:00:00:07 dev {port}"));
        assert!(names("show neigh").contains(&"uplink".into()));
        // A route shows the user's name of a port, or the number of a port without one, however the port was written.
        let other = if port == "1" { "0" } else { "net_pcap0" };
        forwarder.ask(&format!("neigh add 198.18.9.8 lladdr 02:00:00:00:00:08 dev {other}"));
        let paths = format!("nexthop via 198.18.9.7 dev {port} nexthop via 198.18.9.8 dev {other}");
        forwarder.ask(&format!("route add 192.0.3.0/24 {paths}"));
        assert_eq!(forwarder.ask("route get 192.0.2.1")["next_hop"], "via 198.18.9.7 dev uplink");
        let listed = forwarder.ask_text("route list 192.0.2.0/23 longer");
        let [hop, other] = ["via 198.18.9.7 dev uplink", "via 198.18.9.8 dev 0"];
        let paths = format!("nexthop {hop} weight 1 nexthop {other} weight 1");
        assert_eq!(listed, format!("192.0.2.0/24 {hop}\n192.0.3.0/24 {paths}\n"));
        check_ports(&forwarder);
        for words in ["clear port stats PORT", "show port xstats PORT", "trace 1 port PORT"] {
            forwarder.ask(&words.replace("PORT", port));
        }
        // Its driver does not support these.
        for words in ["set promisc PORT off", "set link PORT up"] {
            assert!(forwarder.refuses(&words.replace("PORT", port)).contains("port 1 (uplink): "), "{words}");
        }
        let file = scratch.path().join("routes.txt");
        std::fs::write(&file, forwarder.ask_text("route list").replace("dev uplink", &format!("dev {port}")))
            .unwrap();
        forwarder.ask_text(&format!("route diff {}", file.display()));
    }
    assert!(forwarder.refuses("show port info 9").contains("1 (uplink)"));
    let (summary, _) = forwarder.end();
    check_ports_in("the report", &summary);
}

fn check_ports(forwarder: &Steered) {
    let help = forwarder.ask("help show");
    let shows = help.as_array().unwrap().iter().map(|line| line["usage"].as_str().unwrap());
    let shows = shows.map(|usage| usage.replace("[PORT|all]", "all"));
    let others =
        ["route get 192.0.2.1", "route get 192.0.3.1 from 192.0.2.9", "trace 2", "trace 2 reason no_route"];
    let all: Vec<_> = shows.chain(others.map(str::to_owned)).collect();
    let checked = all.iter().filter(|words| check_ports_in(words, &forwarder.ask(words)) > 0);
    let checked: Vec<_> = checked.map(String::as_str).collect();
    for words in ["show port info all", "show neigh", "show addresses", "show queues", "show stats"]
        .iter()
        .chain(&others)
    {
        assert!(checked.contains(words), "{words} shows no port: {checked:?}");
    }
}

fn check_ports_in(about: &str, value: &serde_json::Value) -> usize {
    use serde_json::Value;
    match value {
        Value::Array(entries) => entries.iter().map(|entry| check_ports_in(about, entry)).sum(),
        Value::Object(fields) => {
            for (key, field) in fields {
                let is_right = match (key.as_str(), field) {
                    ("port", Value::Number(_)) => fields.get("name").is_some_and(Value::is_string),
                    // A packet created by the router, or a route that drops.
                    ("port", Value::Null) => fields.get("name").is_none_or(Value::is_null),
                    ("port", _) | ("dev" | "in", _) => false,
                    ("out", field) => field.is_null() || field["port"].is_number(),
                    ("device", field) => field.is_string(),
                    _ => true,
                };
                assert!(is_right, "{about}: {key} in {value}");
            }
            let here = usize::from(fields.get("port").is_some_and(Value::is_number));
            here + fields.values().map(|field| check_ports_in(about, field)).sum::<usize>()
        }
        _ => 0,
    }
}

#[test]
fn a_large_table_is_counted_between_other_requests() {
    let scratch = tempfile::tempdir().unwrap();
    let mut text = "blackhole 192.0.2.1/32\n".to_owned();
    (0..300_000_u32)
        .for_each(|at| text += &format!("{}/32 7\n", std::net::Ipv4Addr::from(0x2000_0000 + 4 * at)));
    let Some(forwarder) = Steered::run(scratch.path(), "counted", &text) else { return };
    for asks in ["show fib", "show routes"] {
        let connect = || UnixStream::connect(&forwarder.socket).unwrap();
        let is_between = || {
            let [long, short] = [connect(), connect()];
            for (stream, line) in [(&long, asks), (&short, "show config")] {
                writeln!(&mut &*stream, "{}", serde_json::json!({ "line": line })).unwrap();
            }
            let mut reply = String::new();
            BufReader::new(&short).read_line(&mut reply).unwrap();
            long.set_nonblocking(true).unwrap();
            BufReader::new(&long).read_line(&mut reply).is_err()
        };
        // This thread may be delayed between the two replies.
        assert!((0..20).any(|_| is_between()), "{asks} holds other requests up");
    }
    assert_eq!(number(&forwarder.ask("show fib"), "/blackhole"), 1);
    let of_hosts = |rows: &serde_json::Value| {
        let row = rows.as_array().unwrap().iter().find(|row| row["family"] == "ipv4" && row["length"] == 32);
        number(row.unwrap(), "/routes")
    };
    assert!(of_hosts(&forwarder.ask("show routes")) > 300_000);
    assert_eq!(forwarder.ask("show routes"), forwarder.ask("vrf default show routes"));
    assert!(forwarder.refuses("vrf nobody show fib").contains("nobody"));
    forwarder.end();
}

#[test]
fn an_operator_looks_at_it_and_changes_it() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(forwarder) = Steered::run(scratch.path(), "operator", "# none\n") else { return };
    forwarder.ask_until("show stats", |stats| number(stats, "/packets/tx") > 10_000);
    forwarder.ask_until("show drops", |drops| number(drops, "/no_route") > 0);
    let [lcores, queues, ports] =
        ["show lcores", "show queues", "show port stats all"].map(|w| forwarder.ask(w));
    assert!(number(&lcores, "/0/rx") > 0 && number(&lcores, "/0/stages/0/packets") > 0, "{lcores}");
    assert_eq!(queues.as_array().unwrap().len(), 8);
    assert!(number(&queues, "/0/packets") > 0 && number(&ports, "/1/tx") > 0, "{queues} {ports}");
    assert!(number(&forwarder.ask("show port xstats 0"), "/0/xstats/rx_good_packets") > 0);
    assert!(number(&forwarder.ask("show latency"), "/count") > 0);
    assert!(forwarder.refuses("show port info 9").contains("net_null3"));

    forwarder.ask("route add 192.0.2.0/24 via 198.18.0.1 dev 1");
    assert_eq!(forwarder.ask("route get 192.0.2.7")["next_hop"], "via 198.18.0.1 dev 1");
    assert!(forwarder.refuses("route add 192.0.3.0/24 via 198.18.0.1 dev 9").contains("port 9"));
    let warned = forwarder.ask("route add 192.0.3.0/24 via 203.0.113.9");
    let wanted = "the route cannot forward now: no port reaches gateway 203.0.113.9";
    assert_eq!(warned["warning"], wanted);
    assert_eq!(forwarder.ask("route add 192.0.3.0/24 via 203.0.113.9 dev 1"), serde_json::Value::Null);
    forwarder.ask("neigh add 198.18.0.1 lladdr 02:00:00:00:00:07 dev 1");
    let neighbours = forwarder.ask("show neigh");
    let shown = ["mac", "origin", "state"].map(|key| neighbours[0][key].as_str().unwrap());
    assert_eq!(shown, ["02:00:00:00:00:07", "static", "PERMANENT"]);
    forwarder.ask("clear neigh");
    assert!(forwarder.refuses("clear neigh 198.18.0.1").contains("not learned"));
    assert_eq!(forwarder.ask("show neigh").as_array().unwrap().len(), 1);
    forwarder.ask("neigh del 198.18.0.1");
    assert!(forwarder.refuses("neigh del 198.18.0.1").contains("198.18.0.1"));
    forwarder.ask("route del 192.0.2.0/24");
    assert!(forwarder.refuses("route del 192.0.2.0/24").contains("no route"));

    let trace = forwarder.ask("trace 40");
    let trace = trace.as_array().unwrap();
    assert_eq!(trace.len(), 40);
    for packet in trace {
        assert_ne!(packet["out"].is_null(), packet["dropped"].is_null(), "{packet}");
        assert!(!packet["addresses"].is_null(), "{packet}");
    }
    let capture = scratch.path().join("drops.pcapng");
    // The forwarder opens no path named by a client, which may lack permission to write it.
    let line = format!("capture drops {} 300", capture.display());
    std::fs::write(&capture, "somebody's").unwrap();
    let refusal = without_file(&forwarder.socket, &line);
    assert!(refusal.contains("must come with the file"), "{refusal}");
    assert_eq!(std::fs::read(&capture).unwrap(), b"somebody's");
    forwarder.ask(&line);
    let end = Instant::now() + Duration::from_secs(30);
    while comments(&capture, "no_route") < 300 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(comments(&capture, "no_route"), 300, "each packet has its reason");

    forwarder.ask("stop --drain");
    let packets = |forwarder: &Steered| number(&forwarder.ask("show stats"), "/packets/rx");
    let stopped = packets(&forwarder);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(packets(&forwarder), stopped);
    forwarder.ask("clear drops");
    assert_eq!(number(&forwarder.ask("show drops"), "/no_route"), 0);
    forwarder.ask("clear latency");
    assert_eq!(number(&forwarder.ask("show latency"), "/count"), 0);
    forwarder.ask("start");
    forwarder.ask_until("show stats", |stats| number(stats, "/packets/rx") > stopped);
    let (summary, _) = forwarder.end();
    let histogram = number(&summary, "/latency_ns/count");
    assert_eq!(histogram, number(&summary, "/packets/tx"), "what was looked at before is in the report");
    assert!(number(&summary, "/packets/drops/no_route") > 0, "the report has what a client had cleared");
}

#[test]
fn one_vrf_is_steered_beside_the_others() {
    let scratch = tempfile::tempdir().unwrap();
    let routes = scratch.path().join("red.txt");
    std::fs::write(&routes, "0.0.0.0/0 7001\n10.0.0.0/8 7002\n").unwrap();
    let red = format!("red={}", routes.display());
    for topology in ["run-to-completion", "pipeline"] {
        let extra = ["--topology", topology, "--spread", "--vrf", "red=1,net_ring_port3", "--vrf-fib", &red];
        let Some(forwarder) = Steered::replay(scratch.path(), &extra) else { return };
        let id = |words: &str| number(&forwarder.ask(words), "/id");
        let is_same = |vrf: &str| forwarder.ask(&format!("vrf {vrf} show fib")) == forwarder.ask("show fib");
        assert_eq!(number(&forwarder.ask("vrf red show fib"), "/routes_v4"), 2);
        assert!(!is_same("red"));
        // No packet of the trace has such a destination.
        forwarder.ask("vrf red route add 240.0.0.0/8 7");
        assert_eq!((id("vrf red route get 240.0.0.1"), id("vrf default route get 240.0.0.1")), (7, 0));
        forwarder.ask("route add 240.0.0.0/8 8");
        assert_eq!((id("vrf red route get 240.0.0.1"), id("route get 240.0.0.1")), (7, 8));
        forwarder.ask("vrf red route del 240.0.0.0/8");
        assert_eq!((id("vrf red route get 240.0.0.1"), id("route get 240.0.0.1")), (7001, 8));
        assert!(
            forwarder
                .refuses("vrf blue show fib")
                .contains("there is no VRF 'blue'; there are: default, red")
        );
        // The default VRF has IPv6 routes, which sail-m refuses; the engine serves the other VRF only.
        forwarder.ask("vrf red set engine sail-m");
        let engines = || {
            let vrfs = forwarder.ask("show vrfs");
            let of =
                |vrf: &serde_json::Value| format!("{} {} {}", vrf["name"], vrf["engine"], vrf["is_shared"]);
            vrfs.as_array().unwrap().iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(engines(), [r#""default" "host" false"#, r#""red" "sail-m" false"#]);
        assert!(forwarder.refuses("set engine sail-m").contains("VRF default"));
        forwarder.ask("set engine bloom");
        assert_eq!(engines(), [r#""default" "bloom" false"#, r#""red" "bloom" false"#]);
        let ports = forwarder.ask("show vrfs")[1]["ports"].clone();
        assert_eq!(ports, serde_json::json!(["net_ring_port1", "net_ring_port3"]));
        let before = number(&forwarder.ask("show stats"), "/packets/rx");
        forwarder.ask_until("show stats", |stats| number(stats, "/packets/rx") > before + 2000);
        let (summary, _) = forwarder.end();
        assert_eq!(summary["vrfs"][1]["name"], "red");
    }
}

#[test]
fn a_drain_tells_its_hook_first_and_goes_on_when_the_hook_fails() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = tempfile::tempdir().unwrap();
    let (hook, told) = (scratch.path().join("hook"), scratch.path().join("told"));
    let write = |end: &str| {
        std::fs::write(&hook, format!("#!/bin/sh\necho $1 >>{}\n{end}\n", told.display())).unwrap();
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    write("exit 3");
    let routes = bundled("routes.txt");
    let options = ["--fib", routes.to_str().unwrap(), "--drain-hook", hook.to_str().unwrap()];
    // The capture ends, as if the hook had moved the traffic elsewhere.
    let input = format!("rx_pcap={}", bundled("mix.pcap").display());
    let Some(forwarder) = Steered::run_with(scratch.path(), "drain", &input, &options) else { return };
    assert!(forwarder.refuses("stop --drain").contains("exit status: 3; forwarding continues"));
    write("exit 0");
    forwarder.ask("stop --drain");
    assert_eq!(std::fs::read_to_string(&told).unwrap(), "drain\ndrain\n");
    forwarder.ask("start");
    let end = Instant::now() + Duration::from_secs(30);
    while std::fs::read_to_string(&told).unwrap() != "drain\ndrain\nresume\n" {
        assert!(Instant::now() < end, "the hook is told that packets are received again");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (summary, _) = forwarder.end();
    assert!(number(&summary, "/packets/tx") > 0);
}

#[test]
fn several_paths_are_shown_with_their_shares_and_fail_without_a_delta() {
    let scratch = tempfile::tempdir().unwrap();
    let neighbour = |last: u8, port| format!("192.0.2.{last} lladdr 02:00:00:00:00:0{last} dev {port}");
    let text = "240.0.0.0/8\n nexthop via 192.0.2.1 dev 0 weight 3\n nexthop via 192.0.2.2 dev 1 weight 1\n";
    let text = format!("{text}neigh {}\nneigh {}\n", neighbour(1, 0), neighbour(2, 1));
    let Some(forwarder) = Steered::run(scratch.path(), "paths", &text) else { return };
    let alive = |address: &str| {
        let route = forwarder.ask(&format!("route get {address}"));
        let paths = route["paths"].as_array().unwrap().clone();
        let shares: f64 = paths.iter().map(|path| path["share"].as_f64().unwrap()).sum();
        assert!((shares - 1.0).abs() < 1e-9 || shares == 0.0, "{route}");
        paths.iter().map(|path| path["alive"].as_bool().unwrap()).collect::<Vec<_>>()
    };
    let fib = || {
        let fib = forwarder.ask("show fib");
        ["/generation", "/groups", "/paths", "/paths_alive"].map(|name| number(&fib, name))
    };
    let [generation, groups, paths, paths_alive] = fib();
    assert_eq!((groups, paths, paths_alive, alive("240.0.0.1")), (1, 2, 2, vec![true, true]));
    forwarder.ask("neigh del 192.0.2.1");
    assert_eq!((alive("240.0.0.1"), fib()), (vec![false, true], [generation, 1, 2, 1]));
    forwarder.ask(&format!("neigh add {}", neighbour(1, 0)));
    assert_eq!((alive("240.0.0.1"), fib()), (vec![true, true], [generation, 1, 2, 2]));
    forwarder.ask("route add 241.0.0.0/8 nexthop via 192.0.2.1 dev 0 nexthop via 192.0.2.9 dev 1");
    assert_eq!(alive("241.0.0.1"), [true, false]);
    let (summary, _) = forwarder.end();
    assert!(number(&summary, "/packets/tx") > 0);
}

const MAC: [u8; 6] = [2, 0x70, 0x63, 0x61, 0x70, 0];

fn to(address: u32, ttl: u8) -> Vec<u8> {
    let mut frame = v4_frame(0xc612_0102, address, 60, &[]);
    frame[..6].copy_from_slice(&MAC);
    // One's complement: the checksum grows by as much as the TTL shrinks.
    frame[24] += frame[22] - ttl;
    frame[22] = ttl;
    frame
}

#[test]
fn what_the_router_gets_is_traced() {
    for topology in ["run-to-completion", "pipeline"] {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        // For the router, whose UDP ports are closed without a TAP; expired; without a route.
        write_pcap(&path("in.pcap"), &[to(0xc612_0101, 64), to(10 << 24 | 1, 1), to(0xcb00_7101, 64)]);
        std::fs::write(path("routes.txt"), "10.0.0.0/8 2\n").unwrap();
        let input = format!("rx_pcap={},infinite_rx=1", path("in.pcap").display());
        let vdevs = [format!("net_pcap0,{input},tx_pcap=/dev/null"), "net_null1,no-rx=1".to_owned()];
        let routes = path("routes.txt");
        let options =
            ["--fib", routes.to_str().unwrap(), "--address", "0=198.18.1.1/24", "--topology", topology];
        let name = format!("seen-{topology}");
        let Some(forwarder) = Steered::over(scratch.path(), &name, &options, &vdevs) else { return };
        let mut punted = std::collections::BTreeSet::new();
        // On a busy host the router may drop all packets of a trace as punt_full.
        for _ in 0..100 {
            let trace = forwarder.ask("trace 90");
            for packet in trace.as_array().unwrap() {
                assert!(packet["out"].is_null(), "two ports, and nothing is sent: {packet}");
                assert_ne!(packet["punted"].is_null(), packet["dropped"].is_null(), "{packet}");
                punted.extend(packet["punted"].as_str().map(str::to_owned));
            }
            if punted.contains("for_us") {
                break;
            }
        }
        assert!(punted.contains("for_us"), "{punted:?}");
        let text =
            fwd_app(&["ctl", "--timeout", "60", "trace", "9", "--socket"]).arg(&forwarder.socket).output();
        let text = String::from_utf8(text.unwrap().stdout).unwrap();
        assert!(text.contains("verdict  to the router: for_us"), "{text}");
        assert!(!text.contains("rewrite") && !text.contains("port 2"), "{text}");

        forwarder.end();
    }
}

#[test]
fn what_the_router_drops_is_captured() {
    let bench = PortBench::new();
    let (trace, routes, capture) =
        (bench.path("in.pcap"), bench.path("routes.txt"), bench.path("drops.pcapng"));
    // Five for the router, whose UDP ports are closed without a TAP; one expired; one without a route.
    let frames = [vec![to(0xc612_0101, 64); 5], vec![to(10 << 24 | 1, 1), to(0xcb00_7101, 64)]].concat();
    write_pcap(&trace, &frames);
    std::fs::write(&routes, "10.0.0.0/8 1\n").unwrap();
    let capturing = format!("{},100", capture.display());
    let options = [&SHORT[..], &["--address", "0=198.18.1.1/24", "--capture-drops", &capturing]].concat();
    let Some(output) = ran(bench.run(&routes, &options, &[bench.vdev(0, &trace)])) else { return };
    let wanted = [("no_route", 1), ("not_for_us", 5), ("ttl_expired", 1)];
    assert_eq!(drops(&bench.summary(&output)), wanted.map(|(reason, count)| (reason.to_owned(), count)));
    let captured = |reason: &str| u64::try_from(comments(&capture, reason)).unwrap();
    assert_eq!(wanted.map(|(reason, _)| (reason, captured(reason))), wanted, "{}", stderr(&output));
}
