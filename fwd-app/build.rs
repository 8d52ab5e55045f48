//! Provides the commit that `--version` prints: FWD_COMMIT, else the commit of the surrounding git repository.
//!
//! Only optimised builds ask git; otherwise every commit would rebuild development builds.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FWD_COMMIT");
    let is_optimized = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let given = env::var("FWD_COMMIT").ok().filter(|commit| !commit.is_empty());
    if let Some(commit) = given.or_else(|| is_optimized.then(commit_of_git)?) {
        println!("cargo::rustc-env=FWD_APP_COMMIT={commit}");
    }
}

/// The checked-out commit, 12 digits. The script reruns when it changes.
fn commit_of_git() -> Option<String> {
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        // Cargo treats a missing file as always changed.
        if fs::exists(Path::new(&path)).unwrap_or(false) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// Output of git as one line; `None` without git or a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
