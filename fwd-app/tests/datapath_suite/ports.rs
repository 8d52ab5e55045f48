//! The ports of `run`: queues, mbufs, chains, gateways without a neighbour, missing features; and the DPDK release of the program.

use crate::run::{eal, run_command, summary};
use crate::support::{bundled, drops, number, ran, read_pcap, stderr, v4_frame, write_pcap};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

pub(crate) struct PortBench(TempDir);

impl PortBench {
    pub(crate) fn new() -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        write_pcap(&bench.path("nothing.pcap"), &[]);
        bench
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn vdev(&self, port: usize, receives: &Path) -> String {
        let out = self.path(&format!("out{port}.pcap"));
        format!("net_pcap{port},rx_pcap={},tx_pcap={}", receives.display(), out.display())
    }

    pub(crate) fn sent(&self, port: usize) -> Vec<Vec<u8>> {
        read_pcap(&self.path(&format!("out{port}.pcap"))).into_iter().map(|(_, frame)| frame).collect()
    }

    fn command(&self, routes: &Path, options: &[&str], vdevs: &[String]) -> Command {
        let prefix = self.0.path().file_name().unwrap().to_str().unwrap().replace('.', "");
        let eal = [eal("(0-1)@(0-0)", &prefix), vec!["--no-telemetry".to_owned()]].concat();
        let options = [&["--fib", routes.to_str().unwrap()], options].concat();
        run_command(&self.path("summary.json"), &options, &eal, vdevs)
    }

    pub(crate) fn run(&self, routes: &Path, options: &[&str], vdevs: &[String]) -> Output {
        self.command(routes, options, vdevs).output().unwrap()
    }

    pub(crate) fn summary(&self, output: &Output) -> Value {
        summary(output, &self.path("summary.json"))
    }
}

/// Forwards from port 0 on lcore 0 for half a second.
pub(crate) const SHORT: [&str; 4] = ["--config", "(0,0,0)", "--duration", "0.5"];

#[test]
fn a_gateway_without_a_neighbour_gets_no_packet() {
    let bench = PortBench::new();
    let (routes, trace) = (bench.path("routes.txt"), bench.path("trace.pcap"));
    let text = "10.1.0.0/16 via 192.0.2.1\n10.2.0.0/16 via 192.0.2.2\n10.3.0.0/16 7\nR10.4.0.0/16 1\n\
                10.5.0.0/16 via 192.0.2.1 dev 1\nneigh 192.0.2.2 lladdr 02:aa:00:00:00:02 dev 1\n";
    std::fs::write(&routes, text).unwrap();
    let to = |net: u32| v4_frame(0xc000_0201, 10 << 24 | net << 16 | 9, 60, &[]);
    write_pcap(&trace, &(1..=5).map(to).collect::<Vec<_>>());
    let vdevs = [bench.vdev(0, &trace), bench.vdev(1, &bench.path("nothing.pcap"))];
    let Some(output) = ran(bench.run(&routes, &SHORT, &vdevs)) else { return };
    let summary = bench.summary(&output);
    assert_eq!(drops(&summary), [("no_neighbour".to_owned(), 2)]);
    assert!(stderr(&output).contains("1 of 2 gateways have no neighbour"), "{}", stderr(&output));
    // Bare ids and l3fwd rules need no neighbour: the MAC is derived from the number.
    let macs = |port| bench.sent(port).iter().map(|frame| frame[..6].to_vec()).collect::<Vec<_>>();
    assert_eq!(macs(0), [[2, 0, 0, 0, 0, 7]]);
    assert_eq!(macs(1), [[2, 0xaa, 0, 0, 0, 2], [2, 0, 0, 0, 0, 2]]);
}

