//! `lpm-bench paper gamt`: the figures and tables of the GAMT paper (section 5) on this host, beside the paper's own numbers.
//!
//! ```text
//! data sets -> figures on the host (tables 1, 2; 11, 13, 14, 19) -> figures on the device (9 .. 12, 15 .. 18) -> JSON, SVG
//! ```
//! | module | what lives there |
//! |---|---|
//! | `data` | the data sets: routes and updates |
//! | `figure` | what a figure is: series, rows, the paper's numbers beside ours |
//! | `host_tables` | figures about the tables on the host: memory, off-line updates, accesses on the device |
//! | `drive` | batches in flight on an engine, and the clock |
//! | `kernels` | lookup kernels alone, by the device's clock |
//! | `device_figures` | figures that take a device |
//! | `picture` | a figure as SVG |
//!
//! A figure that takes a device is skipped aloud without one, and its file says so. What the paper does on a Tesla C2075 with
//! PCIe 2 compares with what this host does only in its shape.

mod data;
mod device_figures;
mod drive;
mod figure;
mod host_tables;
mod kernels;
mod picture;

use crate::args::{PaperArgs, Series};
use crate::contenders;
use crate::fault::{FAILED, Fault};
use crate::host::{Build, Host};
use crate::measure;
use data::DataSet;
use fib::{EngineOptions, EngineWriter, Family};
use figure::{Document, Figure};
use std::path::Path;
use std::time::Instant;

/// A figure of the paper.
struct Known {
    /// As in `--figures`, and the file's name.
    id: &'static str,
    /// Whether it takes a device; figure 11 has a half that does not.
    device: bool,
    make: fn(&Bench<'_>) -> Result<Figure, Fault>,
}

/// In the order of work: what needs no device first.
const KNOWN: &[Known] = &[
    Known { id: "table1", device: false, make: host_tables::table_1 },
    Known { id: "table2", device: false, make: host_tables::table_2 },
    Known { id: "fig13", device: false, make: host_tables::figure_13 },
    Known { id: "fig14", device: false, make: host_tables::figure_14 },
    Known { id: "fig19", device: false, make: host_tables::figure_19 },
    Known { id: "fig11", device: false, make: device_figures::figure_11 },
    Known { id: "fig15", device: false, make: device_figures::figure_15 },
    Known { id: "kernels", device: true, make: kernels::table },
    Known { id: "fig09", device: true, make: device_figures::figure_9 },
    Known { id: "fig10", device: true, make: device_figures::figure_10 },
    Known { id: "fig12", device: true, make: device_figures::figure_12 },
    Known { id: "fig16", device: true, make: device_figures::figure_16 },
    Known { id: "fig17", device: true, make: device_figures::figure_17 },
    Known { id: "fig18", device: true, make: device_figures::figure_18 },
];

/// Names for `--figures`.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|known| known.id)
}

/// What all figures work with.
struct Bench<'a> {
    args: &'a PaperArgs,
    sets: Vec<DataSet>,
    /// The device's name and memory, or why there is none.
    device: Result<String, String>,
    host: Host,
}

impl Bench<'_> {
    /// The first data set with routes of `family`: what the paper calls rrc12.
    fn main_set(&self, family: Family) -> Option<&DataSet> {
        self.sets.iter().find(|set| set.tables.routes(family) > 0)
    }

    /// An empty table of an engine.
    fn engine(
        &self,
        name: &'static str,
        parameters: &[(&str, String)],
    ) -> Result<Box<dyn EngineWriter>, Fault> {
        let own = parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        // The last word counts, and a figure's own parameters are what it is about.
        let told =
            self.args.parameters.iter().filter(|(name, _)| parameters.iter().all(|(own, _)| own != name));
        let parameters = told.cloned().chain(own).collect();
        let options = EngineOptions { parameters, ..EngineOptions::default() };
        contenders::engine(name, &options).map_err(|source| Fault::Engine { engine: name.to_owned(), source })
    }

    /// Some of `all` in a quick run: about one in three, first and last among them.
    fn some<T: Copy>(&self, all: &[T]) -> Vec<T> {
        let last = all.len().saturating_sub(1);
        let keep = |at: usize| !self.args.quick || at.is_multiple_of(3) || at == last;
        all.iter().enumerate().filter(|(at, _)| keep(*at)).map(|(_, one)| *one).collect()
    }
}

