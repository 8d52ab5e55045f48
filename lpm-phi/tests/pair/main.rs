//! Two engines in one, the engine `coop` and `--fallback`: the conformance suite, and halves that fail, are late or stall.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use fib::conformance::{self, Options};
use fib::faulty::{Call, Faults, FaultyEngine, How};
use fib::oracle::{OracleEngine, OraclePair};
use fib::{
    EngineError, EngineOptions, EngineReader, EngineWriter, Generation, Isa, KeyBuffer, Keys, NextHopId, Rib,
    SlotId,
};
use lpm_core::pair::fallback::Fallback;
use lpm_core::pair::{FIRST, Listener, Service, Why};
use lpm_phi::bloom;
use lpm_phi::coop::params::CoopParams;
use lpm_phi::coop::{CoopEngine, Drive, First, Half};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

/// A stall limit far longer than any batch takes, also on a host that is busy with other tests.
const PATIENT: (&str, &str) = ("stall-us", "30000000");

fn params(pairs: &[(&str, &str)]) -> CoopParams {
    CoopParams::from_options(&EngineOptions::with_parameters(pairs)).unwrap()
}

fn oracle() -> Box<dyn EngineWriter> {
    Box::new(OracleEngine::new(&EngineOptions::default()))
}

fn bloom(isa: Isa, table_bytes_max: u64) -> Result<Box<dyn EngineWriter>, EngineError> {
    let options = EngineOptions { isa: Some(isa), table_bytes_max, ..EngineOptions::default() };
    bloom::make(&options)
}

fn on_cpu(engine: Box<dyn EngineWriter>) -> Half {
    Half { engine, drive: Drive::Cpu }
}

fn on_device(engine: Box<dyn EngineWriter>) -> Half {
    Half { engine, drive: Drive::Device }
}

fn boxed(first: First, second: Half, pairs: &[(&str, &str)]) -> Result<Box<dyn EngineWriter>, EngineError> {
    Ok(Paired::coop(first, second, pairs).engine)
}

type Notifications = Arc<Mutex<Vec<(&'static str, Why)>>>;

fn listener(notifications: &Notifications) -> Listener {
    let notifications = Arc::clone(notifications);
    Box::new(move |name, why| notifications.lock().unwrap().push((name, why.clone())))
}

/// The place of a faulty device in a pair; the other half is the oracle.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    CoopFirst,
    CoopSecond,
    /// The first half; the second one is another device.
    CoopBoth,
    Primary,
}

impl Role {
    const ALL: [Self; 4] = [Self::CoopFirst, Self::CoopSecond, Self::CoopBoth, Self::Primary];

    /// A pair with a device in this role and the given stall limit; `split` is for `coop`.
    fn pair(self, faults: &Arc<Faults>, stall: (&str, &str), split: Option<&str>) -> Paired {
        let pairs: Vec<_> = [stall].into_iter().chain(split.map(|split| ("split", split))).collect();
        let device = FaultyEngine::new(faults);
        let second = match self {
            Self::Primary => {
                return Paired::fallback(device, oracle(), Duration::from_micros(stall.1.parse().unwrap()));
            }
            Self::CoopBoth => on_device(Box::new(FaultyEngine::new(&Arc::default()))),
            Self::CoopFirst | Self::CoopSecond => on_cpu(oracle()),
        };
        let (mut first, mut second) = (on_device(Box::new(device)), second);
        if self == Self::CoopSecond {
            std::mem::swap(&mut first, &mut second);
        }
        Paired::coop(First::Engine(first), second, &pairs)
    }
}

struct Paired {
    engine: Box<dyn EngineWriter>,
    service: Arc<Service>,
    notifications: Notifications,
}

impl Paired {
    fn coop(first: First, second: Half, pairs: &[(&str, &str)]) -> Self {
        let notifications = Notifications::default();
        let engine = CoopEngine::new(first, second, params(pairs)).with_listener(listener(&notifications));
        Self { service: engine.service(), engine: Box::new(engine), notifications }
    }

    fn fallback(device: FaultyEngine, fallback: Box<dyn EngineWriter>, stall: Duration) -> Self {
        let notifications = Notifications::default();
        let engine =
            Fallback::new("fake", Ok(Box::new(device)), fallback, stall, listener(&notifications)).unwrap();
        Self { service: engine.service(), engine: Box::new(engine), notifications }
    }

