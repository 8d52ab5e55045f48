//! Properties of the host that measurements depend on: CPU, clock, caches, pages, kernel.

use super::{Host, count_list, list_holds};
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Instant;

/// The host of a measurement. Unknown properties are 0, empty, `unknown` or absent.
#[derive(Clone, Debug, Serialize)]
pub struct HostFacts {
    /// The CPU's name as the kernel gives it.
    pub cpu_model: String,
    /// The version of its microcode.
    pub microcode: Option<String>,
    /// CPUs this process may use.
    pub cpus: usize,
    /// The core clock in GHz, from a chain of multiplications of known latency; an estimate.
    pub clock_ghz_estimated: f64,
    /// The frequency governors of these CPUs, such as `performance`; `unknown` without any, as in virtual machines.
    pub governor: String,
    /// Whether cores may run above their nominal clock.
    pub turbo: Option<bool>,
    /// Whether cores run two threads.
    pub smt: Option<bool>,
    /// NUMA nodes with memory.
    pub numa_nodes: u64,
    /// Whether this is a virtual machine.
    pub is_virtual: bool,
    /// The kernel's mitigation of gather data sampling, which makes AVX2 and AVX-512 gathers slow.
    pub gather_data_sampling: Option<String>,
    /// The kernel's version.
    pub kernel: Option<String>,
    /// L2 cache of one core, KiB.
    pub l2_kib: u64,
    /// L3 cache, KiB. On a shared host other programs use a part.
    pub l3_kib: u64,
    /// Reserved huge pages of 2 MB.
    pub huge_pages_total: u64,
    /// Free huge pages of 2 MB.
    pub huge_pages_free: u64,
    /// Huge pages of 1 GB that are reserved.
    pub huge_pages_1g_total: u64,
    /// Transparent huge pages: always, madvise or never.
    pub transparent_huge_pages: String,
    /// Load average of the last minute when the run began. Above the number of CPUs in use, the results are not reliable.
    pub load_average: f64,
}

impl HostFacts {
    /// Reads the facts of this host and of the CPUs that the calling thread may use. Takes about 15 ms, to measure the clock.
    #[must_use]
    pub fn read() -> Self {
        Self::from_host(&Host::here(), clock_ghz())
    }

    fn from_host(host: &Host, clock_ghz_estimated: f64) -> Self {
        let caches = host.data_caches();
        let kib =
            |level| caches.iter().find(|cache| cache.level == level).map_or(0, |cache| cache.bytes >> 10);
        let (huge_pages_total, huge_pages_free) = host.huge_pages(2048);
        let cpu_fact = |path: &str| host.read(format!("sys/devices/system/cpu/{path}"));
        let flags = host.field("proc/cpuinfo", "flags").unwrap_or_default();
        Self {
            cpu_model: host.cpu_name().unwrap_or_else(|| "unknown".to_owned()),
            microcode: host.field("proc/cpuinfo", "microcode"),
            cpus: host.cpus_allowed().len(),
            clock_ghz_estimated,
            governor: governor(host),
            turbo: turbo(host),
            smt: cpu_fact("smt/active").map(|active| active == "1"),
            numa_nodes: host.memory_nodes().map_or(0, |nodes| count_list(&nodes)),
            is_virtual: flags.split(' ').any(|flag| flag == "hypervisor"),
            gather_data_sampling: cpu_fact("vulnerabilities/gather_data_sampling"),
            kernel: host.read("proc/sys/kernel/osrelease"),
            l2_kib: kib(2),
            l3_kib: kib(3),
            huge_pages_total,
            huge_pages_free,
            huge_pages_1g_total: host.huge_pages(1 << 20).0,
            transparent_huge_pages: host.transparent_huge_pages().unwrap_or_default(),
            load_average: host.load_average().unwrap_or(0.0),
        }
    }

    /// One line for the screen.
    #[must_use]
    pub fn summary(&self) -> String {
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

/// The governors of the CPUs that this process may use, each once.
fn governor(host: &Host) -> String {
    let cpus = host.cpu_list().unwrap_or_default();
    let names = host.list("sys/devices/system/cpu");
    let numbers = names.iter().filter_map(|name| name.strip_prefix("cpu")?.parse::<u64>().ok());
    let of_cpu = |cpu: u64| host.read(format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"));
    let governors: BTreeSet<_> = numbers.filter(|cpu| list_holds(&cpus, *cpu)).filter_map(of_cpu).collect();
    if governors.is_empty() {
        return "unknown".to_owned();
    }
    governors.into_iter().collect::<Vec<_>>().join(",")
}

fn turbo(host: &Host) -> Option<bool> {
    let flag = |path: &str| host.number(format!("sys/devices/system/cpu/{path}"));
    let intel = flag("intel_pstate/no_turbo").map(|off| off == 0);
    intel.or_else(|| flag("cpufreq/boost").map(|on| on == 1))
}

/// From dependent 64-bit multiplications (3 cycles on x86-64 servers since 2011) and exclusive ors (1). The best of five: load only slows it.
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
    use super::super::Tree;
    use super::*;

    #[test]
    fn this_host_answers() {
        let host = HostFacts::read();
        assert!(host.cpus > 0 && host.clock_ghz_estimated > 0.0 && host.summary().contains("GHz"));
        assert!(host.kernel.is_some());
    }

    #[test]
    fn what_the_kernel_says_is_told_from_what_it_does_not() {
        let tree = Tree::new();
        let facts = HostFacts::from_host(&tree.host(), 3.0);
        assert_eq!((facts.governor.as_str(), facts.turbo, facts.smt), ("unknown", None, None));
        assert_eq!((facts.cpu_model.as_str(), facts.kernel, facts.is_virtual), ("unknown", None, false));
        tree.file("proc/cpuinfo", "model name\t: CPU X\nmicrocode\t: 0x1f\nflags\t\t: sse hypervisor avx\n")
            .file("proc/self/status", "Cpus_allowed_list:\t0-1\n")
            .file("proc/sys/kernel/osrelease", "6.1.0-9-amd64\n")
            .file("sys/devices/system/cpu/smt/active", "1\n")
            .file("sys/devices/system/cpu/cpufreq/boost", "0\n")
            .file("sys/devices/system/cpu/vulnerabilities/gather_data_sampling", "Not affected\n")
            .file("sys/devices/system/node/has_memory", "0-1\n");
        for (cpu, governor) in [(0, "performance"), (1, "powersave"), (2, "schedutil")] {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
            tree.file(&path, &format!("{governor}\n"));
        }
        let facts = HostFacts::from_host(&tree.host(), 3.0);
        assert_eq!(facts.governor, "performance,powersave");
        assert_eq!((facts.turbo, facts.smt, facts.numa_nodes), (Some(false), Some(true), 2));
        assert_eq!((facts.cpu_model.as_str(), facts.microcode.as_deref()), ("CPU X", Some("0x1f")));
        assert_eq!((facts.kernel.as_deref(), facts.is_virtual), (Some("6.1.0-9-amd64"), true));
        assert_eq!(facts.gather_data_sampling.as_deref(), Some("Not affected"));
        tree.file("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n");
        assert_eq!(HostFacts::from_host(&tree.host(), 3.0).turbo, Some(true));
    }
}
