//! `fwd-app fib stat`: the contents of a table as text with bars or as JSON, from one struct.

use super::survey::{FamilySurvey, survey};
use crate::commands::tables;
use crate::report::histogram::bar;
use crate::report::output::{self, JsonDocument};
use clap::Args;
use fib::feed::{Compression, Loaded};
use fib::{NextHop, NextHopTable};
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  fwd-app fib stat routes.txt
  fwd-app fib stat v4.txt.xz v6.txt.xz --json";

/// `fwd-app fib stat`.
#[derive(Clone, Debug, Args)]
pub(super) struct StatArgs {
    /// Files of one table; the last route of a prefix wins, in a file of iproute2 the lowest metric
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct TableReport {
    files: Vec<FileReport>,
    routes: u64,
    next_hops: NextHopReport,
    ipv4: FamilySurvey,
    ipv6: FamilySurvey,
}

#[derive(Debug, Serialize)]
struct FileReport {
    path: PathBuf,
    format: String,
    compression: Option<String>,
    bytes: u64,
    routes_ipv4: u64,
    routes_ipv6: u64,
    neighbours: u64,
    duplicates: u64,
    unusable: u64,
    skipped_records: u64,
    with_tos: u64,
    truncated: Option<String>,
}

#[derive(Debug, Default, Serialize)]
struct NextHopReport {
    total: u64,
    bare: u64,
    gateway: u64,
    connected: u64,
    port: u64,
    group: u64,
    blackhole: u64,
    unreachable: u64,
    prohibit: u64,
    neighbours: u64,
}

pub(super) fn main(args: &StatArgs) -> anyhow::Result<()> {
    let (rib, hops, files) = tables::load_rib(&args.files)?;
    let report = TableReport {
        files: files.iter().map(FileReport::from).collect(),
        routes: rib.len() as u64,
        next_hops: NextHopReport::count(&hops),
        ipv4: survey(&rib.v4),
        ipv6: survey(&rib.v6),
    };
    output::write_to(None, |out| {
        if args.json {
            serde_json::to_writer_pretty(&mut *out, &JsonDocument::new("fib-stat", &report))?;
            writeln!(out)?;
        } else {
            report.print(out)?;
        }
        Ok(())
    })
}

impl From<&Loaded> for FileReport {
    fn from(file: &Loaded) -> Self {
        Self {
            path: file.path.clone(),
            format: file.format.to_string(),
            compression: (file.compression != Compression::None).then(|| file.compression.to_string()),
            bytes: file.bytes,
            routes_ipv4: file.routes_v4,
            routes_ipv6: file.routes_v6,
            neighbours: file.neighbours,
            duplicates: file.duplicates,
            unusable: file.unusable,
            skipped_records: file.skipped_records,
            with_tos: file.with_tos,
            truncated: file.truncated.map(|cut| cut.to_string()),
        }
    }
}

impl NextHopReport {
    fn count(hops: &NextHopTable) -> Self {
        let mut report = Self {
            total: hops.len() as u64,
            neighbours: hops.neighbours().count() as u64,
            ..Self::default()
        };
        for (_, hop) in hops.iter() {
            *match hop {
                NextHop::Bare | NextHop::Moved(_) => &mut report.bare,
                NextHop::Gateway { .. } => &mut report.gateway,
                NextHop::Connected { .. } => &mut report.connected,
                NextHop::Port { .. } => &mut report.port,
                NextHop::Group(_) => &mut report.group,
                NextHop::Blackhole => &mut report.blackhole,
                NextHop::Unreachable => &mut report.unreachable,
                NextHop::Prohibit => &mut report.prohibit,
                // Feeds have no local routes.
                NextHop::Local => continue,
            } += 1;
        }
        report
    }
}

impl TableReport {
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        for file in &self.files {
            write!(out, "{}: {}", file.path.display(), file.format)?;
            if let Some(compression) = &file.compression {
                write!(out, " in {compression}")?;
            }
            let (v4, v6, duplicates) = (file.routes_ipv4, file.routes_ipv6, file.duplicates);
            write!(out, ", {} bytes, {v4} IPv4 and {v6} IPv6 routes, {duplicates} repeated", file.bytes)?;
            match &file.truncated {
                Some(cut) => writeln!(out, "; {cut}")?,
                None => writeln!(out)?,
            }
        }
        let hops = &self.next_hops;
        writeln!(out, "routes      {}", self.routes)?;
        write!(out, "next hops   {}", hops.total)?;
        for (count, kind) in [
            (hops.bare, "bare ids"),
            (hops.gateway, "gateways"),
            (hops.connected, "connected"),
            (hops.port, "ports"),
            (hops.group, "groups of paths"),
            (hops.blackhole, "blackhole"),
            (hops.unreachable, "unreachable"),
            (hops.prohibit, "prohibit"),
        ] {
            if count > 0 {
                write!(out, ", {count} {kind}")?;
            }
        }
        writeln!(out)?;
        writeln!(out, "neighbours  {}", hops.neighbours)?;
        print_family(out, "IPv4", "/24", "all addresses", &self.ipv4)?;
        print_family(out, "IPv6", "/64", "2000::/3", &self.ipv6)
    }
}

fn print_family(
    out: &mut dyn Write,
    name: &str,
    deep: &str,
    space: &str,
    family: &FamilySurvey,
) -> io::Result<()> {
    writeln!(out, "\n{name}: {} routes", family.routes)?;
    if family.routes == 0 {
        return Ok(());
    }
    match family.default_route {
        Some(id) => writeln!(out, "  default route     next hop {id}")?,
        None => writeln!(out, "  default route     none")?,
    }
    writeln!(out, "  next hops         {}", family.next_hops)?;
    writeln!(out, "  longer than {deep}   {}", family.deep)?;
    writeln!(out, "  within another    {} (chains of up to {})", family.nested, family.nesting_max)?;
    writeln!(out, "  covered           {:.4} % of {space}", family.covered_share * 100.0)?;
    let largest = family.by_length.values().max().copied().unwrap_or(1);
    for (length, routes) in &family.by_length {
        let bar = bar(*routes, largest);
        let share = *routes as f64 / family.routes as f64 * 100.0;
        writeln!(out, "  {:>4} {routes:>9} {share:>6.2} % {bar}", format!("/{length}"))?;
    }
    Ok(())
}
