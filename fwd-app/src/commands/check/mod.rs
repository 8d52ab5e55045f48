//! `fwd-app check`: whether this host is ready to forward.
//!
//! Each item is OK, WARN (works, but suboptimally) or FAIL (`run` cannot work). `check` needs neither privileges nor DPDK.

mod compute;
mod devices;
mod privilege;

use crate::cli::values;
use crate::report::output::{self, JsonDocument};
use crate::topology::QueueSpec;
use clap::Args;
use fib::host::Host;
use lpm_gpu::cu::{Device, Facts, GpuError, probe};
use rustix::fs::{Access, access};
use serde::Serialize;
use std::io::{self, Write};

pub(crate) const EXAMPLES: &str = "\
Examples:
  fwd-app check
  fwd-app check --routes 2000000 --config '(0,0,1),(1,0,2)'
  fwd-app check --table-node 1
  fwd-app check --json | jq '.items[] | select(.status != \"OK\")'

Exit codes: 0 ready (WARN is allowed), 1 an item is FAIL.";

/// `fwd-app check`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CheckArgs {
    /// Number of routes that must fit in memory
    ///
    /// The default is a full table of both families with room to grow.
    #[arg(long, value_name = "N", default_value_t = 1_500_000, value_parser = values::count::<u64>(0..=u64::MAX))]
    routes: u64,

    /// Check that the lcores of this --config of `run` have CPUs
    #[arg(long, value_name = "(PORT,QUEUE,LCORE),..", value_parser = values::queue_spec)]
    config: Option<QueueSpec>,

    /// Check the memory and pages of this --table-node of `run`
    #[arg(long, value_name = "N")]
    table_node: Option<u32>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
enum Status {
    Ok,
    Warn,
    Fail,
}

#[derive(Debug, Serialize)]
struct CheckItem {
    /// Stable, for scripts.
    name: &'static str,
    #[serde(flatten)]
    finding: Finding,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    status: Status,
    found: String,
    hint: Option<String>,
}

impl Finding {
    fn ok(found: impl Into<String>) -> Self {
        Self { status: Status::Ok, found: found.into(), hint: None }
    }

    fn warn(found: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { status: Status::Warn, found: found.into(), hint: Some(hint.into()) }
    }

    fn fail(found: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { status: Status::Fail, found: found.into(), hint: Some(hint.into()) }
    }
}

#[derive(Debug, Serialize)]
struct CheckReport {
    ready: bool,
    items: Vec<CheckItem>,
}

pub(crate) fn main(args: &CheckArgs) -> anyhow::Result<()> {
    let report = inspect(&Host::here(), &gpus(), args);
    output::write_to(None, |out| {
        if args.json {
            serde_json::to_writer_pretty(&mut *out, &JsonDocument::new("check", &report))?;
            writeln!(out)?;
        } else {
            print(&report, out)?;
        }
        Ok(())
    })?;
    let failed = report.items.iter().filter(|item| item.finding.status == Status::Fail);
    let failed: Vec<_> = failed.map(|item| item.name).collect();
    anyhow::ensure!(report.ready, "this host is not ready: {}", failed.join(", "));
    Ok(())
}

fn gpus() -> Result<Vec<Facts>, GpuError> {
    let mut usable = Vec::new();
    let mut refused = None;
    for index in 0..probe()?.devices {
        match Device::open(index) {
            Ok(device) => usable.push(device.facts().clone()),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    match refused {
        Some(error) if usable.is_empty() => Err(error),
        _ => Ok(usable),
    }
}

fn inspect(host: &Host, gpus: &Result<Vec<Facts>, GpuError>, args: &CheckArgs) -> CheckReport {
    let (compiled, running) = (dpdk_ffi::version::compiled_text(), dpdk_ffi::version());
    let items = [
        ("cpus", compute::cpus(host, args.config.as_ref())),
        ("isa", compute::isa()),
        ("isolcpus", compute::isolated(host)),
        ("numa", compute::numa(host)),
        ("pages_2m", compute::pages_2m(host)),
        ("pages_1g", compute::pages_1g(host)),
        ("hugetlbfs", compute::hugetlbfs(host)),
        ("tables", compute::tables(host, args.routes, args.table_node)),
        ("memory", compute::memory(host, args.routes)),
        ("privilege", privilege::privilege(host, &can_use)),
        ("dpdk", devices::dpdk(host, &compiled, &running)),
        ("iommu", devices::iommu(host)),
        ("drivers", devices::drivers(host)),
        ("nics", devices::nics(host)),
        ("gpu", devices::gpu(host, gpus)),
    ];
    let ready = items.iter().all(|(_, finding)| finding.status != Status::Fail);
    CheckReport { ready, items: items.map(|(name, finding)| CheckItem { name, finding }).into() }
}

fn can_use(path: &str) -> bool {
    access(path, Access::READ_OK | Access::WRITE_OK).is_ok()
}

fn print(report: &CheckReport, out: &mut dyn Write) -> io::Result<()> {
    for CheckItem { name, finding } in &report.items {
        let status = match finding.status {
            Status::Ok => "OK",
            Status::Warn => "WARN",
            Status::Fail => "FAIL",
        };
        writeln!(out, "{status:<4}  {name:<10} {}", finding.found)?;
        if let Some(hint) = &finding.hint {
            writeln!(out, "{:17}-> {hint}", "")?;
        }
    }
    writeln!(out, "{}", if report.ready { "ready" } else { "not ready" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::host::Tree;

    fn args() -> CheckArgs {
        CheckArgs { routes: 1000, config: None, table_node: None, json: false }
    }

    fn no_gpu() -> Result<Vec<Facts>, GpuError> {
        Err(GpuError::NoDriver { tried: "libcuda.so".into() })
    }

    #[test]
    fn a_bare_host_is_not_ready_and_every_line_but_ok_has_a_hint() {
        let tree = Tree::new();
        let report = inspect(&tree.host(), &no_gpu(), &args());
        assert!(!report.ready);
        for CheckItem { finding, .. } in &report.items {
            assert_eq!(finding.hint.is_none(), finding.status == Status::Ok, "{finding:?}");
        }
        let mut text = Vec::new();
        print(&report, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("FAIL  dpdk") && text.ends_with("not ready\n"), "{text}");
    }

    #[test]
    fn a_host_with_dpdk_and_memory_is_ready() {
        let tree = Tree::new();
        tree.dpdk().file("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\n");
        let report = inspect(&tree.host(), &no_gpu(), &args());
        assert!(report.ready, "{report:#?}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["ready"], true);
        assert!(json["items"].as_array().unwrap().iter().any(|i| i["name"] == "dpdk" && i["status"] == "OK"));
    }
}
