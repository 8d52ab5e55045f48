//! The VRFs of a forwarder: a [`Session`] each, over one running topology.
//!
//! A port belongs to one VRF, whose routes its packets are looked up in, but those of VLANs that belong to another one; a next hop may be
//! behind any port. VRF 0, [`DEFAULT`], has the ports that no other one names, and is the only one unless some are configured. An engine that
//! holds several FIBs has one for each VRF; of others, each VRF has its own.

use super::feeds::Tables;
use super::feeds::learned::Learned;
use super::interfaces::{Resolved, ours, routes};
use super::session::{Progress, Session, Site};
use super::spec::TableSpec;
use crate::datapath::exception::Ours;
use crate::datapath::vlans::{PortVrfs, VLAN_IDS};
use crate::datapath::watch::Watch;
use crate::datapath::{EgressPort, EgressTable};
use crate::engines::{EngineSpec, Made};
use crate::error::ConfigError;
use crate::router::Interface;
use crate::topology::Handle;
use crate::topology::lcores::Parts;
use crate::topology::running::Running;
use anyhow::Context as _;
use arc_swap::ArcSwap;
use fib::{NextHopError, NextHopTable, PortRef, Rib};
use std::path::PathBuf;
use std::sync::Arc;

/// The name of VRF 0.
pub(crate) const DEFAULT: &str = "default";

/// A VRF besides [`DEFAULT`], as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VrfSpec {
    /// Its name.
    pub(crate) name: String,
    /// Its ports, and VLANs of ports: a port, a dot and the id.
    pub(crate) ports: Vec<PortRef>,
    /// Its route files, in order.
    pub(crate) files: Vec<PathBuf>,
}

/// A file of a VRF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedFile {
    /// The VRF.
    pub(crate) vrf: String,
    /// The file.
    pub(crate) file: PathBuf,
}

/// A routing table of the kernel whose routes are those of a VRF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedTable {
    /// The VRF.
    pub(crate) vrf: String,
    /// The table's number.
    pub(crate) table: u32,
}

impl VrfSpec {
    /// These VRFs with these route files.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] for a name that is taken or that no VRF has.
    pub(crate) fn all(vrfs: &[Self], files: &[NamedFile]) -> Result<Vec<Self>, ConfigError> {
        let mut all = vrfs.to_vec();
        for (at, Self { name, .. }) in vrfs.iter().enumerate() {
            if name == DEFAULT || vrfs[..at].iter().any(|other| other.name == *name) {
                return Err(ConfigError::Invalid(format!("--vrf {name}: there is a VRF of this name")));
            }
        }
        for NamedFile { vrf, file } in files {
            let number = Self::number_of(vrfs, "--vrf-fib", vrf)?;
            all[number - 1].files.push(file.clone());
        }
        Ok(all)
    }

    /// The VRFs, numbered from 1, that feeds give the routes of these tables.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] for a name that no VRF has, a table of two VRFs, and a second table of one.
    pub(crate) fn tables(vrfs: &[Self], named: &[NamedTable]) -> Result<Tables, ConfigError> {
        let mut tables = Tables::default();
        for (at, NamedTable { vrf, table }) in named.iter().enumerate() {
            let number = Self::number_of(vrfs, "--vrf-table", vrf)?;
            let refused = |why: &str| ConfigError::Invalid(format!("--vrf-table {vrf}={table}: {why}"));
            if named[..at].iter().any(|other| other.vrf == *vrf) {
                return Err(refused("the VRF has a table"));
            }
            if let Some(other) = tables.set(*table, number) {
                let name = other.checked_sub(1).map_or(DEFAULT, |other| &vrfs[other].name);
                return Err(refused(&format!("this is the table of the VRF {name}")));
            }
        }
        Ok(tables)
    }

    /// The number of the VRF that `option` names, when `vrfs` are numbered from 1.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] when none has the name.
    pub(crate) fn number_of(vrfs: &[Self], option: &str, name: &str) -> Result<usize, ConfigError> {
        vrfs.iter().position(|vrf| vrf.name == name).map(|at| at + 1).ok_or_else(|| {
            let known: Vec<_> = vrfs.iter().map(|vrf| vrf.name.as_str()).collect();
            let known = known.join(", ");
            ConfigError::Invalid(format!("{option} {name}: no --vrf has this name; there are: {known}"))
        })
    }
}

