//! What the tests of all crates share: what they need of a host, and the real tables.

use crate::feed::{self, LoadOptions};
use crate::{NextHopTable, Rib};
use std::fmt::Display;
use std::path::PathBuf;

/// Says that a test is skipped, and why.
///
/// # Panics
/// When the environment variable `FWD_REQUIRE` (a comma list such as `avx512f,gpu`) names what is `missing`.
pub fn skip(missing: &str, why: impl Display) {
    let required = std::env::var("FWD_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|name| name.trim().eq_ignore_ascii_case(missing));
    assert!(!is_required, "FWD_REQUIRE names {missing}: {why}");
    eprintln!("SKIPPED: {why}");
}

/// The files `names` of the folder of real tables that `FWD_DATA` names, if all are there; says so when they are not.
#[must_use]
pub fn data<const N: usize>(names: [&str; N]) -> Option<[PathBuf; N]> {
    let Some(folder) = std::env::var_os("FWD_DATA").map(PathBuf::from) else {
        eprintln!("SKIPPED: {}: FWD_DATA names no folder of real tables", names.join(", "));
        return None;
    };
    let paths = names.map(|name| folder.join(name));
    if let Some(missing) = paths.iter().find(|path| !path.exists()) {
        eprintln!("SKIPPED: {} is not there", missing.display());
        return None;
    }
    Some(paths)
}

/// The routes of `files`.
///
/// # Panics
/// When they cannot be read.
#[must_use]
#[expect(clippy::unwrap_used, reason = "a test fails loudly")]
pub fn load(files: &[PathBuf]) -> Rib {
    let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
    feed::load(files, &mut rib, &mut hops, LoadOptions::default()).unwrap();
    rib
}
