//! Names of engines, and how each is made. The one place that knows which engines there are.
//!
//! An engine checks its own options; what is checked here is what every engine shares: the name, and that this CPU has
//! the instruction set asked for.

use crate::error::ConfigError;
use crate::fallback::Fallback;
use crate::notice::warn;
use anyhow::Context as _;
use fib::oracle::OracleEngine;
use fib::{EngineError, EngineOptions, EngineWriter};
use lpm_core::failover::Service;
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

/// The longest time that an engine may be given for a batch, microseconds.
pub(crate) const STALL_US_MAX: u64 = 60_000_000;

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

/// An engine, and with `--fallback` what tells which of the two is in service.
pub(crate) struct Made {
    /// The engine, empty; with a fallback, both in one.
    pub(crate) engine: Box<dyn EngineWriter>,
    /// Which of the two answers.
    pub(crate) service: Option<Arc<Service>>,
}

/// Which engine, and what it may use.
#[derive(Clone, Debug)]
pub(crate) struct EngineSpec {
    /// One of [`NAMES`].
    pub(crate) name: String,
    /// Instruction set, table memory and node, for the fallback too; and the engine's own parameters.
    pub(crate) options: EngineOptions,
    /// Share of each batch that goes to the first engine of `coop`.
    pub(crate) split: Option<f64>,
    /// The engine that takes over when this one fails.
    pub(crate) fallback: Option<String>,
    /// How long the engine may keep a batch, microseconds.
    pub(crate) stall_us: u64,
    /// Latency that the batches of a GPU engine stay under, microseconds.
    pub(crate) latency_target_us: Option<u64>,
}

impl EngineSpec {
    /// Whether the engine keeps a GPU busy, so that it wants large batches: `coop` may.
    pub(crate) fn drives_gpu(&self) -> bool {
        if self.name != CoopEngine::NAME {
            return is_gpu(&self.name);
        }
        let half = |which: &str| {
            self.options.parameters.iter().rev().find(|(name, _)| name == which).map(|(_, value)| value)
        };
        let first = half("first").map_or_else(|| lpm_gpu::cu::probe().is_ok(), |name| is_gpu(name));
        first || half("second").is_some_and(|name| is_gpu(name))
    }

    /// The options in the form that engines take.
    fn options(&self) -> EngineOptions {
        let mut options = EngineOptions { stall_us: Some(self.stall_us), ..self.options.clone() };
        let parameters = &mut options.parameters;
        parameters.extend(self.latency_target_us.map(|us| ("latency-target-us".to_owned(), us.to_string())));
        parameters.extend(self.split.map(|split| ("split".to_owned(), split.to_string())));
        if self.name == CoopEngine::NAME && !parameters.iter().any(|(name, _)| name == "stall-us") {
            // One half is to be given up, and its keys looked up by the other, before the batch is.
            parameters.push(("stall-us".to_owned(), (self.stall_us / 2).max(100).to_string()));
        }
        options
    }

    /// The engine, with its fallback.
    ///
    /// # Errors
    /// As [`make`]; [`ConfigError::Invalid`] for options that do not fit the engine. With a fallback, an absent device is no error.
    pub(crate) fn make_with_fallback(&self) -> anyhow::Result<Made> {
        let name = canonical(&self.name)?;
        if self.latency_target_us.is_some() && !is_gpu(name) {
            let gpus = GPU_NAMES.join(", ");
            let message = format!("--latency-target-us is for {gpus}; {name} answers at once");
            return Err(ConfigError::Invalid(message).into());
        }
        if self.split.is_some() && name != CoopEngine::NAME {
            let message = format!("--split is for {}; {name} is one engine", CoopEngine::NAME);
            return Err(ConfigError::Invalid(message).into());
        }
        let cannot = |name: &str| format!("cannot make engine {name}");
        let engine = make(name, &self.options());
        let Some(fallback) = &self.fallback else {
            return Ok(Made { engine: engine.with_context(|| cannot(name))?, service: None });
        };
        let fallback = canonical(fallback).context("--fallback")?;
        if is_gpu(fallback) {
            let message = format!(
                "--fallback {fallback}: it would fail with the device that it stands in for; name a CPU engine"
            );
            return Err(ConfigError::Invalid(message).into());
        }
        let options = EngineOptions { parameters: Vec::new(), ..self.options.clone() };
        let fallback = make(fallback, &options).with_context(|| cannot(fallback))?;
        let stall = Duration::from_micros(self.stall_us);
        let pair = Fallback::new(name, engine, fallback, stall).with_context(|| cannot(name))?;
        Ok(Made { service: Some(pair.service()), engine: Box::new(pair) })
    }

    /// The engine `name` with everything else as when nothing is told.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            options: EngineOptions::default(),
            split: None,
            fallback: None,
            stall_us: 100_000,
            latency_target_us: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn a_parameter_that_an_engine_does_not_know_is_refused() {
        let parameters = vec![("no-such-parameter".to_owned(), "1".to_owned())];
        let options = EngineOptions { parameters, ..EngineOptions::default() };
        for name in NAMES.into_iter().filter(|name| !is_gpu(name)) {
            assert!(matches!(make(name, &options), Err(EngineError::Parameter { .. })), "{name}");
        }
    }

    /// The datapath gives a batch up after `stall_us`; by then the half that is well must have had the keys.
    #[test]
    fn coop_gives_a_half_up_before_the_datapath_gives_the_batch_up() {
        let stall_us = |name, stall_us, parameters: &[(&str, &str)]| {
            let parameters = parameters.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            let options = EngineOptions { parameters: parameters.collect(), ..EngineOptions::default() };
            let spec = EngineSpec { stall_us, options, ..EngineSpec::named(name) };
            let pairs = spec.options().parameters.into_iter().filter(|(name, _)| name == "stall-us");
            pairs.map(|(_, value)| value.parse().unwrap()).collect::<Vec<u64>>()
        };
        assert_eq!(stall_us("coop", 100_000, &[]), [50_000]);
        assert_eq!(stall_us("coop", 4000, &[]), [2000]);
        assert_eq!(stall_us("coop", 100, &[]), [100]);
        assert_eq!(stall_us("coop", 100_000, &[("stall-us", "700")]), [700]);
        assert!(stall_us("bloom", 100_000, &[]).is_empty());
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
