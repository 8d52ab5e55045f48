//! Errors of the program: message, exit code, and no partial output.

use crate::mrt;
use crate::support::{ScratchFolder, fwd, fwd_stdin, has_avx512f};
use std::fs::File;
use std::process::{Command, Stdio};

#[test]
fn a_wrong_line_names_file_and_line() {
    let scratch = ScratchFolder::new();
    for (name, line, parts) in [
        ("id0.txt", "10.0.0.0/8 0", ["0", "16777215"]),
        ("id.txt", "10.0.0.0/8 16777216", ["16777216", "16777215"]),
        ("huge.txt", "10.0.0.0/8 99999999999999999999", ["99999999999999999999", ""]),
        ("host.txt", "10.0.0.1/8 1", ["10.0.0.1/8", "10.0.0.0/8"]),
        ("long.txt", "10.0.0.0/33 1", ["33", "32"]),
        ("words.txt", "hello world", ["hello", ""]),
        ("half.txt", "10.0.0.0/8", ["", ""]),
    ] {
        let file = scratch.file(name, format!("# table\n1.0.0.0/8 1\n\n{line}\n2.0.0.0/8 1\n"));
        for args in [
            vec!["lookup", "--fib", &file, "1.0.0.1"],
            vec!["fib", "stat", &file],
            vec!["fib", "convert", &file, "--to", "text"],
        ] {
            let out = fwd(&args).fails(1, &[&format!("{name}:4:"), parts[0], parts[1]]);
            assert_eq!(out.stdout, "", "{args:?}: no partial output");
        }
    }
}

#[test]
fn a_bad_second_file_leaves_no_output_file() {
    let scratch = ScratchFolder::new();
    let good = scratch.file("good.txt", "1.0.0.0/8 1\n");
    let bad = scratch.file("bad.txt", "1.0.0.0/8 x\n");
    let out = scratch.path("out.txt");
    fwd(&["fib", "convert", &good, &bad, "--to", "text", "-o", &out]).fails(1, &["bad.txt:1:"]);
    let mut names = scratch.names();
    names.sort_unstable();
    assert_eq!(names, ["bad.txt", "good.txt"]);
}

#[test]
fn what_is_no_file_of_routes() {
    let scratch = ScratchFolder::new();
    let folder = scratch.path("folder");
    std::fs::create_dir(&folder).unwrap();
    fwd(&["lookup", "--fib", &folder, "1.1.1.1"]).fails(1, &["folder", "directory"]);
    fwd(&["lookup", "--fib", &scratch.path("absent"), "1.1.1.1"]).fails(1, &["absent", "No such file"]);
    // An empty file is not an error: it is a table without routes.
    assert_eq!(fwd(&["lookup", "--fib", &scratch.file("empty", ""), "1.1.1.1"]).ok(), "1.1.1.1\t0\n");
    fwd(&["lookup", "--fib", &scratch.file("binary", [0x80_u8; 4096]), "1.1.1.1"]).fails(1, &["binary"]);
    let gzip = scratch.file("cut.gz", [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x33, 0x34]);
    fwd(&["lookup", "--fib", &gzip, "1.1.1.1"]).fails(1, &["cut.gz"]);
}

#[test]
fn an_mrt_file_cut_short_warns_and_keeps_what_it_read() {
    let scratch = ScratchFolder::new();
    let routes =
        [("10.0.0.0/8", "198.51.100.1"), ("11.0.0.0/8", "198.51.100.2"), ("12.0.0.0/8", "198.51.100.1")];
    let whole = mrt::table(&routes);
    let ask = |file: &str| fwd(&["lookup", "--fib", file, "10.0.0.1", "11.0.0.1", "12.0.0.1"]);
    let out = ask(&scratch.file("whole.mrt", &whole));
    assert_eq!(out.stderr, "");
    let ids: Vec<String> = out.ok().lines().map(|l| l.split('\t').nth(1).unwrap().to_owned()).collect();
    assert!(ids[0] == ids[2] && ids[0] != ids[1] && ids[0] != "0" && ids[1] != "0", "{ids:?}");

    let out = ask(&scratch.file("cut.mrt", &whole[..whole.len() - 5]));
    assert!(out.stderr.starts_with("fwd-app: warning: "), "{}", out.stderr);
    assert!(out.stderr.contains("cut.mrt: cut short in record 4"), "{}", out.stderr);
    assert!(out.stderr.contains("2 routes before it are used"), "{}", out.stderr);
    let out = out.ok();
    assert!(out.ends_with("12.0.0.1\t0\n") && out.starts_with(&format!("10.0.0.1\t{}\n", ids[0])), "{out}");
}

