//! The packets of a replay: those of a trace, or made for the routes of a table.

use crate::cli::args::ReplayArgs;
use crate::error::ConfigError;
use crate::harness::OfferedRate;
use crate::harness::make::FrameChanges;
use crate::harness::make::generate::GenerateSpec;
use crate::harness::trace::Trace;
use crate::report::made::{GeneratedReport, MadeReport, RemappedReport, SizesReport};
use fib::{MacAddr, Rib};

/// The packets that `args` says, over the routes of `rib` and for a router with this MAC address; and what was made or changed.
///
/// # Errors
/// When there are no such packets, or they cannot be saved.
pub(super) fn packets(args: &ReplayArgs, rib: &Rib, router: MacAddr) -> anyhow::Result<(Trace, MadeReport)> {
    let traffic = &args.traffic;
    let (seed, mut changes) = (traffic.seed, traffic.changes(rib));
    let mut generated = None;
    let trace = match (traffic.generate, &args.trace) {
        (Some(kind), _) => {
            if let rate @ OfferedRate::Times(_) = args.harness.rate {
                let message =
                    format!("--rate {rate}: packets that --generate makes have no times of their own");
                return Err(ConfigError::Invalid(message).into());
            }
            let spec = GenerateSpec::new(kind, traffic.packets, traffic.v6_share, seed, rib)?;
            let (kind, packets, v6_share) = (kind.to_string(), spec.packets, spec.v6_share);
            generated = Some(GeneratedReport { kind, seed, packets, v6_share });
            let mut trace = Trace::default();
            spec.frames(rib, router, &mut changes, |frame, time_ns| trace.push(frame, time_ns))?;
            trace
        }
        (None, Some(path)) => Trace::load(path, args.harness.limit)?.changed(&mut changes),
        // The command line wants one of them.
        (None, None) => return Err(ConfigError::Invalid("wanted a trace, or --generate".into()).into()),
    };
    if let Some(path) = &traffic.save_trace {
        trace.save(path)?;
    }
    let FrameChanges { remapped, longer, .. } = changes;
    let sizes = traffic.sizes().map(|mix| SizesReport { mix: mix.to_string(), seed, longer });
    let remapped = traffic.remap.then_some(RemappedReport { seed, packets: remapped });
    Ok((trace, MadeReport { generated, sizes, remapped }))
}
