//! The engines of the figures over a device, and a measurement of one: batches in flight, on a number of threads that depends on the batch.

use crate::paper::bench::{
    Bench, CHECKED, DataSet, EngineError, Family, Fault, Fed, Figure, HopSource, Isa, KeySet, Result, Spread,
    Stream, Value, json, with,
};
use crate::paper::drive::{Driven, Load, drive};
use crate::wanted::ENGINES;
use fib::EngineReader;

const BATCH_A_THREAD_MIN: usize = 64 << 10;
/// Limit of the keys in flight: page-locked memory takes long to allocate.
const KEYS_IN_FLIGHT_MAX: usize = 64 << 20;

type Parameters = &'static [(&'static str, &'static str)];

#[derive(Clone, Copy, Debug)]
pub(super) struct FigureEngine {
    pub(super) engine: &'static str,
    pub(super) family: Family,
    pub(super) name: &'static str,
    /// `None` is an engine on a device.
    pub(super) isa: Option<Isa>,
    parameters: Parameters,
    /// In its paper's form, which cannot hold every table.
    is_papers: bool,
}

const fn on_device(name: &'static str, engine: &'static str, parameters: Parameters) -> FigureEngine {
    FigureEngine { engine, family: Family::V4, name, isa: None, parameters, is_papers: false }
}

const fn of_paper(as_here: FigureEngine, name: &'static str, parameters: Parameters) -> FigureEngine {
    FigureEngine { name, parameters, is_papers: true, ..as_here }
}

const fn on_cpu(on_device: FigureEngine, engine: &'static str, isa: Isa, name: &'static str) -> FigureEngine {
    FigureEngine { engine, isa: Some(isa), name, ..on_device }
}

// The paper's best levels.
pub(super) const GAMT: FigureEngine = on_device("GAMT, IPv4", "gamt", &[("levels", "6")]);
pub(super) const GAMT6: FigureEngine =
    FigureEngine { family: Family::V6, ..on_device("GAMT, IPv6", "gamt", &[("levels6", "20")]) };
pub(super) const GAMT_PAPER: FigureEngine =
    of_paper(GAMT, "GAMT, IPv4, paper's layout", &[("layout", "paper"), ("levels", "6")]);
pub(super) const GALE: FigureEngine = on_device("GALE", "gale", &[]);
/// The poster's form: one load a lookup, with the routes up to /24.
pub(super) const GALE_PAPER: FigureEngine = of_paper(GALE, "GALE, one stage, up to /24", &[("stages", "1")]);
pub(super) const SAIL: FigureEngine = on_device("SAIL_L", "sail-gpu", &[]);
pub(super) const SAIL_PAPER: FigureEngine = of_paper(SAIL, "SAIL_L, paper's layout", &[("layout", "paper")]);
/// A batch is divided among the bench's threads.
pub(super) const SAIL_CPU: FigureEngine = on_cpu(SAIL, "sail-l", Isa::Scalar, "SAIL_L, CPU");
/// As in the paper: scalar code, a batch divided among a thread for each CPU (section 5.1.2).
pub(super) const MAMT: FigureEngine = on_cpu(GAMT, "mamt", Isa::Scalar, "MAMT");
pub(super) const MAMT6: FigureEngine = on_cpu(GAMT6, "mamt", Isa::Scalar, "MAMT, IPv6");
pub(super) const MAMT_VECTORS: FigureEngine = on_cpu(GAMT, "mamt", Isa::Avx512f, "MAMT, avx512f");
pub(super) const MAMT6_VECTORS: FigureEngine = on_cpu(GAMT6, "mamt", Isa::Avx512f, "MAMT, IPv6, avx512f");

/// GAMT and GALE in the form of their papers, whose numbers come first, and in ours.
pub(super) const FORMS: [(&str, FigureEngine, FigureEngine); 2] =
    [("", GAMT_PAPER, GALE_PAPER), ("as here", GAMT, GALE)];

