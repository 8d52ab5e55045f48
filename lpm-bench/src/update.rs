//! `lpm-bench update`: updates a second, and their cost for concurrent lookups.
//!
//! A contender has three figures: updates alone, lookups alone, and lookups on another thread, by its CPU time, while this one applies updates
//! at a rate. Contenders take turns with updates alone; idle and loaded lookups alternate, so that other load disturbs both.

use crate::analysis;
use crate::args::{UpdateArgs, UpdateRate, UpdateWork};
use crate::check::{Checked, Sample};
use crate::clock::Clock;
use crate::contenders::{self, BuiltContender, Makers};
use crate::fault::Fault;
use crate::host::HostFacts;
use crate::keys::KeySet;
use crate::measure;
use crate::pace::{Undisturbed, UpdatePace};
use crate::report::{RunReport, UpdateRow};
use crate::table::{Looker, Measurable};
use crate::tables::RouteSet;
use crate::updates::{self, Player, UpdateStream};
use crate::wanted::{self, Contender, WantedContender};
use fib::Family;
use fib::traffic::Traffic;
use lpm_bench::progress::bar;
use lpm_bench::stats::median;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: u32 = 5;
/// Alternations of idle and loaded lookups.
const TURNS: u32 = 3;
/// Keys between two checks of the clock or the stop flag.
const PART_KEYS: usize = 1 << 16;

/// Wrong answers are in the rows, no [`Fault`].
pub(crate) fn run(args: &UpdateArgs) -> Result<RunReport<UpdateRow>, Fault> {
    crate::lookup::check_node(args.engine.table_node)?;
    let host = HostFacts::read();
    crate::pin(args.writer_cpu)?;
    let wanted = wanted::expand(&args.engine.engines)?;
    let mut tables = RouteSet::load(&args.table)?;
    let updates = updates::read(args, &mut tables)?;
    let mut makers = Makers::new(&args.engine, &wanted, &tables)?;
    // EAL has pinned the calling thread.
    crate::pin(args.writer_cpu)?;
    let (mut rows, mut refused) = (Vec::new(), Vec::new());
    let families = contenders::families(args.engine.family, &tables)?;
    let all = families.iter().flat_map(|family| args.work.iter().map(|work| (*family, *work)));
    for (family, kind) in all {
        let stream = UpdateStream::of_work(kind, family, &updates, args.delta, &tables);
        if stream.deltas.forward.is_empty() {
            eprintln!("lpm-bench: no update changes a route of {family}: not measured");
            continue;
        }
        let work = UpdateRounds::new((args, kind), family, &wanted, &tables, &stream)?;
        let (built, not) = contenders::build(&mut makers, &wanted, &[family], &tables)?;
        rows.extend(work.measure(built)?);
        if args.work.first() == Some(&kind) {
            refused.extend(not);
        }
    }
    if rows.is_empty() {
        return Err(Fault::Usage(
            "nothing was measured: no update changes a route, or no engine holds the table".into(),
        ));
    }
    let (seed, call) = (args.table.seed, args.engine.call);
    Ok(RunReport::new("update", host, &tables, seed, call, TURNS as usize, (rows, refused)))
}

struct UpdateRounds<'a> {
    args: &'a UpdateArgs,
    kind: UpdateWork,
    family: Family,
    stream: &'a UpdateStream,
    keys: KeySet,
    /// Keys for the check after all updates: of the whole table, and of the changed prefixes.
    samples: [Sample; 2],
}

struct TurnRate {
    mlps: f64,
    on_cpu: f64,
}

