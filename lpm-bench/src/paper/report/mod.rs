//! `lpm-bench report`: the figures of all papers, and one page of every number that they state.
//!
//! The page and `report.json` are built from the figures' files, so `--resume` continues an interrupted report.

mod page;

use super::bench::{Paper, write_fault};
use super::claims::{Judged, Verdict};
use crate::args::{ReportArgs, Series};
use crate::fault::{Fault, Result};
use crate::host::{Build, HostFacts};
use clap::ValueEnum;
use fib::output::{write_json, write_whole};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// The version of `report.json`, increased when a key is removed or changes its meaning.
const SCHEMA: u32 = 1;
const SCHEMA_TEXT: &str = include_str!("schema.json");

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    kind: &'static str,
    quick: bool,
    host: HostFacts,
    build: Build,
    checked: u64,
    wrong: u64,
    documents: Vec<DocumentReport>,
}

impl Report {
    fn claims(&self) -> impl Iterator<Item = &ReportClaim> {
        self.documents.iter().flat_map(|document| &document.claims)
    }

    fn figures(&self) -> impl Iterator<Item = &ReportFigure> {
        self.documents.iter().flat_map(|document| &document.figures)
    }
}

#[derive(Debug, Serialize)]
struct DocumentReport {
    name: String,
    title: &'static str,
    claims: Vec<ReportClaim>,
    figures: Vec<ReportFigure>,
}

#[derive(Debug, Default, Serialize)]
struct ReportClaim {
    #[serde(flatten)]
    judged: Value,
    figure: Option<String>,
    command: Option<String>,
    minutes: Option<f64>,
    before: Option<f64>,
}

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
    fn read(
        name: String,
        paper: &'static Paper,
        folder: &Path,
        before: &HashMap<String, f64>,
    ) -> Result<Self> {
        let figures = paper.known.iter().map(|known| ReportFigure::read(&name, folder, known.id));
        let figures = figures.collect::<Result<Vec<_>, _>>()?;
        let mut claims = Vec::new();
        for figure in &figures {
            claims.extend(list(&figure.document["claims"]).map(|judged| ReportClaim {
                judged: judged.clone(),
                figure: Some(figure.id.clone()),
                command: Some(figure.command.clone()),
                minutes: figure.document["took_s"].as_f64().map(|seconds| seconds / 60.0),
                before: before.get(&key(&name, judged)).copied(),
            }));
        }
        for claim in paper.claims().into_iter().filter(|claim| claim.figure.is_none()) {
            let command = claim.test.map(|(file, name)| {
                format!("cargo nextest run -p {} {name}", file.split('/').next().unwrap_or_default())
            });
            let judged = serde_json::to_value(Judged::new(claim, Vec::new())).unwrap_or_default();
            claims.push(ReportClaim { judged, command, ..ReportClaim::default() });
        }
        Ok(Self { name, title: paper.title, claims, figures })
    }
}

impl ReportFigure {
    fn read(name: &str, folder: &Path, id: &str) -> Result<Self> {
        let path = folder.join(format!("{id}.json"));
        let text = std::fs::read(&path).map_err(|source| write_fault(&path, source))?;
        let document = serde_json::from_slice(&text).map_err(|why| write_fault(&path, why.into()))?;
        let picture = std::fs::read_to_string(folder.join(format!("{id}.svg"))).ok();
        let command = format!("lpm-bench paper {name} --figures {id}");
        Ok(Self { id: id.to_owned(), command, document, picture })
    }
}

impl ReportClaim {
    fn verdict(&self) -> Verdict {
        Verdict::deserialize(&self.judged["verdict"]).unwrap_or(Verdict::CannotBeMadeHere)
    }
}

fn key(document: &str, judged: &Value) -> String {
    format!("{document} {} {}", judged["section"], judged["what"])
}

fn numbers(path: &Path) -> Result<HashMap<String, f64>> {
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
    for document in list(&report["documents"]) {
        for claim in list(&document["claims"]) {
            if let Some(value) = list(&claim["ours"]).find_map(|one| one["value"].as_f64()) {
                numbers.insert(key(document["name"].as_str().unwrap_or_default(), claim), value);
            }
        }
    }
    Ok(numbers)
}

pub(crate) fn run(args: &ReportArgs) -> Result<u8> {
    let before = args.against.as_deref().map_or_else(|| Ok(HashMap::new()), numbers)?;
    let mut code = 0;
    let mut documents = Vec::new();
    for series in Series::value_variants() {
        let name = series.name();
        let folder = args.out.join(&name);
        code = code.max(super::run(&args.paper(*series, folder.clone()))?);
        documents.push(DocumentReport::read(name, series.paper(), &folder, &before)?);
    }
    let mut report = Report {
        schema: SCHEMA,
        kind: "report",
        quick: args.quick,
        host: HostFacts::read(),
        build: Build::THIS,
        checked: 0,
        wrong: 0,
        documents,
    };
    let sum = |name: &str| report.figures().filter_map(|figure| figure.document[name].as_u64()).sum();
    (report.checked, report.wrong) = (sum("checked"), sum("wrong"));
    let path = args.out.join("report.json");
    write_json(&path, &report).map_err(|source| write_fault(&path, source))?;
    let (path, page) = (args.out.join("index.html"), page::render(&report).into_string());
    for (path, text) in [(&args.out.join("report.schema.json"), SCHEMA_TEXT), (&path, &page)] {
        write_whole(path, |out| out.write_all(text.as_bytes()))
            .map_err(|source| write_fault(path, source))?;
    }
    println!("{}", path.display());
    Ok(code)
}
