//! The routes in service: listed, loaded by another forwarder, compared with files, in large numbers.

use crate::forwarder::Steered;
use crate::support::{fwd_app, is_full, number, read_pcap, stderr, v4_frame, v6_frame, write_pcap};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

/// Routes of every kind, in list order.
const EVERY_KIND: &str = "\
0.0.0.0/0 16777215
10.0.0.0/8 7
blackhole 10.1.0.0/16
prohibit 10.1.0.0/17
unreachable 10.1.0.0/18
10.2.0.0/16 via 192.0.2.1
10.2.1.0/24 via 192.0.2.1 dev 1
10.2.2.0/24 via 192.0.2.1 dev net_null1
10.2.3.0/24 via inet6 fe80::1 dev 1
10.2.4.0/24 dev 1
10.3.0.0/16 nexthop via 192.0.2.1 dev 1 weight 2 nexthop dev 0 weight 1
R10.4.0.0/16 1
10.5.6.7/32 7
::/0 via fe80::2 dev net_null0
2001:db8::/32 9
2001:db8::/48 via inet 192.0.2.1 dev 1
2001:db8:1::/48 nexthop via fe80::1 dev 0 weight 1 nexthop via fe80::1 dev 1 weight 65535
unreachable 2001:db8:2::/48
2001:db8:3::1/128 dev net_null1
";

fn every_kind_listed() -> String {
    EVERY_KIND.replace("dev net_null", "dev ")
}

fn start(folder: &Path, name: &str, routes: &Path, options: &[&str]) -> Option<Steered> {
    let vdevs = ["net_null0,no-rx=1".to_owned(), "net_null1,no-rx=1".to_owned()];
    let options = [&["--fib", routes.to_str().unwrap()], options].concat();
    Steered::over(folder, name, &options, &vdevs)
}

fn ctl(forwarder: &Steered, words: &[&str]) -> Output {
    fwd_app(&["ctl", "--timeout", "60", "--socket"]).arg(&forwarder.socket).args(words).output().unwrap()
}

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn what_is_listed_is_read_again_as_the_same_routes() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let address = ["--address", "0=192.0.2.254/24", "--address", "1=2001:db8:7::1/64"];
    let (first, second) = (path("first.txt"), path("second.txt"));
    let mut lines: Vec<_> = EVERY_KIND.lines().collect();
    lines.reverse();
    std::fs::write(&first, lines.join("\n")).unwrap();
    let list = |name: &str, routes: &Path| {
        let forwarder = start(scratch.path(), name, routes, &address)?;
        let listed = text(&ctl(&forwarder, &["route", "list"]));
        // Routes of addresses are in no file, so the diff covers the others.
        let of_files = text(&ctl(&forwarder, &["route", "list", "source", "files"]));
        assert_eq!(
            text(&ctl(&forwarder, &["route", "diff", first.to_str().unwrap(), "source", "files"])),
            ""
        );
        forwarder.end();
        Some((listed, of_files))
    };
    let Some((listed, of_files)) = list("list-first", &first) else { return };
    assert_eq!(of_files, every_kind_listed());
    let own: Vec<_> = listed.lines().filter(|line| !of_files.contains(line)).collect();
    let wanted = ["# local 192.0.2.254/32", "# local 192.0.2.255/32", "# local 2001:db8:7::1/128"];
    assert_eq!(
        own,
        [&["192.0.2.0/24 dev 0"], &wanted[..2], &["2001:db8:7::/64 dev 1"], &wanted[2..]].concat()
    );
    std::fs::write(&second, &listed).unwrap();
    let again = list("list-second", &second).unwrap();
    assert_eq!(again.0, listed);
}

