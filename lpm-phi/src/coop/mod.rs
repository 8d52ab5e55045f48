//! The engine `coop`: cooperative execution of two engines (section 4.4).
//!
//! Each batch is cut in two, and two engines look the pieces up at the same time: in the paper a Xeon Phi and the CPU, here any
//! two. The first half's engine works while the caller's thread looks the second half's piece up; answers come back in the order
//! of the keys.
//!
//! | module | what lives there |
//! |---|---|
//! | `make` | from names to the two halves |
//! | [`params`] | parameters, those of the two engines among them |
//! | `balance`, `profile` | where a batch is cut: by the throughput measured at start (section 4.4.2), then by who waits for whom |
//! | `reader`, `flight`, `lane` | the two halves of a reader, double-buffered (section 4.4.1) |
//! | `group`, `helper` | helper threads: a CPU engine as the first half |
//! | `tally` | how much each half has looked up |
//!
//! **The first half** is a device engine, a CPU engine of its own on helper threads, or a [`First::Group`]: helper threads over the
//! second half's table, so that two groups of one host share one table and one update. What a group is asked through slots is copied
//! to it; a lookup that the caller waits for is not, so groups should be asked by [`EngineReader::lookup`], some ten thousand keys
//! at a time: handing them over costs as much as some hundred lookups.
//!
//! **A half that fails** (an error, answers that are too few, a batch kept beyond a limit, a thread that ended) is out of service from
//! then on and for good; what it had in flight is looked up by the other one, which goes on alone. The last one stays, and its
//! errors are the caller's. [`fib::EngineStats::details`] and [`Service::why`] say so, and who listens is told at once.
//!
//! **A delta** goes to the engine with less room first. When that refuses, nothing has changed in either, and the delta is refused
//! whole. When it has taken the delta and the other one cannot, that one goes out of service: to take the delta back would show
//! lookups a table that is no generation. When `apply` returns, every half in service has the delta, so each answer is that of a
//! generation between submit and collect.

mod balance;
mod flight;
mod group;
mod helper;
mod lane;
mod make;
pub mod params;
mod profile;
mod reader;
mod tally;

use crate::failover::{BOTH, FIRST, Listener, SECOND, Service, Why};
use crate::lend::Rules;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicUsize, Ordering};
use balance::Balance;
use fib::{
    Capacity, EngineError, EngineInfo, EngineReader, EngineStats, EngineWriter, Family, FibDelta, Generation,
    Rib,
};
use group::Group;
use lane::Lane;
use params::Params;
use profile::Profile;
use reader::{CoopReader, Halves, LOOKUP_FLIGHTS};
use rustix::thread::{CpuSet, sched_getaffinity};
use tally::Tallies;

/// Halves of a batch, and of the engine. The [`FIRST`] one's share comes first in a batch, and is handed over; the [`SECOND`] one's is
/// looked up by the caller's own thread, unless that is a device's too.
const HALVES: usize = 2;

/// How an engine's readers are driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// Lookups are over when a call returns: on the caller's thread as the second half, on helper threads as the first.
    Cpu,
    /// A device works on what is in its slots while the caller goes on.
    Device,
}

/// An engine, empty, and how it is driven.
pub struct Half {
    /// The engine.
    pub engine: Box<dyn EngineWriter>,
    /// How its readers are driven.
    pub drive: Drive,
}

/// Who gets the first piece of a batch.
pub enum First {
    /// Helper threads over the table of the second half.
    Group,
    /// An engine with a table of its own.
    Engine(Half),
}

/// The writing side of the engine `coop`.
pub struct CoopEngine {
    params: Params,
    /// `None` for a group, which has no table.
    first: Option<Half>,
    second: Half,
    service: Arc<Service>,
    tallies: Tallies,
    generation: Generation,
    /// The next of [`Params::cpus`] to be dealt out.
    next_cpu: AtomicUsize,
    /// Where the thread that made the engine may run.
    cpus_allowed: Option<CpuSet>,
}

impl CoopEngine {
    /// The engine's name on the command line.
    pub const NAME: &'static str = "coop";
    /// The name of a first half without a table of its own: [`First::Group`].
    pub const GROUP: &'static str = "group";

