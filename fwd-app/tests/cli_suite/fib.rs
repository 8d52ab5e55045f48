//! `fib generate`, `stat` and `convert`, and round trips through all three.

use crate::support::{ScratchFolder, fwd};
use crate::trie::RouteModel;
use serde_json::Value;

fn stat(files: &[&str]) -> Value {
    let args = [&["fib", "stat", "--json"], files].concat();
    serde_json::from_str(&fwd(&args).ok()).unwrap()
}

#[test]
fn a_generated_table_is_what_was_asked_for_and_the_same_each_time() {
    let scratch = ScratchFolder::new();
    let generate = |seed: &str, family: &str, routes: &str| {
        let args =
            ["fib", "generate", "--seed", seed, "--family", family, "--routes", routes, "--next-hops", "40"];
        fwd(&args).ok()
    };
    for (family, routes, v4, v6) in
        [("v4", "5000", 5000, 0), ("v6", "3000", 0, 3000), ("both", "1150", 950, 200), ("both", "1", 1, 0)]
    {
        let text = generate("7", family, routes);
        assert_eq!(text, generate("7", family, routes));
        let model = RouteModel::of_text(&text);
        assert_eq!(model.routes.len(), v4 + v6, "no prefix twice");
        assert_eq!(model.routes.keys().filter(|(first, _)| first.is_ipv4()).count(), v4);
        assert!(model.routes.values().all(|id| (1..=40).contains(id)));
        let report = stat(&[&scratch.file("t.txt", &text)]);
        assert_eq!(
            (report["ipv4"]["routes"].as_u64(), report["ipv6"]["routes"].as_u64()),
            (Some(v4 as u64), Some(v6 as u64))
        );
    }
    assert_ne!(generate("7", "v4", "5000"), generate("8", "v4", "5000"));
    assert_eq!(fwd(&["fib", "generate", "--routes", "0"]).ok(), "");
}

#[test]
fn stat_counts_what_is_there() {
    let scratch = ScratchFolder::new();
    let v4 =
        scratch.file("v4.txt", "0.0.0.0/0 9\n10.0.0.0/8 1\n10.1.0.0/16 2\n10.1.2.3/32 1\n10.0.0.0/8 3\n");
    let v6 = scratch
        .file("v6.txt", "2000::/4 1\n2001:db8::1/128 via 2001:db8::f dev 0\nprohibit 2001:db8:1::/48\n");
    let report = stat(&[&v4, &v6]);
    assert_eq!(report["routes"], 7);
    assert_eq!(report["files"][0]["duplicates"], 1);
    assert_eq!(report["ipv4"]["by_length"], serde_json::json!({"0": 1, "8": 1, "16": 1, "32": 1}));
    assert_eq!(report["ipv4"]["default_route"], 9);
    assert_eq!((&report["ipv4"]["deep"], &report["ipv6"]["deep"]), (&1.into(), &1.into()));
    assert_eq!(report["ipv4"]["covered_share"], 1.0 / 256.0);
    assert_eq!(report["ipv6"]["covered_share"], 0.5);
    assert_eq!(report["next_hops"]["gateway"], 1);
    assert_eq!((&report["next_hops"]["blackhole"], &report["next_hops"]["prohibit"]), (&0.into(), &1.into()));

    let text = fwd(&["fib", "stat", &v4, &v6]).ok();
    for part in [
        "IPv4: 4 routes",
        "default route     next hop 9",
        "IPv6: 3 routes",
        "/128",
        "50.0000 % of 2000::/3",
        "####",
    ] {
        assert!(text.contains(part), "no '{part}' in\n{text}");
    }
}

#[test]
fn text_comes_back_as_it_went_in() {
    let scratch = ScratchFolder::new();
    let first = scratch.path("first.txt");
    fwd(&["fib", "generate", "--family", "both", "--routes", "20000", "-o", &first]).ok();
    let text = std::fs::read_to_string(&first).unwrap();
    assert_eq!(fwd(&["fib", "convert", &first, "--to", "text"]).ok(), text);
    // An output file may be an input file: it is replaced after everything has been read and written.
    let same = scratch.file("same.txt", text.lines().rev().collect::<Vec<_>>().join("\n"));
    fwd(&["fib", "convert", &same, "--to", "text", "-o", &same]).ok();
    assert_eq!(std::fs::read_to_string(&same).unwrap(), text);
}

#[test]
fn gateways_survive_the_way_through_iproute2_and_json() {
    let scratch = ScratchFolder::new();
    let text = "10.0.0.0/8 via 192.0.2.1 dev eth0\n10.1.0.0/16 via 192.0.2.2 dev eth1\n\
                blackhole 10.2.0.0/16\nunreachable 10.3.0.0/16\nprohibit 2001:db8:1::/48\n2001:db8::/32 via 2001:db8:f::1 dev eth0\n";
    let first = scratch.file("first.txt", text);
    let (ip, json) = (scratch.path("ip.txt"), scratch.path("ip.json"));
    fwd(&["fib", "convert", &first, "--to", "iproute2", "-o", &ip]).ok();
    fwd(&["fib", "convert", &ip, "--to", "json", "-o", &json]).ok();
    assert!(serde_json::from_str::<Value>(&std::fs::read_to_string(&json).unwrap()).unwrap().is_array());
    let again = fwd(&["fib", "convert", &json, "--to", "iproute2"]).ok();
    assert_eq!(again, std::fs::read_to_string(&ip).unwrap());
    for line in [
        "10.0.0.0/8 via 192.0.2.1 dev eth0",
        "blackhole 10.2.0.0/16",
        "unreachable 10.3.0.0/16",
        "prohibit 2001:db8:1::/48",
        "2001:db8::/32 via 2001:db8:f::1 dev eth0",
    ] {
        assert!(again.lines().any(|l| l.starts_with(line)), "no '{line}' in\n{again}");
    }
    let report = stat(&[&json]);
    assert_eq!((&report["routes"], &report["next_hops"]["gateway"]), (&6.into(), &3.into()));
}

#[test]
fn l3fwd_rules_name_the_port_of_each_id() {
    let scratch = ScratchFolder::new();
    let text: String = (0..10).map(|i| format!("10.{i}.0.0/16 {}\n", i + 1)).collect();
    let fib = scratch.file("routes.txt", text);
    let rules = fwd(&["fib", "convert", &fib, "--to", "l3fwd", "--ports", "4"]).ok();
    let wanted: String = (0..10).map(|i| format!("R10.{i}.0.0/16 {}\n", i % 4)).collect();
    assert_eq!(rules, wanted);
    assert_eq!(stat(&[&scratch.file("rules.txt", rules)])["next_hops"]["port"], 4);
}

#[test]
fn an_update_stream_is_for_its_table() {
    let scratch = ScratchFolder::new();
    let fib = scratch.path("routes.txt");
    fwd(&["fib", "generate", "--family", "both", "--routes", "5000", "-o", &fib]).ok();
    let stream =
        |seed: &str| fwd(&["fib", "generate", "--updates", "10000", "--fib", &fib, "--seed", seed]).ok();
    assert_eq!(stream("1"), stream("1"));
    assert_ne!(stream("1"), stream("2"));
    let mut model = RouteModel::of_text(&std::fs::read_to_string(&fib).unwrap());
    let mut withdraws = 0;
    for line in stream("1").lines() {
        if let Some(prefix) = line.strip_prefix("w ") {
            assert!(
                model.routes.contains_key(&crate::trie::route(prefix)),
                "withdraws an absent route: {line}"
            );
            withdraws += 1;
        }
        model.update(line);
    }
    assert!(withdraws > 0);
}
