//! `lpm-bench report`: the figures of all papers, and one page of every number that they state.
//!
//! Each paper's figures are made as by `lpm-bench paper`, in a folder of their own; the page and `report.json` are put together from
//! their files, so a report that was interrupted goes on with `--resume`.

mod page;

use super::claims::{Claim, Judged, Verdict};
use super::{bloomfwd, gamt, write_fault};
use crate::args::{ReportArgs, Series};
use crate::fault::Fault;
use crate::host::{Build, HostFacts};
use fib::output::{write_json, write_whole};
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// The version of `report.json`: a key that goes or changes its meaning makes it greater.
const SCHEMA: u32 = 1;

/// All papers on this host.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    kind: &'static str,
    quick: bool,
    host: HostFacts,
    build: Build,
    /// Answers compared with the oracle's, and those that were wrong.
    checked: u64,
    wrong: u64,
    documents: Vec<DocumentReport>,
}

/// One document.
#[derive(Debug, Serialize)]
struct DocumentReport {
    name: &'static str,
    title: &'static str,
    claims: Vec<ReportClaim>,
    figures: Vec<ReportFigure>,
}

/// A number of a document, and what ours say.
#[derive(Debug, Serialize)]
struct ReportClaim {
    /// The claim with our numbers, as in the figure's file.
    #[serde(flatten)]
    judged: Value,
    /// The figure that makes it.
    figure: Option<String>,
    /// What makes it again.
    command: Option<String>,
    /// Minutes that the figure took.
    minutes: Option<f64>,
    /// Our number in the older report.
    before: Option<f64>,
}

/// A figure's file and picture.
#[derive(Debug, Serialize)]
struct ReportFigure {
    id: String,
    command: String,
    #[serde(flatten)]
    document: Value,
    #[serde(skip)]
    picture: Option<String>,
}

