//! Builds each contender from the same delta and measures the time. A table is of one engine, instruction set and family alone.

use crate::args::{DeviceArgs, EngineArgs};
use crate::device::{Ask, DeviceTable};
use crate::fault::Fault;
#[cfg(feature = "dpdk")]
use crate::peers::Peers;
use crate::table::{EngineTable, Looker, Measurable};
use crate::tables::RouteSet;
use crate::threads::{CALLS_A_PART, Deal, Threads};
use crate::wanted::{Contender, ENGINES, WantedContender};
use fib::oracle::OracleEngine;
use fib::{Details, EngineOptions, Family, Isa};
use lpm_bench::progress::wheel;
use lpm_core::memory::{self, Mapped};
use lpm_phi::coop::CoopEngine;
use serde::Serialize;
use std::time::Instant;

/// Most keys of a batch of `coop` without a GPU: fewer show the handover, answers to more exceed a quarter of a core's L2 cache.
const COOP_BATCH: usize = 128 << 10;

pub(crate) struct BuiltContender {
    pub(crate) engine: String,
    pub(crate) contender: Contender,
    pub(crate) isa: Isa,
    pub(crate) family: Family,
    pub(crate) table_bytes: u64,
    pub(crate) build_s: f64,
    pub(crate) details: Details,
    pub(crate) looker: Box<dyn Looker>,
    pub(crate) more: Vec<Box<dyn Looker>>,
    /// Pages of the table: `2M`, `thp`, `4K`, or empty if unknown.
    pub(crate) pages: &'static str,
    pub(crate) table: Box<dyn Measurable>,
}

impl BuiltContender {
    pub(crate) fn lookers(&mut self) -> impl Iterator<Item = &mut Box<dyn Looker>> {
        std::iter::once(&mut self.looker).chain(self.more.iter_mut())
    }

    pub(crate) fn looker_at(&self, at: usize) -> &dyn Looker {
        at.checked_sub(1).and_then(|at| self.more.get(at)).map_or(&*self.looker, |looker| &**looker)
    }

    /// Measures each number of `counts` of threads on `cpus`, in turn. Devices and coop keep their number of threads.
    pub(crate) fn use_threads(&mut self, counts: &[usize], cpus: &[usize]) -> Result<(), Fault> {
        if counts.is_empty() || self.contender.works_elsewhere() {
            return Ok(());
        }
        for (at, count) in counts.iter().enumerate() {
            let threads =
                Box::new(Threads::new(*count, cpus, Deal::Calls(CALLS_A_PART), || self.table.looker())?);
            if at == 0 {
                self.looker = threads;
            } else {
                self.more.push(threads);
            }
        }
        Ok(())
    }
}

/// A contender that cannot hold the table or lacks its device. A finding, not a failure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RefusedContender {
    pub(crate) engine: String,
    pub(crate) isa: String,
    pub(crate) family: String,
    pub(crate) reason: String,
}

/// Makes empty tables: engines of ours, and peers once EAL runs.
pub(crate) struct Makers {
    options: EngineOptions,
    call: usize,
    device: DeviceArgs,
    /// The CPUs of this process except the one of the lookups; empty when lookups are not pinned.
    helper_cpus: Vec<usize>,
    #[cfg(feature = "dpdk")]
    peers: Option<Peers>,
}

impl Makers {
    /// Starts EAL if a peer is in `wanted`; fails with [`Fault::Eal`](crate::fault::Fault).
    pub(crate) fn new(
        args: &EngineArgs,
        wanted: &[WantedContender],
        tables: &RouteSet,
    ) -> Result<Self, Fault> {
        let options = EngineOptions {
            table_bytes_max: args.table_memory as u64,
            numa_node: args.table_node,
            parameters: args.parameters.clone(),
            ..EngineOptions::default()
        };
        let wants_peers = wanted.iter().any(|wanted| matches!(wanted.contender, Contender::Peer(..)));
        #[cfg(feature = "dpdk")]
        let peers = if wants_peers { Some(Peers::start(args, wanted, tables)?) } else { None };
        #[cfg(not(feature = "dpdk"))]
        let _ = (wants_peers, tables);
        Ok(Self {
            options,
            call: args.call,
            device: args.device,
            helper_cpus: helper_cpus(args.cpu),
            #[cfg(feature = "dpdk")]
            peers,
        })
    }

    /// Restricts helper threads to `cpus` without the caller's CPU; no restriction when that leaves none.
    pub(crate) fn keep_helpers_on(&mut self, cpus: &[usize]) {
        let named: Vec<_> = self.helper_cpus.iter().copied().filter(|cpu| cpus.contains(cpu)).collect();
        if !named.is_empty() {
            self.helper_cpus = named;
        }
    }

    /// Puts the helper threads of `coop` on other CPUs than the pinned calling thread's.
    fn place_helpers(&self, options: &mut EngineOptions) {
        if !self.helper_cpus.is_empty() && !options.parameters.iter().any(|(name, _)| name == "cpus") {
            let cpus: Vec<_> = self.helper_cpus.iter().map(usize::to_string).collect();
            options.parameters.push(("cpus".to_owned(), cpus.join(",")));
        }
    }

