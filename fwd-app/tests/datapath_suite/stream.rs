//! A real update stream over full tables, looped at 100,000 updates a second, with each engine: every packet is right, and no packet is
//! lost except by a full TX queue.

use crate::forwarder::Steered;
use crate::support::{drops, is_full, number, replay_command, v4_frame, v6_frame, write_pcap};
use fib::IpPrefix;
use fib::feed::{self, Action, Update};
use fib::random::SplitMix64;
use fib::testing::data;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

const RATE: u64 = 100_000;
/// Packets of the trace, to addresses covered by updates.
const FRAMES: usize = 2000;

fn seconds() -> u64 {
    if is_full() { 30 } else { 1 }
}

/// The updates of a file, optionally only IPv4. Ids replace the gateways, so that packets can be sent.
fn stream(file: &Path, only_v4: bool) -> (Vec<Update>, String) {
    let updates: Vec<Update> = feed::updates(file, None).unwrap().map(Result::unwrap).collect();
    let is_wanted = |update: &Update| !only_v4 || matches!(update.prefix, IpPrefix::V4(_));
    let updates: Vec<_> = updates.into_iter().filter(is_wanted).collect();
    let mut text = String::new();
    for (number, Update { prefix, action, .. }) in updates.iter().enumerate() {
        let _ = match action {
            Action::Withdraw => writeln!(text, "w {prefix}"),
            Action::Announce(_) => writeln!(text, "a {prefix} {}", 1 + number % 250),
        };
    }
    (updates, text)
}

fn frame(prefix: IpPrefix, state: &mut SplitMix64) -> Vec<u8> {
    match prefix {
        IpPrefix::V4(prefix) => {
            let host = u32::try_from(state.u64() >> 32).unwrap().checked_shr(u32::from(prefix.len()));
            v4_frame(0xc000_0201, prefix.address() | host.unwrap_or(0), 64, &[])
        }
        IpPrefix::V6(prefix) => {
            let host = u128::from(state.u64()) << 64 | u128::from(state.u64());
            let host = host.checked_shr(u32::from(prefix.len())).unwrap_or(0);
            v6_frame(0x2001_0db8 << 96 | 1, prefix.address() | host, 64, &[])
        }
    }
}

/// The first three of `engines`, or all with `FWD_CONFORMANCE=full`: the engines' own tests follow this stream too.
fn chosen<'a>(engines: &'a [&'a str]) -> &'a [&'a str] {
    if is_full() { engines } else { &engines[..3] }
}

fn each_takes_its_turn(tables: &[&Path], updates: &Path, only_v4: bool, engines: &[&str]) {
    let scratch = tempfile::tempdir().unwrap();
    let (updates, text) = stream(updates, only_v4);
    let changes = scratch.path().join("updates.txt");
    std::fs::write(&changes, text).unwrap();
    let mut state = SplitMix64(4);
    let mut any = || updates[usize::try_from(state.u64() >> 1).unwrap() % updates.len()].prefix;
    let prefixes: Vec<_> = (0..FRAMES).map(|_| any()).collect();
    let frames: Vec<_> = prefixes.into_iter().map(|prefix| frame(prefix, &mut state)).collect();
    let trace = scratch.path().join("trace.pcap");
    write_pcap(&trace, &frames);

    let mut command = replay_command(&trace, tables[0]);
    command.args(tables[1..].iter().flat_map(|table| [Path::new("--fib"), table]));
    command.args(["--rate", "50kpps", "--engine", engines[0], "--update-rate", &RATE.to_string()]);
    let Some(forwarder) = Steered::churned(command, &changes, scratch.path()) else { return };
    for engine in engines {
        forwarder.ask(&format!("set engine {engine}"));
        let [updates, packets] = [("show fib", "/updates"), ("show stats", "/packets/rx")]
            .map(|(words, key)| (words, key, number(&forwarder.ask(words), key)));
        for ((words, key, before), more) in [(updates, RATE * seconds()), (packets, 20_000 * seconds())] {
            let limit = Duration::from_secs(60 + 20 * seconds());
            forwarder.ask_within(limit, words, |answer| number(answer, key) >= before + more);
        }
        assert_eq!(forwarder.ask("show engine")["name"], *engine);
    }
    let (summary, _) = forwarder.end();
    let lost = drops(&summary).into_iter().filter(|(reason, _)| reason != "no_route" && reason != "tx_full");
    assert_eq!(lost.collect::<Vec<_>>(), []);
    assert!(number(&summary, "/verify/checked") > 20_000 * seconds(), "{summary}");
}

#[test]
fn engines_of_both_families_are_right_under_it() {
    let Some([v4, v6, updates]) =
        data(["v4-202401.txt.xz", "v6-202401.txt.xz", "updates-ris-20190101.txt.xz"])
    else {
        return;
    };
    let engines = ["host", "bloom", "mamt", "bloom-baseline", "bloom-naive", "miht", "coop", "oracle"];
    each_takes_its_turn(&[&v4, &v6], &updates, false, chosen(&engines));
}

#[test]
fn engines_of_ipv4_are_right_under_it() {
    let Some([v4, updates]) = data(["v4-202401.txt.xz", "updates-ris-20190101.txt.xz"]) else { return };
    each_takes_its_turn(&[&v4], &updates, true, chosen(&["sail-l", "sail-b", "sail-m", "sail-u"]));
}
