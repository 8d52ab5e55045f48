//! A forwarder: its ports, VRFs and feeds, and the running topology.
//!
//! A port belongs to one VRF, which selects the table for its packets; its VLANs may belong to other VRFs. A next hop may use any port, of
//! any VRF. Ports that no configured VRF names belong to VRF 0, [`DEFAULT`]. Engines that hold several FIBs give each VRF one of them. Only
//! the control thread changes a forwarder; lcores never wait for it.

pub(crate) mod audit;
pub(crate) mod in_effect;
mod port_changes;
pub(crate) mod rates;
pub(crate) mod reload;
pub(crate) mod service;
pub(crate) mod signals;
pub(crate) mod spec;
#[cfg(test)]
pub(crate) mod test_forwarder;
pub(crate) mod thread;
pub(crate) mod updates;

pub(crate) use signals::Signals;
pub(crate) use spec::ForwardSpec;

use crate::datapath::EgressError;
use crate::datapath::egress::learned::{LearnedKey, Learner};
use crate::datapath::punt::PuntAddresses;
use crate::engines::{EngineSpec, Made};
use crate::error::ConfigError;
use crate::neighbours::entries::{Key, Resolved};
use crate::neighbours::thread::RouterShared;
use crate::ports::PortTable;
use crate::ports::own;
use crate::ports::table::SharedPorts;
use crate::routes::Vrf;
use crate::routes::candidates::SourceId;
use crate::routes::engine_swap::LostFamilies;
use crate::routes::feeds::running::{FeedSource, FeedStatus, Feeds};
use crate::routes::spec::{DEFAULT, LoadProgress, TableSpec, VrfSpec};
use crate::topology::Handle;
use crate::topology::Settings;
use crate::topology::lcores::Parts;
use crate::topology::plan::LcorePlan;
use crate::topology::punts::PuntRings;
use crate::topology::running::{Idle, Running};
use anyhow::Context as _;
use arc_swap::ArcSwap;
use audit::AuditCounts;
use dpdk_ffi::{Eal, Port};
use fib::NextHopError;
use in_effect::ConfigValue;
use lpm_core::retire::Retired;
use rates::SharedRates;
use rustc_hash::FxHashSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) struct Site<'a> {
    pub(crate) eal: &'a Eal,
    /// By index; started.
    pub(crate) ports: &'a [Port],
    pub(crate) plan: &'a LcorePlan,
    pub(crate) settings: Settings,
    pub(crate) idle: Idle,
    /// Packets to the router; `None` when no port has an address.
    pub(crate) punts: Option<&'a PuntRings>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no {what} '{name}'; there are: {known}")]
pub(crate) struct NoSuchName {
    what: &'static str,
    name: String,
    known: String,
}

const FIXED_SOURCES: [(&str, SourceId); 3] =
    [("addresses", SourceId::OWN), ("ctl", SourceId::CTL), ("files", SourceId::FILES)];

pub(crate) struct Forwarder {
    /// By number; at least [`DEFAULT`].
    vrfs: Vec<Vrf>,
    /// Read by all VRFs and the router; empty before [`Self::set_ports`].
    ports: SharedPorts,
    /// The addresses that lcores punt to the router, by port; `None` where a port is no interface.
    punt_addresses: Vec<Option<Arc<ArcSwap<PuntAddresses>>>>,
    /// Replaced versions of `punt_addresses` that an lcore may still read.
    retired: Retired<PuntAddresses>,
    feeds: Option<Feeds>,
    /// A handle without stages until the topology starts.
    running: Handle,
    rates: SharedRates,
    /// Without samples that were lost.
    audited: AuditCounts,
    pub(crate) config: Vec<ConfigValue>,
}