#[test]
fn a_port_that_no_lcore_serves_sends_only() {
    let bench = PortBench::new();
    let mix = bundled("mix.pcap");
    let vdevs: Vec<_> = (0..4).map(|port| bench.vdev(port, &mix)).collect();
    let Some(output) = ran(bench.run(&bundled("routes.txt"), &SHORT, &vdevs)) else { return };
    let summary = bench.summary(&output);
    assert_eq!((number(&summary, "/packets/rx"), number(&summary, "/packets/tx")), (2000, 1875));
    let ports = summary["ports"].as_array().unwrap();
    let receives: Vec<_> = ports.iter().map(|port| port["receives"].as_bool().unwrap()).collect();
    assert_eq!(receives, [true, false, false, false]);
    assert!(!bench.sent(3).is_empty());
    for text in [stderr(&output), String::from_utf8_lossy(&output.stdout).into_owned()] {
        assert!(text.contains("net_pcap3") && text.contains("sends only"), "{text}");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.lines().count() < 25 && text.contains("2,000 rx = 1,875 tx + 125 dropped + 0 held"),
        "{text}"
    );
    let port = text.lines().find(|line| line.contains("net_pcap0")).unwrap();
    assert_eq!(port.split_whitespace().take(3).collect::<Vec<_>>(), ["0", "net_pcap0", "2,000"], "{text}");
    assert!(stderr(&output).contains("0 RX and 1 TX queues"), "{}", stderr(&output));
}

#[test]
fn more_rx_queues_than_the_device_has() {
    let bench = PortBench::new();
    let vdevs = [bench.vdev(0, &bundled("mix.pcap"))];
    let options = ["--config", "(0,0,0),(0,1,0)", "--duration", "0.5"];
    let Some(output) = ran(bench.run(&bundled("routes.txt"), &options, &vdevs)) else { return };
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for word in ["port 0", "net_pcap0", "2 RX queues", "has 1"] {
        assert!(text.contains(word), "no '{word}' in {text}");
    }
}

#[test]
fn too_few_mbufs_are_refused_with_the_least_that_work() {
    let bench = PortBench::new();
    let vdevs = ["net_null0,no-rx=1".to_owned(), "net_null1,no-rx=1".to_owned()];
    let run = |options: &[&str]| bench.run(&bundled("routes.txt"), &[&SHORT, options].concat(), &vdevs);
    let Some(output) = ran(run(&["--mbufs", "1023"])) else { return };
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    let (_, least) = text.split_once("at least ").unwrap_or_else(|| panic!("{text}"));
    let least: u32 = least.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
    // One RX ring and two TX rings of 1024, two batches, and the mempool caches of two threads.
    assert!((3 * 1024..8191).contains(&least), "{least}");
    assert_eq!(run(&["--mbufs", &(least - 1).to_string()]).status.code(), Some(2));
    bench.summary(&run(&["--mbufs", &least.to_string()]));
    bench.summary(&run(&["--mbufs", "2047", "--rx-queue-size", "256", "--tx-queue-size", "128"]));
    assert_eq!(run(&["--mbufs", "0"]).status.code(), Some(2));
}

fn preload(bench: &PortBench, source: &str) -> PathBuf {
    let (file, library) = (bench.path("preload.c"), bench.path("libpreload.so"));
    std::fs::write(&file, source).unwrap();
    let headers = Command::new("pkg-config").args(["--cflags", "libdpdk"]).output().unwrap();
    let headers = String::from_utf8(headers.stdout).unwrap();
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(headers.split_whitespace()).args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&file);
    let built = cc.output().unwrap();
    assert!(built.status.success(), "{}", stderr(&built));
    library
}

