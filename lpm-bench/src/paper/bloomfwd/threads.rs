//! Figure 2: the lookup rate of the IPv4 algorithms by threads, and their speedup.

use super::contest;
use super::isas;
use super::subject::{Subject, build};
use crate::fault::Fault;
use crate::paper::Bench;
use crate::paper::figure::{Figure, Panel, least, over};
use fib::traffic::Traffic;
use fib::{Family, Isa};

/// Figure 2: lookup rate and scalability.
pub(super) fn figure_2(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Lookup rate and scalability of the IPv4 algorithms", "threads");
    let Some(set) = bench.main_set(Family::V4) else { return Ok(figure.without(Family::V4)) };
    let isas = isas(&mut figure);
    let best = isas.first().copied().unwrap_or(Isa::Scalar);
    let mut subjects = Subject::both(bench, &isas);
    subjects.extend([Subject::baseline(), Subject::naive(best)]);
    subjects.extend(Subject::mihts());
    let mut built = build(bench, &mut figure, &set.tables, Family::V4, &subjects)?;
    let keys = bench.stream(set, Family::V4, &Traffic::Random)?;
    let (mut rates, mut speedups) = (Panel::log("million lookups a second"), Panel::new("times one thread"));
    let threads = bench.threads();
    let measured = contest::run_counts(bench, &mut figure, &mut built, (&set.tables, &keys), &threads)?;
    for (one, measured) in built.iter().zip(&measured) {
        for rate in measured {
            let x = rate.threads as f64;
            rates.add(&one.subject.name, x, rate.mlps);
            let alone = rates.at(&one.subject.name, 1.0).unwrap_or(rate.mlps.median);
            speedups.add(&one.subject.name, x, rate.mlps.map(|mlps| mlps / alone));
            figure.rows.push(one.row(rate.fields()));
        }
    }
    let most = threads.last().copied().unwrap_or(1) as f64;
    let names = (Subject::best_bloom(bench).name, Subject::bloomfwd(best).name);
    ours(&mut figure, (&rates, &speedups), (&names.0, &names.1), most);
    figure.panels = vec![rates, speedups];
    figure.note = "Baseline and Bloomfwd differ in the hash and the vectors alone; Naive asks a filter for each of 32 lengths."
        .into();
    Ok(figure)
}

/// Hands in the numbers of section 6.3: rates on one thread, and speedups.
fn ours(
    figure: &mut Figure,
    (rates, speedups): (&Panel, &Panel),
    (bloom, bloomfwd): (&str, &str),
    most: f64,
) {
    for name in ["MIHT", "Baseline"] {
        figure.ours(&format!("{name}, one thread"), rates.at(name, 1.0));
    }
    for (name, line) in [("Baseline", "Baseline"), ("MIHT", "MIHT"), ("Bloomfwd", bloomfwd)] {
        figure.ours(&format!("{name}, most threads over one"), speedups.at(line, most));
    }
    let ratio = |name: &str, other: &str| over(rates.at(name, most), rates.at(other, most));
    for name in [bloomfwd, bloom] {
        let ratios: Vec<_> = ["Baseline", "MIHT"].iter().filter_map(|other| ratio(name, other)).collect();
        figure.ours_of("Bloomfwd over Baseline and MIHT, most threads, at least", name, least(&ratios));
    }
}

impl Bench<'_> {
    /// The numbers of threads: 1 to [`Self::threads_max`]; above 8, only powers of two and the maximum.
    fn threads(&self) -> Vec<usize> {
        let most = self.threads_max();
        (1..=most).filter(|n| most <= 8 || n.is_power_of_two() || *n == most).collect()
    }

    /// The most threads: as many as requested, else one per CPU.
    pub(super) fn threads_max(&self) -> usize {
        self.args.threads.map_or(self.host.cpus, usize::from).max(1)
    }
}
