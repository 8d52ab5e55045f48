//! Measured tables: a [`Measurable`] takes deltas, its [`Looker`]s read.
//!
//! Engines of ours and peers of DPDK are each driven through their native interface, so no conversion is timed. Answers go to one reused array
//! of a call's size, as in a forwarder's batch.

use crate::clock::{Clock, cpu_s};
use crate::fault::Fault;
use crate::keys::KeySet;
use fib::generate::variation;
use fib::{
    Details, EngineError, EngineReader, EngineWriter, FibId, Key, NextHopId, Prefix, Rib, Route, Routes,
};
use std::borrow::Cow;
use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Applied {
    pub(crate) changes: u64,
    /// Seconds inside an engine of ours; the rest is the RIB's. Measured in one of [`DELTAS_A_TIMED_ONE`] deltas.
    pub(crate) own_s: Option<f64>,
    /// Changes that a peer refused: it continues without them, so its answers are wrong from then on. Engines of ours return an error.
    pub(crate) refused: u64,
    pub(crate) first_refusal: Option<String>,
}

pub(crate) trait Measurable {
    fn apply(&mut self, delta: &Routes) -> Result<Applied, Fault>;

    /// Applies the first delta; peers, which apply it route by route, report their progress.
    fn fill(&mut self, delta: &Routes, _on_progress: &dyn Fn(u64)) -> Result<Applied, Fault> {
        self.apply(delta)
    }

    fn table_bytes(&self) -> u64;

    fn details(&self) -> Details;

    /// A reader of this table, which may go to another thread.
    fn looker(&mut self) -> Result<Box<dyn Looker>, Fault>;
}

pub(crate) trait Looker: Send {
    /// Looks up the keys of `range` in calls of `call` keys; the answers are overwritten.
    fn sweep(&mut self, keys: &KeySet, range: Range<usize>, call: usize) -> Result<(), Fault>;

    /// The next-hop ids of all keys, looked up in the same way; 0 is no route.
    fn answers(&mut self, keys: &KeySet, call: usize) -> Result<Vec<u32>, Fault>;

    fn timed(&mut self, keys: &KeySet, range: Range<usize>, call: usize) -> Result<Sweep, Fault> {
        let (start, cpu_start_s) = (Instant::now(), cpu_s());
        self.sweep(keys, range, call)?;
        let (cpu_s, wall_s) = (cpu_s() - cpu_start_s, start.elapsed().as_secs_f64());
        let took_s = if self.clock() == Clock::Wall { wall_s } else { cpu_s };
        Ok(Sweep { took_s, on_cpu: cpu_s / wall_s })
    }

    /// Threads that share a sweep; for a device, those that submit batches.
    fn threads(&self) -> usize {
        1
    }

    fn clock(&self) -> Clock {
        Clock::Cpu
    }

    /// FIBs of the table. With several, each key is looked up in the FIB that its set names, else in FIB 0.
    fn fibs(&self) -> u32 {
        1
    }

    /// The least keys of a sweep, so that its start and end do not matter.
    fn grain(&self) -> usize {
        1
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    pub(crate) took_s: f64,
    pub(crate) on_cpu: f64,
}

pub(crate) fn calls(range: Range<usize>, call: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(call.max(1)).map(move |start| start..end.min(start + call.max(1)))
}

/// Deltas a measurement of the engine's own time, since two clock reads take a twelfth of an update.
const DELTAS_A_TIMED_ONE: u32 = 16;

const VARIATION_SEED: u64 = 1;

/// The next hop of a route in FIB `fib`: unchanged in FIB 0, varied in the others.
pub(crate) fn next_hop_in<K: Key>(fib: FibId, prefix: Prefix<K>, next_hop: NextHopId) -> NextHopId {
    variation(VARIATION_SEED, fib, prefix, next_hop)
}

fn delta_for(fib: FibId, delta: &Routes) -> Cow<'_, Routes> {
    fn all<K: Key>(fib: FibId, routes: &[Route<K>]) -> Vec<Route<K>> {
        let varied = routes.iter().map(|route| {
            let Route { prefix, next_hop } = *route;
            Route { prefix, next_hop: next_hop_in(fib, prefix, next_hop) }
        });
        varied.collect()
    }
    if fib == FibId::MAIN {
        return Cow::Borrowed(delta);
    }
    Cow::Owned(Routes { v4: all(fib, &delta.v4), v6: all(fib, &delta.v6) })
}

