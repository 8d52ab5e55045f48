//! `run` over virtual ports, without huge pages.

use crate::support::{bundled, comments, drops, fwd_app, number, ran, read_pcap, stderr};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

pub(crate) fn eal(lcores: &str, prefix: &str) -> Vec<String> {
    let prefix = format!("--file-prefix=fwd-test-{prefix}-{}", std::process::id());
    let words = ["--lcores", lcores, "--no-huge", "-m", "256", "--no-pci", "--no-shconf", &prefix];
    words.map(str::to_owned).to_vec()
}

pub(crate) fn run_command(json: &Path, options: &[&str], eal: &[String], vdevs: &[String]) -> Command {
    let mut command = fwd_app(&["run", "--json"]);
    command.arg(json).args(options).arg("--").args(eal);
    command.args(vdevs.iter().flat_map(|vdev| ["--vdev", vdev]));
    command
}

pub(crate) fn run(json: &Path, options: &[&str], eal: &[String], vdevs: &[String]) -> Command {
    let routes = bundled("routes.txt");
    run_command(json, &[&["--fib", routes.to_str().unwrap()], options].concat(), eal, vdevs)
}

pub(crate) fn summary(output: &Output, json: &Path) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    crate::support::json(json)
}

#[test]
fn captures_go_in_and_out_of_pcap_ports() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let nothing = path("nothing.pcap");
    std::fs::write(&nothing, &std::fs::read(bundled("mix.pcap")).unwrap()[..24]).unwrap();
    for topology in ["run-to-completion", "pipeline"] {
        let vdevs: Vec<_> = (0..4)
            .map(|port| {
                let rx = if port == 0 {
                    bundled("mix.pcap").to_str().unwrap().to_owned()
                } else {
                    nothing.clone()
                };
                format!("net_pcap{port},rx_pcap={rx},tx_pcap={}", path(&format!("out{port}.pcap")))
            })
            .collect();
        let json = scratch.path().join("summary.json");
        let options =
            ["--duration", "1.5", "--topology", topology, "--config", "(0,0,1),(1,0,1),(2,0,1),(3,0,1)"];
        let capture = scratch.path().join(format!("{topology}.pcapng"));
        let capturing = format!("{},1000", capture.display());
        let options =
            [&options[..], &["--eth-dest", "1,06:00:00:00:00:09", "--capture-drops", &capturing]].concat();
        let Some(output) = ran(run(&json, &options, &eal("(0-4)@(0-0)", topology), &vdevs).output().unwrap())
        else {
            return;
        };
        let summary = summary(&output, &json);
        assert_eq!((number(&summary, "/packets/rx"), number(&summary, "/packets/tx")), (2000, 1875));
        assert_eq!(drops(&summary), [("no_route".to_owned(), 125)]);
        assert_eq!(comments(&capture, "no_route"), 125, "from the first packet on");
        assert!(stderr(&output).contains("125 dropped packets\n"), "{}", stderr(&output));
        for (port, packets) in [369, 497, 471, 538].into_iter().enumerate() {
            let sent = read_pcap(Path::new(&path(&format!("out{port}.pcap"))));
            assert_eq!(sent.len(), packets, "port {port}");
            // net_pcap's MACs are 02:70:63:61:70:PP; the tests of `replay` check the rest of the frame.
            let port = u8::try_from(port).unwrap();
            assert!(sent.iter().all(|(_, frame)| frame[6..12] == [2, 0x70, 0x63, 0x61, 0x70, port]));
            let fixed = port == 1;
            assert!(sent.iter().all(|(_, frame)| (frame[..6] == [6, 0, 0, 0, 0, 9]) == fixed));
        }
    }
}

#[test]
fn null_ports_until_a_signal() {
    let scratch = tempfile::tempdir().unwrap();
    let json = scratch.path().join("summary.json");
    let vdevs = ["net_null0", "net_null1,size=60"].map(str::to_owned);
    let options = ["--stats-period", "0.2", "--promiscuous"];
    let child = run(&json, &options, &eal("(0-1)@(0-0)", "null"), &vdevs).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2500));
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    let Some(output) = ran(child.wait_with_output().unwrap()) else { return };
    let summary = summary(&output, &json);
    // net_null's packets are zeros, without an ethertype.
    assert_eq!(number(&summary, "/packets/rx"), number(&summary, "/packets/drops/not_ip"));
    assert!(number(&summary, "/packets/rx") > 0);
    let text = stderr(&output);
    for part in ["net_null0", "link up", "forwarding", "Mpps", "run-to-completion"] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
}

#[test]
fn what_does_not_exist_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let json = scratch.path().join("summary.json");
    let vdevs = ["net_null0".to_owned()];
    let nowhere = ["net_pcap0", "net_pcap1"].map(|name| {
        format!(
            "{name},rx_pcap={},tx_pcap={}/{name}",
            bundled("mix.pcap").display(),
            scratch.path().display()
        )
    });
    for (i, (options, vdevs, code, word)) in [
        (&["--config", "(3,0,1)"][..], &vdevs[..], 3, "port 3"),
        (&["--config", "(0,0,9)"], &vdevs, 2, "lcore 9"),
        (&["--config", "(0,0,1),(0,0,2)"], &vdevs, 2, "queue 0 of port 0"),
        (&["--config", "(0,0,0),(1,0,1)"], &nowhere, 2, "TX queues"),
        (&["--eth-dest", "5,02:00:00:00:00:01"], &vdevs, 3, "port 5"),
        (&["--capture-drops", "/no/such/folder/drops"], &vdevs, 1, "cannot write /no/such/folder/drops"),
        (&[], &[], 3, "no port"),
    ]
    .into_iter()
    .enumerate()
    {
        let eal = eal("(0-1)@(0-0)", &format!("refused{i}"));
        let Some(output) = ran(run(&json, options, &eal, vdevs).output().unwrap()) else { return };
        assert_eq!(output.status.code(), Some(code), "{options:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(word) && !json.exists(), "{}", stderr(&output));
    }
}

#[test]
fn an_eal_argument_that_is_wrong_is_a_failure() {
    let scratch = tempfile::tempdir().unwrap();
    let json = scratch.path().join("summary.json");
    let output = run(&json, &[], &["--no-such-option".to_owned()], &[]).output().unwrap();
    // EAL of DPDK 25.11 and newer ends the process itself, with -EINVAL.
    if stderr(&output).contains("ARGPARSE: unknown argument --no-such-option") {
        assert_eq!(output.status.code(), Some(234));
        return;
    }
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("DPDK does not start"), "{}", stderr(&output));
}
