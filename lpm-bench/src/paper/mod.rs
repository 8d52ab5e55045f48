//! `lpm-bench paper`: the figures and tables of a paper on this host, beside the paper's own numbers.
//!
//! ```text
//! data sets -> each figure's function -> figure: graphs, rows, our numbers -> judged by the claims -> JSON, SVG
//! ```
//! | module | what lives there |
//! |---|---|
//! | `sail`, `bloomfwd`, `gamt`, `poster` | the series of each paper |
//! | `engines` | a series that no paper has: every engine and DPDK's tables |
//! | `data` | the data sets: routes and updates |
//! | `claims` | the numbers that the documents state, and how ours are judged |
//! | `figure` | the data of a figure: series, rows, our numbers for the claims |
//! | `drive` | a closed loop of batches in flight on an engine, timed |
//! | `picture` | a figure as SVG |
//! | `report` | all papers on one page |

mod bloomfwd;
mod claims;
mod data;
mod drive;
mod engines;
mod figure;
mod gamt;
mod picture;
mod poster;
pub(crate) mod report;
mod sail;

use crate::args::{PaperArgs, Series};
use crate::check::Sample;
use crate::fault::{FAILED, Fault};
use crate::host::{Build, HostFacts};
use crate::keys::KeySet;
use crate::tables::RouteSet;
use claims::Claim;
use clap::ValueEnum;
use data::DataSet;
use fib::Family;
use fib::output::write_json;
use fib::traffic::Traffic;
use figure::{Document, Figure};
use indicatif::ProgressBar;
use lpm_bench::progress::wheel;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The number of answers compared with the oracle's: the first of a stream, and as many drawn at random.
const CHECKED: usize = 4096;

/// A paper whose figures are made here.
struct Paper {
    /// Its title, which is in every output file.
    title: &'static str,
    /// The numbers that it states.
    claims: &'static str,
    /// Data sets to generate if neither the command line nor `FWD_DATA` has any: name and specification.
    generated: &'static [(&'static str, &'static str)],
    /// Whether its data sets have updates.
    has_updates: bool,
    /// Makes further data sets, which are appended to those that were loaded.
    beside: fn(&PaperArgs) -> Result<Vec<DataSet>, Fault>,
    /// Its figures, in the order in which they are made.
    known: &'static [Known],
}

/// A figure of a paper.
struct Known {
    /// Its name in `--figures` and in file names.
    id: &'static str,
    device: DeviceNeed,
    make: fn(&Bench<'_>) -> Result<Figure, Fault>,
}

/// Whether a figure needs a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeviceNeed {
    /// It uses none.
    Unused,
    /// A part of it is made only if there is one.
    Used,
    /// It is not made without one.
    Needed,
}

impl Series {
    /// Its word on the command line.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    const fn paper(self) -> &'static Paper {
        match self {
            Self::Sail => &sail::PAPER,
            Self::Bloomfwd => &bloomfwd::PAPER,
            Self::Gamt => &gamt::PAPER,
            Self::Poster => &poster::PAPER,
            Self::Engines => &engines::PAPER,
        }
    }
}

/// The context in which figures are made.
struct Bench<'a> {
    args: &'a PaperArgs,
    sets: Vec<DataSet>,
    /// A description of the device, or why there is none.
    device: Result<String, String>,
    host: HostFacts,
    /// The progress, which is drawn on a terminal only.
    progress: ProgressBar,
    /// What the figure in the making has looked up and applied.
    traffic: Mutex<BTreeSet<String>>,
}

impl<'a> Bench<'a> {
    /// Loads the data sets, for `figures` figures of `paper`.
    fn new(
        args: &'a PaperArgs,
        paper: &Paper,
        device: Result<String, String>,
        figures: usize,
    ) -> Result<Self, Fault> {
        let mut sets = data::load(args, paper)?;
        sets.extend((paper.beside)(args)?);
        Ok(Self {
            args,
            sets,
            device,
            host: HostFacts::read(),
            progress: wheel("figures {spinner} {pos}/{len} {prefix} {msg} {elapsed}", figures),
            traffic: Mutex::default(),
        })
    }

    /// The first data set with routes of `family`: what the GAMT paper calls rrc12, and the Bloomfwd paper AS65000.
    fn main_set(&self, family: Family) -> Option<&DataSet> {
        self.sets.iter().find(|set| set.tables.routes(family) > 0)
    }

    /// The keys of a stream.
    fn stream(&self, set: &DataSet, family: Family, traffic: &Traffic) -> Result<Stream, Fault> {
        self.draw(&set.tables, family, traffic, self.args.keys())
    }

