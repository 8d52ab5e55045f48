//! Table 3: IPv4 prefixes before and after expansion. Table 5: m and k of the filters by false-positive rate. Figure 1: lookup time by
//! hash function and rate.

use super::contest::{ContestSubject, build, run_counts};
use super::{isas, rows_of, stand_in};
use crate::paper::bench::{
    Bench, Claim, Family, Figure, Isa, Panel, Result, RouteSet, Traffic, json, over, with,
};
use crate::paper::claims::Rule;
use lpm_phi::bloom::equations::FilterSize;
use lpm_phi::cpe::expand;
use lpm_phi::variants::hash::HashName;

const PERCENTS: [f64; 5] = [1.0, 10.0, 30.0, 60.0, 90.0];
/// The k of table 5, the same for all its tables.
const HASHES: [u64; 5] = [7, 4, 2, 1, 1];
const ADDRESSES: f64 = 67_108_864.0;
/// Tables 3 and 5 of the paper: the columns of table 3 before and after expansion, and m of G1 and of G2 by rate.
const TABLES_3_5: &str = include_str!("tables35.txt");
const COLUMNS: [&str; 3] = ["lengths to 20", "lengths 21 to 24", "lengths 25 to 32"];
const EXPANDED: [&str; 3] = ["direct array", "G1", "G2"];

/// The IPv4 prefixes of `tables` by column, and the expanded prefixes of G1 and G2.
fn prefixes(tables: &RouteSet) -> ([u64; 3], [u64; 2]) {
    let count = |lens: std::ops::RangeInclusive<u8>| {
        tables.v4.iter().filter(|(prefix, _)| lens.contains(&prefix.len())).count() as u64
    };
    let after = expand::actual(&tables.v4, 21, &[24, 32]);
    ([count(0..=20), count(21..=24), count(25..=32)], [after[0], after[1]])
}

/// Table 3. The engine's direct array, entries and filters are counted, too; each difference is a wrong answer.
pub(super) fn table_3(bench: &Bench, figure: &mut Figure) -> Result<()> {
    if bench.main_set(Family::V4).is_none() {
        return figure.without(Family::V4);
    }
    let subjects = [ContestSubject::bloomfwd(Isa::Scalar)];
    let mut all = Vec::new();
    for (x, set) in (0_u32..).zip(bench.sets(Family::V4)) {
        bench.show_progress(&set.name);
        figure.x_names.push(set.name.clone());
        let (before, [g1, g2]) = prefixes(&set.tables);
        let built = build(bench, figure, &set.tables, Family::V4, &subjects)?;
        let detail = |name| built.first().and_then(|one| one.details.get(name));
        let m =
            [g1, g2].map(|entries| FilterSize::by_equations(entries.max(FilterSize::ENTRIES_MIN), 0.3).bits);
        for (name, counted) in [("v4_entries", g1 + g2), ("v4_filter_bits", m.iter().sum())] {
            figure.check_that(detail(name) == Some(counted as f64));
        }
        let before = before.map(|count| Some(count as f64));
        let after = [detail("v4_direct_entries"), Some(g1 as f64), Some(g2 as f64)];
        for (name, count) in COLUMNS.iter().zip(before).chain(EXPANDED.iter().zip(after)) {
            figure.add(0, name, x, count.unwrap_or(f64::NAN));
        }
        figure.rows.push(json!({"data": set.name, "before": before, "after": after, "m_at_30_percent": m}));
        all.push((set.name.as_str(), [before, after].concat()));
    }
    for (name, columns) in rows_of(TABLES_3_5) {
        let Some(set) = stand_in(bench, Family::V4, name) else { continue };
        let Some((ours, here)) = all.iter().find(|(other, _)| *other == set.name) else { continue };
        let columns = columns[0].iter().chain(&columns[1]).zip(COLUMNS.iter().chain(&EXPANDED));
        for ((paper, column), value) in columns.zip(here) {
            let what = format!("{name} ({ours} here), {column}");
            let rule = if *column == "direct array" { Rule::Count } else { Rule::Data };
            figure.cell(Claim::of_table("table 3", what, *paper as f64, "prefixes", rule), [("", *value)]);
        }
    }
    Ok(())
}

