//! A second engine that takes over when the first fails: `--fallback`.
//!
//! [`Fallback`] looks like one engine. It holds two, both kept up to date with the same deltas, and [`Service`] says which of them
//! answers: the primary until it is absent, refuses a delta, fails, or keeps a batch longer than a limit; from then on, and for
//! good, the fallback. The datapath stays as it is: a [reader] keeps the keys of what is in flight, and looks them up
//! again on the fallback, so that no packet is lost.
//!
//! ```text
//! apply:   fallback first, then primary      a delta is refused only by the fallback, with nothing changed in either
//! submit:  primary, keys kept a slot         after the switch: fallback
//! collect: primary                           failed, stalled or switched: the kept keys to the fallback
//! ```
//! The promise on generations holds across the switch. While a delta goes in, either generation is right; once `apply` has
//! returned, whichever engine answers has the delta, because a primary that did not take it is out of service by then. What was
//! in flight is answered from the fallback as it is at `collect`.
//!
//! | module | what lives there |
//! |---|---|
//! | [`reader`] | both readers, and the keys in flight |
//! | [`primary`] | the primary's writer; one that may hang has a thread of its own |

mod primary;
mod reader;

use crate::notice::warn;
use fib::{EngineError, EngineInfo, EngineReader, EngineStats, EngineWriter, FibDelta, Generation, Rib};
use lpm_core::failover::{FIRST, Service, Why};
use primary::Primary;
use reader::FallbackReader;
use std::sync::Arc;
use std::time::Duration;

/// How long the primary may take over a delta or a reader. A full table is built in less on any host; lookups that stall
/// end the wait earlier.
const CONTROL_LIMIT: Duration = Duration::from_secs(60);

/// See the module.
pub(crate) struct Fallback {
    /// `None` when it could not be made.
    primary: Option<Primary>,
    fallback: Box<dyn EngineWriter>,
    service: Arc<Service>,
    stall: Duration,
    generation: Generation,
}

impl Fallback {
    /// `primary` with `fallback` behind it, both empty. `name` is the primary's; when it could not be made for a reason that
    /// [justifies it](is_device_trouble), the fallback is in service at once. `stall`: how long a batch may take.
    ///
    /// # Errors
    /// The error of `primary` when it is the user's to mend: an unknown name, a wrong parameter.
    pub(crate) fn new(
        name: &'static str,
        primary: Result<Box<dyn EngineWriter>, EngineError>,
        fallback: Box<dyn EngineWriter>,
        stall: Duration,
    ) -> Result<Self, EngineError> {
        let names = [name, fallback.info().name];
        let service = Service::new(names);
        service.listen(Box::new(move |_, why| {
            let [primary, fallback] = names;
            // May be an lcore: it does not wait for stderr (see `notice`).
            warn(format_args!("engine {primary} is out of service, {fallback} answers from now on: {why}"));
        }));
        let primary = match primary {
            Ok(primary) => Some(Primary::new(primary, &service)),
            Err(error) if is_device_trouble(&error) => {
                service.fail(FIRST, Why::Absent(error))?;
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Self { primary, fallback, service, stall, generation: Generation(0) })
    }

    /// Which engine answers, for reports; the [`FIRST`] is the primary.
    pub(crate) fn service(&self) -> Arc<Service> {
        Arc::clone(&self.service)
    }

    /// The primary, while it is in service.
    fn in_service(&self) -> Option<&Primary> {
        self.primary.as_ref().filter(|_| self.service.has(FIRST))
    }

    /// Asks the primary for something; when it does not give it, the fallback is in service from then on.
    fn ask<T: Send + 'static>(
        &self,
        during: &'static str,
        question: impl FnOnce(&mut dyn EngineWriter) -> Result<T, EngineError> + Send + 'static,
    ) -> Option<T> {
        self.given(self.in_service()?.ask(during, CONTROL_LIMIT, question))
    }

    /// What the primary gave; when it gave nothing, the fallback is in service from then on.
    fn given<T>(&self, answer: Result<T, Why>) -> Option<T> {
        // The fallback is never out of service, so the primary is not the last.
        answer.map_err(|why| self.service.fail(FIRST, why)).ok()
    }
}

/// Whether an engine that cannot be made has a device to blame: that is what a fallback is for.
fn is_device_trouble(error: &EngineError) -> bool {
    matches!(error, EngineError::NoDevice { .. } | EngineError::Device { .. } | EngineError::Memory { .. })
}

