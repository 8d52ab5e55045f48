//! Rows: what a person reads on the screen and a program reads in the JSON, from one struct.

use crate::args::{UpdateRate, UpdateWork};
use crate::contenders::Refused;
use crate::fault::Fault;
use crate::host::{Build, HostFacts};
use crate::tables::RouteSet;
use fib::Details;
use lpm_bench::text::{Column, table};
use serde::Serialize;
use std::path::Path;

/// One engine on one traffic. The first ten names are a contract; more may come.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LookupRow {
    /// Engine or peer; `-2b` after a peer with 2-byte entries.
    pub(crate) engine: String,
    /// Instruction set of the lookups.
    pub(crate) isa: String,
    /// ipv4 or ipv6.
    pub(crate) family: String,
    /// Traffic, as on the command line.
    pub(crate) traffic: String,
    /// Millions of lookups a second of `clock`, median of the rounds.
    pub(crate) mlps_median: f64,
    /// The best round.
    pub(crate) mlps_best: f64,
    /// Bytes that lookups may read.
    pub(crate) table_bytes: u64,
    /// Seconds to build the table.
    pub(crate) build_s: f64,
    /// Answers compared with the oracle's.
    pub(crate) checked: u64,
    /// Answers that were wrong.
    pub(crate) wrong: u64,
    /// The worst round.
    pub(crate) mlps_worst: f64,
    /// Half of the rounds lie within this share of the median: (third quartile - first) / median.
    pub(crate) spread: f64,
    /// CPU seconds over wall seconds, median of the rounds; well below 1 the host was busy with something else.
    pub(crate) on_cpu: f64,
    /// Nanoseconds a lookup, of the median.
    pub(crate) ns_per_lookup: f64,
    /// Which seconds: `cpu` of the thread that looks up, or of the `wall` for engines on a device.
    pub(crate) clock: &'static str,
    /// Core cycles a lookup, of the median and the estimated clock.
    pub(crate) cycles_per_lookup: f64,
    /// Keys of a sweep.
    pub(crate) keys: usize,
    /// Threads that look up, over one table; of engines on a device and of coop, those that hand batches over.
    pub(crate) threads: usize,
    /// This rate over that of the first number of `--threads`, median over the rounds; absent in rows of that number.
    pub(crate) speedup: Option<f64>,
    /// The pages that the table lies in: `2M` (reserved), `thp` (transparent), `4K`; empty where it is not ours to say.
    pub(crate) pages: &'static str,
    /// This rate over that of `ratio_to`, median over the rounds of the ratio within a round; absent without peers.
    pub(crate) ratio: Option<f64>,
    /// The peer of `ratio`: 4-byte `rte_fib` or `rte_fib6` with AVX-512 where there is one.
    pub(crate) ratio_to: Option<String>,
    /// The same against the fastest peer on this traffic.
    pub(crate) ratio_best: Option<f64>,
    /// The peer of `ratio_best`.
    pub(crate) ratio_best_to: Option<String>,
    /// One sentence of what was counted and measured.
    pub(crate) analysis: String,
    /// The first wrong answer.
    pub(crate) first_wrong: Option<String>,
    /// Engine-specific figures.
    pub(crate) details: Details,
}

