//! `lookup` against the trie: small tables of every shape, generated tables, updates, and the streaming of input and output.

use crate::support::{ScratchFolder, check_answers, check_engines, fwd, fwd_stdin, lines, setups, start};
use crate::trie::{RouteModel, edges, every_length, random_addresses, route};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::IpAddr;

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn small_tables_of_every_shape() {
    for text in [
        "# no route at all\n",
        "0.0.0.0/0 1\n",
        "::/0 16777215\n",
        "0.0.0.0/0 1\n::/0 2\n",
        "10.1.2.3/32 1\n255.255.255.255/32 2\n0.0.0.0/32 3\n",
        "2001:db8::1/128 1\nffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128 2\n::/128 3\n",
        "2001:db8::/64 1\n2001:db8::/65 2\n2001:db8::/96 3\n2001:db8::1:0/112 4\n2001:db8::/127 5\n",
        "0.0.0.0/1 1\n128.0.0.0/1 2\n10.0.0.0/20 3\n10.0.0.0/21 4\n10.0.0.0/24 5\n10.0.0.0/25 6\n",
        &every_length(),
    ] {
        let scratch = ScratchFolder::new();
        let fib = scratch.file("routes.txt", text);
        let model = RouteModel::of_text(text);
        let mut probes = model.probes(1);
        probes.extend(addresses(&["0.0.0.0", "255.255.255.255", "::", "ffff::", "2001:db8::1", "192.0.2.1"]));
        probes.extend(random_addresses(500, 1));
        check_engines(&[&fib], &[], &probes, &model);
    }
}

#[test]
fn generated_tables_and_an_update_stream() {
    let scratch = ScratchFolder::new();
    let [fib, updates] = scratch.generated("30000", "20000");
    let mut model = RouteModel::of_text(&std::fs::read_to_string(&fib).unwrap());
    assert_eq!(model.routes.len(), 30_000);
    let mut probes = model.probes(1);
    probes.extend(random_addresses(20_000, 5));
    check_engines(&[&fib], &[], &probes, &model);

    let stream = std::fs::read_to_string(&updates).unwrap();
    assert_eq!(stream.lines().count(), 20_000);
    let mut touched = Vec::new();
    for (number, line) in (1..).zip(stream.lines()) {
        model.update(line);
        touched.extend(edges(route(line.split(' ').nth(1).unwrap())));
        if number == 5_000 {
            let more = ["--updates", &updates, "--updates-limit", "5000"];
            check_engines(&[&fib], &more, &touched, &model);
        }
    }
    touched.extend(probes);
    check_engines(&[&fib], &["--updates", &updates], &touched, &model);
}

#[test]
fn withdrawing_everything_leaves_an_empty_table() {
    let scratch = ScratchFolder::new();
    let fib = scratch.path("routes.txt");
    fwd(&["fib", "generate", "--family", "both", "--routes", "3000", "-o", &fib]).ok();
    let text = std::fs::read_to_string(&fib).unwrap();
    let withdraws: String =
        text.lines().map(|line| format!("w {}\n", line.split(' ').next().unwrap())).collect();
    let updates = scratch.file("updates.txt", withdraws);
    let probes = RouteModel::of_text(&text).probes(1);
    check_engines(&[&fib], &["--updates", &updates], &probes, &RouteModel::new());
}

#[test]
fn several_files_are_one_table_and_auto_is_an_engine() {
    let scratch = ScratchFolder::new();
    let v4 = scratch.file("v4.txt", "10.0.0.0/8 1\n");
    let v6 = scratch.file("v6.txt", "2001:db8::/32 2\n10.0.0.0/8 3\n");
    let out = fwd(&["lookup", "--fib", &v4, "--fib", &v6, "10.0.0.1", "2001:db8::", "::1"]);
    assert_eq!(out.ok(), "10.0.0.1\t3\n2001:db8::\t2\n::1\t0\n");
}

#[test]
fn other_route_formats_are_looked_up_too() {
    let scratch = ScratchFolder::new();
    let routes = scratch.file(
        "routes.txt",
        "10.0.0.0/8 via 192.0.2.1 dev 0\n11.0.0.0/8 via 192.0.2.2 dev 1\n12.0.0.0/8 via 192.0.2.1 dev 0\n",
    );
    let out = fwd(&["lookup", "--fib", &routes, "10.0.0.1", "11.0.0.1", "12.0.0.1", "13.0.0.1"]).ok();
    let ids: Vec<&str> = out.lines().map(|line| line.split('\t').nth(1).unwrap()).collect();
    assert!(
        ids[0] == ids[2] && ids[0] != ids[1] && ids[0] != "0" && ids[1] != "0" && ids[3] == "0",
        "{ids:?}"
    );
}

#[test]
fn a_hundred_thousand_next_hops_are_right_or_refused() {
    let scratch = ScratchFolder::new();
    let mut text = String::new();
    for id in 1..=100_000_u32 {
        let bits = id.wrapping_mul(0x9e37_79b1) & 0xffff_ff00;
        writeln!(text, "{}/24 {id}", std::net::Ipv4Addr::from_bits(bits)).unwrap();
    }
    writeln!(text, "0.0.0.0/0 16777215\n2001:db8::/32 16777214").unwrap();
    let fib = scratch.file("routes.txt", &text);
    let model = RouteModel::of_text(&text);
    assert!(model.routes.len() > 99_000);
    let mut probes = model.probes(1);
    probes.extend(random_addresses(10_000, 6));
    let input = lines(&probes);
    for [engine, isa] in setups() {
        let out = fwd_stdin(&["lookup", "--fib", &fib, "--engine", engine, "--isa", isa], &input);
        if out.code == 0 {
            check_answers(&out.stdout, &probes, &model, engine);
        } else {
            let out = out.fails(1, &["next hops", "needed", "fit"]);
            assert!(out.stdout.is_empty());
        }
    }
}

#[test]
fn input_is_answered_in_order_with_blanks_and_comments_skipped() {
    let scratch = ScratchFolder::new();
    let fib = scratch.file("routes.txt", "10.0.0.0/8 1\n2001:db8::/32 2\n");
    let input = "# first\n\n10.0.0.1\r\n  2001:DB8::1\t# why\n11.1.1.1\n10.9.9.9";
    let out = fwd_stdin(&["lookup", "--fib", &fib], input).ok();
    assert_eq!(out, "10.0.0.1\t1\n2001:DB8::1\t2\n11.1.1.1\t0\n10.9.9.9\t1\n");
    assert_eq!(fwd_stdin(&["lookup", "--fib", &fib], "").ok(), "");
}

#[test]
fn a_program_at_both_ends_gets_each_answer_at_once() {
    let scratch = ScratchFolder::new();
    let fib = scratch.file("routes.txt", "10.0.0.0/8 1\n");
    let mut child = start(&["lookup", "--fib", &fib], &[]);
    let mut stdin = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap());
    for (address, id) in [("10.0.0.1", 1), ("11.0.0.1", 0), ("10.2.0.1", 1)] {
        writeln!(stdin, "{address}").unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        assert_eq!(line, format!("{address}\t{id}\n"));
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let scratch = ScratchFolder::new();
    let fib = scratch.file("routes.txt", "10.0.0.0/8 1\n");
    let mut child = start(&["lookup", "--fib", &fib], &[]);
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    let written = stdin.write_all("10.0.0.1\n".repeat(100_000).as_bytes());
    drop((stdin, written));
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}
