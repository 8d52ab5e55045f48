//! The two engines: one writer over both families, readers that see one generation a batch.

use super::params::{Params, Variant};
use super::shape::TableKey;
use super::table::Table;
use super::writer::Writer;
use crate::bloom::update::is_bulk;
use crate::kernel;
use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use fib::{
    Capacity, Change, EngineError, EngineOptions, EngineReader, EngineStats, EngineWriter, FibDelta,
    Generation, Isa, Keys, NextHopId, Rib, RibTable,
};
use lpm_core::epoch::{Epochs, ReaderEpoch};
use lpm_core::reader::{Answer, SlotReader};
use std::sync::Arc;

/// What writer and readers share.
struct Shared {
    v4: ArcSwap<Table>,
    v6: ArcSwap<Table>,
    epochs: Epochs,
}

/// The writing side of `bloom-naive` or `bloom-baseline`.
pub struct VariantEngine {
    params: Params,
    /// Routes of each family.
    routes: [usize; 2],
    v4: Writer<u32>,
    v6: Writer<u128>,
    shared: Arc<Shared>,
    generation: Generation,
}

/// What is to be done for one family, worked out before anything is changed.
enum Plan<K: TableKey> {
    InPlace,
    Replace(Box<Writer<K>>),
}

impl<K: TableKey> Plan<K> {
    /// The plan that brings `writer` to `routes`, to which `changes` lead.
    fn of(
        writer: &Writer<K>,
        routes: &RibTable<K>,
        changes: &[Change<K>],
        params: &Params,
    ) -> Result<Self, EngineError> {
        let admitted = writer.admits(changes);
        if admitted && !is_bulk(changes.len(), routes.used_len()) {
            return Ok(Self::InPlace);
        }
        match Writer::build(routes, params) {
            Ok(writer) => Ok(Self::Replace(Box::new(writer))),
            // To build anew would have been quicker, no more.
            Err(_) if admitted => Ok(Self::InPlace),
            Err(error) => Err(error),
        }
    }

    /// Bytes of the table when this is done.
    fn bytes(&self, writer: &Writer<K>) -> u64 {
        match self {
            Self::InPlace => writer.table_bytes(),
            Self::Replace(writer) => writer.table_bytes(),
        }
    }

    /// Carries the plan out, up to where readers see it.
    fn commit(
        self,
        writer: &mut Writer<K>,
        routes: &RibTable<K>,
        changes: &[Change<K>],
        place: &ArcSwap<Table>,
    ) {
        match self {
            Self::InPlace => {
                writer.apply(routes, changes);
                writer.publish();
            }
            Self::Replace(new) => {
                place.store(Arc::clone(new.table()));
                *writer = *new;
            }
        }
    }
}

impl VariantEngine {
    /// An empty engine of the form `variant`.
    ///
    /// # Errors
    /// [`EngineError::Parameter`] or [`EngineError::Isa`] for options that cannot be met, [`EngineError::Full`] when the
    /// empty tables exceed `table_bytes_max`, [`EngineError::Memory`] when there is no memory for them.
    pub fn new(variant: Variant, options: &EngineOptions) -> Result<Self, EngineError> {
        let params = Params::from_options(variant, options)?;
        let v4 = Writer::build(&RibTable::default(), &params)?;
        let v6 = Writer::build(&RibTable::default(), &params)?;
        params.check_bytes("table bytes", v4.table_bytes() + v6.table_bytes())?;
        let shared = Shared {
            v4: ArcSwap::new(Arc::clone(v4.table())),
            v6: ArcSwap::new(Arc::clone(v6.table())),
            epochs: Epochs::default(),
        };
        Ok(Self {
            params,
            routes: [0; 2],
            v4,
            v6,
            shared: Arc::new(shared),
            generation: Generation::default(),
        })
    }

