//! Faults become errors. A session of an engine (start, load, batches, updates, rebuild, stop) is repeated, each time with a
//! fault at another driver call, or in another operation on the device. An error that leaves the device usable may cost the
//! step it hit: answers keep coming from the current table, and a retry of the step works. After an error that ends the
//! context every call returns an error soon. There is no panic, hang, wrong answer, or leak. `FWD_CONFORMANCE=full` tries
//! every call and operation, otherwise a sample.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use common::{InPlaceEngine, is_full};
use fib::oracle::OraclePair;
use fib::random::Seeded;
use fib::{
    EngineError, EngineOptions, EngineReader, EngineWriter, Key, KeyBuffer, Keys, NextHopId, Prefix,
    Registry, Rib, Route, Routes, SlotId,
};
use lpm_gpu::cu::testing::{self, Mock};
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::task::Poll;
use std::time::{Duration, Instant};

const SLOTS: u16 = 3;
const BATCH_MAX: usize = 64;
const BATCHES: usize = 10;
const FIRST_CALLS: u64 = 8;
/// Longer than any session on a busy machine.
const SESSION_LIMIT: Duration = Duration::from_secs(120);
const BATCH_LIMIT: Duration = Duration::from_secs(60);

/// Random routes with distinct prefixes in few address ranges, so that they nest.
fn routes<K: Key>(
    random: &mut Seeded,
    count: usize,
    shortest: u8,
    key: fn(&mut Seeded) -> K,
) -> Vec<Route<K>> {
    let mut routes = BTreeMap::new();
    for _ in 0..count {
        let prefix = Prefix::truncating(key(random), random.between(shortest, K::BITS));
        routes.insert(prefix, NextHopId::from_answer(1 + random.u32() % 200));
    }
    routes.into_iter().map(|(prefix, next_hop)| Route { prefix, next_hop }).collect()
}

fn delta(random: &mut Seeded, v4: usize, v6: usize) -> Routes {
    // The upload of a /10 takes many similar calls, most of the time of a quick run.
    let shortest = if is_full() { 10 } else { 16 };
    Routes { v4: routes(random, v4, shortest, key_v4), v6: routes(random, v6, 16, key_v6) }
}

fn key_v4(random: &mut Seeded) -> u32 {
    10 << 24 | random.u32() >> 20 << 12 | random.u32() >> 20
}

fn key_v6(random: &mut Seeded) -> u128 {
    let mut below = |limit| random.below(limit) as u128;
    0x2001_0db8 << 96 | below(1 << 8) << 72 | below(1 << 8) << 60 | below(1 << 4)
}

fn draw(random: &mut Seeded, number: usize) -> KeyBuffer {
    let len = [BATCH_MAX, 1, 33][number % 3];
    if number.is_multiple_of(2) {
        (0..len).map(|_| key_v4(random)).collect()
    } else {
        (0..len).map(|_| key_v6(random)).collect()
    }
}

fn right(keys: Keys<'_>, at: usize, table: &OraclePair) -> NextHopId {
    let mut answer = [NextHopId::NONE];
    table.answer(keys.part(at..at + 1), &mut answer);
    answer[0]
}

struct Session {
    writer: Box<dyn EngineWriter>,
    rib: Rib,
    reader: Box<dyn EngineReader>,
    tables: Vec<OraclePair>,
    /// The batch in flight in each slot, and the generation at its submit.
    flying: Vec<Option<(KeyBuffer, usize)>>,
    random: Seeded,
    /// Table of a failed update. A batch in flight may have read a part of it, so its answers may come from either table.
    refused: Option<OraclePair>,
    /// Errors that left the device usable.
    survived: u32,
}

/// Whether the session continues after `error` of `step`: it must if the device is usable.
fn goes_on(step: &str, error: &EngineError, tries: &mut u32) -> bool {
    match error {
        EngineError::Device { lost: true, .. } => false,
        EngineError::Device { .. } | EngineError::Memory { .. } => {
            *tries += 1;
            assert!(*tries <= 2, "one fault, and {step} fails again and again: {error}");
            true
        }
        other => panic!("{step}: no error for a fault: {other:?}"),
    }
}

