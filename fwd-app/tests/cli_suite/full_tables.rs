//! Full tables of the Internet, if `FWD_DATA` has them: every engine and instruction set against the trie.

use crate::support::{ScratchFolder, check_engines, data, fwd};
use crate::trie::{RouteKey, RouteModel, edges, random_addresses, route};
use fib::{conformance, feed};
use std::io::Read as _;
use std::path::Path;

/// The text of a compressed file. Only the decompression uses the library; the trie has its own parser.
pub(crate) fn text(path: &str) -> String {
    let mut text = String::new();
    feed::open(Path::new(path)).unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn full_tables_after_a_real_update_stream() {
    let (Some(v4), Some(v6)) = (data("v4-202401.txt.xz"), data("v6-202401.txt.xz")) else { return };
    let Some(updates) = data("updates-ris-20190101.txt.xz") else { return };
    let mut model = RouteModel::of_text(&(text(&v4) + &text(&v6)));
    assert_eq!(model.routes.len(), 901_899 + 160_147);
    assert!(model.routes.keys().any(|(first, len)| first.is_ipv6() && *len > 64));
    let mut touched: Vec<RouteKey> = Vec::new();
    for line in text(&updates).lines() {
        // SECONDS a|w PREFIX PEER ORIGIN; the next hop is 1 + ORIGIN mod 255.
        let words: Vec<_> = line.split(' ').collect();
        let origin: u64 = words[4].parse().unwrap();
        let id = if words[1] == "a" { u32::try_from(1 + origin % 255).unwrap() } else { 0 };
        model.set(route(words[2]), id);
        touched.push(route(words[2]));
    }
    touched.sort_unstable();
    touched.dedup();
    let mut probes: Vec<_> = touched.iter().flat_map(|route| edges(*route)).collect();
    // Every route with `FWD_CONFORMANCE=full`, else every 32nd.
    probes.extend(model.probes(if conformance::Options::from_env().full { 1 } else { 32 }));
    probes.extend(random_addresses(200_000, 8));
    check_engines(&[&v4, &v6], &["--updates", &updates], &probes, &model);
}

#[test]
fn an_mrt_rib_that_is_cut_gives_what_is_whole() {
    let Some(rib) = data("rib.20140523.0600_firstMB.bz2") else { return };
    let scratch = ScratchFolder::new();
    let routes = scratch.path("routes.txt");
    let out = fwd(&["fib", "convert", &rib, "--to", "text", "-o", &routes]);
    assert_eq!(out.code, 0, "{}", out.stderr);
    assert!(out.stderr.contains("warning") && out.stderr.contains("cut short"), "{}", out.stderr);
    let model = RouteModel::of_text(&std::fs::read_to_string(&routes).unwrap());
    assert!(model.routes.len() > 1000);
    let mut probes = model.probes(1);
    probes.extend(random_addresses(10_000, 9));
    check_engines(&[&rib], &[], &probes, &model);
}

#[test]
fn a_real_bgp_update_file_is_applied() {
    let (Some(v4), Some(updates)) = (data("v4-202401.txt.xz"), data("updates.20190101.0000.mrt.gz")) else {
        return;
    };
    let count = |more: &[&str]| {
        let mut args = vec!["lookup", "--fib", &v4, "1.10.212.1", "45.169.4.1"];
        args.extend(more);
        fwd(&args).ok()
    };
    assert_ne!(count(&[]), count(&["--updates", &updates]), "both prefixes are announced in that file");
}
