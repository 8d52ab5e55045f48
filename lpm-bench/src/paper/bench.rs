//! The inputs of a paper's figures: the data sets, the device, and the command line.

// The modules of the papers import these names from here.
pub(super) use super::claims::Claim;
pub(super) use super::data::{DataSet, HopSource, Start};
pub(super) use super::figure::{Figure, Panel, least, most, over, with};
pub(super) use crate::args::PaperArgs;
pub(super) use crate::fault::{Fault, Result};
pub(super) use crate::keys::KeySet;
pub(super) use crate::table::Fed;
pub(super) use crate::tables::RouteSet;
pub(super) use fib::traffic::Traffic;
pub(super) use fib::{EngineError, Family, Isa, NextHopId, Rib};
pub(super) use lpm_bench::stats::{Spread, median};
pub(super) use serde_json::{Value, json};

use super::figure::Document;
use super::{data, picture};
use crate::check::Sample;
use crate::host::{Build, HostFacts};
use fib::output::write_json;
use indicatif::ProgressBar;
use lpm_bench::progress::wheel;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Checked answers: the first of a stream, and as many drawn at random.
pub(super) const CHECKED: usize = 4096;

pub(super) struct Paper {
    pub(super) title: &'static str,
    pub(super) claims: &'static str,
    pub(super) figures: &'static str,
    /// Data sets to generate if neither the command line nor `FWD_DATA` has any: name and specification.
    pub(super) generated: &'static [(&'static str, &'static str)],
    pub(super) has_updates: bool,
    /// Makes further data sets, which are appended to the loaded ones.
    pub(super) further_sets: fn(&PaperArgs) -> Result<Vec<DataSet>>,
    pub(super) known: &'static [Known],
}

pub(super) struct Known {
    pub(super) id: &'static str,
    pub(super) device: DeviceNeed,
    /// Fills in the measurements; the texts are already there.
    pub(super) make: fn(&Bench, &mut Figure) -> Result<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceNeed {
    Unused,
    /// A part of it needs a GPU.
    Used,
    Needed,
}

impl Paper {
    pub(super) fn claims(&self) -> Vec<Claim> {
        Claim::parse_all(self.claims).unwrap_or_else(|line| unreachable!("a test reads every line: {line}"))
    }

    pub(super) fn texts(&self) -> BTreeMap<String, Figure> {
        toml::from_str(self.figures).unwrap_or_else(|why| unreachable!("a test reads them: {why}"))
    }

    pub(super) fn make(&self, id: &str, bench: &Bench) -> Result<Figure> {
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
    pub(super) fn wanted(&self, names: &[String]) -> Result<Vec<&'static Known>> {
        let ids: Vec<_> = self.known.iter().map(|known| known.id).collect();
        if let Some(name) = names.iter().find(|name| !ids.contains(&name.as_str())) {
            let all = ids.join(", ");
            return Err(Fault::Usage(format!("'{name}' is no figure of this paper; known are: {all}")));
        }
        let asked = |known: &&Known| names.is_empty() || names.iter().any(|name| name == known.id);
        Ok(self.known.iter().filter(asked).collect())
    }
}

pub(super) struct Bench {
    pub(super) args: PaperArgs,
    pub(super) sets: Vec<DataSet>,
    /// A description of the device, or the reason for its absence.
    pub(super) device: Result<String, String>,
    pub(super) host: HostFacts,
    pub(super) progress: ProgressBar,
    pub(super) traffic: Mutex<BTreeSet<String>>,
}

impl Bench {
    pub(super) fn new(
        args: PaperArgs,
        paper: &Paper,
        device: Result<String, String>,
        figures: usize,
    ) -> Result<Self> {
        let mut sets = data::load(&args, paper.generated, paper.has_updates)?;
        sets.extend((paper.further_sets)(&args)?);
        let progress = wheel("figures {spinner} {pos}/{len} {prefix} {msg} {elapsed}", figures);
        Ok(Self { args, sets, device, host: HostFacts::read(), progress, traffic: Mutex::default() })
    }

    pub(super) fn sets(&self, family: Family) -> impl Iterator<Item = &DataSet> {
        self.sets.iter().filter(move |set| set.tables.routes(family) > 0)
    }

