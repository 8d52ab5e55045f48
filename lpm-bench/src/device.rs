//! Engines on a device: several threads, each with several batches in flight.
//!
//! A device needs many large batches, whose submission is limited by the host's memory traffic. So several threads share a sweep, each with a
//! reader and [`DeviceArgs::device_slots`] batches in flight, by wall time. A figure covers the way from keys to next hops in the caller's
//! memory. `coop` without a device is called like a CPU engine, with one blocking call a batch ([`Ask::Calls`]).

use crate::args::DeviceArgs;
use crate::clock::Clock;
use crate::fault::Fault;
use crate::keys::KeySet;
use crate::table::{Applied, Fed, Looker, Measurable, calls};
use crate::threads::{Deal, Threads};
use fib::{Details, EngineError, EngineReader, EngineWriter, NextHopId, Rib, Routes, SlotId};
use std::hint::black_box;
use std::ops::Range;
use std::task::Poll;
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Slots,
    Calls,
}

pub(crate) struct DeviceTable {
    fed: Fed,
    args: DeviceArgs,
    ask: Ask,
}

impl DeviceTable {
    pub(crate) fn new(writer: Box<dyn EngineWriter>, args: DeviceArgs, ask: Ask) -> Self {
        let device_slots = if ask == Ask::Calls { 1 } else { args.device_slots };
        let args = DeviceArgs { device_slots, ..args };
        let rib = Rib::for_engine(writer.as_ref());
        Self { fed: Fed::new(writer, rib), args, ask }
    }
}

impl Measurable for DeviceTable {
    fn apply(&mut self, delta: &Routes) -> Result<Applied, Fault> {
        self.fed.apply(delta)
    }

    fn table_bytes(&self) -> u64 {
        self.fed.writer.stats().table_bytes
    }

    fn details(&self) -> Details {
        self.fed.writer.stats().details.and(Details::new(&self.args))
    }

    fn looker(&mut self) -> Result<Box<dyn Looker>, Fault> {
        let lane = || -> Result<Box<dyn Looker>, Fault> {
            let reader = self.fed.reader(self.args.device_slots, self.args.device_batch)?;
            // A reader may have fewer and smaller slots than requested.
            let batch = self.args.device_batch.min(reader.batch_max()).max(1);
            let out = vec![NextHopId::NONE; if self.ask == Ask::Calls { batch } else { 0 }];
            let (engine, slots) = (self.fed.engine.clone(), reader.slots().max(1));
            Ok(Box::new(DeviceReader { engine, batch, slots, reader, ask: self.ask, out }))
        };
        let (threads, cpus) = (usize::from(self.args.device_threads), crate::cpus_allowed());
        Ok(Box::new(Threads::new(threads, cpus, Deal::Shares, lane)?))
    }
}

struct DeviceReader {
    engine: String,
    reader: Box<dyn EngineReader>,
    slots: u16,
    batch: usize,
    ask: Ask,
    out: Vec<NextHopId>,
}

impl DeviceReader {
    /// Looks up the keys of `range`; `take` gets the answers of each part, in order.
    fn run(
        &mut self,
        keys: &KeySet,
        range: Range<usize>,
        mut take: impl FnMut(&[NextHopId]),
    ) -> Result<(), Fault> {
        let (slots, mut parts) = (usize::from(self.slots), calls(range, self.batch));
        let done = match self.ask {
            Ask::Slots => in_flight(&mut *self.reader, keys, slots, parts, |_, answers| take(answers)),
            Ask::Calls => parts.try_for_each(|part| {
                let out = &mut self.out[..part.len()];
                self.reader.lookup(keys.keys(part), out).map(|()| take(out))
            }),
        };
        done.map_err(|source| Fault::Engine { engine: self.engine.clone(), source })
    }
}

impl Looker for DeviceReader {
    fn sweep(&mut self, keys: &KeySet, range: Range<usize>, _call: usize) -> Result<(), Fault> {
        self.run(keys, range, |answers| _ = black_box(answers))
    }

