//! The engine shell: one writer over a table per family, and readers whose batch sees a single generation.
//!
//! An engine supplies two [`FibTable`]s and their lookups ([`Algorithm`]). The shell runs a delta as a transaction. It plans each table:
//! in place if the delta fits, else a rebuild, whose size is known before anything is allocated. It builds the new tables while the old
//! ones stay in service; a refusal up to here changes nothing. It waits for a grace period if a table owes one. Then it commits: stores in
//! place, or one store that publishes the new table. A delta refused for lack of memory is planned again with a tighter [`Budget`].

use crate::epoch::{Epochs, ReaderEpoch};
use crate::params::Common;
use crate::reader::{Answer, SlotReader};
use crate::retire::Retired;
use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use fib::{
    Capacity, Change, Details, EngineError, EngineInfo, EngineReader, EngineStats, EngineWriter, FibDelta,
    Generation, Key, Keys, NextHopId, Prefix, Rib, RibTable,
};
use std::sync::Arc;

/// The routes for a rebuild, in order of address, then length.
pub type Routes<K> = Vec<(Prefix<K>, NextHopId)>;

/// How much memory a delta may use; tried in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// A table is rebuilt where that is faster or necessary, with room to grow.
    Ample,
    /// A table is rebuilt only where the delta does not fit, without room to grow.
    Tight,
    /// Both tables are rebuilt without room to grow, which reclaims the space of withdrawn routes.
    Least,
}

impl Budget {
    const ALL: [Self; 3] = [Self::Ample, Self::Tight, Self::Least];

    /// Whether tables get room to grow.
    #[must_use]
    pub fn has_reserve(self) -> bool {
        self == Self::Ample
    }
}

/// One family's table: the part that lookups read, and the writer's part.
pub trait FibTable<K: Key>: Sized + Send {
    /// The engine's parameters.
    type Params;
    /// The part that lookups read.
    type Shared: Send + Sync + 'static;
    /// The size of a table, known before it is built.
    type Size: Send;

    /// False for a family that the engine does not support.
    const HOLDS_ROUTES: bool = true;

    /// The size of a table of `routes`.
    ///
    /// # Errors
    /// [`EngineError::Full`] for a limit that more memory does not lift.
    fn size(
        routes: &[(Prefix<K>, NextHopId)],
        params: &Self::Params,
        budget: Budget,
    ) -> Result<Self::Size, EngineError>;

    /// The bytes that lookups read in a table of that size, before rounding to pages.
    fn size_bytes(size: &Self::Size) -> u64;

    /// Builds a table of that size from `routes`.
    ///
    /// # Errors
    /// [`EngineError::Full`] or [`EngineError::Memory`].
    fn build(size: Self::Size, routes: Routes<K>, params: &Self::Params) -> Result<Self, EngineError>;

    /// The part that lookups read.
    fn shared(&self) -> &Arc<Self::Shared>;

    /// The bytes that lookups read.
    fn bytes(&self) -> u64;

    /// The bytes that only the writer uses.
    fn writer_bytes(&self) -> u64;

    /// Bytes of table parts that updates replaced and lookups may still read.
    fn retired_bytes(&self) -> u64 {
        0
    }

    /// Frees the replaced parts that no lookup reads any more.
    fn free_retired(&mut self) {}

    /// Figures for [`EngineStats::details`].
    fn details(&self) -> Details;

    /// Whether `changes`, which lead to `routes`, fit in place, so that [`Self::update`] cannot fail. If not, the table is rebuilt.
    fn admits(&self, _changes: &[Change<K>], _routes: &RibTable<K>) -> bool {
        false
    }

    /// Whether a grace period must end before the next [`Self::update`].
    fn owes_grace(&self) -> bool {
        false
    }

    /// Called after a grace period: every lookup that overlapped the last [`Self::update`] has ended.
    fn grace_over(&mut self) {}

    /// Applies `changes`, which lead to `routes` and fit in place, while lookups run. `synchronize` waits for every lookup in progress.
    fn update(&mut self, _changes: &[Change<K>], _routes: &RibTable<K>, _synchronize: &dyn Fn()) {
        unreachable!("a table that admits changes must implement `update`");
    }
}