    /// As [`Self::stream`], with `count` keys for each seed.
    fn draw(
        &self,
        tables: &RouteSet,
        family: Family,
        traffic: &Traffic,
        count: usize,
    ) -> Result<Stream, Fault> {
        self.tell(format!("draws {traffic} keys"));
        let keys = |seed| KeySet::make(traffic, family, tables, count, seed, false);
        let keys = self.seeds().map(keys).into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(self.stream_of(keys))
    }

    /// The traffic that stands for real addresses: the capture that `--trace` names, or zipf.
    fn trace(&self) -> Traffic {
        self.args.trace.clone().map_or(Traffic::Zipf, Traffic::Capture)
    }

    /// Keys that were drawn elsewhere, one set a seed.
    fn stream_of(&self, keys: Vec<KeySet>) -> Stream {
        if let Some(first) = keys.first() {
            let (seeds, count) = (keys.len(), first.len());
            self.name_traffic(format!(
                "{} keys of {}, {seeds} seeds of {count}",
                first.traffic,
                first.family()
            ));
        }
        Stream(keys)
    }

    /// Has the figure name what it looks up or applies.
    fn name_traffic(&self, what: String) {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner).insert(what);
    }

    /// The seeds of each stream.
    const fn seeds(&self) -> [u64; 2] {
        let seed = self.args.table.seed;
        [seed, seed.wrapping_add(1)]
    }

    /// The keys of a stream that are checked.
    fn sample(&self, keys: &KeySet, tables: &RouteSet) -> Sample {
        Sample::draw(keys, tables, CHECKED.min(keys.len()), self.args.table.seed)
    }

    /// As [`Self::sample`], of keys drawn from the table.
    fn sample_of(&self, tables: &RouteSet, family: Family) -> Result<Sample, Fault> {
        let (count, seed) = (CHECKED.min(self.args.keys()), self.args.table.seed);
        let keys = KeySet::make(&Traffic::Table, family, tables, count, seed, false)?;
        Ok(self.sample(&keys, tables))
    }

    /// Shows `what` as the progress message.
    fn tell(&self, what: impl Into<String>) {
        self.progress.set_message(what.into());
    }

    /// All of `all`; in a quick run about one in three, including the first and the last.
    fn some<T: Copy>(&self, all: &[T]) -> Vec<T> {
        let last = all.len().saturating_sub(1);
        let keep = |at: usize| !self.args.quick || at.is_multiple_of(3) || at == last;
        all.iter().enumerate().filter(|(at, _)| keep(*at)).map(|(_, one)| *one).collect()
    }
}

/// The keys of one traffic, drawn with each seed.
struct Stream(Vec<KeySet>);

impl Stream {
    /// Those of a round: the seeds take turns.
    fn of_round(&self, round: usize) -> &KeySet {
        &self.0[round % self.0.len()]
    }

    /// The keys of each seed.
    fn all(&self) -> impl Iterator<Item = &KeySet> {
        self.0.iter()
    }

    /// Keys of each seed.
    fn len(&self) -> usize {
        self.of_round(0).len()
    }

    /// The traffic, as on the command line.
    fn traffic(&self) -> &str {
        &self.of_round(0).traffic
    }
}

/// Makes the requested figures, and writes their files.
///
/// # Errors
/// Any [`Fault`] besides the absence of a device.
pub(crate) fn run(args: &PaperArgs) -> Result<u8, Fault> {
    let paper = args.series.paper();
    let wanted = wanted(paper, &args.figures)?;
    let claims = paper.claims();
    std::fs::create_dir_all(&args.out).map_err(|source| write_fault(&args.out, source))?;
    let device = if wanted.iter().any(|known| known.device != DeviceNeed::Unused) {
        probe(args.device())
    } else {
        Err("not asked for".into())
    };
    let bench = Bench::new(args, paper, device, wanted.len())?;
    if !Build::THIS.is_optimised() {
        eprintln!("lpm-bench: warning: built with {}; its figures mean nothing", Build::THIS.profile);
    }
    let mut wrong = 0;
    for known in wanted {
        let start = Instant::now();
        bench.progress.set_prefix(known.id);
        bench.tell("");
        if let Some(found) = kept(&bench, known) {
            bench.progress.suspend(|| println!("{}: kept", known.id));
            wrong += found;
            bench.progress.inc(1);
            continue;
        }
        let mut figure = match (&bench.device, known.device) {
            (Err(reason), DeviceNeed::Needed) => Figure::skipped(known.id, reason),
            _ => (known.make)(&bench)?,
        };
        let traffic = std::mem::take(&mut *bench.traffic.lock().unwrap_or_else(PoisonError::into_inner));
        figure.traffic = traffic.into_iter().collect();
        figure.judge(claims.iter().filter(|claim| claim.figure == Some(known.id)).cloned());
        wrong += figure.wrong;
        let (paper, took_s) = (paper.title, start.elapsed().as_secs_f64());
        bench.progress.suspend(|| report(&bench, paper, known.id, &figure, took_s))?;
        bench.progress.inc(1);
    }
    bench.progress.finish_and_clear();
    Ok(if wrong > 0 { FAILED } else { 0 })
}

