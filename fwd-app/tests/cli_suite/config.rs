//! `fwd-app config` and `--config-file`: precedence, origins, mistakes, and the example of the documentation.

use crate::support::{ScratchFolder, fwd, fwd_env};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/fwd-app.example.toml");

#[test]
fn each_value_has_its_origin() {
    let scratch = ScratchFolder::new();
    let fib = scratch.file("routes.txt", "10.0.0.0/8 1\n");
    let file =
        scratch.file("f.toml", format!("[sources]\nfib = \"{fib}\"\n[forwarder]\nrx-burst = 8\nbatch = 8\n"));
    let args = ["config", "--config-file", &file, "--batch", "32", "--", "-l", "1"];
    let out = fwd_env(&args, "", &[("FWD_APP_NEIGH_AGE", "10")]).ok();
    for line in [
        format!("fib = [\"{fib}\"]  # {file}:2"),
        format!("rx-burst = 8  # {file}:4"),
        "batch = 32  # flag".to_owned(),
        "neigh-age = 10  # env FWD_APP_NEIGH_AGE".to_owned(),
        "# stall-us = 100000  # default".to_owned(),
        "arguments = [\"-l\", \"1\"]  # flag".to_owned(),
    ] {
        assert!(out.lines().any(|there| there == line), "no '{line}' in:\n{out}");
    }
    // The printed configuration is a file of the same meaning.
    let again = scratch.file("again.toml", &out);
    let shown = fwd(&["config", "--config-file", &again]).ok();
    let strip = |text: &str| {
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split("  #").next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(strip(&shown), strip(&out));
}

#[test]
fn a_command_line_becomes_a_file() {
    let scratch = ScratchFolder::new();
    let fib = scratch.file("routes.txt", "10.0.0.0/8 1\n");
    let line = [
        "--fib",
        &fib,
        "--config",
        "(net_null0,0,1)",
        "--address",
        "net_null0=192.0.2.1/24",
        "--",
        "-l",
        "1",
    ];
    let wanted = format!(
        "[[port]]\ndevice = \"net_null0\"\naddresses = [\"192.0.2.1/24\"]\nqueues = [1]\n\n[ports]\nports = \"all\"\n\n[sources]\nfib = [\"{fib}\"]\n\n[eal]\narguments = [\"-l\", \"1\"]\n"
    );
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    for start in [
        &["config", "--from-flags", "--"][..],
        &["config", "--from-flags", "--", "run"],
        &["config", "--from-flags", "--", "fwd-app", "run"],
    ] {
        // The command line excludes the environment.
        let out = fwd_env(&[start, &line].concat(), "", &[("FWD_APP_RX_BURST", "8")]).ok();
        assert_eq!(sorted(&out), sorted(&wanted), "{out}");
        fwd(&["config", "--config-file", &scratch.file("f.toml", out)]).ok();
    }
    let out = fwd(&["config", "--from-flags", "--", "replay", "t.pcap", "--fib", "a", "--verify"]).ok();
    assert!(
        out.contains("[harness]\n") && out.contains("trace = \"t.pcap\"") && out.contains("verify = true"),
        "{out}"
    );
    fwd(&["config", "--from-flags", "--", "run", "--rx-burst", "0"]).fails(2, &["--rx-burst"]);
    fwd(&["config", "--from-flags", "--", "run"]).fails(2, &["--fib <FILE>"]);
}

#[test]
fn a_mistake_starts_nothing() {
    let scratch = ScratchFolder::new();
    let fib = scratch.file("routes.txt", "10.0.0.0/8 1\n");
    let sources = format!("[sources]\nfib = \"{fib}\"\n");
    for (text, message) in [
        (
            "[forwarder]\nrx-burst = 9999\n",
            ":4: forwarder.rx-burst: invalid value '9999': 9999 is not in 1..=4096",
        ),
        ("[forwarder]\nrx_burst = 8\n", ":4: forwarder.rx_burst: no such key; did you mean 'rx-burst'?"),
        ("fpm-user = \"root\"\n", ":3: sources.fpm-user"),
        ("[vrf.red]\nports = [0]\nfib = \"/absent.txt\"\n", ":5: vrf.red.fib: /absent.txt: No such file"),
        ("[engine]\nname = \"warp\"\n", ":4: engine.name: 'warp' is no engine"),
        (
            "[vrf.red]\nports = [0]\ntable = 10\n",
            ":5: vrf.red.table: --vrf-table needs --fpm or --kernel-routes",
        ),
        (
            "kernel-routes = true\n[vrf.red]\nports = [0]\ntable = 254\n",
            ":6: vrf.red.table: --vrf-table red=254: the VRF default has this table",
        ),
        ("[vrf.default]\nports = [0]\n", ":3: vrf.default: --vrf default: another VRF has this name"),
    ] {
        let file = scratch.file("wrong.toml", format!("{sources}{text}"));
        let wanted = format!("wrong.toml{message}");
        let out = fwd(&["config", "--config-file", &file]).fails(2, &[&wanted]);
        assert_eq!(out.stdout, "");
        // Fails before EAL starts, which would reject the argument.
        let run =
            ["run", "--config-file", &file, "--ctl", &scratch.path("x.sock"), "--", "--no-such-argument"];
        fwd(&run).fails(2, &[&wanted]);
    }
    let absent = scratch.path("absent.toml");
    fwd(&["run", "--config-file", &absent, "--fib", &fib]).fails(2, &["absent.toml: No such file"]);
    fwd_env(&["run", "--fib", &fib], "", &[("FWD_APP_RX_BRUST", "1")])
        .fails(2, &["did you mean 'FWD_APP_RX_BURST'"]);
    let file = scratch.file("replay.toml", format!("{sources}[harness]\nloops = 0\n"));
    fwd(&["replay", "t.pcap", "--config-file", &file]).fails(2, &[":4: harness.loops: invalid value '0'"]);
}

#[test]
fn the_example_is_a_configuration() {
    // The user frr exists only where FRR is installed.
    let scratch = ScratchFolder::new();
    let text = std::fs::read_to_string(EXAMPLE).unwrap();
    let file = scratch.file("example.toml", text.replace("fpm-user = \"frr\"", "fpm-user = \"root\""));
    let out = fwd(&["config", "--config-file", &file]).ok();
    for part in [
        "device = \"0000:03:00.1\"",
        "queues = \"auto\"",
        "ports = [\"0000:03:00.1\"]",
        "prefer = [\"fpm\", \"kernel-routes\"]",
    ] {
        assert!(out.contains(part), "no '{part}' in:\n{out}");
    }
}