impl EngineWriter for Fallback {
    /// That of the engine in service, with the capacity of both while the primary is in service, and the families of both in any case.
    fn info(&self) -> EngineInfo {
        let mut fallback = self.fallback.info();
        let Some(Primary { info: primary, .. }) = &self.primary else { return fallback };
        fallback.families.retain(|family| primary.has_family(*family));
        if !self.service.has(FIRST) {
            return fallback;
        }
        EngineInfo {
            capacity: fallback.capacity.of_both(primary.capacity),
            families: fallback.families,
            wants_fewer_routes: fallback.wants_fewer_routes && primary.wants_fewer_routes,
            may_hang: false,
            ..primary.clone()
        }
    }

    /// As any engine's. A delta that the fallback cannot hold is refused; one that only the primary cannot hold puts the fallback
    /// in service.
    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        self.fallback.apply(delta, rib)?;
        if let Some(primary) = self.in_service() {
            self.given(primary.apply(CONTROL_LIMIT, delta, rib));
        }
        self.generation = self.generation.next();
        Ok(self.generation)
    }

    fn free_retired(&mut self) {
        self.fallback.free_retired();
        if let Some(primary) = self.in_service() {
            primary.free_retired();
        }
    }

    fn generation(&self) -> Generation {
        self.generation
    }

    /// Of the engine in service.
    fn stats(&self) -> EngineStats {
        self.ask("stats", |primary| Ok(primary.stats())).unwrap_or_else(|| self.fallback.stats())
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        let fallback = self.fallback.reader(slots, batch_max)?;
        match self.ask("reader", move |primary| primary.reader(slots, batch_max)) {
            Some(primary) => Ok(Box::new(FallbackReader::new(primary, fallback, self.service(), self.stall))),
            None => Ok(fallback),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::NextHopId;
    use fib::conformance::{self, Options};
    use fib::faulty::{Call, Faults, FaultyEngine, How};
    use fib::oracle::OracleEngine;
    use fib::{EngineOptions, Keys, SlotId};
    use lpm_phi::bloom;
    use lpm_phi::coop::params::Params;
    use lpm_phi::coop::{CoopEngine, Drive, First, Half};
    use std::sync::atomic::Ordering::SeqCst;
    use std::task::Poll;

    const STALL: Duration = Duration::from_millis(20);

    fn oracle() -> Box<dyn EngineWriter> {
        Box::new(OracleEngine::new(&EngineOptions::default()))
    }

    fn pair(faults: &Arc<Faults>) -> Fallback {
        Fallback::new("fake", Ok(Box::new(FaultyEngine::new(faults))), oracle(), STALL).unwrap()
    }

    fn set(rib: &mut Rib, engine: &mut Fallback, id: u32) -> Result<Generation, EngineError> {
        rib.set("10.0.0.0/8".parse().unwrap(), NextHopId::new(id).unwrap());
        rib.set("2001:db8::/32".parse().unwrap(), NextHopId::new(id + 1).unwrap());
        rib.commit_to(engine)
    }

    /// Polls a slot until it answers.
    fn collect(reader: &mut dyn EngineReader, slot: u16) -> Result<Vec<u32>, EngineError> {
        loop {
            if let Poll::Ready(answers) = reader.collect(SlotId(slot)) {
                return answers.map(|answers| answers.iter().map(|id| id.get()).collect());
            }
            std::thread::yield_now();
        }
    }

    const V4: Keys<'_> = Keys::V4(&[0x0a00_0001, 0x0b00_0001, 0x0aff_ffff]);

    #[test]
    fn a_healthy_primary_answers_and_the_suite_holds() {
        let faults = Arc::new(Faults::default());
        let engine = pair(&faults);
        let service = engine.service();
        let mut reader = engine.reader(2, 16).unwrap();
        reader.submit(SlotId(0), V4).unwrap();
        assert_eq!(collect(reader.as_mut(), 0).unwrap(), [0, 0, 0]);
        assert!(service.has(FIRST) && faults.calls(Call::Submit) == 1);
        assert_eq!((engine.info().name, service.why()[FIRST]), ("fake", None));
        let healthy =
            || -> Result<Box<dyn EngineWriter>, EngineError> { Ok(Box::new(pair(&Arc::default()))) };
        for group in
            [conformance::batches, conformance::withdraw, conformance::refusals, conformance::concurrent]
        {
            group(&healthy, Options::default());
        }
    }

    /// The writer runs on a thread of its own, for one half may hang; the other half asks the RIB for what inherits, and to build anew.
    #[test]
    fn a_primary_that_may_hang_and_asks_the_rib_answers_as_the_suite_wants() {
        let make = || -> Result<Box<dyn EngineWriter>, EngineError> {
            let options = EngineOptions::default();
            let device = FaultyEngine::new(&Arc::default());
            let half = |engine, drive| Half { engine, drive };
            let bloom = half(bloom::make(&options)?, Drive::Cpu);
            let params = Params::from_options(&EngineOptions {
                parameters: vec![("split".into(), "0.5".into()), ("stall-us".into(), "60000000".into())],
                ..options
            })?;
            let coop = CoopEngine::new(First::Engine(half(Box::new(device), Drive::Device)), bloom, params);
            assert!(coop.info().may_hang);
            Ok(Box::new(Fallback::new("coop", Ok(Box::new(coop)), oracle(), Duration::from_secs(60))?))
        };
        conformance::withdraw(&make, Options::default());
        conformance::random_tables(&make, Options::default());
    }

    #[test]
    fn the_suite_holds_whenever_the_primary_fails() {
        // Late in the session or early, in whatever it was doing; counted over all calls of the engine and its readers.
        for at in [0, 1, 2, 30, 1000] {
            for call in Call::ALL {
                let make = move || -> Result<Box<dyn EngineWriter>, EngineError> {
                    let faults = Arc::new(Faults::default());
                    faults.fail_from(call, at, How::Device);
                    Ok(Box::new(pair(&faults)))
                };
                conformance::batches(&make, Options::default());
                conformance::refusals(&make, Options::default());
                if at == 30 {
                    conformance::concurrent(&make, Options::default());
                }
            }
        }
    }

    #[test]
    fn what_is_in_flight_is_looked_up_again() {
        let mut rib = Rib::new();
        let faults = Arc::new(Faults::default());
        let mut engine = pair(&faults);
        let service = engine.service();
        set(&mut rib, &mut engine, 7).unwrap();
        let mut reader = engine.reader(4, 16).unwrap();
        faults.pending_polls.store(u64::MAX, SeqCst);
        for slot in 0..3 {
            reader.submit(SlotId(slot), V4).unwrap();
        }
        let (hi, lo) = ([0x2001_0db8_0000_0000, 1], [5, 6]);
        reader.submit(SlotId(3), Keys::V6 { hi: &hi, lo: &lo }).unwrap();
        assert!(reader.collect(SlotId(1)).is_pending());
        // News that come meanwhile are in the answers: the generation is that of the fallback at collect.
        set(&mut rib, &mut engine, 9).unwrap();
        faults.fail_from(Call::Collect, 0, How::Device);
        assert_eq!(collect(reader.as_mut(), 1).unwrap(), [9, 0, 9]);
        assert!(
            matches!(service.why()[FIRST], Some(Why::Failed { during: "collect", .. })),
            "{:?}",
            service.why()[FIRST]
        );
        for slot in [0, 2] {
            assert_eq!(collect(reader.as_mut(), slot).unwrap(), [9, 0, 9]);
        }
        assert_eq!(collect(reader.as_mut(), 3).unwrap(), [10, 0]);
        assert_eq!((service.looked_up_again(), engine.info().name), (11, "oracle"));
        // From now on the primary is not asked at all.
        let asked = faults.calls(Call::Submit);
        reader.submit(SlotId(0), V4).unwrap();
        assert_eq!(collect(reader.as_mut(), 0).unwrap(), [9, 0, 9]);
        set(&mut rib, &mut engine, 11).unwrap();
        let mut out = [NextHopId::NONE; 3];
        reader.lookup(V4, &mut out).unwrap();
        assert_eq!(out.map(NextHopId::get), [11, 0, 11]);
        assert_eq!((faults.calls(Call::Submit), engine.generation()), (asked, Generation(3)));
    }

    #[test]
    fn a_stall_moves_once_and_late_answers_are_not_taken() {
        let mut rib = Rib::new();
        let faults = Arc::new(Faults::default());
        let mut engine = pair(&faults);
        set(&mut rib, &mut engine, 1).unwrap();
        let (mut one, mut two) = (engine.reader(2, 16).unwrap(), engine.reader(2, 16).unwrap());
        faults.pending_polls.store(u64::MAX, SeqCst);
        one.submit(SlotId(0), V4).unwrap();
        two.submit(SlotId(1), V4).unwrap();
        assert_eq!(collect(one.as_mut(), 0).unwrap(), [1, 0, 1]);
        let service = engine.service();
        assert_eq!(service.why()[FIRST], Some(&Why::Stalled { during: "collect", limit_us: 20_000 }));
        // The other reader does not wait for its own limit.
        assert_eq!(two.collect(SlotId(1)), Poll::Ready(Ok(&[1, 0, 1].map(NextHopId::from_answer)[..])));
        // The primary wakes up with what was right long ago.
        set(&mut rib, &mut engine, 5).unwrap();
        faults.pending_polls.store(0, SeqCst);
        one.submit(SlotId(0), V4).unwrap();
        assert_eq!(collect(one.as_mut(), 0).unwrap(), [5, 0, 5]);
        assert_eq!(service.looked_up_again(), 6);
    }

    #[test]
    fn answers_that_are_only_late_do_not_move_it() {
        let mut rib = Rib::new();
        let faults = Arc::new(Faults::default());
        faults.pending_polls.store(100, SeqCst);
        let stall = Duration::from_secs(600);
        let mut engine =
            Fallback::new("fake", Ok(Box::new(FaultyEngine::new(&faults))), oracle(), stall).unwrap();
        set(&mut rib, &mut engine, 1).unwrap();
        let mut reader = engine.reader(2, 2).unwrap();
        let mut out = [NextHopId::NONE; 3];
        reader.lookup(V4, &mut out).unwrap();
        assert_eq!(out.map(NextHopId::get), [1, 0, 1]);
        assert!(engine.service().has(FIRST));
    }

    #[test]
    fn an_apply_that_fails_dies_or_hangs_moves_it_and_the_delta_is_in() {
        let mut rib = Rib::new();
        for (arm, wanted) in [
            ((|faults| faults.fail_from(Call::Apply, 0, How::Device)) as fn(&Faults), "apply failed"),
            (|faults| faults.die_in_apply.store(true, SeqCst), "apply broke an invariant"),
        ] {
            let faults = Arc::new(Faults::default());
            let mut engine = pair(&faults);
            set(&mut rib, &mut engine, 1).unwrap();
            let mut reader = engine.reader(1, 16).unwrap();
            reader.submit(SlotId(0), V4).unwrap();
            arm(&faults);
            assert_eq!(set(&mut rib, &mut engine, 2), Ok(Generation(2)));
            let why = engine.service().why()[FIRST].unwrap().to_string();
            assert!(why.starts_with(wanted), "{why}");
            // In flight since before: either generation is right.
            assert!(
                [[1, 0, 1], [2, 0, 2]].contains(&collect(reader.as_mut(), 0).unwrap().try_into().unwrap())
            );
            reader.submit(SlotId(0), V4).unwrap();
            assert_eq!(collect(reader.as_mut(), 0).unwrap(), [2, 0, 2]);
        }
        // A hang: the wait ends when a lookup stalls, long before its own limit.
        let faults = Arc::new(Faults::default());
        let mut engine = pair(&faults);
        let mut reader = engine.reader(1, 16).unwrap();
        faults.pending_polls.store(u64::MAX, SeqCst);
        reader.submit(SlotId(0), V4).unwrap();
        faults.hang_in_apply.store(true, SeqCst);
        let asking = std::thread::spawn(move || collect(reader.as_mut(), 0).map(|answers| (answers, reader)));
        assert_eq!(set(&mut rib, &mut engine, 3), Ok(Generation(1)));
        let (answers, mut reader) = asking.join().unwrap().unwrap();
        assert!([[0, 0, 0], [3, 0, 3]].contains(&answers.try_into().unwrap()));
        assert_eq!(engine.stats().routes_v4, 1);
        reader.submit(SlotId(0), V4).unwrap();
        assert_eq!(collect(reader.as_mut(), 0).unwrap(), [3, 0, 3]);
        faults.hang_in_apply.store(false, SeqCst);
    }

    #[test]
    fn a_delta_that_the_fallback_refuses_changes_neither() {
        let mut rib = Rib::new();
        let faults = Arc::new(Faults::default());
        let full = Arc::new(Faults::default());
        full.fail_from(Call::Apply, 1, How::Full);
        let fallback = Box::new(FaultyEngine::new(&full));
        let mut engine =
            Fallback::new("fake", Ok(Box::new(FaultyEngine::new(&faults))), fallback, STALL).unwrap();
        set(&mut rib, &mut engine, 3).unwrap();
        assert!(set(&mut rib, &mut engine, 1).is_err());
        assert_eq!((engine.generation(), faults.calls(Call::Apply)), (Generation(1), 1));
        assert!(engine.service().has(FIRST));
    }

    #[test]
    fn without_a_device_the_fallback_answers_from_the_start() {
        let mut rib = Rib::new();
        let absent = || EngineError::NoDevice { engine: "gamt", device: "GPU", reason: "no driver".into() };
        let mut engine = Fallback::new("gamt", Err(absent()), oracle(), STALL).unwrap();
        let service = engine.service();
        assert_eq!((engine.info().name, service.names()), ("oracle", ["gamt", "oracle"]));
        assert_eq!(service.why()[FIRST].unwrap().to_string(), absent().to_string());
        set(&mut rib, &mut engine, 4).unwrap();
        let mut reader = engine.reader(1, 16).unwrap();
        reader.submit(SlotId(0), V4).unwrap();
        assert_eq!(collect(reader.as_mut(), 0).unwrap(), [4, 0, 4]);
        // What the user has to mend is not hidden.
        let wrong =
            EngineError::Parameter { parameter: "layout", value: "x".into(), wanted: "flat or paper" };
        assert_eq!(Fallback::new("gamt", Err(wrong.clone()), oracle(), STALL).err(), Some(wrong));
    }
}
