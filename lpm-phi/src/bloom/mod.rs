//! The engine `bloom`: Bloomfwd as the paper has it, for IPv4 (section 3.2) and IPv6 (section 4.2), with updates in place.
//!
//! | module | what lives there |
//! |---|---|
//! | [`params`] | parameters |
//! | [`equations`] | the sizes of filters (equations 1-3) |
//! | [`hash`] | H2 and Murmur (section 4.3.2), double hashing, hash reuse (section 4.1) |
//! | `filter` | counting Bloom filters, blocked to a word |
//! | `hops` | next-hop ids behind 16-bit indices |
//! | `update` | the order in which a delta is applied under running lookups |
//! | `v4`, `v6`, `deep` | the tables: IPv4, IPv6 up to /64, IPv6 past /64 |
//!
//! Routes that change no answer are left out before they come here ([`fib::Rib`]): the paper compares itself with an engine that
//! compacts (section 2.2) and leaves that step to whoever builds it in.
//!
//! A delta is applied in place when it fits the memory that is there; else a larger table is built beside the old one and
//! put in its place with one store. Either way readers go on, and a refusal leaves everything as it was.

pub(crate) mod deep;
pub mod equations;
mod filter;
pub mod hash;
mod hops;
pub mod params;
#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "halves of addresses are cut out on purpose")]
mod stores_test;
pub(crate) mod update;
pub(crate) mod v4;
pub(crate) mod v6;

use crate::kernel;
use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use fib::{
    Capacity, EngineError, EngineOptions, EngineReader, EngineStats, EngineWriter, FibDelta, Generation, Isa,
    Keys, NextHopId, Rib, RibTable,
};
use lpm_core::epoch::{Epochs, ReaderEpoch};
use lpm_core::publish::Publish as _;
use lpm_core::reader::{Answer, SlotReader};
use params::Params;
use std::sync::Arc;
use update::{Grace, is_bulk};
use v4::{Table4, Writer4};
use v6::{Table6, Writer6};

/// What writer and readers share.
struct Shared {
    v4: ArcSwap<Table4>,
    v6: ArcSwap<Table6>,
    epochs: Epochs,
}

/// The writing side of the engine `bloom`.
pub struct BloomEngine {
    params: Params,
    /// Routes of each family.
    routes: [usize; 2],
    v4: Writer4,
    v6: Writer6,
    grace_v4: Grace,
    grace_v6: Grace,
    shared: Arc<Shared>,
    generation: Generation,
}

/// Tables that are built anew, not in service yet; a family without one is changed in place.
#[derive(Default)]
struct Anew {
    v4: Option<Box<Writer4>>,
    v6: Option<Box<Writer6>>,
}

impl BloomEngine {
    /// The engine's name on the command line.
    pub const NAME: &'static str = "bloom";

