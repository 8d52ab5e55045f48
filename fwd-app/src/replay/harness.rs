//! The ports, rings and pools of a replay, and the loop of its main lcore.

use super::feeder::{Feeder, Load, deal};
use super::schedule::Schedule;
use super::setup::{CACHE_MBUFS, Lcores, QUEUES_MAX, Sizes};
use super::sink::{Outlet, Sink};
use super::trace::Trace;
use super::updates::{Applied, Stream, Updated, Updater};
use super::verify::{Verified, Verifier};
use crate::cli::args::ReplayArgs;
use crate::cli::exit::CliError;
use crate::cli::message::warn;
use crate::cli::values::Rate;
use crate::control::Signals;
use crate::datapath::lookup::EngineFault;
use crate::datapath::rx::RxLimits;
use crate::datapath::{EgressPort, EgressTable, Latency};
use crate::report::periodic::Periodic;
use crate::report::{PortReport, Totals};
use crate::tables::Tables;
use crate::topology::lcores::Parts;
use crate::topology::plan::{Host, Input, Plan};
use crate::topology::running::{Finished, Idle, Running};
use crate::topology::{self, Control};
use anyhow::Context as _;
use arc_swap::ArcSwap;
use dpdk_ffi::{
    DpdkError, Eal, Mempool, MempoolConfig, Port, PortConfig, Ring, RingPort, RingSync, SocketId,
};
use fib::feed::Update;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long nothing may move, with all packets fed and some not back, before they are given up.
const STUCK: Duration = Duration::from_secs(30);
/// Turns of the loop between two looks at clock and signals.
const HOUSEKEEPING_TURNS: u32 = 256;

/// The name of a replay's port.
pub(crate) fn port_name(index: u16) -> String {
    format!("net_ring_port{index}")
}

/// A replay that is ready to run.
pub(crate) struct Replay<'a> {
    /// The command line.
    pub(crate) args: &'a ReplayArgs,
    /// The capture.
    pub(crate) trace: &'a Arc<Trace>,
    /// Who runs where.
    pub(crate) lcores: &'a Lcores,
    /// Rings and pools.
    pub(crate) sizes: Sizes,
    /// The ports, as next hops name them.
    pub(crate) ports: &'a [EgressPort],
    /// The update stream, if there is one.
    pub(crate) updates: Option<&'a Arc<[Update]>>,
}

/// What came of it.
pub(crate) struct Outcome {
    /// What each stage counted.
    pub(crate) stages: Vec<topology::Outcome>,
    /// Packets fed.
    pub(crate) fed: u64,
    /// Packets that were overtaken.
    pub(crate) reordered: u64,
    /// Latencies from the intended send time, under a rate.
    pub(crate) latency: Option<Latency>,
    /// From the first packet fed to the last that came or was dropped, seconds.
    pub(crate) duration_s: f64,
    /// Results against the oracle.
    pub(crate) verified: Verified,
    /// The tables, as they are now.
    pub(crate) tables: Tables,
    /// Updates applied.
    pub(crate) updates: u64,
    /// Deltas applied.
    pub(crate) deltas: u64,
    /// Why the updates ended before their time, if they did.
    pub(crate) update_error: Option<anyhow::Error>,
    /// What the drivers counted.
    pub(crate) ports: Vec<PortReport>,
    /// The first panic of an lcore.
    pub(crate) panicked: Option<DpdkError>,
}

/// Who has the tables while packets flow.
enum Routes {
    /// Nobody changes them.
    Steady(Box<Tables>),
    /// A thread does.
    Changing(Updater),
}

/// Ports and the far ends of their rings.
struct Wiring {
    ports: Vec<Port>,
    /// The plan's.
    inputs: Vec<Input>,
    /// By input, in the order of the plan.
    rx_rings: Vec<Ring>,
    /// By port and sender.
    tx_rings: Vec<(usize, Ring)>,
}

