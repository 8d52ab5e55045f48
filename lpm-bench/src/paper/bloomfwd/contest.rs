//! The subjects of a figure: engines with an instruction set and parameters, over the routes of one family, built and checked, then measured.
//!
//! Subjects take turns with the same keys, round after round, so that variation of a shared host affects all equally. Threads share the keys of
//! a round as in the paper's OpenMP loops (`dynamic`, chunk 1: one call at a time), each pinned to a CPU. A rate is by wall time, from the
//! first thread's start to the last one's end. Rounds alternate between the keys of both seeds.

use crate::paper::bench::{
    Bench, Family, Fault, Fed, Figure, Isa, KeySet, Result, RouteSet, Spread, Stream, Value, json, with,
};
use crate::table::Looker;
use crate::threads::{Deal, Threads};
use crate::wanted::ENGINES;
use fib::{Details, EngineOptions, EngineWriter};
use lpm_phi::bloom;
use lpm_phi::miht;
use lpm_phi::variants::{BASELINE, NAIVE};
use serde_json::Map;
use std::time::Instant;

pub(super) const CALL: usize = 256;

#[derive(Clone, Debug)]
pub(super) struct ContestSubject {
    pub(super) name: String,
    pub(super) engine: &'static str,
    isa: Isa,
    parameters: Vec<(String, String)>,
}

impl ContestSubject {
    pub(super) fn new(name: String, engine: &'static str, isa: Isa, parameters: &[(&str, &str)]) -> Self {
        Self { name, engine, isa, parameters: EngineOptions::with_parameters(parameters).parameters }
    }

    pub(super) fn bloom(bench: &Bench, isa: Isa) -> Self {
        let parameters = bench.args.parameters.clone();
        Self { name: format!("bloom, {isa}"), engine: bloom::NAME, isa, parameters }
    }

    /// The engine `bloom` on each of `isas`, after the best instruction set of this CPU if that is not among them.
    pub(super) fn blooms(bench: &Bench, isas: &[Isa]) -> Vec<Self> {
        let best = [Isa::detect()].into_iter().filter(|best| !isas.contains(best));
        best.chain(isas.iter().copied()).map(|isa| Self::bloom(bench, isa)).collect()
    }

    pub(super) fn both(bench: &Bench, isas: &[Isa]) -> Vec<Self> {
        let blooms = Self::blooms(bench, isas).into_iter();
        blooms.chain(isas.iter().map(|isa| Self::bloomfwd(*isa))).collect()
    }

