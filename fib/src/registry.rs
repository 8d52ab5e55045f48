//! Which engines there are. Each engine crate lists its own; a program joins the lists of the crates that it links.
//!
//! ```text
//! const ENGINES: Registry = Registry::new(&[fib::ENGINES, lpm_cpu::ENGINES]).with_auto("host");
//! ```
//! An engine checks its own options; what is checked here is what every engine shares: the name, and that this CPU has the
//! instruction set asked for.

use crate::oracle::OracleEngine;
use crate::{EngineError, EngineOptions, EngineWriter, Family, Isa};
use std::fmt;

/// What makes an empty engine. The registry is for engines that are made of others.
pub type Make = fn(&EngineOptions, &Registry) -> Result<Box<dyn EngineWriter>, EngineError>;

/// One entry: an engine that can be made.
#[derive(Clone, Copy, Debug)]
pub struct Engine {
    /// Its name, on the command line and in reports.
    pub name: &'static str,
    /// The instruction sets that its kernels are compared on, plainest first.
    pub isas: &'static [Isa],
    /// The families that it has a table for; routes of another one are refused.
    pub families: &'static [Family],
    /// Whether a device looks up, so that it may be absent, stall or fail.
    pub is_device: bool,
    /// Whether it holds as many FIBs as its parameter `fibs` says.
    pub has_fibs: bool,
    /// Makes one, empty.
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

    /// For an engine with a table of IPv4 alone.
    #[must_use]
    pub const fn ipv4_only(self) -> Self {
        Self { families: &[Family::V4], ..self }
    }

    /// For an engine with the parameter `fibs`.
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

/// The engines of a program, in the order in which messages list them.
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    lists: &'static [&'static [Engine]],
    auto: Option<&'static str>,
    notice: Option<fn(fmt::Arguments<'_>)>,
}

impl Registry {
    /// The name that stands for the engine of [`Self::with_auto`].
    pub const AUTO: &'static str = "auto";

    /// The engines of `lists`.
    #[must_use]
    pub const fn new(lists: &'static [&'static [Engine]]) -> Self {
        Self { lists, auto: None, notice: None }
    }

    /// With the name [`Self::AUTO`] for the engine `name`.
    #[must_use]
    pub const fn with_auto(self, name: &'static str) -> Self {
        Self { auto: Some(name), ..self }
    }

    /// With a function that is told what happens to an engine in service, in a sentence.
    #[must_use]
    pub const fn with_notice(self, notice: fn(fmt::Arguments<'_>)) -> Self {
        Self { notice: Some(notice), ..self }
    }

    /// The engines.
    pub fn engines(&self) -> impl Iterator<Item = &'static Engine> + use<> {
        self.lists.iter().copied().flatten()
    }

    /// The names of those engines that run on a device.
    #[must_use]
    pub fn device_names(&self) -> Vec<&'static str> {
        self.engines().filter(|engine| engine.is_device).map(|engine| engine.name).collect()
    }

    /// Every name that [`Self::find`] knows.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let auto = self.auto.map(|_| Self::AUTO);
        auto.into_iter().chain(self.engines().map(|engine| engine.name)).collect()
    }

    /// The engine that `name` stands for.
    ///
    /// # Errors
    /// [`EngineError::Unknown`], with the names there are.
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
