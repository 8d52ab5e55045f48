//! What a figure compares: an engine on an instruction set with parameters, over the routes of one family. It is built, and its answers
//! are checked, before it is timed.

use crate::paper::{Bench, Family, Fault, Fed, Figure, Isa, RouteSet, Value, json, with};
use crate::wanted::ENGINES;
use fib::{Details, EngineOptions, EngineWriter};
use lpm_phi::bloom;
use lpm_phi::coop::CoopEngine;
use lpm_phi::miht;
use lpm_phi::variants::{BASELINE, NAIVE};
use serde_json::Map;
use std::time::Instant;

/// Keys of a call, as in a forwarder's batch.
pub(super) const CALL: usize = 256;

/// An engine with its configuration, which a figure compares with others.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    /// The name of its line.
    pub(super) name: String,
    engine: &'static str,
    isa: Isa,
    parameters: Vec<(String, String)>,
}

impl Subject {
    /// The engine `engine` with `parameters`.
    pub(super) fn new(name: String, engine: &'static str, isa: Isa, parameters: &[(&str, &str)]) -> Self {
        Self { name, engine, isa, parameters: EngineOptions::of(parameters).parameters }
    }

    /// The engine `bloom`, with the parameters of `--engine-arg`.
    pub(super) fn bloom(bench: &Bench, isa: Isa) -> Self {
        let parameters = bench.args.parameters.clone();
        Self { name: format!("bloom, {isa}"), engine: bloom::NAME, isa, parameters }
    }

    /// The engine `bloom` on each of `isas`, and first on the best instruction set of this CPU if that is not among them.
    pub(super) fn blooms(bench: &Bench, isas: &[Isa]) -> Vec<Self> {
        let best = [Isa::detect()].into_iter().filter(|best| !isas.contains(best));
        best.chain(isas.iter().copied()).map(|isa| Self::bloom(bench, isa)).collect()
    }

    /// `bloom` and Bloomfwd on each of `isas`.
    pub(super) fn both(bench: &Bench, isas: &[Isa]) -> Vec<Self> {
        let mut subjects = Self::blooms(bench, isas);
        subjects.extend(isas.iter().map(|isa| Self::bloomfwd(*isa)));
        subjects
    }

    /// These, and MIHT.
    pub(super) fn both_and_mihts(bench: &Bench, isas: &[Isa]) -> Vec<Self> {
        let mut subjects = Self::both(bench, isas);
        subjects.extend(Self::mihts());
        subjects
    }

    /// Bloomfwd as in the paper: 30 % false positives by table 5, H2, and Murmur for IPv6 (section 6.2); greedy levels.
    pub(super) fn bloomfwd(isa: Isa) -> Self {
        Self::paper(format!("Bloomfwd, {isa}"), BASELINE, isa, "h2").with("dpcpe", &"greedy")
    }

    /// Section 3.2 with the C library's `rand`, unvectorised.
    pub(super) fn baseline() -> Self {
        Self::paper("Baseline".into(), BASELINE, Isa::Scalar, "rand")
    }

    /// A filter and table for each length (section 3.1).
    pub(super) fn naive(isa: Isa) -> Self {
        Self::paper(format!("Naive, {isa}"), NAIVE, isa, "h2")
    }

    /// In the paper's form where it differs from ours.
    fn paper(name: String, engine: &'static str, isa: Isa, hash: &str) -> Self {
        let parameters = [("hash", hash), ("fpr", "0.3"), ("filters", "paper"), ("buckets", "even")];
        Self::new(name, engine, isa, &parameters)
    }

    /// MIHT as in the paper: (16, 16) for IPv4, (32, 32) for IPv6, one key after the other without prefetches (section 5.1). And
    /// ours, in which 64 keys descend together.
    pub(super) fn mihts() -> [Self; 2] {
        let parameters = [("k4", "16"), ("m4", "16"), ("k6", "32"), ("m6", "32")];
        let miht = |name: &str| Self::new(name.into(), miht::NAME, Isa::Scalar, &parameters);
        [miht("MIHT").with("descent", &"single"), miht("MIHT, 64 keys together")]
    }

