//! The rows of a report, printed as text and written as JSON from one struct.

use crate::args::{UpdateRate, UpdateWork};
use crate::contenders::RefusedContender;
use crate::fault::Fault;
use crate::host::{Build, HostFacts};
use crate::tables::RouteSet;
use fib::Details;
use lpm_bench::text::{Column, table};
use serde::Serialize;
use std::path::Path;

/// One engine on one traffic. The first ten names are stable; more may be added.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LookupRow {
    /// Engine or peer; `-2b` after a peer with 2-byte entries.
    pub(crate) engine: String,
    pub(crate) isa: String,
    pub(crate) family: String,
    pub(crate) traffic: String,
    /// Millions of lookups a second of `clock`, median of the rounds.
    pub(crate) mlps_median: f64,
    pub(crate) mlps_best: f64,
    pub(crate) table_bytes: u64,
    pub(crate) build_s: f64,
    /// Answers compared with the oracle's.
    pub(crate) checked: u64,
    pub(crate) wrong: u64,
    pub(crate) mlps_worst: f64,
    /// Interquartile range over the median.
    pub(crate) spread: f64,
    /// CPU seconds over wall seconds, median of the rounds; well below 1 the host was busy.
    pub(crate) on_cpu: f64,
    pub(crate) ns_per_lookup: f64,
    /// `cpu`: CPU seconds of the looking-up thread; `wall`: wall time, for engines on a device.
    pub(crate) clock: &'static str,
    /// Of the median, by the estimated clock frequency.
    pub(crate) cycles_per_lookup: f64,
    pub(crate) keys: usize,
    /// Threads that look up in one table; for devices and coop, the threads that submit batches.
    pub(crate) threads: usize,
    /// Ratio to the rate with the first number of `--threads`, median over the rounds; absent in rows of that number.
    pub(crate) speedup: Option<f64>,
    /// Pages of the table: `2M` (reserved), `thp` (transparent), `4K`; empty if unknown.
    pub(crate) pages: &'static str,
    /// Ratio of the rate to `ratio_to`'s, median of the ratios within a round; absent without peers.
    pub(crate) ratio: Option<f64>,
    /// 4-byte `rte_fib` or `rte_fib6`, with AVX-512 if available.
    pub(crate) ratio_to: Option<String>,
    /// The same for the fastest peer on this traffic.
    pub(crate) ratio_best: Option<f64>,
    pub(crate) ratio_best_to: Option<String>,
    pub(crate) analysis: String,
    pub(crate) first_wrong: Option<String>,
    pub(crate) details: Details,
}

/// One engine at one rate of updates. The first five names are stable; more may be added.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UpdateRow {
    pub(crate) engine: String,
    /// Without lookups, from the change of a route to the new answer of lookups: includes the RIB of our engines.
    pub(crate) updates_per_s: f64,
    /// By the time inside an engine of ours; `None` for a peer, whose RIB is part of it.
    pub(crate) engine_updates_per_s: Option<f64>,
    /// Ratio of `updates_per_s` to `ratio_best_to`'s, median of the ratios within a round; absent without peers.
    pub(crate) ratio_best: Option<f64>,
    pub(crate) ratio_best_to: Option<String>,
    pub(crate) lookup_mlps_idle: f64,
    pub(crate) lookup_mlps_under: f64,
    /// Requested updates a second, or `max`.
    pub(crate) rate: UpdateRate,
    pub(crate) isa: String,
    pub(crate) family: String,
    pub(crate) traffic: String,
    pub(crate) updates_per_s_under: f64,
    /// `lookup_mlps_under` over `lookup_mlps_idle`, median of the ratio within a turn.
    pub(crate) lookup_kept: f64,
    /// CPU seconds over wall seconds of the lookups during updates; well below 1 lookups and updates shared a CPU.
    pub(crate) on_cpu_under: f64,
    pub(crate) clock: &'static str,
    pub(crate) work: UpdateWork,
    pub(crate) delta: usize,
    pub(crate) apply_us_median: f64,
    pub(crate) apply_us_max: f64,
    pub(crate) apply_us_p99: f64,
    /// Updates of the family in the feed, redundant ones included.
    pub(crate) updates_told: usize,
    /// Updates that a peer refused; engines of ours return an error instead.
    pub(crate) refused: u64,
    pub(crate) first_refusal: Option<String>,
    pub(crate) checked: u64,
    pub(crate) wrong: u64,
    pub(crate) first_wrong: Option<String>,
    pub(crate) analysis: String,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunReport<Row: Serialize> {
    pub(crate) kind: &'static str,
    pub(crate) host: HostFacts,
    pub(crate) build: Build,
    pub(crate) arguments: Vec<String>,
    pub(crate) table: String,
    /// XXH3 over the sorted routes.
    pub(crate) table_hash: String,
    pub(crate) routes_v4: usize,
    pub(crate) routes_v6: usize,
    pub(crate) seed: u64,
    pub(crate) call: usize,
    /// 1 in an update run.
    pub(crate) rounds: usize,
    pub(crate) rows: Vec<Row>,
    pub(crate) refused: Vec<RefusedContender>,
}

impl<Row: Serialize> RunReport<Row> {
    pub(crate) fn new(
        kind: &'static str,
        host: HostFacts,
        tables: &RouteSet,
        seed: u64,
        call: usize,
        rounds: usize,
        (rows, refused): (Vec<Row>, Vec<RefusedContender>),
    ) -> Self {
        Self {
            kind,
            host,
            build: Build::THIS,
            arguments: std::env::args().skip(1).collect(),
            table: tables.source.clone(),
            table_hash: tables.hash.clone(),
            routes_v4: tables.v4.len(),
            routes_v6: tables.v6.len(),
            seed,
            call,
            rounds,
            rows,
            refused,
        }
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), Fault> {
        let failed = |source| Fault::Write { path: path.display().to_string(), source };
        fib::output::write_json(path, self).map_err(failed)
    }

