//! Files to options and back, for every option, and each kind of mistake.

use super::show::{Shown, shown, toml};
use super::*;
use crate::cli::args::{ReplayArgs, RunArgs};
use clap::FromArgMatches;
use std::collections::BTreeMap;
use tempfile::TempDir;

fn sample(arg: &Arg) -> Vec<String> {
    let id = arg.get_id().as_str();
    let long = arg.get_long().unwrap_or_default();
    if is_flag(arg) {
        return vec![format!("--{long}")];
    }
    let values: &[&str] = match id {
        "fib" => &["a.txt", "b c.txt"],
        "name" => &["sail-m"],
        "isa" => &["scalar"],
        "table_memory" => &["512M"],
        "table_node" => &["0"],
        "parameters" => &["fibs=2", "x=\"quoted\\\""],
        "split" | "search_exceed" | "search_width" => &["0.4"],
        "fallback" => &["host"],
        "stall_us" => &["200000"],
        "latency_target_us" => &["50"],
        "routes_max" => &["2000000"],
        "config" => &["(net_null0,0,1),(net_null0,1,2),(net_null1,auto)"],
        "topology" => &["pipeline"],
        "rx_burst" | "batch" => &["64"],
        "audit" | "flush_us" | "idle_us" => &["7"],
        "log_level" => &["warn"],
        "ecmp_seed" => &["18446744073709551615"],
        "stats_period" | "duration" => &["1.5"],
        "json" | "hgrm" | "svg" | "compare" => &["007"],
        "out" | "ctl" | "drain_hook" => &["/tmp/x y"],
        "ctl_group" | "ctl_read_group" => &["7"],
        "capture_drops" => &["drops.pcapng,5"],
        "updates" => &["updates.txt"],
        "vrf_updates" => &["red=u.txt"],
        "update_rate" | "update_loops" | "update_batch" => &["9"],
        "fpm" => &["[::1]:2620"],
        "metrics" => &["127.0.0.1:9100"],
        "prefer" => &["fpm,fib"],
        "fpm_hold" | "neigh_age" => &["60"],
        "fpm_user" => &["0", "root"],
        "port_name" => &["net_null0=edge", "net_null1=core"],
        "kernel_interface" => &["net_null0=eth0", "net_null0=eth1", "net_null1=eth2"],
        "foreign_routes" => &["ignore"],
        "vrf_table" => &["red=10"],
        "ports" if is_list(arg) => &["net_null0,net_null1"],
        "ports" => &["3"],
        "max_pkt_len" => &["9000"],
        "mtu" => &["net_null1=1400"],
        "rx_queue_size" | "tx_queue_size" => &["512"],
        "mbufs" => &["4096"],
        "eth_dest" => &["net_null1,02:00:00:00:00:09"],
        "address" => &["net_null0=192.0.2.1/24", "net_null0=198.51.100.1/24", "net_null1=2001:db8::1/64"],
        "tap" => &["net_null0=tap0"],
        "tap_netns" => &["blue"],
        "vrf" => &["red=net_null1,net_null0.7", "blue=net_null0.8"],
        "vrf_fib" => &["red=r.txt", "red=s.txt", "blue=b.txt"],
        "loops" | "tx_slow" | "limit" | "packets" | "seed" => &["3"],
        "generate" => &["table"],
        "v6_share" => &["30"],
        "sizes" => &["64:7,1518:1"],
        "save_trace" => &["made.pcap"],
        "port_of" => &["eth0=1", "1=2"],
        "stream" => &["always"],
        "rate" | "tx_rate" | "search_min" | "search_max" => &["100kpps"],
        "warmup" | "ramp" | "search_trial" | "search_sum" => &["2.5"],
        "search" => &["0.001,0.5"],
        "search_repeats" => &["5"],
        "lcores" => &["2"],
        "trace" => return vec!["trace.pcap".to_owned()],
        "eal" => return ["--", "-l", "0-2", "--vdev", "net_null0", "--no-huge"].map(str::to_owned).to_vec(),
        _ => &[],
    };
    assert!(!values.is_empty(), "--{long} (id {id}): a sample of its values is wanted here");
    values.iter().map(|value| format!("--{long}={value}")).collect()
}