#[test]
fn an_engine_or_instruction_set_that_is_not_there() {
    let scratch = ScratchFolder::new();
    let fib = scratch.file("routes.txt", "10.0.0.0/8 1\n");
    let with = |option: &str, value: &str| fwd(&["lookup", "--fib", &fib, option, value, "10.0.0.1"]);
    let out = with("--engine", "warp").fails(
        2,
        &[
            "'warp' is no engine",
            "auto, oracle, host, sail-b, sail-u, sail-l, sail-m, linear, bloom, bloom-baseline, bloom-naive, miht, coop, gamt, gale, sail-gpu, mamt",
        ],
    );
    assert_eq!(out.stdout, "");
    with("--isa", "sse9").fails(2, &["'sse9'", "scalar, avx2, avx512f"]);
    // The engine name is checked before a table is read, so a missing table does not hide a wrong name.
    fwd(&["lookup", "--fib", "/absent", "--engine", "warp", "10.0.0.1"]).fails(2, &["'warp'"]);
    with("--engine-arg", "nonsense").fails(2, &["NAME=VALUE"]);
    with("--engine-arg", "warp=9").fails(2, &["warp=9", "engine host"]);
    with("--engine-arg", "code-bits=7").fails(2, &["code-bits = 7", "8, 16 or 32"]);
    assert_eq!(with("--engine-arg", "code-bits=32").ok(), "10.0.0.1\t1\n");
    let bloom = ["lookup", "--fib", &fib, "--engine", "bloom", "--engine-arg", "fpr=7", "10.0.0.1"];
    fwd(&bloom).fails(2, &["fpr = 7", "between"]);
    fwd(&["lookup", "--fib", &fib, "--engine", "bloom-baseline", "--engine-arg", "hash=md5", "10.0.0.1"])
        .fails(2, &["hash = md5", "murmur, knuth, h2 or rand"]);
    with("--table-node", "4000").fails(2, &["--table-node 4000: no such NUMA node; this host has memory on"]);
    fwd(&["lookup", "--fib", &fib, "--engine", "miht", "--engine-arg", "k4=33", "10.0.0.1"])
        .fails(2, &["k4 = 33", "1 to 32"]);
    if has_avx512f() {
        eprintln!("SKIPPED: --isa avx512f on a host without: this CPU has it");
        assert_eq!(with("--isa", "avx512f").ok(), "10.0.0.1\t1\n");
    } else {
        for engine in ["auto", "oracle", "bloom"] {
            fwd(&["lookup", "--fib", &fib, "--engine", engine, "--isa", "avx512f", "10.0.0.1"])
                .fails(2, &["this CPU has no avx512f", "scalar"]);
        }
    }
}

#[test]
fn a_table_that_is_too_large_is_refused() {
    let scratch = ScratchFolder::new();
    let fib = scratch.path("routes.txt");
    fwd(&["fib", "generate", "--family", "both", "--routes", "60000", "-o", &fib]).ok();
    let small = ["lookup", "--fib", &fib, "--engine", "bloom", "--table-memory"];
    let run = |memory: &str| fwd(&[&small[..], &[memory, "1.1.1.1"]].concat());
    let out = run("64K").fails(1, &["65536", "bloom"]);
    assert_eq!(out.stdout, "");
    run("24M").fails(1, &["25165824", "bloom"]);
    assert_eq!(run("1G").ok().lines().count(), 1);
    run("0").fails(2, &["number of bytes"]);
    run("1T").fails(2, &["number of bytes"]);
    let routes_max = |n: &str| fwd(&["lookup", "--fib", &fib, "--routes-max", n, "1.1.1.1"]);
    routes_max("59999").fails(1, &["routes", "60000", "59999"]);
    routes_max("60000").ok();
}

