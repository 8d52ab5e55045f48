//! `--help` of every command: exit code 0, output on stdout, and an example that names the command.

use crate::support::fwd;

#[test]
fn every_command_helps_with_examples() {
    for command in [
        "",
        "run",
        "replay",
        "compare",
        "lookup",
        "fib",
        "fib stat",
        "fib convert",
        "fib generate",
        "check",
        "ctl",
        "config",
        "completions",
    ] {
        let words: Vec<&str> = command.split(' ').filter(|word| !word.is_empty()).collect();
        let help = fwd(&[&words[..], &["--help"]].concat());
        assert!(help.stderr.is_empty(), "{}", help.stderr);
        let help = help.ok();
        let examples = help.split_once("Examples:\n").unwrap_or_else(|| panic!("no examples: {command}")).1;
        let start = format!("fwd-app {command}");
        assert!(examples.contains(start.trim_end()), "{command}: {examples}");
        assert!(!help.contains('\u{1b}'), "{command}: colour in a pipe");
    }
}

#[test]
fn the_contract_of_names() {
    let common =
        ["--fib", "--engine", "--isa", "--config", "--rx-burst", "--batch", "--flush-us", "--json", "--hgrm"];
    let table =
        ["--table-memory", "--table-node", "--engine-arg", "--routes-max", "--topology", "--stats-period"];
    let run =
        ["--promiscuous", "--max-pkt-len", "--rx-queue-size", "--tx-queue-size", "--eth-dest", "--duration"];
    let replay = [
        "--ports",
        "--loops",
        "--rate",
        "--spread",
        "--out",
        "--verify",
        "--lcores",
        "--no-huge",
        "--updates",
        "--update-rate",
    ];
    for (command, own) in [("run", &run[..]), ("replay", &replay[..])] {
        let help = fwd(&[command, "--help"]).ok();
        for option in common.iter().chain(&table).chain(own) {
            assert!(
                help.contains(&format!("{option} ")) || help.contains(&format!("{option}\n")),
                "{command} {option}"
            );
        }
    }
}

#[test]
fn the_version_is_the_packages_with_that_of_dpdk() {
    let version = fwd(&["--version"]).ok();
    assert!(version.starts_with(&format!("fwd-app {} (", env!("CARGO_PKG_VERSION"))), "{version}");
    assert!(version.contains("DPDK 2") && version.ends_with(")\n"), "{version}");
}