impl<'a> UpdateRounds<'a> {
    fn new(
        (args, kind): (&'a UpdateArgs, UpdateWork),
        family: Family,
        wanted: &[WantedContender],
        tables: &RouteSet,
        stream: &'a UpdateStream,
    ) -> Result<Self, Fault> {
        let with_bytes = wanted.iter().any(|one| matches!(one.contender, Contender::Peer(..)));
        let (count, check, seed) = (args.engine.keys, args.engine.check, args.table.seed);
        let keys = KeySet::make(&args.traffic, family, tables, count, seed, with_bytes)?;
        let touched = KeySet::make(&Traffic::Table, family, &stream.touched, check, seed, with_bytes)?;
        let samples = [&keys, &touched].map(|keys| Sample::draw(keys, &stream.after, check, seed));
        Ok(Self { args, kind, family, stream, keys, samples })
    }

    fn measure(&self, built: Vec<BuiltContender>) -> Result<Vec<UpdateRow>, Fault> {
        let mut alone: Vec<_> = built.iter().map(|_| Undisturbed::default()).collect();
        let mut players: Vec<_> = built.iter().map(|_| Player::new(&self.stream.deltas)).collect();
        let mut built = built;
        let bar = bar("updates [{bar:40}] {msg} {elapsed}", ROUNDS as usize * built.len());
        for _ in 0..ROUNDS {
            for ((one, player), alone) in built.iter_mut().zip(&mut players).zip(&mut alone) {
                bar.set_message(format!("{} {} {}", one.engine, one.isa, self.family));
                alone.round(&mut *one.table, player, self.args.seconds / f64::from(ROUNDS))?;
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        let peers = alone.iter().zip(&built).filter(|(_, one)| matches!(one.contender, Contender::Peer(..)));
        let best = peers.max_by(|(one, _), (other, _)| one.updates_per_s().total_cmp(&other.updates_per_s()));
        let ratios: Vec<_> = alone
            .iter()
            .map(|alone| {
                best.map(|(best, peer)| (alone.ratio(best), format!("{} {}", peer.engine, peer.isa)))
            })
            .collect();
        let mut rows = Vec::new();
        for (((one, alone), player), ratio) in built.into_iter().zip(alone).zip(players).zip(ratios) {
            rows.extend(self.measure_with_updates(one, &alone, player, ratio)?);
        }
        Ok(rows)
    }

    fn measure_with_updates(
        &self,
        built: BuiltContender,
        alone: &Undisturbed,
        mut player: Player<'_>,
        ratio: Option<(f64, String)>,
    ) -> Result<Vec<UpdateRow>, Fault> {
        let BuiltContender { engine, contender, isa, mut table, mut looker, .. } = built;
        // A feed's updates arrive at a rate; the updates of a link failure arrive at once.
        let rates = if self.kind == UpdateWork::Feed { &*self.args.rates } else { &[UpdateRate::Max] };
        let bar = bar("loaded  [{bar:40}] {msg} {elapsed}", rates.len() * TURNS as usize);
        bar.set_message(format!("{engine} {isa} {}", self.family));
        let [apply_us_median, apply_us_p99, apply_us_max] =
            [0.5, 0.99, 1.0].map(|share| alone.apply_us(share));
        let (ratio_best, ratio_best_to) = ratio.unzip();
        let mut rows = Vec::new();
        for rate in rates {
            let (mut idle, mut under, mut kept, mut applied, mut on_cpu) =
                (vec![], vec![], vec![], vec![], vec![]);
            let mut refused = alone.refused;
            for _ in 0..TURNS {
                let free = self.lookups(&mut *looker, |_| Ok(()))?;
                let mut pace = UpdatePace::new(*rate);
                let loaded = self.lookups(&mut *looker, |deadline| {
                    refused += pace.run(&mut *table, &mut player, deadline)?;
                    Ok(())
                })?;
                idle.push(free.mlps);
                under.push(loaded.mlps);
                kept.push(loaded.mlps / free.mlps);
                on_cpu.push(loaded.on_cpu);
                applied.push(pace.reached());
                bar.inc(1);
            }
            let checked = self.check(&mut *table, &mut *looker, &mut player)?;
            let mut row = UpdateRow {
                engine: engine.clone(),
                updates_per_s: alone.updates_per_s(),
                engine_updates_per_s: alone.engine_updates_per_s(),
                ratio_best,
                ratio_best_to: ratio_best_to.clone(),
                lookup_mlps_idle: median(&idle),
                lookup_mlps_under: median(&under),
                rate: *rate,
                isa: contender.isa_name(isa),
                family: self.family.to_string(),
                traffic: self.keys.traffic.clone(),
                updates_per_s_under: median(&applied),
                lookup_kept: median(&kept),
                on_cpu_under: median(&on_cpu),
                clock: looker.clock().name(),
                work: self.kind,
                delta: if self.kind == UpdateWork::Feed { self.args.delta } else { self.stream.delta() },
                apply_us_median,
                apply_us_max,
                apply_us_p99,
                updates_told: self.stream.update_count,
                refused,
                first_refusal: alone.first_refusal.clone(),
                checked: checked.checked,
                wrong: checked.wrong,
                first_wrong: checked.first_wrong,
                analysis: String::new(),
            };
            row.analysis = analysis::update_sentence(&row);
            rows.push(row);
        }
        bar.finish_and_clear();
        Ok(rows)
    }

    fn lookups(
        &self,
        looker: &mut dyn Looker,
        apply_updates: impl FnOnce(Instant) -> Result<(), Fault>,
    ) -> Result<TurnRate, Fault> {
        let (ready, stop) = (Barrier::new(2), AtomicBool::new(false));
        let turn = Duration::from_secs_f64(self.args.seconds / f64::from(TURNS));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let pinned = crate::pin(self.args.engine.cpu);
                let warm =
                    pinned.and_then(|()| looker.sweep(&self.keys, 0..self.keys.len(), self.args.engine.call));
                ready.wait();
                warm.and_then(|()| self.sweep_until(looker, &stop))
            });
            ready.wait();
            let deadline = Instant::now() + turn;
            let done = apply_updates(deadline);
            if done.is_ok() {
                std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
            }
            stop.store(true, Ordering::Relaxed);
            done.and(reader.join().map_err(Fault::panicked)?)
        })
    }

    fn sweep_until(&self, looker: &mut dyn Looker, stop: &AtomicBool) -> Result<TurnRate, Fault> {
        let (part, clock, call) = (PART_KEYS.max(looker.grain()), looker.clock(), self.args.engine.call);
        let is_over = |_| stop.load(Ordering::Relaxed);
        let swept = measure::sweep_until(looker, &self.keys, &mut 0, (part, call), is_over)?;
        let took_s = if clock == Clock::Wall { swept.wall_s } else { swept.cpu_s };
        if took_s <= 0.0 {
            return Err(Fault::Measurement("the lookup thread never ran".into()));
        }
        Ok(TurnRate { mlps: swept.keys as f64 / took_s / 1e6, on_cpu: swept.cpu_s / swept.wall_s })
    }

    /// Continues to the end of a pass, and compares with the oracle there.
    fn check(
        &self,
        table: &mut dyn Measurable,
        looker: &mut dyn Looker,
        player: &mut Player<'_>,
    ) -> Result<Checked, Fault> {
        while !player.is_at_end() {
            let Some(delta) = player.step() else { break };
            table.apply(delta)?;
        }
        let mut all = Checked::default();
        for sample in &self.samples {
            let found = sample.check(looker, self.args.engine.call)?;
            all.checked += found.checked;
            all.wrong += found.wrong;
            all.first_wrong = all.first_wrong.or(found.first_wrong);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{BenchCommand, Cli};
    use crate::table::tests::{Liar, oracle};
    use clap::Parser;
    use fib::Isa;

    fn args(line: &str) -> UpdateArgs {
        let line = format!("lpm-bench update --keys 4K --check 512 --seconds 0.03 {line}");
        let BenchCommand::Update(args) = Cli::parse_from(line.split_whitespace()).command else {
            panic!("{line}")
        };
        args
    }

    #[test]
    fn a_tiny_run_of_every_engine_is_right_and_whole() {
        for delta in [1, 50] {
            let line = format!(
                "--generate v4=2000,v6=1000 --generate-updates 500 --engines oracle,bloom,miht --delta {delta}"
            );
            let report = run(&args(&line)).unwrap();
            let engines = 2 + Isa::ALL.iter().filter(|isa| isa.is_available()).count();
            assert_eq!(report.rows.len(), engines * 2 * 3, "engines, families, rates");
            for row in &report.rows {
                assert_eq!((row.wrong, row.refused), (0, 0), "{row:?}");
                assert!(
                    row.checked >= 512 && row.updates_per_s > 0.0 && row.lookup_mlps_under > 0.0,
                    "{row:?}"
                );
                let numbers = [
                    format!("{:.0} updates/s", row.updates_per_s_under),
                    format!("{:.1} us", row.apply_us_max),
                ];
                assert!(numbers.iter().all(|number| row.analysis.contains(number)), "{}", row.analysis);
                assert!(row.updates_per_s_under > 0.0 && row.apply_us_p99 <= row.apply_us_max, "{row:?}");
            }
        }
    }

    #[test]
    fn the_default_route_and_a_third_of_the_table_need_no_updates() {
        let report =
            run(&args("--generate v4=3000,v6=900 --engines oracle,host:scalar --work default,third"))
                .unwrap();
        assert_eq!(report.rows.len(), 2 * 2 * 2, "engines, families, works");
        for row in &report.rows {
            let (delta, updates_told) = match (row.work, row.family.as_str()) {
                (UpdateWork::Default, _) => (1, 3),
                (UpdateWork::Third, "ipv4") => (1000, 1000),
                _ => (300, 300),
            };
            assert_eq!(
                (row.delta, row.updates_told, row.wrong, row.rate),
                (delta, updates_told, 0, UpdateRate::Max),
                "{row:?}"
            );
            assert!(row.checked >= 512 && row.apply_us_median <= row.apply_us_max, "{row:?}");
        }
    }

    #[test]
    fn an_update_file_of_either_dialect_is_played() {
        let folder = tempfile::tempdir().unwrap();
        let (routes, updates) = (folder.path().join("routes"), folder.path().join("updates"));
        std::fs::write(&routes, "10.0.0.0/8 1\n10.1.0.0/16 2\n2001:db8::/32 3\n").unwrap();
        std::fs::write(&updates, "a 10.2.0.0/16 4\nw 10.1.0.0/16\na 10.0.0.0/8 9\n").unwrap();
        let line = format!(
            "--fib {} --updates {} --engines oracle --rates max",
            routes.display(),
            updates.display()
        );
        let report = run(&args(&line)).unwrap();
        assert_eq!(report.rows.len(), 1, "no update is of IPv6");
        assert_eq!((report.rows[0].updates_told, report.rows[0].wrong), (3, 0));
        std::fs::write(&updates, "a 10.2.0.0/16 4\nz 10.1.0.0/16\n").unwrap();
        let why = run(&args(&line)).unwrap_err();
        assert!(why.to_string().contains(":2:") && why.exit_code() == 1, "{why}");
    }

    #[test]
    fn a_liar_is_found_after_the_updates() {
        let args = args("--generate v4=500 --generate-updates 100 --engines oracle --rates max");
        let mut tables = RouteSet::load(&args.table).unwrap();
        let updates = updates::read(&args, &mut tables).unwrap();
        let stream = UpdateStream::from_updates(Family::V4, &updates, 1, &tables);
        let wanted = wanted::expand(&args.engine.engines).unwrap();
        let work =
            UpdateRounds::new((&args, UpdateWork::Feed), Family::V4, &wanted, &tables, &stream).unwrap();
        let mut liar = Liar(oracle(&tables, Family::V4, 256));
        let mut looker = liar.looker().unwrap();
        let found = work.check(&mut liar, &mut *looker, &mut Player::new(&stream.deltas)).unwrap();
        assert!(found.wrong > 0 && found.first_wrong.is_some());
    }
}
