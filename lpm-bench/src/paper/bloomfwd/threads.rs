//! Figure 2: the lookup rate of the IPv4 algorithms by threads, and their speedup.

use super::contest;
use super::isas;
use super::subject::{Subject, build};
use crate::fault::Fault;
use crate::paper::Bench;
use crate::paper::figure::{Figure, Panel};
use fib::traffic::Traffic;
use fib::{Family, Isa};

/// Figure 2: lookup rate and scalability.
pub(super) fn figure_2(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Lookup rate and scalability of the IPv4 algorithms", "threads");
    let Some(set) = bench.main_set(Family::V4) else { return Ok(figure.without(Family::V4)) };
    let isas = isas(&mut figure);
    let best = isas.first().copied().unwrap_or(Isa::Scalar);
    let mut subjects = Subject::both(bench, &isas);
    subjects.extend([Subject::baseline(), Subject::naive(best), Subject::miht()]);
    let mut built = build(bench, &mut figure, &set.tables, Family::V4, &subjects)?;
    let keys = bench.stream(set, Family::V4, &Traffic::Random)?;
    let (mut rates, mut speedups) = (Panel::log("million lookups a second"), Panel::new("times one thread"));
    let threads = bench.threads();
    let measured = contest::run_counts(bench, &mut figure, &mut built, (&set.tables, &keys), &threads)?;
    for (one, measured) in built.iter().zip(&measured) {
        for rate in measured {
            let x = rate.threads as f64;
            rates.add(&one.subject.name, x, rate.mlps);
            let alone = rates.at(&one.subject.name, 1.0).unwrap_or(rate.mlps);
            speedups.add(&one.subject.name, x, rate.mlps / alone);
            figure.rows.push(one.row(rate.fields()));
        }
    }
    let most = threads.last().copied().unwrap_or(1) as f64;
    let names = (Subject::best_bloom(bench).name, Subject::bloomfwd(best).name);
    said(&mut figure, (&rates, &speedups), (&names.0, &names.1), most);
    figure.panels = vec![rates, speedups];
    figure.note = "Seconds are of each thread's CPU, summed up. Baseline and Bloomfwd differ in the hash and the vectors alone; \
                   Naive asks a filter for each of 32 lengths. In MIHT 64 keys go down together, so their loads overlap, which the \
                   paper does not say of its own. The paper's threads share cores of a Phi, four each, and hide one \
                   another's loads; here a thread has a CPU."
        .into();
    Ok(figure)
}

/// Adds the numbers of section 6.3: rates on one thread, and speedups.
fn said(
    figure: &mut Figure,
    (rates, speedups): (&Panel, &Panel),
    (bloom, bloomfwd): (&str, &str),
    most: f64,
) {
    let phi = "6.3";
    figure.said("MIHT, one thread", &[0.46], "Mlps", phi, rates.at("MIHT", 1.0));
    figure.said("Baseline, one thread", &[0.31], "Mlps", phi, rates.at("Baseline", 1.0));
    for (name, times) in [("Baseline", 61.0), ("MIHT", 40.0), (bloomfwd, 116.0)] {
        let what = format!("{name}, most threads over one");
        figure.said(what, &[times], "times", phi, speedups.at(name, most));
    }
    let over = |name: &str| Some(rates.at(bloomfwd, most)? / rates.at(name, most)?);
    let least = ["Baseline", "MIHT"].into_iter().filter_map(over).reduce(f64::min);
    figure.said("Bloomfwd over Baseline and MIHT, most threads, at least", &[3.7], "times", phi, least);
    let times = rates.at(bloom, most).zip(rates.at("MIHT", most)).map(|(bloom, miht)| bloom / miht);
    figure.said(format!("{bloom} over MIHT, most threads"), &[3.7], "times", phi, times);
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