    fn loaded(&mut self) -> (Keyed, Box<dyn EngineReader>) {
        (Keyed::new(self.engine.as_mut()), self.engine.reader(3, 1024).unwrap())
    }
}

const ROOM: u64 = 4 << 30;

// Oracle on a helper thread, bloom on the caller's.
fib::conformance_tests!(oracle_and_bloom, || {
    boxed(First::Engine(on_cpu(oracle())), on_cpu(bloom(Isa::Scalar, ROOM)?), &[PATIENT])
});
// Two tables, and a fixed split that keeps both halves busy. Both pairs share the update code.
fib::conformance_tests!(bloom_and_bloom, lookups_alone, || {
    let first = First::Engine(on_cpu(bloom(Isa::detect(), ROOM)?));
    boxed(first, on_cpu(bloom(Isa::Scalar, ROOM)?), &[PATIENT, ("split", "0.5")])
});

#[test]
fn halves_that_are_devices_or_the_other_way_round_keep_the_contract() {
    for (role, split) in [(Role::CoopBoth, Some("0.3")), (Role::CoopSecond, None), (Role::Primary, None)] {
        let make = || {
            let faults = Arc::new(Faults::default());
            faults.pending_polls.store(3, SeqCst);
            Ok(role.pair(&faults, PATIENT, split).engine)
        };
        conformance::batches(&make, Options::default());
        conformance::refusals(&make, Options::default());
        conformance::concurrent(&make, Options::default());
        conformance::withdraw(&make, Options::default());
    }
}

/// The writer runs on a separate thread, as one half may hang; the other half asks the RIB for heirs, and to rebuild.
#[test]
fn a_primary_that_may_hang_and_asks_the_rib_answers_as_the_suite_wants() {
    let make = || -> Result<Box<dyn EngineWriter>, EngineError> {
        let device = on_device(Box::new(FaultyEngine::new(&Arc::default())));
        let bloom = on_cpu(bloom(Isa::detect(), ROOM)?);
        let coop = boxed(First::Engine(device), bloom, &[PATIENT, ("split", "0.5")])?;
        assert!(coop.info().may_hang);
        let patient = Duration::from_secs(60);
        Ok(Box::new(Fallback::new("coop", Ok(coop), oracle(), patient, listener(&Notifications::default()))?))
    };
    conformance::withdraw(&make, Options::default());
    conformance::random_tables(&make, Options::default());
}

/// One table, read by this thread and by a group of threads: the groups of the suite that mix readers, slots and deltas.
#[test]
fn a_group_over_the_same_table_keeps_the_contract() {
    let make = || boxed(First::Group, on_cpu(bloom(Isa::detect(), ROOM)?), &[PATIENT]);
    for group in [conformance::batches, conformance::withdraw, conformance::concurrent, conformance::refusals]
    {
        group(&make, Options::default());
    }
}

#[test]
fn splits_at_the_ends_keep_the_contract() {
    for split in ["0", "1", "0.01"] {
        let make = || boxed(First::Group, on_cpu(oracle()), &[PATIENT, ("split", split)]);
        conformance::batches(&make, Options::default());
    }
}

#[test]
fn memory_limits() {
    for separate in [true, false] {
        let make = |bytes: u64| {
            // Two tables share the limit equally.
            let each = if separate { bytes / 2 } else { bytes };
            let first =
                if separate { First::Engine(on_cpu(bloom(Isa::Scalar, each)?)) } else { First::Group };
            boxed(first, on_cpu(bloom(Isa::Scalar, each)?), &[PATIENT])
        };
        conformance::limited(&make, Options::default());
    }
}

#[test]
fn the_suite_holds_whenever_a_half_fails() {
    // Early or late, in any call; `at` counts the calls of the engine and of all its readers.
    let all = [0, 1, 30, 2, 1000];
    for at in all.into_iter().take(if Options::from_env().full { 5 } else { 3 }) {
        for call in Call::ALL {
            for role in Role::ALL {
                let make = move || {
                    let faults = Arc::new(Faults::default());
                    faults.fail_from(call, at, How::Device);
                    Ok(role.pair(&faults, PATIENT, None).engine)
                };
                conformance::refusals(&make, Options::default());
                if role == Role::Primary {
                    conformance::batches(&make, Options::default());
                } else if at == 1 {
                    conformance::withdraw(&make, Options::default());
                }
                if at == 30 && (role == Role::Primary || call != Call::Reader) {
                    conformance::concurrent(&make, Options::default());
                }
            }
        }
    }
}

