//! The engine `coop`: cooperative execution of two engines (section 4.4).
//!
//! Each batch is cut in two, and two engines look up the pieces at the same time: in the paper a Xeon Phi and the CPU, here any two. The
//! first half's engine works while the caller's thread looks up the second half's piece. The cut follows the throughput measured at start
//! (section 4.4.2), then which half is waited for. [`pair`](lpm_core::pair) has the writers, the readers with double buffering (section
//! 4.4.1), failover and deltas.
//!
//! **The first half** is a device engine, a CPU engine on helper threads, or a [`First::Group`]: helper threads over the second half's
//! table, with one update for both. Keys submitted to a group through slots are copied; keys of a lookup that the caller waits for are
//! not, so use [`EngineReader::lookup`] with a group, some ten thousand keys at a time: the handover costs some hundred lookups.
//!
//! **A delta** goes to the engine with less room first: if it refuses, neither engine has changed. When `apply` returns, every half in
//! service has the delta, so each answer belongs to a generation between submit and collect.

mod balance;
mod make;
pub mod params;
mod profile;
mod tally;

use crate::lend::Rules;
use crate::pair::group::HelperGroup;
use crate::pair::lane::ReaderLane;
use crate::pair::reader::PairReader;
use crate::pair::{BOTH, FIRST, HALVES, HalfWriter, Listener, Pair, SECOND, Service, Why};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicUsize, Ordering};
use balance::Balance;
use fib::{
    EngineError, EngineInfo, EngineReader, EngineStats, EngineWriter, Family, FibDelta, Generation, Rib,
};
use params::CoopParams;
use profile::Profile;
use rustix::thread::{CpuSet, sched_getaffinity};
use tally::{CountedBalance, Tallies};

/// How an engine's readers are driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// A call returns when its lookups are done: on the caller's thread in the second half, on helper threads in the first.
    Cpu,
    /// A device works on the batches in its slots while the caller continues.
    Device,
}

/// An empty engine, and how it is driven.
pub struct Half {
    /// The engine.
    pub engine: Box<dyn EngineWriter>,
    /// How its readers are driven.
    pub drive: Drive,
}

/// The first half, which gets the first piece of a batch.
pub enum First {
    /// Helper threads over the table of the second half.
    Group,
    /// An engine with a separate table.
    Engine(Half),
}

/// The writer of the engine `coop`.
pub struct CoopEngine {
    params: CoopParams,
    /// The first half has no table if it is a group.
    pair: Pair,
    drives: [Drive; HALVES],
    tallies: Tallies,
    next_cpu: AtomicUsize,
    /// The CPU set of the thread that made the engine.
    cpus_allowed: Option<CpuSet>,
}

impl CoopEngine {
    /// The engine's name on the command line.
    pub const NAME: &'static str = "coop";
    /// The name of a first half without a separate table: [`First::Group`].
    pub const GROUP: &'static str = "group";

    /// An engine over two empty engines.
    #[must_use]
    pub fn new(first: First, second: Half, params: CoopParams) -> Self {
        let (first, drive) = match first {
            First::Group => (None, second.drive),
            First::Engine(half) => (Some(HalfWriter::new(half.engine)), half.drive),
        };
        let (drives, second) = ([drive, second.drive], HalfWriter::new(second.engine));
        let names = [first.as_ref().map_or(Self::GROUP, |half| half.info().name), second.info().name];
        Self {
            params,
            pair: Pair::new(Service::new(names), first, second),
            drives,
            next_cpu: AtomicUsize::new(0),
            cpus_allowed: sched_getaffinity(None).ok(),
            tallies: Tallies::default(),
        }
    }

    /// Notifies `listener` when a half goes out of service.
    #[must_use]
    pub fn with_listener(self, listener: Listener) -> Self {
        self.pair.service().listen(listener);
        self
    }

    /// The state of both halves.
    #[must_use]
    pub fn service(&self) -> Arc<Service> {
        self.pair.service()
    }

    /// The half with less room, which takes a delta first. With equal room the second half, which always exists, refuses a delta.
    fn smaller(&self) -> usize {
        let room = |half: &HalfWriter| {
            let capacity = half.info().capacity;
            (capacity.next_hops_max, capacity.table_bytes_max)
        };
        let is_first = self.pair.first().is_some_and(|first| room(first) < room(self.pair.second()));
        if is_first { FIRST } else { SECOND }
    }

    /// Refuses a next hop that one of the engines cannot hold, before either is changed.
    fn check_ids(&self, delta: &FibDelta) -> Result<(), EngineError> {
        let limit = self.info().capacity.next_hop_id_max;
        let v4 = delta.v4.iter().map(|change| change.new.get());
        let v6 = delta.v6.iter().map(|change| change.new.get());
        let used = v4.chain(v6).max().unwrap_or(0);
        if used > limit {
            return Err(EngineError::Full { what: "next-hop id", used: used.into(), limit: limit.into() });
        }
        Ok(())
    }