    pub(super) fn both_and_mihts(bench: &Bench, isas: &[Isa]) -> Vec<Self> {
        Self::both(bench, isas).into_iter().chain(Self::mihts()).collect()
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

    fn paper(name: String, engine: &'static str, isa: Isa, hash: &str) -> Self {
        let parameters = [("hash", hash), ("fpr", "0.3"), ("filters", "paper"), ("buckets", "even")];
        Self::new(name, engine, isa, &parameters)
    }

    /// The paper's, (16, 16) for IPv4 and (32, 32) for IPv6, one key at a time without prefetches (section 5.1); and ours, 64 keys at a time.
    pub(super) fn mihts() -> [Self; 2] {
        let parameters = [("k4", "16"), ("m4", "16"), ("k6", "32"), ("m6", "32")];
        let miht = |name: &str| Self::new(name.into(), miht::NAME, Isa::Scalar, &parameters);
        [miht("MIHT").with("descent", &"single"), miht("MIHT, 64 keys together")]
    }

    pub(super) fn with(mut self, name: &str, value: &dyn ToString) -> Self {
        self.parameters.retain(|(old, _)| old != name);
        self.parameters.push((name.to_owned(), value.to_string()));
        self
    }

    pub(super) fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    pub(super) fn engine(&self, table_bytes_max: u64) -> Result<Box<dyn EngineWriter>> {
        let options = EngineOptions {
            isa: Some(self.isa),
            table_bytes_max,
            parameters: self.parameters.clone(),
            ..EngineOptions::default()
        };
        ENGINES.make(self.engine, &options).map_err(Fault::refused_by(self.engine))
    }

    fn fields(&self) -> Value {
        let parameters: Map<_, Value> =
            self.parameters.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        json!({"name": self.name, "engine": self.engine, "isa": self.isa.to_string(), "parameters": parameters})
    }
}

/// The lines that figures compare with others: Bloomfwd on the first of `isas`, and `bloom` on the best of this CPU.
pub(super) fn leaders(bench: &Bench, isas: &[Isa]) -> [String; 2] {
    let first = isas.first().copied().unwrap_or(Isa::Scalar);
    [ContestSubject::bloomfwd(first).name, ContestSubject::bloom(bench, Isa::detect()).name]
}

pub(super) struct FilledEngine {
    pub(super) name: String,
    table: Fed,
    pub(super) details: Details,
    fields: Value,
}

impl FilledEngine {
    pub(super) fn row(&self, rate: &LookupRate) -> Value {
        let LookupRate { mlps, on_cpu, threads } = rate;
        let rate = json!({ "threads": threads, "mlps": mlps, "on_cpu": on_cpu, "clock": "wall" });
        with(self.fields.clone(), rate)
    }
}

/// Builds `subjects`, one a CPU at a time, and checks each on traffic from the table. One that refuses the table gets a row with the reason.
pub(super) fn build(
    bench: &Bench,
    figure: &mut Figure,
    tables: &RouteSet,
    family: Family,
    subjects: &[ContestSubject],
) -> Result<Vec<FilledEngine>> {
    let delta = tables.routes_of(family);
    let limit = bench.args.table_memory();
    let one = |subject: &ContestSubject| -> Result<FilledEngine> {
        let start = Instant::now();
        let table = Fed::filled(subject.engine(limit)?, &delta)?;
        let (build_s, stats) = (start.elapsed().as_secs_f64(), table.writer.stats());
        let built = json!({"table_bytes": stats.table_bytes, "build_s": build_s});
        let fields = with(subject.fields(), built);
        Ok(FilledEngine { name: subject.name.clone(), table, details: stats.details, fields })
    };
    let sample = bench.sample_of(tables, family)?;
    let mut built = Vec::new();
    for some in subjects.chunks(bench.host.cpus) {
        let made: Vec<_> = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for subject in some {
                bench.show_progress(format!("builds {}", subject.name));
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

/// Keys of the first measurement, whose rate determines the keys of a round.
const PROBE: usize = 64 * CALL;
/// Limit of passes over all keys in a round, since each includes a start of the threads.
const PASSES_MAX: usize = 8;
/// The warm-up is one key in this number: the subject before has evicted this one's tables from the caches.
const WARM_SHARE: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(super) struct LookupRate {
    pub(super) mlps: Spread,
    /// CPU seconds over wall seconds of a thread: below 1 other processes had its CPU.
    on_cpu: f64,
    pub(super) threads: usize,
}

/// Measures each of `built` with all CPUs, after a check. Adds rates to graph `panel` at `x`, and rows with the fields of `more`.
pub(super) fn show(
    bench: &Bench,
    figure: &mut Figure,
    (panel, x): (usize, f64),
    built: &mut [FilledEngine],
    data: (&RouteSet, &Stream),
    more: impl Fn(&FilledEngine) -> Value,
) -> Result<()> {
    let rates = run_counts(bench, figure, built, data, &[bench.threads_max()])?;
    for (one, rate) in built.iter().zip(rates.iter().flatten()) {
        figure.add(panel, &one.name, x, rate.mlps);
        figure.rows.push(with(one.row(rate), more(one)));
    }
    Ok(())
}

/// Measures each of `built` with each number of threads in `counts`, in turn, after a check: a rate for each.
pub(super) fn run_counts(
    bench: &Bench,
    figure: &mut Figure,
    built: &mut [FilledEngine],
    (tables, stream): (&RouteSet, &Stream),
    counts: &[usize],
) -> Result<Vec<Vec<LookupRate>>> {
    let sample = bench.sample(stream.of_round(0), tables);
    let cpus = crate::cpus_allowed();
    let mut all = Vec::new();
    for one in &*built {
        let contestant = |count: &usize| {
            let threads = Threads::new(*count, cpus, Deal::Calls(1), || one.table.looker(CALL))?;
            Ok(Contestant { threads, at: 0, mlps: Vec::new(), on_cpu: Vec::new() })
        };
        let mut contestants = counts.iter().map(contestant).collect::<Result<Vec<_>>>()?;
        if let Some(most) = contestants.iter_mut().max_by_key(|one| one.threads.threads()) {
            figure.check(&sample, &mut most.threads)?;
        }
        all.push(contestants);
    }
    for round in 0..bench.args.rounds() {
        for (contestants, one) in all.iter_mut().zip(&*built) {
            for contestant in contestants {
                let (count, traffic) = (contestant.threads.threads(), stream.traffic());
                bench.show_progress(format!("{}, {count} threads, {traffic}, round {}", one.name, round + 1));
                contestant.measure(stream.of_round(round), bench.args.seconds())?;
            }
        }
    }
    Ok(all.iter().map(|contestants| contestants.iter().map(Contestant::rate).collect()).collect())
}

struct Contestant {
    threads: Threads,
    at: usize,
    mlps: Vec<f64>,
    on_cpu: Vec<f64>,
}

impl Contestant {
    fn measure(&mut self, keys: &KeySet, seconds: f64) -> Result<()> {
        let probe = PROBE.min(keys.len());
        let (mlps, _) = self.sweep(keys, probe)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive count far below 2^53; saturates"
        )]
        let count = ((mlps * 1e6 * seconds) as usize).clamp(probe, PASSES_MAX * keys.len());
        self.sweep(keys, count / WARM_SHARE)?;
        let (mlps, on_cpu) = self.sweep(keys, count)?;
        self.mlps.push(mlps);
        self.on_cpu.push(on_cpu);
        Ok(())
    }

    /// Looks up about `count` keys from the end of the last sweep on. Returns millions of lookups a second, and CPU seconds over wall seconds.
    fn sweep(&mut self, keys: &KeySet, count: usize) -> Result<(f64, f64)> {
        let (mut done, mut wall_s, mut cpu_s) = (0, 0.0, 0.0);
        while done < count {
            let end = keys.len().min(self.at + count - done);
            let sweep = self.threads.timed(keys, self.at..end, CALL)?;
            done += end - self.at;
            self.at = end % keys.len().max(1);
            wall_s += sweep.took_s;
            cpu_s += sweep.took_s * sweep.on_cpu;
        }
        if wall_s <= 0.0 {
            return Err(Fault::Measurement(format!("{done} keys took no time")));
        }
        Ok((done as f64 / wall_s / 1e6, cpu_s / wall_s))
    }

    fn rate(&self) -> LookupRate {
        let on_cpu = Spread::of_rounds(&self.on_cpu).median;
        LookupRate { mlps: Spread::of_rounds(&self.mlps), on_cpu, threads: self.threads.threads() }
    }
}
