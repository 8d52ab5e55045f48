//! Routes that change while packets flow: every packet's next hop is one that was in service meanwhile.

use crate::support::{assert_conserved, bundled, number, replay};
use std::fmt::Write as _;

/// An update stream over the bundled table: every route gets another id, goes, and comes back, again and again.
fn stream(rounds: usize) -> String {
    let routes = std::fs::read_to_string(bundled("routes.txt")).unwrap();
    let routes: Vec<_> =
        routes.lines().filter(|line| !line.starts_with('#')).filter_map(|l| l.split_once(' ')).collect();
    let mut text = String::new();
    for round in 0..rounds {
        for (i, (prefix, id)) in routes.iter().enumerate() {
            let _ = match (i + round) % 3 {
                0 => writeln!(text, "a {prefix} {}", round * 7 + i + 1),
                1 => writeln!(text, "w {prefix}"),
                _ => writeln!(text, "a {prefix} {id}"),
            };
        }
    }
    text
}

#[test]
fn every_result_is_that_of_a_generation_in_between() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("updates.txt");
    std::fs::write(&file, stream(40)).unwrap();
    for (engine, topology) in [
        ("oracle", "run-to-completion"),
        ("bloom", "run-to-completion"),
        ("bloom", "pipeline"),
        ("miht", "run-to-completion"),
        ("coop", "pipeline"),
    ] {
        let extra = [
            "--verify",
            "--loops",
            "100",
            "--engine",
            engine,
            "--topology",
            topology,
            "--updates",
            file.to_str().unwrap(),
            "--update-rate",
            "50000",
            "--rate",
            "400kpps",
        ];
        let Some(summary) = replay(&bundled("mix.pcap"), &bundled("routes.txt"), &extra) else { return };
        assert_conserved(&summary);
        assert_eq!(number(&summary, "/verify/mismatches"), 0, "{engine} {topology}");
        assert_eq!(number(&summary, "/packets/rx"), 200_000);
        let updates = number(&summary, "/engine/updates_applied");
        assert!(updates > 1000, "{updates} updates while packets flowed");
        assert!(number(&summary, "/engine/generations_applied") > 1);
    }
}