/// The algorithm of an engine: its tables and its lookups.
pub trait Algorithm: 'static {
    /// Parameters, from the command line.
    type Params: AsRef<Common> + Clone + Send + Sync;
    /// The IPv4 table.
    type V4: FibTable<u32, Params = Self::Params>;
    /// The IPv6 table.
    type V6: FibTable<u128, Params = Self::Params>;
    /// A reader's scratch memory, kept from batch to batch.
    type Scratch: Send;

    /// The maximum number of distinct next hops.
    const NEXT_HOPS_MAX: u64 = NextHopId::MAX.get() as u64;
    /// As [`EngineInfo::wants_fewer_routes`].
    const WANTS_FEWER_ROUTES: bool = false;

    /// The engine's name on the command line.
    fn name(params: &Self::Params) -> &'static str;

    /// Details of the parameters for [`EngineStats::details`].
    fn details(_params: &Self::Params) -> Details {
        Details::default()
    }

    /// The scratch memory of a new reader.
    fn scratch() -> Self::Scratch;

    /// Looks up `keys` into `out`, which is as long.
    fn lookup_v4(
        params: &Self::Params,
        table: &<Self::V4 as FibTable<u32>>::Shared,
        scratch: &mut Self::Scratch,
        keys: &[u32],
        out: &mut [NextHopId],
    );

    /// Looks up IPv6 keys, given as their first and last 64 bits, into `out`. All slices have the same length.
    fn lookup_v6(
        params: &Self::Params,
        table: &<Self::V6 as FibTable<u128>>::Shared,
        scratch: &mut Self::Scratch,
        keys: (&[u64], &[u64]),
        out: &mut [NextHopId],
    );

    /// Looks up keys of both families. An engine may override it to work on one family while loads for the other are in flight.
    #[inline]
    fn lookup_both(
        params: &Self::Params,
        v4: &<Self::V4 as FibTable<u32>>::Shared,
        v6: &<Self::V6 as FibTable<u128>>::Shared,
        scratch: &mut Self::Scratch,
        (keys4, out4): (&[u32], &mut [NextHopId]),
        (keys6, out6): ((&[u64], &[u64]), &mut [NextHopId]),
    ) {
        Self::lookup_v4(params, v4, scratch, keys4, out4);
        Self::lookup_v6(params, v6, scratch, keys6, out6);
    }
}

/// Whether a rebuild is faster than this number of changes in place.
const fn is_bulk(changes: usize, routes: usize) -> bool {
    changes > 10_000 && changes > routes / 8
}

type TablePointer<K, T> = Arc<ArcSwap<<T as FibTable<K>>::Shared>>;

enum TablePlan<K: Key, T: FibTable<K>> {
    InPlace,
    Anew(T::Size, Routes<K>),
    Built(Box<T>),
}

struct Family<K: Key, T: FibTable<K>> {
    table: T,
    place: TablePointer<K, T>,
    retired: Retired<T::Shared>,
    plan: TablePlan<K, T>,
    routes: usize,
}

impl<K: Key, T: FibTable<K>> Family<K, T> {
    fn new(params: &T::Params) -> Result<Self, EngineError> {
        let table = T::build(T::size(&[], params, Budget::Ample)?, Vec::new(), params)?;
        let place = Arc::new(ArcSwap::new(Arc::clone(table.shared())));
        Ok(Self { table, place, retired: Retired::default(), plan: TablePlan::InPlace, routes: 0 })
    }

    /// Plans `changes`, which lead to `routes`. Returns the bytes that lookups will read.
    fn plan(
        &mut self,
        changes: &[Change<K>],
        routes: &RibTable<K>,
        params: &T::Params,
        budget: Budget,
    ) -> Result<u64, EngineError> {
        let in_place = match budget {
            Budget::Ample | Budget::Tight if changes.is_empty() => true,
            Budget::Ample => !is_bulk(changes.len(), routes.used_len()) && self.table.admits(changes, routes),
            Budget::Tight => self.table.admits(changes, routes),
            Budget::Least => false,
        };
        if in_place {
            self.plan = TablePlan::InPlace;
            return Ok(self.table.bytes());
        }
        let routes: Routes<K> = routes.used().collect();
        let size = T::size(&routes, params, budget)?;
        let bytes = T::size_bytes(&size);
        self.plan = TablePlan::Anew(size, routes);
        Ok(bytes)
    }

