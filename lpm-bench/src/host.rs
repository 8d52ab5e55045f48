//! What a figure depends on besides the code: the host, and what the binary was built from.

pub(crate) use fib::host::HostFacts;
use serde::Serialize;

/// What the binary was built from.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Build {
    /// The commit.
    pub(crate) commit: &'static str,
    /// Cargo's profile and its optimisation level.
    pub(crate) profile: &'static str,
    /// The target.
    pub(crate) target: &'static str,
    /// RUSTFLAGS.
    pub(crate) flags: &'static str,
    /// Version of this crate.
    pub(crate) version: &'static str,
}

impl Build {
    /// The build of this binary.
    pub(crate) const THIS: Self = Self {
        commit: env!("LPM_BENCH_COMMIT"),
        profile: env!("LPM_BENCH_PROFILE"),
        target: env!("LPM_BENCH_TARGET"),
        flags: env!("LPM_BENCH_RUSTFLAGS"),
        version: env!("CARGO_PKG_VERSION"),
    };

    /// Whether the compiler was asked to optimise; a figure of a debug build means nothing.
    pub(crate) fn is_optimised(&self) -> bool {
        self.profile.ends_with("opt-level=3")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_build_says_what_it_is() {
        assert!(!Build::THIS.commit.is_empty() && Build::THIS.profile.contains("opt-level="));
    }
}