/// Makes the figures that are asked for, and writes them.
///
/// # Errors
/// Any [`Fault`] besides the absence of a device.
pub(crate) fn run(args: &PaperArgs) -> Result<u8, Fault> {
    let Series::Gamt = args.series;
    let wanted = wanted(&args.figures)?;
    std::fs::create_dir_all(&args.out).map_err(|source| write_fault(&args.out, source))?;
    let host = Host::read();
    let sets = data::load(args)?;
    let device = if wanted.iter().any(|known| known.device || known.id == "fig11" || known.id == "fig15") {
        probe()
    } else {
        Err("not asked for".into())
    };
    let bench = Bench { args, sets, device, host };
    let mut wrong = 0;
    for known in wanted {
        let start = Instant::now();
        let figure = match (&bench.device, known.device) {
            (Err(reason), true) => Figure::skipped(known.id, reason),
            _ => (known.make)(&bench)?,
        };
        wrong += figure.wrong;
        report(&bench, known.id, &figure, start.elapsed().as_secs_f64())?;
    }
    Ok(if wrong > 0 { FAILED } else { 0 })
}

/// Whether there is a device: its name, or why not.
fn probe() -> Result<String, String> {
    lpm_gpu::cu::probe().map_err(|error| error.to_string())?;
    let device = lpm_gpu::cu::Device::open(0).map_err(|error| error.to_string())?;
    let facts = device.facts();
    Ok(format!(
        "{}, {} multiprocessors, capability {}.{}",
        facts.name, facts.multiprocessors, facts.capability.0, facts.capability.1
    ))
}

fn wanted(names: &[String]) -> Result<Vec<&'static Known>, Fault> {
    if names.is_empty() {
        return Ok(KNOWN.iter().collect());
    }
    let unknown = |name: &String| {
        let all: Vec<_> = self::names().collect();
        Fault::Usage(format!(
            "'{name}' is no figure of this paper that we make; known are: {}",
            all.join(", ")
        ))
    };
    let find = |name: &String| KNOWN.iter().find(|known| known.id == name).ok_or_else(|| unknown(name));
    let mut wanted = names.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    wanted.sort_by_key(|known| KNOWN.iter().position(|one| one.id == known.id));
    wanted.dedup_by_key(|known| known.id);
    Ok(wanted)
}

/// Writes a figure's files and says what is in them.
fn report(bench: &Bench<'_>, id: &str, figure: &Figure, took_s: f64) -> Result<(), Fault> {
    let document = Document {
        figure,
        paper: "GAMT: A Fast and Scalable IP Lookup Engine for GPU-based Software Routers (ANCS 2013)",
        quick: bench.args.quick,
        took_s,
        device: bench.device.as_deref().ok(),
        host: &bench.host,
        build: Build::THIS,
        arguments: std::env::args().skip(1).collect(),
        seed: bench.args.table.seed,
        data: bench.sets.iter().map(DataSet::summary).collect(),
    };
    let path = bench.args.out.join(format!("{id}.json"));
    let text = serde_json::to_vec_pretty(&document).map_err(|error| write_fault(&path, error.into()))?;
    std::fs::write(&path, text).map_err(|source| write_fault(&path, source))?;
    if let Some(reason) = &figure.skipped {
        eprintln!("SKIPPED: {id}: {reason}");
    }
    if !bench.args.no_pictures && figure.has_points() {
        let path = bench.args.out.join(format!("{id}.svg"));
        picture::draw(figure, &path).map_err(|error| write_fault(&path, std::io::Error::other(error)))?;
    }
    print!("{}", figure.text(id, took_s));
    Ok(())
}

fn write_fault(path: &Path, source: std::io::Error) -> Fault {
    Fault::Write { path: path.display().to_string(), source }
}

/// The median, for the figures.
fn median(values: &[f64]) -> f64 {
    measure::median(values)
}