/// Keys of both families, and their right answers by the routes of the last accepted delta.
struct Keyed {
    v4: KeyBuffer,
    v6: KeyBuffer,
    right: [Vec<NextHopId>; 2],
}

fn apply(engine: &mut dyn EngineWriter, id: impl Fn(u32) -> u32) -> Rib {
    let mut rib = Rib::new();
    for at in 0..256_u32 {
        for prefix in [format!("10.{at}.0.0/16"), format!("2001:db8:{at:x}::/48")] {
            rib.set(prefix.parse().unwrap(), NextHopId::new(id(at)).unwrap());
        }
    }
    rib.commit_to(engine).unwrap();
    rib
}

impl Keyed {
    fn new(engine: &mut dyn EngineWriter) -> Self {
        let oracle = OraclePair::from(&apply(engine, |at| at + 1));
        let order = (0..4096_u32).map(|at| at.wrapping_mul(2_654_435_761) >> 24);
        let v4: KeyBuffer = order.clone().map(|at| 10 << 24 | at << 16 | 7).collect();
        let v6: KeyBuffer = order.map(|at| 0x2001_0db8_u128 << 96 | u128::from(at) << 80 | 9).collect();
        let right = [&v4, &v6].map(|keys| {
            let mut right = vec![NextHopId::NONE; keys.len()];
            oracle.answer(keys.keys(), &mut right);
            right
        });
        Self { v4, v6, right }
    }

    fn keys(&self, v6: bool, from: usize, len: usize) -> Keys<'_> {
        let keys = if v6 { &self.v6 } else { &self.v4 };
        keys.keys().part(from..from + len)
    }

    fn check(&self, v6: bool, from: usize, answers: &[NextHopId], case: &str) {
        let right = &self.right[usize::from(v6)][from..from + answers.len()];
        assert_eq!(answers, right, "{case}: keys from {from}, IPv6 {v6}");
    }
}

fn collect(reader: &mut dyn EngineReader, slot: u16, keys: Keys<'_>) -> Result<Vec<NextHopId>, EngineError> {
    for polls in 1_u64.. {
        if let Poll::Ready(answers) = reader.collect(SlotId(slot), keys) {
            return answers.map(<[_]>::to_vec);
        }
        // A helper thread may need this CPU.
        if polls.is_multiple_of(64) {
            std::thread::yield_now();
        }
    }
    unreachable!("the number of polls has no end")
}

fn ask(keyed: &Keyed, reader: &mut dyn EngineReader, case: &str) {
    for len in [0, 1, 31, 32, 33, 100, 255, 256, 1000, 1024] {
        let keys = |slot: u16| keyed.keys(slot == 1, usize::from(slot) * 11, len);
        for slot in 0..3 {
            reader.submit(SlotId(slot), keys(slot)).unwrap();
        }
        for slot in [1, 2, 0] {
            let answers = collect(reader, slot, keys(slot)).unwrap();
            assert_eq!(answers.len(), len, "{case}");
            keyed.check(slot == 1, usize::from(slot) * 11, &answers, case);
            assert_eq!(collect(reader, slot, keys(slot)).unwrap(), answers, "{case}: second collect");
        }
    }
    for (v6, len) in [(false, 4096), (true, 4096), (false, 2500), (true, 1), (false, 0)] {
        let mut out = vec![NextHopId::MAX; len];
        reader.lookup(keyed.keys(v6, 0, len), &mut out).unwrap();
        keyed.check(v6, 0, &out, case);
    }
}