impl Forwarder {
    /// Opens the VRF [`DEFAULT`] with the tables of `main`, and `others` with the same engine. All routes are in service on return.
    ///
    /// # Errors
    /// [`EngineError`](fib::EngineError) for an engine that cannot be made or a table it cannot hold, `FeedError` for a file.
    pub(crate) fn open(
        main: &TableSpec,
        others: &[VrfSpec],
        on_progress: &mut dyn FnMut(LoadProgress<'_>),
    ) -> anyhow::Result<Self> {
        main.check()?;
        let ports = SharedPorts::default();
        let mut engines = main.engine.make_for_vrfs(1 + others.len())?.into_iter();
        let mut open = |number, name: &str, files: &[PathBuf]| {
            let engine = engines.next().context("there are as many engines as VRFs")?;
            let spec = TableSpec { files: files.to_vec(), ..main.clone() };
            let vrf = Vrf::open(spec, (number, name), engine, Arc::clone(&ports), on_progress);
            // Without configured VRFs the user need not see the name `default`.
            if others.is_empty() { vrf } else { vrf.with_context(|| vrf_label(name)) }
        };
        let mut vrfs = vec![open(0, DEFAULT, &main.files)?];
        for (number, VrfSpec { name, files, .. }) in (1..).zip(others) {
            vrfs.push(open(number, name, files)?);
        }
        Ok(Self {
            vrfs,
            ports,
            punt_addresses: Vec::new(),
            retired: Retired::default(),
            feeds: None,
            running: Handle::default(),
            rates: SharedRates::default(),
            audited: AuditCounts::default(),
            config: Vec::new(),
        })
    }

    pub(crate) fn vrfs(&self) -> &[Vrf] {
        &self.vrfs
    }

    pub(crate) fn main(&self) -> &Vrf {
        self.vrf(0)
    }

    pub(crate) fn vrf(&self, number: usize) -> &Vrf {
        &self.vrfs[number]
    }

    pub(crate) fn vrf_mut(&mut self, number: usize) -> &mut Vrf {
        &mut self.vrfs[number]
    }

    /// # Errors
    /// [`NoSuchName`], with the known names.
    pub(crate) fn find(&self, name: &str) -> Result<usize, NoSuchName> {
        self.vrfs.iter().position(|vrf| vrf.name == name).ok_or_else(|| {
            let known: Vec<_> = self.vrfs.iter().map(|vrf| vrf.name.as_str()).collect();
            NoSuchName { what: "VRF", name: name.to_owned(), known: known.join(", ") }
        })
    }

    pub(crate) fn ports(&self) -> Arc<PortTable> {
        self.ports.load_full()
    }

    pub(crate) const fn running(&self) -> &Handle {
        &self.running
    }

    /// The newest rates, for any thread; empty until a sampler runs.
    pub(crate) const fn rates(&self) -> &SharedRates {
        &self.rates
    }

    /// Sets the ports, makes the egress tables, and sets the routes that follow from addresses, for the next [`Self::commit`].
    ///
    /// # Errors
    /// [`ConfigError::NoDevice`] for a next hop or neighbour at a missing port; the errors of [`Vrf::set_own_routes`].
    pub(crate) fn set_ports(&mut self, ports: PortTable) -> anyhow::Result<()> {
        let swap = |port| Some(Arc::new(ArcSwap::from_pointee(own::punt_addresses(&ports, port)?)));
        self.punt_addresses = ports.ports.iter().map(swap).collect();
        self.ports.store(Arc::new(ports));
        let made = self.vrfs.iter_mut().try_for_each(Vrf::set_ports);
        made.map_err(|error: EgressError| ConfigError::NoDevice(error.to_string()))?;
        Ok(self.set_own_routes()?)
    }

    pub(crate) fn punt_addresses(&self) -> &[Option<Arc<ArcSwap<PuntAddresses>>>] {
        &self.punt_addresses
    }

    fn set_own_routes(&mut self) -> Result<(), NextHopError> {
        let ports = self.ports();
        let mut vrfs = self.vrfs.iter_mut().enumerate();
        vrfs.try_for_each(|(number, vrf)| vrf.set_own_routes(own::routes(&ports, number)))
    }

    /// Records a port's link state. Its next hops leave or re-enter service with the next [`Self::commit`].
    pub(crate) fn set_link(&self, index: usize, is_up: bool) {
        PortTable::change(&self.ports, |table| {
            if let Some(port) = table.ports.get_mut(index) {
                port.is_up = is_up;
            }
        });
    }

    /// For the router's thread; without egress tables before [`Self::set_ports`].
    pub(crate) fn shared_with_router<'a>(&self, punts: &'a PuntRings) -> RouterShared<'a> {
        RouterShared {
            punts,
            ports: Arc::clone(&self.ports),
            egress: self.vrfs.iter().filter_map(|vrf| vrf.egress.table()).collect(),
            watch: Arc::clone(self.running().watch()),
        }
    }

    /// # Errors
    /// [`NextHopError`] when no id is free.
    pub(crate) fn set_feeds(&mut self, feeds: Feeds) -> Result<(), NextHopError> {
        for vrf in &mut self.vrfs {
            feeds.apply_rules(vrf)?;
        }
        self.feeds = Some(feeds);
        Ok(())
    }

    /// Does a bounded amount of work for one commit of each VRF. Returns whether there was work.
    pub(crate) fn learn(&mut self) -> bool {
        let mut has_worked = self.feeds.as_mut().is_some_and(|feeds| feeds.give(&mut self.vrfs, &self.ports));
        let interfaces = self.feeds.as_ref().map(Feeds::interfaces);
        let is_alone = self.vrfs.len() == 1;
        for vrf in &mut self.vrfs {
            has_worked |= vrf.drain(interfaces);
            for foreign in vrf.take_foreign() {
                let name = Some(vrf.name.as_str()).filter(|_| !is_alone);
                self.feeds.iter().for_each(|feeds| feeds.notice_foreign(name, &foreign));
            }
        }
        self.follow_addresses();
        has_worked
    }

    /// Whether the TAP of a port has `address`; otherwise it is an address of an interface of the host.
    pub(crate) fn tap_has(&self, port: u16, address: IpAddr) -> bool {
        self.feeds.as_ref().is_some_and(|feeds| feeds.interfaces().tap_has(port, address))
    }

    pub(crate) fn feed_states(&self, number: usize) -> Vec<FeedStatus> {
        let status = |feeds: &Feeds| feeds.status(|source| self.vrf(number).candidates.count(source));
        self.feeds.as_ref().map(status).unwrap_or_default()
    }

    /// The names of the sources of routes, in order of preference.
    pub(crate) fn source_order(&self) -> Vec<&'static str> {
        let order = self.feeds.as_ref().map_or(&[SourceId::FILES][..], Feeds::order);
        [&[SourceId::CTL], order].concat().into_iter().filter_map(|source| self.source_name(source)).collect()
    }

    /// Sets the order of sources; routes follow with [`Self::learn`]. Returns how many prefixes have several, or 0 for the same order.
    pub(crate) fn set_source_order(&mut self, wanted: &[FeedSource]) -> usize {
        let Some(feeds) = &mut self.feeds else { return 0 };
        let order = feeds.order_like(wanted);
        if order == feeds.order() {
            return 0;
        }
        feeds.set_order(order.clone());
        self.vrfs.iter_mut().map(|vrf| vrf.candidates.set_order(&order)).sum()
    }

    pub(crate) fn source_name(&self, source: SourceId) -> Option<&'static str> {
        self.sources().find(|(_, of)| *of == source).map(|(name, _)| name)
    }

    fn sources(&self) -> impl Iterator<Item = (&'static str, SourceId)> {
        FIXED_SOURCES.into_iter().chain(self.feeds.iter().flat_map(Feeds::sources))
    }

    /// # Errors
    /// [`NoSuchName`], with the known names.
    pub(crate) fn source_named(&self, name: &str) -> Result<SourceId, NoSuchName> {
        self.sources().find(|(of, _)| *of == name).map(|(_, source)| source).ok_or_else(|| {
            let known = [&["addresses"], &*self.source_order()].concat().join(", ");
            NoSuchName { what: "source", name: name.to_owned(), known }
        })
    }

    /// Records MACs that the router resolved; they enter service with the next [`Self::commit`].
    pub(crate) fn set_resolved(&mut self, resolved: impl IntoIterator<Item = Resolved>) {
        let (mut addresses, mut ports) = (FxHashSet::default(), FxHashSet::default());
        PortTable::change(&self.ports, |table| {
            let learned = Arc::make_mut(&mut table.learned);
            for Resolved { key: Key { interface, address, vlans }, mac } in resolved {
                let by = Learner::Router(vlans);
                learned.set(LearnedKey { address, port: interface.0, by }, mac);
                addresses.insert(address);
                ports.insert(interface.0);
            }
        });
        self.vrfs.iter_mut().for_each(|vrf| vrf.egress.neighbours_were_learned(&addresses, &ports));
    }

    /// Calls [`Vrf::commit`] for all VRFs.
    ///
    /// # Errors
    /// The first error; the other VRFs are committed nevertheless.
    pub(crate) fn commit(&mut self) -> anyhow::Result<()> {
        self.commit_those(|_| true)
    }

    /// # Errors
    /// See [`Self::commit`].
    pub(crate) fn commit_updates(&mut self) -> anyhow::Result<()> {
        self.commit_those(|vrf| vrf.updates > 0)
    }

    fn commit_those(&mut self, which: impl Fn(&Vrf) -> bool) -> anyhow::Result<()> {
        let is_alone = self.vrfs.len() == 1;
        let mut first = Ok(());
        for vrf in self.vrfs.iter_mut().filter(|vrf| which(vrf)) {
            let result = vrf.commit().map(drop);
            first = first.and(if is_alone { result } else { result.with_context(|| vrf_label(&vrf.name)) });
        }
        first
    }

    /// Frees replaced tables that no lcore reads any more; to be called periodically.
    pub(crate) fn free_retired(&mut self) {
        self.vrfs.iter_mut().for_each(Vrf::free_retired);
        self.retired.free();
    }

    /// Commits pending updates, then begins to build the engine of `spec` for every VRF. [`Self::finish_engine`] switches each VRF to it.
    ///
    /// # Errors
    /// The errors of [`Vrf::build_engine`]; no engine is built then.
    pub(crate) fn build_engines(&mut self, spec: &EngineSpec, lost: LostFamilies) -> anyhow::Result<()> {
        self.vrfs.iter().try_for_each(|vrf| vrf.engine.check_not_building())?;
        self.commit()?;
        if !spec.is_shared_by(self.vrfs.len())? {
            return self.vrfs.iter_mut().try_for_each(|vrf| vrf.build_engine(spec.clone(), lost, None));
        }
        let engines = spec.make_for_vrfs(self.vrfs.len())?;
        self.build_each(spec, engines, lost)
    }

    /// Begins to build the tables of `engines`: the parts of one shared engine, one for each VRF.
    fn build_each(
        &mut self,
        spec: &EngineSpec,
        engines: Vec<Made>,
        lost: LostFamilies,
    ) -> anyhow::Result<()> {
        let mut both = self.vrfs.iter_mut().zip(engines);
        both.try_for_each(|(vrf, made)| vrf.build_engine(spec.clone(), lost, Some(made)))
    }

    /// Calls [`Vrf::finish_engine`] once all parts of a shared engine are built: a writer to one part would wait for the other builds.
    pub(crate) fn finish_engine(&mut self, number: usize) -> Option<anyhow::Result<()>> {
        if self.vrfs.iter().any(|vrf| vrf.engine.is_building_part()) {
            return None;
        }
        let is_alone = self.vrfs.len() == 1;
        let vrf = &mut self.vrfs[number];
        let finished = vrf.finish_engine(&self.running)?;
        Some(if is_alone { finished } else { finished.with_context(|| vrf_label(&vrf.name)) })
    }

    /// Builds the stages of a plan and launches them. The caller runs the stages of the main lcore.
    ///
    /// # Errors
    /// When the ports have not been set, a queue does not exist, an engine has no memory for readers, or an lcore is busy.
    pub(crate) fn start(&mut self, site: &Site<'_>) -> anyhow::Result<Running> {
        let ports = self.ports();
        let parts = Parts {
            eal: site.eal,
            ports: site.ports,
            vrfs: self.vrfs.iter().map(Vrf::parts).collect::<Result<_, _>>()?,
            vrf_of: &ports.vrfs(),
            settings: site.settings,
            fault: Arc::clone(self.running().fault()),
            watch: Arc::clone(self.running().watch()),
            punts: site.punts,
        };
        let running = Running::launch(site.eal, parts.build(site.plan)?, site.idle)?;
        self.running = running.handle().clone();
        Ok(running)
    }

    pub(crate) fn updates(&self) -> u64 {
        self.vrfs.iter().map(|vrf| vrf.tally.updates).sum()
    }
}

fn vrf_label(name: &str) -> String {
    format!("VRF {name}")
}

#[cfg(test)]
mod tests;