/// A preload library that hides the chain support of devices. The drivers with chain support depend on the DPDK release.
fn without_chains(bench: &PortBench) -> PathBuf {
    preload(
        bench,
        "#define _GNU_SOURCE
        #include <dlfcn.h>
        #include <rte_ethdev.h>
        int rte_eth_dev_info_get(uint16_t port, struct rte_eth_dev_info *info)
        {
            int (*ask)(uint16_t, struct rte_eth_dev_info *) = dlsym(RTLD_NEXT, \"rte_eth_dev_info_get\");
            int answer = ask(port, info);
            info->tx_offload_capa &= ~RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
            info->tx_queue_offload_capa &= ~RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
            return answer;
        }
        ",
    )
}

/// `net_pcap` receives long frames as chains in every release of DPDK.
#[test]
fn a_chain_goes_to_no_port_that_does_not_take_chains() {
    let bench = PortBench::new();
    let trace = bench.path("trace.pcap");
    let destination = 10 << 24 | 9;
    let frame = |bytes, tags: &[u16]| v4_frame(0xc000_0201, destination, bytes, tags);
    // A short packet in a frame longer than an mbuf, which no real link delivers.
    let padded = [frame(100, &[]), vec![0; 3000]].concat();
    write_pcap(&trace, &[frame(1514, &[]), padded, frame(1518, &[0x8100])]);
    let routes = bench.path("routes.txt");
    std::fs::write(&routes, "10.0.0.0/8 1\n").unwrap();
    let library = without_chains(&bench);
    let run = |options: &[&str]| {
        let mut command = bench.command(&routes, options, &[bench.vdev(0, &trace)]);
        command.env("LD_PRELOAD", &library).output().unwrap()
    };
    let Some(output) = ran(run(&SHORT)) else { return };
    let summary = bench.summary(&output);
    assert_eq!((number(&summary, "/packets/rx"), number(&summary, "/packets/tx")), (3, 2));
    assert_eq!(drops(&summary), [("mtu_exceeded".to_owned(), 1)]);
    assert_eq!(bench.sent(0).iter().map(Vec::len).collect::<Vec<_>>(), [1514, 1518]);
    assert_eq!(number(&summary, "/packets/tx_bytes"), 1514 + 1518);

    // Tagged jumbo frames fit one mbuf, up to the largest mbuf.
    write_pcap(&trace, &[frame(2048, &[]), frame(2056, &[0x88a8, 0x8100])]);
    let long = [&SHORT[..], &["--max-pkt-len", "2048"]].concat();
    let summary = bench.summary(&run(&long));
    assert_eq!(number(&summary, "/packets/tx"), 2);
    write_pcap(&trace, &[frame(16_000, &[]), frame(17_000, &[])]);
    let longest = [&SHORT[..], &["--max-pkt-len", "20000", "--rx-queue-size", "64", "--tx-queue-size", "64"]];
    let output = run(&longest.concat());
    let summary = bench.summary(&output);
    // The longer one exceeds the MTU of 16,362 bytes and leaves as fragments that fit an mbuf.
    assert_eq!(drops(&summary), [], "{}", stderr(&output));
    assert_eq!(number(&summary, "/packets/fragmented"), 1);
    assert_eq!(bench.sent(0).iter().map(Vec::len).collect::<Vec<_>>(), [16_000, 34 + 16_336, 34 + 630]);
    assert!(stderr(&output).contains("no packets of several segments"), "{}", stderr(&output));
}

/// Chain support is a property of the device: `net_pcap` supports chains in some releases of DPDK.
#[test]
fn a_chain_goes_whole_to_a_port_that_takes_chains_and_in_fragments_to_others() {
    let bench = PortBench::new();
    let (routes, trace) = (bench.path("routes.txt"), bench.path("trace.pcap"));
    std::fs::write(&routes, "10.0.0.0/8 1\n").unwrap();
    write_pcap(&trace, &[v4_frame(0xc000_0201, 10 << 24 | 9, 4000, &[])]);
    let library = without_chains(&bench);
    for preloaded in [None, Some(&library)] {
        let options = [&SHORT[..], &["--mtu", "0=9000"]].concat();
        let mut command = bench.command(&routes, &options, &[bench.vdev(0, &trace)]);
        let Some(output) =
            ran(command.envs(preloaded.map(|library| ("LD_PRELOAD", library))).output().unwrap())
        else {
            return;
        };
        let (summary, text) = (bench.summary(&output), stderr(&output));
        let is_whole = text.contains("TX MULTI_SEGS;");
        assert!(
            is_whole != text.contains("no packets of several segments") && !(is_whole && preloaded.is_some()),
            "{text}"
        );
        assert_eq!(drops(&summary), [], "{text}");
        // An mbuf holds an Ethernet header, two tags and an IP packet of 2,026 bytes. Payloads of fragments are multiples of 8.
        let wanted = if is_whole { vec![4000] } else { vec![34 + 2000, 34 + 1966] };
        assert_eq!(bench.sent(0).iter().map(Vec::len).collect::<Vec<_>>(), wanted, "{text}");
    }
}

fn dpdk_of(bench: &PortBench, version: &str) -> PathBuf {
    preload(bench, &format!("const char *rte_version(void) {{ return \"{version}\"; }}\n"))
}

#[test]
fn a_dpdk_of_another_release_is_refused_before_it_starts() {
    let bench = PortBench::new();
    let compiled = {
        let output = Command::new("pkg-config").args(["--modversion", "libdpdk"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let run = |version: &str| {
        let mut command = bench.command(&bundled("routes.txt"), &SHORT, &["net_null0,no-rx=1".to_owned()]);
        command.env("LD_PRELOAD", dpdk_of(&bench, version)).output().unwrap()
    };
    for other in ["DPDK 99.11.0", "DPDK 22.07.0", "DPDK of a kind"] {
        let output = run(other);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(other) && text.contains(&format!("DPDK {compiled}")), "{text}");
        assert!(!text.contains("EAL:"), "EAL did not start: {text}");
    }
    // A patch release keeps the ABI, which release candidates still change.
    if !compiled.contains("-rc") {
        let release: Vec<_> = compiled.split('.').take(2).collect();
        bench.summary(&run(&format!("DPDK {}.99", release.join("."))));
    }
}

#[test]
fn ports_that_another_driver_owns_are_not_taken_and_ports_are_chosen() {
    let bench = PortBench::new();
    let vdevs = ["net_failsafe0,dev(net_null0,no-rx=1)", "net_null1,no-rx=1", "net_null2,no-rx=1"];
    let vdevs = vdevs.map(str::to_owned);
    let run = |options: &[&str]| bench.run(&bundled("routes.txt"), &[&SHORT, options].concat(), &vdevs);
    let names = |options: &[&str]| {
        let summary = bench.summary(&run(options));
        let ports = summary["ports"].as_array().unwrap();
        ports.iter().map(|port| port["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    if ran(run(&[])).is_none() {
        return;
    }
    assert_eq!(names(&[]), ["net_failsafe0", "net_null1", "net_null2"]);
    assert_eq!(names(&["--ports", "net_null2,0"]), ["net_null2", "net_failsafe0"]);
    for (ports, code, message) in [
        (
            "net_null1,net_null9",
            3,
            "--ports net_null9: there is no such port; there are: 0 (net_failsafe0), 1 (net_null1)",
        ),
        ("3", 3, "--ports 3: there is no such port"),
        ("0,net_failsafe0", 2, "--ports net_failsafe0: port 0 (net_failsafe0) is named twice"),
        ("0,,1", 2, "a port is a name, a PCI address or an index"),
    ] {
        let output = run(&["--ports", ports]);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
}

/// `net_ring` supports chains in both directions.
#[test]
fn no_port_is_asked_for_chains_that_its_frames_do_not_need() {
    let bench = PortBench::new();
    let run = |options: &[&str]| {
        bench.run(&bundled("routes.txt"), &[&SHORT, options].concat(), &["net_ring0".to_owned()])
    };
    let Some(output) = ran(run(&[])) else { return };
    let granted = "offloads granted: RX";
    assert!(stderr(&output).contains(&format!("{granted} none, TX none;")), "{}", stderr(&output));
    let output = run(&["--mtu", "0=9000"]);
    assert!(stderr(&output).contains(&format!("{granted} SCATTER, TX MULTI_SEGS;")), "{}", stderr(&output));
}
