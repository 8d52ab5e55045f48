//! Names of engines, and how each is made. The one place that knows which engines there are.
//!
//! An engine checks its own options; what is checked here is what every engine shares: the name, and that this CPU has
//! the instruction set asked for.

use crate::cli::args::EngineArgs;
use crate::cli::exit::CliError;
use crate::cli::message::warn;
use crate::fallback::{Fallback, Switch};
use anyhow::Context as _;
use fib::oracle::OracleEngine;
use fib::{EngineError, EngineOptions, EngineWriter};
use lpm_gpu::engine as gpu;
use lpm_phi::bloom::BloomEngine;
use lpm_phi::coop::{CoopEngine, Engines};
use lpm_phi::miht::MihtEngine;
use lpm_phi::variants;
use std::sync::Arc;
use std::time::Duration;

/// What `--engine auto` stands for, on every host: `bloom` has a kernel for each instruction set, so no host is without one.
pub(crate) const AUTO: &str = BloomEngine::NAME;

/// Every name that `--engine` takes, in the order in which messages list them.
pub(crate) const NAMES: [&str; 10] = [
    "auto",
    OracleEngine::NAME,
    BloomEngine::NAME,
    variants::BASELINE,
    variants::NAIVE,
    MihtEngine::NAME,
    CoopEngine::NAME,
    gpu::GAMT,
    gpu::GALE,
    gpu::SAIL,
];

/// The engines that run on a GPU.
pub(crate) const GPU_NAMES: [&str; 3] = gpu::NAMES;

/// Whether the engine of that name runs on a GPU.
pub(crate) fn is_gpu(name: &str) -> bool {
    GPU_NAMES.contains(&name)
}

/// The engine's own name behind a name of the command line.
///
/// # Errors
/// [`EngineError::Unknown`] for a name that is not in [`NAMES`].
fn canonical(name: &str) -> Result<&'static str, EngineError> {
    let unknown = || EngineError::Unknown { name: name.to_owned(), known: NAMES.join(", ") };
    let known = NAMES.into_iter().find(|known| *known == name).ok_or_else(unknown)?;
    Ok(if known == "auto" { AUTO } else { known })
}

/// An empty engine.
///
/// # Errors
/// [`EngineError::Unknown`] for a name that is not in [`NAMES`], [`EngineError::Isa`] when this CPU lacks the
/// instruction set, and the engine's own errors.
pub(crate) fn make(name: &str, options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    if let Some(isa) = options.isa {
        isa.checked()?;
    }
    match canonical(name)? {
        BloomEngine::NAME => Ok(Box::new(BloomEngine::new(options)?)),
        name if variants::NAMES.contains(&name) => variants::make(name, options),
        MihtEngine::NAME => Ok(Box::new(MihtEngine::new(options)?)),
        CoopEngine::NAME => Ok(Box::new(make_coop(options)?)),
        name if is_gpu(name) => gpu::make(name, options),
        _ => match options.parameters.first() {
            None => Ok(Box::new(OracleEngine::new(options))),
            Some((name, value)) => Err(EngineError::Parameter {
                parameter: "engine parameter",
                value: format!("{name}={value}"),
                wanted: "engine oracle has no parameters",
            }),
        },
    }
}

/// The engine `coop` over two others of this list.
fn make_coop(options: &EngineOptions) -> Result<CoopEngine, EngineError> {
    let engines = Engines { make: &make, is_device: &is_gpu, device: gpu::GAMT };
    let engine = CoopEngine::make(options, &engines)?;
    let names = engine.service().names();
    Ok(engine.with_listener(Box::new(move |name, why| {
        warn(format_args!("engine coop of {} and {}: {name} is out of service: {why}", names[0], names[1]));
    })))
}

/// Whether the engine that `args` name keeps a GPU busy, so that it wants large batches: `coop` may.
pub(crate) fn drives_gpu(args: &EngineArgs) -> bool {
    if args.name != CoopEngine::NAME {
        return is_gpu(&args.name);
    }
    let half =
        |which: &str| args.parameters.iter().rev().find(|(name, _)| name == which).map(|(_, value)| value);
    let first = half("first").map_or_else(|| lpm_gpu::cu::probe().is_ok(), |name| is_gpu(name));
    first || half("second").is_some_and(|name| is_gpu(name))
}

/// An engine, and with `--fallback` what tells which of the two is in service.
pub(crate) struct Made {
    /// The engine, empty; with a fallback, both in one.
    pub(crate) engine: Box<dyn EngineWriter>,
    /// Which of the two answers.
    pub(crate) switch: Option<Arc<Switch>>,
}

