//! Embeds the commit, profile and compiler flags, without which a figure is meaningless.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Every commit and checkout appends to this file.
    let log = Path::new("../.git/logs/HEAD");
    if log.exists() {
        println!("cargo:rerun-if-changed={}", log.display());
    }
    let commit = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()
        .filter(|asked| asked.status.success())
        .map_or_else(|| "unknown".into(), |asked| String::from_utf8_lossy(&asked.stdout).trim().to_owned());
    let told = |name| env::var(name).unwrap_or_default();
    println!("cargo:rustc-env=LPM_BENCH_COMMIT={commit}");
    println!("cargo:rustc-env=LPM_BENCH_PROFILE={} opt-level={}", told("PROFILE"), told("OPT_LEVEL"));
    println!("cargo:rustc-env=LPM_BENCH_TARGET={}", told("TARGET"));
    println!(
        "cargo:rustc-env=LPM_BENCH_RUSTFLAGS={}",
        told("CARGO_ENCODED_RUSTFLAGS").replace('\u{1f}', " ")
    );
}
