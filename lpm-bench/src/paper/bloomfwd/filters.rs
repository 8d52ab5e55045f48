//! Table 5: m and k of the filters by false-positive rate. Figure 1: lookup time by hash function and rate.

use super::contest;
use super::subject::{Subject, build};
use super::{isas, sets};
use crate::fault::Fault;
use crate::paper::Bench;
use crate::paper::claims::{Claim, Rule};
use crate::paper::figure::{Figure, Panel, over, with};
use fib::traffic::Traffic;
use fib::{Family, Isa};
use lpm_phi::bloom::equations::FilterSize;
use lpm_phi::cpe::expand;
use lpm_phi::variants::hash::HashName;
use serde_json::json;

/// The rates of table 5 and figure 1, percent.
const PERCENTS: [f64; 5] = [1.0, 10.0, 30.0, 60.0, 90.0];
/// The k of table 5, the same for all its tables.
const HASHES: [u32; 5] = [7, 4, 2, 1, 1];
/// Addresses of the paper's figures: 2^26.
const ADDRESSES: f64 = 67_108_864.0;

/// A row of table 5.
struct PaperFilters {
    /// A table and one of its groups, such as `AS65000 G1`.
    name: String,
    /// The prefixes of the group.
    entries: u64,
    /// m by rate.
    bits: Vec<u64>,
}

/// Table 5 of the paper.
fn table_of_the_paper() -> impl Iterator<Item = PaperFilters> {
    let rows = include_str!("table5.txt").lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|line| {
        let mut words = line.split(' ');
        let name = format!("{} {}", words.next()?, words.next()?);
        let mut numbers = words.filter_map(|word| word.parse().ok());
        Some(PaperFilters { name, entries: numbers.next()?, bits: numbers.collect() })
    })
}

/// Table 5: the filters' parameters. A cell that differs from the paper's counts as wrong.
pub(super) fn table_5(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Bloom filters parameters as FPR is varied", "false-positive rate, percent");
    let (mut bits, mut hashes) = (Panel::log("m, bits of the filter"), Panel::new("k, hash functions"));
    for PaperFilters { name, entries, bits: cells } in table_of_the_paper() {
        for ((percent, m), k) in PERCENTS.into_iter().zip(cells).zip(HASHES) {
            let ours = FilterSize::of(entries, percent / 100.0);
            let of = |what| format!("{name}, {percent} %, {what}");
            let cell =
                |what, number, unit| Claim::of_table("table 5", of(what), vec![number], unit, Rule::Count);
            figure.cell(cell("m", m as f64, "bits"), Some(ours.bits as f64));
            figure.cell(cell("k", f64::from(k), ""), Some(f64::from(ours.hashes)));
            figure.checked += 2;
            figure.wrong += u64::from(ours.bits != m) + u64::from(ours.hashes != k);
            if name.starts_with("AS65000 ") {
                bits.add(&name, percent, ours.bits as f64);
            }
            if name == "AS65000 G1" {
                hashes.add("all", percent, f64::from(ours.hashes));
            }
        }
    }
    for set in sets(bench, Family::V4) {
        bench.tell(&set.name);
        let entries = expand::actual(&set.tables.v4, 21, &[24, 32]);
        let before = |lens: std::ops::RangeInclusive<u8>| {
            set.tables.v4.iter().filter(|(prefix, _)| lens.contains(&prefix.len())).count()
        };
        for ((group, lens), entries) in [("G1", 21..=24), ("G2", 25..=32)].into_iter().zip(entries) {
            let routes = before(lens);
            for percent in PERCENTS {
                let size = FilterSize::of(entries, percent / 100.0);
                let exact = FilterSize::for_rate(entries, percent / 100.0);
                bits.add(&format!("{} {group}", set.name), percent, size.bits as f64);
                figure.rows.push(json!({
                    "data": set.name, "group": group, "routes": routes, "entries": entries, "fpr_percent": percent,
                    "m": size.bits, "k": size.hashes, "rate_percent": 100.0 * size.rate(entries),
                    "m_exact": exact.bits, "rate_exact_percent": 100.0 * exact.rate(entries),
                }));
            }
        }
    }
    figure.panels = vec![bits, hashes];
    figure.note = "Equations 1 to 3 for the paper's n, all cells, and for our tables. Rounding k up moves the rate: rate_percent is \
                   what such a filter really has, m_exact what the engines take to have the asked one."
        .into();
    Ok(figure)
}

