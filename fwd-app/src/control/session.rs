//! The session: RIB and next hops, the engine behind them, the egress table, and the topology that forwards with both.
//!
//! A session starts with the tables of its files in service ([`Session::open`]), all or nothing. After that, changes come in two
//! steps: [`Session::update`] changes the RIB and the next hops alone, [`Session::commit`] brings all that has changed into service.
//! The topology starts once the ports are known ([`Session::set_ports`], [`Session::start`]); commits go on while it runs.
//!
//! The engine is made before the first file is opened, so that a wrong name costs no wait.

use super::ports::PortCounts;
use super::spec::TableSpec;
use crate::datapath::{EgressError, EgressPort, EgressTable};
use crate::engines::{EngineSpec, Made};
use crate::error::ConfigError;
use crate::topology::Settings;
use crate::topology::lcores::Parts;
use crate::topology::plan::Plan;
use crate::topology::running::{Finished, Handle, Idle, Running};
use anyhow::Context as _;
use arc_swap::ArcSwap;
use dpdk_ffi::{Eal, Port};
use fib::feed::{self, LoadOptions, Loaded, Update};
use fib::{EngineError, EngineWriter, Generation, NextHop, NextHopError, NextHopTable, Rib};
use lpm_core::failover::Service;
use lpm_core::memory;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// How far the reading of route files is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Progress<'a> {
    /// Bytes read so far and their total; total 0 means that it is not known.
    Reading { bytes: u64, bytes_total: u64 },
    /// The reading has ended, with these files; none after an error.
    Read(&'a [Loaded]),
}

/// Reads route files into a RIB of their own, telling how far it is.
///
/// # Errors
/// `FeedError`, with file and line.
pub(crate) fn load_rib(
    paths: &[PathBuf],
    on_progress: &mut dyn FnMut(Progress<'_>),
) -> anyhow::Result<(Rib, NextHopTable, Vec<Loaded>)> {
    let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
    let mut reading = |bytes, bytes_total| on_progress(Progress::Reading { bytes, bytes_total });
    let options = LoadOptions { format: None, on_progress: Some(&mut reading) };
    let files = feed::load(paths, &mut rib, &mut hops, options);
    on_progress(Progress::Read(files.as_deref().unwrap_or_default()));
    Ok((rib, hops, files?))
}

/// Where a session's topology runs.
pub(crate) struct Site<'a> {
    /// DPDK.
    pub(crate) eal: &'a Eal,
    /// The ports, started, by index.
    pub(crate) ports: &'a [Port],
    /// What runs on which lcore.
    pub(crate) plan: &'a Plan,
    /// Sizes of bursts and batches.
    pub(crate) settings: Settings,
    /// What an lcore does that has nothing to do.
    pub(crate) idle: Idle,
}

/// What a topology leaves behind that has ended.
pub(crate) struct Ended {
    /// What each stage counted, and the first panic.
    pub(crate) finished: Finished,
    /// How long packets flowed, seconds.
    pub(crate) duration_s: f64,
    /// What the drivers counted.
    pub(crate) ports: Vec<PortCounts>,
}

/// What a session has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Time to read the route files, seconds.
    pub(crate) load_s: f64,
    /// Time to build the engine's table, seconds.
    pub(crate) build_s: f64,
    /// Updates in service that came after the tables.
    pub(crate) updates: u64,
    /// Deltas that brought them to the engine.
    pub(crate) deltas: u64,
}

/// What next hops mean on the ports there are.
struct Egress {
    ports: Vec<EgressPort>,
    /// Where lcores look; a new table takes the place of the old one.
    table: Arc<ArcSwap<EgressTable>>,
}

/// See the module.
pub(crate) struct Session {
    spec: EngineSpec,
    rib: Rib,
    hops: NextHopTable,
    engine: Box<dyn EngineWriter>,
    /// With a fallback, which of the two engines answers.
    failover: Option<Arc<Service>>,
    /// From [`Self::set_ports`] on.
    egress: Option<Egress>,
    /// The running topology; before [`Self::start`], one without stages.
    running: Handle,
    /// Updates since the last commit.
    updates_pending: u64,
    tally: Tally,
}

