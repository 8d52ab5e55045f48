//! Tables 1 and 2: the routing data and the platform.

use crate::paper::bench::{Bench, DataSet, Family, Figure, Result, json, with};
use fib::host::Host;
use lpm_gpu::cu::{Device, Facts};
use std::collections::BTreeMap;

const COLLECTORS: [&str; 4] = ["rrc11", "rrc12", "rrc13", "rrc14"];

pub(super) fn table_1(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let sets = bench.sets.iter().flat_map(|set| [(set, Family::V4, "IPv4"), (set, Family::V6, "IPv6")]);
    for (set, family, name) in sets.filter(|(set, family, _)| set.tables.routes(*family) > 0) {
        let counts = UpdateCounts::count(set, family);
        let longest = set.tables.lens(family).into_iter().max().unwrap_or(0);
        let columns = [
            ("prefixes", set.tables.routes(family) as f64),
            ("longest prefix", longest.into()),
            ("seconds with updates", counts.seconds as f64),
            ("updates of a day", counts.total as f64),
            ("updates in a second, at most", counts.most as f64),
            ("updates in a second, mean", counts.total as f64 / counts.seconds.max(1) as f64),
        ];
        for collector in COLLECTORS {
            for (column, value) in columns {
                figure.record_of(&format!("{collector}, {name}: {column}"), &set.name, value);
            }
        }
        figure.record_of("minutes of the day of updates, 0:00 to 23:55", &set.name, counts.minutes);
        let named = columns.map(|(column, value)| (column.to_owned(), json!(value)));
        let row = json!({ "name": set.name, "family": name, "minutes": counts.minutes });
        figure.rows.push(with(row, named.into_iter().collect()));
    }
    Ok(())
}

struct UpdateCounts {
    seconds: u64,
    total: u64,
    most: u64,
    minutes: f64,
}

impl UpdateCounts {
    fn count(set: &DataSet, family: Family) -> Self {
        let mut stamps: BTreeMap<i64, u64> = BTreeMap::new();
        for update in set.updates_of(family) {
            #[expect(clippy::cast_possible_truncation, reason = "seconds since 1970")]
            let second = update.time_s.floor() as i64;
            *stamps.entry(second).or_default() += 1;
        }
        let most = stamps.values().copied().max().unwrap_or(0);
        let ends = stamps.last_key_value().zip(stamps.first_key_value());
        let minutes = ends.map_or(0, |(last, first)| last.0 - first.0) as f64 / 60.0;
        Self { seconds: stamps.len() as u64, total: stamps.values().sum(), most, minutes }
    }
}

pub(super) fn table_2(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let kib = Host::here().field("proc/meminfo", "MemTotal");
    figure.rows.push(json!({
        "platform": "this host", "cpu": bench.host.cpu_model, "cpus": bench.host.cpus, "ram": kib,
        "gpu": bench.device.as_ref().ok(), "no_gpu": bench.device.as_ref().err(),
    }));
    figure.record("server, CPU clock (Xeon E5-2630)", bench.host.clock_ghz_estimated);
    figure.record("server, CPU cores", bench.host.cpus as f64);
    let device = bench.device.is_ok().then(|| Device::open(bench.args.device()).ok()).flatten();
    let mut ours = |what: &str, of: fn(&Facts) -> Option<f64>| {
        figure.record(&format!("server, GPU {what}"), device.as_ref().and_then(|device| of(device.facts())));
    };
    ours("clock (Tesla C2075)", |facts| Some(f64::from(facts.clock_khz?) / 1e6));
    ours("memory", |facts| Some(facts.memory_bytes? as f64 / f64::from(1 << 20)));
    ours("multiprocessors", |facts| Some(facts.multiprocessors.into()));
    ours("compute capability", |facts| {
        Some(f64::from(facts.capability.0) + f64::from(facts.capability.1) / 10.0)
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::gamt::PAPER;
    use crate::paper::testing::bench_of;

    #[test]
    fn table_1_counts_the_updates_of_each_second() {
        let routes = "10.0.0.0/8 1\n10.1.0.0/17 1\n2001:db8::/32 1\n";
        let lines = "60.1 a 10.1.0.0/16 192.0.2.1\n60.9 w 10.1.0.0/16 192.0.2.1\n60.9 a 10.2.0.0/16 192.0.2.1\n\
                     180.0 a 10.3.0.0/16 192.0.2.1\n90.0 a 2001:db8:1::/48 2001:db8::1\n";
        let figure = PAPER.make("table1", &bench_of(routes, lines, &PAPER)).unwrap();
        for (family, row) in
            [("IPv4", [2.0, 17.0, 2.0, 4.0, 3.0, 2.0, 2.0]), ("IPv6", [1.0, 32.0, 1.0, 1.0, 1.0, 1.0, 0.0])]
        {
            let found = figure.rows.iter().find(|found| found["family"] == family).unwrap();
            let columns = [
                "prefixes",
                "longest prefix",
                "seconds with updates",
                "updates of a day",
                "updates in a second, at most",
                "updates in a second, mean",
                "minutes",
            ];
            assert_eq!(columns.map(|column| found[column].as_f64().unwrap()), row, "{family}");
        }
    }

    /// The paper's own table: the mean is the updates over the seconds, except for rrc13's IPv6, whose two columns are exchanged.
    #[test]
    fn the_paper_s_means_are_its_updates_over_its_seconds() {
        let claims = PAPER.claims();
        let paper = |collector: &str, family: &str, column: &str| {
            let what = format!("{collector}, {family}: {column}");
            claims.iter().find(|claim| claim.what == what).unwrap_or_else(|| panic!("{what}")).paper[0]
        };
        for collector in COLLECTORS {
            for family in ["IPv4", "IPv6"] {
                let of = |column| paper(collector, family, column);
                let mut mean = of("updates of a day") / of("seconds with updates");
                if (collector, family) == ("rrc13", "IPv6") {
                    mean = 1.0 / mean;
                }
                assert!(
                    (of("updates in a second, mean") - mean).abs() < 0.01,
                    "{collector}, {family}: {mean}"
                );
            }
        }
    }
}
