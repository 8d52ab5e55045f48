//! The CPU engines against a plain longest-prefix match, looked up after each delta. A refused delta must change nothing.
//!
//! An engine is reused after withdrawing everything, since making one takes longer than most executions. So a failure may depend on earlier
//! inputs: if `FUZZ_HISTORY` names a folder, these are written there on a panic; run the target with them in the same order.

use crate::bytes::Bytes;
use crate::changes::{ExpectedRoutes, changes};
use fib::{
    EngineError, EngineOptions, EngineReader, EngineWriter, Family, Generation, Isa, Key, KeyBuffer, Keys,
    NextHopId, Registry, Rib, Routes, SlotId,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Mutex, Once, PoisonError};
use std::task::Poll;

/// Limits on table bytes: practically none, or hardly more than empty tables.
const ROOMY: u64 = 4 << 30;
const TIGHT: u64 = 0;
/// For engines that expand short IPv6 prefixes to few levels: with a higher limit, a sequence of deltas fills gigabytes.
const EXPANDED: u64 = 32 << 20;
/// Step by which the limit of a tight engine is raised until empty tables fit.
const TIGHT_STEP: u64 = 96 << 10;

/// Engine, instruction set, parameters and limit on table bytes.
type Subject = (&'static str, Option<Isa>, &'static [(&'static str, &'static str)], u64);

const SUBJECTS: [Subject; 30] = [
    ("bloom", Some(Isa::Scalar), &[], ROOMY),
    ("bloom", Some(Isa::Avx2), &[], ROOMY),
    ("bloom", Some(Isa::Avx512f), &[], ROOMY),
    ("bloom", Some(Isa::Scalar), &[("fpr", "0.9"), ("dense", "17"), ("hash", "murmur")], ROOMY),
    ("bloom", Some(Isa::Avx512f), &[("fpr", "0.9"), ("dense", "1"), ("hash", "murmur")], ROOMY),
    ("bloom", Some(Isa::Avx2), &[("fpr", "0.01"), ("dense", "3"), ("hash", "h2")], ROOMY),
    ("bloom", None, &[], TIGHT),
    ("bloom-naive", Some(Isa::Scalar), &[], EXPANDED),
    ("bloom-naive", Some(Isa::Avx512f), &[("hash", "murmur")], TIGHT),
    ("bloom-baseline", Some(Isa::Scalar), &[], EXPANDED),
    ("bloom-baseline", Some(Isa::Avx512f), &[("hash", "h2"), ("levels", "auto")], EXPANDED),
    ("bloom-baseline", Some(Isa::Scalar), &[("levels", "3"), ("fpr", "0.9")], EXPANDED),
    ("miht", None, &[], ROOMY),
    ("miht", None, &[("k4", "3"), ("m4", "3"), ("k6", "5"), ("m6", "3"), ("descent", "single")], ROOMY),
    ("miht", None, &[("k4", "32"), ("m4", "3"), ("k6", "128"), ("m6", "4")], TIGHT),
    (
        "coop",
        None,
        &[("first", "miht"), ("second", "bloom"), ("split", "0.5"), ("stall-us", "60000000")],
        ROOMY,
    ),
    (
        "coop",
        None,
        &[("first", "group"), ("second", "bloom"), ("split", "0.5"), ("stall-us", "60000000")],
        ROOMY,
    ),
    ("bloom", Some(Isa::Scalar), &[("fpr", "0.5")], TIGHT),
    ("host", Some(Isa::Scalar), &[], ROOMY),
    ("host", Some(Isa::Avx2), &[("code-bits", "16")], ROOMY),
    ("host", Some(Isa::Avx512f), &[("gather", "no")], ROOMY),
    ("host", Some(Isa::Avx512f), &[("code-bits", "32"), ("popcount", "arithmetic")], ROOMY),
    ("host", None, &[], TIGHT),
    ("sail-b", None, &[], ROOMY),
    ("sail-u", None, &[], ROOMY),
    ("sail-l", None, &[], ROOMY),
    ("sail-l", Some(Isa::Scalar), &[("layout", "paper")], TIGHT),
    ("sail-m", None, &[("fibs", "2")], ROOMY),
    ("mamt", Some(Isa::Avx512f), &[], TIGHT),
    ("mamt", Some(Isa::Scalar), &[("levels", "6"), ("levels6", "20"), ("headroom", "0")], ROOMY),
];
const USES_MAX: usize = 1000;
const BATCH_MAX: usize = 64;
const DELTAS_MAX: usize = 48;

static HISTORY: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

const ENGINES: Registry = Registry::new(&[lpm_cpu::ENGINES, lpm_phi::ENGINES, lpm_gpu::ENGINES]);

struct DeltaRig {
    writer: Box<dyn EngineWriter>,
    reader: Box<dyn EngineReader>,
    rib: Rib,
    v4: ExpectedRoutes<u32>,
    v6: ExpectedRoutes<u128>,
    turn: usize,
    history: Vec<Vec<u8>>,
}

