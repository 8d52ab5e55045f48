//! Figures of GAMT's table on the host that need no device: levels and memory (figures 11, 15, 19), build time, off-line update
//! speed (figure 13), device writes an update (figure 14).
//!
//! `cargo run --release -p lpm-gpu --example gamt_figures -- TABLE [UPDATES [by-peer]]`. Times are CPU times of this thread.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use fib::feed::{self, LoadOptions};
use fib::{Change, EngineError, IpPrefix, Key, NextHopId, NextHopTable, Rib, Route, Routes};
use lpm_gpu::gamt::options::{LEVELS_V4, LEVELS_V6};
use lpm_gpu::gamt::strides::{Census, Plan};
use lpm_gpu::gamt::{GamtOptions, GamtTable, NextHops};
use lpm_gpu::host::HostTable;
use std::hint::black_box;
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

/// How often the updates are told: CPU time is counted in ticks of 4 ms.
const ROUNDS: usize = 10;

/// How often Algorithm 3 is run, for the same reason.
const RUNS: u32 = 50;

/// Levels and memory.
fn levels<K: Key>(routes: &[Route<K>]) {
    let bits = GamtTable::<K>::BITS;
    let prefixes = || {
        let device = routes.iter().filter(|change| change.prefix.len() <= bits);
        device.map(|change| ((change.prefix.address().to_high_bits() >> 64) as u64, change.prefix.len()))
    };
    let range = if bits == 32 { LEVELS_V4 } else { LEVELS_V6 };
    let (census_s, census) = timed(|| {
        (1..RUNS).for_each(|_| {
            black_box(Census::new(bits, prefixes()));
        });
        Census::new(bits, prefixes())
    });
    let choose = || Plan::choose(&census, range.clone(), 32, |plan| Some(plan.units * 4));
    let (plan_s, chosen) = timed(|| {
        (1..RUNS).for_each(|_| {
            black_box(choose());
        });
        choose()
    });
    println!(
        "{} routes: NodesInLevel {:.2} ms, Algorithm 3 for all level counts {:.2} ms CPU",
        routes.len(),
        census_s * 1e3 / f64::from(RUNS),
        plan_s * 1e3 / f64::from(RUNS)
    );
    println!("chosen: {:?}, {} MB", chosen.strides, chosen.units * 4 / 1_000_000);
    for levels in range {
        let plan = Plan::of_levels(&census, levels, 32);
        let per = |units: u64| 4.0 * units as f64 / routes.len() as f64;
        println!(
            "{levels:2} levels: width {:8}, {:5.1} B/prefix in rows, {:5.1} flat, {:5.2} steps, {:?}",
            plan.width,
            per(plan.width * u64::from(levels)),
            per(plan.units),
            census.steps(&plan.strides),
            plan.strides
        );
    }
}

/// Builds a table and follows the updates, in batches of several sizes.
fn updates<K: Key>(
    routes: &[Route<K>],
    updates: &[Route<K>],
    next_hops: NextHops,
) -> Result<(), EngineError> {
    let mut table = GamtTable::<K>::new(GamtOptions { next_hops, ..GamtOptions::default() })?;
    let mut rib = Rib::plain();
    let first = changes(&mut rib, routes);
    let (build_s, made) = timed(|| table.apply(&first, usize::MAX));
    made?;
    table.take_steps(1);
    println!(
        "{next_hops:?}: built in {build_s:.3} s CPU, image {} MB, host {} MB",
        table.image().words * 4 / 1_000_000,
        table.host_bytes() / 1_000_000
    );
    let mut number = 1;
    for batch in [1, 100, 10_000].into_iter().filter(|_| !updates.is_empty()) {
        let deltas: Vec<_> =
            (0..ROUNDS).flat_map(|_| updates.chunks(batch)).map(|routes| changes(&mut rib, routes)).collect();
        let before = table.figures();
        let (update_s, followed) = timed(|| follow(&mut table, &deltas, &mut number));
        followed?;
        let after = table.figures();
        let told = updates.len() * ROUNDS;
        println!(
            "  {told} updates by {batch}: {:.2} M/s CPU, {} changed something, {} writes, {} without, {} rebuilds",
            told as f64 / update_s / 1e6,
            after.updates - before.updates,
            after.bubbles - before.bubbles,
            after.next_hop_updates - before.next_hop_updates,
            after.rebuilds - before.rebuilds
        );
    }
    Ok(())
}

/// What changes when `routes` are told.
fn changes<K: Key>(rib: &mut Rib, routes: &[Route<K>]) -> Vec<Change<K>> {
    for route in routes {
        rib.set(K::wrap(route.prefix), route.next_hop);
    }
    K::changes(&rib.take_delta()).to_vec()
}

fn follow<K: Key>(
    table: &mut GamtTable<K>,
    deltas: &[Vec<Change<K>>],
    number: &mut u64,
) -> Result<(), EngineError> {
    for changes in deltas {
        table.apply(changes, usize::MAX)?;
        *number += 1;
        black_box(table.take_steps(*number));
        table.reclaim(*number);
    }
    Ok(())
}

fn run<K: Key>(routes: &[Route<K>], told: &[Route<K>]) -> Result<(), EngineError> {
    levels(routes);
    updates(routes, told, NextHops::Together)?;
    updates(routes, told, NextHops::Apart)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let table = arguments.next().ok_or("usage: gamt_figures TABLE [UPDATES [by-peer]]")?;
    let (mut rib, mut hops) = (Rib::new(), NextHopTable::default());
    feed::load(&[&table], &mut rib, &mut hops, LoadOptions::default())?;
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    let path = arguments.next();
    let by_peer = arguments.next().is_some_and(|word| word == "by-peer");
    if let Some(path) = path {
        for update in feed::updates(Path::new(&path), None)? {
            let update = update?;
            let mut next_hop = update.next_hop(&mut hops)?;
            // With next hops by origin most updates change nothing; by peer as well, nearly all do.
            if let (Some(peer), false, true) = (update.peer, next_hop.is_none(), by_peer) {
                let peer =
                    peer.to_string().bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
                next_hop = NextHopId::new(1 + (next_hop.get() + peer % 97) % 1000)?;
            }
            match update.prefix {
                IpPrefix::V4(prefix) => v4.push(Route { prefix, next_hop }),
                IpPrefix::V6(prefix) => v6.push(Route { prefix, next_hop }),
            }
        }
    }
    let full = Routes::of(&rib);
    if !full.v4.is_empty() {
        run(&full.v4, &v4)?;
    }
    if !full.v6.is_empty() {
        run(&full.v6, &v6)?;
    }
    Ok(())
}
