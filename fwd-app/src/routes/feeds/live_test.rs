//! The feeds with FRR's zebra, bgpd and staticd, bird2 and the kernel, in a network namespace. Needs root, FRR (8.4 or newer) and bird2:
//!
//! ```text
//! cargo test -p fwd-app --features testing --lib -- --ignored --nocapture feeds::live
//! ```
//!
//! A test runs itself again within `unshare --net`. The table that the feed has announced must become the table that zebra or the kernel
//! shows: after the load, after changes, and after zebra was killed and restarted.

use super::fpm::FpmOptions;
use super::fpm::listener::listen;
use super::heard::HeardRoutes;
use super::kernel::KernelOptions;
use super::kernel::socket::watch;
use super::thread::FeedThread;
use super::{ChangeSet, FeedEvent, Path, Route};
use crossbeam_channel::{Receiver, bounded};
use fib::IpPrefix;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path as FilePath;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

const INSIDE: &str = "FWD_FEEDS_LIVE";
const BGP_ROUTES: u32 = 50_000;

/// Treatment of a prefix, in a form common to zebra, the kernel and the feed.
type ShownRoutes = BTreeMap<String, BTreeSet<String>>;

/// Runs the test `name` again in a separate network namespace. Returns whether this is the inner run.
fn inside(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let test = format!("routes::feeds::live::{name}");
    let status = Command::new("unshare")
        .args(["--net", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &test, "--ignored", "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(status.success(), "{name} failed in its namespace");
    false
}

pub(crate) fn say(text: impl Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn sh(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

struct Daemon(Child);

impl Daemon {
    fn start(command: &str) -> Self {
        let command = format!("exec {command}");
        Self(
            Command::new("sh")
                .args(["-c", &command])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

fn interfaces() {
    sh("ip link set lo up
        ip link add v0 type veth peer name v1 && ip link add w0 type veth peer name w1
        for i in v0 v1 w0 w1; do echo 1 > /proc/sys/net/ipv6/conf/$i/disable_ipv6; ip link set $i up; done
        echo 0 > /proc/sys/net/ipv6/conf/v0/disable_ipv6
        ip addr add 203.0.113.1/32 dev lo && ip addr add 203.0.113.2/32 dev lo
        ip addr add 192.0.2.1/24 dev v0 && ip addr add 198.51.100.1/24 dev w0
        ip addr add 2001:db8::1/64 dev v0 nodad");
}

struct Consumer {
    receiver: Receiver<ChangeSet>,
    table: HeardRoutes,
    changes: usize,
    withdrawn: usize,
    feed: FeedThread,
}

impl Consumer {
    fn new(feed: FeedThread, receiver: Receiver<ChangeSet>) -> Self {
        Self { receiver, table: HeardRoutes::default(), changes: 0, withdrawn: 0, feed }
    }

    /// Consumes events until `until`, or until `is_last` accepts one. Returns whether it did.
    fn consume_until(&mut self, until: Instant, is_last: impl Fn(&FeedEvent) -> bool) -> bool {
        while let Ok(set) = self.receiver.recv_deadline(until) {
            self.table.apply(&set.events);
            let count = |is: fn(&&FeedEvent) -> bool| set.events.iter().filter(is).count();
            self.changes += count(|event| matches!(event, FeedEvent::Announce { .. }));
            self.withdrawn += count(|event| matches!(event, FeedEvent::Withdraw { .. }));
            if set.events.iter().any(&is_last) {
                return true;
            }
        }
        false
    }

    fn shown(&self) -> ShownRoutes {
        let is_link_local = |text: &str| text.starts_with("fe80:") || text.starts_with("ff00:");
        let held = self.table.all().into_iter();
        let held = held.map(|(prefix, route)| (prefix.to_string(), shown_of(route)));
        held.filter(|(prefix, _)| !is_link_local(prefix)).collect()
    }

    fn becomes(&mut self, what: &str, wanted: impl Fn() -> ShownRoutes) {
        let start = Instant::now();
        loop {
            self.consume_until(Instant::now() + Duration::from_millis(300), |_| false);
            let (held, wanted) = (self.shown(), wanted());
            if held == wanted && wanted.len() > 3 {
                break;
            }
            if start.elapsed() > Duration::from_secs(60) {
                let differ = wanted.iter().filter(|(prefix, is)| held.get(*prefix) != Some(*is)).take(5);
                let beyond = held.keys().filter(|prefix| !wanted.contains_key(*prefix)).take(5);
                panic!(
                    "{what}: {} held, {} wanted; missing or other: {:?}; beyond: {:?}",
                    held.len(),
                    wanted.len(),
                    differ.collect::<Vec<_>>(),
                    beyond.collect::<Vec<_>>()
                );
            }
        }
        say(format_args!(
            "{what}: {} routes equal after {:.1} s, {} changes, {} withdrawals so far",
            self.table.all().len(),
            start.elapsed().as_secs_f64(),
            self.changes,
            self.withdrawn
        ));
    }
}

fn shown_of(route: &Route) -> BTreeSet<String> {
    match route {
        Route::Paths(paths) => paths
            .iter()
            .map(|Path { gateway, ifindex, .. }| match gateway {
                Some(gateway) => format!("{gateway} {ifindex}"),
                None => format!("link {ifindex}"),
            })
            .collect(),
        Route::Blackhole => BTreeSet::from(["blackhole".into()]),
        Route::Prohibit => BTreeSet::from(["prohibit".into()]),
        _ => BTreeSet::from(["unreachable".into()]),
    }
}

/// FRR with one configuration, given to all daemons by vtysh: the split between daemons differs between FRR 8 and FRR 10.
struct Frr {
    /// FRR's name for this instance (option `-N`).
    name: String,
    configuration: NamedTempFile,
}

impl Frr {
    fn new(configuration: &str) -> Self {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(configuration.as_bytes()).unwrap();
        sh("[ -d /run/frr ] || install -d -o frr -g frr /run/frr");
        Self { name: format!("live-{}", std::process::id()), configuration: file }
    }

    /// Starts a daemon and waits until it answers; `None` if this release of FRR lacks it.
    fn start(&self, daemon: &str, more: &str) -> Option<Daemon> {
        let program = format!("/usr/lib/frr/{daemon}");
        FilePath::new(&program).exists().then(|| {
            let started = Daemon::start(&format!("{program} -N {} -u frr -g frr -P 0 {more}", self.name));
            let ask = format!("-d {daemon} -c 'show version'");
            sh(&format!("for i in $(seq 100); do {} && exit; sleep 0.1; done; exit 1", self.vtysh(&ask)));
            started
        })
    }

    /// Sends the daemons their configuration; `only` may name one of them.
    fn configure(&self, only: &str) {
        sh(&self.vtysh(&format!("{only} -f {}", self.configuration.path().display())));
    }

    fn vtysh(&self, arguments: &str) -> String {
        format!("vtysh --vty_socket /run/frr/{} {arguments}", self.name)
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        sh(&format!("rm -rf /run/frr/{0} /var/lib/frr/{0}", self.name));
    }
}

fn zebra_shows(frr: &Frr) -> ShownRoutes {
    let mut shown = ShownRoutes::new();
    for family in ["ip", "ipv6"] {
        let text = sh(&frr.vtysh(&format!("-c 'show {family} route json'")));
        let Ok(Value::Object(routes)) = serde_json::from_str(&text) else { continue };
        for (prefix, entries) in routes {
            let entries = entries.as_array().unwrap();
            let Some(best) = entries.iter().find(|entry| entry["selected"] == true) else { continue };
            let hops = best["nexthops"].as_array().unwrap().iter().filter(|hop| hop["fib"] == true);
            let hops = hops.map(|hop| match (hop["ip"].as_str(), &hop["interfaceIndex"]) {
                _ if hop["blackhole"] == true => "blackhole".to_owned(),
                _ if hop["unreachable"] == true => "unreachable".to_owned(),
                (Some(ip), ifindex) => format!("{} {ifindex}", ip.parse::<IpAddr>().unwrap()),
                (None, ifindex) => format!("link {ifindex}"),
            });
            if !prefix.starts_with("fe80:") {
                shown.insert(prefix, hops.collect());
            }
        }
    }
    shown
}

fn bird_conf(routes: impl Iterator<Item = (u32, u8)>) -> String {
    let mut text = String::from(
        "log stderr { fatal }; router id 203.0.113.1;
protocol device {}
protocol bgp { local 203.0.113.1 port 1790 as 65002; neighbor 203.0.113.2 as 65001; multihop; passive yes; strict bind;
  ipv4 { import none; export filter { bgp_next_hop = gw; accept; }; }; }
protocol static { ipv4;\n",
    );
    for (number, via) in routes {
        let [_, a, b, c] = number.to_be_bytes();
        text += &format!("route {}.{b}.{c}.0/24 via 192.0.2.{via};\n", 20 + a);
    }
    text + "}\n"
}

#[test]
#[ignore = "needs root, FRR and bird2"]
#[expect(clippy::too_many_lines, reason = "one story, in its order")]
fn the_table_is_zebras_after_load_changes_and_a_kill() {
    if !inside("the_table_is_zebras_after_load_changes_and_a_kill") {
        return;
    }
    interfaces();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (sender, receiver) = bounded(64);
    let user = nix::unistd::User::from_name("frr").unwrap().unwrap().uid.as_raw();
    let options = FpmOptions { hold: Duration::from_secs(45), users: vec![user], ..FpmOptions::default() };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (feed, address) = listen(any, options, sender, bounded(0).1).unwrap();
    let mut consumer = Consumer::new(feed, receiver);

    let statics = "ip route 10.1.0.0/16 192.0.2.2\nip route 10.2.0.0/16 192.0.2.2\nip route 10.2.0.0/16 198.51.100.2
ip route 10.3.0.0/16 blackhole\nip route 10.4.0.0/16 reject\nip route 0.0.0.0/0 192.0.2.254
ip route 10.5.0.0/16 192.0.2.7\nipv6 route 2001:db8:1::/48 2001:db8::2\nipv6 route 2001:db8:2::/48 blackhole\n";
    let bgp = "router bgp 65001\n bgp router-id 203.0.113.2\n no bgp ebgp-requires-policy
 neighbor 203.0.113.1 remote-as 65002\n neighbor 203.0.113.1 port 1790\n neighbor 203.0.113.1 ebgp-multihop
 neighbor 203.0.113.1 update-source 203.0.113.2\n neighbor 203.0.113.1 timers connect 1\n";
    let frr = Frr::new(&format!("fpm address 127.0.0.1 port {}\n{statics}{bgp}", address.port()));
    // Both gateways occur from the start: bgpd withdraws routes to one that it must first query zebra for.
    let routes = (0..BGP_ROUTES).map(|number| (number, if number == 2 { 3 } else { 2 }));
    std::fs::write(at.join("bird.conf"), bird_conf(routes)).unwrap();
    let mut zebra = frr.start("zebra", "-M dplane_fpm_nl").unwrap();
    let _others = [("mgmtd", ""), ("staticd", ""), ("bgpd", "-p 1790 -l 203.0.113.2")]
        .map(|(name, more)| frr.start(name, more));
    frr.configure("");
    let bird = at.join("bird.conf");
    let _bird = Daemon::start(&format!("bird -f -c {0} -s {0}.ctl", bird.display()));
    let count = |consumer: &mut Consumer, least: usize| {
        let until = Instant::now() + Duration::from_secs(60);
        while consumer.table.all().len() < least && Instant::now() < until {
            consumer.consume_until(Instant::now() + Duration::from_millis(100), |_| false);
        }
    };
    count(&mut consumer, BGP_ROUTES as usize);
    consumer.becomes("load", || zebra_shows(&frr));

    let before = consumer.withdrawn;
    let left = (0..BGP_ROUTES).filter(|number| number % 10 != 0);
    std::fs::write(&bird, bird_conf(left.map(|number| (number, if number % 2 == 0 { 3 } else { 2 }))))
        .unwrap();
    sh(&format!("birdc -s {}.ctl configure", bird.display()));
    let vtysh = |commands: &[&str]| {
        let commands: String = commands.iter().map(|command| format!(" -c '{command}'")).collect();
        sh(&frr.vtysh(&commands))
    };
    vtysh(&[
        "conf t",
        "no ip route 10.1.0.0/16 192.0.2.2",
        "ip route 10.1.0.0/16 198.51.100.2",
        "no ip route 10.3.0.0/16 blackhole",
    ]);
    let until = Instant::now() + Duration::from_secs(60);
    while consumer.withdrawn < before + BGP_ROUTES as usize / 10 && Instant::now() < until {
        consumer.consume_until(Instant::now() + Duration::from_millis(100), |_| false);
    }
    consumer.becomes("changes", || zebra_shows(&frr));
    say(format_args!(
        "withdrawals for {} routes that went: {}",
        BGP_ROUTES / 10 + 1,
        consumer.withdrawn - before
    ));
    assert!(consumer.withdrawn - before <= BGP_ROUTES as usize / 10 + 5, "a replaced route is no gap");
    sh("ip link set w1 down");
    std::thread::sleep(Duration::from_secs(2));
    consumer.becomes("a link without carrier", || zebra_shows(&frr));
    sh("ip link set w1 up");
    std::thread::sleep(Duration::from_secs(2));
    consumer.becomes("the link again", || zebra_shows(&frr));

    let held = consumer.shown();
    zebra.kill();
    assert!(
        consumer.consume_until(Instant::now() + Duration::from_secs(5), |event| *event == FeedEvent::Stale)
    );
    assert!(consumer.shown() == held, "the routes stay");
    vtysh(&["conf t", "no ip route 10.5.0.0/16 192.0.2.7"]);
    let (withdrawn, start) = (consumer.withdrawn, Instant::now());
    let _zebra = frr.start("zebra", "-M dplane_fpm_nl");
    frr.configure("-d zebra");
    assert!(
        consumer.consume_until(Instant::now() + Duration::from_secs(90), |event| *event == FeedEvent::Sweep)
    );
    say(format_args!(
        "swept {:.1} s after the start, {} withdrawals",
        start.elapsed().as_secs_f64(),
        consumer.withdrawn - withdrawn
    ));
    consumer.becomes("zebra again", || zebra_shows(&frr));
    // The number of routes depends on the progress of bgpd; the tables are equal.
    assert!(!consumer.shown().contains_key("10.5.0.0/16"));
}

fn kernel_shows() -> ShownRoutes {
    let mut shown = ShownRoutes::new();
    let links: Value = serde_json::from_str(&sh("ip -j link")).unwrap();
    let index = |name: &Value| {
        let link = links.as_array().unwrap().iter().find(|link| link["ifname"] == *name);
        link.map_or(0, |link| link["ifindex"].as_u64().unwrap())
    };
    for family in ["-4", "-6"] {
        let routes: Value =
            serde_json::from_str(&sh(&format!("ip {family} -j -d route show table main"))).unwrap();
        for route in routes.as_array().unwrap() {
            let dst = route["dst"].as_str().unwrap();
            let all = if family == "-4" { "0.0.0.0/0" } else { "::/0" };
            let dst =
                if dst == "default" { all.to_owned() } else { dst.parse::<IpPrefix>().unwrap().to_string() };
            let hop = |hop: &Value| match hop["gateway"].as_str().or(hop["via"]["host"].as_str()) {
                Some(gateway) => format!("{gateway} {}", index(&hop["dev"])),
                None => format!("link {}", index(&hop["dev"])),
            };
            let is_dead =
                |hop: &Value| hop["flags"].as_array().is_some_and(|flags| flags.contains(&"dead".into()));
            let is = match route["type"].as_str() {
                Some(kind @ ("blackhole" | "unreachable" | "prohibit")) => BTreeSet::from([kind.to_owned()]),
                _ => match route["nexthops"].as_array() {
                    Some(hops) => hops.iter().filter(|hop| !is_dead(hop)).map(hop).collect(),
                    None => BTreeSet::from([hop(route)]),
                },
            };
            if !dst.starts_with("fe80:") {
                shown.entry(dst).or_insert(is); // the best metric comes first
            }
        }
    }
    shown
}

#[test]
#[ignore = "needs root"]
fn the_table_is_the_kernels_after_load_changes_and_an_overrun() {
    if !inside("the_table_is_the_kernels_after_load_changes_and_an_overrun") {
        return;
    }
    interfaces();
    sh("ip route add 10.1.0.0/16 via 192.0.2.2 && ip route add 10.1.0.0/16 via 192.0.2.3 metric 100
        ip route add 10.2.0.0/16 nexthop via 192.0.2.2 weight 2 nexthop via 198.51.100.2
        ip route add blackhole 10.3.0.0/16 && ip route add prohibit 10.4.0.0/16
        ip -6 route add 2001:db8:1::/48 nexthop via 2001:db8::2 nexthop via 2001:db8::3");
    let (sender, receiver) = bounded(1);
    let feed = watch(KernelOptions::default(), sender, bounded(0).0).unwrap();
    let mut consumer = Consumer::new(feed, receiver);
    consumer.becomes("load", kernel_shows);
    sh("ip route del 10.1.0.0/16 via 192.0.2.2 && ip route replace 10.3.0.0/16 via inet6 2001:db8::9 dev v0
        ip -6 route del 2001:db8:1::/48 via 2001:db8::2 && ip -6 route append 2001:db8:1::/48 via 2001:db8::4");
    consumer.becomes("changes", kernel_shows);
    let objects = Command::new("sh")
        .args([
            "-c",
            "ip nexthop add id 7 via 192.0.2.9 dev v0 && ip nexthop add id 8 via 198.51.100.9 dev w0
        ip nexthop add id 9 group 7/8 && ip route add 10.6.0.0/16 nhid 9 && ip nexthop replace id 9 group 8",
        ])
        .status();
    if objects.is_ok_and(|status| status.success()) {
        consumer.becomes("next-hop objects", kernel_shows);
        sh("ip nexthop del id 9");
        consumer.becomes("an object that is gone", kernel_shows);
    }
    sh("ip link set w0 down");
    consumer.becomes("a link that is down", kernel_shows);
    sh("ip link set w0 up && ip addr del 198.51.100.1/24 dev w0");
    consumer.becomes("an address that is gone", kernel_shows);

    // The feed's events are not consumed until the kernel has dropped notifications.
    let batch: String = (0..60_000_u32)
        .map(|number| {
            let [_, a, b, c] = number.to_be_bytes();
            format!("route add {}.{b}.{c}.0/24 via 192.0.2.2\n", 20 + a)
        })
        .collect();
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), batch).unwrap();
    sh(&format!("ip -batch {}", file.path().display()));
    sh(
        "ip route flush root 20.0.0.0/10 && ip route add 20.0.1.0/24 via 192.0.2.3 && ip route add 20.0.2.0/23 via 192.0.2.3",
    );
    consumer.becomes("an overrun", kernel_shows);
    say(format_args!("{:?}", consumer.feed.counts()));
    assert!(consumer.feed.counts().overruns > 0);
}
