//! `lpm-bench paper`: the figures and tables of a paper on this host, with the paper's own numbers.
//!
//! ```text
//! data sets -> each figure's function -> figure: graphs, rows, our numbers -> judged by the claims -> JSON, SVG
//! ```
//! | module | contents |
//! |---|---|
//! | `sail`, `bloomfwd`, `gamt`, `poster` | the series of each paper |
//! | `engines` | every engine and DPDK's tables, without a paper |
//! | `data` | the data sets: routes and updates |
//! | `claims` | the numbers that the documents state, and the verdicts on ours |
//! | `figure` | the data of a figure: its texts (`figures.toml` of each paper), series, rows, our numbers for the claims |
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

// The modules of the papers import these names from here.
use crate::args::{PaperArgs, Series};
use crate::check::Sample;
use crate::fault::{FAILED, Fault, Result};
use crate::host::{Build, HostFacts};
use crate::keys::KeySet;
use crate::table::Fed;
use crate::tables::RouteSet;
use claims::Claim;
use clap::ValueEnum;
use data::{DataSet, Hops, Start};
use fib::output::write_json;
use fib::traffic::Traffic;
use fib::{EngineError, Family, Isa, NextHopId, Rib};
use figure::{Document, Figure, Panel, least, most, over, with};
use indicatif::ProgressBar;
use lpm_bench::progress::wheel;
use lpm_bench::stats::{Spread, median};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Checked answers: the first of a stream, and as many drawn at random.
const CHECKED: usize = 4096;

struct Paper {
    title: &'static str,
    claims: &'static str,
    figures: &'static str,
    /// Data sets to generate if neither the command line nor `FWD_DATA` has any: name and specification.
    generated: &'static [(&'static str, &'static str)],
    has_updates: bool,
    /// Makes further data sets, which are appended to the loaded ones.
    further_sets: fn(&PaperArgs) -> Result<Vec<DataSet>>,
    known: &'static [Known],
}

struct Known {
    id: &'static str,
    device: DeviceNeed,
    /// Fills in the measurements; the texts are already there.
    make: fn(&Bench, &mut Figure) -> Result<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeviceNeed {
    Unused,
    /// A part of it needs a GPU.
    Used,
    Needed,
}

impl Series {
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

impl Paper {
    fn claims(&self) -> Vec<Claim> {
        Claim::parse_all(self.claims).unwrap_or_else(|line| unreachable!("a test reads every line: {line}"))
    }

    fn texts(&self) -> BTreeMap<String, Figure> {
        toml::from_str(self.figures).unwrap_or_else(|why| unreachable!("a test reads them: {why}"))
    }

    fn make(&self, id: &str, bench: &Bench) -> Result<Figure> {
        let known = self.known.iter().find(|known| known.id == id);
        let Known { device, make, .. } = known.unwrap_or_else(|| unreachable!("{id} was looked up"));
        if let (Err(reason), DeviceNeed::Needed) = (&bench.device, device) {
            return Ok(Figure::skipped(id, reason));
        }
        let mut figure = self.texts().remove(id).unwrap_or_default();
        make(bench, &mut figure)?;
        Ok(figure)
    }

    /// The figures with these `names`, or all without names, in order.
    fn wanted(&self, names: &[String]) -> Result<Vec<&'static Known>> {
        let ids: Vec<_> = self.known.iter().map(|known| known.id).collect();
        if let Some(name) = names.iter().find(|name| !ids.contains(&name.as_str())) {
            let all = ids.join(", ");
            return Err(Fault::Usage(format!("'{name}' is no figure of this paper; known are: {all}")));
        }
        let asked = |known: &&Known| names.is_empty() || names.iter().any(|name| name == known.id);
        Ok(self.known.iter().filter(asked).collect())
    }
}

struct Bench {
    args: PaperArgs,
    sets: Vec<DataSet>,
    /// A description of the device, or the reason for its absence.
    device: Result<String, String>,
    host: HostFacts,
    progress: ProgressBar,
    traffic: Mutex<BTreeSet<String>>,
}

impl Bench {
    fn new(args: PaperArgs, paper: &Paper, device: Result<String, String>, figures: usize) -> Result<Self> {
        let mut sets = data::load(&args, paper)?;
        sets.extend((paper.further_sets)(&args)?);
        let progress = wheel("figures {spinner} {pos}/{len} {prefix} {msg} {elapsed}", figures);
        Ok(Self { args, sets, device, host: HostFacts::read(), progress, traffic: Mutex::default() })
    }

