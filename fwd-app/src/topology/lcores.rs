//! Builds the stages of a plan, and the channels between them.

use super::handle::{Direction, Handle, LcoreHandle, QueueUse, Readers};
use super::pipeline::{BATCHES_PER_INPUT, EngineStage, RxStage, Travelling, TxStage, VlanStock, VrfInFlight};
use super::plan::{Job, LcorePlan};
use super::punts::PuntRings;
use super::run_to_completion::{InputPath, VlanBatches, VrfTables, WorkerInput, WorkerStage};
use super::{Settings, StageControl, Stages};
use crate::datapath::audit::{AuditSampler, AuditState};
use crate::datapath::counters::{BusyClock, QueueCount, VrfCount};
use crate::datapath::lookup::{EngineFault, InFlight, Lookup};
use crate::datapath::punt::Limit;
use crate::datapath::rx::{Rx, RxLimits};
use crate::datapath::swap::ReaderSwap;
use crate::datapath::tx::{HoldLimit, Tx, TxParts};
use crate::datapath::vlans::{PortVrfs, VlanSort};
use crate::datapath::watch::Watch;
use crate::datapath::{Batch, Counters, EgressTable, Latency, Published};
use arc_swap::{ArcSwap, Cache};
use crossbeam_channel::{Receiver, Sender, bounded};
use dpdk_ffi::simd::Level;
use dpdk_ffi::{Burst, DpdkError, Eal, LcoreId, Port, QueueId};
use fib::{EngineError, EngineReader, EngineWriter, Isa};
use lpm_core::memory::{KeyArena, Placement};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

pub(crate) struct Parts<'a> {
    pub(crate) eal: &'a Eal,
    pub(crate) ports: &'a [Port],
    pub(crate) vrfs: Vec<VrfParts<'a>>,
    pub(crate) vrf_of: &'a [PortVrfs],
    pub(crate) settings: Settings,
    pub(crate) fault: Arc<EngineFault>,
    pub(crate) watch: Arc<Watch>,
    /// Rings to the router; `None` when no port has an address.
    pub(crate) punts: Option<&'a PuntRings>,
}

pub(crate) struct VrfParts<'a> {
    pub(crate) engine: &'a dyn EngineWriter,
    pub(crate) egress: Arc<ArcSwap<EgressTable>>,
    /// How long the engine may keep a batch before it is abandoned, microseconds.
    pub(crate) stall_us: u64,
    pub(crate) audit: Arc<AuditState>,
}

pub(crate) struct BuiltStages {
    pub(crate) lcores: Vec<(u32, Stages)>,
    pub(crate) channels: Vec<Receiver<Travelling>>,
    pub(crate) handle: Handle,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    #[error(transparent)]
    Dpdk(#[from] DpdkError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Most batches in an engine's slots: the GPU engines have at most 24 streams (GAMT, section 5.4.4), each with one batch.
const IN_FLIGHT_MAX: usize = 24;

impl Parts<'_> {
    /// # Errors
    /// [`BuildError`] when a queue does not exist or the engine has no memory for readers.
    pub(crate) fn build(self, plan: &LcorePlan) -> Result<BuiltStages, BuildError> {
        let tsc_hz = dpdk_ffi::tsc_hz(self.eal);
        let limits = self.settings.limits(tsc_hz);
        Builder {
            parts: self,
            plan,
            limits,
            tsc_hz,
            control: Arc::default(),
            published: Vec::new(),
            readers: Vec::new(),
            keys: Vec::new(),
            queues: Vec::new(),
            vrf_counts: Vec::new(),
            lcore: 0,
            clock: BusyClock::default(),
        }
        .build()
    }
}

struct Builder<'a> {
    parts: Parts<'a>,
    plan: &'a LcorePlan,
    limits: RxLimits,
    tsc_hz: u64,
    control: Arc<StageControl>,
    published: Vec<Arc<Published>>,
    readers: Vec<Readers>,
    /// By input, for the keys of its batches.
    keys: Vec<KeyArena>,
    queues: Vec<QueueUse>,
    /// Packets of each VRF by lookup stage; empty with a single VRF.
    vrf_counts: Vec<Vec<Arc<VrfCount>>>,
    lcore: u32,
    clock: BusyClock,
}

/// The readers of a stage, one per VRF with its sampler, and their exchange.
type VrfReaders = (Vec<(Box<dyn EngineReader>, AuditSampler)>, Arc<ReaderSwap>);

