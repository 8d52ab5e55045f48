//! `lpm-bench paper`: the figures and tables of a paper on this host, with the paper's own numbers.
//!
//! ```text
//! data sets -> each figure's function -> figure: graphs, rows, our numbers -> judged by the claims -> JSON, SVG
//! ```
//! | module | contents |
//! |---|---|
//! | `sail`, `bloomfwd`, `gamt`, `poster` | the series of each paper |
//! | `engines` | every engine and DPDK's tables, without a paper |
//! | `bench` | what figures are made from: data sets, device, command line |
//! | `data` | the data sets: routes and updates |
//! | `claims` | the numbers that the documents state, and the verdicts on ours |
//! | `figure` | the data of a figure: its texts (`figures.toml` of each paper), series, rows, our numbers for the claims |
//! | `drive` | a closed loop of batches in flight on an engine, timed |
//! | `picture` | a figure as SVG |
//! | `report` | all papers on one page |

mod bench;
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
#[cfg(test)]
mod testing;

use crate::args::{PaperArgs, Series};
use crate::fault::{FAILED, Result};
use crate::host::Build;
use bench::{Bench, DeviceNeed, Paper, write_fault};
use clap::ValueEnum;
use std::sync::PoisonError;
use std::time::Instant;

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

/// A missing device is no [`Fault`](crate::fault::Fault).
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

#[cfg(test)]
mod tests {
    use super::*;
    use claims::Claim;
    use std::collections::BTreeSet;
    use std::path::Path;

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