    fn sets(&self, family: Family) -> impl Iterator<Item = &DataSet> {
        self.sets.iter().filter(move |set| set.tables.routes(family) > 0)
    }

    /// The first data set with this family: the GAMT paper's rrc12, the Bloomfwd paper's AS65000.
    fn main_set(&self, family: Family) -> Option<&DataSet> {
        self.sets(family).next()
    }

    fn stream(&self, set: &DataSet, family: Family, traffic: &Traffic) -> Result<Stream> {
        self.draw(&set.tables, family, traffic, self.args.keys())
    }

    fn draw(&self, tables: &RouteSet, family: Family, traffic: &Traffic, count: usize) -> Result<Stream> {
        self.show_progress(format!("draws {traffic} keys"));
        let keys = |seed| KeySet::make(traffic, family, tables, count, seed, false);
        let keys = self.seeds().map(keys).into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(self.stream_of(keys))
    }

    fn streams(&self, tables: &RouteSet, count: usize) -> impl Iterator<Item = Result<Stream>> {
        self.traffics().into_iter().map(move |traffic| self.draw(tables, Family::V4, &traffic, count))
    }

    /// The traffic that represents real addresses: the capture of `--trace`, or zipf.
    fn trace(&self) -> Traffic {
        self.args.trace.clone().map_or(Traffic::Zipf, Traffic::Capture)
    }

    fn traffics(&self) -> [Traffic; 3] {
        [Traffic::Random, Traffic::Table, self.trace()]
    }

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

    fn name_traffic(&self, what: String) {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner).insert(what);
    }

    const fn seeds(&self) -> [u64; 2] {
        let seed = self.args.table.seed;
        [seed, seed.wrapping_add(1)]
    }

    fn sample(&self, keys: &KeySet, tables: &RouteSet) -> Sample {
        Sample::draw(keys, tables, CHECKED.min(keys.len()), self.args.table.seed)
    }

    fn sample_of(&self, tables: &RouteSet, family: Family) -> Result<Sample> {
        let (count, seed) = (CHECKED.min(self.args.keys()), self.args.table.seed);
        let keys = KeySet::make(&Traffic::Table, family, tables, count, seed, false)?;
        Ok(self.sample(&keys, tables))
    }

    fn show_progress(&self, what: impl Into<String>) {
        self.progress.set_message(what.into());
    }

    /// All of `all`; in a quick run about one in three, including the first and the last.
    fn some<T: Copy>(&self, all: &[T]) -> Vec<T> {
        let last = all.len().saturating_sub(1);
        let keep = |at: usize| !self.args.quick || at.is_multiple_of(3) || at == last;
        all.iter().enumerate().filter(|(at, _)| keep(*at)).map(|(_, one)| *one).collect()
    }

    /// The wrong answers of the figure's file if `--resume` keeps it. A figure that lacked a device is not kept if there is one now.
    fn kept(&self, known: &Known) -> Option<u64> {
        let text = std::fs::read(self.args.out.join(format!("{}.json", known.id))).ok()?;
        let there: Value = serde_json::from_slice(&text).ok()?;
        let same = there["build"]["commit"] == Build::THIS.commit
            && there["quick"] == self.args.quick
            && there["seeds"] == json!(self.seeds());
        let lacks_device =
            known.device != DeviceNeed::Unused && self.device.is_ok() && there["device"].is_null();
        (self.args.resume && same && !lacks_device).then(|| there["wrong"].as_u64().unwrap_or(0))
    }

