//! Conditions of a figure besides the code: the host and the build.

pub(crate) use fib::host::HostFacts;
use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Build {
    pub(crate) commit: &'static str,
    pub(crate) profile: &'static str,
    pub(crate) target: &'static str,
    pub(crate) flags: &'static str,
    pub(crate) version: &'static str,
}

impl Build {
    pub(crate) const THIS: Self = Self {
        commit: env!("LPM_BENCH_COMMIT"),
        profile: env!("LPM_BENCH_PROFILE"),
        target: env!("LPM_BENCH_TARGET"),
        flags: env!("LPM_BENCH_RUSTFLAGS"),
        version: env!("CARGO_PKG_VERSION"),
    };

    /// Whether the build is optimised; figures of a debug build are meaningless.
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