/// The engine that the command line names, with its fallback.
///
/// # Errors
/// As [`make`]; [`CliError::Usage`] for options that do not fit the engine. With a fallback, an absent device is no error.
pub(crate) fn make_with_fallback(args: &EngineArgs) -> anyhow::Result<Made> {
    let name = canonical(&args.name)?;
    if args.latency_target_us.is_some() && !is_gpu(name) {
        let gpus = GPU_NAMES.join(", ");
        return Err(
            CliError::Usage(format!("--latency-target-us is for {gpus}; {name} answers at once")).into()
        );
    }
    if args.split.is_some() && name != CoopEngine::NAME {
        return Err(
            CliError::Usage(format!("--split is for {}; {name} is one engine", CoopEngine::NAME)).into()
        );
    }
    let cannot = |name: &str| format!("cannot make engine {name}");
    let engine = make(name, &args.options());
    let Some(fallback) = &args.fallback else {
        return Ok(Made { engine: engine.with_context(|| cannot(name))?, switch: None });
    };
    let fallback = canonical(fallback).context("--fallback")?;
    if is_gpu(fallback) {
        let message = format!(
            "--fallback {fallback}: it would fail with the device that it stands in for; name a CPU engine"
        );
        return Err(CliError::Usage(message).into());
    }
    let fallback = make(fallback, &args.fallback_options()).with_context(|| cannot(fallback))?;
    let stall = Duration::from_micros(args.stall_us);
    let pair = Fallback::new(name, engine, fallback, stall).with_context(|| cannot(name))?;
    Ok(Made { switch: Some(pair.switch()), engine: Box::new(pair) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use fib::Isa;

    #[test]
    fn every_name_makes_its_engine() {
        let options = EngineOptions { isa: Some(Isa::Scalar), ..EngineOptions::default() };
        for name in NAMES.into_iter().filter(|name| !is_gpu(name)) {
            let engine = make(name, &options).unwrap();
            assert_eq!(engine.name(), if name == "auto" { AUTO } else { name });
            assert_eq!(engine.isa(), Isa::Scalar);
        }
    }

    #[test]
    fn the_help_names_the_engine_behind_auto() {
        let help = <Line as clap::CommandFactory>::command().render_long_help().to_string();
        assert!(help.contains(&format!("`auto` is `{AUTO}`")), "{help}");
        let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
        assert!(readme.contains(&format!("`auto` is `{AUTO}`")), "README.md names another engine");
    }

    #[test]
    fn a_parameter_that_an_engine_does_not_know_is_refused() {
        let parameters = vec![("no-such-parameter".to_owned(), "1".to_owned())];
        let options = EngineOptions { parameters, ..EngineOptions::default() };
        for name in NAMES.into_iter().filter(|name| !is_gpu(name)) {
            assert!(matches!(make(name, &options), Err(EngineError::Parameter { .. })), "{name}");
        }
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        engine: EngineArgs,
    }

    /// The datapath gives a batch up after `--stall-us`; by then the half that is well must have had the keys.
    #[test]
    fn coop_gives_a_half_up_before_the_datapath_gives_the_batch_up() {
        let stall_us = |line: &str| {
            let options = Line::parse_from(line.split(' ')).engine.options();
            let pairs = options.parameters.into_iter().filter(|(name, _)| name == "stall-us");
            pairs.map(|(_, value)| value.parse().unwrap()).collect::<Vec<u64>>()
        };
        assert_eq!(stall_us("x --engine coop"), [50_000]);
        assert_eq!(stall_us("x --engine coop --stall-us 4000"), [2000]);
        assert_eq!(stall_us("x --engine coop --stall-us 100"), [100]);
        assert_eq!(stall_us("x --engine coop --engine-arg stall-us=700"), [700]);
        assert!(stall_us("x --engine bloom").is_empty());
    }

    #[test]
    fn an_unknown_name_lists_what_there_is() {
        let Err(error) = make("bloomy", &EngineOptions::default()) else { panic!("made an engine 'bloomy'") };
        assert_eq!(error.to_string(), format!("'bloomy' is no engine; known are: {}", NAMES.join(", ")));
    }

    #[test]
    fn an_instruction_set_that_is_not_there_is_refused_by_every_engine() {
        let Some(isa) = Isa::ALL.into_iter().find(|isa| !isa.is_available()) else {
            eprintln!("SKIPPED: this CPU has every instruction set");
            return;
        };
        for name in NAMES {
            let options = EngineOptions { isa: Some(isa), ..EngineOptions::default() };
            assert!(matches!(make(name, &options), Err(EngineError::Isa(_))), "{name}");
        }
    }
}
