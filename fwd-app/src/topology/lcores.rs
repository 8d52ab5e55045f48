//! Builds the stages of a plan and runs them on lcores.

use super::pipeline::{BATCHES_PER_INPUT, EngineStage, RxStage, Travelling, TxStage};
use super::plan::{Job, Plan};
use super::run_to_completion::{Input, Worker};
use super::{Control, Outcome, Progress, Stage};
use crate::datapath::lookup::{EngineFault, InFlight, Lookup};
use crate::datapath::parse::Parse;
use crate::datapath::rx::{Rx, RxLimits};
use crate::datapath::tx::Tx;
use crate::datapath::{Batch, Counters, EgressTable, Latency, Published};
use arc_swap::{ArcSwap, Cache};
use crossbeam_channel::{Receiver, Sender, bounded};
use dpdk_ffi::{Burst, DpdkError, Eal, LcoreId, LcoreJob, Port, QueueId};
use fib::{EngineError, EngineWriter};
use std::sync::Arc;

/// What stages are made of.
pub(crate) struct Parts<'a> {
    /// DPDK.
    pub(crate) eal: &'a Eal,
    /// The ports, started, by index.
    pub(crate) ports: &'a [Port],
    /// The engine, with its table.
    pub(crate) engine: &'a dyn EngineWriter,
    /// What next hops mean.
    pub(crate) egress: Arc<ArcSwap<EgressTable>>,
    /// Sizes of bursts and batches.
    pub(crate) limits: RxLimits,
    /// What stops the stages.
    pub(crate) control: Arc<Control>,
    /// How long the engine may keep a batch before it is given up, microseconds.
    pub(crate) stall_us: u64,
    /// Where the engine's first error is noted.
    pub(crate) fault: Arc<EngineFault>,
    /// Where counters are shown; each stage that counts adds its own.
    pub(crate) published: Vec<Arc<Published>>,
}

