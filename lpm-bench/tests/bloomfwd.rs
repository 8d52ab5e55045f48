//! `lpm-bench paper bloomfwd` end to end: every figure of the paper on a small table, and the messages for parts that cannot be made.

#![expect(clippy::unwrap_used, reason = "helpers of a test fail as loudly as the test")]

use fib::Isa;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const FIGURES: [&str; 15] = [
    "table1", "table2", "table3", "table4", "table5", "fig01", "fig02", "fig03", "fig04", "fig05", "fig06",
    "fig07", "fig08", "fig09", "fig10",
];

fn bloomfwd(line: &str, out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lpm-bench"));
    command.args(["paper", "bloomfwd", "--quick", "--keys", "4K", "--point-seconds", "0.002", "--out"]);
    command.arg(out).args(line.split_whitespace()).output().unwrap()
}

fn json(folder: &Path, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join(format!("{name}.json"))).unwrap()).unwrap()
}

fn array<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_figure_is_made_and_every_answer_right() {
    let folder = tempfile::tempdir().unwrap();
    let done = bloomfwd("--generate v4=3000,v6=1000 --threads 2", folder.path());
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    for name in FIGURES {
        let document = json(folder.path(), name);
        assert!(document["wrong"] == 0 && document["checked"].as_u64() > Some(0), "{name}: {document}");
        assert_eq!(
            (&document["quick"], document["paper"].as_str().unwrap().contains("Bloomfwd")),
            (&true.into(), true)
        );
        assert!(!array(&document, "rows").is_empty(), "{name}");
        every_number_is_a_claim_s(name, &document);
        assert!(name.starts_with("table") || !array(&document, "traffic").is_empty(), "{name}");
        assert!(document["note"].as_str().is_some_and(|note| !note.is_empty()), "{name}");
        for panel in array(&document, "panels") {
            let points: Vec<_> =
                array(panel, "series").iter().flat_map(|line| array(line, "points")).collect();
            assert!(points.len() > 2 || matches!(name, "table1" | "table2" | "table3"), "{name}: {panel}");
            for point in points {
                let [median, least, most] = [1, 2, 3].map(|at| point[at].as_f64().unwrap());
                assert!(0.0 < least && least <= median && median <= most, "{name}: {panel}");
            }
        }
        let picture = std::fs::read_to_string(folder.path().join(format!("{name}.svg"))).unwrap();
        assert!(picture.contains("<svg"), "{name}");
    }
    what_follows_from_the_algorithms(|name| json(folder.path(), name)["rows"].as_array().unwrap().clone());
    let lines = |name: &str| {
        let document = json(folder.path(), name);
        let lines = array(&document["panels"][0], "series").iter();
        lines.map(|line| line["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for line in ["bloom, scalar", "Bloomfwd, scalar", "Baseline", "MIHT"] {
        assert!(lines("fig02").iter().any(|name| name == line), "{line}: {:?}", lines("fig02"));
    }
    assert!(
        lines("fig02").iter().any(|name| name.starts_with("Naive"))
            && lines("fig10").contains(&"two groups".into())
    );
    let avx512f = lines("fig02").contains(&"Bloomfwd, avx512f".into());
    assert_ne!(avx512f, stderr(&done).contains("SKIPPED: fig02: its AVX-512F half"), "{}", stderr(&done));
    if !avx512f {
        fib::testing::skip("avx512f", "the figures' AVX-512F halves: this CPU has no avx512f");
    }
}

/// Numbers that do not depend on the clock.
fn what_follows_from_the_algorithms(rows: impl Fn(&str) -> Vec<Value>) {
    let numbers = |figure: &str, name: &str, number: &str| -> Vec<f64> {
        let of_name = rows(figure).into_iter().filter(|row| row["name"] == name);
        of_name.map(|row| row[number].as_f64().unwrap()).collect()
    };
    let isa = if Isa::Avx512f.is_available() { "avx512f" } else { "scalar" };
    for row in rows("table3") {
        let sum: f64 = array(&row, "before").iter().filter_map(Value::as_f64).sum();
        assert!((sum - 3000.0).abs() < 0.5 && row["after"][0] == 1_048_576.0, "{row}");
    }
    let table4 = rows("table4");
    for levels in 1..=8 {
        let estimates = ["greedy", "optimum"].map(|search| {
            let of = |row: &&Value| row["search"] == search && row["levels"] == levels;
            table4.iter().filter(of).map(|row| row["estimated"].as_f64().unwrap()).collect::<Vec<_>>()
        });
        assert!(estimates[0].len() == estimates[1].len() && !estimates[0].is_empty());
        assert!(estimates[0].iter().zip(&estimates[1]).all(|(greedy, best)| best <= greedy), "{levels}");
    }
    for name in ["Knuth + Knuth", "H2 + H2", "Knuth + Knuth, odd buckets"] {
        let used = numbers("fig01", name, "buckets_used_percent");
        let is_few = name == "Knuth + Knuth";
        assert!(
            used.iter().all(|used| if is_few { *used <= 25.0 } else { *used > 40.0 }),
            "{name}: {used:?}"
        );
        // Filters of more false positives are smaller: three rates an instruction set.
        let bits = numbers("fig01", name, "filter_bits");
        assert!(bits.chunks(3).all(|bits| bits.is_sorted_by(|a, b| a > b)), "{name}: {bits:?}");
    }
    let (prefixes, bytes) = ["prefixes", "table_bytes"]
        .map(|number| numbers("fig05", &format!("Bloomfwd, {isa}"), number))
        .into();
    assert!(
        prefixes.len() > 2 && (prefixes[0] - 3000.0).abs() < 0.5 && prefixes.is_sorted_by(|a, b| a > b),
        "{prefixes:?}"
    );
    assert!(bytes.is_sorted_by(|a, b| a >= b), "{bytes:?}");
    assert_eq!(numbers("fig02", "MIHT", "threads"), [1.0, 2.0]);
    // From 8 levels to 4, on two streams each.
    let [greedy, optimum] = ["", ", optimum levels"]
        .map(|search| numbers("fig07", &format!("Bloomfwd, {isa}{search}"), "v6_entries"));
    assert!(greedy[2..].is_sorted() && optimum.is_sorted(), "{greedy:?} and {optimum:?}");
    assert!(optimum.len() == 8 && greedy[2..].len() == 8, "{greedy:?} and {optimum:?}");
}

fn every_number_is_a_claim_s(name: &str, document: &serde_json::Value) {
    for claim in array(document, "claims") {
        assert!(!array(claim, "ours").is_empty(), "{name}: {claim}");
        assert!(claim["verdict"].is_string() && claim["section"].is_string(), "{name}: {claim}");
    }
    for own in array(document, "own") {
        assert!(own["unit"] != "", "{name}: no claim has the words of {own}");
    }
}

#[test]
fn every_cell_of_table_5_is_the_paper_s() {
    let folder = tempfile::tempdir().unwrap();
    let done = bloomfwd("--generate v4=100 --figures table5", folder.path());
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let document = json(folder.path(), "table5");
    let cells = array(&document, "claims");
    assert_eq!(cells.len(), 7 * 2 * 5 * 2, "tables, groups, rates, m and k");
    for cell in cells {
        let paper = (&cell["paper"][0], array(cell, "paper").len());
        assert_eq!(paper, (&cell["ours"][0]["value"], 1), "{cell}");
        assert_eq!((&cell["verdict"], &cell["rule"]), (&"reproduced".into(), &"count".into()), "{cell}");
    }
    assert!(String::from_utf8_lossy(&done.stdout).contains("140 of 140 numbers equal the paper's"));
}

#[test]
fn levels_that_do_not_fit_are_refused_by_number() {
    let folder = tempfile::tempdir().unwrap();
    let line = "--generate v6=4000 --figures table4,fig07,fig02 --table-memory 1M --threads 1";
    let done = bloomfwd(line, folder.path());
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let table = json(folder.path(), "table4");
    let is_best = |row: &&Value| row["search"] == "optimum";
    let row = |levels: u64| {
        array(&table, "rows").iter().filter(is_best).find(|row| row["levels"] == levels).unwrap().clone()
    };
    let (three, eight) = (row(3), row(8));
    let why = three["refused"].as_str().unwrap();
    assert!(why.contains("3 levels of expansion make") && why.contains("fit"), "{why}");
    assert!(three["actual"].as_u64() <= three["estimated"].as_u64(), "{three}");
    assert!(
        eight["estimated"].as_u64() <= three["estimated"].as_u64() && eight["lengths"][7] == 64,
        "{eight}"
    );
    let refused = |row: &&Value| row["refused"].as_str().is_some_and(|why| why.contains("needed"));
    let figure = json(folder.path(), "fig07");
    assert!(array(&figure, "rows").iter().any(|row| refused(&row)), "{figure}");
    let figure = json(folder.path(), "fig02");
    assert!(figure["skipped"].as_str().unwrap().contains("no data set has ipv4 routes"), "{figure}");
}

#[test]
fn bad_usage_is_2_and_names_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    for (line, words) in [
        ("--figures fig99 --generate v4=10", "known are: table1, table2, table3, table4, table5, fig01"),
        ("--figures fig19 --generate v4=10", "no figure of this paper"),
        ("--generate v4=10 --table-memory 0", "above 0"),
        ("--generate v4=100 --figures fig05 --engine-arg nonsense=1", "nonsense"),
    ] {
        let done = bloomfwd(line, folder.path());
        assert_eq!(done.status.code(), Some(2), "{line}: {}", stderr(&done));
        assert!(stderr(&done).contains(words), "{line}: {}", stderr(&done));
    }
    let done = bloomfwd("--generate v4=100 --figures fig04 --trace /nowhere/x.pcap", folder.path());
    assert_eq!(done.status.code(), Some(1));
    assert!(stderr(&done).contains("/nowhere/x.pcap"), "{}", stderr(&done));
}

#[test]
fn with_a_gpu_the_pair_of_gpu_and_cpu_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let mock = lpm_gpu::cu::testing::library().unwrap();
    let line = "paper bloomfwd --quick --generate v4=2000 --keys 4K --point-seconds 0.002 --figures fig09,fig10 --out";
    let mut command = Command::new(env!("CARGO_BIN_EXE_lpm-bench"));
    command.args(line.split_whitespace()).arg(folder.path()).env("LD_PRELOAD", mock);
    let done = command.output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    for name in ["fig09", "fig10"] {
        let document = json(folder.path(), name);
        assert!(document["wrong"] == 0 && document["skipped"].is_null(), "{document}");
        let lines = array(&document["panels"][0], "series");
        for pair in ["two groups", "GPU and CPU"] {
            assert!(
                lines.iter().any(|line| line["name"].as_str().unwrap().starts_with(pair)),
                "{name}: {pair}"
            );
        }
    }
}
