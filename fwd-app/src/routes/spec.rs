//! The specification of VRFs by the user: names, ports, route files, kernel tables, limit of routes, engine. It is checked here, before
//! anything is opened. [`load_rib`] reads the route files, at the start and in a reload.

use super::feeds::RoutingTables;
use crate::datapath::egress::find_port;
use crate::datapath::vlans::{PortVrfs, VLAN_IDS};
use crate::engines::EngineSpec;
use crate::error::ConfigError;
use crate::ports::PortRecord;
use fib::feed::{self, LoadOptions, Loaded};
use fib::{NextHopTable, PortRef, Rib};
use lpm_core::memory;
use std::path::PathBuf;

#[derive(Clone, Debug)]
pub(crate) struct TableSpec {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) routes_max: Option<u64>,
    pub(crate) engine: EngineSpec,
}

impl TableSpec {
    /// # Errors
    /// [`ConfigError::Invalid`] for a NUMA node without memory.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let node = self.engine.options.numa_node.map_or(Ok(()), memory::check_node);
        node.map_err(|why| ConfigError::Invalid(format!("--table-node {why}")))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum LoadProgress<'a> {
    /// Bytes read so far and the total; a total of 0 means unknown.
    Reading { bytes: u64, bytes_total: u64 },
    /// The files that were read; empty after an error.
    Read(&'a [Loaded]),
}

/// # Errors
/// `FeedError`, with file and line.
pub(crate) fn load_rib(
    paths: &[PathBuf],
    on_progress: &mut dyn FnMut(LoadProgress<'_>),
) -> anyhow::Result<(Rib, NextHopTable, Vec<Loaded>)> {
    let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
    let mut reading = |bytes, bytes_total| on_progress(LoadProgress::Reading { bytes, bytes_total });
    let options = LoadOptions { format: None, on_progress: Some(&mut reading) };
    let files = feed::load(paths, &mut rib, &mut hops, options);
    on_progress(LoadProgress::Read(files.as_deref().unwrap_or_default()));
    Ok((rib, hops, files?))
}

/// The name of VRF 0.
pub(crate) const DEFAULT: &str = "default";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VrfSpec {
    pub(crate) name: String,
    /// Its ports, and VLANs as `port.id`.
    pub(crate) ports: Vec<PortRef>,
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedFile {
    pub(crate) vrf: String,
    pub(crate) file: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedTable {
    pub(crate) vrf: String,
    pub(crate) table: u32,
}

impl VrfSpec {
    /// # Errors
    /// [`ConfigError::Invalid`] for a duplicate or an unknown name.
    pub(crate) fn all(vrfs: &[Self], files: &[NamedFile]) -> Result<Vec<Self>, ConfigError> {
        let mut all = vrfs.to_vec();
        for (at, Self { name, .. }) in vrfs.iter().enumerate() {
            if name == DEFAULT || vrfs[..at].iter().any(|other| other.name == *name) {
                return Err(ConfigError::Invalid(format!("--vrf {name}: another VRF has this name")));
            }
        }
        for NamedFile { vrf, file } in files {
            let number = Self::number_of(vrfs, "--vrf-fib", vrf)?;
            all[number - 1].files.push(file.clone());
        }
        Ok(all)
    }

    /// Maps kernel tables to VRFs, numbered from 1.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] for an unknown name, a table of two VRFs, and a second table of a VRF.
    pub(crate) fn tables(vrfs: &[Self], named: &[NamedTable]) -> Result<RoutingTables, ConfigError> {
        let mut tables = RoutingTables::default();
        for (at, NamedTable { vrf, table }) in named.iter().enumerate() {
            let number = Self::number_of(vrfs, "--vrf-table", vrf)?;
            let refused = |why: &str| ConfigError::Invalid(format!("--vrf-table {vrf}={table}: {why}"));
            if named[..at].iter().any(|other| other.vrf == *vrf) {
                return Err(refused("the VRF has a table already"));
            }
            if let Some(other) = tables.set(*table, number) {
                let name = other.checked_sub(1).map_or(DEFAULT, |other| &vrfs[other].name);
                return Err(refused(&format!("the VRF {name} has this table")));
            }
        }
        Ok(tables)
    }

    /// The number, from 1, of the VRF that `option` names.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] for an unknown name.
    pub(crate) fn number_of(vrfs: &[Self], option: &str, name: &str) -> Result<usize, ConfigError> {
        vrfs.iter().position(|vrf| vrf.name == name).map(|at| at + 1).ok_or_else(|| {
            let known: Vec<_> = vrfs.iter().map(|vrf| vrf.name.as_str()).collect();
            let known = known.join(", ");
            ConfigError::Invalid(format!("{option} {name}: no --vrf has this name; there are: {known}"))
        })
    }
}

/// The VRFs of each port; `vrfs` are numbered from 1.
///
/// # Errors
/// [`ConfigError::NoDevice`] for a port that does not exist, [`ConfigError::Invalid`] for a port or VLAN in two VRFs.
pub(crate) fn vrfs_of_ports(vrfs: &[VrfSpec], ports: &[PortRecord]) -> Result<Vec<PortVrfs>, ConfigError> {
    let mut vrf_of = vec![PortVrfs::default(); ports.len()];
    for (number, vrf) in (1..).zip(vrfs) {
        for port in &vrf.ports {
            let before = match find_port(port, ports, || format!("--vrf {}", vrf.name)) {
                Ok(index) => std::mem::replace(&mut vrf_of[index.map_or(0, usize::from)].own, number),
                Err(error) => {
                    let (index, id) =
                        vlan(port, ports).ok_or_else(|| ConfigError::NoDevice(error.to_string()))?;
                    vrf_of[index].vlans.insert(id, number).unwrap_or(0)
                }
            };
            if before != 0 {
                let message =
                    format!("--vrf: port {port} is in the VRFs {} and {}", vrfs[before - 1].name, vrf.name);
                return Err(ConfigError::Invalid(message));
            }
        }
    }
    for PortVrfs { own, vlans } in &mut vrf_of {
        vlans.retain(|_, vrf| vrf != own);
    }
    Ok(vrf_of)
}

/// Splits `port.id` into the index of the port and the id of the VLAN.
fn vlan(name: &PortRef, ports: &[PortRecord]) -> Option<(usize, u16)> {
    let PortRef::Name(name) = name else { return None };
    let (port, id) = name.rsplit_once('.')?;
    let index = find_port(&PortRef::parse(port), ports, String::new).ok()??;
    let id = id.parse().ok().filter(|id| VLAN_IDS.contains(id))?;
    Some((index.into(), id))
}
