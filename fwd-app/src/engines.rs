//! The registry of engines, and their construction from options, with a fallback.

use crate::error::ConfigError;
use crate::notice::warn;
use anyhow::Context as _;
use fib::{EngineOptions, EngineWriter, Registry};
use lpm_core::each_fib::each_fib;
use lpm_core::pair::fallback::Fallback;
use lpm_core::pair::{Service, Why};
use lpm_cpu::host;
use lpm_phi::coop::CoopEngine;
use std::sync::Arc;
use std::time::Duration;

/// The engine of `--engine auto`. `host` was the fastest engine of both families with each instruction set ([`AUTO_REASON`]).
pub(crate) const AUTO: &str = host::NAME;

/// Reason for [`AUTO`] in reports; a test compares it with the file.
pub(crate) const AUTO_REASON: &str = "of the engines with IPv4 and IPv6, the most lookups a second for addresses within full tables, with each instruction set (lpm-bench/results/engines-sapphire-rapids.json)";

pub(crate) const ENGINES: Registry =
    Registry::new(&[fib::ENGINES, lpm_cpu::ENGINES, lpm_phi::ENGINES, lpm_gpu::ENGINES])
        .with_auto(AUTO)
        .with_notice(|text| warn(text));

/// Upper limit of `--stall-us`, microseconds.
pub(crate) const STALL_US_MAX: u64 = 60_000_000;

pub(crate) struct Made {
    /// The engine, empty; with a fallback, the pair of both.
    pub(crate) engine: Box<dyn EngineWriter>,
    pub(crate) service: Option<Arc<Service>>,
    /// Whether it is one FIB of an engine shared by several VRFs; the memory reported is the whole engine's.
    pub(crate) is_shared: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct EngineSpec {
    pub(crate) name: String,
    /// Instruction set, table memory and node, also for the fallback; and the engine's parameters.
    pub(crate) options: EngineOptions,
    /// Share of each batch for the first engine of `coop`.
    pub(crate) split: Option<f64>,
    pub(crate) fallback: Option<String>,
    /// Longest time for a batch, microseconds.
    pub(crate) stall_us: u64,
    /// Latency target for batches of a GPU engine, microseconds.
    pub(crate) latency_target_us: Option<u64>,
}

impl EngineSpec {
    /// Whether the engine uses a GPU, and so needs large batches: `coop` may.
    pub(crate) fn drives_gpu(&self) -> bool {
        if self.name != CoopEngine::NAME {
            return ENGINES.is_device(&self.name);
        }
        let half = |which: &str| {
            self.options.parameters.iter().rev().find(|(name, _)| name == which).map(|(_, value)| value)
        };
        let first =
            half("first").map_or_else(|| lpm_gpu::cu::probe().is_ok(), |name| ENGINES.is_device(name));
        first || half("second").is_some_and(|name| ENGINES.is_device(name))
    }

    /// Replaces the engine of `spec` by `name` with `parameters`. Options specific to one engine are dropped; the fallback is kept for a device.
    ///
    /// # Errors
    /// [`EngineError::Unknown`](fib::EngineError) for an unknown name.
    pub(crate) fn instead_of(
        spec: &Self,
        name: String,
        parameters: Vec<(String, String)>,
    ) -> anyhow::Result<Self> {
        let engine = ENGINES.find(&name)?;
        Ok(Self {
            options: EngineOptions { parameters, ..spec.options.clone() },
            split: None,
            fallback: spec.fallback.clone().filter(|_| engine.is_device),
            stall_us: spec.stall_us,
            latency_target_us: spec.latency_target_us.filter(|_| engine.is_device),
            name,
        })
    }

    pub(crate) fn auto_reason(&self) -> Option<&'static str> {
        (self.name == Registry::AUTO).then_some(AUTO_REASON)
    }

