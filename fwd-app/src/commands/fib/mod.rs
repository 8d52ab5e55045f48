//! `fwd-app fib`: inspects, converts or generates a table.

mod convert;
mod generate;
mod stat;
mod survey;

use clap::{Args, Subcommand};

pub(crate) const EXAMPLES: &str = "\
Examples:
  fwd-app fib stat routes.txt
  fwd-app fib convert rib.mrt.bz2 --to text -o routes.txt
  fwd-app fib generate --family both -o routes.txt";

/// `fwd-app fib`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FibArgs {
    #[command(subcommand)]
    command: FibCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum FibCommand {
    /// Show statistics of a table: routes by length, next hops, covered address space.
    #[command(after_help = stat::EXAMPLES)]
    Stat(stat::StatArgs),
    /// Write a table in another format.
    #[command(after_help = convert::EXAMPLES)]
    Convert(convert::ConvertArgs),
    /// Generate a table like today's Internet, or a stream of updates for a table, from a seed.
    #[command(after_help = generate::EXAMPLES)]
    Generate(generate::GenerateArgs),
}

pub(crate) fn main(args: &FibArgs) -> anyhow::Result<()> {
    match &args.command {
        FibCommand::Stat(args) => stat::main(args),
        FibCommand::Convert(args) => convert::main(args),
        FibCommand::Generate(args) => generate::main(args),
    }
}