    pub(crate) fn heading(&self) -> String {
        format!(
            "{}\ncommit {} {} {}\ntable {} hash {}\n{} keys a call, {} rounds, seed {}",
            self.host.summary(),
            self.build.commit,
            self.build.profile,
            self.build.flags,
            self.table,
            self.table_hash,
            self.call,
            self.rounds,
            self.seed
        )
    }

    /// The contenders that cannot hold the table, below it.
    pub(crate) fn refusals(&self) -> String {
        self.refused
            .iter()
            .map(|one| format!("not measured: {} {} {}: {}\n", one.engine, one.isa, one.family, one.reason))
            .collect()
    }
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"))
}

pub(crate) fn lookup_table(rows: &[LookupRow]) -> String {
    let first = rows.iter().find_map(|row| row.ratio_to.clone()).unwrap_or_else(|| "peer".into());
    let first = format!("/ {}", first.split(' ').next().unwrap_or("peer").trim_end_matches('6'));
    let columns: [Column<'_, LookupRow>; 17] = [
        ("family", |row| row.family.clone()),
        ("traffic", |row| row.traffic.clone()),
        ("engine", |row| row.engine.clone()),
        ("isa", |row| row.isa.clone()),
        ("threads", |row| row.threads.to_string()),
        ("Mlps", |row| format!("{:.1}", row.mlps_median)),
        ("best", |row| format!("{:.1}", row.mlps_best)),
        ("spread", |row| format!("{:.0}%", row.spread * 100.0)),
        ("on CPU", |row| format!("{:.0}%", row.on_cpu * 100.0)),
        ("ns", |row| format!("{:.2}", row.ns_per_lookup)),
        ("cycles", |row| format!("{:.1}", row.cycles_per_lookup)),
        (&first, |row| ratio(row.ratio)),
        ("/ best peer", |row| ratio(row.ratio_best)),
        ("MB", |row| format!("{:.1}", row.table_bytes as f64 / 1e6)),
        ("build s", |row| format!("{:.2}", row.build_s)),
        ("checked", |row| row.checked.to_string()),
        ("wrong", |row| row.wrong.to_string()),
    ];
    let table = table(&columns, 4, rows);
    let mut text = format!("{table}\n\nWhy:\n");
    for row in rows {
        let threads = if row.threads > 1 { format!(" {} threads", row.threads) } else { String::new() };
        text.push_str(&format!(
            "  {} {} {} {}{threads}: {}\n",
            row.family, row.traffic, row.engine, row.isa, row.analysis
        ));
    }
    if rows.iter().any(|row| row.pages == "4K") {
        text.push_str("Tables are in 4 KB pages: no huge pages are free (sysctl -w vm.nr_hugepages=N).\n");
    }
    for row in rows.iter().filter(|row| row.wrong > 0) {
        let first = row.first_wrong.as_deref().unwrap_or("no example kept");
        text.push_str(&format!(
            "WRONG: {} {} {} {}: {} of {} answers, the first: {first}\n",
            row.engine, row.isa, row.family, row.traffic, row.wrong, row.checked
        ));
    }
    text
}

pub(crate) fn update_table(rows: &[UpdateRow]) -> String {
    let columns: [Column<'_, UpdateRow>; 18] = [
        ("family", |row| row.family.clone()),
        ("engine", |row| row.engine.clone()),
        ("isa", |row| row.isa.clone()),
        ("work", |row| row.work.name().to_owned()),
        ("rate", |row| row.rate.to_string()),
        ("updates/s", |row| format!("{:.0}", row.updates_per_s)),
        ("/ best peer", |row| ratio(row.ratio_best)),
        ("median us", |row| format!("{:.1}", row.apply_us_median)),
        ("p99 us", |row| format!("{:.1}", row.apply_us_p99)),
        ("max us", |row| format!("{:.1}", row.apply_us_max)),
        ("Mlps idle", |row| format!("{:.1}", row.lookup_mlps_idle)),
        ("Mlps under", |row| format!("{:.1}", row.lookup_mlps_under)),
        ("kept", |row| format!("{:.0}%", row.lookup_kept * 100.0)),
        ("on CPU", |row| format!("{:.0}%", row.on_cpu_under * 100.0)),
        ("updates/s under", |row| format!("{:.0}", row.updates_per_s_under)),
        ("refused", |row| row.refused.to_string()),
        ("checked", |row| row.checked.to_string()),
        ("wrong", |row| row.wrong.to_string()),
    ];
    let table = table(&columns, 5, rows);
    let mut text = format!("{table}\n\nWhy:\n");
    let mut named = Vec::new();
    for row in rows {
        let name = format!("{} {} {} {}", row.family, row.engine, row.isa, row.work.name());
        if named.contains(&name) {
            continue;
        }
        text.push_str(&format!("  {name}: {}\n", row.analysis));
        if let Some(first) = &row.first_refusal {
            text.push_str(&format!("  {name} refused updates, the first: {first}\n"));
        }
        if row.wrong > 0 {
            let cause = if row.refused > 0 { "wrong after refusals" } else { "WRONG" };
            let first = row.first_wrong.as_deref().unwrap_or("no example kept");
            text.push_str(&format!(
                "  {cause}: {name}: {} of {} answers, the first: {first}\n",
                row.wrong, row.checked
            ));
        }
        named.push(name);
    }
    text
}
