//! Figures of GAMT's table on the host that need no device: levels and memory (figures 11, 15, 19), build time, off-line update
//! speed (figure 13), device writes an update (figure 14).
//!
//! `cargo run --release -p lpm-gpu --example gamt_figures -- TABLE [UPDATES]`. Times are CPU times of this thread.

use fib::feed::{self, LoadOptions};
use fib::{Change, EngineError, IpPrefix, Key, NextHopTable, Rib};
use lpm_gpu::gamt::strides::{Census, Plan};
use lpm_gpu::gamt::{GamtOptions, GamtTable, NextHops};
use lpm_gpu::host::{HostTable, Step};
use std::path::Path;

/// Seconds of CPU that this process has used.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let before = cpu_s();
    let done = work();
    (cpu_s() - before, done)
}

fn run<K: Key>(routes: &[Change<K>], updates: &[Change<K>]) -> Result<(), EngineError> {
    let bits = GamtTable::<K>::BITS;
    let prefixes = || {
        routes
            .iter()
            .filter(|change| change.prefix.len() <= bits)
            .map(|change| ((change.prefix.address().to_high_bits() >> 64) as u64, change.prefix.len()))
    };
    let (census_s, census) = timed(|| Census::new(bits, prefixes()));
    let (plan_s, chosen) = timed(|| {
        let range = if bits == 32 { 4..=20 } else { 8..=30 };
        Plan::choose(&census, range, 32, |plan| Some(plan.units * 4))
    });
    println!("{} routes; census {census_s:.4} s, all level counts {plan_s:.4} s CPU", routes.len());
    println!("chosen: {:?}, {} MB", chosen.strides, chosen.units * 4 / 1_000_000);
    for levels in if bits == 32 { 4..=20 } else { 8..=30 } {
        let (one_s, plan) = timed(|| Plan::of_levels(&census, levels, 32));
        let per = |units: u64| 4.0 * units as f64 / routes.len() as f64;
        println!(
            "{levels:2} levels: width {:8}, {:5.1} B/prefix in rows, {:5.1} flat, {:4.2} steps, {one_s:.4} s, {:?}",
            plan.width,
            per(plan.width * u64::from(levels)),
            per(plan.units),
            census.steps(&plan.strides),
            plan.strides
        );
    }
    for next_hops in [NextHops::Together, NextHops::Apart] {
        let mut table = GamtTable::<K>::new(GamtOptions { next_hops, ..GamtOptions::default() })?;
        let mut undo = Vec::new();
        let (build_s, made) = timed(|| table.apply(routes, &mut undo).and_then(|()| table.rebuild()));
        made?;
        table.take_steps(1);
        println!(
            "{next_hops:?}: built in {build_s:.3} s CPU, image {} MB, host {} MB",
            table.image().words * 4 / 1_000_000,
            table.host_bytes() / 1_000_000
        );
        if updates.is_empty() {
            continue;
        }
        for batch in [1, 100, 10_000] {
            let before = table.figures();
            let (mut writes, mut number) = (0, 1);
            let (update_s, ok) = timed(|| -> Result<(), EngineError> {
                for changes in updates.chunks(batch) {
                    undo.clear();
                    table.apply(changes, &mut undo)?;
                    if table.rebuild_due() {
                        table.rebuild()?;
                    }
                    number += 1;
                    for step in table.take_steps(number) {
                        if let Step::Writes(list) = step {
                            writes += list.len();
                        }
                    }
                    table.reclaim(number);
                }
                Ok(())
            });
            ok?;
            let after = table.figures();
            println!(
                "  {} updates by {batch}: {:.2} M/s CPU, {} changed something, {writes} writes, {} without, {} rebuilds",
                updates.len(),
                updates.len() as f64 / update_s / 1e6,
                after.updates - before.updates,
                after.next_hop_updates - before.next_hop_updates,
                after.rebuilds - before.rebuilds
            );
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let table = arguments.next().ok_or("usage: gamt_figures TABLE [UPDATES]")?;
    let (mut rib, mut hops) = (Rib::new(), NextHopTable::default());
    feed::load(&[&table], &mut rib, &mut hops, LoadOptions::default())?;
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    if let Some(path) = arguments.next() {
        for update in feed::updates(Path::new(&path), None)? {
            let update = update?;
            let next_hop = update.next_hop(&mut hops)?;
            match update.prefix {
                IpPrefix::V4(prefix) => v4.push(Change { prefix, next_hop }),
                IpPrefix::V6(prefix) => v6.push(Change { prefix, next_hop }),
            }
        }
    }
    let full = rib.full_delta();
    if !full.v4.is_empty() {
        run(&full.v4, &v4)?;
    }
    if !full.v6.is_empty() {
        run(&full.v6, &v6)?;
    }
    Ok(())
}