/// An engine with a RIB for each FIB, so that update times include the RIB as a peer's do. A delta goes to, and counts for, each FIB.
pub(crate) struct Fed {
    pub(crate) engine: String,
    pub(crate) writer: Box<dyn EngineWriter>,
    ribs: Vec<Rib>,
    deltas: u32,
}

impl Fed {
    pub(crate) fn new(writer: Box<dyn EngineWriter>, rib: Rib) -> Self {
        let ribs = vec![rib; writer.info().fibs as usize];
        Self { engine: writer.info().name.to_owned(), writer, ribs, deltas: 0 }
    }

    pub(crate) fn filled(writer: Box<dyn EngineWriter>, routes: &Routes) -> Result<Self, Fault> {
        let mut fed = Self::new(writer, Rib::plain());
        fed.apply(routes).map(|_| fed)
    }

    pub(crate) fn reader(&self, slots: u16, batch: usize) -> Result<Box<dyn EngineReader>, Fault> {
        self.writer.reader(slots, batch).map_err(|source| self.refused(source))
    }

    pub(crate) fn looker(&self, call: usize) -> Result<Box<dyn Looker>, Fault> {
        let (engine, fibs) = (self.engine.clone(), self.writer.info().fibs);
        let out = vec![NextHopId::NONE; call];
        Ok(Box::new(EngineLooker { engine, reader: self.reader(1, call)?, fibs, out }))
    }

    pub(crate) fn apply(&mut self, delta: &Routes) -> Result<Applied, Fault> {
        let is_timed = self.deltas.is_multiple_of(DELTAS_A_TIMED_ONE);
        self.deltas = self.deltas.wrapping_add(1);
        let mut own_s = is_timed.then_some(0.0);
        for (fib, rib) in (0..).map(FibId).zip(&mut self.ribs) {
            rib.announce(&delta_for(fib, delta));
            let applied = rib.commit(|delta, rib| {
                let start = is_timed.then(Instant::now);
                let applied = self.writer.apply_to(fib, delta, rib);
                own_s = own_s.zip(start).map(|(own_s, start)| own_s + start.elapsed().as_secs_f64());
                applied
            });
            if let Err(source) = applied {
                return Err(self.refused(source));
            }
        }
        let changes = (delta.len() * self.ribs.len()) as u64;
        Ok(Applied { changes, own_s, ..Applied::default() })
    }

    pub(crate) fn refused(&self, source: EngineError) -> Fault {
        Fault::Engine { engine: self.engine.clone(), source }
    }
}

pub(crate) struct EngineTable {
    fed: Fed,
    call: usize,
}

impl EngineTable {
    pub(crate) fn new(writer: Box<dyn EngineWriter>, call: usize) -> Self {
        let rib = Rib::for_engine(writer.as_ref());
        Self { fed: Fed::new(writer, rib), call }
    }
}

impl Measurable for EngineTable {
    fn apply(&mut self, delta: &Routes) -> Result<Applied, Fault> {
        self.fed.apply(delta)
    }

    fn table_bytes(&self) -> u64 {
        self.fed.writer.stats().table_bytes
    }

    fn details(&self) -> Details {
        self.fed.writer.stats().details
    }

    fn looker(&mut self) -> Result<Box<dyn Looker>, Fault> {
        self.fed.looker(self.call)
    }
}

struct EngineLooker {
    engine: String,
    reader: Box<dyn EngineReader>,
    fibs: u32,
    out: Vec<NextHopId>,
}

