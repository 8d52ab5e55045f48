//! `lpm-bench lookup`: build, check, measure, report.

use crate::analysis;
use crate::args::{EngineArgs, LookupArgs};
use crate::check::{Checked, Sample};
use crate::contenders::{self, BuiltContender, Makers};
use crate::fault::Fault;
use crate::host::HostFacts;
use crate::keys::KeySet;
use crate::measure::{self, Series};
use crate::profile::{Blocks, Profile};
use crate::report::{LookupRow, RunReport};
use crate::tables::RouteSet;
use crate::wanted::{self, Contender};
use fib::{Family, Isa};
use lpm_bench::stats::{median, quantile};

/// The report is complete even with wrong answers.
pub(crate) fn run(args: &LookupArgs) -> Result<RunReport<LookupRow>, Fault> {
    check_node(args.engine.table_node)?;
    let host = HostFacts::read();
    let cpus = cpus(args);
    let cpu = args.engine.cpu.or_else(|| args.cpus.first().copied());
    crate::pin(cpu)?;
    let wanted = wanted::expand(&args.engine.engines)?;
    let tables = RouteSet::load(&args.table)?;
    let families = contenders::families(args.engine.family, &tables)?;
    let mut makers = Makers::new(&EngineArgs { cpu, ..args.engine.clone() }, &wanted, &tables)?;
    makers.keep_helpers_on(&args.cpus);
    // EAL has pinned the calling thread.
    crate::pin(cpu)?;
    let (mut built, refused) = contenders::build(&mut makers, &wanted, &families, &tables)?;
    if built.is_empty() {
        let families = families.iter().map(Family::to_string).collect::<Vec<_>>().join(" or ");
        let why = refused.first().map_or_else(
            || format!("no engine has a table of {families}"),
            |one| format!("{}: {}", one.engine, one.reason),
        );
        return Err(Fault::Usage(format!("none of these engines can hold the table; {why}")));
    }
    for one in &mut built {
        one.use_threads(&args.threads, &cpus)?;
    }
    let streams = streams(args, &families, &built, &tables)?;
    let checks = check_all(args, &mut built, &streams, &tables)?;
    let series = measure::run(&mut built, &streams, args.engine.call, args.rounds)?;
    let profiles: Vec<_> = streams.iter().map(|keys| profile(keys, &built, &tables)).collect();
    let rows = rows(&built, &streams, &series, &checks, &profiles, &host);
    let (seed, call) = (args.table.seed, args.engine.call);
    Ok(RunReport::new("lookup", host, &tables, seed, call, args.rounds, (rows, refused)))
}

pub(crate) fn check_node(node: Option<u32>) -> Result<(), Fault> {
    let checked = node.map_or(Ok(()), lpm_core::memory::check_node);
    checked.map_err(|why| Fault::Usage(format!("--table-node {why}")))
}

fn cpus(args: &LookupArgs) -> Vec<usize> {
    if !args.cpus.is_empty() {
        return args.cpus.clone();
    }
    let mut cpus = crate::cpus_allowed().to_vec();
    if let Some(first) = cpus.iter().position(|cpu| Some(*cpu) == args.engine.cpu) {
        cpus.rotate_left(first);
    }
    cpus
}

fn streams(
    args: &LookupArgs,
    families: &[Family],
    built: &[BuiltContender],
    tables: &RouteSet,
) -> Result<Vec<KeySet>, Fault> {
    let with_bytes = built.iter().any(|one| matches!(one.contender, Contender::Peer(..)));
    let mut streams = Vec::new();
    for family in families.iter().filter(|family| built.iter().any(|one| one.family == **family)) {
        let of_family = built.iter().filter(|one| one.family == *family);
        let fibs = of_family.map(|one| one.looker.fibs()).max().unwrap_or(1);
        for traffic in &args.traffic {
            let (count, seed) = (args.engine.keys, args.table.seed);
            let mut keys = KeySet::make(traffic, *family, tables, count, seed, with_bytes)?;
            if fibs > 1 {
                keys.assign_fibs(fibs, seed);
            }
            streams.push(keys);
        }
    }
    Ok(streams)
}

/// The results of all checks: `[stream][contender][looker]`.
pub(crate) type Checks = Vec<Vec<Vec<Checked>>>;

pub(crate) fn check_all(
    args: &LookupArgs,
    built: &mut [BuiltContender],
    streams: &[KeySet],
    tables: &RouteSet,
) -> Result<Checks, Fault> {
    let mut checks = Vec::new();
    for keys in streams {
        let sample = Sample::draw(keys, tables, args.engine.check, args.table.seed);
        let mut of_stream = Vec::new();
        for one in built.iter_mut() {
            let same = one.family == keys.family();
            let lookers = one.lookers().filter(|_| same);
            of_stream.push(
                lookers
                    .map(|looker| sample.check(&mut **looker, args.engine.call))
                    .collect::<Result<_, _>>()?,
            );
        }
        checks.push(of_stream);
    }
    Ok(checks)
}