#[test]
fn a_bad_address_is_named_after_the_good_ones_are_answered() {
    let scratch = ScratchFolder::new();
    let fib = scratch.file("routes.txt", "0.0.0.0/0 5\n");
    let input = "1.1.1.1\n# x\n2.2.2.2\n3.3.3.333\n4.4.4.4\n";
    let out = fwd_stdin(&["lookup", "--fib", &fib], input)
        .fails(1, &["stdin:4: '3.3.3.333' is not an IPv4 or IPv6 address"]);
    assert_eq!(out.stdout, "1.1.1.1\t5\n2.2.2.2\t5\n");
}

#[test]
fn a_bad_address_on_the_command_line_is_bad_usage() {
    let scratch = ScratchFolder::new();
    let fib = scratch.file("routes.txt", "0.0.0.0/0 5\n");
    for bad in ["300.1.1.1", "nonsense", "10.0.0.0/8", "1.2.3", "fe80::1%eth0", ""] {
        // The address is checked before the table's file is opened.
        for fib in [&fib, "/absent"] {
            let wanted = format!("'{bad}' is not an IPv4 or IPv6 address");
            let out = fwd(&["lookup", "--fib", fib, "1.1.1.1", bad]).fails(2, &[&wanted]);
            assert_eq!(out.stdout, "", "no partial output");
        }
    }
    assert_eq!(fwd(&["lookup", "--fib", &fib, "1.1.1.1", "::1"]).ok(), "1.1.1.1\t5\n::1\t0\n");
}

#[test]
fn bad_update_streams() {
    let scratch = ScratchFolder::new();
    let fib = scratch.file("routes.txt", "0.0.0.0/0 5\n");
    let ask = |updates: &str| fwd(&["lookup", "--fib", &fib, "--updates", updates, "1.1.1.1"]);
    let bad = scratch.file("bad.txt", "a 10.0.0.0/8 1\nw 10.0.0.0/8\na 10.0.0.0/8\n");
    assert_eq!(ask(&bad).fails(1, &["bad.txt:3:"]).stdout, "");
    let id = scratch.file("id.txt", "a 10.0.0.0/8 1\na 10.0.0.0/8 16777216\n");
    ask(&id).fails(1, &["id.txt:2:", "16777216"]);
    ask(&scratch.path("absent")).fails(1, &["absent"]);
    ask(&scratch.path("")).fails(1, &["directory"]);
    fwd(&["lookup", "--fib", &fib, "--updates-limit", "3", "1.1.1.1"]).fails(2, &["--updates"]);
    // A gateway's id cannot be used as a bare id: an id with two meanings would give wrong answers.
    let via = scratch.file("via.txt", "10.0.0.0/8 via 192.0.2.1 dev 0\n");
    let taken = scratch.file("taken.txt", "a 11.0.0.0/8 1\n");
    fwd(&["lookup", "--fib", &via, "--updates", &taken, "11.0.0.1"]).fails(1, &["taken.txt:1", "192.0.2.1"]);
}

