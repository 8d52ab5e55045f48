//! The available engines. Each engine crate lists its own; a program joins the lists of the crates that it links.
//!
//! ```text
//! const ENGINES: Registry = Registry::new(&[fib::ENGINES, lpm_cpu::ENGINES]).with_auto("host");
//! ```
//! The registry checks the name, and that this CPU has the instruction set. Engines check their other options.

use crate::oracle::OracleEngine;
use crate::{EngineError, EngineOptions, EngineWriter, Family, Isa};
use std::fmt;

/// Makes an empty engine. Engines that combine others find them in the registry.
pub type Make = fn(&EngineOptions, &Registry) -> Result<Box<dyn EngineWriter>, EngineError>;

/// An engine that can be made.
#[derive(Clone, Copy, Debug)]
pub struct Engine {
    /// The name on the command line and in reports.
    pub name: &'static str,
    /// The instruction sets on which its kernels are compared, plainest first.
    pub isas: &'static [Isa],
    /// The families with a table; routes of another family are refused.
    pub families: &'static [Family],
    /// Whether lookups run on a device, which may be absent, stall or fail.
    pub is_device: bool,
    /// Whether the parameter `fibs` sets its number of FIBs.
    pub has_fibs: bool,
    /// Makes an empty engine.
    pub make: Make,
}

impl Engine {
    /// An engine whose lookups run on the CPU.
    #[must_use]
    pub const fn cpu(name: &'static str, isas: &'static [Isa], make: Make) -> Self {
        Self { name, isas, families: &[Family::V4, Family::V6], is_device: false, has_fibs: false, make }
    }

    /// An engine whose lookups run on a device.
    #[must_use]
    pub const fn device(name: &'static str, make: Make) -> Self {
        Self { is_device: true, ..Self::cpu(name, &[Isa::Scalar], make) }
    }

    /// Restricts the engine to IPv4.
    #[must_use]
    pub const fn ipv4_only(self) -> Self {
        Self { families: &[Family::V4], ..self }
    }

    /// Gives the engine the parameter `fibs`.
    #[must_use]
    pub const fn with_fibs(self) -> Self {
        Self { has_fibs: true, ..self }
    }
}

/// The engine of this crate.
pub const ENGINES: &[Engine] =
    &[Engine::cpu(OracleEngine::NAME, &[Isa::Scalar], |options, _| match options.parameters.first() {
        None => Ok(Box::new(OracleEngine::new(options))),
        Some((name, value)) => Err(EngineError::Parameter {
            parameter: "engine parameter",
            value: format!("{name}={value}"),
            wanted: "engine oracle has no parameters",
        }),
    })];

/// The engines of a program, in the order of messages.
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    lists: &'static [&'static [Engine]],
    auto: Option<&'static str>,
    notice: Option<fn(fmt::Arguments<'_>)>,
}

impl Registry {
    /// The name that selects the engine of [`Self::with_auto`].
    pub const AUTO: &'static str = "auto";

    /// The engines of `lists`.
    #[must_use]
    pub const fn new(lists: &'static [&'static [Engine]]) -> Self {
        Self { lists, auto: None, notice: None }
    }

    /// Makes [`Self::AUTO`] a name of the engine `name`.
    #[must_use]
    pub const fn with_auto(self, name: &'static str) -> Self {
        Self { auto: Some(name), ..self }
    }

    /// Sets a function that reports, in a sentence, an event of an engine in service.
    #[must_use]
    pub const fn with_notice(self, notice: fn(fmt::Arguments<'_>)) -> Self {
        Self { notice: Some(notice), ..self }
    }

    /// The engines.
    pub fn engines(&self) -> impl Iterator<Item = &'static Engine> + use<> {
        self.lists.iter().copied().flatten()
    }

    /// The names of the engines that run on a device.
    #[must_use]
    pub fn device_names(&self) -> Vec<&'static str> {
        self.engines().filter(|engine| engine.is_device).map(|engine| engine.name).collect()
    }

    /// All names that [`Self::find`] accepts.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let auto = self.auto.map(|_| Self::AUTO);
        auto.into_iter().chain(self.engines().map(|engine| engine.name)).collect()
    }

    /// The engine with this name. An unknown name gives [`EngineError::Unknown`], with all names.
    pub fn find(&self, name: &str) -> Result<&'static Engine, EngineError> {
        let wanted = if name == Self::AUTO { self.auto.unwrap_or(name) } else { name };
        let found = self.engines().find(|engine| engine.name == wanted);
        found.ok_or_else(|| EngineError::Unknown { name: name.to_owned(), known: self.names().join(", ") })
    }

    /// Whether `name` is an engine that runs on a device.
    #[must_use]
    pub fn is_device(&self, name: &str) -> bool {
        self.find(name).is_ok_and(|engine| engine.is_device)
    }

    /// An empty engine.
    ///
    /// # Errors
    /// [`EngineError::Isa`] when this CPU lacks the instruction set; as [`Self::find`]; the engine's own errors.
    pub fn make(&self, name: &str, options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
        if let Some(isa) = options.isa {
            isa.checked()?;
        }
        (self.find(name)?.make)(options, self)
    }

    /// The function of [`Self::with_notice`].
    #[must_use]
    pub fn notice(&self) -> Option<fn(fmt::Arguments<'_>)> {
        self.notice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Engine = Engine::device("gpu", |_, _| {
        Err(EngineError::NoDevice { engine: "gpu", device: "a GPU", reason: "none".into() })
    });
    const ALL: Registry = Registry::new(&[ENGINES, &[DEVICE]]).with_auto("oracle");

    #[test]
    fn names_are_found_in_their_order() {
        assert_eq!((ALL.names(), ALL.device_names()), (vec!["auto", "oracle", "gpu"], vec!["gpu"]));
        assert_eq!(ALL.find("auto").unwrap().name, "oracle");
        assert!(ALL.is_device("gpu") && !ALL.is_device("auto") && !ALL.is_device("x"));
        let options = EngineOptions::default();
        assert_eq!(ALL.make("auto", &options).unwrap().info().name, "oracle");
        assert!(matches!(ALL.make("gpu", &options), Err(EngineError::NoDevice { .. })));
        let Err(error) = ALL.make("orakel", &options) else { panic!("made an engine 'orakel'") };
        assert_eq!(error.to_string(), "'orakel' is no engine; known are: auto, oracle, gpu");
        assert!(Registry::new(&[ENGINES]).find("auto").is_err(), "nothing was said of auto");
    }
}
