//! What a figure depends on besides the code: CPU, caches, huge pages, and what the binary was built from.

use serde::Serialize;
use std::time::Instant;

/// The host, as far as a figure depends on it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HostFacts {
    /// The CPU's name as the kernel tells it.
    pub(crate) cpu_model: String,
    /// CPUs this process may use.
    pub(crate) cpus: usize,
    /// The core clock in GHz while this ran, from a chain of multiplications of known latency; an estimate.
    pub(crate) clock_ghz_estimated: f64,
    /// L2 cache of one core, KiB; 0 when the kernel does not tell.
    pub(crate) l2_kib: u64,
    /// L3 cache, KiB; 0 when the kernel does not tell. On a shared host not all of it is ours.
    pub(crate) l3_kib: u64,
    /// Huge pages of 2 MB: reserved and free.
    pub(crate) huge_pages_total: u64,
    /// See `huge_pages_total`.
    pub(crate) huge_pages_free: u64,
    /// Transparent huge pages: always, madvise or never.
    pub(crate) transparent_huge_pages: String,
    /// Load of the last minute when the run began: above the CPUs in use, a figure is not to be trusted.
    pub(crate) load_average: f64,
}

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

impl HostFacts {
    /// Asks the kernel. What it does not tell is 0 or empty.
    pub(crate) fn read() -> Self {
        let host = fib::host::Host::here();
        let caches = host.data_caches();
        let kib =
            |level| caches.iter().find(|cache| cache.level == level).map_or(0, |cache| cache.bytes >> 10);
        let (huge_pages_total, huge_pages_free) = host.huge_pages(2048);
        Self {
            cpu_model: host.cpu_name().unwrap_or_else(|| "unknown".to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            clock_ghz_estimated: clock_ghz(),
            l2_kib: kib(2),
            l3_kib: kib(3),
            huge_pages_total,
            huge_pages_free,
            transparent_huge_pages: host.transparent_huge_pages().unwrap_or_default(),
            load_average: host.load_average().unwrap_or(0.0),
        }
    }

    /// One line for the screen.
    pub(crate) fn summary(&self) -> String {
        format!(
            "{}, {} CPUs, about {:.2} GHz, L2 {} KiB, L3 {} KiB, {} of {} huge pages free, load {:.2}",
            self.cpu_model,
            self.cpus,
            self.clock_ghz_estimated,
            self.l2_kib,
            self.l3_kib,
            self.huge_pages_free,
            self.huge_pages_total,
            self.load_average
        )
    }
}

/// The core clock from a chain in which each step waits for the one before: a 64-bit multiplication (3 cycles on every
/// x86 server core since 2011) and an exclusive or (1 cycle). The best of five, because a neighbour can only slow it.
fn clock_ghz() -> f64 {
    const STEPS: u32 = 2_000_000;
    const CYCLES_A_STEP: f64 = 4.0;
    let best_s = (0..5)
        .map(|round| {
            let start = Instant::now();
            let mut value = std::hint::black_box(0x9e37_79b9_7f4a_7c15_u64 + round);
            for step in 0..STEPS {
                value = value.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ u64::from(step);
            }
            std::hint::black_box(value);
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    f64::from(STEPS) * CYCLES_A_STEP / best_s / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_answers() {
        let host = HostFacts::read();
        assert!(host.cpus > 0 && host.clock_ghz_estimated > 0.0 && host.summary().contains("GHz"));
        assert!(!Build::THIS.commit.is_empty() && Build::THIS.profile.contains("opt-level="));
    }
}