#[test]
fn order_is_kept_at_every_split_and_length() {
    for split in ["0", "0.1", "0.5", "0.77", "1"] {
        for threads in ["1", "2"] {
            let parameters = [PATIENT, ("split", split), ("threads", threads)];
            let mut engine = boxed(First::Group, on_cpu(oracle()), &parameters).unwrap();
            let keyed = Keyed::new(engine.as_mut());
            let mut reader = engine.reader(3, 1024).unwrap();
            for len in (0..=80).chain([127, 128, 129, 500, 1023, 1024]) {
                let keys = keyed.keys(len % 2 == 0, len, len);
                reader.submit(SlotId(2), keys).unwrap();
                keyed.check(len % 2 == 0, len, &collect(reader.as_mut(), 2, keys).unwrap(), split);
            }
            ask(&keyed, reader.as_mut(), split);
            let stats = engine.stats();
            let figure = |name: &str| stats.details.get(name).unwrap();
            let (first, second) = (figure("coop_first_keys"), figure("coop_second_keys"));
            let (share, wanted) = (first / (first + second), split.parse::<f64>().unwrap());
            assert!((share - wanted).abs() < 0.02, "split {split}: the first half had {share}");
            assert_eq!((figure("coop_first_out"), figure("coop_second_out")), (0.0, 0.0));
        }
    }
}

/// Every call of either half fails in turn: answers in flight and later ones are right, and the listener gets the reason once.
#[test]
fn an_error_at_any_call_leaves_the_other_half_to_finish() {
    for role in Role::ALL {
        for call in [Call::Submit, Call::Collect] {
            for at in 0..60 {
                let case = format!("{call:?} {at}, {role:?}");
                let faults = Arc::new(Faults::default());
                let mut pair = role.pair(&faults, PATIENT, Some("0.5"));
                let (keyed, mut reader) = pair.loaded();
                let Paired { mut engine, service, notifications } = pair;
                faults.fail_from(call, at, How::Device);
                ask(&keyed, reader.as_mut(), &case);
                if service.why() == [None, None] {
                    assert!(at > 30, "{case}: the half made too few calls");
                    break;
                }
                let calls = faults.calls(call);
                ask(&keyed, reader.as_mut(), &case);
                apply(engine.as_mut(), |_| 9);
                assert_eq!(faults.calls(call), calls, "{case}: the failed half is called again");
                let notifications = notifications.lock().unwrap();
                assert_eq!(notifications.len(), 1, "{case}: the listener is called once");
                assert!(
                    notifications[0].0 == "fake" && matches!(notifications[0].1, Why::Failed { .. }),
                    "{case}: {notifications:?}"
                );
                let name = if role == Role::Primary { "oracle" } else { "coop" };
                assert_eq!(engine.info().name, name, "{case}");
            }
        }
    }
}

#[test]
fn late_answers_are_waited_for_and_answers_that_never_come_are_not() {
    for pending in [1, 2, 10, 300, u64::MAX] {
        let stall = if pending == u64::MAX { ("stall-us", "2000") } else { PATIENT };
        for role in [Role::CoopFirst, Role::CoopBoth, Role::Primary] {
            let case = format!("{pending} polls, {role:?}");
            let faults = Arc::new(Faults::default());
            let mut pair = role.pair(&faults, stall, Some("0.5"));
            let (keyed, mut reader) = pair.loaded();
            faults.pending_polls.store(pending, SeqCst);
            ask(&keyed, reader.as_mut(), &case);
            let stalled = Why::Stalled { during: "collect", limit_us: 2000 };
            let why = pair.service.why()[FIRST].cloned();
            assert_eq!(why, (pending == u64::MAX).then_some(stalled), "{case}");
        }
    }
}