    fn answers(&mut self, keys: &KeySet, _call: usize) -> Result<Vec<u32>, Fault> {
        let mut answers = Vec::with_capacity(keys.len());
        self.run(keys, 0..keys.len(), |part| answers.extend(part.iter().map(|id| id.get())))?;
        Ok(answers)
    }

    fn clock(&self) -> Clock {
        Clock::Wall
    }

    fn grain(&self) -> usize {
        self.batch * usize::from(self.slots)
    }
}

/// Looks up `parts` of `keys`, with `slots` batches in flight. `take` gets each part's answers in order, and the time of its submission.
pub(crate) fn in_flight(
    reader: &mut dyn EngineReader,
    keys: &KeySet,
    slots: usize,
    mut parts: impl Iterator<Item = Range<usize>>,
    mut take: impl FnMut(Instant, &[NextHopId]),
) -> Result<(), EngineError> {
    let mut begun = vec![(Instant::now(), 0..0); slots];
    let (mut submitted, mut collected) = (0, 0);
    loop {
        if submitted - collected < slots
            && let Some(part) = parts.next()
        {
            begun[submitted % slots] = (Instant::now(), part.clone());
            reader.submit(slot(submitted, slots), keys.keys(part))?;
            submitted += 1;
            continue;
        }
        if submitted == collected {
            return Ok(());
        }
        let (start, part) = &begun[collected % slots];
        if let Poll::Ready(answers) = reader.collect(slot(collected, slots), keys.keys(part.clone())) {
            take(*start, answers?);
            collected += 1;
        } else {
            std::hint::spin_loop();
        }
    }
}

fn slot(number: usize, slots: usize) -> SlotId {
    SlotId(u16::try_from(number % slots).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::RouteSet;
    use fib::oracle::OracleEngine;
    use fib::traffic::Traffic;
    use fib::{EngineOptions, Family};

    #[test]
    fn threads_and_slots_cover_every_key_once_and_in_order() {
        let tables = RouteSet::of_routes(&["10.0.0.0/8 1", "10.1.0.0/16 2", "2001:db8::/32 3"]);
        for family in [Family::V4, Family::V6] {
            let keys = KeySet::make(&Traffic::Table, family, &tables, 1000, 1, false).unwrap();
            let mut plain = OracleEngine::new(&EngineOptions::default());
            let mut rib = Rib::new();
            rib.announce(&tables.routes_of(family));
            rib.commit_to(&mut plain).unwrap();
            let mut wanted = vec![NextHopId::NONE; 1000];
            plain.reader(1, 1000).unwrap().lookup(keys.keys(0..1000), &mut wanted).unwrap();
            let (slots, calls) = (Ask::Slots, Ask::Calls);
            for (device_batch, device_slots, device_threads, ask) in [
                (7, 3, 1, slots),
                (256, 2, 3, slots),
                (4096, 1, 8, slots),
                (7, 3, 1, calls),
                (256, 1, 3, calls),
            ] {
                let args = DeviceArgs { device_batch, device_slots, device_threads };
                let engine = OracleEngine::new(&EngineOptions::default());
                let mut table = DeviceTable::new(Box::new(engine), args, ask);
                table.apply(&tables.routes_of(family)).unwrap();
                let mut looker = table.looker().unwrap();
                let answers = looker.answers(&keys, 256).unwrap();
                assert!(answers.iter().zip(&wanted).all(|(got, wanted)| *got == wanted.get()));
                assert_eq!(answers.len(), 1000);
                looker.sweep(&keys, 10..999, 256).unwrap();
                looker.sweep(&keys, 5..5, 256).unwrap();
                assert_eq!(
                    (looker.clock(), table.details().get("device_slots").is_some()),
                    (Clock::Wall, true)
                );
            }
        }
    }
}