impl Session {
    fn start(name: &str, parameters: &[(&str, &str)]) -> Result<Self, EngineError> {
        let mut writer =
            Registry::new(&[lpm_gpu::ENGINES]).make(name, &EngineOptions::with_parameters(parameters))?;
        // Some sessions keep the keys in adopted memory.
        if parameters.iter().any(|(name, value)| *name == "mode" && *value != "copy" || *name == "frozen") {
            writer = Box::new(InPlaceEngine(writer));
        }
        let reader = writer.reader(SLOTS, BATCH_MAX)?;
        Ok(Self {
            writer,
            reader,
            rib: Rib::new(),
            tables: vec![OraclePair::default()],
            flying: (0..SLOTS).map(|_| None).collect(),
            random: Seeded::new(7, 0),
            refused: None,
            survived: 0,
        })
    }

    fn commit(&mut self, routes: &Routes) -> Result<(), EngineError> {
        self.rib.announce(routes);
        self.rib.commit_to(self.writer.as_mut()).map(drop)
    }

    fn apply(&mut self, step: &str, routes: &Routes) -> Result<(), EngineError> {
        let mut tries = 0;
        loop {
            let generation = self.writer.generation();
            match self.commit(routes) {
                Ok(()) => {
                    let mut next = self.tables.last().unwrap().clone();
                    next.announce(routes);
                    self.tables.push(next);
                    self.survived += tries;
                    return Ok(());
                }
                Err(error) => {
                    assert_eq!(self.writer.generation(), generation, "{step}: refused, and counted");
                    if !goes_on(step, &error, &mut tries) {
                        return Err(error);
                    }
                    // All or nothing: the old table stays in service.
                    let mut refused = self.tables.last().unwrap().clone();
                    refused.announce(routes);
                    self.refused = Some(refused);
                    self.all_slots(step)?;
                    self.refused = None;
                    for number in 0..2 {
                        self.submit(step, 0, number)?;
                        self.collect(step, 0)?;
                    }
                }
            }
        }
    }

    fn submit(&mut self, step: &str, slot: usize, number: usize) -> Result<(), EngineError> {
        let batch = draw(&mut self.random, number);
        let mut tries = 0;
        while let Err(error) = self.reader.submit(SlotId(u16::try_from(slot).unwrap()), batch.keys()) {
            if !goes_on(step, &error, &mut tries) {
                return Err(error);
            }
        }
        self.survived += tries;
        self.flying[slot] = Some((batch, self.tables.len() - 1));
        Ok(())
    }