/// Figure 1: hash functions and rates.
pub(super) fn figure_1(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let title = "Execution times for multiple hash functions and FPRs";
    let mut figure = Figure::new(title, "false-positive rate, percent");
    let Some(set) = bench.main_set(Family::V4) else { return Ok(figure.without(Family::V4)) };
    let keys = bench.stream(set, Family::V4, &Traffic::Random)?;
    let threads = bench.threads_max();
    let percents = if bench.args.quick { vec![1.0, 30.0, 90.0] } else { PERCENTS.to_vec() };
    for isa in isas(&mut figure) {
        let mut panel = Panel::new(&format!("seconds for 2^26 addresses, {isa}"));
        for percent in &percents {
            let subjects = subjects(bench, isa, *percent);
            let mut built = build(bench, &mut figure, &set.tables, Family::V4, &subjects)?;
            let rates = contest::run(bench, &mut figure, &mut built, (&set.tables, &keys), threads)?;
            for (one, rate) in built.iter().zip(&rates) {
                panel.add(&one.subject.name, *percent, rate.mlps.map(|mlps| ADDRESSES / mlps / 1e6));
                figure.rows.push(with(one.row(rate.fields()), json!({"fpr_percent": percent})));
            }
        }
        ours(&mut figure, &panel, isa, &percents);
        figure.panels.push(panel);
    }
    figure.note = "\"Murmur + H2\" has Murmur in the filters and H2 for the hash tables; where both are one, the hash is made once. \
                   The hash tables have odd numbers of buckets."
        .into();
    Ok(figure)
}

/// Every pair of hash functions, and the engine `bloom`.
fn subjects(bench: &Bench<'_>, isa: Isa, percent: f64) -> Vec<Subject> {
    let vectorised = HashName::ALL.into_iter().filter(|hash| hash.is_vectorised());
    // In a quick run, scalar code has only the pairs of a function with itself.
    let few = bench.args.quick && isa == Isa::Scalar;
    let pairs = vectorised.clone().flat_map(|filter| vectorised.clone().map(move |table| (filter, table)));
    let mut subjects: Vec<_> = pairs
        .filter(|(filter, table)| !few || filter == table)
        .map(|(filter, table)| {
            Subject::bloomfwd(isa).with("hash", &filter).with("table-hash", &table).named(format!(
                "{} + {}",
                word(filter),
                word(table)
            ))
        })
        .collect();
    subjects.push(Subject::bloom(bench, isa));
    subjects.into_iter().map(|subject| subject.with("fpr", &(percent / 100.0))).collect()
}

fn word(hash: HashName) -> &'static str {
    match hash {
        HashName::Murmur => "Murmur",
        HashName::Knuth => "Knuth",
        HashName::H2 => "H2",
        HashName::Rand => "rand",
    }
}

/// Hands in the numbers of section 6.2, of the pairs only.
fn ours(figure: &mut Figure, panel: &Panel, isa: Isa, percents: &[f64]) {
    let pairs: Vec<_> =
        panel.series.iter().map(|line| line.name.as_str()).filter(|name| name.contains(" + ")).collect();
    let mean = |percent: f64| {
        pairs.iter().filter_map(|name| panel.at(name, percent)).sum::<f64>() / pairs.len().max(1) as f64
    };
    let best = percents.iter().copied().min_by(|a, b| mean(*a).total_cmp(&mean(*b)));
    figure.ours_of("least average time at", &isa.to_string(), best);
    let h2 = panel.at("H2 + H2", 30.0);
    let faster = |own: f64| pairs.iter().filter(|name| panel.at(name, 30.0).is_some_and(|s| s < own)).count();
    let place = h2.map(|own| 1.0 + faster(own) as f64);
    figure.ours_of("place of H2 + H2 at 30 %", &isa.to_string(), place);
    let knuth = over(panel.at("Knuth + Knuth", 30.0), h2);
    figure.own("time of Knuth + Knuth over H2 + H2 at 30 %", &isa.to_string(), "times", knuth);
}