/// One engine at one rate of updates. The first five names are a contract; more may come.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UpdateRow {
    /// Engine or peer.
    pub(crate) engine: String,
    /// Updates a second with no lookups beside them, from what is told to what lookups find: what the table keeps of routes included, the
    /// RIB of an engine of ours.
    pub(crate) updates_per_s: f64,
    /// Updates a second by the seconds that an engine of ours itself took; `None` of a peer, which has its RIB in it.
    pub(crate) engine_updates_per_s: Option<f64>,
    /// `updates_per_s` over that of `ratio_best_to`, median over the rounds of the ratio within a round; absent without peers.
    pub(crate) ratio_best: Option<f64>,
    /// The peer with the most updates a second.
    pub(crate) ratio_best_to: Option<String>,
    /// Millions of lookups a second of `clock` with no updates beside them.
    pub(crate) lookup_mlps_idle: f64,
    /// Millions of lookups a second of `clock` while updates run at `rate`.
    pub(crate) lookup_mlps_under: f64,
    /// Updates a second asked for: a number, or `max` for as fast as they go.
    pub(crate) rate: UpdateRate,
    /// Instruction set of the lookups.
    pub(crate) isa: String,
    /// ipv4 or ipv6.
    pub(crate) family: String,
    /// Traffic of the lookups.
    pub(crate) traffic: String,
    /// Updates a second that were reached beside the lookups.
    pub(crate) updates_per_s_under: f64,
    /// `lookup_mlps_under` over `lookup_mlps_idle`, median of the ratio within a turn.
    pub(crate) lookup_kept: f64,
    /// CPU seconds over wall seconds of the lookups beside updates; well below 1 the two shared a CPU.
    pub(crate) on_cpu_under: f64,
    /// Which seconds: `cpu` of the thread that looks up, or of the `wall` for engines on a device.
    pub(crate) clock: &'static str,
    /// What is updated: `feed`, the `default` route, or a `third` of the routes at once.
    pub(crate) work: UpdateWork,
    /// Updates of one delta.
    pub(crate) delta: usize,
    /// Half of the deltas of the undisturbed run took less, microseconds.
    pub(crate) apply_us_median: f64,
    /// The slowest delta of the undisturbed run, microseconds.
    pub(crate) apply_us_max: f64,
    /// 99 of 100 deltas of the undisturbed run took less, microseconds.
    pub(crate) apply_us_p99: f64,
    /// Updates of the family that the feed told, those that change nothing included.
    pub(crate) updates_told: usize,
    /// Updates that the table refused (peers only; engines of ours refuse with an error).
    pub(crate) refused: u64,
    /// What the table said of the first update that it refused, in the undisturbed run.
    pub(crate) first_refusal: Option<String>,
    /// Answers compared with the oracle's after all updates.
    pub(crate) checked: u64,
    /// Answers that were wrong.
    pub(crate) wrong: u64,
    /// The first wrong answer.
    pub(crate) first_wrong: Option<String>,
    /// One sentence of what was counted and measured.
    pub(crate) analysis: String,
}

/// Everything that a run found: the JSON document.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunReport<Row: Serialize> {
    /// `lookup` or `update`.
    pub(crate) kind: &'static str,
    /// The host.
    pub(crate) host: HostFacts,
    /// The build.
    pub(crate) build: Build,
    /// The arguments, as given.
    pub(crate) arguments: Vec<String>,
    /// Where the routes came from.
    pub(crate) table: String,
    /// XXH3 over the sorted routes.
    pub(crate) table_hash: String,
    /// IPv4 routes.
    pub(crate) routes_v4: usize,
    /// IPv6 routes.
    pub(crate) routes_v6: usize,
    /// The seed of everything drawn.
    pub(crate) seed: u64,
    /// Keys of a call.
    pub(crate) call: usize,
    /// Rounds; 1 in an update run.
    pub(crate) rounds: usize,
    /// The rows.
    pub(crate) rows: Vec<Row>,
    /// Contenders that cannot hold the table.
    pub(crate) refused: Vec<Refused>,
}

impl<Row: Serialize> RunReport<Row> {
    /// What a run of `kind` found on `host` over `tables`.
    pub(crate) fn new(
        kind: &'static str,
        host: HostFacts,
        tables: &RouteSet,
        (seed, call, rounds): (u64, usize, usize),
        (rows, refused): (Vec<Row>, Vec<Refused>),
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

    /// Writes the document to `path`, whole or not at all.
    ///
    /// # Errors
    /// [`Fault::Write`].
    pub(crate) fn write(&self, path: &Path) -> Result<(), Fault> {
        let failed = |source| Fault::Write { path: path.display().to_string(), source };
        fib::output::write_json(path, self).map_err(failed)
    }

    /// What stands above the table on the screen.
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

    /// What stands below it: who cannot hold the table.
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

/// The rows as a person reads them, and under each traffic why.
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
        text.push_str("Tables lie in 4 KB pages: no huge pages are free (sysctl -w vm.nr_hugepages=N).\n");
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

/// The rows of an update run as a person reads them.
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
    // One line an engine and work, not a rate.
    let mut told = Vec::new();
    for row in rows {
        let name = format!("{} {} {} {}", row.family, row.engine, row.isa, row.work.name());
        if told.contains(&name) {
            continue;
        }
        text.push_str(&format!("  {name}: {}\n", row.analysis));
        if let Some(first) = &row.first_refusal {
            text.push_str(&format!("  {name} refused updates, the first: {first}\n"));
        }
        if row.wrong > 0 {
            let cause = if row.refused > 0 { "wrong after its refusals" } else { "WRONG" };
            let first = row.first_wrong.as_deref().unwrap_or("no example kept");
            text.push_str(&format!(
                "  {cause}: {name}: {} of {} answers, the first: {first}\n",
                row.wrong, row.checked
            ));
        }
        told.push(name);
    }
    text
}
