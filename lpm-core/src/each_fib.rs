//! The FIBs of an engine that holds several, each as a separate engine: a writer and its readers for each VRF.
//!
//! The writers share a lock: a call waits while another FIB's delta is applied, even a full table on another thread.
//! Readers take no lock. The engine lives until its last writer is dropped; the routes of a dropped writer stay in it.

use fib::{
    EngineError, EngineInfo, EngineReader, EngineStats, EngineWriter, FibDelta, FibId, Fibs, Generation,
    KeyMemory, Keys, NextHopId, Rib, SlotId,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// A writer for each FIB of `engine`, in the order of their ids.
#[must_use]
pub fn each_fib(engine: Box<dyn EngineWriter>) -> Vec<Box<dyn EngineWriter>> {
    let generation = engine.generation();
    let fibs = (0..engine.info().fibs).map(FibId);
    let engine = Arc::new(Mutex::new(engine));
    let writer = |fib| -> Box<dyn EngineWriter> {
        Box::new(FibWriter { engine: Arc::clone(&engine), fib, generation, routes: [0; 2] })
    };
    fibs.map(writer).collect()
}

struct FibWriter {
    engine: Arc<Mutex<Box<dyn EngineWriter>>>,
    fib: FibId,
    generation: Generation,
    /// Routes of this FIB, IPv4 first.
    routes: [u64; 2],
}

impl FibWriter {
    /// For calls that remain valid after a panic in a delta.
    fn engine(&self) -> MutexGuard<'_, Box<dyn EngineWriter>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For calls that need consistent tables.
    fn whole(&self) -> Result<MutexGuard<'_, Box<dyn EngineWriter>>, EngineError> {
        self.engine.lock().map_err(|poisoned| EngineError::Device {
            engine: poisoned.get_ref().info().name,
            reason: "a panic in the delta of another FIB has left the engine broken".to_owned(),
            lost: true,
        })
    }
}

impl EngineWriter for FibWriter {
    fn info(&self) -> EngineInfo {
        EngineInfo { fibs: 1, ..self.engine().info() }
    }

    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        let generation = self.whole()?.apply_to(self.fib, delta, rib)?;
        self.generation = generation;
        self.routes = [rib.v4.used_len() as u64, rib.v6.used_len() as u64];
        Ok(generation)
    }

    /// Skipped while another writer holds the lock: a delta frees retired tables too. Skipped after a panic.
    fn free_retired(&mut self) {
        if let Ok(mut engine) = self.engine.try_lock() {
            engine.free_retired();
        }
    }

    fn generation(&self) -> Generation {
        self.generation
    }

    /// Routes are counted for this FIB; memory and details are for the whole engine.
    fn stats(&self) -> EngineStats {
        let [routes_v4, routes_v6] = self.routes;
        EngineStats { routes_v4, routes_v6, ..self.engine().stats() }
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        let reader = self.whole()?.reader(slots, batch_max)?;
        Ok(Box::new(FibReader { reader, fib: self.fib }))
    }
}

struct FibReader {
    reader: Box<dyn EngineReader>,
    fib: FibId,
}

impl EngineReader for FibReader {
    fn slots(&self) -> u16 {
        self.reader.slots()
    }

    fn batch_max(&self) -> usize {
        self.reader.batch_max()
    }

    fn adopt(&mut self, memory: &Arc<dyn KeyMemory>) -> Result<(), EngineError> {
        self.reader.adopt(memory)
    }

    fn submit(&mut self, slot: SlotId, keys: Keys<'_>) -> Result<(), EngineError> {
        self.reader.submit_in(slot, Fibs::One(self.fib), keys)
    }

    fn collect(&mut self, slot: SlotId, keys: Keys<'_>) -> Poll<Result<&[NextHopId], EngineError>> {
        self.reader.collect(slot, keys)
    }

    fn discard(&mut self, slot: SlotId) -> Poll<Result<(), EngineError>> {
        self.reader.discard(slot)
    }

    fn lookup(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<(), EngineError> {
        self.reader.lookup_in(Fibs::One(self.fib), keys, out)
    }

    fn refresh(&mut self) {
        self.reader.refresh();
    }
}