    fn collect(&mut self, step: &str, slot: usize) -> Result<(), EngineError> {
        let Some((batch, first)) = self.flying[slot].take() else { return Ok(()) };
        let (start, mut tries) = (Instant::now(), 0);
        loop {
            match self.reader.collect(SlotId(u16::try_from(slot).unwrap()), batch.keys()) {
                Poll::Pending => {
                    assert!(start.elapsed() < BATCH_LIMIT, "{step}: a batch that never comes");
                    std::thread::yield_now();
                }
                Poll::Ready(Ok(answers)) => {
                    assert_eq!(answers.len(), batch.len(), "{step}");
                    for (at, answer) in answers.iter().enumerate() {
                        let known = self.tables[first..]
                            .iter()
                            .any(|table| right(batch.keys(), at, table) == *answer);
                        assert!(known, "{step}: key {at} answers {answer:?}, of no generation in between");
                    }
                    self.survived += tries;
                    return Ok(());
                }
                Poll::Ready(Err(error)) => {
                    if !goes_on(step, &error, &mut tries) {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn all_slots(&mut self, step: &str) -> Result<(), EngineError> {
        (0..usize::from(SLOTS)).try_for_each(|slot| self.collect(step, slot))
    }

    fn run(&mut self) -> Result<(), EngineError> {
        let load = delta(&mut self.random, 400, 120);
        self.apply("load", &load)?;
        for number in 0..BATCHES {
            let slot = number % usize::from(SLOTS);
            self.collect("batch", slot)?;
            self.submit("batch", slot, number)?;
            if [2, 4, 6].contains(&number) {
                let mut update = delta(&mut self.random, 12, 6);
                load.v4.iter().skip(number * 9).take(6).for_each(|change| {
                    if update.v4.iter().all(|other| other.prefix != change.prefix) {
                        update.v4.push(Route { next_hop: NextHopId::NONE, ..*change });
                    }
                });
                self.apply("update", &update)?;
            }
            if number == 8 {
                let growth = delta(&mut self.random, 2500, 700);
                self.apply("rebuild", &growth)?;
            }
        }
        self.all_slots("last batches")
    }

    fn check_lost(&mut self) {
        let start = Instant::now();
        for slot in 0..SLOTS {
            // An earlier batch may be collected or lost.
            let keys =
                self.flying[usize::from(slot)].as_ref().map_or(Keys::V4(&[]), |(batch, _)| batch.keys());
            let _in_flight = self.reader.collect(SlotId(slot), keys);
        }
        assert!(self.reader.submit(SlotId(0), Keys::V4(&[1, 2, 3])).is_err(), "a lost device takes a batch");
        let delta = delta(&mut self.random, 3, 3);
        assert!(self.commit(&delta).is_err(), "a lost device takes an update");
        assert!(self.writer.reader(1, 1).is_err(), "a lost device takes a reader");
        assert!(start.elapsed() < Duration::from_secs(20), "a lost device takes its time");
    }
}

/// A session's rebuilds and survived errors, or the error that ended it. A hang ends the process.
fn session(
    name: &'static str,
    parameters: &'static [(&'static str, &'static str)],
) -> Result<(f64, u32), EngineError> {
    let (done, over) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = Session::start(name, parameters).and_then(|mut session| match session.run() {
            Ok(()) => {
                let rebuilds = session.writer.stats().details.get("rebuilds").unwrap();
                Ok((rebuilds, session.survived))
            }
            Err(error) => {
                session.check_lost();
                Err(error)
            }
        });
        let _receiver_waits = done.send(());
        result
    });
    match over.recv_timeout(SESSION_LIMIT) {
        Err(mpsc::RecvTimeoutError::Timeout) => {
            eprintln!("a session hangs: {name} {parameters:?}");
            std::process::abort();
        }
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {
            thread.join().unwrap_or_else(|_| panic!("a session panics: {name} {parameters:?}"))
        }
    }
}

fn nothing_is_left(mock: Mock, after: &str) {
    let left = [mock.memory_used(), mock.host_used(), mock.registered()];
    assert_eq!(left, [0; 3], "memory left after {after}: on the device, page-locked, registered");
}

/// Injects a fault at every call of a session: `codes[0]` at a function's first call, `codes[1]` at its second, cyclically.
fn at_every_call(
    mock: Mock,
    name: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    codes: &[&[u32]],
) {
    let calls = mock.calls_of(|| {
        let (rebuilds, survived) = session(name, parameters).unwrap();
        assert!(rebuilds >= 1.0 && survived == 0, "{rebuilds} rebuilds, {survived} errors without a fault");
    });
    nothing_is_left(mock, "a session without a fault");
    let (mut tried, mut ended, mut survivors) = (0, 0, 0);
    for (call, count) in &calls {
        // The number of polls varies.
        let count = if call.ends_with("Query") { 5 } else { *count };
        let is_tried = |index: &u64| is_full() || *index < FIRST_CALLS || index % 4 == 1;
        let faults = (0..count).zip(codes.iter().cycle()).filter(|(index, _)| is_tried(index));
        for (code, index) in faults.flat_map(|(index, codes)| codes.iter().map(move |code| (*code, index))) {
            mock.fail_call(call, index, code);
            tried += 1;
            if std::env::var_os("FAULTS_LOG").is_some() {
                eprintln!("{code} at {call} {index}");
            }
            match session(name, parameters) {
                Ok((_, survived)) => survivors += survived,
                Err(
                    EngineError::Device { .. } | EngineError::Memory { .. } | EngineError::NoDevice { .. },
                ) => ended += 1,
                Err(other) => panic!("{code} at {call} {index}: {other:?}"),
            }
            mock.never_fail();
            if call == "cuDevicePrimaryCtxRelease_v2" {
                mock.reset_device(0); // the context after its failed release
            }
            nothing_is_left(mock, &format!("{code} at {call} {index}"));
        }
    }
    eprintln!("{name} {parameters:?}: {tried} faults, {ended} sessions ended, {survivors} errors survived");
    assert!(
        tried > 100 && ended > tried / 10 && survivors > 0,
        "{ended} ended, {survivors} survived of {tried}"
    );
    session(name, parameters).unwrap();
}

fn in_every_operation(mock: Mock, name: &'static str, parameters: &'static [(&'static str, &'static str)]) {
    let before = mock.operations();
    session(name, parameters).unwrap();
    let operations = mock.operations() - before;
    assert!(operations > 20, "{operations} operations");
    for index in (0..operations).step_by(if is_full() { 1 } else { 3 }) {
        mock.fail_operation(mock.operations() + index, if index % 2 == 0 { 700 } else { 719 });
        match session(name, parameters) {
            Err(EngineError::Device { lost: true, .. }) => {}
            // Only drops may wait for the last operations.
            Ok(_) if index + 4 > operations => {}
            other => panic!("operation {index} of {operations}: {other:?}"),
        }
        mock.never_fail();
        nothing_is_left(mock, &format!("a fault in operation {index}"));
    }
    session(name, parameters).unwrap();
}

const COPY: (&str, &str) = ("mode", "copy");

macro_rules! every_fault {
    ($($test:ident: $name:literal, $parameters:expr, $codes:expr;)*) => {
        $(
            #[test]
            fn $test() {
                let Some((_one, mock)) = testing::exclusive_mock() else { return };
                at_every_call(mock, $name, &$parameters, &$codes);
                in_every_operation(mock, $name, &$parameters);
            }
        )*
    };
}

every_fault! {
    gamt_by_copies: "gamt", [COPY, ("streams", "2"), ("headroom", "5")], [&[1, 700], &[2, 719]];
    gamt_by_mapped_memory: "gamt", [("mode", "mapped"), ("streams", "2"), ("headroom", "5")], [&[719], &[1]];
    gamt_resident: "gamt", [("mode", "persistent"), ("blocks", "2"), ("threads", "32"), ("headroom", "5")], [&[1, 719]];
    // The large direct table makes a session slow: one fault a call, alternately with a usable and a lost device. One warp runs operations:
    // more would not change the calls.
    gale: "gale", [COPY, ("streams", "2"), ("headroom", "5"), ("update-threads", "32")], [&[1], &[700]];
    sail: "sail-gpu", [COPY, ("streams", "2"), ("headroom", "5")], [&[700], &[1]];
    gamt_apart_and_frozen: "gamt", [COPY, ("next-hops", "apart"), ("frozen", "1"), ("streams", "1")], [&[1], &[700]];
}

#[test]
fn a_device_that_stalls_is_given_up() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    for mode in [&[("mode", "copy")][..], &[("mode", "persistent"), ("blocks", "1"), ("threads", "32")]] {
        let mut session = Session::start("gamt", mode).unwrap();
        let load = delta(&mut session.random, 100, 20);
        session.apply("load", &load).unwrap();
        session.submit("batch", 0, 0).unwrap();
        session.collect("batch", 0).unwrap();
        mock.set_stalled(1);
        session.submit("batch", 0, 0).unwrap();
        let (batch, _) = session.flying[0].as_ref().unwrap();
        assert!(session.reader.collect(SlotId(0), batch.keys()).is_pending(), "nothing moves");
        let update = delta(&mut session.random, 5, 5);
        let refused = session.commit(&update);
        assert!(matches!(refused, Err(EngineError::Device { lost: true, .. })), "{refused:?}");
        session.check_lost();
        drop(session);
        mock.set_stalled(0);
        mock.reset_device(0);
        nothing_is_left(mock, "a stall");
    }
}

/// A failed launch leaves no batch in flight, and a collected batch is over: neither delays the reuse of memory.
#[test]
fn a_batch_that_could_not_be_launched_holds_nothing_back() {
    let Some((_one, mock)) = testing::exclusive_mock() else { return };
    for mode in ["copy", "mapped"] {
        let mut session = Session::start("sail-gpu", &[("mode", mode)]).unwrap();
        session.submit("batch", 1, 0).unwrap();
        session.collect("batch", 1).unwrap();
        mock.fail_call("cuLaunchKernel", 0, 1);
        let refused = session.reader.submit(SlotId(0), Keys::V4(&[1, 2, 3]));
        assert!(matches!(refused, Err(EngineError::Device { lost: false, .. })), "{mode}: {refused:?}");
        let long = Prefix::truncating(0x0a00_0001_u32, 32);
        for next_hop in [NextHopId::new(1).unwrap(), NextHopId::NONE] {
            session.rib.v4.set(long, next_hop);
            session.commit(&Routes::new()).unwrap();
        }
        let waiting = session.writer.stats().details.get("sail_chunks_waiting").unwrap();
        assert_eq!(waiting, 0.0, "{mode}: chunks wait for a batch that is over or was never launched");
    }
}