/// Why stages cannot be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    /// DPDK refused.
    #[error(transparent)]
    Dpdk(#[from] DpdkError),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Batches in an engine's slots, at most: one for each of the 24 streams that the GPU engines have at most (GAMT, section 5.4.4).
const IN_FLIGHT_MAX: usize = 24;

/// The stages of one lcore.
pub(crate) type Stages = Vec<Box<dyn Stage>>;

impl Parts<'_> {
    /// The stages of `plan`, by lcore.
    ///
    /// # Errors
    /// [`BuildError`] when a queue is not there or the engine has no memory for readers.
    pub(crate) fn build(&mut self, plan: &Plan) -> Result<Vec<(u32, Stages)>, BuildError> {
        let channels = Channels::new(self, plan);
        let mut lcores = Vec::with_capacity(plan.lcores.len());
        for (lcore, jobs) in &plan.lcores {
            let mut stages: Stages = Vec::with_capacity(jobs.len());
            for job in jobs {
                stages.push(match job {
                    Job::Worker { inputs, tx } => Box::new(self.worker(plan, inputs, *tx)?),
                    Job::Rx { input } => Box::new(self.rx_stage(plan, *input, &channels)?),
                    Job::Engine => Box::new(self.engine_stage(plan, &channels)?),
                    Job::Tx { tx } => Box::new(self.tx_stage(*tx, &channels)?),
                });
            }
            lcores.push((*lcore, stages));
        }
        Ok(lcores)
    }

    fn worker(&mut self, plan: &Plan, inputs: &[usize], tx: u16) -> Result<Worker, BuildError> {
        let input = |i: &usize| -> Result<Input, BuildError> {
            Ok(Input { rx: self.rx(plan, *i)?, batch: self.batch(*i) })
        };
        let inputs = inputs.iter().map(input).collect::<Result<_, _>>()?;
        let lookup = Lookup::new(self.engine.reader(1, self.limits.batch)?, Arc::clone(&self.fault));
        let (egress, control) = (Arc::clone(&self.egress), Arc::clone(&self.control));
        Ok(Worker::new(inputs, lookup, egress, self.tx(tx)?, control, self.publish()))
    }

    fn rx_stage(&mut self, plan: &Plan, input: usize, channels: &Channels) -> Result<RxStage, BuildError> {
        Ok(RxStage {
            rx: self.rx(plan, input)?,
            input,
            free: channels.homes[input].1.clone(),
            to_engine: channels.to_engine.0.clone(),
            control: Arc::clone(&self.control),
            published: self.publish(),
            counters: Counters::default(),
            parse: Parse::new(),
            filling: None,
            turn: 0,
        })
    }

    fn engine_stage(&mut self, plan: &Plan, channels: &Channels) -> Result<EngineStage<Burst>, BuildError> {
        // Two slots a batch, one a family: a CPU engine answers at once, and a device engine is kept busy by the batches there
        // are, up to what its streams carry.
        let batches = (plan.inputs.len() * BATCHES_PER_INPUT).clamp(1, IN_FLIGHT_MAX);
        let slots = u16::try_from(batches * 2).unwrap_or(u16::MAX);
        let reader = self.engine.reader(slots, self.limits.batch)?;
        let stall_cycles = dpdk_ffi::tsc_hz(self.eal).saturating_mul(self.stall_us) / 1_000_000;
        Ok(EngineStage {
            from_rx: channels.to_engine.1.clone(),
            to_tx: channels.to_tx.iter().map(|(sender, _)| sender.clone()).collect(),
            in_flight: InFlight::new(reader, stall_cycles, Arc::clone(&self.fault)),
            egress: Cache::new(Arc::clone(&self.egress)),
            counters: Counters::default(),
            turn: 0,
            closed: false,
        })
    }

    fn tx_stage(&mut self, tx: u16, channels: &Channels) -> Result<TxStage, BuildError> {
        Ok(TxStage {
            from_engine: channels.to_tx[usize::from(tx)].1.clone(),
            homes: channels.homes.iter().map(|(sender, _)| sender.clone()).collect(),
            tx: self.tx(tx)?,
            published: self.publish(),
            counters: Counters::default(),
            turn: 0,
        })
    }

    fn rx(&self, plan: &Plan, input: usize) -> Result<Rx, BuildError> {
        let input = plan.inputs[input];
        let queue = self.ports[usize::from(input.port)].take_rx_queue(QueueId(input.queue))?;
        Ok(Rx::new(queue, self.limits))
    }

    fn tx(&self, tx: u16) -> Result<Tx, BuildError> {
        let queues = self.ports.iter().map(|port| port.take_tx_queue(QueueId(tx)));
        let queues = queues.collect::<Result<Vec<_>, _>>()?;
        let latency = Latency::new(dpdk_ffi::tsc_hz(self.eal));
        Ok(Tx::new(self.eal, queues, self.limits.batch, latency))
    }

    fn batch(&self, input: usize) -> Batch<Burst> {
        let mut batch = Batch::new(Burst::with_capacity(self.eal, self.limits.batch), self.limits.batch);
        batch.input = input;
        batch
    }

    fn publish(&mut self) -> Arc<Published> {
        let published = Arc::new(Published::default());
        self.published.push(Arc::clone(&published));
        published
    }
}

type Channel = (Sender<Travelling<Burst>>, Receiver<Travelling<Burst>>);

/// The channels of a pipeline; none are used by run-to-completion. Dropped after building, so that a receiver sees the end
/// when the last stage that sends is gone.
struct Channels {
    /// Each input's free list.
    homes: Vec<Channel>,
    to_engine: Channel,
    to_tx: Vec<Channel>,
}

impl Channels {
    fn new(parts: &Parts<'_>, plan: &Plan) -> Self {
        let pipeline = plan.lcores.iter().any(|(_, jobs)| jobs.contains(&Job::Engine));
        let inputs = if pipeline { plan.inputs.len() } else { 0 };
        let all = (inputs * BATCHES_PER_INPUT).max(1);
        let home = |input| {
            let (sender, receiver) = bounded(BATCHES_PER_INPUT);
            for _ in 0..BATCHES_PER_INPUT {
                // Cannot be full: this is what it was made for.
                drop(sender.try_send(Box::new(parts.batch(input))));
            }
            (sender, receiver)
        };
        Self {
            homes: (0..inputs).map(home).collect(),
            to_engine: bounded(all),
            to_tx: (0..plan.senders).map(|_| bounded(all)).collect(),
        }
    }
}

/// What an lcore does when no stage has anything to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Polls again at once: the lcore has a CPU of its own.
    Spin,
    /// Lets other threads run: lcores share CPUs.
    Yield,
}

