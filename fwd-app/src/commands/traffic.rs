//! The packets of a replay: from a trace, or generated for the routes of a table.

use crate::cli::args::ReplayArgs;
use crate::cli::traffic::TrafficArgs;
use crate::error::ConfigError;
use crate::harness::OfferedRate;
use crate::harness::make::generate::GenerateSpec;
use crate::harness::trace::{Captured, Trace, TraceFacts, TraceSpec};
use crate::report::trace::{GeneratedReport, MadeReport, RemappedReport, SizesReport};
use fib::{MacAddr, Rib};
use std::sync::Arc;

pub(super) enum Packets {
    InMemory(Arc<Trace>),
    /// Read while sending.
    InFile(Box<TraceSpec>),
}

impl Packets {
    pub(super) fn in_memory(&self) -> Option<&Arc<Trace>> {
        match self {
            Self::InMemory(trace) => Some(trace),
            Self::InFile(_) => None,
        }
    }
}

/// Reads or generates the packets of `args`, for the routes of `rib` and a router with this MAC; with a report if they were generated.
///
/// # Errors
/// The packets cannot be read or generated, or not be saved.
pub(super) fn packets(
    args: &ReplayArgs,
    rib: &Rib,
    router: MacAddr,
) -> anyhow::Result<(Packets, Option<GeneratedReport>)> {
    let (traffic, mut changes) = (&args.traffic, args.traffic.changes(rib));
    let mut generated = None;
    let trace = match (traffic.generate, &args.trace) {
        (Some(kind), _) => {
            if let rate @ OfferedRate::Times(_) = args.harness.rate {
                let message = format!("--rate {rate}: packets of --generate have no capture times");
                return Err(ConfigError::Invalid(message).into());
            }
            let seed = traffic.seed;
            let spec = GenerateSpec::new(kind, traffic.packets, traffic.v6_share, seed, rib)?;
            let (kind, packets, v6_share) = (kind.to_string(), spec.packets, spec.v6_share);
            generated = Some(GeneratedReport { kind, seed, packets, v6_share });
            let mut trace = Trace::default();
            spec.frames(rib, router, &mut changes, |bytes, time_ns| {
                trace.push(&Captured { bytes, time_ns, port: 0 });
            })?;
            trace.facts.longer = changes.longer;
            trace
        }
        (None, Some(path)) => {
            let spec = args.harness.trace(path, changes);
            match args.harness.stream.load(&spec)? {
                Some(trace) => trace,
                None if traffic.save_trace.is_some() => {
                    let message = format!(
                        "--save-trace needs the packets of {} in memory; see --limit and --stream never",
                        path.display()
                    );
                    return Err(ConfigError::Invalid(message).into());
                }
                None => return Ok((Packets::InFile(spec.into()), None)),
            }
        }
        // Excluded by the command line.
        (None, None) => return Err(ConfigError::Invalid("wanted a trace, or --generate".into()).into()),
    };
    if let Some(path) = &traffic.save_trace {
        trace.save(path)?;
    }
    Ok((Packets::InMemory(Arc::new(trace)), generated))
}

pub(super) fn made(args: &TrafficArgs, generated: Option<GeneratedReport>, facts: &TraceFacts) -> MadeReport {
    let (seed, TraceFacts { remapped, longer, .. }) = (args.seed, *facts);
    let sizes = args.sizes().map(|mix| SizesReport { mix: mix.to_string(), seed, longer });
    let remapped = args.remap.then_some(RemappedReport { seed, packets: remapped });
    MadeReport { generated, sizes, remapped }
}