#[test]
fn a_discarded_batch_is_waited_for_and_not_answered() {
    for role in Role::ALL {
        let faults = Arc::new(Faults::default());
        let mut pair = role.pair(&faults, PATIENT, Some("0.5"));
        let (keyed, mut reader) = pair.loaded();
        for pending in [0, 5] {
            faults.pending_polls.store(pending, SeqCst);
            let keys = keyed.keys(true, 0, 100);
            reader.submit(SlotId(1), keys).unwrap();
            while reader.discard(SlotId(1)).map(Result::unwrap).is_pending() {
                std::thread::yield_now();
            }
            let none = reader.collect(SlotId(1), keys).map_ok(<[_]>::to_vec);
            let refused = Poll::Ready(Err(EngineError::Batch { keys: 100, limit: 0 }));
            assert_eq!(none, refused, "{role:?}");
            let keys = keyed.keys(false, 7, 64);
            reader.submit(SlotId(1), keys).unwrap();
            keyed.check(false, 7, &collect(reader.as_mut(), 1, keys).unwrap(), "after a discarded batch");
        }
        // A half that fails while its batch is discarded goes out of service; its keys are not looked up again.
        let again = pair.service.looked_up_again();
        reader.submit(SlotId(1), keyed.keys(false, 0, 100)).unwrap();
        faults.fail_from(Call::Collect, 0, How::Device);
        while reader.discard(SlotId(1)).map(Result::unwrap).is_pending() {
            std::thread::yield_now();
        }
        assert_eq!(pair.service.looked_up_again(), again, "{role:?}");
        let keys = keyed.keys(false, 3, 64);
        reader.submit(SlotId(1), keys).unwrap();
        keyed.check(false, 3, &collect(reader.as_mut(), 1, keys).unwrap(), "the other half");
    }
}

/// The half that wakes up later with stale answers is not used.
#[test]
fn a_stall_is_met_once_and_late_answers_are_not_taken() {
    for role in [Role::CoopFirst, Role::Primary] {
        let faults = Arc::new(Faults::default());
        let Paired { mut engine, service, .. } = role.pair(&faults, ("stall-us", "20000"), Some("1"));
        let keyed = Keyed::new(engine.as_mut());
        let (mut one, mut two) = (engine.reader(2, 16).unwrap(), engine.reader(2, 16).unwrap());
        faults.pending_polls.store(u64::MAX, SeqCst);
        let (v4, v6) = (keyed.keys(false, 0, 16), keyed.keys(true, 0, 16));
        one.submit(SlotId(0), v4).unwrap();
        two.submit(SlotId(1), v6).unwrap();
        assert!(one.collect(SlotId(0), v4).is_pending());
        keyed.check(false, 0, &collect(one.as_mut(), 0, v4).unwrap(), "one");
        assert_eq!(service.why()[FIRST], Some(&Why::Stalled { during: "collect", limit_us: 20_000 }));
        let Poll::Ready(answers) = two.collect(SlotId(1), v6) else { panic!("waits for its own limit") };
        keyed.check(true, 0, answers.unwrap(), "two");
        apply(engine.as_mut(), |_| 7777);
        faults.pending_polls.store(0, SeqCst);
        one.submit(SlotId(0), v4).unwrap();
        assert!(collect(one.as_mut(), 0, v4).unwrap().iter().all(|answer| answer.get() == 7777));
        assert_eq!(service.looked_up_again(), 32);
    }
}

#[test]
fn too_few_answers_a_thread_that_dies_and_one_that_hangs_leave_the_other_half_to_finish() {
    for trouble in ["short", "die", "hang"] {
        let faults = Arc::new(Faults::default());
        let drive = if trouble == "short" { Drive::Device } else { Drive::Cpu };
        let first = Half { engine: Box::new(FaultyEngine::new(&faults)), drive };
        let stall = if trouble == "hang" { ("stall-us", "2000") } else { PATIENT };
        let parameters = [stall, ("split", "0.5"), ("threads", "2")];
        let mut pair = Paired::coop(First::Engine(first), on_cpu(oracle()), &parameters);
        let (keyed, mut reader) = pair.loaded();
        match trouble {
            "short" => faults.short.store(true, SeqCst),
            "die" => faults.die.store(true, SeqCst),
            _ => faults.hang.store(true, SeqCst),
        }
        ask(&keyed, reader.as_mut(), trouble);
        match pair.service.why()[0] {
            Some(Why::Short { .. }) => assert_eq!(trouble, "short"),
            Some(Why::Died { .. }) => assert_eq!(trouble, "die"),
            Some(Why::Stalled { .. }) => assert_eq!(trouble, "hang"),
            other => panic!("{trouble}: {other:?}"),
        }
        let mut other = pair.engine.reader(1, 64).unwrap();
        let mut out = vec![NextHopId::NONE; 64];
        other.lookup(keyed.keys(false, 0, 64), &mut out).unwrap();
        keyed.check(false, 0, &out, "a reader made afterwards");
        drop((reader, other));
        faults.hang.store(false, SeqCst); // lets the thread end
    }
}