    /// An empty engine.
    ///
    /// # Errors
    /// [`EngineError::Parameter`] or [`EngineError::Isa`] for options that cannot be met, [`EngineError::Full`] when the
    /// empty tables exceed `table_bytes_max`, [`EngineError::Memory`] when there is no memory for them.
    pub fn new(options: &EngineOptions) -> Result<Self, EngineError> {
        let params = Params::from_options(options)?;
        let v4 = Writer4::build(&RibTable::default(), &params)?;
        let v6 = Writer6::build(&RibTable::default(), &params)?;
        params.check_bytes(v4.table().bytes() + v6.table().bytes())?;
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
            grace_v4: Grace::default(),
            grace_v6: Grace::default(),
            shared: Arc::new(shared),
            generation: Generation::default(),
        })
    }

    /// The tables that `delta`, which leads to `rib`, needs in place of those in service.
    fn plan(&self, delta: &FibDelta, rib: &Rib) -> Result<Anew, EngineError> {
        let fit = [self.v4.admits(&rib.v4, &delta.v4), self.v6.admits(&rib.v6, &delta.v6)];
        let bulk = [is_bulk(delta.v4.len(), rib.v4.used_len()), is_bulk(delta.v6.len(), rib.v6.used_len())];
        match self.build(rib, [!fit[0] || bulk[0], !fit[1] || bulk[1]]) {
            // To build anew would have been quicker, no more, and there is no room for it.
            Err(_) if bulk[0] && fit[0] || bulk[1] && fit[1] => self.build(rib, [!fit[0], !fit[1]]),
            built => built,
        }
    }

    /// Tables of what is used in `rib`, of the families that are `wanted`; with those that stay they keep within `table_bytes_max`.
    fn build(&self, rib: &Rib, wanted: [bool; 2]) -> Result<Anew, EngineError> {
        if wanted == [false; 2] {
            return Ok(Anew::default()); // what nearly every delta comes to
        }
        let v4 = wanted[0].then(|| Writer4::build(&rib.v4, &self.params).map(Box::new)).transpose()?;
        let v6 = wanted[1].then(|| Writer6::build(&rib.v6, &self.params).map(Box::new)).transpose()?;
        let before = self.v4.table().bytes() + self.v6.table().bytes();
        let bytes_v4 = v4.as_ref().map_or(self.v4.table(), |writer| writer.table()).bytes();
        let after = bytes_v4 + v6.as_ref().map_or(self.v6.table(), |writer| writer.table()).bytes();
        if after > before {
            self.params.check_bytes(after)?;
        }
        Ok(Anew { v4, v6 })
    }

    /// Carries a plan out; nothing can fail from here on.
    fn commit(&mut self, delta: &FibDelta, rib: &Rib, anew: Anew) {
        let epochs = &self.shared.epochs;
        let synchronize = || {
            epochs.synchronize();
            #[cfg(test)]
            fib::stores::tell(fib::stores::Event::Grace);
        };
        if self.v4.has_limbo() || self.v6.has_limbo() {
            synchronize();
            self.v4.end_grace();
            self.v6.end_grace();
            self.grace_v4.ended();
            self.grace_v6.ended();
        }
        match anew.v4 {
            None => {
                update::apply(&mut self.v4, &rib.v4, &delta.v4, &mut self.grace_v4, &synchronize);
            }
            Some(writer) => {
                self.shared.v4.publish(Arc::clone(writer.table()));
                self.v4 = *writer;
                self.grace_v4.ended(); // no lookup has missed anything in the new table
            }
        }
        match anew.v6 {
            None => {
                update::apply(&mut self.v6, &rib.v6, &delta.v6, &mut self.grace_v6, &synchronize);
            }
            Some(writer) => {
                self.shared.v6.publish(Arc::clone(writer.table()));
                self.v6 = *writer;
                self.grace_v6.ended();
            }
        }
    }
}

impl EngineWriter for BloomEngine {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn isa(&self) -> Isa {
        self.params.isa
    }

    fn wants_fewer_routes(&self) -> bool {
        true
    }

    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        let anew = self.plan(delta, rib)?;
        self.commit(delta, rib, anew);
        self.routes = [rib.v4.used_len(), rib.v6.used_len()];
        self.generation = self.generation.next();
        Ok(self.generation)
    }

    fn generation(&self) -> Generation {
        self.generation
    }

    fn capacity(&self) -> Capacity {
        Capacity {
            next_hop_id_max: NextHopId::MAX.get(),
            next_hops_max: hops::HOPS_MAX as u64,
            table_bytes_max: self.params.table_bytes_max,
        }
    }

    fn stats(&self) -> EngineStats {
        EngineStats {
            routes_v4: self.routes[0] as u64,
            routes_v6: self.routes[1] as u64,
            table_bytes: self.v4.table().bytes() + self.v6.table().bytes(),
            writer_bytes: self.v4.writer_bytes() + self.v6.writer_bytes(),
            details: self.v4.details().and(self.v6.details()),
        }
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        let tables = Tables {
            epoch: self.shared.epochs.register(),
            v4: Cache::new(SharedV4(Arc::clone(&self.shared))),
            v6: Cache::new(SharedV6(Arc::clone(&self.shared))),
            lists: kernel::Lists::new(),
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
    type Target = ArcSwap<Table4>;
    fn deref(&self) -> &ArcSwap<Table4> {
        &self.0.v4
    }
}

impl std::ops::Deref for SharedV6 {
    type Target = ArcSwap<Table6>;
    fn deref(&self) -> &ArcSwap<Table6> {
        &self.0.v6
    }
}

/// A reader's way to the tables.
struct Tables {
    epoch: ReaderEpoch,
    v4: Cache<SharedV4, Arc<Table4>>,
    v6: Cache<SharedV6, Arc<Table6>>,
    lists: Box<kernel::Lists>,
    isa: Isa,
}

impl Answer for Tables {
    #[inline]
    fn answer(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) {
        let _batch = self.epoch.enter();
        match keys {
            Keys::V4(keys) => kernel::lookup_v4(self.isa, self.v4.load(), &mut self.lists, keys, out),
            Keys::V6 { hi, lo } => kernel::lookup_v6(self.isa, self.v6.load(), &mut self.lists, hi, lo, out),
        }
    }
}