    fn report(&self, paper: &'static str, id: &str, figure: &Figure, took_s: f64) -> Result<()> {
        let document = Document {
            figure,
            paper,
            quick: self.args.quick,
            took_s,
            device: self.device.as_deref().ok(),
            host: &self.host,
            build: Build::THIS,
            arguments: std::env::args().skip(1).collect(),
            seeds: self.seeds(),
            data: self.sets.iter().map(DataSet::summary).collect(),
        };
        let path = self.args.out.join(format!("{id}.json"));
        write_json(&path, &document).map_err(|source| write_fault(&path, source))?;
        if let Some(reason) = &figure.skipped {
            eprintln!("SKIPPED: {id}: {reason}");
        }
        if !self.args.no_pictures && figure.has_points() {
            let path = self.args.out.join(format!("{id}.svg"));
            picture::draw(figure, &path).map_err(|source| write_fault(&path, source))?;
        }
        print!("{}", figure.text(id, took_s));
        Ok(())
    }
}

struct Stream(Vec<KeySet>);

impl Stream {
    /// The keys of a round: the seeds take turns.
    fn of_round(&self, round: usize) -> &KeySet {
        &self.0[round % self.0.len()]
    }

    fn all(&self) -> impl Iterator<Item = &KeySet> {
        self.0.iter()
    }

    fn len(&self) -> usize {
        self.of_round(0).len()
    }

    fn traffic(&self) -> &str {
        &self.of_round(0).traffic
    }
}

/// # Errors
/// Any [`Fault`] except the absence of a device.
pub(crate) fn run(args: &PaperArgs) -> Result<u8> {
    let paper = args.series.paper();
    let wanted = paper.wanted(&args.figures)?;
    let claims = paper.claims();
    std::fs::create_dir_all(&args.out).map_err(|source| write_fault(&args.out, source))?;
    let device = if wanted.iter().any(|known| known.device != DeviceNeed::Unused) {
        probe(args.device())
    } else {
        Err("not asked for".into())
    };
    let bench = Bench::new(args.clone(), paper, device, wanted.len())?;
    if !Build::THIS.is_optimised() {
        eprintln!("lpm-bench: warning: built with {}; the figures are meaningless", Build::THIS.profile);
    }
    let mut wrong = 0;
    for known in wanted {
        let (id, start) = (known.id, Instant::now());
        bench.progress.set_prefix(id);
        bench.show_progress("");
        if let Some(found) = bench.kept(known) {
            bench.progress.suspend(|| println!("{id}: kept"));
            wrong += found;
        } else {
            let mut figure = paper.make(id, &bench)?;
            let traffic = std::mem::take(&mut *bench.traffic.lock().unwrap_or_else(PoisonError::into_inner));
            figure.traffic = traffic.into_iter().collect();
            figure.judge(claims.iter().filter(|claim| claim.figure == Some(id)).cloned());
            wrong += figure.wrong;
            let took_s = start.elapsed().as_secs_f64();
            bench.progress.suspend(|| bench.report(paper.title, id, &figure, took_s))?;
        }
        bench.progress.inc(1);
    }
    bench.progress.finish_and_clear();
    Ok(if wrong > 0 { FAILED } else { 0 })
}

/// The name of the device with this number, or why it is missing.
fn probe(device: u32) -> Result<String, String> {
    lpm_gpu::cu::probe().map_err(|error| error.to_string())?;
    let device = lpm_gpu::cu::Device::open(device).map_err(|error| error.to_string())?;
    let facts = device.facts();
    Ok(format!(
        "{}, {} multiprocessors, capability {}.{}",
        facts.name, facts.multiprocessors, facts.capability.0, facts.capability.1
    ))
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

    #[test]
    fn every_figure_has_texts() {
        for paper in Series::value_variants().iter().map(|series| series.paper()) {
            let ids: BTreeSet<_> = paper.known.iter().map(|known| known.id).collect();
            assert!(paper.texts().keys().eq(&ids), "{ids:?}");
        }
    }
}