/// Table 5: the filters' parameters. A cell that differs from the paper's counts as wrong.
pub(super) fn table_5(bench: &Bench, figure: &mut Figure) -> Result<()> {
    for (table, columns) in rows_of(TABLES_3_5) {
        for ((group, entries), cells) in ["G1", "G2"].into_iter().zip(&columns[1][1..]).zip(&columns[2..]) {
            let name = format!("{table} {group}");
            for ((percent, m), k) in PERCENTS.into_iter().zip(cells).zip(HASHES) {
                let ours = FilterSize::by_equations(*entries, percent / 100.0);
                for (what, paper, unit, ours) in
                    [("m", *m, "bits", ours.bits), ("k", k, "", ours.hashes.into())]
                {
                    let what = format!("{name}, {percent} %, {what}");
                    let cell = Claim::of_table("table 5", what, paper as f64, unit, Rule::Count);
                    figure.cell(cell, [("", Some(ours as f64))]);
                    figure.check_that(ours == paper);
                }
                if table == "AS65000" {
                    figure.add(0, &name, percent, ours.bits as f64);
                    figure.add(1, group, percent, f64::from(ours.hashes));
                }
            }
        }
    }
    for set in bench.sets(Family::V4) {
        bench.show_progress(&set.name);
        let (before, after) = prefixes(&set.tables);
        for ((group, routes), entries) in ["G1", "G2"].into_iter().zip(&before[1..]).zip(after) {
            for percent in PERCENTS {
                let size = FilterSize::by_equations(entries, percent / 100.0);
                let exact = FilterSize::for_rate(entries, percent / 100.0);
                figure.add(0, &format!("{} {group}", set.name), percent, size.bits as f64);
                figure.rows.push(json!({
                    "data": set.name, "group": group, "routes": routes, "entries": entries, "fpr_percent": percent,
                    "m": size.bits, "k": size.hashes, "rate_percent": 100.0 * size.rate(entries),
                    "m_exact": exact.bits, "rate_exact_percent": 100.0 * exact.rate(entries),
                }));
            }
        }
    }
    Ok(())
}

pub(super) fn figure_1(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let Some(set) = bench.main_set(Family::V4) else { return figure.without(Family::V4) };
    let keys = bench.stream(set, Family::V4, &Traffic::Random)?;
    let percents = if bench.args.quick { &[1.0, 30.0, 90.0][..] } else { &PERCENTS };
    for isa in isas(figure) {
        let mut panel = Panel::new(format!("seconds for 2^26 addresses, {isa}"));
        for percent in percents {
            let subjects = subjects(bench, isa, *percent);
            let mut built = build(bench, figure, &set.tables, Family::V4, &subjects)?;
            let rates = run_counts(bench, figure, &mut built, (&set.tables, &keys), &[bench.threads_max()])?;
            for (one, rate) in built.iter().zip(rates.iter().flatten()) {
                let (name, detail) = (&one.name, |name| one.details.get(name));
                panel.add(name, *percent, rate.mlps.map(|mlps| ADDRESSES / mlps / 1e6));
                let used = over(detail("v4_buckets_used"), detail("v4_buckets")).map(|part| 100.0 * part);
                let more = json!({
                    "fpr_percent": percent, "filter_bits": detail("v4_filter_bits"), "buckets_used_percent": used,
                });
                figure.rows.push(with(one.row(rate), more));
                if *percent == 30.0 && [KNUTH, KNUTH_ODD, H2].contains(&name.as_str()) {
                    figure.record_unclaimed("buckets in use", &format!("{name}, {isa}"), "percent", used);
                }
            }
        }
        record_best(figure, &panel, isa, percents);
        figure.panels.push(panel);
    }
    Ok(())
}