#[test]
fn bad_usage() {
    let scratch = ScratchFolder::new();
    let fib = scratch.file("routes.txt", "0.0.0.0/0 5\n");
    fwd(&[]).fails(2, &["no command is given", "Usage:"]);
    fwd(&["fly"]).fails(2, &["'fly'"]);
    fwd(&["lookup"]).fails(2, &["--fib"]);
    fwd(&["lookup", "--fib", &fib, "--batsch", "3"]).fails(2, &["--batsch"]);
    fwd(&["fib"]).fails(2, &["Usage:"]);
    fwd(&["fib", "stat"]).fails(2, &["FILE"]);
    fwd(&["fib", "convert", &fib]).fails(2, &["--to"]);
    fwd(&["fib", "convert", &fib, "--to", "xml"]).fails(2, &["xml"]);
    fwd(&["fib", "generate", "--family", "v5"]).fails(2, &["v5"]);
    fwd(&["fib", "generate", "--routes", "many"]).fails(2, &["many"]);
    fwd(&["fib", "generate", "--next-hops", "0", "--routes", "10"]).fails(2, &["next"]);
    fwd(&["fib", "generate", "--next-hops", "16777216", "--routes", "10"]).fails(2, &["16777215"]);
    fwd(&["fib", "generate", "--updates", "5"]).fails(2, &["--fib"]);
    fwd(&["fib", "generate", "--updates", "5", "--fib", &fib, "--routes", "5"]).fails(2, &["--routes"]);
    for (config, part) in [
        ("(0,0,1),(0,0,2)", "queue 0 of port 0 is given to lcore 1 and to lcore 2"),
        ("(0,0,1),(0,0,1)", "twice"),
        ("(0,1,1)", "no queue 0"),
        ("(0,0)", "not (port,queue,lcore)"),
        ("", "at least one (port,queue,lcore)"),
    ] {
        fwd(&["run", "--fib", &fib, "--config", config]).fails(2, &[part]);
        fwd(&["replay", "x.pcap", "--fib", &fib, "--config", config]).fails(2, &[part]);
        fwd(&["check", "--config", config]).fails(2, &[part]);
    }
    fwd(&["replay", "x.pcap", "--fib", &fib, "--rate", "fast"]).fails(2, &["'fast' is not a rate"]);
    fwd(&["replay", "x.pcap", "--fib", &fib, "--update-rate", "5"]).fails(2, &["--updates"]);
    fwd(&["run", "--fib", &fib, "--eth-dest", "0"]).fails(2, &["PORT,MAC"]);
    fwd(&["run", "--fib", &fib, "--rx-burst", "0"]).fails(2, &["1..=4096"]);
}

#[test]
fn output_that_cannot_be_written() {
    let scratch = ScratchFolder::new();
    let fib = scratch.file("routes.txt", "0.0.0.0/0 5\n");
    let to = |out: &str| fwd(&["fib", "convert", &fib, "--to", "text", "-o", out]);
    to(&scratch.path("")).fails(1, &["cannot write", "directory"]);
    to(&scratch.path("absent/out.txt")).fails(1, &["cannot write", "absent/out.txt"]);
    assert_eq!(scratch.names(), ["routes.txt"]);
    to("/dev/full").fails(1, &["cannot write /dev/full", "No space left"]);
}

fn on_a_full_disk(args: &[&str], is_stdout: bool) -> (Option<i32>, String) {
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let (stdout, stderr) = if is_stdout { (full(), Stdio::piped()) } else { (Stdio::piped(), full()) };
    let child = Command::new(env!("CARGO_BIN_EXE_fwd-app"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_full_disk_is_an_error_and_never_a_panic() {
    let scratch = ScratchFolder::new();
    let fib = scratch.file("routes.txt", "0.0.0.0/0 5\n");
    for args in [
        &["lookup", "--fib", &fib, "1.1.1.1"][..],
        &["fib", "stat", &fib],
        &["fib", "stat", &fib, "--json"],
        &["fib", "convert", &fib, "--to", "json"],
        &["fib", "generate", "--routes", "10"],
        &["check"],
    ] {
        let (code, message) = on_a_full_disk(args, true);
        assert_eq!(code, Some(1), "{args:?}");
        assert!(
            message.starts_with("fwd-app: cannot write") && message.contains("No space left"),
            "{message}"
        );
    }
    assert_eq!(on_a_full_disk(&["lookup"], false).0, Some(2));
    assert_eq!(on_a_full_disk(&["fib", "stat", "/absent"], false).0, Some(1));
}