    /// Two engines that share each batch; the parameters `first` and `second` name them.
    pub(super) fn coop(isa: Isa) -> Self {
        Self::new("coop".into(), CoopEngine::NAME, isa, &[])
    }

    /// The same with a parameter set to `value`.
    pub(super) fn with(mut self, name: &str, value: &dyn ToString) -> Self {
        self.parameters.retain(|(old, _)| old != name);
        self.parameters.push((name.to_owned(), value.to_string()));
        self
    }

    /// The same under another name.
    pub(super) fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// An empty engine.
    pub(super) fn engine(&self, table_bytes_max: u64) -> Result<Box<dyn EngineWriter>, Fault> {
        let options = EngineOptions {
            isa: Some(self.isa),
            table_bytes_max,
            parameters: self.parameters.clone(),
            ..EngineOptions::default()
        };
        ENGINES.make(self.engine, &options).map_err(Fault::refused_by(self.engine))
    }

    /// The fields that describe it in rows.
    fn fields(&self) -> Value {
        let parameters: Map<_, Value> =
            self.parameters.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        json!({"name": self.name, "engine": self.engine, "isa": self.isa.to_string(), "parameters": parameters})
    }
}

/// The names of the two lines that figures compare with others: Bloomfwd on the first of `isas`, and `bloom` on the best of this CPU.
pub(super) fn leaders(bench: &Bench, isas: &[Isa]) -> [String; 2] {
    let first = isas.first().copied().unwrap_or(Isa::Scalar);
    [Subject::bloomfwd(first).name, Subject::bloom(bench, Isa::detect()).name]
}

/// A subject whose table is built.
pub(super) struct FilledEngine {
    pub(super) subject: Subject,
    pub(super) table: Fed,
    /// Bytes that lookups read.
    table_bytes: u64,
    /// Seconds to build it; others may have been built at the same time.
    build_s: f64,
    pub(super) details: Details,
}

impl FilledEngine {
    /// The fields of a row that every measurement has.
    pub(super) fn row(&self, more: Value) -> Value {
        let own = json!({"table_bytes": self.table_bytes, "build_s": self.build_s});
        with(with(self.subject.fields(), own), more)
    }
}

/// Builds `subjects` over the routes of `family` in `tables`, as many at a time as this host has CPUs, and checks each on
/// traffic drawn from the table. A subject that refuses the table gets a row with the reason, and is left out.
///
/// # Errors
/// Any fault besides a refusal.
pub(super) fn build(
    bench: &Bench,
    figure: &mut Figure,
    tables: &RouteSet,
    family: Family,
    subjects: &[Subject],
) -> Result<Vec<FilledEngine>, Fault> {
    let delta = tables.told_of(family);
    let limit = bench.args.table_memory();
    let one = |subject: &Subject| -> Result<FilledEngine, Fault> {
        let start = Instant::now();
        let table = Fed::filled(subject.engine(limit)?, &delta)?;
        let (build_s, stats) = (start.elapsed().as_secs_f64(), table.writer.stats());
        let (table_bytes, details) = (stats.table_bytes, stats.details);
        Ok(FilledEngine { subject: subject.clone(), table, table_bytes, build_s, details })
    };
    let sample = bench.sample_of(tables, family)?;
    let mut built = Vec::new();
    for some in subjects.chunks(bench.host.cpus) {
        let made: Vec<_> = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for subject in some {
                bench.tell(format!("builds {}", subject.name));
                threads.push(scope.spawn(|| one(subject)));
            }
            threads.into_iter().map(|thread| thread.join().map_err(Fault::panicked)).collect::<Result<_, _>>()
        })?;
        for (subject, made) in some.iter().zip(made) {
            match made {
                Ok(one) => {
                    figure.check(&sample, &mut *one.table.looker(CALL)?)?;
                    built.push(one);
                }
                Err(why) if why.is_refusal() => {
                    figure.rows.push(with(subject.fields(), json!({"refused": why.to_string()})));
                }
                Err(why) => return Err(why),
            }
        }
    }
    Ok(built)
}
