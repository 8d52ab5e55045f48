//! `fwd-app run`: forward between DPDK ports.

use crate::cli::args::RunArgs;

/// Forwards until a signal or `--duration` ends it.
pub(crate) fn main(args: &RunArgs) -> anyhow::Result<()> {
    anyhow::bail!("run on {} route file(s): this build has no datapath", args.tables.fib.len())
}