impl EngineLooker {
    fn look_up(&mut self, keys: &KeySet, part: Range<usize>) -> Result<&[NextHopId], Fault> {
        let out = &mut self.out[..part.len()];
        let looked_up = match keys.fibs(part.clone()) {
            Some(fibs) if self.fibs > 1 => self.reader.lookup_in(fibs, keys.keys(part), out),
            _ => self.reader.lookup(keys.keys(part), out),
        };
        match looked_up {
            Ok(()) => Ok(out),
            Err(source) => Err(Fault::Engine { engine: self.engine.clone(), source }),
        }
    }
}

impl Looker for EngineLooker {
    fn sweep(&mut self, keys: &KeySet, range: Range<usize>, call: usize) -> Result<(), Fault> {
        for part in calls(range, call.min(self.out.len())) {
            black_box(self.look_up(keys, part)?);
        }
        Ok(())
    }

    fn answers(&mut self, keys: &KeySet, call: usize) -> Result<Vec<u32>, Fault> {
        let mut answers = Vec::with_capacity(keys.len());
        for part in calls(0..keys.len(), call.min(self.out.len())) {
            answers.extend(self.look_up(keys, part)?.iter().map(|id| id.get()));
        }
        Ok(answers)
    }

    fn fibs(&self) -> u32 {
        self.fibs
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tables::RouteSet;
    use fib::oracle::OracleEngine;
    use fib::traffic::Traffic;
    use fib::{EngineOptions, Family};

    pub(crate) fn empty_oracle(call: usize) -> EngineTable {
        EngineTable::new(Box::new(OracleEngine::new(&EngineOptions::default())), call)
    }

    pub(crate) fn oracle(tables: &RouteSet, family: Family, call: usize) -> EngineTable {
        let mut table = empty_oracle(call);
        table.apply(&tables.routes_of(family)).unwrap();
        table
    }

    /// A table with the right routes whose looker returns every 1000th answer wrong.
    pub(crate) struct Liar(pub(crate) EngineTable);

    struct LyingLooker(Box<dyn Looker>);

    impl Measurable for Liar {
        fn apply(&mut self, delta: &Routes) -> Result<Applied, Fault> {
            self.0.apply(delta)
        }
        fn table_bytes(&self) -> u64 {
            self.0.table_bytes()
        }
        fn details(&self) -> Details {
            self.0.details()
        }
        fn looker(&mut self) -> Result<Box<dyn Looker>, Fault> {
            Ok(Box::new(LyingLooker(self.0.looker()?)))
        }
    }

    impl Looker for LyingLooker {
        fn sweep(&mut self, keys: &KeySet, range: Range<usize>, call: usize) -> Result<(), Fault> {
            self.0.sweep(keys, range, call)
        }
        fn answers(&mut self, keys: &KeySet, call: usize) -> Result<Vec<u32>, Fault> {
            let mut answers = self.0.answers(keys, call)?;
            answers.iter_mut().step_by(1000).for_each(|answer| *answer += 1);
            Ok(answers)
        }
    }

    #[test]
    fn calls_cover_the_range_once() {
        let parts: Vec<_> = calls(3..10, 4).collect();
        assert_eq!(parts, [3..7, 7..10]);
        assert_eq!((calls(5..5, 4).count(), calls(0..3, 0).count()), (0, 3));
    }

    #[test]
    fn an_engine_answers_in_calls_of_any_size() {
        let tables = RouteSet::of_routes(&["10.0.0.0/8 1", "10.1.0.0/16 2", "2001:db8::/32 3"]);
        for family in [Family::V4, Family::V6] {
            let keys = KeySet::make(&Traffic::Table, family, &tables, 1000, 1, false).unwrap();
            let mut table = empty_oracle(256);
            let applied = table.apply(&tables.routes_of(family)).unwrap();
            assert_eq!(applied.changes, tables.routes(family) as u64);
            let mut looker = table.looker().unwrap();
            let whole = looker.answers(&keys, 256).unwrap();
            assert!(whole.len() == 1000 && !whole.contains(&0));
            assert_eq!(looker.answers(&keys, 7).unwrap(), whole);
            assert_eq!(looker.answers(&keys, 4096).unwrap(), whole);
            looker.sweep(&keys, 10..999, 256).unwrap();
        }
    }
}
