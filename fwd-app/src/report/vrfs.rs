//! VRFs in the report: ports, routes, engines and total memory.

use crate::forwarder::Forwarder;
use crate::report::columns::{Columns, grouped, megabytes};
use crate::routes::Vrf;
use serde::Serialize;
use std::fmt;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct VrfReport {
    pub(crate) name: String,
    pub(crate) ports: Vec<String>,
    pub(crate) routes_v4: usize,
    pub(crate) routes_v6: usize,
    pub(crate) next_hops: usize,
    pub(crate) updates: u64,
    pub(crate) engine: &'static str,
    /// Memory read by lookups, bytes; total of all VRFs that share the engine.
    pub(crate) table_bytes: u64,
    /// Memory used only by the engine's writer, bytes; total of all VRFs that share the engine.
    pub(crate) writer_bytes: u64,
    /// Replaced tables that lcores may still read, bytes: the shared engine's and this VRF's egress tables.
    pub(crate) retired_bytes: u64,
    pub(crate) is_shared: bool,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct VrfReports(Vec<VrfReport>);

impl VrfReports {
    pub(crate) fn new(forwarder: &Forwarder) -> Self {
        let report = |(number, vrf): (usize, &Vrf)| {
            let (rib, stats) = (vrf.rib(), vrf.engine().stats());
            VrfReport {
                name: vrf.name.clone(),
                ports: forwarder.ports().names_of(number),
                routes_v4: rib.v4.len(),
                routes_v6: rib.v6.len(),
                next_hops: vrf.hops().len(),
                updates: vrf.tally.updates,
                engine: vrf.engine().info().name,
                table_bytes: stats.table_bytes,
                writer_bytes: stats.writer_bytes,
                retired_bytes: stats.retired_bytes + vrf.egress.retired_bytes(),
                is_shared: vrf.engine.is_shared,
            }
        };
        Self(forwarder.vrfs().iter().enumerate().map(report).collect())
    }

    /// Empty for a forwarder with a single VRF.
    pub(crate) fn of_several(forwarder: &Forwarder) -> Self {
        if forwarder.vrfs().len() > 1 { Self::new(forwarder) } else { Self::default() }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let text = if self.is_empty() { String::new() } else { self.to_string() };
        text.lines().map(|line| format!("vrf      {line}")).collect()
    }
}

impl fmt::Display for VrfReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut columns =
            Columns::new(["vrf", "IPv4", "IPv6", "next hops", "updates", "engine", "MB", "ports"]);
        for vrf in &self.0 {
            let shared = if vrf.is_shared { " (shared)" } else { "" };
            columns.row([
                vrf.name.clone(),
                grouped(vrf.routes_v4),
                grouped(vrf.routes_v6),
                grouped(vrf.next_hops),
                grouped(vrf.updates),
                format!("{}{shared}", vrf.engine),
                format!("{:.1}", megabytes(vrf.table_bytes)),
                vrf.ports.join(","),
            ]);
        }
        columns.fmt(f)?;
        // A shared table counts once.
        let shared = self.0.iter().find(|vrf| vrf.is_shared);
        let counted = || self.0.iter().filter(|vrf| !vrf.is_shared).chain(shared);
        let table = megabytes(counted().map(|vrf| vrf.table_bytes).sum());
        let writer = megabytes(counted().map(|vrf| vrf.writer_bytes).sum());
        writeln!(f, "all tables {table:.1} MB, and {writer:.1} MB of their writers")
    }
}