    fn options(&self) -> EngineOptions {
        let mut options = EngineOptions { stall_us: Some(self.stall_us), ..self.options.clone() };
        let parameters = &mut options.parameters;
        parameters.extend(self.latency_target_us.map(|us| ("latency-target-us".to_owned(), us.to_string())));
        parameters.extend(self.split.map(|split| ("split".to_owned(), split.to_string())));
        if self.name == CoopEngine::NAME && !parameters.iter().any(|(name, _)| name == "stall-us") {
            // A half must time out, and the other look up its keys, before the whole batch times out.
            parameters.push(("stall-us".to_owned(), (self.stall_us / 2).max(100).to_string()));
        }
        options
    }

    /// # Errors
    /// As [`Registry::make`]; [`ConfigError::Invalid`] for options that do not fit the engine. With a fallback, a missing device is no error.
    pub(crate) fn make_with_fallback(&self) -> anyhow::Result<Made> {
        let engine = ENGINES.find(&self.name)?;
        let name = engine.name;
        if self.latency_target_us.is_some() && !engine.is_device {
            let gpus = ENGINES.device_names().join(", ");
            let message = format!("--latency-target-us is for {gpus}; {name} looks up synchronously");
            return Err(ConfigError::Invalid(message).into());
        }
        if self.split.is_some() && name != CoopEngine::NAME {
            let message = format!("--split is for {}; {name} is one engine", CoopEngine::NAME);
            return Err(ConfigError::Invalid(message).into());
        }
        let cannot = |name: &str| format!("cannot make engine {name}");
        let engine = ENGINES.make(name, &self.options());
        let Some(fallback) = &self.fallback else {
            return Ok(Made {
                engine: engine.with_context(|| cannot(name))?,
                service: None,
                is_shared: false,
            });
        };
        let fallback = ENGINES.find(fallback).context("--fallback")?;
        if fallback.is_device {
            let message = format!(
                "--fallback {}: an engine on a device is no fallback for a device; name a CPU engine",
                fallback.name
            );
            return Err(ConfigError::Invalid(message).into());
        }
        let options = EngineOptions { parameters: Vec::new(), ..self.options.clone() };
        let fallback = ENGINES.make(fallback.name, &options).with_context(|| cannot(fallback.name))?;
        let stall = Duration::from_micros(self.stall_us);
        let names = [name, fallback.info().name];
        let listener = Box::new(move |_: &str, why: &Why| {
            let [primary, fallback] = names;
            // May run on an lcore, which does not wait for stderr (see `notice`).
            warn(format_args!("engine {primary} is out of service, {fallback} answers from now on: {why}"));
        });
        let pair = Fallback::new(name, engine, fallback, stall, listener).with_context(|| cannot(name))?;
        Ok(Made { service: Some(pair.service()), engine: Box::new(pair), is_shared: false })
    }

    /// Whether a single engine holds the FIBs of all `vrfs` VRFs.
    ///
    /// # Errors
    /// [`EngineError::Unknown`](fib::EngineError).
    pub(crate) fn is_shared_by(&self, vrfs: usize) -> anyhow::Result<bool> {
        Ok(vrfs > 1 && self.fallback.is_none() && ENGINES.find(&self.name)?.has_fibs)
    }

    /// One engine per VRF, with its fallback. An engine with several FIBs is made once and split.
    ///
    /// # Errors
    /// As [`Self::make_with_fallback`].
    pub(crate) fn make_for_vrfs(&self, vrfs: usize) -> anyhow::Result<Vec<Made>> {
        if !self.is_shared_by(vrfs)? {
            return (0..vrfs).map(|_| self.make_with_fallback()).collect();
        }
        let mut spec = self.clone();
        if !spec.options.parameters.iter().any(|(name, _)| name == "fibs") {
            spec.options.parameters.push(("fibs".to_owned(), vrfs.to_string()));
        }
        let engines = each_fib(spec.make_with_fallback()?.engine);
        if engines.len() < vrfs {
            let message = format!("--engine-arg fibs={}: there are {vrfs} VRFs", engines.len());
            return Err(ConfigError::Invalid(message).into());
        }
        Ok(engines
            .into_iter()
            .take(vrfs)
            .map(|engine| Made { engine, service: None, is_shared: true })
            .collect())
    }

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
    use fib::{EngineError, Family, Isa};