impl Replay<'_> {
    /// Builds everything, feeds the trace, and waits until the last packet is accounted for.
    ///
    /// # Errors
    /// When something cannot be built or written, or the updates end early.
    pub(crate) fn run(
        &self,
        eal: &Eal,
        tables: Tables,
        verifier: Option<Verifier>,
        signals: &Signals,
    ) -> anyhow::Result<Outcome> {
        let plan = self.plan()?;
        let egress = EgressTable::new(&tables.hops, self.ports).map_err(CliError::from)?;
        let egress = Arc::new(ArcSwap::from_pointee(egress));
        let pool = self.pool(eal)?;
        let wiring = self.wire(eal, &plan, &pool)?;
        let (control, applied) = (Arc::new(Control::default()), Arc::new(Applied::default()));
        let mut parts = Parts {
            eal,
            ports: &wiring.ports,
            engine: tables.engine.as_ref(),
            egress: Arc::clone(&egress),
            limits: self.limits(eal),
            control: Arc::clone(&control),
            stall_us: tables.stall_us(),
            fault: Arc::clone(&tables.fault),
            published: Vec::new(),
            channels: Vec::new(),
        };
        let stages = parts.build(&plan)?;
        let periodic = Periodic::new(std::mem::take(&mut parts.published), self.args.forward.stats_period);
        let feeder = self.feeder(eal, &wiring, pool, Arc::clone(&applied))?;
        let sink = self.sink(eal, &wiring)?;
        let idle = if self.lcores.shared { Idle::Yield } else { Idle::Spin };
        let running = Running::launch(eal, stages, std::mem::take(&mut parts.channels), idle, &control)?;
        let fault = Arc::clone(&tables.fault);
        let source = self.routes(tables, egress, applied);
        let mut turns = Loop { feeder, sink, verifier, running, control, periodic, signals, idle, fault };
        let start = Instant::now();
        // A panic here ends as one of a stage does: with all that runs stopped, and a report.
        let result = catch_unwind(AssertUnwindSafe(|| turns.run())).unwrap_or_else(|panic| {
            let message = dpdk_ffi::panic_message(panic.as_ref());
            Err(DpdkError::Panicked { lcore: eal.main_lcore(), message }.into())
        });
        let duration_s = start.elapsed().as_secs_f64();
        self.finish(turns, result, source, duration_s, dpdk_ffi::tsc_hz(eal), &wiring)
    }

    /// Ends what runs, whatever happened, and gathers what came of it.
    fn finish(
        &self,
        turns: Loop<'_>,
        result: anyhow::Result<()>,
        routes: Routes,
        duration_s: f64,
        tsc_hz: u64,
        wiring: &Wiring,
    ) -> anyhow::Result<Outcome> {
        // The lcores must be waited for and the updates stopped in any case, or EAL would end under them.
        turns.control.stop_rx();
        let Loop { running, feeder, mut sink, verifier, .. } = turns;
        let Finished { outcomes: stages, panicked } = running.wait();
        let Updated { tables, updates, deltas, error } = match routes {
            Routes::Steady(tables) => Updated { tables: *tables, updates: 0, deltas: 0, error: None },
            Routes::Changing(updater) => updater.stop()?,
        };
        let panicked = match result.map_err(anyhow::Error::downcast) {
            Ok(()) => panicked,
            Err(Ok(panic @ DpdkError::Panicked { .. })) => Some(panic),
            Err(Ok(error)) => return Err(error.into()),
            Err(Err(error)) => return Err(error),
        };
        sink.finish()?;
        let drops = Totals::new(&stages, tsc_hz).counters.drops;
        let verified = verifier.map(|verifier| verifier.finish(feeder.fed(), &drops)).unwrap_or_default();
        Ok(Outcome {
            stages,
            fed: feeder.fed(),
            reordered: sink.reordered,
            latency: (self.args.harness.rate != Rate::Max).then_some(sink.latency),
            duration_s,
            verified,
            tables,
            updates,
            deltas,
            update_error: error.map(|error| error.context(format!("updates ended after {updates}"))),
            ports: super::port_reports(&wiring.ports, &wiring.inputs),
            panicked,
        })
    }

    fn plan(&self) -> Result<Plan, CliError> {
        let all = self.lcores.all();
        let main = u32::from(self.lcores.main);
        let host = Host { ports: self.ports.len(), tx_queues_max: QUEUES_MAX, lcores: &all, main };
        Ok(Plan::new(self.args.forward.topology(), Some(&self.lcores.config), host)?)
    }

    fn limits(&self, eal: &Eal) -> RxLimits {
        let forward = &self.args.forward;
        RxLimits {
            burst: forward.rx_burst,
            batch: forward.batch_max(),
            flush_cycles: dpdk_ffi::tsc_hz(eal) / 1_000_000 * u64::from(forward.flush_us),
        }
    }

    /// The tables, or the thread that changes them.
    fn routes(&self, tables: Tables, egress: Arc<ArcSwap<EgressTable>>, applied: Arc<Applied>) -> Routes {
        let Some(updates) = self.updates else { return Routes::Steady(Box::new(tables)) };
        let harness = &self.args.harness;
        let stream = Stream {
            updates: Arc::clone(updates),
            loops: harness.update_loops,
            rate: harness.update_rate,
            per_delta: harness.update_batch,
            egress,
            ports: self.ports.to_vec(),
        };
        Routes::Changing(Updater::start(tables, stream, applied))
    }

    fn feeder(
        &self,
        eal: &Eal,
        wiring: &Wiring,
        pool: Mempool,
        applied: Arc<Applied>,
    ) -> anyhow::Result<Feeder> {
        let harness = &self.args.harness;
        let load = Load {
            trace: Arc::clone(self.trace),
            schedule: Schedule::new(self.trace, harness.rate, dpdk_ffi::tsc_hz(eal)),
            ring_of: deal(self.trace, u16::try_from(wiring.rx_rings.len()).unwrap_or(u16::MAX)),
            loops: harness.loops,
        };
        let producers = wiring.rx_rings.iter().map(Ring::producer).collect::<Result<_, _>>()?;
        Ok(Feeder::new(eal, load, pool, producers, self.sizes.window, applied))
    }

    fn pool(&self, eal: &Eal) -> anyhow::Result<Mempool> {
        let config = MempoolConfig {
            mbufs: self.sizes.mbufs,
            cache_mbufs: CACHE_MBUFS,
            data_room_bytes: self.sizes.data_room_bytes,
            socket: SocketId::ANY,
        };
        Mempool::new(eal, "replay", &config).with_context(|| {
            format!("no memory for {} mbufs of {} bytes", config.mbufs, config.data_room_bytes)
        })
    }

    /// Makes the rings and the ports over them, and starts the ports.
    fn wire(&self, eal: &Eal, plan: &Plan, pool: &Mempool) -> anyhow::Result<Wiring> {
        let ring = |name: String, size| Ring::new(eal, &name, size, RingSync::SpSc, SocketId::ANY);
        let mut wiring = Wiring {
            ports: Vec::new(),
            inputs: plan.inputs.clone(),
            rx_rings: Vec::new(),
            tx_rings: Vec::new(),
        };
        let mut by_input: Vec<(Input, Ring)> = Vec::new();
        for port in 0..u16::try_from(self.ports.len()).unwrap_or(u16::MAX) {
            // A port that nobody receives on has a queue all the same: a ring port is made of rings. Nothing is fed to that one.
            let queues = plan.inputs.iter().filter(|input| input.port == port).count().max(1);
            let mut rx = Vec::with_capacity(queues);
            for queue in 0..u16::try_from(queues).unwrap_or(u16::MAX) {
                let made = ring(format!("rx{port}_{queue}"), self.sizes.rx_ring)?;
                by_input.push((Input { port, queue }, made.clone()));
                rx.push(made);
            }
            let tx = (0..plan.senders)
                .map(|sender| ring(format!("tx{port}_{sender}"), self.sizes.tx_ring))
                .collect::<Result<Vec<_>, _>>()?;
            let made = RingPort::from_rings(eal, &format!("port{port}"), &rx, &tx, SocketId::ANY)?;
            let config = PortConfig {
                rx_queues: u16::try_from(queues).unwrap_or(u16::MAX),
                tx_queues: plan.senders,
                ..PortConfig::default()
            };
            made.configure(&config, std::slice::from_ref(pool))?;
            made.start()?;
            wiring.ports.push(made);
            wiring.tx_rings.extend(tx.into_iter().map(|ring| (usize::from(port), ring)));
        }
        for input in &plan.inputs {
            let found = by_input.iter().find(|(other, _)| other == input);
            let (_, ring) = found.with_context(|| {
                format!("--config has a hole: port {} has no queue {}", input.port, input.queue)
            })?;
            wiring.rx_rings.push(ring.clone());
        }
        Ok(wiring)
    }

    fn sink(&self, eal: &Eal, wiring: &Wiring) -> anyhow::Result<Sink> {
        let outlet = |(port, ring): &(usize, Ring)| ring.consumer().map(|ring| Outlet { port: *port, ring });
        let outlets = wiring.tx_rings.iter().map(outlet).collect::<Result<Vec<_>, _>>()?;
        let (ports, inputs) = (self.ports.len(), wiring.rx_rings.len());
        let slow = self.args.harness.tx_slow;
        let mut sink = Sink::new(eal, outlets, ports, inputs, slow, Arc::clone(self.trace));
        if let Some(dir) = &self.args.harness.out {
            sink.write_to(dir)?;
        }
        Ok(sink)
    }
}

