//! The routes of a run and their oracle: every contender is built from the same [`Routes`] and checked against the same oracle.

use crate::args::TableArgs;
use crate::fault::Fault;
use fib::digest::table_hash;
use fib::feed::{self, LoadOptions};
use fib::generate::TableSpec;
use fib::oracle::OraclePair;
use fib::{Family, IpPrefix, NextHopId, NextHopTable, Prefix4, Prefix6, Rib, Routes};
use lpm_bench::progress::bar;
use std::fmt::Write as _;
use std::time::Instant;

#[derive(Debug)]
pub(crate) struct RouteSet {
    pub(crate) v4: Vec<(Prefix4, NextHopId)>,
    pub(crate) v6: Vec<(Prefix6, NextHopId)>,
    /// All routes, with nothing dirty.
    pub(crate) rib: Rib,
    /// The gateways of the ids, so that an update file uses the same ids.
    pub(crate) hops: NextHopTable,
    pub(crate) oracle: OraclePair,
    pub(crate) source: String,
    pub(crate) hash: String,
    pub(crate) load_s: f64,
}

impl RouteSet {
    /// [`Fault::Usage`] when no table is named.
    pub(crate) fn load(args: &TableArgs) -> Result<Self, Fault> {
        let start = Instant::now();
        let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
        let mut sources = Vec::new();
        if !args.fib.is_empty() {
            let bar = bar("routes  [{bar:40}] {bytes}/{total_bytes} {elapsed}", 0);
            let mut on_progress = |done, total| {
                bar.set_length(total);
                bar.set_position(done);
            };
            let options = LoadOptions { on_progress: Some(&mut on_progress), ..LoadOptions::default() };
            let loaded = feed::load(&args.fib, &mut rib, &mut hops, options)?;
            bar.finish_and_clear();
            for file in &loaded {
                let mut source = format!("{} ({} routes)", file.path.display(), file.routes());
                if let Some(cut) = &file.truncated {
                    eprintln!(
                        "lpm-bench: warning: {}: {cut}; the part before it is used",
                        file.path.display()
                    );
                    let _ = write!(source, " {cut}");
                }
                sources.push(source);
            }
        }
        for (family, routes) in args.generate.iter().flat_map(|spec| spec.families()) {
            let spec = TableSpec { family, routes, seed: args.seed, next_hops: args.next_hops };
            for (prefix, next_hop) in spec.generate()? {
                rib.set(prefix, next_hop);
            }
            sources
                .push(format!("generated {family}={routes} seed={} next-hops={}", args.seed, args.next_hops));
        }
        if sources.is_empty() {
            return Err(Fault::Usage("no table: give --fib FILE or --generate v4=950000,v6=200000".into()));
        }
        let mut tables = Self::of_rib(rib, sources.join("; "));
        tables.hash = table_hash(&tables.rib, &hops);
        tables.hops = hops;
        tables.load_s = start.elapsed().as_secs_f64();
        Ok(tables)
    }

    pub(crate) fn of_rib(mut rib: Rib, source: String) -> Self {
        rib.take_delta();
        let (v4, v6) = (rib.v4.sorted(), rib.v6.sorted());
        let oracle = OraclePair { v4: v4.iter().copied().collect(), v6: v6.iter().copied().collect() };
        let hash = table_hash(&rib, &NextHopTable::new());
        Self { v4, v6, rib, hops: NextHopTable::new(), oracle, source, hash, load_s: 0.0 }
    }

    #[cfg(test)]
    pub(crate) fn of_routes(lines: &[&str]) -> Self {
        let mut rib = Rib::new();
        for line in lines {
            let (prefix, id) = line.split_once(' ').unwrap();
            rib.set(prefix.parse().unwrap(), NextHopId::new(id.parse().unwrap()).unwrap());
        }
        Self::of_rib(rib, "test".into())
    }

    pub(crate) fn routes(&self, family: Family) -> usize {
        match family {
            Family::V4 => self.v4.len(),
            Family::V6 => self.v6.len(),
        }
    }

    pub(crate) fn lens(&self, family: Family) -> Vec<u8> {
        match family {
            Family::V4 => self.v4.iter().map(|(prefix, _)| prefix.len()).collect(),
            Family::V6 => self.v6.iter().map(|(prefix, _)| prefix.len()).collect(),
        }
    }

    pub(crate) fn routes_of(&self, family: Family) -> Routes {
        let mut delta = Routes::new();
        match family {
            Family::V4 => self.v4.iter().for_each(|(prefix, id)| delta.push(IpPrefix::V4(*prefix), *id)),
            Family::V6 => self.v6.iter().for_each(|(prefix, id)| delta.push(IpPrefix::V6(*prefix), *id)),
        }
        delta
    }

    pub(crate) fn next_hop_max(&self, family: Family) -> u32 {
        let largest = match family {
            Family::V4 => self.v4.iter().map(|(_, id)| id.get()).max(),
            Family::V6 => self.v6.iter().map(|(_, id)| id.get()).max(),
        };
        largest.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_sees_every_field_and_no_order() {
        let base = RouteSet::of_routes(&["10.0.0.0/8 1", "10.1.0.0/16 2", "2001:db8::/32 3"]);
        let same = RouteSet::of_routes(&["2001:db8::/32 3", "10.1.0.0/16 2", "10.0.0.0/8 1"]);
        assert_eq!(base.hash, same.hash);
        for other in [
            ["10.0.0.0/8 2", "10.1.0.0/16 2", "2001:db8::/32 3"],
            ["10.0.0.0/9 1", "10.1.0.0/16 2", "2001:db8::/32 3"],
            ["10.0.0.0/8 1", "10.1.0.0/16 2", "2001:db9::/32 3"],
        ] {
            assert_ne!(base.hash, RouteSet::of_routes(&other).hash);
        }
    }

    #[test]
    fn a_family_s_delta_builds_that_family() {
        let tables = RouteSet::of_routes(&["10.0.0.0/8 1", "2001:db8::/32 3"]);
        let delta = tables.routes_of(Family::V6);
        assert_eq!((delta.v4.len(), delta.v6.len(), tables.routes(Family::V4)), (0, 1, 1));
        assert!(tables.rib.clone().take_delta().is_empty());
    }
}
