//! Loads route files for the commands, with a progress bar and warnings about defects.

use crate::cli::args::TableArgs;
use crate::forwarder::Forwarder;
use crate::report::console::warn;
use crate::report::progress::Bar;
use crate::routes::spec::{self, LoadProgress, TableSpec, VrfSpec};
use fib::digest::{table_hash, tables_hash};
use fib::feed::Loaded;
use fib::{EngineInfo, NextHopTable, Rib};
use lpm_core::memory::{self, Mapped};
use std::collections::BTreeSet;
use std::path::PathBuf;

pub(super) fn open(spec: &TableSpec, vrfs: &[VrfSpec]) -> anyhow::Result<Forwarder> {
    let bar = Bar::new("loading", 0);
    Forwarder::open(spec, vrfs, &mut |progress| show(&bar, progress))
}

/// As [`open`], with warnings about conditions that slow down or prevent forwarding.
pub(super) fn open_to_forward(args: &TableArgs, vrfs: &[VrfSpec]) -> anyhow::Result<Forwarder> {
    let forwarder = open(&args.spec(), vrfs)?;
    warn_of_pages();
    Ok(forwarder)
}

/// Loads a RIB without an engine.
///
/// # Errors
/// `FeedError`, with file and line.
pub(super) fn load_rib(paths: &[PathBuf]) -> anyhow::Result<(Rib, NextHopTable, Vec<Loaded>)> {
    let bar = Bar::new("loading", 0);
    spec::load_rib(paths, &mut |progress| show(&bar, progress))
}

pub(super) fn hash(forwarder: &Forwarder) -> String {
    tables_hash(forwarder.vrfs().iter().map(|vrf| (vrf.name.as_str(), table_hash(vrf.rib(), vrf.hops()))))
}

fn show(bar: &Bar, progress: LoadProgress<'_>) {
    match progress {
        LoadProgress::Reading { bytes, bytes_total } => bar.draw(bytes, bytes_total),
        LoadProgress::Read(files) => {
            bar.clear();
            files.iter().for_each(warn_of);
        }
    }
}

fn warn_of(file: &Loaded) {
    let path = file.path.display();
    if let Some(cut) = file.truncated {
        warn(format_args!("{path}: {cut}; the {} routes before it are used", file.routes()));
    }
    if file.with_tos > 0 {
        warn(format_args!("{path}: {} routes are for packets with a TOS and are left out", file.with_tos));
    }
    if file.unusable > 0 {
        warn(format_args!("{path}: {} prefixes have no next hop and are left out", file.unusable));
    }
}

/// Warns about tables in 4 KB pages, where lookups may cost TLB misses, and about reserved pages that could not be used.
fn warn_of_pages() {
    let refused = memory::refused_bytes().div_ceil(1 << 20);
    if refused > 0 {
        warn(format_args!(
            "{refused} MB of tables are not in reserved 2 MB pages, though enough are free: check the free pages of the tables' NUMA \
             node, and the limits of the control group (hugetlb, cpuset)"
        ));
    }
    let Mapped { small_bytes, .. } = memory::mapped();
    if small_bytes > 0 {
        let megabytes = small_bytes.div_ceil(1 << 20);
        warn(format_args!(
            "{megabytes} MB of tables are in 4 KB pages, which slows lookups: too few 2 MB pages are free, and there are no \
             transparent huge pages; sysctl -w vm.nr_hugepages=N with N at least {} more",
            megabytes.div_ceil(2)
        ));
    }
}

/// Warns about gateways without a neighbour or an interface to find it: their packets have no destination MAC. MRT tables have only
/// gateways. Must be called once the ports are known.
pub(super) fn warn_of_neighbours(forwarder: &Forwarder) {
    for vrf in forwarder.vrfs() {
        let without = vrf.egress.without_neighbour();
        if without > 0 {
            let gateways = vrf.hops().iter().filter_map(|(_, hop)| hop.gateway()).collect::<BTreeSet<_>>();
            warn(format_args!(
                "{without} of {} gateways have no neighbour: packets for them are dropped as no_neighbour; add lines `neigh ADDR \
                 lladdr MAC dev PORT` to a file of --fib, or replace gateways by ids (fwd-app fib convert --to text)",
                gateways.len()
            ));
        }
    }
}

/// Warnings about lcores that look up on a device of another NUMA node, one for each engine and node. `lcores`: those that look up, each
/// with its node.
pub(super) fn far_from_devices(
    engines: impl Iterator<Item = EngineInfo>,
    lcores: &[(u32, u32)],
) -> BTreeSet<String> {
    let of_engine = |engine: EngineInfo| {
        let node = engine.numa_node?;
        let far = lcores.iter().filter(|(_, of_lcore)| *of_lcore != node).map(|(lcore, _)| lcore.to_string());
        let far = far.collect::<Vec<_>>().join(", ");
        (!far.is_empty()).then(|| {
            let name = engine.name;
            format!(
                "the device of engine {name} is on NUMA node {node}, but lcores of other nodes use it: {far}"
            )
        })
    };
    engines.filter_map(of_engine).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::Isa;

    #[test]
    fn lcores_of_another_node_than_the_device_are_named_once() {
        let engine = |numa_node| EngineInfo { numa_node, ..EngineInfo::new("gamt", Isa::Scalar) };
        let lcores = [(1, 0), (2, 1), (3, 0)];
        let warnings =
            |nodes: &[Option<u32>]| far_from_devices(nodes.iter().map(|node| engine(*node)), &lcores);
        let far = "the device of engine gamt is on NUMA node 1, but lcores of other nodes use it: 1, 3";
        assert_eq!(warnings(&[Some(1), Some(1), None]), BTreeSet::from([far.to_owned()]));
        assert_eq!(warnings(&[None]), BTreeSet::new());
        assert!(far_from_devices([engine(Some(0))].into_iter(), &[(1, 0)]).is_empty());
    }
}