const KNUTH: &str = "Knuth + Knuth";
const KNUTH_ODD: &str = "Knuth + Knuth, odd buckets";
const H2: &str = "H2 + H2";

fn subjects(bench: &Bench, isa: Isa, percent: f64) -> Vec<ContestSubject> {
    let vectorised = HashName::ALL.into_iter().filter(|hash| hash.is_vectorised());
    // In a quick run, scalar code has only the pairs of a function with itself.
    let few = bench.args.quick && isa == Isa::Scalar;
    let pair = |filter: HashName, table: HashName| {
        let name = format!("{} + {}", word(filter), word(table));
        ContestSubject::bloomfwd(isa).with("hash", &filter).with("table-hash", &table).named(name)
    };
    let pairs = vectorised.clone().flat_map(|filter| vectorised.clone().map(move |table| (filter, table)));
    let pairs = pairs.filter(|(filter, table)| !few || filter == table);
    let mut subjects: Vec<_> = pairs.map(|(filter, table)| pair(filter, table)).collect();
    subjects.extend([
        pair(HashName::Knuth, HashName::Knuth).with("buckets", &"odd").named(KNUTH_ODD),
        pair(HashName::H2, HashName::H2)
            .with("filters", &"exact")
            .named("H2 + H2, filters of the exact rate"),
        ContestSubject::bloom(bench, isa),
    ]);
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

fn record_best(figure: &mut Figure, panel: &Panel, isa: Isa, percents: &[f64]) {
    let names = panel.series.iter().map(|line| line.name.as_str());
    let pairs: Vec<_> = names.filter(|name| name.contains(" + ") && !name.contains(',')).collect();
    let mean = |percent: f64| {
        pairs.iter().filter_map(|name| panel.value_at(name, percent)).sum::<f64>() / pairs.len().max(1) as f64
    };
    let best = percents.iter().copied().min_by(|a, b| mean(*a).total_cmp(&mean(*b)));
    figure.record_of("least average time at", &isa.to_string(), best);
    let h2 = panel.value_at(H2, 30.0);
    let faster =
        |own: f64| pairs.iter().filter(|name| panel.value_at(name, 30.0).is_some_and(|s| s < own)).count();
    let place = h2.map(|own| 1.0 + faster(own) as f64);
    figure.record_of("place of H2 + H2 at 30 %", &isa.to_string(), place);
    for name in [KNUTH, KNUTH_ODD] {
        let times = over(panel.value_at(name, 30.0), h2);
        figure.record_unclaimed("time at 30 % over H2 + H2", &format!("{name}, {isa}"), "times", times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_counted_before_and_after_expansion() {
        // A /22 and the /24 within it are four /24s, a /23 is two; a /30 is four /32s, including one of the routes.
        let lines = ["0.0.0.0/0 1", "10.0.0.0/20 1", "10.1.0.0/22 1", "10.1.1.0/24 2", "10.2.0.0/23 1"];
        let tables = RouteSet::of_routes(&[&lines[..], &["10.3.0.4/30 1", "10.3.0.5/32 2"]].concat());
        assert_eq!(prefixes(&tables), ([2, 3, 2], [6, 4]));
    }

    #[test]
    fn the_paper_s_tables_are_whole() {
        let rows: Vec<_> = rows_of(TABLES_3_5).collect();
        assert_eq!(rows.len(), 7);
        for (name, columns) in rows {
            let [before, after, bits @ ..] = columns.as_slice() else { panic!("{name}: {columns:?}") };
            assert_eq!((before.len(), after.len(), after[0]), (3, 3, 1 << 20), "{name}");
            assert!(bits.len() == 2 && bits.iter().all(|m| m.len() == 5 && m.is_sorted_by(|a, b| a > b)));
        }
    }
}