#[test]
fn the_list_has_sources_and_the_difference_to_a_file_is_a_failure() {
    let scratch = tempfile::tempdir().unwrap();
    let routes = scratch.path().join("routes.txt");
    std::fs::write(&routes, EVERY_KIND).unwrap();
    let Some(forwarder) = start(scratch.path(), "list-diff", &routes, &[]) else { return };
    let diff =
        |more: &[&str]| ctl(&forwarder, &[&["route", "diff", routes.to_str().unwrap()], more].concat());
    assert_eq!(text(&diff(&[])), "");
    forwarder.ask("route add 10.0.0.0/8 via 192.0.2.9 dev 0");
    forwarder.ask("route add 10.9.0.0/16 5");
    forwarder.ask("route del 2001:db8::/32");
    let differs = diff(&[]);
    let wanted = "- 10.0.0.0/8 7\n+ 10.0.0.0/8 via 192.0.2.9 dev 0\n+ 10.9.0.0/16 5\n- 2001:db8::/32 9\n";
    assert_eq!((differs.status.code(), String::from_utf8_lossy(&differs.stdout).as_ref()), (Some(1), wanted));
    assert!(stderr(&differs).contains("2 of the file are not in service, 2 in service are not in the file"));
    assert_eq!(diff(&["source", "ctl"]).status.code(), Some(1));
    let json = scratch.path().join("routes.json");
    let convert = ["fib", "convert", routes.to_str().unwrap(), "--to", "json", "-o", json.to_str().unwrap()];
    assert!(fwd_app(&convert).status().unwrap().success());
    assert_eq!(ctl(&forwarder, &["route", "diff", json.to_str().unwrap()]).stdout, differs.stdout);
    let absent = ctl(&forwarder, &["route", "diff", "/absent"]);
    assert!(absent.status.code() == Some(1) && stderr(&absent).contains("/absent"));
    assert!(
        forwarder
            .refuses("route list source fpm")
            .contains("there is no source 'fpm'; there are: addresses, ctl, files")
    );

    let list = |words: &str| {
        let output = forwarder.output(words);
        let lines = text(&output);
        lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()).collect::<Vec<_>>()
    };
    let of_ctl = serde_json::json!([
        { "prefix": "10.0.0.0/8", "id": list("route list 10.0.0.0/8")[0]["id"], "next_hop": "via 192.0.2.9 dev 0", "source": "ctl" },
        { "prefix": "10.9.0.0/16", "id": 5, "next_hop": "a bare id", "source": "ctl" },
    ]);
    assert_eq!(serde_json::Value::from(list("route list source ctl")), of_ctl);
    assert_eq!(list("route list").len(), EVERY_KIND.lines().count());
    let prefixes =
        |words: &str| list(words).iter().map(|route| route["prefix"].to_string()).collect::<String>();
    assert_eq!(prefixes("route list 10.2.0.0/22 longer"), r#""10.2.1.0/24""10.2.2.0/24""10.2.3.0/24""#);
    assert_eq!(
        prefixes("route list 2001:db8::/32 longer source files after 2001:db8:2::/48"),
        r#""2001:db8:3::1/128""#
    );
    assert_eq!(prefixes("vrf default route list 10.5.6.7/32"), r#""10.5.6.7/32""#);
    assert!(list("route list stale").is_empty() && list("route list 10.0.0.0/9").is_empty());
    forwarder.end();
}

#[test]
fn many_routes_are_listed_in_little_memory_and_a_reader_that_stops_holds_up_nobody() {
    const ROUTES: u32 = 300_000;
    // A third of the list as text.
    const MORE_BYTES: u64 = 2 << 20;
    let scratch = tempfile::tempdir().unwrap();
    let routes = scratch.path().join("routes.txt");
    let mut table = String::new();
    for route in 0..ROUTES {
        let [a, b, c, d] = (0x0a00_0000 + (route << 6)).to_be_bytes();
        let _ = writeln!(table, "{a}.{b}.{c}.{d}/{} {}", 26 + route % 7, route % 1000 + 1);
    }
    std::fs::write(&routes, &table).unwrap();
    let Some(forwarder) = start(scratch.path(), "list-million", &routes, &["--engine", "oracle"]) else {
        return;
    };
    // Memory for a part of the list is allocated once.
    assert_eq!(text(&ctl(&forwarder, &["route", "list", "10.0.0.0/16", "longer"])).lines().count(), 1024);
    let before = forwarder.resident_bytes();
    let listed = ctl(&forwarder, &["route", "list"]);
    assert!(text(&listed) == table, "{} bytes of {}", listed.stdout.len(), table.len());
    let grown = forwarder.resident_bytes().saturating_sub(before);
    assert!(grown < MORE_BYTES, "{} KB more for a list of {} KB", grown >> 10, table.len() >> 10);

    let mut command = fwd_app(&["ctl", "--json", "route", "list", "--socket"]);
    let mut reader = command.arg(&forwarder.socket).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(reader.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(
        line.starts_with(r#"{"prefix":"10.0.0.0/26","id":1,"next_hop":"a bare id","source":"files"}"#),
        "{line}"
    );
    let clients = || forwarder.ask("show feeds")[1]["clients"].as_u64().unwrap();
    // Each `ctl` is a client, so the reader does not reconnect.
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let seen = clients();
        std::thread::sleep(Duration::from_millis(200));
        if clients() == seen + 1 {
            break;
        }
        assert!(Instant::now() < end, "the reader does not stop");
    }
    assert!(forwarder.resident_bytes().saturating_sub(before) < MORE_BYTES);
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest.lines().count(), ROUTES as usize - 1);
    assert!(reader.wait().unwrap().success());
    // A client that disconnects early is no failure.
    let mut command = fwd_app(&["ctl", "route", "list", "--socket"]);
    let mut reader = command.arg(&forwarder.socket).stdout(Stdio::piped()).spawn().unwrap();
    drop(reader.stdout.take());
    assert!(reader.wait().unwrap().success());
    assert_eq!(text(&ctl(&forwarder, &["route", "diff", routes.to_str().unwrap()])), "");
    forwarder.end();
}

const PATHS: &str = "\
10.0.0.0/8 nexthop via 192.0.2.1 dev 0 weight 1 nexthop via 192.0.2.2 dev 1 weight 2
2001:db8::/32 nexthop via fe80::1 dev 0 weight 1 nexthop via fe80::2 dev net_pcap1 weight 1
11.0.0.0/8 via 172.16.0.1
172.16.0.0/16 via 192.0.2.2
12.0.0.0/8 via 192.0.2.9 dev 1
13.0.0.0/8 3
14.0.0.0/8 dev 1
blackhole 15.0.0.0/8
neigh 192.0.2.1 lladdr 02:00:00:00:00:01 dev 0
neigh 192.0.2.2 lladdr 02:00:00:00:00:02 dev net_pcap1
neigh 14.0.0.7 lladdr 02:00:00:00:00:07 dev 1
neigh fe80::1 lladdr 02:00:00:00:00:11 dev 0
neigh fe80::2 lladdr 02:00:00:00:00:12 dev 1
";

/// A forwarder with the routes of [`PATHS`] whose first port receives `frames`. Port 1 has an address. Port P writes to outP.pcap.
fn start_paths(folder: &Path, name: &str, frames: &[Vec<u8>]) -> Option<Steered> {
    let path = |name: &str| folder.join(name).display().to_string();
    std::fs::write(path("routes.txt"), PATHS).unwrap();
    write_pcap(Path::new(&path("in.pcap")), frames);
    write_pcap(Path::new(&path("none.pcap")), &[]);
    let vdevs = ["in", "none"].iter().zip(0..).map(|(input, port)| {
        let [input, output] = [path(&format!("{input}.pcap")), path(&format!("out{port}.pcap"))];
        format!("net_pcap{port},rx_pcap={input},tx_pcap={output}")
    });
    let options = ["--fib", &path("routes.txt"), "--address", "1=198.51.100.1/24"];
    Steered::over(folder, name, &options, &vdevs.collect::<Vec<_>>())
}

#[test]
fn an_address_has_its_source_its_neighbour_and_why_its_packets_are_dropped() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(forwarder) = start_paths(scratch.path(), "towards", &[]) else { return };
    let neighbour = |address: &str| {
        let route = forwarder.ask(&format!("route get {address}"));
        let of = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let [source, port, mac, dropped] = ["source", "name", "mac", "dropped"].map(|key| of(&route[key]));
        let neighbour = ["address", "mac", "state", "origin"].map(|key| of(&route["neighbour"][key]));
        format!("{source} {port} {mac} {dropped} {}", neighbour.join(" "))
    };
    for (address, wanted) in [
        ("11.1.1.1", "files net_pcap1 02:00:00:00:00:02 - 192.0.2.2 02:00:00:00:00:02 PERMANENT static"),
        ("12.1.1.1", "files net_pcap1 - no_neighbour 192.0.2.9 -"),
        ("13.1.1.1", "files net_pcap0 02:00:00:00:00:03 - - - - -"),
        ("14.0.0.7", "files net_pcap1 02:00:00:00:00:07 - 14.0.0.7 02:00:00:00:00:07 PERMANENT static"),
        ("14.0.0.8", "files net_pcap1 - no_neighbour 14.0.0.8 -"),
        ("15.1.1.1", "files - - blackhole - - - -"),
        ("198.51.100.1", "addresses - - - - - - -"),
    ] {
        // The router resolves the missing neighbour, so its state varies.
        let found = neighbour(address);
        assert!(found.starts_with(wanted), "{address}: {found}");
    }
    let words = text(&ctl(&forwarder, &["route", "get", "11.1.1.1"]));
    let wanted = "neighbour 192.0.2.2 static PERMANENT 02:00:00:00:00:02 on port 1 (net_pcap1)";
    assert!(words.contains("source files") && words.contains(wanted), "{words}");
    let flow = forwarder.ask("route get 13.1.1.1 from 192.0.2.1 proto tcp ports 1,2");
    assert_eq!((&flow["flow_path"]["port"], &flow["flow_path"]["name"]), (&0.into(), &"net_pcap0".into()));

    let shown = forwarder.ask("show addresses");
    let origins: Vec<_> = shown.as_array().unwrap().iter().map(|at| at["origin"].clone()).collect();
    assert_eq!(
        (origins, &shown[0]["name"]),
        (vec!["configured".into(), "link-local".into()], &"net_pcap1".into())
    );
    let neighbours = text(&ctl(&forwarder, &["show", "neigh"]));
    let of_first: Vec<_> =
        neighbours.lines().skip(1).map(|line| line.trim_start().starts_with("0  net_pcap0")).collect();
    assert!(of_first.is_sorted_by(|a, b| a >= b) && of_first[1] && !of_first[2], "{neighbours}");
    assert_eq!(text(&ctl(&forwarder, &["show", "drops"])), "no drops\n");
    assert_eq!(forwarder.ask("show drops").as_object().unwrap().len(), 18 + 1);
    forwarder.end();
}