    fn build(&mut self, params: &T::Params) -> Result<u64, EngineError> {
        match std::mem::replace(&mut self.plan, TablePlan::InPlace) {
            TablePlan::Anew(size, routes) => {
                let table = Box::new(T::build(size, routes, params)?);
                let bytes = table.bytes();
                self.plan = TablePlan::Built(table);
                Ok(bytes)
            }
            _ => Ok(self.table.bytes()),
        }
    }

    fn owes_grace(&self, changes: &[Change<K>]) -> bool {
        matches!(self.plan, TablePlan::InPlace) && !changes.is_empty() && self.table.owes_grace()
    }

    fn commit(&mut self, changes: &[Change<K>], routes: &RibTable<K>, synchronize: &dyn Fn()) {
        match std::mem::replace(&mut self.plan, TablePlan::InPlace) {
            TablePlan::Built(table) => {
                let (shared, bytes) = (Arc::clone(table.shared()), self.table.bytes());
                self.table = *table;
                self.retired.replace(&self.place, shared, bytes);
            }
            _ if changes.is_empty() => {}
            _ => self.table.update(changes, routes, synchronize),
        }
        self.routes = routes.used_len();
    }

    fn free_retired(&mut self) {
        self.retired.free();
        self.table.free_retired();
    }

    fn retired_bytes(&self) -> u64 {
        self.retired.bytes() + self.table.retired_bytes()
    }
}

/// The writer of an engine on a CPU.
pub struct CpuEngine<A: Algorithm> {
    params: A::Params,
    v4: Family<u32, A::V4>,
    v6: Family<u128, A::V6>,
    epochs: Arc<Epochs>,
    generation: Generation,
}

impl<A: Algorithm> CpuEngine<A> {
    /// An empty engine.
    ///
    /// # Errors
    /// [`EngineError::Full`] when the empty tables exceed `table_bytes_max`, [`EngineError::Memory`] when they cannot be allocated.
    pub fn new(params: A::Params) -> Result<Self, EngineError> {
        let engine = Self {
            v4: Family::new(&params)?,
            v6: Family::new(&params)?,
            params,
            epochs: Arc::default(),
            generation: Generation::default(),
        };
        engine.check_bytes(engine.table_bytes())?;
        Ok(engine)
    }

    /// The tables of IPv4 and IPv6.
    pub const fn tables(&self) -> (&A::V4, &A::V6) {
        (&self.v4.table, &self.v6.table)
    }

    /// The pointers through which readers load the current tables.
    pub fn places(&self) -> (TablePointer<u32, A::V4>, TablePointer<u128, A::V6>) {
        (Arc::clone(&self.v4.place), Arc::clone(&self.v6.place))
    }

    fn table_bytes(&self) -> u64 {
        self.v4.table.bytes() + self.v6.table.bytes()
    }

    fn check_bytes(&self, used: u64) -> Result<(), EngineError> {
        self.params.as_ref().check_bytes(used)
    }

    /// Plans and builds for `delta`, which leads to `rib`. Nothing that lookups read changes.
    fn prepare(&mut self, delta: &FibDelta, rib: &Rib) -> Result<(), EngineError> {
        let mut refusal = Ok(());
        for budget in Budget::ALL {
            refusal = self.try_within(budget, delta, rib);
            if refusal.is_ok() {
                break;
            }
            // Free the memory of this attempt before the next one allocates.
            self.v4.plan = TablePlan::InPlace;
            self.v6.plan = TablePlan::InPlace;
        }
        refusal
    }

    fn try_within(&mut self, budget: Budget, delta: &FibDelta, rib: &Rib) -> Result<(), EngineError> {
        let bytes = self.v4.plan(&delta.v4, &rib.v4, &self.params, budget)?
            + self.v6.plan(&delta.v6, &rib.v6, &self.params, budget)?;
        let before = self.table_bytes();
        // A delta that needs no more memory is never refused for lack of it.
        if bytes > before {
            self.check_bytes(bytes)?;
        }
        let bytes = self.v4.build(&self.params)? + self.v6.build(&self.params)?;
        if bytes > before {
            self.check_bytes(bytes)?;
        }
        Ok(())
    }
}