/// Two groups of threads over one table: if one fails during a lookup, in any way, the other finishes it.
#[test]
fn a_lookup_of_two_groups_survives_either() {
    for (trouble, half, split) in [
        ("fail", 0, None),
        ("fail", 1, None),
        ("die", 0, None),
        ("fail", 0, Some("0.5")),
        ("fail", 1, Some("0.5")),
        ("die", 0, Some("0.5")),
    ] {
        let case = format!("{trouble}, half {half}, split {split:?}");
        let faults = Arc::new(Faults::default());
        let pairs: Vec<_> = [PATIENT].into_iter().chain(split.map(|split| ("split", split))).collect();
        let mut pair = Paired::coop(First::Group, on_cpu(Box::new(FaultyEngine::new(&faults))), &pairs);
        let (keyed, mut reader) = pair.loaded();
        let service = pair.service;
        faults.reader.store(half, SeqCst); // the group's reader is made first
        let mut look = |v6| {
            let mut out = vec![NextHopId::MAX; 4096];
            reader.lookup(keyed.keys(v6, 0, 4096), &mut out).unwrap();
            keyed.check(v6, 0, &out, &case);
        };
        (0..100).for_each(|at| look(at % 2 == 0));
        assert_eq!(service.why(), [None, None], "{case}");
        match trouble {
            "fail" => faults.fail_from(Call::Submit, 0, How::Device),
            _ => faults.die.store(true, SeqCst),
        }
        // A group that claims no keys of a lookup does not fail in it, so look up until the failure shows.
        while service.why() == [None, None] {
            look(false);
        }
        (0..100).for_each(|at| look(at % 2 == 0));
        let why = service.why()[usize::try_from(half).unwrap()];
        match trouble {
            "fail" => assert!(matches!(why, Some(Why::Failed { .. })), "{case}: {why:?}"),
            _ => assert!(matches!(why, Some(Why::Died { .. })), "{case}: {why:?}"),
        }
        ask(&keyed, reader.as_mut(), &case);
    }
}

#[test]
fn the_last_half_stays_and_its_errors_are_the_callers() {
    let faults = [Arc::new(Faults::default()), Arc::new(Faults::default())];
    let half = |at: usize| on_device(Box::new(FaultyEngine::new(&faults[at])));
    let mut pair = Paired::coop(First::Engine(half(0)), half(1), &[PATIENT, ("split", "0.5")]);
    let (keyed, mut reader) = pair.loaded();
    faults[0].fail_from(Call::Submit, 0, How::Device);
    faults[1].fail_from(Call::Submit, faults[1].calls(Call::Submit), How::Device);
    let keys = keyed.keys(false, 0, 100);
    let mut asked = || reader.submit(SlotId(0), keys).map(|()| collect(reader.as_mut(), 0, keys));
    assert!(matches!(asked(), Err(EngineError::Device { .. }) | Ok(Err(EngineError::Device { .. }))));
    assert!(matches!(asked(), Err(EngineError::Device { .. }) | Ok(Err(EngineError::Device { .. }))));
    // The last half recovers and answers again.
    faults[1].fail_from(Call::Submit, u64::MAX, How::Device);
    keyed.check(false, 0, &asked().unwrap().unwrap(), "mended");
    assert!(pair.service.why()[0].is_some() && pair.service.why()[1].is_none());
}

