//! Benches for tests.

use super::bench::{Bench, Paper};
use crate::args::{BenchCommand, Cli, PaperArgs};
use clap::Parser;

pub(super) fn args(line: &str) -> PaperArgs {
    let line = format!("lpm-bench paper gamt --out none {line}");
    let BenchCommand::Paper(args) = Cli::parse_from(line.split_whitespace()).command else {
        panic!("{line}")
    };
    args
}

pub(super) fn bench(line: &str, paper: &Paper) -> Bench {
    Bench::new(args(line), paper, Err("a test".into()), 1).unwrap()
}

pub(super) fn bench_of(routes: &str, updates: &str, paper: &Paper) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let files = ["r.txt", "u.txt"].map(|name| folder.path().join(name));
    std::fs::write(&files[0], routes).unwrap();
    std::fs::write(&files[1], updates).unwrap();
    bench(&format!("--fib {} --updates {}", files[0].display(), files[1].display()), paper)
}