    /// The lengths that IPv6 prefixes up to /64 are expanded to, ascending.
    #[must_use]
    pub fn levels_v6(&self) -> Vec<u8> {
        self.v6.table().shape.levels.iter().map(|level| level.len).collect()
    }

    /// Plans both families; together the tables stay within `table_bytes_max`.
    fn plan(&self, delta: &FibDelta, rib: &Rib) -> Result<(Plan<u32>, Plan<u128>), EngineError> {
        let v4 = Plan::of(&self.v4, &rib.v4, &delta.v4, &self.params)?;
        let v6 = Plan::of(&self.v6, &rib.v6, &delta.v6, &self.params)?;
        let before = self.v4.table_bytes() + self.v6.table_bytes();
        let after = v4.bytes(&self.v4) + v6.bytes(&self.v6);
        if after > before {
            self.params.check_bytes("table bytes", after)?;
        }
        Ok((v4, v6))
    }
}

impl EngineWriter for VariantEngine {
    fn name(&self) -> &'static str {
        self.params.variant.name()
    }

    fn isa(&self) -> Isa {
        self.params.isa
    }

    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        let (v4, v6) = self.plan(delta, rib)?;
        v4.commit(&mut self.v4, &rib.v4, &delta.v4, &self.shared.v4);
        v6.commit(&mut self.v6, &rib.v6, &delta.v6, &self.shared.v6);
        self.routes = [rib.v4.used_len(), rib.v6.used_len()];
        if self.v4.is_changed() || self.v6.is_changed() {
            self.shared.epochs.synchronize();
            self.v4.repeat();
            self.v6.repeat();
        }
        self.generation = self.generation.next();
        Ok(self.generation)
    }

    fn generation(&self) -> Generation {
        self.generation
    }

    fn capacity(&self) -> Capacity {
        Capacity {
            next_hop_id_max: NextHopId::MAX.get(),
            next_hops_max: u64::from(NextHopId::MAX.get()),
            table_bytes_max: self.params.table_bytes_max,
        }
    }

    fn stats(&self) -> EngineStats {
        EngineStats {
            routes_v4: self.routes[0] as u64,
            routes_v6: self.routes[1] as u64,
            table_bytes: self.v4.table_bytes() + self.v6.table_bytes(),
            writer_bytes: self.v4.writer_bytes() + self.v6.writer_bytes(),
            details: self.v4.details().and(self.v6.details()),
        }
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        let tables = Tables {
            epoch: self.shared.epochs.register(),
            v4: Cache::new(SharedV4(Arc::clone(&self.shared))),
            v6: Cache::new(SharedV6(Arc::clone(&self.shared))),
            isa: self.params.isa,
        };
        Ok(Box::new(SlotReader::new(tables, slots, batch_max)))
    }
}

/// The place of the IPv4 table, for a reader's cache.
struct SharedV4(Arc<Shared>);
/// The place of the IPv6 table, for a reader's cache.
struct SharedV6(Arc<Shared>);

impl std::ops::Deref for SharedV4 {
    type Target = ArcSwap<Table>;
    fn deref(&self) -> &ArcSwap<Table> {
        &self.0.v4
    }
}

impl std::ops::Deref for SharedV6 {
    type Target = ArcSwap<Table>;
    fn deref(&self) -> &ArcSwap<Table> {
        &self.0.v6
    }
}

/// A reader's way to the tables.
struct Tables {
    epoch: ReaderEpoch,
    v4: Cache<SharedV4, Arc<Table>>,
    v6: Cache<SharedV6, Arc<Table>>,
    isa: Isa,
}

impl Answer for Tables {
    #[inline]
    fn answer(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) {
        let _batch = self.epoch.enter();
        match keys {
            Keys::V4(keys) => kernel::variants::lookup_v4(self.isa, self.v4.load(), keys, out),
            Keys::V6 { hi, lo } => kernel::variants::lookup_v6(self.isa, self.v6.load(), hi, lo, out),
        }
    }
}