/// The main lcore's loop.
struct Loop<'a> {
    feeder: Feeder,
    sink: Sink,
    verifier: Option<Verifier>,
    /// The forwarder; its stages of this lcore, on a single CPU, are polled here.
    running: Running,
    control: Arc<Control>,
    periodic: Periodic,
    signals: &'a Signals,
    idle: Idle,
    fault: Arc<EngineFault>,
}

impl Loop<'_> {
    /// Feeds, polls and takes until everything fed is accounted for and every stage is drained.
    fn run(&mut self) -> anyhow::Result<()> {
        let (mut turn, mut gone, mut taken) = (0_u32, 0, 0);
        let mut last_move = Instant::now();
        let mut draining = false;
        loop {
            let fed = if draining { 0 } else { self.feeder.poll(gone)? };
            let worked = self.running.poll();
            let came = self.sink.poll(&self.feeder, self.verifier.as_mut())?;
            taken += came;
            let moved = fed > 0 || worked || came > 0;
            turn = turn.wrapping_add(1);
            let dropped = self.periodic.read().drops;
            // What was dropped as tx_full or earlier never reaches the sink.
            gone = taken + dropped.total();
            if turn.is_multiple_of(HOUSEKEEPING_TURNS) || !moved {
                self.periodic.tick(self.signals.stats_wanted());
                self.fault.say();
                if self.signals.is_stopping() || self.feeder.updates_panicked() {
                    self.feeder.stop();
                }
                let now = Instant::now();
                if moved {
                    last_move = now;
                }
                if !draining && self.feeder.is_done() {
                    let stuck = now - last_move > STUCK;
                    if stuck {
                        warn(format_args!("packets did not come back for {STUCK:?}; they are given up"));
                    }
                    if gone >= self.feeder.fed() || stuck {
                        self.control.stop_rx();
                        draining = true;
                    }
                }
                // Only a stage that panicked stops the others by itself.
                draining |= self.control.is_stopping();
                if draining && !moved && self.running.is_finished() {
                    // A last look at the rings, in case the last packets came after the last poll.
                    while self.sink.drain(&self.feeder, self.verifier.as_mut())? > 0 {}
                    return Ok(());
                }
            }
            if !moved {
                self.idle.wait();
            }
        }
    }
}

#[cfg(test)]
mod panics;