    /// Over two engines, both empty.
    #[must_use]
    pub fn new(first: First, second: Half, params: Params) -> Self {
        let first = match first {
            First::Group => None,
            First::Engine(half) => Some(half),
        };
        let first_name = first.as_ref().map_or(Self::GROUP, |half| half.engine.info().name);
        Self {
            params,
            service: Service::new([first_name, second.engine.info().name]),
            first,
            second,
            generation: Generation::default(),
            next_cpu: AtomicUsize::new(0),
            cpus_allowed: sched_getaffinity(None).ok(),
            tallies: Tallies::default(),
        }
    }

    /// Has `listener` told when a half goes out of service.
    #[must_use]
    pub fn with_listener(self, listener: Listener) -> Self {
        self.service.listen(listener);
        self
    }

    /// Which halves are in service.
    #[must_use]
    pub fn service(&self) -> Arc<Service> {
        Arc::clone(&self.service)
    }

    /// The engines that have tables, while they are in service, each with its half.
    fn engines(&self) -> impl Iterator<Item = (usize, &dyn EngineWriter)> {
        let first = self.first.as_ref().map(|half| (FIRST, half.engine.as_ref()));
        let second = Some((SECOND, self.second.engine.as_ref()));
        // A group that is left alone still reads the second half's table.
        let shared = self.first.is_none();
        [first, second].into_iter().flatten().filter(move |(half, _)| shared || self.service.has(*half))
    }

    fn engine_mut(&mut self, half: usize) -> &mut dyn EngineWriter {
        match &mut self.first {
            Some(first) if half == FIRST => first.engine.as_mut(),
            _ => self.second.engine.as_mut(),
        }
    }

    /// The halves whose engines take a delta, the one with less room first.
    fn apply_order(&self) -> [Option<usize>; HALVES] {
        let mut order = [None; HALVES];
        for (place, (half, _)) in order.iter_mut().zip(self.engines()) {
            *place = Some(half);
        }
        if let [Some(_), Some(_)] = order {
            let room = |half: usize| {
                let engine =
                    self.engines().find(|(at, _)| *at == half).map(|(_, engine)| engine.info().capacity);
                engine.map(|room| (room.next_hops_max, room.table_bytes_max))
            };
            // With equal room the second: then a delta is refused by what is sure to be there.
            if room(SECOND) <= room(FIRST) {
                order.reverse();
            }
        }
        order
    }

    /// Refuses a next hop that one of the engines cannot hold, before either is touched.
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

