//! The process survives any text and code of a module: no panic (reported as 999), no crash.

mod common;

use common::{LaunchArg, MockSession};
use mockcuda::control;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use std::time::{Duration, Instant};

/// Text with lines removed, replaced or cut, words appended, or numbers changed.
fn damaged(text: &str, random: &mut ChaCha8Rng) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..random.random_range(1..4) {
        let (at, from) = (random.random_range(0..lines.len()), random.random_range(0..lines.len()));
        let words: Vec<String> = lines[from].split_whitespace().map(str::to_owned).collect();
        match random.random_range(0..5) {
            0 => drop(lines.remove(at)),
            1 => lines[at] = lines[from].clone(),
            2 => {
                let cut = random.random_range(0..=lines[at].len());
                lines[at].truncate(cut);
            }
            3 if !words.is_empty() => lines[at].push_str(&words[random.random_range(0..words.len())]),
            _ => {
                lines[at] = lines[at].replacen(
                    |c: char| c.is_ascii_digit(),
                    &random.random_range(0..99).to_string(),
                    1,
                )
            }
        }
    }
    lines.join("\n")
}

#[test]
fn damaged_modules_are_refused_or_run_and_never_panic() {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/gamt.ptx")).unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let (mut refused, mut faults, mut runs) = (0, 0, 0);
    for _ in 0..150 {
        let driver = MockSession::open();
        match driver.load(&damaged(&text, &mut random)) {
            Ok(module) => {
                let words = driver.device(&[0_u32; 256]);
                let args = [
                    LaunchArg::U64(words),
                    LaunchArg::U64(words),
                    LaunchArg::U64(words),
                    LaunchArg::U64(words),
                    LaunchArg::U32(40),
                ];
                for name in ["gamt_lookup_v4_flat_live", "gamt_lookup_v6_paper_frozen", "write_words"] {
                    let Ok(kernel) = driver.function(module, name) else { continue };
                    let Ok(()) = driver.launch(kernel, 2, 64, &args) else { continue };
                    let begin = Instant::now();
                    let outcome = loop {
                        match driver.poll() {
                            // A kernel that runs forever ends with the context.
                            Err(600) if begin.elapsed() < Duration::from_millis(30) => {
                                std::thread::yield_now()
                            }
                            other => break other,
                        }
                    };
                    match outcome {
                        Ok(()) => runs += 1,
                        Err(code) => {
                            assert!(matches!(code, 600 | 700 | 716 | 718 | 719), "{code}");
                            faults += 1;
                        }
                    }
                }
            }
            Err(code) => {
                assert!(matches!(code, 209 | 218 | 222), "{code}");
                refused += 1;
            }
        }
    }
    assert!(refused > 10 && runs > 10, "{refused} refused, {faults} faults, {runs} runs");
    assert_eq!(control::mockcuda_violations(), 0);
}
