//! `lpm-bench paper engines`: every engine and every table of DPDK, each in its best instruction set, on the same keys of a full table: lookups
//! by the size of the table, and during updates. They run in separate processes, since DPDK never releases its memory and CPU.

use super::bench::{
    Bench, DataSet, DeviceNeed, Family, Fault, Figure, Known, Panel, Paper, Result, Spread, Value, json,
    write_fault,
};
use crate::wanted::ENGINES;
use fib::output::write_whole;
use std::process::{Command, Stdio};

pub(super) const PAPER: Paper = Paper {
    title: "Every engine and DPDK's own tables on the same keys",
    claims: "",
    figures: include_str!("figures.toml"),
    generated: &[("generated-2024", "v4=950000,v6=200000")],
    has_updates: true,
    further_sets: |_| Ok(Vec::new()),
    known: &[
        Known { id: "lookups", device: DeviceNeed::Used, make: lookups },
        Known { id: "updates", device: DeviceNeed::Used, make: updates },
    ],
};

const RATES: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Limit of the updates of a family: some tables take milliseconds for one.
const UPDATES: usize = 500;
/// Limit of the keys of concurrent lookups: each turn warms up with all keys, and some tables have few million lookups a second.
const KEYS_BESIDE: usize = 1 << 20;

fn lookups(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let traffic = ["table".to_owned(), bench.trace().to_string()];
    for (family, set) in largest(bench) {
        let (keys, rounds) = (bench.args.keys().to_string(), bench.args.rounds().to_string());
        let options = ["--keys", &keys, "--traffic", &traffic.join(","), "--rounds", &rounds];
        let rows = measure(bench, figure, "lookup", (family, set), &options)?;
        for traffic in &traffic {
            let mut panel = Panel::log(format!("million {family} lookups a second, {traffic}"));
            for row in rows.iter().filter(|row| row["traffic"] == *traffic) {
                let [median, min, max] =
                    ["mlps_median", "mlps_worst", "mlps_best"].map(|key| number(row, key));
                panel.add(&name(row), number(row, "table_bytes"), Spread { median, min, max });
            }
            figure.panels.push(panel);
        }
        figure.rows.extend(rows);
    }
    Ok(())
}

fn updates(bench: &Bench, figure: &mut Figure) -> Result<()> {
    for (family, set) in largest(bench) {
        let file = bench.args.out.join(format!("updates-{family}.txt"));
        write_whole(&file, |out| out.write_all(set.update_lines(family, UPDATES).as_bytes()))
            .map_err(|source| write_fault(&file, source))?;
        bench.name_traffic(format!(
            "{family}: the first {UPDATES} updates of {}, one a delta, there and back",
            set.updates_source
        ));
        let rates = bench.some(&RATES).iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let seconds = (2.0 * bench.args.seconds()).to_string();
        let (file, keys) = (file.display().to_string(), bench.args.keys().min(KEYS_BESIDE).to_string());
        let options = ["--keys", &keys, "--updates", &file, "--rates", &rates, "--seconds", &seconds];
        let rows = measure(bench, figure, "update", (family, set), &options)?;
        let mut panel = Panel::log(format!("million {family} lookups a second"));
        for row in &rows {
            if panel.points(&name(row)).is_empty() {
                panel.add(&name(row), 0.0, number(row, "lookup_mlps_idle"));
            }
            if refusals(row).is_none() {
                panel.add(&name(row), number(row, "updates_per_s_under"), number(row, "lookup_mlps_under"));
            }
        }
        figure.panels.push(panel);
        figure.rows.extend(rows);
    }
    Ok(())
}

fn largest(bench: &Bench) -> impl Iterator<Item = (Family, &DataSet)> {
    let of = |family| Some((family, bench.sets(family).max_by_key(|set| set.tables.routes(family))?));
    [Family::V4, Family::V6].into_iter().filter_map(of)
}

/// The rows of a run of `lpm-bench KIND` over a data set. The figure states what cannot be measured here.
fn measure(
    bench: &Bench,
    figure: &mut Figure,
    kind: &str,
    (family, set): (Family, &DataSet),
    options: &[&str],
) -> Result<Vec<Value>> {
    let json = bench.args.out.join(format!("{kind}-{family}.json"));
    let mut line = vec![kind.to_owned(), "--engines".into(), "best".into(), "--family".into()];
    line.push(if family == Family::V4 { "v4" } else { "v6" }.into());
    line.extend(set.from.words());
    line.extend(["--json".into(), json.display().to_string()]);
    line.extend(options.iter().map(|option| (*option).to_owned()));
    bench.show_progress(format!("lpm-bench {}", line.join(" ")));
    let _ = std::fs::remove_file(&json);
    let program = std::env::current_exe().map_err(|why| Fault::Measurement(why.to_string()))?;
    let done = Command::new(program).args(&line).stdin(Stdio::null()).output();
    let done = done.map_err(|why| Fault::Measurement(why.to_string()))?;
    let Ok(text) = std::fs::read(&json) else {
        let said = String::from_utf8_lossy(&done.stderr);
        lacks(figure, format!("{family}: {}", said.lines().last().unwrap_or_default()));
        return Ok(Vec::new());
    };
    let run: Value = serde_json::from_slice(&text).map_err(|why| write_fault(&json, why.into()))?;
    let list = |key: &str| run[key].as_array().cloned().unwrap_or_default();
    let rows = list("rows");
    for row in &rows {
        match refusals(row) {
            Some(what) => lacks(figure, what),
            None => {
                figure.checked += row["checked"].as_u64().unwrap_or(0);
                figure.wrong += row["wrong"].as_u64().unwrap_or(0);
            }
        }
    }
    for one in list("refused") {
        let engine = one["engine"].as_str().unwrap_or_default();
        if ENGINES.is_device(engine) {
            lacks(figure, format!("{engine} needs a GPU"));
        }
        figure.rows.push(json!({ "refused": one }));
    }
    if !cfg!(feature = "dpdk") {
        lacks(figure, "DPDK's tables: built without --features dpdk".into());
    }
    bench.name_traffic(format!("{family}: lpm-bench {}", line.join(" ")));
    Ok(rows)
}

/// The updates that a table of DPDK refused; its answers and rates are invalid from then on.
fn refusals(row: &Value) -> Option<String> {
    let reason = row["first_refusal"].as_str()?;
    let is_ours = ENGINES.find(row["engine"].as_str()?).is_ok();
    (!is_ours).then(|| format!("{}, with updates: refused {reason}", name(row)))
}

fn lacks(figure: &mut Figure, what: String) {
    match &mut figure.skipped {
        Some(said) if said.contains(&what) => {}
        Some(said) => *said = format!("{said}; {what}"),
        None => figure.skipped = Some(what),
    }
}

fn name(row: &Value) -> String {
    let word = |key: &str| row[key].as_str().unwrap_or_default();
    format!("{}, {}", word("engine"), word("isa"))
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or(f64::NAN)
}
