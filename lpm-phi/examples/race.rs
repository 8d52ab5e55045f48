//! Looks for answers of no generation with two threads at full speed, on every engine of this crate and instruction set of this CPU.
//!
//! ```text
//! cargo run --release -p lpm-phi --example race -- [SECONDS] [ENGINE[:ISA]..]
//! cargo run --release -p lpm-phi --example race -- 60 bloom:scalar miht
//! ```
//! One thread looks up 256 keys a batch without pause, the other applies deltas: cycles that only announce, nested withdraws, and swaps, for
//! SECONDS (60) each. The first wrong answer ends the program with a message and exit code 101. What an exhaustive check of
//! small tables says is in the tests named `*_sequences`; this one knows nothing of how an engine works, and includes the hardware.

use fib::conformance::{self, Cycle, Options, race};
use fib::{EngineOptions, Isa, Registry};
use lpm_phi::coop::CoopEngine;
use std::process::ExitCode;
use std::time::Duration;

const ENGINES: Registry = Registry::new(&[lpm_phi::ENGINES]);

/// The engines that `word` names: one, or one an instruction set.
fn contestants(word: &str) -> Vec<(String, Isa)> {
    let (name, isa) = word.split_once(':').map_or((word, None), |(name, isa)| (name, Some(isa)));
    let wanted = |each: &Isa| isa.is_none_or(|isa| each.to_string() == isa);
    Isa::ALL.into_iter().filter(wanted).map(|isa| (name.to_owned(), isa)).collect()
}

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let seconds = words.first().and_then(|word| word.parse().ok());
    if seconds.is_some() {
        words.remove(0);
    }
    let time = Duration::from_secs(seconds.unwrap_or(60));
    if words.is_empty() {
        words = ENGINES.engines().map(|engine| engine.name.to_owned()).collect();
    }
    println!("{:<28} {:<10} {:>12} {:>12} {:>12}", "engine", "deltas", "applied", "batches", "during");
    for (name, isa) in words.iter().flat_map(|word| contestants(word)) {
        // Where the device of a first half is absent, `coop` shares one table with a helper thread.
        let group = [("first", CoopEngine::GROUP)];
        let parameters = if name == CoopEngine::NAME { &group[..] } else { &[] };
        let options = EngineOptions { isa: Some(isa), ..EngineOptions::of(parameters) };
        let make = || ENGINES.make(&name, &options);
        if conformance::skipped(&make) {
            continue;
        }
        if let Err(error) = make() {
            eprintln!("race: {name}:{isa}: {error}");
            return ExitCode::FAILURE;
        }
        for cycle in Cycle::ALL {
            let raced = race(&make, Options::default(), cycle, time);
            println!(
                "{:<28} {:<10} {:>12} {:>12} {:>12}",
                format!("{name}:{isa}"),
                format!("{cycle:?}").to_lowercase(),
                raced.deltas,
                raced.batches,
                raced.during
            );
        }
    }
    println!("no answer of no generation");
    ExitCode::SUCCESS
}
