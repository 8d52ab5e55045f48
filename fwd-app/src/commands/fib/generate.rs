//! `fwd-app fib generate`: a table like today's Internet's, or a stream of updates, from a seed.

use crate::cli::values;
use crate::commands::tables;
use crate::error::ConfigError;
use crate::report::output;
use clap::{Args, ValueEnum};
use fib::generate::{DEFAULT_NEXT_HOPS, DEFAULT_ROUTES_V4, DEFAULT_ROUTES_V6, TableSpec, Updates};
use fib::{Family, IpPrefix, NextHopId};
use std::io::{self, Write};
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  fwd-app fib generate -o routes.txt
  fwd-app fib generate --family v4 --routes 1000 --seed 7 --next-hops 16
  fwd-app fib generate --updates 100000 --fib routes.txt -o updates.txt

Tables are lines `PREFIX ID`, updates are lines `a PREFIX ID` (announce) and `w PREFIX` (withdraw).";

/// Address families of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Families {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
    /// Both; --routes are divided in today's proportion.
    Both,
}

/// Model of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Like {
    /// Prefix lengths, nesting and next hops as in a full table of the Internet.
    Internet,
}

/// `fwd-app fib generate`.
#[derive(Clone, Debug, Args)]
pub(super) struct GenerateArgs {
    /// Address families of the table
    #[arg(long, value_enum, default_value_t = Families::Both)]
    family: Families,

    /// Number of routes [default: 950000 IPv4, 200000 IPv6]
    #[arg(long, value_name = "N", value_parser = values::count::<usize>(0..=u64::MAX))]
    routes: Option<usize>,

    /// Model for the table
    #[arg(long, value_enum, default_value_t = Like::Internet)]
    like: Like,

    /// Number of distinct next hops; their ids are 1 to N
    #[arg(long, value_name = "N", default_value_t = DEFAULT_NEXT_HOPS, value_parser = values::count::<u32>(0..=u32::MAX.into()))]
    next_hops: u32,

    /// Seed; the same seed gives the same bytes on every host
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Generate N updates for the table of --fib instead of a table
    #[arg(long, value_name = "N", value_parser = values::count::<usize>(0..=u64::MAX), requires = "fib", conflicts_with_all = ["family", "routes", "like", "next_hops"])]
    updates: Option<usize>,

    /// Table for --updates; may be given several times
    #[arg(long, value_name = "FILE", requires = "updates")]
    fib: Vec<PathBuf>,

    /// Output file [default: stdout]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

pub(super) fn main(args: &GenerateArgs) -> anyhow::Result<()> {
    if let Some(count) = args.updates {
        let (rib, _, _) = tables::load_rib(&args.fib)?;
        let updates = Updates::of_rib(&rib, args.seed);
        return output::write_to(args.output.as_deref(), |out| {
            Ok(updates.take(count).try_for_each(|update| write_update(out, update))?)
        });
    }
    let Like::Internet = args.like;
    // All tables are generated before the first write, so that an error leaves no partial output.
    let tables = specs(args)
        .iter()
        .map(|spec| spec.generate().map_err(|error| ConfigError::Invalid(error.to_string())))
        .collect::<Result<Vec<_>, _>>()?;
    output::write_to(args.output.as_deref(), |out| {
        for (prefix, id) in tables.iter().flatten() {
            writeln!(out, "{prefix} {id}")?;
        }
        Ok(())
    })
}

fn write_update(out: &mut dyn Write, (prefix, id): (IpPrefix, NextHopId)) -> io::Result<()> {
    if id.is_none() { writeln!(out, "w {prefix}") } else { writeln!(out, "a {prefix} {id}") }
}

/// IPv4 first.
fn specs(args: &GenerateArgs) -> Vec<TableSpec> {
    let spec = |family, routes| TableSpec { family, routes, seed: args.seed, next_hops: args.next_hops };
    let v4 = |routes| spec(Family::V4, routes);
    let v6 = |routes| spec(Family::V6, routes);
    match (args.family, args.routes) {
        (Families::V4, routes) => vec![v4(routes.unwrap_or(DEFAULT_ROUTES_V4))],
        (Families::V6, routes) => vec![v6(routes.unwrap_or(DEFAULT_ROUTES_V6))],
        (Families::Both, None) => vec![v4(DEFAULT_ROUTES_V4), v6(DEFAULT_ROUTES_V6)],
        (Families::Both, Some(routes)) => {
            let share_v6 = routes as u128 * DEFAULT_ROUTES_V6 as u128
                / (DEFAULT_ROUTES_V4 as u128 + DEFAULT_ROUTES_V6 as u128);
            let routes_v6 = usize::try_from(share_v6).unwrap_or(routes);
            vec![v4(routes - routes_v6), v6(routes_v6)]
        }
    }
}