pub(super) type Parameter = (&'static str, String);

impl FigureEngine {
    pub(super) fn parameters(self) -> Vec<Parameter> {
        self.parameters.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
    }

    /// The part of `set` that it can hold, unless it can hold all routes.
    pub(super) fn part_of(self, set: &DataSet) -> Option<DataSet> {
        (self.name == GALE_PAPER.name).then(|| set.up_to_24())
    }

    pub(super) fn hops(self) -> HopSource {
        // The paper's entries of 8 bits cannot name all pairs of origin and peer.
        if self.name == SAIL_PAPER.name { HopSource::Origin } else { HopSource::Peer }
    }

    pub(super) fn with_parameters(
        self,
        bench: &Bench,
        figure: &mut Figure,
        set: &DataSet,
        mut parameters: Vec<Parameter>,
    ) -> Result<Fed> {
        if self.engine == MAMT.engine {
            parameters.push(("threads", bench.host.cpus.to_string()));
        }
        let part = self.part_of(set);
        let tables = &part.as_ref().unwrap_or(set).tables;
        let engine = bench.engine(self.engine, self.isa, &parameters)?;
        let fed = Fed::filled(engine, &tables.routes_of(self.family))?;
        figure.check(&bench.sample_of(tables, self.family)?, &mut *fed.looker(CHECKED)?)?;
        Ok(fed)
    }

    /// The same with its own parameters. A table that its form cannot hold is a row of the figure, and no line.
    pub(super) fn filled(self, bench: &Bench, figure: &mut Figure, set: &DataSet) -> Result<Option<Fed>> {
        let fed = self.with_parameters(bench, figure, set, self.parameters());
        self.unless_refused(figure, set, fed)
    }

    /// Records as a row of the figure that the paper's form has no room for a table or an update.
    pub(super) fn unless_refused<T>(
        self,
        figure: &mut Figure,
        set: &DataSet,
        result: Result<T>,
    ) -> Result<Option<T>> {
        match result {
            Err(Fault::Engine { source: source @ EngineError::Full { .. }, .. }) if self.is_papers => {
                figure.rows.push(json!({"data": set.name, "line": self.name, "refused": source.to_string()}));
                Ok(None)
            }
            other => other.map(Some),
        }
    }
}

/// The engines of `all` that this host can run. Without a device, `figure` names the missing ones.
pub(super) fn subjects(bench: &Bench, figure: &mut Figure, all: &[FigureEngine]) -> Vec<FigureEngine> {
    if let Err(reason) = &bench.device {
        figure.skipped = Some(format!("all lines except CPU engines need a GPU: {reason}"));
    }
    let is_here = |one: &FigureEngine| one.isa.map_or(bench.device.is_ok(), Isa::is_available);
    all.iter().copied().filter(is_here).collect()
}

/// Batches in flight: `wanted`, or fewer if their keys exceed [`KEYS_IN_FLIGHT_MAX`], but at least 2.
pub(super) fn in_flight(batch: usize, wanted: u16) -> u16 {
    let fit = u16::try_from(KEYS_IN_FLIGHT_MAX / batch.max(1)).unwrap_or(u16::MAX);
    wanted.min(fit).max(2)
}

/// A reader a thread, with `slots` batches of `batch` keys in flight. Threads share a large batch: one core copies slower than the bus.
pub(super) struct ReaderGroup {
    pub(super) readers: Vec<Box<dyn EngineReader>>,
    batch: usize,
    slots: u16,
}

impl ReaderGroup {
    /// With `threads`, or else a number that suits the batch.
    pub(super) fn new(
        bench: &Bench,
        fed: &Fed,
        (batch, slots): (usize, u16),
        threads: Option<usize>,
    ) -> Result<Self> {
        let threads = threads.unwrap_or_else(|| (batch / BATCH_A_THREAD_MIN).clamp(1, bench.args.threads()));
        let mut batch = (batch / threads).max(1);
        let readers = (0..threads).map(|_| fed.reader(slots, batch)).collect::<Result<Vec<_>, _>>()?;
        batch = readers.iter().map(|reader| reader.batch_max()).fold(batch, usize::min);
        Ok(Self { readers, batch, slots })
    }

    pub(super) fn load<'a>(&self, bench: &Bench, keys: &'a KeySet) -> Load<'a> {
        let seconds = 2.0 * bench.args.seconds() / bench.args.rounds() as f64;
        Load { keys, batch: self.batch, slots: self.slots, seconds }
    }
}

/// Looks up `keys` in batches of this many keys with several in flight; with one thread for figures about streams.
pub(in crate::paper) fn measure(
    bench: &Bench,
    fed: &Fed,
    keys: &Stream,
    (batch, slots): (usize, u16),
    threads: Option<usize>,
) -> Result<Driven<Spread>> {
    // On the CPU a batch is over when its call returns, and MAMT has internal threads.
    let (slots, threads) = match fed.engine.as_str() {
        engine if ENGINES.is_device(engine) => (slots, threads),
        "mamt" => (1, Some(1)),
        _ => (1, None),
    };
    let mut group = ReaderGroup::new(bench, fed, (batch.min(bench.args.keys()), slots), threads)?;
    let round = |round| {
        let load = group.load(bench, keys.of_round(round));
        drive(&mut group.readers, load).map_err(|source| fed.refused(source))
    };
    Ok(Driven::spread_of(&(0..bench.args.rounds()).map(round).collect::<Result<Vec<_>, _>>()?))
}

#[derive(Clone, Copy)]
pub(super) struct Measured<'a> {
    pub(super) set: &'a DataSet,
    pub(super) subject: FigureEngine,
    pub(super) batch: usize,
}

/// Adds a measurement to the first graph, a point at `x` of the line `line`, and to the rows, with the fields `more`.
pub(super) fn show(
    figure: &mut Figure,
    (line, x): (&str, f64),
    Measured { set, subject, batch }: Measured<'_>,
    driven: &Driven<Spread>,
    more: Value,
) {
    figure.add(0, line, x, driven.mlps);
    let own = json!({
        "data": set.name, "engine": subject.engine, "line": subject.name, "family": subject.family.to_string(), "batch": batch,
        "isa": subject.isa.map(|isa| isa.to_string()),
    });
    figure.rows.push(with(with(own, json!(driven)), more));
}