impl Session {
    /// A session of the engine and the routes of `spec`, with all of them in service.
    ///
    /// # Errors
    /// [`EngineError`] for an engine that cannot be made or a table it cannot hold, `FeedError` for a file.
    pub(crate) fn open(spec: &TableSpec, on_progress: &mut dyn FnMut(Progress<'_>)) -> anyhow::Result<Self> {
        if let Some(node) = spec.engine.options.numa_node {
            memory::check_node(node).map_err(|why| ConfigError::Invalid(format!("--table-node {why}")))?;
        }
        let Made { engine, service } = spec.engine.make_with_fallback()?;
        let start = Instant::now();
        let (mut rib, hops, _) = load_rib(&spec.files, on_progress)?;
        rib.leave_out(engine.wants_fewer_routes());
        let load_s = start.elapsed().as_secs_f64();
        let routes = rib.len() as u64;
        if let Some(limit) = spec.routes_max.filter(|limit| routes > *limit) {
            return Err(EngineError::Full { what: "routes (--routes-max)", used: routes, limit }.into());
        }
        let mut session = Self {
            spec: spec.engine.clone(),
            rib,
            hops,
            engine,
            failover: service,
            egress: None,
            running: Handle::default(),
            updates_pending: 0,
            tally: Tally { load_s, ..Tally::default() },
        };
        let start = Instant::now();
        session.rib.commit_to(session.engine.as_mut()).with_context(|| {
            format!("engine {} cannot hold this table of {routes} routes", session.engine.name())
        })?;
        session.tally.build_s = start.elapsed().as_secs_f64();
        Ok(session)
    }

    /// Takes an update into the RIB and the next hops; it is in service after the next [`Self::commit`].
    ///
    /// # Errors
    /// [`NextHopError`] for an id that means something else already.
    pub(crate) fn update(&mut self, update: &Update) -> Result<(), NextHopError> {
        update.apply(&mut self.rib, &mut self.hops)?;
        self.updates_pending += 1;
        Ok(())
    }

    /// Brings what has changed into service: first what new next hops mean, then the routes to them, so that no lcore finds an id
    /// that it does not know. Answers the generation that has all of it.
    ///
    /// # Errors
    /// [`EgressError`] for a next hop that names a port which does not exist, and the engine's errors. What was in service before
    /// stays so.
    pub(crate) fn commit(&mut self) -> anyhow::Result<Generation> {
        if let Some(Egress { ports, table }) = &self.egress {
            // The egress table computes bare ids by itself: they need no new one.
            let named = self.hops.iter().filter(|(_, hop)| **hop != NextHop::Bare).count();
            if named != table.load().named() {
                table.store(Arc::new(EgressTable::new(&self.hops, ports)?));
            }
        }
        let updates = std::mem::take(&mut self.updates_pending);
        let Self { rib, engine, tally, .. } = self;
        rib.commit(|delta, rib| {
            if !delta.is_empty() {
                engine.apply(delta, rib)?;
                tally.deltas += 1;
            }
            Ok::<_, EngineError>(())
        })?;
        tally.updates += updates;
        Ok(engine.generation())
    }

    /// Says which ports next hops may name, in the order of their indices; comes before [`Self::start`].
    ///
    /// # Errors
    /// [`ConfigError::NoDevice`] when a next hop or a neighbour names a port that is not there.
    pub(crate) fn set_ports(&mut self, ports: Vec<EgressPort>) -> Result<(), ConfigError> {
        let table = EgressTable::new(&self.hops, &ports);
        let table = table.map_err(|error: EgressError| ConfigError::NoDevice(error.to_string()))?;
        self.egress = Some(Egress { ports, table: Arc::new(ArcSwap::from_pointee(table)) });
        Ok(())
    }

    /// Builds the stages of a plan over the tables and starts them. The caller runs those of the main lcore.
    ///
    /// # Errors
    /// When the ports have not been set, a queue is not there, the engine has no memory for readers, or an lcore is not free.
    pub(crate) fn start(&mut self, site: &Site<'_>) -> anyhow::Result<Running> {
        let egress = self.egress.as_ref().context("a topology needs ports before it starts")?;
        let parts = Parts {
            eal: site.eal,
            ports: site.ports,
            engine: self.engine.as_ref(),
            egress: Arc::clone(&egress.table),
            settings: site.settings,
            // A fallback answers always, so there is no end to the wait then.
            stall_us: if self.failover.is_some() { u64::MAX } else { self.spec.stall_us },
            fault: Arc::clone(self.running.fault()),
        };
        let running = Running::launch(site.eal, parts.build(site.plan)?, site.idle)?;
        self.running = running.handle().clone();
        Ok(running)
    }

    /// The keys of a batch that the engine found to keep to a latency target, in both families; `None` where it did not measure.
    pub(crate) fn batch_measured(&self) -> Option<u32> {
        let details = self.engine.stats().details;
        let batch = |wanted| details.iter().find(|(name, _)| *name == wanted).map(|(_, keys)| *keys);
        let keys = f64::min(batch("batch")?, batch("batch_v6")?);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count; saturates")]
        self.spec.latency_target_us.map(|_| keys as u32)
    }

    /// What the engine was made of.
    pub(crate) fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    /// The routes as told.
    pub(crate) fn rib(&self) -> &Rib {
        &self.rib
    }

    /// What the next hops mean.
    pub(crate) fn hops(&self) -> &NextHopTable {
        &self.hops
    }

    /// The engine; with a fallback, both in one.
    pub(crate) fn engine(&self) -> &dyn EngineWriter {
        self.engine.as_ref()
    }

    /// With a fallback, which of the two engines answers.
    pub(crate) fn failover(&self) -> Option<&Service> {
        self.failover.as_deref()
    }

    /// The running topology.
    pub(crate) fn running(&self) -> &Handle {
        &self.running
    }

    /// What it has done so far.
    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Puts another engine in the place of the session's, with the same routes.
    #[cfg(test)]
    pub(crate) fn replace_engine(&mut self, mut engine: Box<dyn EngineWriter>) {
        self.rib.load(engine.as_mut()).unwrap();
        self.engine = engine;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::test_session::session;
    use crate::datapath::Code;
    use fib::MacAddr;
    use fib::feed::{Action, Hop};
    use fib::{Keys, NextHopId, PortRef};

    /// An address, and the route to it that the tests announce.
    const ADDRESS: u32 = 0xc612_0001;
    const PREFIX: &str = "198.18.0.0/24";

    fn with_ports() -> Session {
        let mut session = session();
        let port = |name: &str| EgressPort {
            name: name.to_owned(),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu_bytes: 1500,
            destination: None,
        };
        session.set_ports(vec![port("p0"), port("p1")]).unwrap();
        session
    }

    fn announce(hop: NextHop) -> Update {
        let action = Action::Announce(Hop::Hop(hop));
        Update { time_s: 0.0, prefix: PREFIX.parse().unwrap(), action, peer: None }
    }

    fn lookup(session: &Session) -> NextHopId {
        let mut answer = [NextHopId::NONE];
        session.engine().reader(1, 1).unwrap().lookup(Keys::V4(&[ADDRESS]), &mut answer).unwrap();
        answer[0]
    }

    #[test]
    fn updates_are_in_service_after_the_commit_and_next_hops_are_known_by_then() {
        let mut session = with_ports();
        let (loaded, before) = (session.engine().generation(), lookup(&session));
        assert_eq!(session.commit().unwrap(), loaded, "nothing has changed");
        session.update(&announce(NextHop::Blackhole)).unwrap();
        assert_eq!((lookup(&session), session.tally().updates), (before, 0));
        assert_eq!(session.commit().unwrap(), loaded.next());
        let id = lookup(&session);
        let egress = session.egress.as_ref().unwrap().table.load();
        let found = egress.dense(id).unwrap();
        assert_eq!(Code::reason(found.port), Some(crate::datapath::DropReason::Blackhole));
        session.update(&Update { action: Action::Withdraw, ..announce(NextHop::Blackhole) }).unwrap();
        assert_eq!(session.commit().unwrap(), loaded.next().next());
        assert_eq!((lookup(&session), session.tally().updates, session.tally().deltas), (before, 2, 2));
    }

    #[test]
    fn a_next_hop_on_a_port_that_is_not_there_is_refused_with_nothing_changed() {
        let mut session = with_ports();
        let (loaded, before) = (session.engine().generation(), lookup(&session));
        let gateway = "192.0.2.1".parse().unwrap();
        let port = PortRef::Name("p9".into());
        session.update(&announce(NextHop::Gateway { gateway, port })).unwrap();
        let error = session.commit().unwrap_err().to_string();
        assert!(error.contains("p9") && error.contains("0 (p0), 1 (p1)"), "{error}");
        assert_eq!((session.engine().generation(), lookup(&session)), (loaded, before));
        assert_eq!((session.tally().updates, session.tally().deltas), (0, 0));
    }
}