/// Whether `--resume` keeps the figure that is in the folder: how many wrong answers it counts. One that lacked a device is made again
/// where there is one now.
fn kept(bench: &Bench<'_>, known: &Known) -> Option<u64> {
    if !bench.args.resume {
        return None;
    }
    let text = std::fs::read(bench.args.out.join(format!("{}.json", known.id))).ok()?;
    let there: Value = serde_json::from_slice(&text).ok()?;
    let same = there["build"]["commit"] == Build::THIS.commit
        && there["quick"] == bench.args.quick
        && there["seeds"] == json!(bench.seeds());
    let lacks_device =
        known.device != DeviceNeed::Unused && bench.device.is_ok() && there["device"].is_null();
    (same && !lacks_device).then(|| there["wrong"].as_u64().unwrap_or(0))
}

impl Paper {
    /// The numbers that it states.
    fn claims(&self) -> Vec<Claim> {
        Claim::parse_all(self.claims).unwrap_or_else(|line| unreachable!("a test reads every line: {line}"))
    }
}

/// Whether there is the device with this number: its name, or why not.
fn probe(device: u32) -> Result<String, String> {
    lpm_gpu::cu::probe().map_err(|error| error.to_string())?;
    let device = lpm_gpu::cu::Device::open(device).map_err(|error| error.to_string())?;
    let facts = device.facts();
    Ok(format!(
        "{}, {} multiprocessors, capability {}.{}",
        facts.name, facts.multiprocessors, facts.capability.0, facts.capability.1
    ))
}

/// The figures of `paper` with these `names`, or all if there are no names, in the order in which they are made.
fn wanted(paper: &'static Paper, names: &[String]) -> Result<Vec<&'static Known>, Fault> {
    if let Some(name) = names.iter().find(|name| paper.known.iter().all(|known| known.id != *name)) {
        let all: Vec<_> = paper.known.iter().map(|known| known.id).collect();
        return Err(Fault::Usage(format!(
            "'{name}' is no figure of this paper that we make; known are: {}",
            all.join(", ")
        )));
    }
    let asked = |known: &&Known| names.is_empty() || names.iter().any(|name| name == known.id);
    Ok(paper.known.iter().filter(asked).collect())
}

/// Writes a figure's files and prints a summary.
fn report(
    bench: &Bench<'_>,
    paper: &'static str,
    id: &str,
    figure: &Figure,
    took_s: f64,
) -> Result<(), Fault> {
    let document = Document {
        figure,
        paper,
        quick: bench.args.quick,
        took_s,
        device: bench.device.as_deref().ok(),
        host: &bench.host,
        build: Build::THIS,
        arguments: std::env::args().skip(1).collect(),
        seeds: bench.seeds(),
        data: bench.sets.iter().map(DataSet::summary).collect(),
    };
    let path = bench.args.out.join(format!("{id}.json"));
    write_json(&path, &document).map_err(|source| write_fault(&path, source))?;
    if let Some(reason) = &figure.skipped {
        eprintln!("SKIPPED: {id}: {reason}");
    }
    if !bench.args.no_pictures && figure.has_points() {
        let path = bench.args.out.join(format!("{id}.svg"));
        picture::draw(figure, &path).map_err(|source| write_fault(&path, source))?;
    }
    print!("{}", figure.text(id, took_s));
    Ok(())
}

fn write_fault(path: &Path, source: std::io::Error) -> Fault {
    Fault::Write { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_is_read_once_and_names_a_figure() {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for paper in Series::value_variants().iter().map(|series| series.paper()) {
            let claims = Claim::parse_all(paper.claims).unwrap();
            for (at, claim) in claims.iter().enumerate() {
                let is_known = |id: &str| paper.known.iter().any(|known| known.id == id);
                assert!(claim.figure.is_none_or(is_known), "{claim:?}");
                if let Some((file, name)) = claim.test {
                    let text =
                        std::fs::read_to_string(top.join(file)).unwrap_or_else(|why| panic!("{file}: {why}"));
                    assert!(text.contains(&format!("fn {name}(")), "{claim:?}");
                }
                let same = |other: &&Claim| (other.figure, &other.what) == (claim.figure, &claim.what);
                assert!(!claims[at + 1..].iter().any(|other| same(&other)), "{claim:?}");
            }
        }
    }
}