#[test]
fn a_delta_is_taken_by_both_or_refused_whole_or_costs_the_half_that_fails() {
    let mut none = Rib::new();
    // The half with less room refuses first: nothing has changed, and both stay in service.
    let faults = Arc::new(Faults::default());
    let other = Arc::new(Faults::default());
    let smaller = on_device(Box::new(FaultyEngine::smaller(&faults)));
    let larger = on_device(Box::new(FaultyEngine::new(&other)));
    let mut engine = CoopEngine::new(First::Engine(smaller), larger, params(&[PATIENT]));
    let keyed = Keyed::new(&mut engine);
    faults.fail_from(Call::Apply, 0, How::Full);
    let applied = other.calls(Call::Apply);
    assert!(matches!(none.commit_to(&mut engine), Err(EngineError::Full { .. })));
    assert_eq!((engine.generation(), other.calls(Call::Apply)), (Generation(1), applied));
    assert_eq!(engine.service().why(), [None, None]);
    let mut reader = engine.reader(3, 1024).unwrap();
    ask(&keyed, reader.as_mut(), "after a refusal");
    // The smaller half accepts deltas again; then the larger one fails after it, and goes out of service.
    faults.fail_from(Call::Apply, u64::MAX, How::Full);
    other.fail_from(Call::Apply, 0, How::Full);
    assert_eq!(none.commit_to(&mut engine), Ok(Generation(2)));
    assert!(engine.service().why()[1].is_some() && engine.service().why()[0].is_none());
    ask(&keyed, reader.as_mut(), "one is out of service");
    // A refusal of the last half is returned to the caller.
    faults.fail_from(Call::Apply, 0, How::Device);
    assert!(none.commit_to(&mut engine).is_err());
    assert_eq!(engine.generation(), Generation(2));
}

/// Keys in flight on a half that misses a delta, or fails after it, are looked up again: their answers belong to the new generation.
#[test]
fn no_answer_of_a_half_that_missed_a_delta_is_given_out() {
    for role in [Role::CoopFirst, Role::Primary] {
        for call in [Call::Apply, Call::Collect] {
            let faults = Arc::new(Faults::default());
            let Paired { mut engine, service, .. } = role.pair(&faults, PATIENT, Some("1"));
            let keyed = Keyed::new(engine.as_mut());
            let mut reader = engine.reader(2, 256).unwrap();
            let keys = [keyed.keys(false, 0, 256), keyed.keys(true, 0, 100)];
            (0..).zip(keys).for_each(|(slot, keys)| reader.submit(SlotId(slot), keys).unwrap());
            faults.fail_from(call, 0, How::Device);
            apply(engine.as_mut(), |_| 7777);
            for slot in [1, 0] {
                let answers = collect(reader.as_mut(), slot, keys[usize::from(slot)]).unwrap();
                assert!(answers.iter().all(|answer| answer.get() == 7777), "{role:?} {call:?}");
            }
            assert_eq!((service.looked_up_again(), engine.generation()), (356, Generation(2)));
        }
    }
}

#[test]
fn a_primary_whose_apply_fails_dies_or_hangs_goes_and_the_delta_is_in() {
    for (trouble, wanted) in [
        ("fails", "apply failed"),
        ("dies", "apply broke an invariant"),
        // The wait ends when a lookup stalls, long before its limit.
        ("hangs", "collect took more than 20000 us"),
    ] {
        let faults = Arc::new(Faults::default());
        let Paired { mut engine, service, .. } = Role::Primary.pair(&faults, ("stall-us", "20000"), None);
        let keyed = Keyed::new(engine.as_mut());
        let mut reader = engine.reader(1, 256).unwrap();
        if trouble == "hangs" {
            faults.pending_polls.store(u64::MAX, SeqCst);
            faults.hang_in_apply.store(true, SeqCst);
        }
        reader.submit(SlotId(0), keyed.keys(false, 0, 256)).unwrap();
        match trouble {
            "fails" => faults.fail_from(Call::Apply, 0, How::Device),
            "dies" => faults.die_in_apply.store(true, SeqCst),
            _ => {}
        }
        let asked = &keyed;
        let ask = || collect(reader.as_mut(), 0, asked.keys(false, 0, 256));
        let answers = std::thread::scope(|scope| {
            let asking = scope.spawn(ask);
            apply(engine.as_mut(), |_| 7777);
            asking.join().unwrap().unwrap()
        });
        let why = service.why()[FIRST].unwrap().to_string();
        assert!(why.starts_with(wanted), "{why}");
        // In flight since before the delta: either generation is right.
        if answers.iter().any(|answer| answer.get() != 7777) {
            keyed.check(false, 0, &answers, trouble);
        }
        assert_eq!((engine.stats().routes_v4, engine.generation()), (256, Generation(2)));
        let keys = keyed.keys(false, 0, 256);
        reader.submit(SlotId(0), keys).unwrap();
        assert!(collect(reader.as_mut(), 0, keys).unwrap().iter().all(|answer| answer.get() == 7777));
        faults.hang_in_apply.store(false, SeqCst);
    }
}