/// The VRFs of each port, when `vrfs` are numbered from 1.
///
/// # Errors
/// [`ConfigError::NoDevice`] for a port that does not exist, [`ConfigError::Invalid`] for a port or VLAN in two VRFs.
pub(crate) fn vrfs_of_ports(vrfs: &[VrfSpec], ports: &[EgressPort]) -> Result<Vec<PortVrfs>, ConfigError> {
    let mut vrf_of = vec![PortVrfs::default(); ports.len()];
    for (number, vrf) in (1..).zip(vrfs) {
        for port in &vrf.ports {
            let before = match EgressPort::find(port, ports, || format!("--vrf {}", vrf.name)) {
                Ok(index) => std::mem::replace(&mut vrf_of[index.map_or(0, usize::from)].own, number),
                Err(error) => {
                    let (index, id) =
                        vlan(port, ports).ok_or_else(|| ConfigError::NoDevice(error.to_string()))?;
                    vrf_of[index].vlans.insert(id, number).unwrap_or(0)
                }
            };
            if before != 0 {
                let message =
                    format!("port {port} is in the VRFs {} and {}", vrfs[before - 1].name, vrf.name);
                return Err(ConfigError::Invalid(message));
            }
        }
    }
    for PortVrfs { own, vlans } in &mut vrf_of {
        vlans.retain(|_, vrf| vrf != own);
    }
    Ok(vrf_of)
}

/// The index of the port and the id of the VLAN that a port, a dot and an id refer to.
fn vlan(name: &PortRef, ports: &[EgressPort]) -> Option<(usize, u16)> {
    let PortRef::Name(name) = name else { return None };
    let (port, id) = name.rsplit_once('.')?;
    let index = EgressPort::find(&PortRef::parse(port), ports, String::new).ok()??;
    let id = id.parse().ok().filter(|id| VLAN_IDS.contains(id))?;
    Some((index.into(), id))
}

/// A name that no VRF has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no VRF '{name}'; there are: {known}")]
pub(crate) struct NoVrf {
    name: String,
    known: String,
}

/// A VRF in service.
pub(crate) struct Vrf {
    /// Its name.
    pub(crate) name: String,
    /// Its tables.
    pub(crate) session: Session,
}

/// All VRFs, by number.
pub(crate) struct Vrfs {
    /// At least [`DEFAULT`].
    vrfs: Vec<Vrf>,
    /// The VRFs of each port; empty before [`Self::set_ports`].
    vrf_of: Vec<PortVrfs>,
}

impl From<Session> for Vrfs {
    /// VRF [`DEFAULT`] alone.
    fn from(session: Session) -> Self {
        Self { vrfs: vec![Vrf { name: DEFAULT.to_owned(), session }], vrf_of: Vec::new() }
    }
}

impl Vrfs {
    /// The VRF [`DEFAULT`] with the tables of `main`, and `others` with the same engine; all routes are in service.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub(crate) fn open(
        main: &TableSpec,
        others: &[VrfSpec],
        on_progress: &mut dyn FnMut(Progress<'_>),
    ) -> anyhow::Result<Self> {
        main.check()?;
        let mut engines = main.engine.make_for_vrfs(1 + others.len())?.into_iter();
        let mut open = |number, name: &str, files: &[PathBuf]| {
            let engine = engines.next().context("there are as many engines as VRFs")?;
            let spec = TableSpec { files: files.to_vec(), ..main.clone() };
            let session = Session::open_with(&spec, number, engine, on_progress);
            // The messages of a forwarder without VRFs are about nothing else.
            let session = if others.is_empty() { session } else { session.with_context(|| of(name)) }?;
            anyhow::Ok(Vrf { name: name.to_owned(), session })
        };
        let mut vrfs = vec![open(0, DEFAULT, &main.files)?];
        for (number, VrfSpec { name, files, .. }) in (1..).zip(others) {
            vrfs.push(open(number, name, files)?);
        }
        Ok(Self { vrfs, vrf_of: Vec::new() })
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Vrf] {
        &self.vrfs
    }

    /// The tables of [`DEFAULT`].
    pub(crate) fn main(&self) -> &Session {
        self.get(0)
    }

    /// The tables of VRF `number`.
    pub(crate) fn get(&self, number: usize) -> &Session {
        &self.vrfs[number].session
    }

    /// The tables of VRF `number`, to change.
    pub(crate) fn get_mut(&mut self, number: usize) -> &mut Session {
        &mut self.vrfs[number].session
    }

    /// The number of the VRF `name`.
    ///
    /// # Errors
    /// [`NoVrf`], with the names there are.
    pub(crate) fn find(&self, name: &str) -> Result<usize, NoVrf> {
        self.vrfs.iter().position(|vrf| vrf.name == name).ok_or_else(|| {
            let known: Vec<_> = self.vrfs.iter().map(|vrf| vrf.name.as_str()).collect();
            NoVrf { name: name.to_owned(), known: known.join(", ") }
        })
    }

