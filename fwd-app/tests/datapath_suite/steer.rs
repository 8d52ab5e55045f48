//! A running forwarder is steered: by `fwd-app ctl`, and by SIGHUP.

use crate::run::{eal, run};
use crate::signals::send;
use crate::support::{assert_conserved, bundled, changes, fwd_app, number, skip, stderr, wait};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// A forwarder with its control socket.
struct Forwarder {
    /// `None` once it has ended.
    child: Option<Child>,
    socket: PathBuf,
    json: PathBuf,
}

impl Drop for Forwarder {
    /// A test that failed leaves no forwarder behind.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

impl Forwarder {
    /// Waits until the one that `child` is answers; `None` if DPDK does not start here.
    fn wait_for(mut child: Child, folder: &Path) -> Option<Self> {
        let (socket, json) = (folder.join("ctl"), folder.join("summary.json"));
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let asked =
                fwd_app(&["ctl", "--timeout", "30", "show", "config", "--socket"]).arg(&socket).output();
            if asked.unwrap().status.success() {
                return Some(Self { child: Some(child), socket, json });
            }
            if child.try_wait().unwrap().is_some() {
                let output = child.wait_with_output().unwrap();
                assert!(skip(&stderr(&output)), "{}", stderr(&output));
                return None;
            }
            assert!(Instant::now() < end, "no answer");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A replay that would last for hours, under an update stream, at a rate that any CPU does.
    fn replay(folder: &Path, extra: &[&str]) -> Option<Self> {
        let updates = folder.join("updates.txt");
        std::fs::write(&updates, changes(3)).unwrap();
        let mut command = fwd_app(&["replay"]);
        command.arg(bundled("mix.pcap")).arg("--fib").arg(bundled("routes.txt"));
        command.args(["--no-huge", "--verify", "--loops", "1000000000", "--rate", "100kpps", "--updates"]);
        command.arg(&updates).args(["--update-rate", "20000", "--update-loops", "1000000", "--json"]);
        command.arg(folder.join("summary.json")).arg("--ctl").arg(folder.join("ctl")).args(extra);
        Self::wait_for(command.spawn().unwrap(), folder)
    }

    /// `run` with the routes of `routes` over ports that receive the mixed capture again and again.
    fn run(folder: &Path, name: &str, routes: &Path) -> Option<Self> {
        let mix = bundled("mix.pcap");
        let vdevs: Vec<_> = [format!("net_pcap0,rx_pcap={},tx_pcap=/dev/null,infinite_rx=1", mix.display())]
            .into_iter()
            .chain((1..4).map(|port| format!("net_null{port},no-rx=1")))
            .collect();
        let mut eal = eal("(0-1)@(0-1)", name);
        eal.iter_mut().filter(|word| *word == "256").for_each(|word| *word = "512".to_owned());
        let socket = folder.join("ctl");
        let options = ["--ctl", socket.to_str().unwrap(), "--fib", routes.to_str().unwrap()];
        Self::wait_for(run(&folder.join("summary.json"), &options, &eal, &vdevs).spawn().unwrap(), folder)
    }

    fn output(&self, words: &str) -> std::process::Output {
        let mut command = fwd_app(&["ctl", "--json", "--timeout", "60", "--socket"]);
        command.arg(&self.socket).args(words.split(' ')).output().unwrap()
    }

    /// The answer to `words`, which must not be refused.
    fn ask(&self, words: &str) -> Value {
        let output = self.output(words);
        assert_eq!(output.status.code(), Some(0), "{words}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// The message with which `words` are refused.
    fn refuses(&self, words: &str) -> String {
        let output = self.output(words);
        assert_eq!(output.status.code(), Some(1), "{words}: {}", stderr(&output));
        stderr(&output)
    }

    /// Asks `words` until the answer is as `wanted`.
    fn ask_until(&self, words: &str, wanted: impl Fn(&Value) -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let answer = self.ask(words);
            if wanted(&answer) {
                return;
            }
            assert!(Instant::now() < end, "{words}: {answer}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Has it read its files again.
    fn hang_up(&self) {
        send(self.child.as_ref().unwrap(), "-HUP");
    }

    /// Ends it; returns its summary and what it wrote to stderr.
    fn end(mut self) -> (Value, String) {
        let child = self.child.take().unwrap();
        send(&child, "-TERM");
        let output = wait(child, Duration::from_secs(60));
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{text}");
        let summary = serde_json::from_slice(&std::fs::read(&self.json).unwrap()).unwrap();
        assert_conserved(&summary);
        assert!(!self.socket.exists(), "the socket is removed");
        (summary, text)
    }
}

#[test]
fn every_engine_takes_over_and_every_packet_is_right() {
    for topology in ["run-to-completion", "pipeline"] {
        let scratch = tempfile::tempdir().unwrap();
        let extra = ["--topology", topology, "--engine", "oracle"];
        let Some(forwarder) = Forwarder::replay(scratch.path(), &extra) else { return };
        for engine in
            ["host", "bloom", "bloom-baseline", "bloom-naive", "miht", "mamt", "coop", "oracle", "host"]
        {
            forwarder.ask(&format!("set engine {engine}"));
            let name = forwarder.ask("show engine")["name"].clone();
            assert_eq!(name, engine);
            let before = number(&forwarder.ask("show stats"), "/packets/rx");
            forwarder.ask_until("show stats", |stats| number(stats, "/packets/rx") > before + 2000);
        }
        // It has no IPv6 table; the engine in service stays.
        assert!(forwarder.refuses("set engine sail-l").contains("IPv6"));
        assert!(forwarder.refuses("set engine no-such").contains("known are"));
        assert_eq!(forwarder.ask("show engine")["name"], "host");
        let (summary, _) = forwarder.end();
        assert_eq!(number(&summary, "/verify/mismatches"), 0, "{topology}");
        assert!(number(&summary, "/verify/checked") > 18_000);
        assert_eq!(number(&summary, "/packets/reordered"), 0);
        assert_eq!(number(&summary, "/packets/drops/engine_stall"), 0);
    }
}

#[test]
fn a_hangup_applies_the_difference_or_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let routes = scratch.path().join("more.txt");
    std::fs::write(&routes, "240.0.0.0/8 7\n203.0.113.0/24 via 192.0.2.1 dev 1\n").unwrap();
    let Some(forwarder) = Forwarder::run(scratch.path(), "hangup", &routes) else { return };
    let next_hop = |prefix: &str| {
        let address = prefix.split('/').next().unwrap();
        let route = forwarder.ask(&format!("route get {address}"));
        assert_eq!(route["engine_id"].as_u64().unwrap() == 0, route["prefix"].is_null(), "{route}");
        (route["prefix"].clone(), route["id"].as_u64().unwrap())
    };
    assert_eq!(next_hop("240.0.0.0/8"), ("240.0.0.0/8".into(), 7));
    let generation = || number(&forwarder.ask("show fib"), "/generation");
    let loaded = generation();

    // Changed: one route gets a number that a gateway has in the engine, one goes, one comes.
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

    // Broken, then unchanged: nothing changes.
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
fn an_operator_looks_at_it_and_changes_it() {
    let scratch = tempfile::tempdir().unwrap();
    let routes = scratch.path().join("more.txt");
    std::fs::write(&routes, "# none\n").unwrap();
    let Some(forwarder) = Forwarder::run(scratch.path(), "operator", &routes) else { return };
    forwarder.ask_until("show stats", |stats| number(stats, "/packets/tx") > 10_000);
    // The capture has packets without a route.
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
    forwarder.ask("neigh add 198.18.0.1 lladdr 02:00:00:00:00:07 dev 1");
    assert_eq!(forwarder.ask("show neigh").pointer("/0/mac").unwrap(), "02:00:00:00:00:07");
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
    forwarder.ask(&format!("capture drops {} 300", capture.display()));
    let length = || std::fs::metadata(&capture).map_or(0, |file| file.len());
    let end = Instant::now() + Duration::from_secs(30);
    while length() < 300 * 60 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    let bytes = std::fs::read(&capture).unwrap();
    let comments = bytes.windows(8).filter(|window| window == b"no_route").count();
    assert_eq!(comments, 300, "each packet has its reason");

    forwarder.ask("stop --drain");
    let packets = |forwarder: &Forwarder| number(&forwarder.ask("show stats"), "/packets/rx");
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
        let Some(forwarder) = Forwarder::replay(scratch.path(), &extra) else { return };
        let id = |words: &str| number(&forwarder.ask(words), "/id");
        let is_same = |vrf: &str| forwarder.ask(&format!("vrf {vrf} show fib")) == forwarder.ask("show fib");
        assert_eq!(number(&forwarder.ask("vrf red show fib"), "/routes_v4"), 2);
        assert!(!is_same("red"));
        // No packet of the trace goes there.
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
        // The default VRF has IPv6 routes, which sail-m refuses; it answers for the other one alone.
        forwarder.ask("vrf red set engine sail-m");
        let engines = || {
            let vrfs = forwarder.ask("show vrfs");
            let of = |vrf: &Value| format!("{} {} {}", vrf["name"], vrf["engine"], vrf["is_shared"]);
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
        let (summary, text) = forwarder.end();
        assert_eq!(number(&summary, "/verify/mismatches"), 0, "{text}");
        assert_eq!(summary["vrfs"][1]["name"], "red");
    }
}