impl Builder<'_> {
    fn build(mut self) -> Result<BuiltStages, BuildError> {
        let plan = self.plan;
        self.parts.watch.set_ports(plan.inputs.iter().map(|input| input.port));
        self.keys = (0..plan.inputs.len()).map(|input| self.key_memory(input)).collect::<Result<_, _>>()?;
        let channels = Channels::new(&mut self)?;
        let (mut lcores, mut handles) = (Vec::with_capacity(plan.lcores.len()), Vec::new());
        for (lcore, jobs) in &plan.lcores {
            (self.lcore, self.clock) = (*lcore, BusyClock::default());
            let mut stages: Stages = Vec::with_capacity(jobs.len());
            let others = self.published.len();
            for job in jobs {
                stages.push(match job {
                    Job::Worker { inputs, tx } => Box::new(self.worker(inputs, *tx)?),
                    Job::Rx { input, engine } => Box::new(self.rx_stage(*input, *engine, &channels)?),
                    Job::Engine { engine, inputs, senders } => {
                        Box::new(self.engine_stage(*engine, *inputs, senders, &channels)?)
                    }
                    Job::Tx { tx } => Box::new(self.tx_stage(*tx, &channels)?),
                });
            }
            let published = self.published[others..].to_vec();
            let handle =
                LcoreHandle { number: *lcore, stages: stages.len(), published, ..LcoreHandle::default() };
            handles.push(Arc::new(handle));
            lcores.push((*lcore, stages));
        }
        let receivers =
            channels.to_tx.iter().chain(&channels.to_engine).map(|(_, receiver)| receiver.clone());
        let router = self.parts.punts.map(|punts| Arc::clone(&punts.published));
        self.published.extend(router.clone());
        let handle = Handle {
            router,
            lcores: handles.into(),
            control: self.control,
            published: self.published.into(),
            queues: self.queues.into(),
            vrf_counts: self.vrf_counts.into(),
            readers: self.readers.into(),
            fault: self.parts.fault,
            watch: self.parts.watch,
            ..Handle::default()
        };
        Ok(BuiltStages { lcores, channels: receivers.collect(), handle })
    }

    fn worker(&mut self, inputs: &[usize], tx: u16) -> Result<WorkerStage, BuildError> {
        let input = |i: &usize| -> Result<WorkerInput, BuildError> {
            let vlans = self.vlan_sort(*i).map(|sort| {
                let others = (0..sort.others()).map(|_| self.batch(*i));
                let mut others = others.collect::<Result<Vec<_>, EngineError>>()?;
                let punting = others.iter_mut().filter_map(|batch| batch.punting.as_mut());
                punting.for_each(|punting| punting.is_elsewhere = true);
                Ok::<_, EngineError>(Box::new(VlanBatches { sort, others }))
            });
            let vlans = vlans.transpose()?;
            Ok(WorkerInput { rx: self.rx(*i)?, batch: self.batch(*i)?, vlans })
        };
        let worker_inputs = inputs.iter().map(input).collect::<Result<_, _>>()?;
        let (readers, swap) = self.readers(1, inputs)?;
        let counts = self.count_vrfs();
        let tables = |(((reader, sampler), vrf), count): ((_, &VrfParts<'_>), _)| VrfTables {
            lookup: Lookup::new(reader, Arc::clone(&self.parts.fault), sampler),
            egress: Cache::new(Arc::clone(&vrf.egress)),
            count,
        };
        let vrfs = readers.into_iter().zip(&self.parts.vrfs).zip(counts).map(tables).collect();
        let watch = Arc::clone(&self.parts.watch);
        let (tx, published) = (self.tx(tx, HoldLimit::default())?, self.publish());
        let lane = self.readers.len() - 1;
        let path = InputPath { vrfs, tx, counters: Counters::default(), published, watch, lane };
        Ok(WorkerStage::new(worker_inputs, path, Arc::clone(&self.control), swap))
    }

    fn rx_stage(&mut self, input: usize, engine: usize, channels: &Channels) -> Result<RxStage, BuildError> {
        Ok(RxStage {
            rx: self.rx(input)?,
            input,
            free: channels.homes[input].1.clone(),
            to_engine: channels.to_engine[engine].0.clone(),
            control: Arc::clone(&self.control),
            published: self.publish(),
            counters: Counters::default(),
            clock: self.clock.clone(),
            filling: None,
            vlans: self.vlan_sort(input).map(|sort| Box::new(VlanStock::new(sort, self.vrfs_of(input).own))),
            turn: 0,
        })
    }

    fn engine_stage(
        &mut self,
        engine: usize,
        inputs: usize,
        senders: &Range<u16>,
        channels: &Channels,
    ) -> Result<EngineStage, BuildError> {
        // Two slots per batch, one per family. A device engine is kept busy by the batches of all inputs, up to the limit of its streams.
        let batches = (inputs * BATCHES_PER_INPUT).clamp(1, IN_FLIGHT_MAX);
        let slots = u16::try_from(batches * 2).unwrap_or(u16::MAX);
        let (readers, swap) = self.readers(slots, &self.plan.inputs_of(engine))?;
        let counts = self.count_vrfs();
        let tables = |(((reader, sampler), vrf), count): ((_, &VrfParts<'_>), _)| {
            let stall_cycles = self.tsc_hz.saturating_mul(vrf.stall_us) / 1_000_000;
            VrfInFlight {
                in_flight: InFlight::new(reader, stall_cycles, Arc::clone(&self.parts.fault), sampler),
                egress: Cache::new(Arc::clone(&vrf.egress)),
                count,
            }
        };
        Ok(EngineStage {
            from_rx: channels.to_engine[engine].1.clone(),
            to_tx: senders.clone().map(|tx| channels.to_tx[usize::from(tx)].0.clone()).collect(),
            vrfs: readers.into_iter().zip(&self.parts.vrfs).zip(counts).map(tables).collect(),
            swap,
            watch: Arc::clone(&self.parts.watch),
            lane: self.readers.len() - 1,
            published: self.publish(),
            counters: Counters::default(),
            clock: self.clock.clone(),
            turn: 0,
            closed: false,
        })
    }

    fn tx_stage(&mut self, tx: u16, channels: &Channels) -> Result<TxStage, BuildError> {
        Ok(TxStage {
            from_engine: channels.to_tx[usize::from(tx)].1.clone(),
            homes: channels.homes.iter().map(|(sender, _)| sender.clone()).collect(),
            tx: self.tx(tx, HoldLimit::after_a_pause(self.limits.batch, self.tsc_hz))?,
            published: self.publish(),
            counters: Counters::default(),
            turn: 0,
        })
    }

    /// Readers for a stage that looks up the batches of `inputs`.
    fn readers(&mut self, slots: u16, inputs: &[usize]) -> Result<VrfReaders, EngineError> {
        let swap = Arc::new(ReaderSwap::default());
        let stage = Readers {
            lcore: self.lcore,
            swap: Arc::clone(&swap),
            slots,
            batch_max: self.limits.batch,
            keys: inputs.iter().map(|input| self.keys[*input].memory()).collect(),
            audit: Arc::default(),
        };
        let reader = |vrf: &VrfParts<'_>| {
            let sampler = AuditSampler::new(Arc::clone(&vrf.audit), Arc::clone(&stage.audit));
            Ok((stage.make(vrf.engine)?, sampler))
        };
        let readers = self.parts.vrfs.iter().map(reader).collect::<Result<_, EngineError>>()?;
        self.readers.push(stage);
        Ok((readers, swap))
    }

    fn count_vrfs(&mut self) -> Vec<Option<Arc<VrfCount>>> {
        let vrfs = self.parts.vrfs.len();
        if vrfs == 1 {
            return vec![None];
        }
        let counts: Vec<_> = (0..vrfs).map(|_| Arc::<VrfCount>::default()).collect();
        self.vrf_counts.push(counts.clone());
        counts.into_iter().map(Some).collect()
    }

    fn count(&mut self, direction: Direction, port: u16, queue: u16) -> Arc<QueueCount> {
        let count = Arc::new(QueueCount::default());
        self.queues.push(QueueUse { port, queue, direction, lcore: self.lcore, count: Arc::clone(&count) });
        count
    }

    fn rx(&mut self, input: usize) -> Result<Rx, BuildError> {
        let input = self.plan.inputs[input];
        let count = self.count(Direction::Rx, input.port, input.queue);
        let queue = self.parts.ports[usize::from(input.port)].take_rx_queue(QueueId(input.queue))?;
        Ok(Rx::new(queue, input.port, self.limits, count))
    }

    fn tx(&mut self, tx: u16, hold: HoldLimit) -> Result<Tx, BuildError> {
        let ports = self.parts.ports;
        let queue = |(index, port): (u16, &Port)| -> Result<_, BuildError> {
            Ok((port.take_tx_queue(QueueId(tx))?, self.count(Direction::Tx, index, tx)))
        };
        let queues = (0..).zip(ports).map(queue).collect::<Result<_, _>>()?;
        let punts =
            self.parts.punts.map(|punts| punts.ends(self.parts.eal, tx, self.limits.batch)).transpose()?;
        let parts = TxParts {
            queues,
            batch_max: self.limits.batch,
            hold,
            punts,
            fragments: self.parts.settings.fragments_max.map(Limit::new),
            latency: Latency::new(self.tsc_hz),
            clock: self.clock.clone(),
            watch: Arc::clone(&self.parts.watch),
        };
        Ok(Tx::new(self.parts.eal, parts))
    }

    fn vrfs_of(&self, input: usize) -> &PortVrfs {
        &self.parts.vrf_of[usize::from(self.plan.inputs[input].port)]
    }

    fn vlan_sort(&self, input: usize) -> Option<VlanSort> {
        VlanSort::new(self.parts.eal, self.vrfs_of(input), self.limits.batch)
    }

    /// The number of batches of `input`: one more for each other VRF of its port's VLANs.
    fn batches(&self, input: usize) -> usize {
        let vrfs: BTreeSet<_> = self.vrfs_of(input).vlans.values().collect();
        vrfs.len() + if self.plan.is_pipeline() { BATCHES_PER_INPUT } else { 1 }
    }

    /// Memory for the keys of all batches of `input`, on the node of its lcore if the host has that node.
    fn key_memory(&self, input: usize) -> Result<KeyArena, EngineError> {
        let bytes = self.batches(input) * Batch::key_bytes(self.limits.batch);
        let lcore = LcoreId(self.plan.map.tuples()[input].lcore.into());
        let node = self.parts.eal.lcore_socket(lcore).ok().and_then(|socket| u32::try_from(socket.0).ok());
        let of = |numa_node| KeyArena::new(bytes, Placement { huge_pages: true, numa_node });
        of(node).or_else(|_| of(None))
    }

    fn batch(&mut self, input: usize) -> Result<Batch, EngineError> {
        let level = match self.parts.settings.isa {
            Isa::Scalar => Level::Scalar,
            Isa::Avx2 => Level::Avx2,
            // Knights Landing has AVX-512F but lacks the rest of this level, and gets AVX2.
            Isa::Avx512f => Level::Avx512,
        };
        let packets = Burst::with_capacity(self.parts.eal, self.limits.batch).with_level(level);
        let mut batch = Batch::new(packets, &mut self.keys[input])?;
        batch.input = input;
        let port = self.plan.inputs[input].port;
        batch.vrf = self.vrfs_of(input).own;
        let parts = self.plan.inputs.len() * if self.plan.is_pipeline() { BATCHES_PER_INPUT } else { 1 };
        batch.punting = self.parts.punts.and_then(|punts| punts.punting(port, parts));
        Ok(batch)
    }

    fn publish(&mut self) -> Arc<Published> {
        let published = Arc::new(Published::default());
        published.publish(&Counters::default());
        self.published.push(Arc::clone(&published));
        published
    }
}

type Channel = (Sender<Travelling>, Receiver<Travelling>);

/// Dropped after building, so that a receiver sees the disconnect when the last sending stage has ended.
struct Channels {
    /// By input.
    homes: Vec<Channel>,
    /// By engine stage.
    to_engine: Vec<Channel>,
    /// By TX queue.
    to_tx: Vec<Channel>,
}

impl Channels {
    fn new(builder: &mut Builder<'_>) -> Result<Self, EngineError> {
        let plan = builder.plan;
        let inputs = if plan.is_pipeline() { plan.inputs.len() } else { 0 };
        let all = (0..inputs).map(|input| builder.batches(input)).sum::<usize>().max(1);
        let home = |input| {
            let batches = builder.batches(input);
            let (sender, receiver) = bounded(batches);
            for _ in 0..batches {
                // Cannot be full: the channel has room for this many batches.
                drop(sender.try_send(Box::new(builder.batch(input)?)));
            }
            Ok((sender, receiver))
        };
        Ok(Self {
            homes: (0..inputs).map(home).collect::<Result<_, EngineError>>()?,
            to_engine: (0..plan.engine_stages()).map(|_| bounded(all)).collect(),
            to_tx: (0..plan.senders).map(|_| bounded(all)).collect(),
        })
    }
}
