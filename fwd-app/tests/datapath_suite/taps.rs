//! `run --tap` in a private network namespace: frames for the kernel are punted, the kernel's are sent, and all are counted.

use crate::run::{eal, run, summary};
use crate::support::{drops, number, ran, read_pcap, skip, stderr, v4_frame, write_pcap};
use std::path::Path;
use std::process::{Command, Output};

fn has_taps() -> bool {
    let made =
        Command::new("unshare").args(["--net", "--", "sh", "-c", "ip tuntap add dev t0 mode tap"]).output();
    let is_there = made.is_ok_and(|output| output.status.success());
    if !is_there {
        skip("no TAP can be made here (/dev/net/tun, root, iproute2)");
    }
    is_there
}

fn run_apart(folder: &Path, name: &str, options: &[&str], frames: &[Vec<u8>]) -> Output {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    write_pcap(&folder.join("in.pcap"), frames);
    let vdevs = [format!("net_pcap0,rx_pcap={},tx_pcap={}", path("in.pcap"), path("out.pcap"))];
    let command = run(&folder.join("summary.json"), options, &eal("(0-1)@(0-0)", name), &vdevs);
    let mut apart = Command::new("unshare");
    apart.args(["--net", "--"]).arg(command.get_program()).args(command.get_args());
    apart.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    apart.output().unwrap()
}

/// A frame to all OSPF routers with a TTL of 1, and one to all stations of the link.
fn frames() -> Vec<Vec<u8>> {
    let mut group = v4_frame(0xc612_0102, 0xe000_0005, 60, &[]);
    group[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 5]);
    let mut broadcast = v4_frame(0xc612_0102, 0xc612_01ff, 60, &[]);
    broadcast[..6].fill(0xff);
    vec![group, broadcast]
}

#[test]
fn the_kernel_takes_and_gives_frames() {
    if !has_taps() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let options = ["--duration", "2", "--config", "(0,0,1)", "--address", "0=198.18.1.1/24"];
    // Without a TAP these frames have no receiver.
    let Some(output) = ran(run_apart(folder.path(), "no-tap", &options, &frames())) else { return };
    let json = folder.path().join("summary.json");
    let before = summary(&output, &json);
    assert_eq!(drops(&before), [("not_for_us".to_owned(), 2)]);
    // The router announces its address in an ARP message of 42 bytes.
    let announced = read_pcap(&folder.path().join("out.pcap"));
    let arp = announced.iter().find(|(_, frame)| frame[12..14] == [8, 6]);
    assert!(arp.is_some_and(|(_, frame)| frame.len() == 60 && frame[42..].iter().all(|byte| *byte == 0)));

    let with_tap = [&options[..], &["--tap", "0=tap0"]].concat();
    let after = summary(&run_apart(folder.path(), "tap", &with_tap, &frames()), &json);
    assert_eq!(number(&after, "/packets/punted"), 2);
    assert_eq!(drops(&after), []);
    assert_eq!(after["setup"]["taps"][0], "0=tap0");
    // The kernel reports its groups when a link comes up, in addition to the router's announcements.
    assert!(number(&after, "/packets/originated") > number(&before, "/packets/originated"));
    let sent = read_pcap(&folder.path().join("out.pcap"));
    assert!(sent.iter().all(|(_, frame)| frame[6..12] == sent[0].1[6..12]), "the TAP has the port's MAC");
}

#[test]
fn what_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str, options: &[&str], code: i32, message: &str| {
        if let Some(output) = ran(run_apart(folder.path(), name, options, &frames())) {
            assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
            assert!(stderr(&output).contains(message), "{}", stderr(&output));
        }
    };
    if !has_taps() {
        return;
    }
    refused("twice", &["--tap", "0=a", "--tap", "0=b"], 2, "--tap 0=b: a port has only one TAP");
    refused("port", &["--tap", "7=a"], 3, "--tap 7=a names port 7, which does not exist");
    refused(
        "netns",
        &["--tap", "0=a", "--tap-netns", "/none"],
        1,
        "cannot enter the network namespace /none",
    );
    refused(
        "taken",
        &["--tap", "0=lo"],
        1,
        "--tap 0=lo: cannot make the TAP: this name belongs to a device of the host",
    );
    refused("name", &["--tap", "0=a/b"], 1, "no interface can have this name");
}
