//! The engine `miht`: the Multi-Index Hybrid Trie, which the paper compares itself with (section 5).
//!
//! A (k, m)-MIHT is a B+ tree of order `m` over the first `k` bits of the routes that have as many, a priority trie of the
//! suffixes behind each of its keys, and one more priority trie for shorter routes. (16, 16) for IPv4 and (32, 32) for IPv6
//! are the paper's. Nothing is expanded, so every route is one node, and an IPv6 suffix reaches to bit 128.
//!
//! | module | what lives there |
//! |---|---|
//! | [`params`] | parameters |
//! | `words` | how keys and nodes lie in memory |
//! | `tree` | the index tree |
//! | `trie` | priority tries |
//! | `table` | a family's table: the tree, the tries behind it, the trie of short prefixes |
//! | `search` | lookups, a chunk of keys at a time |
//! | `family` | two copies of a table, changed in turn while lookups run |
//!
//! Lookups are scalar, as the paper's: it found that vectors gain nothing in so short a search (section 5.2.2).

mod family;
pub mod params;
mod search;
mod table;
mod tree;
mod trie;
mod words;

use family::{Family, FamilyReader, FamilyWriter};
use fib::{
    Capacity, EngineError, EngineOptions, EngineReader, EngineStats, EngineWriter, FibDelta, Generation, Isa,
    Keys, NextHopId, Rib,
};
use lpm_core::epoch::{Epochs, ReaderEpoch};
use lpm_core::reader::{Answer, SlotReader};
use params::Params;
use std::sync::Arc;

/// The writing side of the engine `miht`.
pub struct MihtEngine {
    params: Params,
    v4: Family<u32, u32>,
    v6: Box<dyn FamilyWriter<u128>>,
    epochs: Arc<Epochs>,
    generation: Generation,
}

impl MihtEngine {
    /// The engine's name on the command line.
    pub const NAME: &'static str = "miht";

    /// An empty engine.
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for parameters that cannot be met, [`EngineError::Full`] when the empty tables exceed
    /// `table_bytes_max`, [`EngineError::Memory`] when there is no memory for them.
    pub fn new(options: &EngineOptions) -> Result<Self, EngineError> {
        let params = Params::from_options(options)?;
        let (order, placement) = (params.v6, params.placement);
        let v6: Box<dyn FamilyWriter<u128>> = match order.k {
            ..=32 => Box::new(Family::<u128, u32>::new(order, placement)?),
            33..=64 => Box::new(Family::<u128, u64>::new(order, placement)?),
            _ => Box::new(Family::<u128, u128>::new(order, placement)?),
        };
        let engine = Self {
            v4: Family::new(params.v4, placement)?,
            v6,
            params,
            epochs: Arc::default(),
            generation: Generation::default(),
        };
        engine.check_bytes(engine.v4.table_bytes() + engine.v6.table_bytes())?;
        Ok(engine)
    }

    fn check_bytes(&self, bytes: u64) -> Result<(), EngineError> {
        let limit = self.params.table_bytes_max;
        if bytes > limit {
            return Err(EngineError::Full { what: "table bytes", used: bytes, limit });
        }
        Ok(())
    }

    /// Makes room for `delta`: with a reserve if that is within the limit, else without, else by giving back what either
    /// family's table has too much. Nothing that lookups read has changed when it returns.
    fn prepare(&mut self, delta: &FibDelta, rib: &Rib) -> Result<(), EngineError> {
        let mut refusal = None;
        for (afresh, with_reserve) in [(false, true), (false, false), (true, false)] {
            if with_reserve || afresh {
                self.v4.plan(&delta.v4, &rib.v4, afresh);
                self.v6.plan(&delta.v6, &rib.v6, afresh);
            }
            match self.allocate(with_reserve) {
                Ok(()) => return Ok(()),
                Err(error) => refusal = Some(error),
            }
        }
        refusal.map_or(Ok(()), Err)
    }

    fn allocate(&mut self, with_reserve: bool) -> Result<(), EngineError> {
        self.check_bytes(self.v4.planned_bytes(with_reserve) + self.v6.planned_bytes(with_reserve))?;
        let bytes = self.v4.allocate(with_reserve)? + self.v6.allocate(with_reserve)?;
        self.check_bytes(bytes)
    }
}

impl EngineWriter for MihtEngine {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn isa(&self) -> Isa {
        Isa::Scalar
    }

    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        if let Err(refusal) = self.prepare(delta, rib) {
            self.v4.abandon();
            self.v6.abandon();
            return Err(refusal);
        }
        // One grace period serves both families.
        let (epochs, mut over) = (&self.epochs, false);
        let mut grace = || {
            if !std::mem::replace(&mut over, true) {
                epochs.synchronize();
            }
        };
        self.v4.commit(&delta.v4, &mut grace);
        self.v6.commit(&delta.v6, &mut grace);
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
            routes_v4: self.v4.routes(),
            routes_v6: self.v6.routes(),
            table_bytes: self.v4.table_bytes() + self.v6.table_bytes(),
            writer_bytes: self.v4.writer_bytes() + self.v6.writer_bytes(),
            details: self.v4.details("v4").and(self.v6.details("v6")),
        }
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        let tables = Tables { epoch: self.epochs.register(), v4: self.v4.reader(), v6: self.v6.reader() };
        Ok(Box::new(SlotReader::new(tables, slots, batch_max)))
    }
}

/// A reader's way to the tables.
struct Tables {
    epoch: ReaderEpoch,
    v4: Box<dyn FamilyReader<u32>>,
    v6: Box<dyn FamilyReader<u128>>,
}

impl Answer for Tables {
    fn answer(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) {
        let _batch = self.epoch.enter();
        match keys {
            Keys::V4(keys) => self.v4.answer(keys, out),
            Keys::V6 { hi, lo } => self.v6.answer((hi, lo), out),
        }
    }
}