impl DocumentReport {
    /// From the files in `folder`, if its figures are made here, and the numbers that it states.
    fn read(
        (name, title, claims): (&'static str, &'static str, &'static str),
        figures: Option<(&Path, &[&str])>,
        before: &HashMap<String, f64>,
    ) -> Result<Self, Fault> {
        let mut report = Self { name, title, claims: Vec::new(), figures: Vec::new() };
        if let Some((folder, ids)) = figures {
            for id in ids {
                report.figures.push(ReportFigure::read(name, folder, id)?);
            }
        }
        for figure in &report.figures {
            let minutes = figure.document["took_s"].as_f64().map(|seconds| seconds / 60.0);
            for judged in figure.document["claims"].as_array().into_iter().flatten() {
                let (figure, command) = (Some(figure.id.clone()), Some(figure.command.clone()));
                let before = before.get(&key(name, judged)).copied();
                report.claims.push(ReportClaim { judged: judged.clone(), figure, command, minutes, before });
            }
        }
        let all =
            Claim::parse_all(claims).unwrap_or_else(|line| unreachable!("a test reads every line: {line}"));
        for claim in all.into_iter().filter(|claim| claim.figure.is_none()) {
            let judged = serde_json::to_value(Judged::new(claim, Vec::new())).unwrap_or_default();
            report.claims.push(ReportClaim {
                judged,
                figure: None,
                command: None,
                minutes: None,
                before: None,
            });
        }
        Ok(report)
    }
}

impl ReportFigure {
    fn read(name: &str, folder: &Path, id: &str) -> Result<Self, Fault> {
        let path = folder.join(format!("{id}.json"));
        let text = std::fs::read(&path).map_err(|source| write_fault(&path, source))?;
        let document = serde_json::from_slice(&text).map_err(|why| write_fault(&path, why.into()))?;
        let picture = std::fs::read_to_string(folder.join(format!("{id}.svg"))).ok();
        let command = format!("lpm-bench paper {name} --figures {id}");
        Ok(Self { id: id.to_owned(), command, document, picture })
    }
}

impl ReportClaim {
    /// What our first number says.
    fn verdict(&self) -> Verdict {
        let of = |verdict: &Verdict| self.judged["verdict"] == serde_json::json!(verdict);
        Verdict::ALL.into_iter().find(of).unwrap_or(Verdict::CannotBeMadeHere)
    }
}

/// What names a claim in an older report.
fn key(document: &str, judged: &Value) -> String {
    format!("{document} {} {}", judged["section"], judged["what"])
}

/// Our numbers in the report `path`, by their keys.
fn numbers(path: &Path) -> Result<HashMap<String, f64>, Fault> {
    let wrong = |why: String| Fault::Usage(format!("{}: {why}", path.display()));
    let text = std::fs::read(path).map_err(|why| wrong(why.to_string()))?;
    let report: Value = serde_json::from_slice(&text).map_err(|why| wrong(why.to_string()))?;
    if report["kind"] != "report" || report["schema"] != SCHEMA {
        return Err(wrong(format!(
            "wanted a report of schema {SCHEMA}, this is {} of {}",
            report["kind"], report["schema"]
        )));
    }
    let mut numbers = HashMap::new();
    for document in report["documents"].as_array().into_iter().flatten() {
        let name = document["name"].as_str().unwrap_or_default();
        for claim in document["claims"].as_array().into_iter().flatten() {
            let ours = claim["ours"].as_array().into_iter().flatten();
            if let Some(value) = ours.filter_map(|one| one["value"].as_f64()).next() {
                numbers.insert(key(name, claim), value);
            }
        }
    }
    Ok(numbers)
}

/// Makes the figures of all papers, then the page.
///
/// # Errors
/// As `lpm-bench paper`; [`Fault::Usage`] when the older report cannot be read.
pub(crate) fn run(args: &ReportArgs) -> Result<u8, Fault> {
    let before = args.against.as_deref().map_or_else(|| Ok(HashMap::new()), numbers)?;
    let mut code = 0;
    let mut documents = Vec::new();
    for (series, paper, name) in
        [(Series::Gamt, &gamt::PAPER, "gamt"), (Series::Bloomfwd, &bloomfwd::PAPER, "bloomfwd")]
    {
        let folder = args.out.join(name);
        code = code.max(super::run(&args.paper(series, folder.clone()))?);
        let ids: Vec<_> = paper.known.iter().map(|known| known.id).collect();
        let document = (name, paper.title, paper.claims);
        documents.push(DocumentReport::read(document, Some((&folder, &ids)), &before)?);
    }
    for document in [
        ("sail", "SAIL (a part, from the end of 4.1 to 5.1)", include_str!("../claims/sail.txt")),
        ("poster", "The poster of GR, which the GAMT paper calls GALE", include_str!("../claims/poster.txt")),
    ] {
        documents.push(DocumentReport::read(document, None, &before)?);
    }
    let figures = || documents.iter().flat_map(|document| &document.figures);
    let sum = |name: &str| figures().filter_map(|figure| figure.document[name].as_u64()).sum();
    let report = Report {
        schema: SCHEMA,
        kind: "report",
        quick: args.quick,
        host: HostFacts::read(),
        build: Build::THIS,
        checked: sum("checked"),
        wrong: sum("wrong"),
        documents,
    };
    let path = args.out.join("report.json");
    write_json(&path, &report).map_err(|source| write_fault(&path, source))?;
    let path = args.out.join("index.html");
    let page = page::of(&report).into_string();
    write_whole(&path, |out| out.write_all(page.as_bytes())).map_err(|source| write_fault(&path, source))?;
    println!("{}", path.display());
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_every_document_is_read() {
        for text in [include_str!("../claims/sail.txt"), include_str!("../claims/poster.txt")] {
            let claims = Claim::parse_all(text).unwrap();
            assert!(claims.len() > 30 && claims.iter().all(|claim| claim.figure.is_none()));
        }
    }
}
