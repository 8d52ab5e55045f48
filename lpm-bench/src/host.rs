//! What a figure depends on besides the code: CPU, caches, huge pages, and what the binary was built from.

use serde::Serialize;
use std::fs;
use std::time::Instant;

/// The host, as far as a figure depends on it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Host {
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

impl Host {
    /// Asks the kernel. What it does not tell is 0 or empty.
    pub(crate) fn read() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let thp = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            cpu_model: field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            clock_ghz_estimated: clock_ghz(),
            l2_kib: cache_kib(2),
            l3_kib: cache_kib(3),
            huge_pages_total: number(field(&meminfo, "HugePages_Total")),
            huge_pages_free: number(field(&meminfo, "HugePages_Free")),
            transparent_huge_pages: chosen(&thp).to_owned(),
            load_average: load.split_whitespace().next().and_then(|one| one.parse().ok()).unwrap_or(0.0),
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

/// The value behind `name:` at a line's start.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// The leading digits of `text`.
fn number(text: Option<&str>) -> u64 {
    let digits = text.map(|text| text.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// The word in brackets, as sysfs shows a choice.
fn chosen(text: &str) -> &str {
    text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(word, _)| word)
}

fn cache_kib(level: u8) -> u64 {
    let folder = "/sys/devices/system/cpu/cpu0/cache";
    let read = |index: u8, name: &str| {
        fs::read_to_string(format!("{folder}/index{index}/{name}")).unwrap_or_default()
    };
    (0..8)
        .filter(|index| read(*index, "level").trim() == level.to_string())
        .find(|index| read(*index, "type").trim() != "Instruction")
        .map_or(0, |index| number(Some(read(index, "size").trim())))
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
    fn kernel_texts_are_read() {
        let text = "processor\t: 0\nmodel name\t: A CPU @ 3 GHz\nHugePages_Total:    3000\n";
        assert_eq!(field(text, "model name"), Some("A CPU @ 3 GHz"));
        assert_eq!((number(field(text, "HugePages_Total")), number(field(text, "absent"))), (3000, 0));
        assert_eq!(
            (number(Some("1024K")), chosen("always [madvise] never"), chosen("")),
            (1024, "madvise", "")
        );
    }

    #[test]
    fn this_host_answers() {
        let host = Host::read();
        assert!(host.cpus > 0 && host.clock_ghz_estimated > 0.0 && host.summary().contains("GHz"));
        assert!(!Build::THIS.commit.is_empty() && Build::THIS.profile.contains("opt-level="));
    }
}
