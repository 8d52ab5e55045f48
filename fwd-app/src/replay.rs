//! `fwd-app replay`: drive the forwarder with a capture, and measure it.

use crate::cli::args::ReplayArgs;

/// Replays the trace and reports.
pub(crate) fn main(args: &ReplayArgs) -> anyhow::Result<()> {
    anyhow::bail!("replay {}: this build has no datapath", args.trace.display())
}
