//! `fwd-app fib convert`: reads tables in any format and writes one.

use crate::commands::tables;
use crate::report::output;
use clap::Args;
use fib::feed::{self, WriteFormat, WriteOptions};
use std::num::NonZeroU16;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  fwd-app fib convert rib.20140523.mrt.bz2 --to text -o routes.txt
  ip -j route > here.json; fwd-app fib convert here.json --to iproute2
  fwd-app fib convert v4.txt v6.txt --to l3fwd --ports 4 -o rules.txt

The output is sorted: IPv4, then IPv6, by address, then by length. OUT is written completely or not at all.";

/// `fwd-app fib convert`.
#[derive(Clone, Debug, Args)]
pub(super) struct ConvertArgs {
    /// Input files; the last route of a prefix wins, in a file of iproute2 the lowest metric
    #[arg(value_name = "IN", required = true)]
    inputs: Vec<PathBuf>,

    /// Output format: text, iproute2, l3fwd or json
    #[arg(long, value_name = "FORMAT")]
    to: WriteFormat,

    /// Number of ports over which bare ids are distributed, for l3fwd, iproute2 and json
    #[arg(long, value_name = "P", default_value = "4")]
    ports: NonZeroU16,

    /// Output file [default: stdout]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

pub(super) fn main(args: &ConvertArgs) -> anyhow::Result<()> {
    let (rib, hops, _) = tables::load_rib(&args.inputs)?;
    let options = WriteOptions { ports: args.ports };
    output::write_to(args.output.as_deref(), |out| {
        feed::write(out, args.to, &rib, &hops, &options)?;
        Ok(())
    })
}
