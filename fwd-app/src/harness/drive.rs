//! Builds the ports, rings and pools of a replay, runs it and collects the outcome.

use super::HarnessSpec;
use super::deal::TracePart;
use super::feeder::Feeder;
use super::link::TxLink;
use super::ready::ReadyQueues;
use super::setup::{Lcores, Sizes};
use super::sink::{Sink, SinkPaths};
use super::source::Source;
use super::stream::Streamed;
use super::trace::TraceFacts;
use super::trials::conductor::{Conducted, Conductor};
use super::trials::pacer::Pacer;
use super::trials::{TrialResult, between};
use super::turns::{Loop, is_stuck};
use super::verify::{Verified, Verifier};
use crate::datapath::Counters;
use crate::forwarder::Signals;
use crate::forwarder::rates::sampler::Sampler;
use crate::forwarder::service::Service;
use crate::forwarder::thread::ControlThread;
use crate::forwarder::updates::{Applied, UpdateStream, VrfUpdate};
use crate::forwarder::{Forwarder, Site};
use crate::ports::dpdk::Ended;
use crate::ports::dpdk::{PortCounts, no_memory};
use crate::topology::Handle;
use crate::topology::plan::{Input, LcorePlan};
use crate::topology::running::{Finished, Idle, Running};
use crate::topology::{Settings, Totals};
use anyhow::Context as _;
use dpdk_ffi::{
    Burst, DpdkError, Eal, Mempool, MempoolConfig, Port, PortConfig, QueueId, Ring, RingPort, RingSync,
    SocketId,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Replay<'a> {
    pub(crate) spec: &'a HarnessSpec,
    pub(crate) settings: Settings,
    pub(crate) lcores: &'a Lcores,
    pub(crate) plan: &'a LcorePlan,
    pub(crate) sizes: Sizes,
    pub(crate) updates: Option<&'a Arc<[VrfUpdate]>>,
    /// VRF numbers are below this.
    pub(crate) vrfs: usize,
}

pub(crate) struct ReplayOutcome {
    pub(crate) ended: Ended,
    /// Handed back with its tables in their final state.
    pub(crate) forwarder: Forwarder,
    pub(crate) fed: u64,
    /// Packets that left out of order; `None` without a sink.
    pub(crate) reordered: Option<u64>,
    pub(crate) conducted: Conducted,
    pub(crate) verified: Verified,
    /// Why the updates stopped early.
    pub(crate) update_error: Option<anyhow::Error>,
    pub(crate) trace: TraceFacts,
    pub(crate) streamed: Option<Streamed>,
}

/// The ports and the harness's ends of their rings.
struct Wiring {
    ports: Vec<Port>,
    /// By input, in the order of the plan.
    rx_rings: Vec<Ring>,
    /// One per port and sender, with the index of the port.
    tx_rings: Vec<(usize, Ring)>,
    /// Prepared packets; empty when the feeder copies frames.
    ready: ReadyQueues,
}

impl Wiring {
    fn sampler(&self) -> Sampler {
        let (ports, ready) = (self.ports.clone(), self.ready.clone());
        let names = ports.iter().map(|port| port.name().to_owned()).collect::<Vec<_>>();
        let read = move |index: usize| {
            let mut stats = ports[index].stats().ok()?;
            ready.add_received(index, &mut stats);
            Some(stats)
        };
        Sampler::new(names, Box::new(read), Vec::new())
    }
}

struct Driven {
    finished: Finished,
    duration_s: f64,
    fed: u64,
    reordered: Option<u64>,
    conducted: Conducted,
    verified: Verified,
    streamed: Option<Streamed>,
}