/// Waits for a grace period: every lookup in progress at the call has ended.
pub fn synchronize(epochs: &Epochs) {
    epochs.synchronize();
    #[cfg(any(test, feature = "testing"))]
    fib::stores::report(fib::stores::Event::Grace);
}

impl<A: Algorithm> EngineWriter for CpuEngine<A> {
    fn info(&self) -> EngineInfo {
        let common = self.params.as_ref();
        let v4 = <A::V4 as FibTable<u32>>::HOLDS_ROUTES.then_some(fib::Family::V4);
        let v6 = <A::V6 as FibTable<u128>>::HOLDS_ROUTES.then_some(fib::Family::V6);
        EngineInfo {
            capacity: Capacity {
                next_hops_max: A::NEXT_HOPS_MAX,
                ..Capacity::of_bytes(common.table_bytes_max)
            },
            families: v4.into_iter().chain(v6).collect(),
            wants_fewer_routes: A::WANTS_FEWER_ROUTES,
            ..EngineInfo::new(A::name(&self.params), common.isa.get())
        }
    }

    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        self.free_retired();
        self.prepare(delta, rib)?;
        let Self { v4, v6, epochs, .. } = self;
        let synchronize = || synchronize(epochs);
        if v4.owes_grace(&delta.v4) || v6.owes_grace(&delta.v6) {
            synchronize();
            v4.table.grace_over();
            v6.table.grace_over();
        }
        v4.commit(&delta.v4, &rib.v4, &synchronize);
        v6.commit(&delta.v6, &rib.v6, &synchronize);
        self.generation = self.generation.next();
        Ok(self.generation)
    }

    fn free_retired(&mut self) {
        self.v4.free_retired();
        self.v6.free_retired();
    }

    fn generation(&self) -> Generation {
        self.generation
    }

    fn stats(&self) -> EngineStats {
        let (v4, v6) = self.tables();
        EngineStats {
            routes_v4: self.v4.routes as u64,
            routes_v6: self.v6.routes as u64,
            table_bytes: self.table_bytes(),
            writer_bytes: v4.writer_bytes() + v6.writer_bytes(),
            retired_bytes: self.v4.retired_bytes() + self.v6.retired_bytes(),
            details: A::details(&self.params).and(v4.details()).and(v6.details()),
        }
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        let (v4, v6) = self.places();
        let lookups = Lookups::<A> {
            params: self.params.clone(),
            epoch: self.epochs.register(),
            v4: Cache::new(v4),
            v6: Cache::new(v6),
            scratch: A::scratch(),
        };
        Ok(Box::new(SlotReader::new(lookups, slots, batch_max)))
    }
}

type Held<K, T> = Cache<TablePointer<K, T>, Arc<<T as FibTable<K>>::Shared>>;

struct Lookups<A: Algorithm> {
    params: A::Params,
    epoch: ReaderEpoch,
    v4: Held<u32, A::V4>,
    v6: Held<u128, A::V6>,
    scratch: A::Scratch,
}

impl<A: Algorithm> Answer for Lookups<A> {
    #[inline]
    fn answer(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) {
        let Self { params, epoch, v4, v6, scratch } = self;
        let _batch = epoch.enter();
        match keys {
            Keys::V4(keys) => A::lookup_v4(params, v4.load(), scratch, keys, out),
            Keys::V6 { hi, lo } => A::lookup_v6(params, v6.load(), scratch, (hi, lo), out),
        }
    }

    /// Both families in one epoch: entering one waits for all earlier stores of the thread.
    #[inline]
    fn answer_both(&mut self, calls: [(Keys<'_>, &mut [NextHopId]); 2]) {
        let Self { params, epoch, v4, v6, scratch } = self;
        match calls {
            [(Keys::V4(keys), out4), (Keys::V6 { hi, lo }, out6)] => {
                let _batch = epoch.enter();
                A::lookup_both(params, v4.load(), v6.load(), scratch, (keys, out4), ((hi, lo), out6));
            }
            calls => calls.into_iter().for_each(|(keys, out)| self.answer(keys, out)),
        }
    }

    fn refresh(&mut self) {
        self.v4.load();
        self.v6.load();
    }
}
