//! Table 1: the machines. Table 2: rates of other systems, next to ours for those that are engines here.

use super::contest::{ContestSubject, build, run_counts};
use super::isas;
use crate::paper::bench::{Bench, Family, Figure, Result, Spread, Traffic, json};
use std::time::Instant;

/// Limit of the elements of each array for the bandwidth: 128 MB.
const ELEMENTS_MAX: usize = 16 << 20;

pub(super) fn table_1(bench: &Bench, figure: &mut Figure) -> Result<()> {
    figure.name_places(["this host", "Phi 7120P", "Phi 7250"]);
    bench.show_progress("measures the memory bandwidth");
    let elements = bench.args.keys().min(ELEMENTS_MAX);
    let (rounds, wrong) = triads_gb_s(elements, bench.threads_max(), bench.args.rounds());
    let gb_s = Spread::of_rounds(&rounds);
    (figure.checked, figure.wrong) = (elements as u64, wrong);
    bench.name_traffic(format!("STREAM's triad over three arrays of {elements} numbers of 8 bytes"));
    let (cpus, ghz) = (bench.host.cpus as f64, bench.host.clock_ghz_estimated);
    let measured = [("cores", cpus.into()), ("clock", ghz.into()), ("memory bandwidth", gb_s)];
    for (panel, (what, value)) in measured.into_iter().enumerate() {
        figure.add(panel, "this host", 0.0, value);
        for phi in ["7120P", "7250"] {
            figure.record(&format!("Phi {phi}, {what}"), value.median);
        }
    }
    figure.rows.push(json!({
        "processor": bench.host.cpu_model, "cpus": cpus, "ghz": ghz, "gb_s": gb_s,
        "l2_kib": bench.host.l2_kib, "l3_kib": bench.host.l3_kib,
    }));
    Ok(())
}

/// Gigabytes a second of STREAM's triad `a = b + 3 c`, by its count (two arrays read, one written), and the number of wrong sums.
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

pub(super) fn table_2(bench: &Bench, figure: &mut Figure) -> Result<()> {
    const ALGORITHMS: [&str; 3] = ["SAIL_L", "GAMT", "Bloomfwd"];
    const LINE: &str = "this host's CPUs";
    if bench.main_set(Family::V4).is_none() {
        return figure.without(Family::V4);
    }
    figure.name_places(ALGORITHMS);
    let isa = isas(figure)[0];
    let subjects = [
        ContestSubject::new("SAIL_L".into(), lpm_cpu::sail_l::NAME, isa, &[]),
        ContestSubject::new("GAMT".into(), lpm_gpu::mamt::NAME, isa, &[]),
        ContestSubject::bloomfwd(isa).named("Bloomfwd"),
    ];
    let place = |name: &str| ALGORITHMS.iter().position(|other| *other == name).unwrap_or(0) as f64;
    for (panel, (family, word)) in [(Family::V4, "IPv4"), (Family::V6, "IPv6")].into_iter().enumerate() {
        // SAIL_L is an algorithm for IPv4.
        let subjects = if family == Family::V4 { &subjects[..] } else { &subjects[1..] };
        if let Some(set) = bench.main_set(family) {
            let mut built = build(bench, figure, &set.tables, family, subjects)?;
            let keys = bench.stream(set, family, &Traffic::Random)?;
            let rates = run_counts(bench, figure, &mut built, (&set.tables, &keys), &[bench.threads_max()])?;
            for (one, rate) in built.iter().zip(rates.iter().flatten()) {
                figure.add(panel, LINE, place(&one.name), rate.mlps);
                figure.rows.push(one.row(rate));
            }
        }
        for ContestSubject { name, engine, .. } in subjects {
            let processor = if name == "Bloomfwd" { "Phi 7250" } else { "Tesla C2075" };
            let ours = figure.panels[panel].value_at(LINE, place(name));
            figure.record_of(&format!("{name}, {processor}, {word}"), &format!("{engine} on {LINE}"), ours);
        }
    }
    Ok(())
}