#[test]
fn a_flow_is_said_to_take_the_path_that_its_packets_take() {
    let scratch = tempfile::tempdir().unwrap();
    let of_a_family = if is_full() { 100 } else { 40 };
    // The ports are the first bytes of the payload: 1 and 515.
    let v4 = (0..of_a_family).map(|n| v4_frame(0xc000_0200 + n, 0x0a01_0203 + n % 7, 100, &[]));
    let v6 = (0..of_a_family)
        .map(|n| v6_frame(0x2001_0db9 << 96 | u128::from(n), 0x2001_0db8 << 96 | 7, 100, &[]));
    let frames: Vec<_> = v4.chain(v6).collect();
    let Some(forwarder) = start_paths(scratch.path(), "flows", &frames) else { return };
    let mut said = BTreeMap::new();
    let mut ask = |source: IpAddr, destination: IpAddr| {
        let route = forwarder.ask(&format!("route get {destination} from {source} proto udp ports 1,515"));
        said.insert(source, (route["flow_path"]["port"].clone(), route["flow_path"]["mac"].clone()));
    };
    for n in 0..of_a_family {
        ask(Ipv4Addr::from(0xc000_0200 + n).into(), Ipv4Addr::from(0x0a01_0203 + n % 7).into());
        ask(Ipv6Addr::from(0x2001_0db9 << 96 | u128::from(n)).into(), "2001:db8::7".parse().unwrap());
    }
    forwarder.ask_until("show stats", |stats| number(stats, "/packets/tx") >= u64::from(2 * of_a_family));
    forwarder.end();
    let mut sent = BTreeMap::new();
    for port in 0..2 {
        for (_, frame) in read_pcap(&scratch.path().join(format!("out{port}.pcap"))) {
            let source: IpAddr = match frame[12] {
                0x08 => <[u8; 4]>::try_from(&frame[26..30]).unwrap().into(),
                _ => <[u8; 16]>::try_from(&frame[22..38]).unwrap().into(),
            };
            let mac = frame[..6].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
            sent.insert(source, (Value::from(port), Value::from(mac)));
        }
    }
    // The router's own requests to neighbours are no flows.
    sent.retain(|source, _| said.contains_key(source));
    assert_eq!(sent, said);
    let first = said.values().filter(|(port, _)| *port == 0).count();
    let a_fifth = said.len() / 5;
    assert!((a_fifth..4 * a_fifth).contains(&first), "{first} of {}", said.len());
}