impl Idle {
    /// Waits a moment.
    #[inline]
    pub(crate) fn wait(self) {
        match self {
            Self::Spin => dpdk_ffi::pause(),
            Self::Yield => std::thread::yield_now(),
        }
    }
}

/// Polls `stages` round robin until all are done, calling `housekeeping` every [`HOUSEKEEPING_TURNS`] turns. Answers what they
/// counted.
pub(crate) fn run_stages(mut stages: Stages, idle: Idle, mut housekeeping: impl FnMut()) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(stages.len());
    let mut turn = 0_u32;
    while !stages.is_empty() {
        let worked = poll_once(&mut stages, &mut outcomes);
        turn = turn.wrapping_add(1);
        if turn.is_multiple_of(HOUSEKEEPING_TURNS) {
            housekeeping();
        }
        if !worked {
            idle.wait();
        }
    }
    outcomes
}

/// Polls each stage once; those that are done leave what they counted in `outcomes`. Answers whether any worked.
#[inline]
pub(crate) fn poll_once(stages: &mut Stages, outcomes: &mut Vec<Outcome>) -> bool {
    let mut worked = false;
    let mut i = 0;
    while i < stages.len() {
        match stages[i].poll() {
            Progress::Worked => worked = true,
            Progress::Idle => {}
            Progress::Done => {
                outcomes.push(stages.remove(i).finish());
                continue;
            }
        }
        i += 1;
    }
    worked
}

/// Turns between two looks at signals and clocks, about 10 to 500 us.
const HOUSEKEEPING_TURNS: u32 = 256;

/// Stages on worker lcores.
pub(crate) struct Running {
    jobs: Vec<LcoreJob<Vec<Outcome>>>,
}

impl Running {
    /// Starts the stages of every lcore but `main`'s, which come back to be run by the caller.
    ///
    /// # Errors
    /// [`DpdkError`] when an lcore is not free; those started before stop when `control` says so.
    pub(crate) fn launch(
        eal: &Eal,
        lcores: Vec<(u32, Stages)>,
        idle: Idle,
        control: &Control,
    ) -> Result<(Self, Stages), DpdkError> {
        let main = eal.main_lcore();
        let mut mine = Stages::new();
        let mut jobs = Vec::with_capacity(lcores.len());
        for (lcore, stages) in lcores {
            if LcoreId(lcore) == main {
                mine.extend(stages);
                continue;
            }
            match eal.launch(LcoreId(lcore), move || run_stages(stages, idle, || ())) {
                Ok(job) => jobs.push(job),
                Err(error) => {
                    control.stop_rx();
                    return Err(error);
                }
            }
        }
        Ok((Self { jobs }, mine))
    }

    /// Whether every lcore has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.jobs.iter().all(LcoreJob::is_finished)
    }

    /// Waits for all lcores; what their stages counted.
    ///
    /// # Errors
    /// [`DpdkError::Panicked`] when a stage broke an invariant.
    pub(crate) fn wait(self) -> Result<Vec<Outcome>, DpdkError> {
        let mut outcomes = Vec::new();
        for job in self.jobs {
            outcomes.extend(job.wait()?);
        }
        Ok(outcomes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Done after so many polls.
    struct Countdown(u64);

    impl Stage for Countdown {
        fn poll(&mut self) -> Progress {
            match self.0 {
                0 => Progress::Done,
                _ => {
                    self.0 -= 1;
                    if self.0.is_multiple_of(2) { Progress::Worked } else { Progress::Idle }
                }
            }
        }

        fn finish(self: Box<Self>) -> Outcome {
            Outcome { held: self.0, ..Outcome::default() }
        }
    }

    #[test]
    fn stages_run_until_all_are_done_and_the_house_is_kept() {
        let stages: Stages = vec![Box::new(Countdown(1000)), Box::new(Countdown(3)), Box::new(Countdown(0))];
        let mut kept = 0;
        let outcomes = run_stages(stages, Idle::Yield, || kept += 1);
        assert_eq!(outcomes.len(), 3);
        assert!(outcomes.iter().all(|outcome| outcome.held == 0));
        assert_eq!(kept, 1001 / HOUSEKEEPING_TURNS);
    }
}