impl DeltaRig {
    /// `None` on a CPU without the instruction set.
    fn new(number: usize) -> Option<Self> {
        let (name, isa, parameters, table_bytes_max) = SUBJECTS[number];
        if isa.is_some_and(|isa| !isa.is_available()) {
            return None;
        }
        let within = |table_bytes_max| {
            let options = EngineOptions {
                isa,
                table_bytes_max,
                huge_pages: false,
                ..EngineOptions::with_parameters(parameters)
            };
            ENGINES.make(name, &options)
        };
        let mut writer = within(ROOMY).unwrap();
        if table_bytes_max == TIGHT {
            let bytes = writer.stats().table_bytes;
            // Engines count differently against their limit, so the lowest one is found by trial.
            writer = (1..).find_map(|step| within(bytes + step * TIGHT_STEP).ok()).unwrap();
        }
        let reader = writer.reader(2, BATCH_MAX).unwrap();
        Some(Self {
            writer,
            reader,
            rib: Rib::new(),
            v4: ExpectedRoutes::default(),
            v6: ExpectedRoutes::default(),
            turn: 0,
            history: Vec::new(),
        })
    }

    fn apply(&mut self, delta: &Routes) {
        let before = self.writer.generation();
        self.rib.announce(delta);
        match self.rib.commit_to(self.writer.as_mut()) {
            Ok(generation) => {
                assert_eq!(generation, Generation(before.0 + 1));
                self.v4.apply(&delta.v4);
                self.v6.apply(&delta.v6);
            }
            Err(EngineError::Full { used, limit, .. }) => {
                assert!(used > limit);
                assert_eq!(self.writer.generation(), before, "a refused delta makes no generation");
            }
            Err(error) => panic!("{}: {error}", self.writer.info().name),
        }
        let stats = self.writer.stats();
        assert_eq!((self.rib.v4.len(), self.rib.v6.len()), (self.v4.0.len(), self.v6.0.len()));
        let routes = (self.rib.v4.used_len() as u64, self.rib.v6.used_len() as u64);
        assert_eq!((stats.routes_v4, stats.routes_v6), routes, "{}: routes", self.writer.info().name);
        let (keys4, keys6) = (self.v4.keys(&delta.v4), self.v6.keys(&delta.v6));
        let answers = self.ask(Keys::V4(&keys4));
        self.compare(&self.v4, &keys4, &answers);
        let answers = self.ask(keys6.iter().copied().collect::<KeyBuffer>().keys());
        self.compare(&self.v6, &keys6, &answers);
    }

    fn compare<K: Key>(&self, table: &ExpectedRoutes<K>, keys: &[K], answers: &[NextHopId]) {
        for (key, answer) in keys.iter().zip(answers) {
            let (name, isa) = (self.writer.info().name, self.writer.info().isa);
            assert_eq!(*answer, table.lookup(*key), "{name} {isa}: {} {table:?}", key.to_ip());
        }
    }

    fn ask(&mut self, keys: Keys<'_>) -> Vec<NextHopId> {
        self.turn += 1;
        let mut answers = vec![NextHopId::MAX; keys.len()];
        if self.turn.is_multiple_of(2) {
            self.reader.lookup(keys, &mut answers).unwrap();
            return answers;
        }
        let batch = [BATCH_MAX, 1 + self.turn % BATCH_MAX][self.turn / 2 % 2];
        for (number, start) in (0..answers.len()).step_by(batch).enumerate() {
            let end = answers.len().min(start + batch);
            let slot = SlotId(u16::try_from(number % 2).unwrap());
            let part = keys.part(start..end);
            self.reader.submit(slot, part).unwrap();
            loop {
                if let Poll::Ready(found) = self.reader.collect(slot, part) {
                    answers[start..end].copy_from_slice(found.unwrap());
                    break;
                }
                std::thread::yield_now();
            }
        }
        answers
    }
}

/// Applies deltas to one engine.
pub fn deltas(data: &[u8]) {
    thread_local!(static RIGS: RefCell<HashMap<usize, DeltaRig>> = RefCell::new(HashMap::new()));
    write_history_on_panic();
    let mut input = Bytes(data);
    let number = input.below(SUBJECTS.len());
    RIGS.with_borrow_mut(|rigs| {
        let rig =
            rigs.remove(&number).filter(|rig| rig.history.len() < USES_MAX).or_else(|| DeltaRig::new(number));
        let Some(mut rig) = rig else { return };
        rig.history.push(data.to_vec());
        HISTORY.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&rig.history);
        let families = ENGINES.find(SUBJECTS[number].0).unwrap().families;
        let id_max = rig.writer.info().capacity.next_hop_id_max;
        for _ in 0..DELTAS_MAX {
            if input.is_empty() {
                break;
            }
            let v4 = changes(&mut input, id_max);
            let v6 = if families.contains(&Family::V6) { changes(&mut input, id_max) } else { Vec::new() };
            rig.apply(&Routes { v4, v6 });
        }
        rig.apply(&Routes { v4: rig.v4.withdrawn(), v6: rig.v6.withdrawn() });
        assert!(rig.v4.0.is_empty() && rig.v6.0.is_empty(), "a withdraw was refused");
        rigs.insert(number, rig);
    });
}

/// Installs the panic hook for `FUZZ_HISTORY`. It runs before libFuzzer's hook, which ends the process.
fn write_history_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Some(folder) = std::env::var_os("FUZZ_HISTORY") else { return };
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let history = HISTORY.lock().unwrap_or_else(PoisonError::into_inner);
            for (number, input) in history.iter().enumerate() {
                let path = std::path::Path::new(&folder).join(format!("deltas-{number:03}"));
                if let Err(error) = std::fs::write(&path, input) {
                    eprintln!("{}: {error}", path.display());
                }
            }
            next(info);
        }));
    });
}