    fn cpu_names() -> impl Iterator<Item = &'static str> {
        ENGINES.names().into_iter().filter(|name| !ENGINES.is_device(name))
    }

    #[test]
    fn every_name_makes_its_engine() {
        let options = EngineOptions { isa: Some(Isa::Scalar), ..EngineOptions::default() };
        for name in cpu_names() {
            let engine = ENGINES.make(name, &options).unwrap();
            assert_eq!(engine.info().name, if name == "auto" { AUTO } else { name });
            assert_eq!(engine.info().isa, Isa::Scalar);
            let families = Family::ALL.into_iter().filter(|family| engine.info().has_family(*family));
            assert!(families.eq(ENGINES.find(name).unwrap().families.iter().copied()), "{name}");
        }
    }

    #[test]
    fn auto_is_the_fastest_engine_of_the_measurement() {
        let path = AUTO_REASON.rsplit_once('(').unwrap().1.trim_end_matches(')');
        let text = std::fs::read_to_string(format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let measured: serde_json::Value = serde_json::from_str(&text).unwrap();
        let rows: Vec<_> =
            measured["rows"].as_array().unwrap().iter().filter(|row| row["traffic"] != "random").collect();
        let settings = |row: &serde_json::Value| ["isa", "family", "traffic"].map(|key| row[key].clone());
        let ours: Vec<_> = rows.iter().filter(|row| row["engine"] == AUTO).collect();
        assert_eq!(ours.len(), 12, "three instruction sets, two families, two kinds of traffic");
        for our in ours {
            let has_both = |name: &str| ENGINES.find(name).unwrap().families.len() == 2;
            let others = rows.iter().filter(|row| row["engine"] != AUTO && settings(row) == settings(our));
            for row in others.filter(|row| has_both(row["engine"].as_str().unwrap())) {
                let rates = [our, row].map(|row| row["mlps_median"].as_f64().unwrap());
                assert!(rates[0] > rates[1], "{our} {row}");
            }
        }
        for name in ["bloom", "miht", "mamt"] {
            assert!(rows.iter().any(|row| row["engine"] == name), "{name} was not measured");
        }
    }

    #[test]
    fn a_parameter_that_an_engine_does_not_know_is_refused() {
        let options = EngineOptions::with_parameters(&[("no-such-parameter", "1")]);
        for name in cpu_names() {
            assert!(matches!(ENGINES.make(name, &options), Err(EngineError::Parameter { .. })), "{name}");
        }
    }

    /// The datapath gives up a batch after `stall_us`; before that the healthy half must have received the keys.
    #[test]
    fn coop_gives_a_half_up_before_the_datapath_gives_the_batch_up() {
        let stall_us = |name, stall_us, parameters: &[(&str, &str)]| {
            let spec = EngineSpec {
                stall_us,
                options: EngineOptions::with_parameters(parameters),
                ..EngineSpec::named(name)
            };
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
    fn messages_list_the_engines_in_this_order() {
        let names = "auto, oracle, host, sail-b, sail-u, sail-l, sail-m, linear, bloom, bloom-baseline, bloom-naive, miht, coop, gamt, gale, sail-gpu, mamt";
        assert_eq!(ENGINES.names().join(", "), names);
    }

    #[test]
    fn an_instruction_set_that_is_not_there_is_refused_by_every_engine() {
        let Some(isa) = Isa::ALL.into_iter().find(|isa| !isa.is_available()) else {
            eprintln!("SKIPPED: this CPU has every instruction set");
            return;
        };
        for name in ENGINES.names() {
            let options = EngineOptions { isa: Some(isa), ..EngineOptions::default() };
            assert!(matches!(ENGINES.make(name, &options), Err(EngineError::Isa(_))), "{name}");
        }
    }
}