#[test]
fn a_delta_that_the_fallback_refuses_changes_neither() {
    let [faults, full] = [(); 2].map(|()| Arc::new(Faults::default()));
    full.fail_from(Call::Apply, 1, How::Full);
    let (device, behind) = (FaultyEngine::new(&faults), Box::new(FaultyEngine::new(&full)));
    let Paired { mut engine, service, .. } = Paired::fallback(device, behind, Duration::from_secs(60));
    Keyed::new(engine.as_mut());
    assert!(Rib::new().commit_to(engine.as_mut()).is_err());
    assert_eq!((engine.generation(), faults.calls(Call::Apply)), (Generation(1), 1));
    assert!(service.has(FIRST));
}

#[test]
fn without_a_device_the_fallback_answers_from_the_start() {
    let absent = || EngineError::NoDevice { engine: "gamt", device: "GPU", reason: "no driver".into() };
    let notifications = Notifications::default();
    let make = |error| {
        Fallback::new("gamt", Err(error), oracle(), Duration::from_secs(60), listener(&notifications))
    };
    let mut engine = make(absent()).unwrap();
    let service = engine.service();
    assert_eq!((engine.info().name, service.names()), ("oracle", ["gamt", "oracle"]));
    assert_eq!(service.why()[FIRST].unwrap().to_string(), absent().to_string());
    assert_eq!(*notifications.lock().unwrap(), [("gamt", Why::Absent(absent()))]);
    let keyed = Keyed::new(&mut engine);
    ask(&keyed, engine.reader(3, 1024).unwrap().as_mut(), "the fallback");
    // An error that the user has to correct is reported.
    let wrong = EngineError::Parameter { parameter: "layout", value: "x".into(), wanted: "flat or paper" };
    assert_eq!(make(wrong.clone()).err(), Some(wrong));
}

/// The largest number of slots that can be requested leaves room for the slots of `lookup`.
#[test]
fn readers_of_very_many_slots_look_up() {
    let mut engine = boxed(First::Group, on_cpu(oracle()), &[PATIENT, ("split", "0.5")]).unwrap();
    let keyed = Keyed::new(engine.as_mut());
    let mut reader = engine.reader(u16::MAX, 64).unwrap();
    let mut out = vec![NextHopId::NONE; 200];
    reader.lookup(keyed.keys(false, 0, 200), &mut out).unwrap();
    keyed.check(false, 0, &out, "very many slots");
    let last = reader.slots() - 1;
    let keys = keyed.keys(true, 0, 64);
    reader.submit(SlotId(last), keys).unwrap();
    keyed.check(true, 0, &collect(reader.as_mut(), last, keys).unwrap(), "the last slot");
}

/// A dropped reader leaves no thread behind, with and without batches in flight, and also when one of its threads has died.
#[test]
fn a_reader_that_goes_takes_its_threads_along() {
    for (threads, in_flight, dies) in [("1", 0, false), ("3", 3, false), ("3", 3, true)] {
        let faults = Arc::new(Faults::default());
        let first = First::Engine(on_cpu(Box::new(FaultyEngine::new(&faults))));
        let parameters = params(&[PATIENT, ("split", "0.5"), ("threads", threads)]);
        let mut engine = CoopEngine::new(first, on_cpu(oracle()), parameters);
        let keyed = Keyed::new(&mut engine);
        let before = Arc::strong_count(&faults);
        let mut reader = engine.reader(3, 1024).unwrap();
        assert_eq!(Arc::strong_count(&faults), before + threads.parse::<usize>().unwrap());
        faults.die.store(dies, SeqCst);
        for slot in 0..in_flight {
            reader.submit(SlotId(slot), keyed.keys(false, 0, 1024)).unwrap();
        }
        drop(reader);
        assert_eq!(Arc::strong_count(&faults), before, "{threads} threads, {in_flight} in flight");
    }
}

#[test]
fn a_cpu_that_is_not_there_is_the_users_to_mend() {
    let engine = boxed(First::Group, on_cpu(oracle()), &[("cpus", "4000")]).unwrap();
    let Err(error) = engine.reader(1, 64) else { panic!("pinned to CPU 4000") };
    assert!(matches!(error, EngineError::Parameter { parameter: "cpus", .. }), "{error}");
}
