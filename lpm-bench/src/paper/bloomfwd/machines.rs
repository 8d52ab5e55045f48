//! Table 1: the machines. Table 2: what other systems reached, beside those of them that are engines here.

use super::contest;
use super::subject::{Subject, build};
use super::{MLPS, figure_of, isas};
use crate::fault::Fault;
use crate::paper::Bench;
use crate::paper::figure::{Figure, Panel};
use fib::Family;
use fib::traffic::Traffic;
use lpm_bench::stats::Spread;
use serde_json::json;
use std::time::Instant;

/// Elements of each array of the bandwidth measurement, at most: 128 MB.
const ELEMENTS_MAX: usize = 16 << 20;

/// Table 1: this host, where the paper has two Xeon Phi.
pub(super) fn table_1(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Characteristics of the processors used", "processor");
    figure.x_names = ["this host", "Phi 7120P", "Phi 7250"].map(Into::into).to_vec();
    bench.tell("measures the memory bandwidth");
    let elements = bench.args.keys().min(ELEMENTS_MAX);
    let (rounds, wrong) = triads_gb_s(elements, bench.threads_max(), bench.args.rounds());
    let gb_s = Spread::of(&rounds);
    (figure.checked, figure.wrong) = (elements as u64, wrong);
    bench.name_traffic(format!("STREAM's triad over three arrays of {elements} numbers of 8 bytes"));
    let (cpus, ghz) = (bench.host.cpus as f64, bench.host.clock_ghz_estimated);
    let measured = [("cores", cpus.into()), ("clock", ghz.into()), ("memory bandwidth", gb_s)];
    for ((what, value), y) in measured.into_iter().zip(["cores (here: CPUs)", "GHz", "GB/s"]) {
        let mut panel = Panel::new(y);
        panel.add("this host", 0.0, value);
        figure.panels.push(panel);
        for phi in ["7120P", "7250"] {
            figure.ours(&format!("Phi {phi}, {what}"), value.median);
        }
    }
    figure.rows.push(json!({
        "processor": bench.host.cpu_model, "cpus": cpus, "ghz": ghz, "gb_s": gb_s,
        "l2_kib": bench.host.l2_kib, "l3_kib": bench.host.l3_kib,
    }));
    figure.note = "The bandwidth here is measured with STREAM's triad by all threads; the paper's is the manufacturer's.".into();
    Ok(figure)
}

/// Gigabytes a second that STREAM's triad `a = b + 3 c` moves, by its count: two arrays are read, one is written. And how many sums were
/// wrong.
fn triads_gb_s(elements: usize, threads: usize, rounds: usize) -> (Vec<f64>, u64) {
    let (mut a, b, c) = (vec![0.0_f64; elements], vec![1.0_f64; elements], vec![2.0_f64; elements]);
    let part = elements.div_ceil(threads).max(1);
    let mut triad_gb_s = || {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for ((a, b), c) in a.chunks_mut(part).zip(b.chunks(part)).zip(c.chunks(part)) {
                scope.spawn(move || {
                    for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
                        *a = b + 3.0 * c;
                    }
                });
            }
        });
        3.0 * size_of_val(b.as_slice()) as f64 / start.elapsed().as_secs_f64() / 1e9
    };
    // The first touches the pages.
    triad_gb_s();
    let rates = (0..rounds).map(|_| triad_gb_s()).collect();
    (rates, a.iter().filter(|sum| (*sum - 7.0).abs() > 1e-9).count() as u64)
}

/// Table 2: random addresses, the worst case.
pub(super) fn table_2(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let title = "Comparison between previous work that employed accelerators in the IP lookup problem";
    figure_of(bench, Family::V4, title, "algorithm", |figure, _| {
        figure.x_names = ["SAIL_L", "GAMT", "Bloomfwd"].map(Into::into).to_vec();
        let isa = isas(figure)[0];
        let subjects = [
            Subject::new("SAIL_L".into(), lpm_cpu::sail_l::NAME, isa, &[]),
            Subject::new("GAMT".into(), lpm_gpu::mamt::NAME, isa, &[]),
            Subject::bloomfwd(isa).named("Bloomfwd"),
        ];
        let mut panels = Vec::new();
        for (family, word) in [(Family::V4, "IPv4"), (Family::V6, "IPv6")] {
            // SAIL_L is an algorithm for IPv4.
            let subjects = if family == Family::V4 { &subjects[..] } else { &subjects[1..] };
            let mut panel = Panel::log(&format!("{MLPS}, {word}"));
            if let Some(set) = bench.main_set(family) {
                let mut built = build(bench, figure, &set.tables, family, subjects)?;
                let (keys, threads) = (bench.stream(set, family, &Traffic::Random)?, bench.threads_max());
                let rates = contest::run(bench, figure, &mut built, (&set.tables, &keys), threads)?;
                for (one, rate) in built.iter().zip(&rates) {
                    let x = figure.x_names.iter().position(|name| *name == one.subject.name).unwrap_or(0);
                    panel.add("this host's CPUs", x as f64, rate.mlps);
                    figure.rows.push(one.row(rate.fields()));
                }
            }
            for subject in subjects {
                let name = &subject.name;
                let x = figure.x_names.iter().position(|other| other == name).unwrap_or(0) as f64;
                let processor = if name == "Bloomfwd" { "Phi 7250" } else { "Tesla C2075" };
                figure.ours(&format!("{name}, {processor}, {word}"), panel.at("this host's CPUs", x));
            }
            panels.push(panel);
        }
        figure.note = "GAMT's trie is searched by the CPU here (mamt). Where this host has a GPU, the figures of GAMT and SAIL have those \
                       engines on it; the table's other systems are not built here."
            .into();
        Ok(panels)
    })
}