impl Replay<'_> {
    /// Returns once every packet is accounted for. `forwarder` knows the ports; `serve` may extend its service before the topology starts.
    pub(crate) fn run(
        &self,
        eal: &Eal,
        mut forwarder: Forwarder,
        (mut source, verifier): (Source, Option<Verifier>),
        signals: &Signals,
        housekeeping: impl FnMut(&Handle),
        serve: impl FnOnce(Service, &Handle, &[Port]) -> anyhow::Result<Service>,
    ) -> anyhow::Result<ReplayOutcome> {
        let pools = self.pools(eal)?;
        source.pace(self.spec.rate, dpdk_ffi::tsc_hz(eal));
        let mut wiring = self.wire(eal, &pools[0], &source)?;
        let applied = Arc::new(Applied::default());
        let is_ready = self.sizes.ready_turns.is_some();
        let copied = if is_ready {
            None
        } else {
            Some((self.feeder(eal, &wiring, pools, Arc::clone(&applied))?, self.sink(eal, &wiring)?))
        };
        let idle = if self.lcores.shared { Idle::Yield } else { Idle::Spin };
        let site =
            Site { eal, ports: &wiring.ports, plan: self.plan, settings: self.settings, idle, punts: None };
        let stream =
            self.updates.map(|updates| UpdateStream::new(Arc::clone(updates), self.spec.updates, applied));
        let service = Service::default().with_stream(stream, true).with_rates(wiring.sampler());
        let service = serve(service, forwarder.running(), &wiring.ports)?;
        let running = forwarder.start(&site)?;
        let updates = ControlThread::start(forwarder, move |forwarder, told| service.run(forwarder, told))?;
        let is_over = || signals.is_stopping() || updates.has_panicked();
        let tsc_hz = dpdk_ffi::tsc_hz(eal);
        let driven = match copied {
            None => {
                let times = Times { warmup: self.spec.warmup, duration: self.spec.duration, tsc_hz };
                Ok(watch(running, &mut wiring.ready, housekeeping, is_over, idle, times))
            }
            Some((feeder, sink)) => {
                let is_streamed = source.in_memory().is_none();
                let conductor = Conductor::new(self.spec, source.frame_bytes_mean(), is_streamed);
                let turns = Loop {
                    feeder,
                    source: &mut source,
                    sink,
                    verifier,
                    running,
                    housekeeping,
                    is_over,
                    idle,
                    conductor,
                    tsc_hz,
                    current: None,
                };
                self.feed(eal, turns)
            }
        };
        // Also on an error: the update thread must not outlive EAL.
        let (forwarder, updated) = updates.stop()?;
        let Driven { finished, duration_s, fed, reordered, conducted, verified, streamed } = driven?;
        let mut ports = PortCounts::read_all(&wiring.ports, &self.plan.receives(wiring.ports.len()));
        for (index, port) in ports.iter_mut().enumerate() {
            port.stats.iter_mut().for_each(|stats| wiring.ready.add_received(index, stats));
        }
        let ended_after =
            |error: anyhow::Error| error.context(format!("updates ended after {}", forwarder.updates()));
        Ok(ReplayOutcome {
            fed,
            reordered,
            conducted,
            verified,
            update_error: updated.err().map(ended_after),
            trace: source.facts(),
            streamed,
            ended: Ended { finished, duration_s, ports },
            forwarder,
        })
    }

    /// Runs the loop to its end, then waits for the lcores, after an error as well.
    fn feed<H: FnMut(&Handle), O: Fn() -> bool>(
        &self,
        eal: &Eal,
        mut turns: Loop<'_, H, O>,
    ) -> anyhow::Result<Driven> {
        let start = Instant::now();
        // A panic here is reported as one of a stage: every stage stops, and there is an outcome.
        let result = catch_unwind(AssertUnwindSafe(|| turns.run())).unwrap_or_else(|panic| {
            let message = dpdk_ffi::panic_message(panic.as_ref());
            Err(DpdkError::Panicked { lcore: eal.main_lcore(), message }.into())
        });
        let duration_s = start.elapsed().as_secs_f64();
        let Loop { running, feeder, source, mut sink, mut verifier, conductor, .. } = turns;
        running.handle().stop_rx();
        let mut finished = running.wait();
        match result.map_err(anyhow::Error::downcast) {
            Ok(()) => {}
            Err(Ok(panic @ DpdkError::Panicked { .. })) => finished.panicked = Some(panic),
            Err(Ok(error)) => return Err(error.into()),
            Err(Err(error)) => return Err(error),
        }
        sink.finish()?;
        let drops = Totals::new(&finished.outcomes, dpdk_ffi::tsc_hz(eal)).counters.drops;
        if let Some(verifier) = &mut verifier {
            source.close(feeder.fed(), |part, times| verifier.close(part, times));
        }
        Ok(Driven {
            finished,
            duration_s,
            fed: feeder.fed(),
            reordered: Some(sink.reordered),
            conducted: conductor.finish(),
            verified: verifier.map(|verifier| verifier.finish(&drops)).unwrap_or_default(),
            streamed: source.streamed(feeder.read_waits()),
        })
    }

    fn feeder(
        &self,
        eal: &Eal,
        wiring: &Wiring,
        pools: Vec<Mempool>,
        applied: Arc<Applied>,
    ) -> anyhow::Result<Feeder> {
        let producers = wiring.rx_rings.iter().map(Ring::producer).collect::<Result<_, _>>()?;
        let inside_max = self.sizes.mbufs as usize * pools.len();
        let pacer = Pacer::new(inside_max, dpdk_ffi::tsc_hz(eal));
        Ok(Feeder::new(eal, pools, producers, pacer, self.sizes.window, applied))
    }

    fn pools(&self, eal: &Eal) -> anyhow::Result<Vec<Mempool>> {
        let config = MempoolConfig {
            mbufs: self.sizes.mbufs,
            // Prepared mbufs never return to their pool.
            cache_mbufs: if self.sizes.ready_turns.is_some() { 0 } else { MempoolConfig::CACHE_MBUFS },
            data_room_bytes: self.sizes.data_room_bytes,
            ..MempoolConfig::default()
        };
        let pool = |number| {
            Mempool::new(eal, &format!("replay{number}"), &config)
                .with_context(|| no_memory(eal, config.mbufs, config.data_room_bytes))
        };
        (0..self.sizes.pools).map(pool).collect()
    }

    fn wire(&self, eal: &Eal, pool: &Mempool, source: &Source) -> anyhow::Result<Wiring> {
        let ring = |name: String, size| Ring::new(eal, &name, size, RingSync::SpSc, SocketId::ANY);
        let mut wiring = Wiring {
            ports: Vec::new(),
            rx_rings: Vec::new(),
            tx_rings: Vec::new(),
            ready: ReadyQueues::default(),
        };
        let mut by_input: Vec<(Input, Ring)> = Vec::new();
        let ready = self.sizes.ready_turns.zip(source.in_memory());
        for port in 0..self.spec.ports {
            // A ring port needs at least one RX ring; a port without inputs gets one that is never fed.
            let rx_queues = self.plan.rx_queues(port).max(1);
            let mut rx = Vec::with_capacity(usize::from(rx_queues));
            for queue in 0..rx_queues {
                let made = ring(format!("rx{port}_{queue}"), self.sizes.rx_ring)?;
                by_input.push((Input { port, queue }, made.clone()));
                rx.push(made);
            }
            let tx_queues = self.plan.senders;
            let tx = (0..tx_queues)
                .map(|sender| ring(format!("tx{port}_{sender}"), self.sizes.tx_ring))
                .collect::<Result<Vec<_>, _>>()?;
            let made = RingPort::from_rings(eal, &format!("port{port}"), &rx, &tx, SocketId::ANY)?;
            let config = PortConfig { rx_queues, tx_queues, ..PortConfig::default() };
            made.configure(&config, std::slice::from_ref(pool))?;
            if let Some((turns, part)) = ready {
                self.lay_ready(eal, (port, &made), pool, (turns, part), &mut wiring.ready)?;
                for (queue, ring) in (0..).zip(&tx) {
                    made.discard_sent(QueueId(queue), ring.consumer()?)?;
                }
            }
            made.start()?;
            wiring.ports.push(made);
            wiring.tx_rings.extend(tx.into_iter().map(|ring| (usize::from(port), ring)));
        }
        // A queue map has no gaps, so every input has a ring.
        let ring_of = |input| by_input.iter().find(|(other, _)| other == input).map(|(_, ring)| ring.clone());
        wiring.rx_rings.extend(self.plan.inputs.iter().filter_map(ring_of));
        Ok(wiring)
    }

    /// Prepares `part`'s frames, `turns` times, for each input of a port, given with its index.
    fn lay_ready(
        &self,
        eal: &Eal,
        port: (u16, &Port),
        pool: &Mempool,
        (turns, part): (u64, &TracePart),
        ready: &mut ReadyQueues,
    ) -> anyhow::Result<()> {
        let inputs = &self.plan.inputs;
        for (index, input) in (0..).zip(inputs).filter(|(_, input)| input.port == port.0) {
            let numbers: Vec<_> =
                (0..part.trace.len()).filter(|frame| part.ring_of[*frame] == index).collect();
            let turns = usize::try_from(turns).unwrap_or(usize::MAX);
            let frame = |number: &usize| part.trace.frame(*number);
            let frames: Vec<_> = std::iter::repeat_n(&numbers, turns).flatten().map(frame).collect();
            let mbufs = self.sizes.ready_mbufs(frames.len());
            let mut packets = Burst::with_capacity(eal, mbufs);
            pool.alloc_burst(&mut packets, mbufs)?;
            let count = (numbers.len() as u64).saturating_mul(self.spec.loops);
            let queue = port.1.receive_ready(QueueId(input.queue), packets, &frames, count)?;
            ready.add(usize::from(port.0), queue, count);
        }
        Ok(())
    }

    fn sink(&self, eal: &Eal, wiring: &Wiring) -> anyhow::Result<Sink> {
        let outlet = |(port, ring): &(usize, Ring)| ring.consumer().map(|ring| (*port, ring));
        let outlets = wiring.tx_rings.iter().map(outlet).collect::<Result<Vec<_>, _>>()?;
        let paths =
            SinkPaths { ports: self.spec.ports.into(), inputs: wiring.rx_rings.len(), vrfs: self.vrfs };
        let mut sink = Sink::new(eal, outlets, &paths, self.spec.tx_slow);
        if let Some(link) = self.spec.tx_rate.and_then(|rate| TxLink::new(rate, dpdk_ffi::tsc_hz(eal))) {
            sink.limit_to(eal, &link);
        }
        if let Some(dir) = &self.spec.out {
            sink.write_to(dir)?;
        }
        Ok(sink)
    }
}