fn profile(keys: &KeySet, built: &[BuiltContender], tables: &RouteSet) -> Profile {
    let blocks = Blocks::from_routes(tables, keys.family());
    // The engine's direct array has this width if it reports one, else the paper's (section 3.2).
    let reported = built
        .iter()
        .filter(|one| one.family == keys.family())
        .find_map(|one| one.details.get("v6_direct_bits"));
    let direct_bits = match (keys.family(), reported) {
        (Family::V6, Some(bits)) if (1.0..=64.0).contains(&bits) => whole(bits),
        _ => 20,
    };
    Profile::measure(keys, tables, &blocks, direct_bits)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in 1..=64")]
fn whole(bits: f64) -> u8 {
    bits as u8
}

/// One row a contender and stream, grouped by stream, contenders in the order of their names on the command line.
pub(crate) fn rows(
    built: &[BuiltContender],
    streams: &[KeySet],
    series: &[Series],
    checks: &Checks,
    profiles: &[Profile],
    host: &HostFacts,
) -> Vec<LookupRow> {
    let mut rows = Vec::new();
    for (stream, keys) in streams.iter().enumerate() {
        let here: Vec<_> = series.iter().filter(|one| one.stream == stream).collect();
        let peers = || here.iter().filter(|one| is_peer(&built[one.contender]));
        for one in &here {
            // With the same number of threads, if measured.
            let is_equal = |other: &&&Series| threads(built, other) == threads(built, one);
            let any = !peers().any(|other| is_equal(&other));
            let peers = || peers().filter(|other| any || is_equal(other));
            let first = peers().find(|one| is_yardstick(&built[one.contender])).or_else(|| peers().next());
            let best = peers().max_by(|a, b| median(&a.mlps).total_cmp(&median(&b.mlps)));
            let of = &built[one.contender];
            let checked = checks[stream][one.contender].get(one.looker).cloned().unwrap_or_default();
            let mut row = row(of, keys, one, checked, &profiles[stream], host);
            if let (Some(first), Some(best)) = (first, best) {
                row.ratio = Some(ratio(one, first));
                row.ratio_to = Some(label(&built[first.contender]));
                row.ratio_best = Some(ratio(one, best));
                row.ratio_best_to = Some(label(&built[best.contender]));
            }
            // The first looker has the first number of threads.
            if let Some(base) = here.iter().find(|base| base.contender == one.contender && base.looker == 0)
                && one.looker > 0
            {
                let (speedup, base) = (ratio(one, base), threads(built, base));
                row.speedup = Some(speedup);
                row.analysis = format!("{}; {speedup:.2} times the rate of {base} thread(s)", row.analysis);
            }
            rows.push(row);
        }
    }
    rows
}

fn row(
    of: &BuiltContender,
    keys: &KeySet,
    series: &Series,
    checked: Checked,
    profile: &Profile,
    host: &HostFacts,
) -> LookupRow {
    let looker = of.looker_at(series.looker);
    let mid = median(&series.mlps);
    let ns = 1e3 / mid;
    LookupRow {
        engine: of.engine.clone(),
        isa: of.contender.isa_name(of.isa),
        family: of.family.to_string(),
        traffic: keys.traffic.clone(),
        mlps_median: mid,
        mlps_best: quantile(&series.mlps, 1.0),
        table_bytes: of.table_bytes,
        build_s: of.build_s,
        checked: checked.checked,
        wrong: checked.wrong,
        mlps_worst: quantile(&series.mlps, 0.0),
        spread: (quantile(&series.mlps, 0.75) - quantile(&series.mlps, 0.25)) / mid,
        on_cpu: median(&series.on_cpu),
        ns_per_lookup: ns,
        clock: looker.clock().name(),
        cycles_per_lookup: ns * host.clock_ghz_estimated,
        keys: series.keys,
        threads: looker.threads(),
        speedup: None,
        pages: of.pages,
        ratio: None,
        ratio_to: None,
        ratio_best: None,
        ratio_best_to: None,
        analysis: analysis::sentence(of, profile, ns, host),
        first_wrong: checked.first_wrong,
        details: of.details.clone(),
    }
}

fn threads(built: &[BuiltContender], series: &Series) -> usize {
    built[series.contender].looker_at(series.looker).threads()
}

fn is_peer(built: &BuiltContender) -> bool {
    matches!(built.contender, Contender::Peer(..))
}

/// The peer of `ratio`: `rte_fib` or `rte_fib6` with 4-byte entries and AVX-512.
fn is_yardstick(built: &BuiltContender) -> bool {
    matches!(built.engine.as_str(), "rte_fib" | "rte_fib6") && built.isa == Isa::Avx512f
}

fn label(built: &BuiltContender) -> String {
    format!("{} {}", built.engine, built.isa)
}

fn ratio(one: &Series, to: &Series) -> f64 {
    let ratios: Vec<_> = one.mlps.iter().zip(&to.mlps).map(|(one, to)| one / to).collect();
    median(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{BenchCommand, Cli};
    use crate::table::Measurable;
    use crate::table::tests::{Liar, oracle};
    use clap::Parser;

    fn args(line: &str) -> LookupArgs {
        let line = format!("lpm-bench lookup --keys 4K --check 512 --rounds 3 {line}");
        let BenchCommand::Lookup(args) = Cli::parse_from(line.split_whitespace()).command else {
            panic!("{line}")
        };
        args
    }

    #[test]
    fn a_tiny_run_of_every_engine_is_right_and_whole() {
        let report = run(&args("--generate v4=2000,v6=1000 --engines oracle,bloom")).unwrap();
        let engines = 1 + Isa::ALL.iter().filter(|isa| isa.is_available()).count();
        assert_eq!(report.rows.len(), engines * 2 * 3, "engines, families, traffics");
        for row in &report.rows {
            assert_eq!((row.wrong, row.checked), (0, 1024), "{row:?}");
            assert!(
                row.mlps_worst > 0.0 && row.mlps_worst <= row.mlps_median && row.mlps_median <= row.mlps_best
            );
            assert!(
                row.table_bytes > 0 && row.build_s > 0.0 && row.analysis.contains("cycles a lookup"),
                "{row:?}"
            );
            assert!(row.on_cpu > 0.0 && row.on_cpu.is_finite(), "{row:?}");
            assert!(row.ratio.is_none() && row.keys > 0 && row.keys % 256 == 0);
        }
    }

    #[test]
    fn cpus_that_are_named_are_those_of_every_engine() {
        let allowed = crate::cpus_allowed();
        for cpus in [allowed.iter().rev().take(2).collect::<Vec<_>>(), vec![&allowed[0]]] {
            let cpus = cpus.iter().map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",");
            let line = "--generate v4=2000 --engines bloom:scalar,coop:scalar --traffic table --threads 2";
            let report = run(&args(&format!("{line} --cpus {cpus}"))).unwrap();
            assert!(report.rows.len() == 2 && report.rows.iter().all(|row| row.wrong == 0), "{cpus}");
            let mine = core_affinity::get_core_ids().unwrap();
            assert_eq!(
                mine.iter().map(|core| core.id.to_string()).collect::<Vec<_>>(),
                [cpus.split(',').next().unwrap()]
            );
        }
    }

    #[test]
    fn an_engine_of_several_fibs_answers_in_all_of_them() {
        let line = "--generate v4=3000 --engines sail-m,oracle --engine-arg fibs=5 --traffic random,table";
        let report = run(&args(&format!("{line} --threads 2"))).unwrap();
        let isas = Isa::ALL.iter().filter(|isa| isa.is_available()).count();
        assert_eq!(report.rows.len(), (isas + 1) * 2);
        for row in &report.rows {
            assert_eq!((row.wrong, row.checked, row.threads), (0, 1024, 2), "{row:?}");
            let fibs = (row.engine == "sail-m").then_some(5.0);
            assert_eq!(row.details.get("sail_fibs"), fibs);
        }
    }

    #[test]
    fn a_liar_is_reported_and_ends_with_exit_code_1() {
        let args = args("--generate v4=100 --engines oracle --traffic table");
        let tables = RouteSet::load(&args.table).unwrap();
        let mut liar: Box<dyn Measurable> = Box::new(Liar(oracle(&tables, Family::V4, 256)));
        let mut built = vec![BuiltContender {
            engine: "liar".into(),
            contender: Contender::Engine("oracle"),
            isa: Isa::Scalar,
            family: Family::V4,
            table_bytes: 1,
            build_s: 1.0,
            details: fib::Details::default(),
            pages: "",
            looker: liar.looker().unwrap(),
            more: Vec::new(),
            table: liar,
        }];
        let streams = streams(&args, &[Family::V4], &built, &tables).unwrap();
        let checks = check_all(&args, &mut built, &streams, &tables).unwrap();
        let series = measure::run(&mut built, &streams, 256, 2).unwrap();
        let profiles = [profile(&streams[0], &built, &tables)];
        let rows = rows(&built, &streams, &series, &checks, &profiles, &HostFacts::read());
        assert_eq!((rows[0].checked, rows[0].wrong), (1024, 2));
        assert_eq!(crate::exit_code_of(rows.iter().map(|row| row.wrong)), crate::fault::FAILED);
        let text = crate::report::lookup_table(&rows);
        assert!(text.contains("WRONG: liar scalar ipv4 table: 2 of 1024 answers"), "{text}");
    }
}