    /// The reading side of `half` with `flights` slots.
    fn lane(&self, half: usize, flights: u16, batch_max: usize) -> Result<Lane, EngineError> {
        let source = match &self.first {
            Some(first) if half == FIRST => first,
            _ => &self.second,
        };
        if source.drive == Drive::Device {
            let reader = source.engine.reader(flights, batch_max)?;
            if reader.slots() < flights || reader.batch_max() < batch_max {
                return Err(EngineError::Batch { keys: batch_max, limit: reader.batch_max() });
            }
            return Ok(Lane::Slots(reader));
        }
        if half == SECOND {
            return source.engine.reader(1, batch_max.max(1)).map(Lane::Inline);
        }
        let cpus = &self.params.cpus;
        let threads = (0..self.params.threads.max(1))
            .map(|_| {
                let turn = self.next_cpu.fetch_add(1, Ordering::Relaxed);
                let cpu = (!cpus.is_empty()).then(|| cpus[turn % cpus.len()]);
                source.engine.reader(1, batch_max.max(1)).map(|reader| (reader, cpu))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let room = (usize::from(flights), batch_max);
        // Only over the table that the caller's thread reads too: another engine may hang, and must not have what is the caller's.
        let rules = self
            .first
            .is_none()
            .then(|| Rules { helps: self.params.split.is_none(), patience: self.params.stall });
        Group::new(threads, room, self.cpus_allowed, self.params.stall, rules).map(Lane::Threads)
    }

    /// As [`Self::lane`]; a half that has none goes out of service, unless it is the user's to mend or the last.
    fn lane_or_out(&self, half: usize, flights: u16, batch_max: usize) -> Result<Lane, EngineError> {
        if !self.service.has(half) {
            return Ok(Lane::Absent);
        }
        match self.lane(half, flights, batch_max) {
            Ok(lane) => Ok(lane),
            Err(error @ EngineError::Parameter { .. }) => Err(error),
            Err(error) => {
                self.service.fail(half, Why::Failed { during: "reader", error })?;
                Ok(Lane::Absent)
            }
        }
    }

    /// Measures both halves of a reader (section 4.4.2).
    fn profile(&self, halves: &mut Halves, batch_max: usize) {
        let mut profile = Profile::new(batch_max);
        for family in [Family::V4, Family::V6] {
            let mut rates = [0.0; HALVES];
            for (half, rate) in rates.iter_mut().enumerate() {
                match profile.rate(&mut halves.lanes[half], family, self.params.stall) {
                    Ok(measured) => *rate = measured,
                    Err(why) => {
                        let _last = self.service.fail(half, why); // which is asked all the same
                        return;
                    }
                }
            }
            halves.balance.profiled(family, rates);
        }
    }
}

impl EngineWriter for CoopEngine {
    /// The instruction set is the second half's, which is the CPU's where there is a device; its name is of each engine in service,
    /// once: `ptx+avx512f`. There is a table for a family if both halves have one, in service or not.
    fn info(&self) -> EngineInfo {
        let second = self.second.engine.info();
        let first = self.first.as_ref().map(|half| half.engine.info());
        let mut families = second.families;
        families.retain(|family| first.as_ref().is_none_or(|first| first.has_family(*family)));
        let infos: Vec<_> = self.engines().map(|(_, engine)| engine.info()).collect();
        let mut isa_names: Vec<_> = infos.iter().map(|info| info.isa_name.as_str()).collect();
        isa_names.dedup();
        EngineInfo {
            name: Self::NAME,
            isa: second.isa,
            isa_name: isa_names.join("+"),
            capacity: infos.iter().map(|info| info.capacity).reduce(Capacity::of_both).unwrap_or_default(),
            fibs: 1,
            families,
            wants_fewer_routes: infos.iter().all(|info| info.wants_fewer_routes),
            may_hang: infos.iter().any(|info| info.may_hang),
        }
    }

    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        self.check_ids(delta)?;
        let mut taken = false;
        for half in self.apply_order().into_iter().flatten() {
            let Err(error) = self.engine_mut(half).apply(delta, rib) else {
                taken = true;
                continue;
            };
            // A refusal, with nothing changed anywhere: the delta is refused. A failure: the other one may take it.
            let refused = !matches!(error, EngineError::Device { .. } | EngineError::NoDevice { .. });
            if refused && !taken {
                return Err(error);
            }
            if self.first.is_none() {
                return Err(error);
            }
            self.service.fail(half, Why::Failed { during: "apply", error })?;
        }
        self.generation = self.generation.next();
        Ok(self.generation)
    }

    fn free_retired(&mut self) {
        for half in self.apply_order().into_iter().flatten() {
            self.engine_mut(half).free_retired();
        }
    }

    fn generation(&self) -> Generation {
        self.generation
    }

    /// The routes of one table, the bytes of all in service; how batches were dealt out, then the figures of both engines.
    fn stats(&self) -> EngineStats {
        let mut stats =
            EngineStats { details: self.tallies.details(&self.service), ..EngineStats::default() };
        for (_, engine) in self.engines() {
            let of = engine.stats();
            (stats.routes_v4, stats.routes_v6) = (of.routes_v4, of.routes_v6);
            stats.table_bytes += of.table_bytes;
            stats.writer_bytes += of.writer_bytes;
            stats.retired_bytes += of.retired_bytes;
            stats.details.extend(of.details);
        }
        stats
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        let slots = slots.min(u16::MAX - LOOKUP_FLIGHTS);
        let flights = slots + LOOKUP_FLIGHTS;
        let lanes =
            [self.lane_or_out(FIRST, flights, batch_max)?, self.lane_or_out(SECOND, flights, batch_max)?];
        let balance = self.params.split.map_or_else(Balance::even, Balance::by_hand);
        let room = (usize::from(flights), batch_max);
        let mut halves =
            Halves::new(lanes, self.service(), self.tallies.register(), balance, room, self.params.stall);
        if !balance.is_by_hand() && batch_max >= profile::BATCH_MIN && self.service.mask() == BOTH {
            self.profile(&mut halves, batch_max);
        }
        Ok(Box::new(CoopReader::new(halves, usize::from(slots), batch_max)))
    }
}
