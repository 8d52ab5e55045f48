//! The engine around the overlay trie: deltas by FIB, all or nothing, and readers.
//!
//! It does not use the engine shell ([`lpm_core::engine`]), which rebuilds a growing table from the RIB: here each FIB has its RIB, and
//! `apply` gets one of them. So a larger table is copied from the published one. The rest follows the shell.

use super::table::OverlayTable;
use super::writer::{OverlayWriter, room};
use crate::kernel;
use crate::params::SailParams;
use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use fib::reader::{Answer, SlotReader};
use fib::{
    Capacity, Change, CheckedIsa, EngineError, EngineInfo, EngineReader, EngineStats, EngineWriter, Family,
    FibDelta, FibId, Fibs, Generation, Keys, NextHopId, Rib, RibTable,
};
use lpm_core::engine::synchronize;
use lpm_core::epoch::{Epochs, ReaderEpoch};
use lpm_core::retire::Retired;
use std::sync::Arc;

type OverlayPointer = Arc<ArcSwap<OverlayTable>>;

pub(crate) struct SailM {
    params: SailParams,
    writer: OverlayWriter,
    place: OverlayPointer,
    retired: Retired<OverlayTable>,
    epochs: Arc<Epochs>,
    routes: Vec<usize>,
    generation: Generation,
}

impl SailM {
    /// `fibs` empty FIBs.
    pub(crate) fn new(params: SailParams, fibs: u32) -> Result<Self, EngineError> {
        let room = room(fibs, [0; 2], [0; 2], true)?;
        params.common.check_bytes(OverlayTable::bytes_for(fibs, room))?;
        let writer = OverlayWriter::new(fibs, room, params.common.placement)?;
        params.common.check_bytes(writer.table().bytes())?;
        Ok(Self {
            params,
            place: Arc::new(ArcSwap::new(Arc::clone(writer.table()))),
            retired: Retired::default(),
            writer,
            epochs: Arc::default(),
            routes: vec![0; fibs as usize],
            generation: Generation::default(),
        })
    }

    pub(crate) fn place(&self) -> OverlayPointer {
        Arc::clone(&self.place)
    }

    /// The table with `changes` of `fib`, which lead to `routes`; `None` if they fit in place.
    fn prepare(
        &self,
        fib: FibId,
        changes: &[Change<u32>],
        routes: &RibTable<u32>,
    ) -> Result<Option<OverlayWriter>, EngineError> {
        if self.writer.admits(changes) {
            return Ok(None);
        }
        let ample = self.rebuilt(true, fib, changes, routes);
        ample.or_else(|_| self.rebuilt(false, fib, changes, routes)).map(Some)
    }

    fn rebuilt(
        &self,
        has_reserve: bool,
        fib: FibId,
        changes: &[Change<u32>],
        routes: &RibTable<u32>,
    ) -> Result<OverlayWriter, EngineError> {
        let SailParams { common, .. } = self.params;
        let old = self.writer.table();
        // A delta that needs no more memory is not refused for lack of it.
        let check = |bytes| if bytes > old.bytes() { common.check_bytes(bytes) } else { Ok(()) };
        let room = self.writer.room_with(changes, has_reserve)?;
        check(OverlayTable::bytes_for(old.fibs, room))?;
        let new = self.writer.rebuilt(room, common.placement, fib, changes, routes)?;
        check(new.table().bytes())?;
        Ok(new)
    }
}

impl EngineWriter for SailM {
    fn info(&self) -> EngineInfo {
        EngineInfo {
            capacity: Capacity::of_bytes(self.params.common.table_bytes_max),
            fibs: self.writer.table().fibs,
            families: vec![Family::V4],
            ..EngineInfo::new(super::NAME, self.params.common.isa.get())
        }
    }

    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        self.apply_to(FibId::MAIN, delta, rib)
    }

    fn apply_to(&mut self, fib: FibId, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        Fibs::One(fib).check(0, self.writer.table().fibs)?;
        if !delta.v6.is_empty() {
            let used = rib.v6.used_len() as u64;
            return Err(EngineError::Full { what: self.params.no_ipv6, used, limit: 0 });
        }
        self.free_retired();
        match self.prepare(fib, &delta.v4, &rib.v4)? {
            Some(writer) => {
                let (table, bytes) = (Arc::clone(writer.table()), self.writer.table().bytes());
                self.writer = writer;
                self.retired.replace(&self.place, table, bytes);
            }
            None if delta.v4.is_empty() => {}
            None => {
                if self.writer.owes_grace() {
                    synchronize(&self.epochs);
                    self.writer.grace_over();
                }
                self.writer.update(fib, &delta.v4, &rib.v4);
            }
        }
        self.routes[fib.0 as usize] = rib.v4.used_len();
        self.generation = self.generation.next();
        Ok(self.generation)
    }

    fn free_retired(&mut self) {
        self.retired.free();
    }

    fn generation(&self) -> Generation {
        self.generation
    }

    fn stats(&self) -> EngineStats {
        EngineStats {
            routes_v4: self.routes.iter().map(|routes| *routes as u64).sum(),
            routes_v6: 0,
            table_bytes: self.writer.table().bytes(),
            writer_bytes: self.writer.bytes(),
            retired_bytes: self.retired.bytes(),
            details: self.writer.details(),
        }
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        let lookups = Lookups {
            isa: self.params.common.isa,
            epoch: self.epochs.register(),
            table: Cache::new(Arc::clone(&self.place)),
        };
        Ok(Box::new(SlotReader::new(lookups, slots, batch_max)))
    }
}

struct Lookups {
    isa: CheckedIsa,
    epoch: ReaderEpoch,
    table: Cache<OverlayPointer, Arc<OverlayTable>>,
}

impl Answer for Lookups {
    #[inline]
    fn answer(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) {
        let answered = self.answer_in(Fibs::One(FibId::MAIN), keys, out);
        debug_assert!(answered.is_ok(), "every engine has FIB 0");
    }

    #[inline]
    fn answer_in(
        &mut self,
        fibs: Fibs<'_>,
        keys: Keys<'_>,
        out: &mut [NextHopId],
    ) -> Result<(), EngineError> {
        let Self { isa, epoch, table } = self;
        let _batch = epoch.enter();
        let table = table.load();
        match keys {
            Keys::V4(keys) => kernel::many(*isa, table, fibs, keys, out),
            Keys::V6 { hi, .. } => {
                fibs.check(hi.len(), table.fibs)?;
                out.fill(NextHopId::NONE);
                Ok(())
            }
        }
    }

    fn refresh(&mut self) {
        self.table.load();
    }
}
