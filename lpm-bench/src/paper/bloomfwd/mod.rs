//! `lpm-bench paper bloomfwd`: tables 1 to 5 and figures 1 to 10 of the Bloomfwd paper.
//!
//! | module | contents |
//! |---|---|
//! | `contest` | engines, instruction sets and parameters: built, checked, and measured in turn on any number of threads |
//! | `machines` | tables 1 and 2: this host and its engines next to the paper's machines and systems |
//! | `filters` | tables 3 and 5: prefixes before and after expansion, m and k; figure 1: hash functions and false-positive rates |
//! | `rates`, `keys` | figures 2 to 6: lookup rate by threads, keys and IPv4 table |
//! | `levels` | table 4: DPCPE, greedy and optimum; figures 7 and 8: IPv6 by levels of expansion |
//! | `cooperation` | figures 9 and 10: two engines that share each batch |
//!
//! The paper's *Bloomfwd* is `bloom-baseline` with the paper's hashes, filters (table 5) and greedy levels, vectorised by hand (section 6.3: the
//! only differences). The engine `bloom` is measured, too. For the paper's Xeon Phi and CPU there are two instruction sets here, AVX-512F and
//! scalar code; for its 244 threads one for each CPU. Without AVX-512F its half is skipped with a message.

mod contest;
mod cooperation;
mod filters;
mod keys;
mod levels;
mod machines;
mod rates;

use super::bench::{Bench, DataSet, DeviceNeed, Family, Figure, Isa, Known, Paper, PaperArgs, Result};
use super::data;

pub(super) const PAPER: Paper = Paper {
    title: "Parallel IP lookup using Bloom filters on the Intel Xeon Phi (Bloomfwd)",
    claims: include_str!("../claims/bloomfwd.txt"),
    figures: include_str!("figures.toml"),
    // Tables as large as AS65000 and AS65000-V6 (table 3, section 6.1), and full tables of 2024.
    generated: &[("generated-2016", "v4=622607,v6=31645"), ("generated-2024", "v4=950000,v6=200000")],
    has_updates: false,
    further_sets,
    known: &[
        Known { id: "table1", device: DeviceNeed::Unused, make: machines::table_1 },
        Known { id: "table2", device: DeviceNeed::Unused, make: machines::table_2 },
        Known { id: "table3", device: DeviceNeed::Unused, make: filters::table_3 },
        Known { id: "table4", device: DeviceNeed::Unused, make: levels::table_4 },
        Known { id: "table5", device: DeviceNeed::Unused, make: filters::table_5 },
        Known { id: "fig01", device: DeviceNeed::Unused, make: filters::figure_1 },
        Known { id: "fig02", device: DeviceNeed::Unused, make: rates::figure_2 },
        Known { id: "fig03", device: DeviceNeed::Unused, make: rates::figure_3 },
        Known { id: "fig04", device: DeviceNeed::Unused, make: rates::figure_4 },
        Known { id: "fig05", device: DeviceNeed::Unused, make: rates::figure_5 },
        Known { id: "fig06", device: DeviceNeed::Unused, make: rates::figure_6 },
        Known { id: "fig07", device: DeviceNeed::Unused, make: levels::figure_7 },
        Known { id: "fig08", device: DeviceNeed::Unused, make: levels::figure_8 },
        Known { id: "fig09", device: DeviceNeed::Used, make: cooperation::figure_9 },
        Known { id: "fig10", device: DeviceNeed::Used, make: cooperation::figure_10 },
    ],
};

/// The paper's IPv6 tables and their numbers of routes (section 6.1); generated tables of these sizes replace them.
const PAPER_V6: [(&str, usize); 4] =
    [("AS65000-V6", 31_645), ("EQUINIX", 42_663), ("LINX", 44_103), ("NWAX", 42_227)];
/// Some of its other IPv4 tables and their numbers of routes: sums of the rows of table 3 before expansion.
const PAPER_V4: [(&str, usize); 3] = [("SYDNEY", 667_369), ("LINX", 620_188), ("IX.br/SP", 652_531)];

/// Generated tables of the paper's sizes, since its own are not available; none if the command line names tables.
fn further_sets(args: &PaperArgs) -> Result<Vec<DataSet>> {
    if !args.table.fib.is_empty() || args.table.generate.is_some() {
        return Ok(Vec::new());
    }
    let v4 = if args.quick { &[][..] } else { &PAPER_V4 };
    let all = PAPER_V6.iter().map(|paper| ("v6", paper)).chain(v4.iter().map(|paper| ("v4", paper)));
    // Separate seeds, since tables of one size and seed are equal.
    let set = |((family, (name, routes)), seed): ((&str, &(&str, usize)), u64)| {
        data::generated(args, &format!("as large as {name}"), &format!("{family}={routes}"), seed)
    };
    all.zip(args.table.seed + 1..).map(set).collect()
}

/// The replacement of the paper's table `name`: a table of its size, else the first with routes of `family`.
fn stand_in<'a>(bench: &'a Bench, family: Family, name: &str) -> Option<&'a DataSet> {
    bench.sets(family).find(|set| set.name.ends_with(name)).or_else(|| bench.main_set(family))
}

/// The rows of one of the paper's tables: a name, and the numbers of each column.
fn rows_of(text: &'static str) -> impl Iterator<Item = (&'static str, Vec<Vec<u64>>)> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (name, columns) = line.split_once(" : ")?;
        let numbers = |column: &str| column.split(' ').filter_map(|number| number.parse().ok()).collect();
        Some((name, columns.split(" : ").map(numbers).collect()))
    })
}

const MLPS: &str = "million lookups a second";

/// The paper's two instruction sets, as far as this CPU has them. Without AVX-512F the figure is marked as half skipped.
fn isas(figure: &mut Figure) -> Vec<Isa> {
    if !Isa::Avx512f.is_available() {
        figure.skipped = Some("its AVX-512F half: this CPU has no avx512f".into());
    }
    [Isa::Avx512f, Isa::Scalar].into_iter().filter(|isa| isa.is_available()).collect()
}