#[derive(Clone, Copy)]
struct Times {
    warmup: Option<Duration>,
    duration: Option<Duration>,
    tsc_hz: u64,
}

/// Waits until all prepared packets have left and every stage is drained. `is_over` or the time limit ends reception early.
fn watch(
    running: Running,
    ready: &mut ReadyQueues,
    mut housekeeping: impl FnMut(&Handle),
    is_over: impl Fn() -> bool,
    idle: Idle,
    times: Times,
) -> Driven {
    let handle = running.handle().clone();
    let start = Instant::now();
    let (mut last_gone, mut last_move, mut end) = (0, start, None);
    let mut warmed: Option<(Instant, Counters, u64)> = None;
    let mut has_forgotten = false;
    let mut last = Counters::default();
    let finished = running.run(idle, || {
        housekeeping(&handle);
        let (counters, now) = (handle.counters(), Instant::now());
        let measured_from = times.warmup.map_or(Some(start), |_| warmed.as_ref().map(|(from, ..)| *from));
        let is_measured = times.duration.zip(measured_from).is_some_and(|(limit, from)| now - from >= limit);
        if is_over() || is_measured {
            ready.stop();
        }
        match (&warmed, times.warmup) {
            (None, Some(warmup)) if now - start >= warmup && end.is_none() => {
                warmed = Some((now, counters, ready.fed()));
                handle.ask_latencies(times.tsc_hz);
            }
            (Some(_), _) if !has_forgotten => has_forgotten = handle.forget_latencies(),
            _ => {}
        }
        let gone = counters.gone();
        if gone != last_gone {
            (last_gone, last_move) = (gone, now);
        }
        if end.is_none() && (ready.is_done(gone) || is_stuck(now - last_move)) {
            (end, last) = (Some(now), counters);
            handle.stop_rx();
        }
    });
    let end = end.unwrap_or_else(Instant::now);
    let mut conducted = Conducted::default();
    if let Some((from, before, fed)) = warmed {
        conducted.warmup_s = Some((from - start).as_secs_f64());
        conducted.measured = Some(TrialResult::at_full_speed(
            ready.fed() - fed,
            (end - from).as_secs_f64(),
            between(&before, &last),
        ));
    }
    let verified = Verified::default();
    Driven {
        finished,
        duration_s: (end - start).as_secs_f64(),
        fed: ready.fed(),
        reordered: None,
        conducted,
        verified,
        streamed: None,
    }
}