    /// The interface in the VRF of its port.
    pub(crate) fn place(&self, interface: Interface) -> Interface {
        let vrf = self.vrf_of.get(usize::from(interface.id().0)).map_or(0, |vrfs| vrfs.own);
        interface.in_vrf(vrf)
    }

    /// The ports of VRF `number` by name, and the VLANs of other ports as a name, a dot and an id.
    pub(crate) fn ports_of(&self, number: usize) -> Vec<String> {
        let mut names = Vec::new();
        for (port, PortVrfs { own, vlans }) in self.main().egress_ports().iter().zip(&self.vrf_of) {
            names.extend((*own == number).then(|| port.name.clone()));
            let here = vlans.iter().filter(|(_, vrf)| **vrf == number);
            names.extend(here.map(|(id, _)| format!("{}.{id}", port.name)));
        }
        names
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Session> {
        self.vrfs.iter_mut().map(|vrf| &mut vrf.session)
    }

    /// Sets the seed of the hash that chooses the path of a flow, for all of them; call it before [`Self::set_ports`].
    pub(crate) fn set_ecmp_seed(&mut self, seed: u64) {
        self.each().for_each(|session| session.set_ecmp_seed(seed));
    }

    /// The running topology.
    pub(crate) fn running(&self) -> &Handle {
        self.main().running()
    }

    /// Sets the ports, in the order of their indices, and their VRFs ([`vrfs_of_ports`]); call it before
    /// [`Self::start`].
    ///
    /// # Errors
    /// As [`Session::set_ports`].
    pub(crate) fn set_ports(
        &mut self,
        ports: &[EgressPort],
        vrf_of: Vec<PortVrfs>,
    ) -> Result<(), ConfigError> {
        self.vrf_of = vrf_of;
        for number in 0..self.vrfs.len() {
            let all = (0..).zip(&self.vrf_of);
            let foreign = all.filter(|(_, vrfs)| vrfs.own != number).map(|(port, _)| port).collect();
            let session = self.get_mut(number);
            session.set_ports(ports.to_vec())?;
            session.set_foreign_ports(foreign);
        }
        Ok(())
    }

    /// Sets the routes that follow from the addresses of ports, each in the VRF of its interface. Returns what is for the router on each port:
    /// the addresses of its VRF.
    ///
    /// # Errors
    /// As [`Session::set_own_routes`].
    pub(crate) fn set_interfaces(
        &mut self,
        interfaces: &[Interface],
    ) -> Result<Vec<Option<Arc<Ours>>>, NextHopError> {
        let ports = self.vrf_of.len();
        let mut all = vec![None; ports];
        for number in 0..self.vrfs.len() {
            let here = interfaces.iter().filter(|interface| interface.vrf() == number);
            let here: Vec<_> = here.cloned().collect();
            self.get_mut(number).set_own_routes(routes(&here))?;
            all = all.into_iter().zip(ours(&here, ports)).map(|(before, here)| here.or(before)).collect();
        }
        Ok(all)
    }

    /// For the router: the egress table of each port's VRF, then those of VRFs without ports, each replaced as a whole (empty before
    /// [`Self::set_ports`]); and where it shows what it drops.
    pub(crate) fn seen_by_router(&self) -> (Vec<Arc<ArcSwap<EgressTable>>>, Arc<Watch>) {
        let of_ports = self.vrf_of.iter().map(|vrfs| vrfs.own);
        let has_port = |number: &usize| self.vrf_of.iter().any(|vrfs| vrfs.own == *number);
        let others = (0..self.vrfs.len()).filter(|number| !has_port(number));
        let tables = of_ports.chain(others).filter_map(|number| self.get(number).egress_table());
        (tables.collect(), Arc::clone(self.running().watch()))
    }

    /// Takes routes, links and neighbours from these feeds, which are those of each VRF by number.
    pub(crate) fn set_feeds(&mut self, feeds: Vec<Learned>) {
        for (number, (Vrf { name, session }, feeds)) in self.vrfs.iter_mut().zip(feeds).enumerate() {
            session.set_feeds(if number == 0 { feeds } else { feeds.of_vrf(name) });
        }
    }

    /// As [`Session::set_link`], for all: a next hop may be behind any port.
    pub(crate) fn set_link(&mut self, index: usize, is_up: bool) {
        self.each().for_each(|session| session.set_link(index, is_up));
    }

    /// As [`Session::set_resolved`], for all: a neighbour is known by its address and its port, which belong to one VRF.
    pub(crate) fn set_resolved(&mut self, resolved: Resolved) {
        self.each().for_each(|session| session.set_resolved(resolved));
    }

    /// As [`Session::commit`], for all.
    ///
    /// # Errors
    /// The first one's; the others are in service all the same.
    pub(crate) fn commit(&mut self) -> anyhow::Result<()> {
        self.commit_those(|_| true)
    }

    /// Brings the updates of all VRFs into service.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub(crate) fn commit_updates(&mut self) -> anyhow::Result<()> {
        self.commit_those(Session::has_updates)
    }