    fn lane(&self, half: usize, flights: u16, batch_max: usize) -> Result<ReaderLane, Why> {
        let source = self.pair.first().filter(|_| half == FIRST).unwrap_or_else(|| self.pair.second());
        if self.drives[half] == Drive::Device {
            let reader = source.ask("reader", move |engine| engine.reader(flights, batch_max))?;
            return ReaderLane::slots(reader, flights, batch_max);
        }
        let reader = || source.ask("reader", move |engine| engine.reader(1, batch_max.max(1)));
        if half == SECOND {
            return reader().map(ReaderLane::Inline);
        }
        let cpus = &self.params.cpus;
        let threads = (0..self.params.threads.max(1))
            .map(|_| {
                let turn = self.next_cpu.fetch_add(1, Ordering::Relaxed);
                let cpu = (!cpus.is_empty()).then(|| cpus[turn % cpus.len()]);
                reader().map(|reader| (reader, cpu))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let room = (usize::from(flights), batch_max);
        // Only a group reads the table of the caller's thread: another engine may hang while it holds the caller's keys.
        let is_group = self.pair.first().is_none();
        let rules =
            is_group.then(|| Rules { helps: self.params.split.is_none(), patience: self.params.stall });
        HelperGroup::new(threads, room, self.cpus_allowed, self.params.stall, rules)
            .map(ReaderLane::Threads)
            .map_err(|error| Why::Failed { during: "reader", error })
    }

    fn lane_or_out(&self, half: usize, flights: u16, batch_max: usize) -> Result<ReaderLane, EngineError> {
        if !self.service().has(half) {
            return Ok(ReaderLane::Absent);
        }
        match self.lane(half, flights, batch_max) {
            Ok(lane) => Ok(lane),
            Err(Why::Failed { error: error @ EngineError::Parameter { .. }, .. }) => Err(error),
            Err(why) => self.service().fail(half, why).map(|()| ReaderLane::Absent),
        }
    }

    fn profile(&self, lanes: &mut [ReaderLane; HALVES], balance: &mut Balance, batch_max: usize) {
        let mut profile = Profile::new(batch_max);
        for family in Family::ALL {
            let mut rates = [0.0; HALVES];
            for (half, rate) in rates.iter_mut().enumerate() {
                match profile.rate(&mut lanes[half], family, self.params.stall) {
                    Ok(measured) => *rate = measured,
                    Err(why) => {
                        let _last = self.service().fail(half, why); // the last half stays in service
                        return;
                    }
                }
            }
            balance.profiled(family, rates);
        }
    }
}

impl EngineWriter for CoopEngine {
    /// The instruction set is the second half's, or the CPU's; `isa_name` lists every set in service once: `ptx+avx512f`.
    fn info(&self) -> EngineInfo {
        let mut isa_names: Vec<_> = self.pair.used().map(|half| half.info().isa_name.as_str()).collect();
        isa_names.dedup();
        EngineInfo {
            name: Self::NAME,
            isa: self.pair.second().info().isa,
            isa_name: isa_names.join("+"),
            ..self.pair.info()
        }
    }

    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        self.check_ids(delta)?;
        let smaller = self.smaller();
        let stays = self.pair.first().is_none().then_some(SECOND);
        self.pair.apply([smaller, 1 - smaller], stays, delta, rib)
    }

    fn free_retired(&mut self) {
        self.pair.free_retired();
    }

    fn generation(&self) -> Generation {
        self.pair.generation()
    }

    /// The routes of one table, the memory of all in service; the distribution of batches, then the figures of both engines.
    fn stats(&self) -> EngineStats {
        let details = self.tallies.details(&self.service());
        let mut stats = EngineStats { details, ..EngineStats::default() };
        for of in self.pair.used().filter_map(|half| half.ask("stats", |engine| Ok(engine.stats())).ok()) {
            (stats.routes_v4, stats.routes_v6) = (of.routes_v4, of.routes_v6);
            stats.table_bytes += of.table_bytes;
            stats.writer_bytes += of.writer_bytes;
            stats.retired_bytes += of.retired_bytes;
            stats.details.extend(of.details);
        }
        stats
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        let (flights, service) = (PairReader::<CountedBalance>::flights(slots), self.service());
        let mut lanes =
            [self.lane_or_out(FIRST, flights, batch_max)?, self.lane_or_out(SECOND, flights, batch_max)?];
        let mut balance = self.params.split.map_or_else(Balance::even, Balance::fixed);
        if !balance.is_fixed() && batch_max >= profile::BATCH_MIN && service.mask() == BOTH {
            self.profile(&mut lanes, &mut balance, batch_max);
        }
        let share = CountedBalance { balance, tally: self.tallies.register() };
        Ok(Box::new(PairReader::new(lanes, share, service, (slots, batch_max), self.params.stall)))
    }
}