fn line(command: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<OsString> {
    let program = test_program();
    let mut args: Vec<_> = options(program.find_subcommand(command).unwrap()).collect();
    args.retain(|arg| is_wanted(arg.get_id().as_str()));
    args.sort_by_key(|arg| arg.is_last_set());
    let words = args.into_iter().flat_map(sample);
    ["fwd-app", command].map(str::to_owned).into_iter().chain(words).map(OsString::from).collect()
}

fn outcome(words: &[OsString], environment: &[(&str, &str)]) -> Result<(String, Vec<Shown>), String> {
    let program = test_program();
    let environment: Vec<_> =
        environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let layers = Layers::read(&program, words, &environment, None).map_err(|error| error.to_string())?;
    let merged = layers.merge(&program, words);
    let matches = program.clone().try_get_matches_from(merged).map_err(|error| error.to_string())?;
    let (name, given) = matches.subcommand().unwrap();
    let text = if name == "run" {
        let mut args = RunArgs::from_arg_matches(given).map_err(|error| error.to_string())?;
        (args.forward.config_file, args.feeds.prefer) = (None, Vec::new());
        format!("{args:#?}")
    } else {
        let mut args = ReplayArgs::from_arg_matches(given).map_err(|error| error.to_string())?;
        args.forward.config_file = None;
        format!("{args:#?}")
    };
    Ok((text, shown(program.find_subcommand(name).unwrap(), given, &layers)))
}

fn values(shown: &[Shown]) -> BTreeMap<String, String> {
    let given = shown.iter().filter(|shown| shown.origin != Origin::Default);
    given.map(|shown| (shown.path(), shown.value().to_string())).collect()
}

/// Checks that the file for a command line gives the same result as the line. Returns the file.
fn check_round_trip(folder: &TempDir, words: &[OsString]) -> String {
    let (args, from_flags) = outcome(words, &[]).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    let text = toml(&from_flags, false);
    let path = folder.path().join("round trip.toml");
    std::fs::write(&path, &text).unwrap();
    let alone = [words[0].clone(), words[1].clone(), "--config-file".into(), path.clone().into()];
    let (again, from_file) =
        outcome(&alone, &[]).unwrap_or_else(|error| panic!("{words:?}: {error}\n{text}"));
    assert_eq!(again, args, "{words:?}\n{text}");
    assert_eq!(toml(&from_file, false), text, "{words:?}");
    assert_eq!(values(&from_file), values(&from_flags));
    for shown in from_file.iter().filter(|shown| shown.origin != Origin::Default) {
        let Origin::File(file, line) = &shown.origin else { panic!("{shown:?}\n{text}") };
        assert_eq!(*file, path);
        let key = shown.path().rsplit('.').next().unwrap().to_owned();
        let there = text.lines().nth(line - 1).unwrap();
        // A VRF's ports come from its table and from the tables of ports, so their line is the line of its table.
        assert!(
            there.starts_with(&format!("{key} = ")) || there.starts_with('['),
            "{key}: line {line}, {there}\n{text}"
        );
    }
    text
}

#[test]
fn every_option_goes_into_a_file_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let program = test_program();
    for command in COMMANDS {
        // A replay has either a duration or a number of loops, packets of a trace or generated ones, dealt by flow or by interface.
        let made = ["generate", "packets", "v6_share"];
        let others = ["duration", "imix", "spread"];
        let all = line(command, |id| command == "run" || !others.contains(&id) && !made.contains(&id));
        let text = check_round_trip(&folder, &all);
        for arg in options(program.find_subcommand(command).unwrap()) {
            let id = arg.get_id().as_str();
            // With a source of routes and replay's required options; then with all that it may require.
            let source = if made.contains(&id) { "generate" } else { "trace" };
            let least = ["fib", source];
            let more = ["fib", source, "vrf", "tap", "fpm", "updates", "remap"];
            let alone = line(command, |other| other == id || least.contains(&other));
            let words = if outcome(&alone, &[]).is_ok() {
                alone
            } else {
                line(command, |other| other == id || more.contains(&other))
            };
            check_round_trip(&folder, &words);
        }
        let own: &[_] = if command == "run" {
            &["[[port]]", "[vrf.red]", "queues = [\"1\"", "ports = [\"net_null1\""]
        } else {
            &["[vrf.red]"]
        };
        let own: Vec<_> = own.iter().map(|part| part.replace("[\"1\"", "[1, 2]")).collect();
        assert!(own.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn every_option_has_one_place() {
    let program = test_program();
    for command in COMMANDS {
        let mut places = Vec::new();
        for arg in options(program.find_subcommand(command).unwrap()) {
            let place =
                place::file_place(arg).unwrap_or_else(|| panic!("{arg:?} needs a heading")).to_string();
            assert!(!places.contains(&place), "{place}");
            places.push(place);
        }
        assert!(places.len() > 25);
    }
}

#[test]
fn ports_that_are_named_in_several_ways_go_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    for words in [
        "--address 0=192.0.2.1/24 --mtu 1=1400 --config (1,0,1),(0,0,2)",
        "--address net_null0=192.0.2.1/24 --mtu 0=1400 --config (0,1,1),(0,0,2)",
        "--ports 1,0 --address 0=192.0.2.1/24 --config (0,0,1),(0,1,2),(1,auto)",
        "--ports 03:00.0 --address 0000:03:00.0=192.0.2.1/24",
        "--ports net_null1,net_null0 --mtu net_null1=1400 --mtu net_null1=1300 --config (net_null0,0,1)",
        "--ports a --config (a,0,1),(a,1,1)",
        "--mtu 0=1400 --mtu 0=1300",
        "--vrf red=0,1 --vrf red=2 --vrf-fib blue=x",
        "--kernel-routes --fpm 127.0.0.1:1 --updates x",
        "--prefer kernel-routes --kernel-routes --fpm 127.0.0.1:1",
    ] {
        let words = ["fwd-app", "run", "--fib", "a"].into_iter().chain(words.split(' ')).map(OsString::from);
        check_round_trip(&folder, &words.collect::<Vec<_>>());
    }
}

fn with_file(text: &str, words: &str, environment: &[(&str, &str)]) -> Result<(String, Vec<Shown>), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.toml");
    std::fs::write(&path, text).unwrap();
    let mut line: Vec<OsString> =
        vec!["fwd-app".into(), "run".into(), "--config-file".into(), path.clone().into()];
    line.extend(words.split_whitespace().map(OsString::from));
    let strip = |text: String| text.replace(&format!("{}/", folder.path().display()), "");
    outcome(&line, environment).map_err(strip).map(|(args, mut shown)| {
        for shown in &mut shown {
            if let Origin::File(path, _) = &mut shown.origin {
                *path = "f.toml".into();
            }
        }
        (args, shown)
    })
}

#[test]
fn a_flag_comes_before_the_environment_and_that_before_the_file() {
    let file = "[sources]\nfib = [\"a\", \"b\"]\n[forwarder]\nrx-burst = 8\nbatch = 8\nflush-us = 8\n[ports]\npromiscuous = true\n";
    let environment = [
        ("FWD_APP_RX_BURST", "16"),
        ("FWD_APP_BATCH", "16"),
        ("FWD_APP_PROMISCUOUS", "false"),
        ("HOME", "x"),
    ];
    let (args, shown) = with_file(file, "--batch 32", &environment).unwrap();
    let is = |path: &str, value: &str, origin: &str| {
        let found = shown.iter().find(|shown| shown.path() == path).unwrap();
        assert_eq!((found.value().to_string().as_str(), found.origin.to_string().as_str()), (value, origin));
    };
    is("forwarder.batch", "32", "flag");
    is("forwarder.rx-burst", "16", "env FWD_APP_RX_BURST");
    is("forwarder.flush-us", "8", "f.toml:6");
    is("sources.fib", "[\"a\", \"b\"]", "f.toml:2");
    is("ports.promiscuous", "false", "env FWD_APP_PROMISCUOUS");
    is("engine.stall-us", "100000", "default");
    assert!(args.contains("promiscuous: false") && args.contains("batch: Some(\n            32,"), "{args}");
    let (args, _) = with_file(file, "--fib c", &[]).unwrap();
    assert!(
        args.contains("fib: [\n            \"c\",\n        ]") && args.contains("promiscuous: true"),
        "{args}"
    );
    let (args, _) =
        with_file(file, "", &[("FWD_APP_FIB", "d e"), ("FWD_APP_EAL", "-l 1"), ("FWD_APP_LOOPS", "x")])
            .unwrap();
    assert!(
        args.contains("\"d\",\n            \"e\"")
            && args.contains("eal: [\n        \"-l\",\n        \"1\",\n    ]"),
        "{args}"
    );
    let (args, _) = with_file("[eal]\narguments = \"-l 1\"\n[sources]\nfib = \"a\"", "-- -l 2", &[]).unwrap();
    assert!(args.contains("\"2\",\n    ]") && !args.contains("\"1\""), "{args}");
}

#[test]
fn ports_become_options_by_name_or_by_their_place() {
    let text = "\
[[port]]
device = 1
addresses = [\"192.0.2.1/24\", \"2001:db8::1/64\"]
queues = \"auto\"
[[port]]
device = \"0000:03:00.0\"
name = \"edge\"
mtu = 9000
vrf = \"red\"
queues = [{ queue = 1, lcore = 4 }, { queue = 0, lcore = 3 }]
eth-dest = \"02:00:00:00:00:01\"
[vrf.red]
ports = [\"1.7\"]
fib = \"red.txt\"
[sources]
fib = \"a\"
[harness]
loops = 9
";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.toml");
    std::fs::write(&path, text).unwrap();
    let program = test_program();
    let words = |command: &str| {
        ["fwd-app", command, "--config-file"]
            .map(OsString::from)
            .into_iter()
            .chain([path.clone().into()])
            .collect::<Vec<_>>()
    };
    let merged = |command: &str| {
        let words = words(command);
        let layers = Layers::read(&program, &words, &[], None).unwrap();
        let merged = layers.merge(&program, &words);
        merged[2..]
            .iter()
            .map(|word| word.to_str().unwrap().to_owned())
            .take_while(|word| word != "--config-file")
            .collect::<Vec<_>>()
    };
    let wanted = [
        "--ports=1",
        "--address=0=192.0.2.1/24",
        "--address=0=2001:db8::1/64",
        "--config=(0,auto),(0000:03:00.0,1,4),(0000:03:00.0,0,3)",
        "--ports=0000:03:00.0",
        "--port-name=0000:03:00.0=edge",
        "--mtu=0000:03:00.0=9000",
        "--eth-dest=0000:03:00.0,02:00:00:00:00:01",
        "--vrf=red=0000:03:00.0,1.7",
        "--vrf-fib=red=red.txt",
        "--fib=a",
    ];
    let mut run = merged("run");
    run.sort_unstable();
    let mut wanted = wanted.map(str::to_owned).to_vec();
    wanted.sort_unstable();
    assert_eq!(run, wanted);
    assert_eq!(
        merged("replay")
            .iter()
            .filter(|word| word.starts_with("--loops") || word.starts_with("--ports"))
            .count(),
        1
    );
}

/// Files with a mistake, and how the message about it starts.
const MISTAKES: &[(&str, &str)] = &[
    ("[forwarder\nrx-burst = 1", "f.toml:1: unclosed table, expected `]`"),
    ("x = = 1", "f.toml:1: "),
    ("[engine]\nname = \"host\"\nname = \"bloom\"", "f.toml:3: duplicate key"),
    ("\n[forwader]\nbatch = 1", "f.toml:2: forwader: no such table; did you mean 'forwarder'?"),
    ("[zzz]", "f.toml:1: zzz: no such table"),
    ("forwarder = 1", "f.toml:1: forwarder: wanted a table, [forwarder]"),
    ("[forwarder]\nrx_burst = 8", "f.toml:2: forwarder.rx_burst: no such key; did you mean 'rx-burst'?"),
    (
        "[forwarder]\nrx-burst = 9999",
        "f.toml:2: forwarder.rx-burst: invalid value '9999': 9999 is not in 1..=4096",
    ),
    (
        "[forwarder]\nrx-burst = \"many\"",
        "f.toml:2: forwarder.rx-burst: invalid value 'many': 'many' is not a whole number such as 100, 10k or 2M",
    ),
    ("[forwarder]\nrx-burst = [1, 2]", "f.toml:2: forwarder.rx-burst: wanted a value, found a list"),
    ("[forwarder]\nrx-burst = true", "f.toml:2: forwarder.rx-burst: wanted a value, found true"),
    (
        "[forwarder]\ntopology = \"ring\"",
        "f.toml:2: forwarder.topology: invalid value 'ring' [possible values: run-to-completion, pipeline]",
    ),
    (
        "[ports]\npromiscuous = \"yes\"",
        "f.toml:2: ports.promiscuous: wanted true or false, found the string 'yes'",
    ),
    ("[sources]\nfib = [\"a\", 1979-05-27]", "f.toml:2: sources.fib: wanted a value, found a date or a time"),
    (
        "[engine]\ntable-memory = \"4Q\"",
        "f.toml:2: engine.table-memory: invalid value '4Q': '4Q' is not a number of bytes such as 4096, 64K, 512M or 2G",
    ),
    (
        "[[port]]\nmtu = 1400",
        "f.toml:1: port.device: it is missing: wanted the name, PCI address or index of the port",
    ),
    (
        "[[port]]\ndevice = \"a\"\n[[port]]\ndevice = \"a\"",
        "f.toml:4: port.device: 'a': another [[port]] has this device",
    ),
    (
        "[[port]]\ndevice = \"a\"\naddress = \"x\"",
        "f.toml:3: port.address: no such key; did you mean 'addresses'?",
    ),
    (
        "[[port]]\ndevice = \"a\"\naddresses = [\n\"192.0.2.1/24\",\n\"192.0.2.1\"]",
        "f.toml:5: port.addresses: invalid value 'a=192.0.2.1': 'a=192.0.2.1' is not PORT=ADDRESS/LENGTH such as 0=192.0.2.1/24",
    ),
    (
        "[[port]]\ndevice = \"a\"\nmtu = 67",
        "f.toml:3: port.mtu: invalid value 'a=67': 'a=67' is not PORT=BYTES such as 0=1400, with 68 to 65535 bytes",
    ),
    (
        "[[port]]\ndevice = \"a\"\nqueues = \"all\"",
        "f.toml:3: port.queues: wanted a list of lcores such as [1, 2], or \"auto\", found 'all'",
    ),
    (
        "[[port]]\ndevice = \"a\"\nqueues = [1, \"x\"]",
        "f.toml:3: port.queues: '(a,1,x)' is not (port,queue,lcore) with numbers of a queue and an lcore",
    ),
    (
        "[[port]]\ndevice = \"a\"\nqueues = [{ queue = 1, lcore = 1 }]",
        "f.toml:3: port.queues: invalid value '(a,1,1)': port a has queue 1 but no queue 0; its queues must be 0, 1, ..",
    ),
    ("[port]\ndevice = \"a\"", "f.toml:1: port: wanted [[port]], a table for each port"),
    (
        "[[port]]\ndevice = \"a\"\nvrf = \"red\"\n[vrf.blue]\nports = [1]",
        "f.toml:3: port.vrf: there is no [vrf.red]; there are: blue",
    ),
    (
        "[vrf.red]\ntable = 10",
        "f.toml:1: vrf.red: the VRF has no ports: wanted ports = [..] here, or vrf = \"red\" in a [[port]]",
    ),
    (
        "[vrf.red]\nports = [0]\ntable = \"main\"",
        "f.toml:3: vrf.red.table: invalid value 'red=main': 'red=main' is not NAME=TABLE such as red=10; a table is a number above 0",
    ),
    ("[vrf]\nred = 1", "f.toml:2: vrf: wanted [vrf.NAME], a table for each VRF; found 1"),
    (
        "[forwarder]\nconfig = \"(0,0,1)\"\n[[port]]\ndevice = \"a\"\nqueues = [1]",
        "f.toml:5: port.queues: it is also given at f.toml:2",
    ),
    (
        "[sources]\nprefer = [\"bgp\"]",
        "f.toml:2: sources.prefer: invalid value 'bgp' [possible values: fib, fpm, kernel-routes]",
    ),
];

#[test]
fn a_mistake_is_said_with_its_line() {
    let sources = "[sources]\nfib = \"a\"\n";
    for (text, wanted) in MISTAKES {
        let error = with_file(text, "", &[]).unwrap_err();
        assert!(error.starts_with(wanted), "{text}\n{error}\n{wanted}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert_eq!(with_file(text, "--fib b --neigh-age 5", &[]).unwrap_err(), error);
    }
    let with_environment = |name: &str, value: &str| with_file(sources, "", &[(name, value)]).unwrap_err();
    assert_eq!(
        with_environment("FWD_APP_RX_BRUST", "8"),
        "FWD_APP_RX_BRUST: no option has this variable; did you mean 'FWD_APP_RX_BURST'?"
    );
    assert_eq!(
        with_environment("FWD_APP_RX_BURST", "0"),
        "env FWD_APP_RX_BURST: forwarder.rx-burst: invalid value '0': 0 is not in 1..=4096"
    );
    assert_eq!(
        with_environment("FWD_APP_PROMISCUOUS", "1"),
        "FWD_APP_PROMISCUOUS: wanted true or false, found '1'"
    );
    // Values that the command line overrides are not checked, nor is a file that is switched off.
    assert!(with_file("[forwarder]\nrx-burst = 9999\n", "--fib a --rx-burst 8", &[]).is_ok());
    assert!(with_file("[zzz]", "--config-file none --fib a", &[]).is_err());
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let program = test_program();
    let read = |path: &Path| {
        let words: Vec<OsString> = vec!["fwd-app".into(), "run".into(), "--config-file".into(), path.into()];
        Layers::read(&program, &words, &[], None).map_err(|error| error.to_string())
    };
    let absent = folder.path().join("absent");
    assert_eq!(
        read(&absent).unwrap_err(),
        format!("{}: No such file or directory (os error 2)", absent.display())
    );
    assert!(read(folder.path()).unwrap_err().contains("Is a directory"));
    std::fs::write(&absent, b"\xff").unwrap();
    assert!(read(&absent).unwrap_err().contains("invalid utf-8"));
    let words: Vec<OsString> = vec!["fwd-app".into(), "run".into()];
    let default = folder.path().join("none");
    assert_eq!(Layers::read(&program, &words, &[], Some(&default)), Ok(Layers::default()));
    std::fs::write(&default, "[sources]\nfib = \"/absent/routes.txt\"\n").unwrap();
    let layers = Layers::read(&program, &words, &[], Some(&default)).unwrap();
    assert_eq!(layers.file.as_deref(), Some(default.as_path()));
    let wanted = format!(
        "{}:2: sources.fib: /absent/routes.txt: No such file or directory (os error 2)",
        default.display()
    );
    assert_eq!(layers.check_files().unwrap_err().to_string(), wanted);
    let none = |words: &[&str], variables: &[(String, String)]| {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        Layers::read(&program, &words, variables, Some(&default)).unwrap().file
    };
    assert_eq!(none(&["fwd-app", "run", "--config-file", "none"], &[]), None);
    assert_eq!(none(&["fwd-app", "run"], &[("FWD_APP_CONFIG_FILE".to_owned(), "none".to_owned())]), None);
    assert_eq!(none(&["fwd-app", "lookup"], &[]), None);
}

#[test]
fn what_needs_another_option_and_what_is_wrong_later_has_its_line() {
    let program = test_program();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.toml");
    std::fs::write(
        &path,
        "[sources]\nfib = \"a\"\nfpm-user = [\"root\"]\n[vrf.red]\nports = [9]\ntable = 254\n",
    )
    .unwrap();
    let words: Vec<OsString> = vec!["fwd-app".into(), "run".into(), "--config-file".into(), path.into()];
    let layers = Layers::read(&program, &words, &[], None).unwrap();
    let error = program.clone().try_get_matches_from(layers.merge(&program, &words)).unwrap_err();
    let mistake = layers.mistake(&program, &words, &error).unwrap().to_string();
    let wanted =
        "f.toml:3: sources.fpm-user: the following required arguments were not provided: --fpm <ADDR:PORT>";
    assert!(mistake.ends_with(wanted), "{mistake}");
    let blamed = |message: &str| layers.blame(&program, message).map(|(_, origin)| origin.to_string());
    let line = |line: usize| Some(format!("{}/f.toml:{line}", folder.path().display()));
    assert_eq!(blamed("--vrf-table red=254: the VRF default has this table"), line(6));
    assert_eq!(blamed("--vrf red names port 9, which does not exist"), line(5));
    assert_eq!(blamed("--vrf red: another VRF has this name"), line(4));
    assert_eq!(blamed("--config names port 9"), None);
}

const THREE_PORTS: &str = "\
[[port]]
device = \"p0\"
name = \"edge0\"
addresses = [\"192.0.2.1/24\"]
mtu = 1500
tap = \"tap0\"
queues = [1]
eth-dest = \"02:00:00:00:00:01\"
kernel-interface = \"eth0\"
vrf = \"red\"

[[port]]
device = \"p1\"
addresses = [\"192.0.2.2/25\"]
mtu = 1500
tap = \"tap1\"
queues = [2]
eth-dest = \"02:00:00:00:00:02\"
kernel-interface = \"eth1\"
vrf = \"red\"

[[port]]
device = \"0000:03:00.0\"
name = \"edge2\"
addresses = [\"192.0.2.3/26\"]
mtu = 1500
tap = \"tap2\"
queues = [3]
eth-dest = \"02:00:00:00:00:03\"
kernel-interface = \"eth2\"
vrf = \"blue\"

[vrf.red]
fib = \"r.txt\"
table = 10

[vrf.blue]
ports = [
  \"p0.7\",
  \"p1.8\",
]
fib = \"b.txt\"
table = 11
[sources]
fib = \"a\"
fpm = \"127.0.0.1:2620\"
";

/// The last line of [`THREE_PORTS`] that begins with `start`.
fn line_of(start: &str) -> usize {
    1 + THREE_PORTS
        .lines()
        .collect::<Vec<_>>()
        .iter()
        .rposition(|line| line.trim().starts_with(start))
        .unwrap()
}

#[test]
fn a_mistake_in_the_third_port_has_its_line() {
    for (right, wrong) in [
        ("device = \"0000:03:00.0\"", "device = \"p1\""),
        ("device = \"0000:03:00.0\"", "device = [1]"),
        ("name = \"edge2\"", "name = \"edge.2\""),
        ("name = \"edge2\"", "nam = \"edge2\""),
        ("addresses = [\"192.0.2.3/26\"]", "addresses = [\"192.0.2.3\"]"),
        ("mtu = 1500", "mtu = 9"),
        ("mtu = 1500", "mtu = [1500]"),
        ("tap = \"tap2\"", "tap = true"),
        ("queues = [3]", "queues = \"many\""),
        ("queues = [3]", "queues = [\"x\"]"),
        ("queues = [3]", "queues = [{ queue = 1, lcore = 3 }]"),
        ("eth-dest = \"02:00:00:00:00:03\"", "eth-dest = \"02:00\""),
        ("kernel-interface = \"eth2\"", "kernel-interface = \"\""),
        ("vrf = \"blue\"", "vrf = \"green\""),
        ("table = 11", "table = 0"),
        ("fib = \"b.txt\"", "fibs = \"b.txt\""),
    ] {
        let (before, after) = THREE_PORTS.rsplit_once(right).unwrap();
        let line = 1 + before.matches('\n').count();
        let error = with_file(&format!("{before}{wrong}{after}"), "", &[]).unwrap_err();
        assert!(error.starts_with(&format!("f.toml:{line}: ")), "{wrong}: line {line}, {error}");
    }
}

#[test]
fn what_is_wrong_later_has_the_line_of_its_port() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.toml");
    std::fs::write(&path, THREE_PORTS).unwrap();
    let program = test_program();
    let words: Vec<OsString> =
        vec!["fwd-app".into(), "run".into(), "--config-file".into(), path.clone().into()];
    let layers = Layers::read(&program, &words, &[], None).unwrap();
    for (message, start) in [
        ("--ports 0000:03:00.0: there is no such port; there are: 0 (p0), 1 (p1)", "device = \"0000"),
        ("--port-name 0000:03:00.0=edge2: port 1 (p1) has this name", "name = \"edge2\""),
        ("--address 0000:03:00.0: no host can have the address 192.0.2.3", "addresses = [\"192.0.2.3"),
        (
            "--address: port 2 (edge2) had no address at start; its first one needs a restart",
            "addresses = [\"192.0.2.3",
        ),
        (
            "--address: port 0 (edge0) and port 1 (p1) both have the link of 192.0.2.2/25",
            "addresses = [\"192.0.2.2",
        ),
        ("--mtu names port 0000:03:00.0, but there are 2", "mtu"),
        ("--mtu 0000:03:00.0=1500: port 2 (edge2) can get at most 1400 bytes", "mtu"),
        ("--eth-dest names port 0000:03:00.0, but there are 2", "eth-dest"),
        ("--kernel-interface eth2 names port 9, which does not exist", "kernel-interface"),
        ("--tap 0000:03:00.0=tap2: a port has only one TAP", "tap"),
        ("--config gives port 2 (edge2) 1 RX queues, but the device has 0", "queues"),
        ("--config names port 0000:03:00.0, which does not exist; there are: 0 (p0)", "queues"),
        ("--vrf blue names port p1.8, which does not exist; there are: 0 (p0)", "\"p1.8\""),
        ("--vrf blue names port 0000:03:00.0, which does not exist", "vrf = \"blue\""),
        ("--vrf blue: another VRF has this name", "[vrf.blue]"),
        ("--vrf: port p1.8 is in the VRFs red and blue", "\"p1.8\""),
        ("--vrf-table blue=11: the VRF red has this table", "table"),
        ("--vrf-fib blue: no --vrf has this name", "fib = \"b.txt\""),
    ] {
        let (_, origin) = layers.blame(&program, message).unwrap();
        assert_eq!(*origin, Origin::File(path.clone(), line_of(start)), "{message}");
    }
}

#[test]
fn each_value_of_a_port_is_shown_with_its_line() {
    let (_, shown) = with_file(THREE_PORTS, "", &[]).unwrap();
    let line = |path: &str| {
        let found = shown.iter().find(|shown| shown.path() == path).unwrap();
        let Origin::File(_, line) = found.origin else { panic!("{found:?}") };
        line
    };
    for (key, start) in [
        ("device", "device"),
        ("name", "name"),
        ("addresses", "addresses"),
        ("mtu", "mtu"),
        ("tap", "tap"),
        ("queues", "queues"),
        ("eth-dest", "eth-dest"),
        ("kernel-interface", "kernel-interface"),
    ] {
        assert_eq!(line(&format!("port.0000:03:00.0.{key}")), line_of(start), "{key}");
        assert!(key == "name" || line(&format!("port.p1.{key}")) < line_of("device"), "{key}");
    }
    assert_eq!((line("vrf.blue.table"), line("vrf.blue.fib")), (line_of("table"), line_of("fib = \"b")));
}