    /// As [`Session::replace_routes`], for each of them by number. One that refuses its tables is named in the error.
    pub(crate) fn replace_routes(&mut self, tables: &[(Rib, NextHopTable)]) -> Vec<anyhow::Result<u64>> {
        let of_each = self.vrfs.iter_mut().zip(tables);
        let replaced = of_each.map(|(Vrf { name, session }, (rib, hops))| {
            session.replace_routes(rib, hops).with_context(|| of(name))
        });
        replaced.collect()
    }

    fn commit_those(&mut self, which: impl Fn(&Session) -> bool) -> anyhow::Result<()> {
        let is_alone = self.vrfs.len() == 1;
        let mut first = Ok(());
        for Vrf { name, session } in self.vrfs.iter_mut().filter(|vrf| which(&vrf.session)) {
            let result = session.commit().map(drop);
            first = first.and(if is_alone { result } else { result.with_context(|| of(name)) });
        }
        first
    }

    /// As [`Session::free_retired`], for all.
    pub(crate) fn free_retired(&mut self) {
        self.each().for_each(Session::free_retired);
    }

    /// As [`Session::learn`], for all.
    pub(crate) fn learn(&mut self) -> bool {
        let mut worked = false;
        for session in self.each() {
            worked |= session.learn();
        }
        worked
    }

    /// Begins to build the engine of `spec` for every VRF; [`Self::finish_engine`] moves each to its own. Updates that wait are committed
    /// before.
    ///
    /// # Errors
    /// As [`Session::build_engine`]; none is built then.
    pub(crate) fn build_engines(&mut self, spec: &EngineSpec) -> anyhow::Result<()> {
        self.vrfs.iter().try_for_each(|vrf| vrf.session.check_not_building())?;
        self.commit()?;
        if !spec.is_shared_by(self.vrfs.len())? {
            return self.each().try_for_each(|session| session.build_engine(spec.clone()));
        }
        let engines = spec.make_for_vrfs(self.vrfs.len())?;
        self.build_each(spec, engines)
    }

    /// Begins to build the tables of `engines`, which are the parts of one engine for each VRF.
    fn build_each(&mut self, spec: &EngineSpec, engines: Vec<Made>) -> anyhow::Result<()> {
        let mut both = self.each().zip(engines);
        both.try_for_each(|(session, made)| {
            session.build_beside(spec.clone(), made.is_shared, move || Ok(made))
        })
    }

    /// As [`Session::finish_engine`], of VRF `number`. Parts of one engine are all built before the first is taken: whoever writes to one
    /// waits while another one is built.
    pub(crate) fn finish_engine(&mut self, number: usize) -> Option<anyhow::Result<()>> {
        if self.vrfs.iter().any(|vrf| vrf.session.is_building_part()) {
            return None;
        }
        let is_alone = self.vrfs.len() == 1;
        let Vrf { name, session } = &mut self.vrfs[number];
        let finished = session.finish_engine()?;
        Some(if is_alone { finished } else { finished.with_context(|| of(name)) })
    }

    /// Builds the stages of a plan over the tables and launches them. The caller runs those of the main lcore.
    ///
    /// # Errors
    /// When the ports have not been set, a queue does not exist, an engine has no memory for readers, or an lcore is busy.
    pub(crate) fn start(&mut self, site: &Site<'_>) -> anyhow::Result<Running> {
        let parts = Parts {
            eal: site.eal,
            ports: site.ports,
            vrfs: self.vrfs.iter().map(|vrf| vrf.session.parts()).collect::<Result<_, _>>()?,
            vrf_of: &self.vrf_of,
            settings: site.settings,
            fault: Arc::clone(self.running().fault()),
            watch: Arc::clone(self.running().watch()),
            punts: site.punts,
        };
        let running = Running::launch(site.eal, parts.build(site.plan)?, site.idle)?;
        self.each().for_each(|session| session.set_running(running.handle().clone()));
        Ok(running)
    }

    /// Updates in service, of all VRFs.
    pub(crate) fn updates(&self) -> u64 {
        self.vrfs.iter().map(|vrf| vrf.session.tally().updates).sum()
    }
}

/// Which VRF an error is about.
fn of(name: &str) -> String {
    format!("VRF {name}")
}

#[cfg(test)]
mod tests;