    /// The first data set with this family: the GAMT paper's rrc12, the Bloomfwd paper's AS65000.
    pub(super) fn main_set(&self, family: Family) -> Option<&DataSet> {
        self.sets(family).next()
    }

    pub(super) fn stream(&self, set: &DataSet, family: Family, traffic: &Traffic) -> Result<Stream> {
        self.draw(&set.tables, family, traffic, self.args.keys())
    }

    pub(super) fn draw(
        &self,
        tables: &RouteSet,
        family: Family,
        traffic: &Traffic,
        count: usize,
    ) -> Result<Stream> {
        self.show_progress(format!("draws {traffic} keys"));
        let keys = |seed| KeySet::make(traffic, family, tables, count, seed, false);
        let keys = self.seeds().map(keys).into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(self.stream_of(keys))
    }

    pub(super) fn streams(&self, tables: &RouteSet, count: usize) -> impl Iterator<Item = Result<Stream>> {
        self.traffics().into_iter().map(move |traffic| self.draw(tables, Family::V4, &traffic, count))
    }

    /// The traffic that represents real addresses: the capture of `--trace`, or zipf.
    pub(super) fn trace(&self) -> Traffic {
        self.args.trace.clone().map_or(Traffic::Zipf, Traffic::Capture)
    }

    pub(super) fn traffics(&self) -> [Traffic; 3] {
        [Traffic::Random, Traffic::Table, self.trace()]
    }

    pub(super) fn stream_of(&self, keys: Vec<KeySet>) -> Stream {
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

    pub(super) fn name_traffic(&self, what: String) {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner).insert(what);
    }

    pub(super) const fn seeds(&self) -> [u64; 2] {
        let seed = self.args.table.seed;
        [seed, seed.wrapping_add(1)]
    }

    pub(super) fn sample(&self, keys: &KeySet, tables: &RouteSet) -> Sample {
        Sample::draw(keys, tables, CHECKED.min(keys.len()), self.args.table.seed)
    }

    pub(super) fn sample_of(&self, tables: &RouteSet, family: Family) -> Result<Sample> {
        let (count, seed) = (CHECKED.min(self.args.keys()), self.args.table.seed);
        let keys = KeySet::make(&Traffic::Table, family, tables, count, seed, false)?;
        Ok(self.sample(&keys, tables))
    }

    pub(super) fn show_progress(&self, what: impl Into<String>) {
        self.progress.set_message(what.into());
    }

    /// All of `all`; in a quick run about one in three, including the first and the last.
    pub(super) fn some<T: Copy>(&self, all: &[T]) -> Vec<T> {
        let last = all.len().saturating_sub(1);
        let keep = |at: usize| !self.args.quick || at.is_multiple_of(3) || at == last;
        all.iter().enumerate().filter(|(at, _)| keep(*at)).map(|(_, one)| *one).collect()
    }

    /// The wrong answers of the figure's file if `--resume` keeps it. A figure that lacked a device is not kept if there is one now.
    pub(super) fn kept(&self, known: &Known) -> Option<u64> {
        let text = std::fs::read(self.args.out.join(format!("{}.json", known.id))).ok()?;
        let there: Value = serde_json::from_slice(&text).ok()?;
        let same = there["build"]["commit"] == Build::THIS.commit
            && there["quick"] == self.args.quick
            && there["seeds"] == json!(self.seeds());
        let lacks_device =
            known.device != DeviceNeed::Unused && self.device.is_ok() && there["device"].is_null();
        (self.args.resume && same && !lacks_device).then(|| there["wrong"].as_u64().unwrap_or(0))
    }

    pub(super) fn report(&self, paper: &'static str, id: &str, figure: &Figure, took_s: f64) -> Result<()> {
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

pub(super) struct Stream(Vec<KeySet>);

impl Stream {
    pub(super) fn of_round(&self, round: usize) -> &KeySet {
        &self.0[round % self.0.len()]
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &KeySet> {
        self.0.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.of_round(0).len()
    }

    pub(super) fn traffic(&self) -> &str {
        &self.of_round(0).traffic
    }
}

pub(super) fn write_fault(path: &Path, source: std::io::Error) -> Fault {
    Fault::Write { path: path.display().to_string(), source }
}