    /// An empty table of `wanted` for the routes of `family`; a peer may refuse its size.
    pub(crate) fn make(
        &mut self,
        wanted: WantedContender,
        family: Family,
        tables: &RouteSet,
    ) -> Result<Box<dyn Measurable>, Fault> {
        match wanted.contender {
            Contender::Engine(name) => {
                let mut options = EngineOptions { isa: Some(wanted.isa), ..self.options.clone() };
                match name {
                    CoopEngine::NAME => self.place_helpers(&mut options),
                    // The parameters are for the other engines.
                    OracleEngine::NAME => options.parameters.clear(),
                    _ => {}
                }
                let writer = ENGINES
                    .make(name, &options)
                    .map_err(|source| Fault::Engine { engine: name.to_owned(), source })?;
                Ok(if wanted.contender.works_elsewhere() {
                    let mut device = self.device;
                    let is_here = !wanted.contender.is_on_device() && lpm_gpu::cu::probe().is_err();
                    if is_here {
                        device.device_batch = device.device_batch.min(COOP_BATCH);
                    }
                    let ask = if is_here { Ask::Calls } else { Ask::Slots };
                    Box::new(DeviceTable::new(writer, device, ask))
                } else {
                    Box::new(EngineTable::new(writer, self.call))
                })
            }
            #[cfg(feature = "dpdk")]
            Contender::Peer(..) => match &mut self.peers {
                Some(peers) => peers.make(wanted.contender, wanted.isa, family, tables),
                None => Err(Fault::Usage("peers were not started".into())),
            },
            #[cfg(not(feature = "dpdk"))]
            Contender::Peer(..) => {
                let _ = (family, tables);
                Err(Fault::Usage(format!("{} needs DPDK: build with --features dpdk", wanted.contender)))
            }
        }
    }
}

fn helper_cpus(cpu: Option<usize>) -> Vec<usize> {
    let Some(cpu) = cpu else { return Vec::new() };
    crate::cpus_allowed().iter().copied().filter(|other| *other != cpu).collect()
}

/// # Errors
/// The first fault that is no refusal, and a refusal of a variant that was named exactly.
pub(crate) fn build(
    makers: &mut Makers,
    wanted: &[WantedContender],
    families: &[Family],
    tables: &RouteSet,
) -> Result<(Vec<BuiltContender>, Vec<RefusedContender>), Fault> {
    let (mut built, mut refused) = (Vec::new(), Vec::new());
    let bar = wheel("build   {spinner} {msg} {elapsed}", 0);
    for family in families {
        for wanted in wanted.iter().filter(|wanted| wanted.contender.has_family(*family)) {
            let name = format!("{} {} {family}", wanted.contender, wanted.isa);
            bar.set_message(name.clone());
            let routes = tables.routes(*family);
            let on_progress = |done| bar.set_message(format!("{name} {done}/{routes} routes"));
            match build_one(makers, *wanted, *family, tables, &on_progress) {
                Ok(one) => built.push(one),
                Err(why) if is_tolerable(&why, *wanted) => refused.push(RefusedContender {
                    engine: wanted.contender.to_string(),
                    isa: wanted.contender.isa_name(wanted.isa),
                    family: family.to_string(),
                    reason: why.to_string(),
                }),
                Err(why) => return Err(why),
            }
        }
    }
    bar.finish_and_clear();
    Ok((built, refused))
}

/// Whether the others are measured when `wanted` cannot be.
fn is_tolerable(why: &Fault, wanted: WantedContender) -> bool {
    why.is_refusal() && !wanted.exact || why.is_absence() && wanted.optional
}

fn build_one(
    makers: &mut Makers,
    wanted: WantedContender,
    family: Family,
    tables: &RouteSet,
    on_progress: &dyn Fn(u64),
) -> Result<BuiltContender, Fault> {
    let delta = tables.routes_of(family);
    let before = memory::mapped();
    let mut table = makers.make(wanted, family, tables)?;
    let start = Instant::now();
    let applied = table.fill(&delta, on_progress)?;
    let build_s = start.elapsed().as_secs_f64();
    if applied.refused > 0 {
        let (engine, refused, all) = (wanted.contender, applied.refused, delta.len());
        let first = applied.first_refusal.unwrap_or_default();
        return Err(Fault::Measurement(format!(
            "{engine} refused {refused} of {all} routes, the first: {first}"
        )));
    }
    Ok(BuiltContender {
        engine: wanted.contender.to_string(),
        contender: wanted.contender,
        isa: wanted.isa,
        family,
        table_bytes: table.table_bytes(),
        build_s,
        details: table.details(),
        pages: pages(before, memory::mapped()),
        looker: table.looker()?,
        more: Vec::new(),
        table,
    })
}

/// The pages of most of the memory mapped since `before`.
fn pages(before: Mapped, after: Mapped) -> &'static str {
    let grown = [
        (after.huge_bytes.saturating_sub(before.huge_bytes), "2M"),
        (after.transparent_bytes.saturating_sub(before.transparent_bytes), "thp"),
        (after.small_bytes.saturating_sub(before.small_bytes), "4K"),
    ];
    grown
        .into_iter()
        .max_by_key(|(bytes, _)| *bytes)
        .filter(|(bytes, _)| *bytes > 0)
        .map_or("", |(_, name)| name)
}

/// `asked`, or every family with routes; [`Fault::Usage`] when that leaves none.
pub(crate) fn families(asked: Option<Family>, tables: &RouteSet) -> Result<Vec<Family>, Fault> {
    let families: Vec<_> = [Family::V4, Family::V6]
        .into_iter()
        .filter(|family| tables.routes(*family) > 0 && asked.is_none_or(|asked| asked == *family))
        .collect();
    if families.is_empty() {
        let family = asked.map_or("any family".to_owned(), |family| family.to_string());
        return Err(Fault::Usage(format!("the table has no route of {family}: {}", tables.source)));
    }
    Ok(families)
}
