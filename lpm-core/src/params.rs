//! Parameters of engines: those common to all CPU engines, and the parsing of `name=value` pairs.

use crate::memory::Placement;
use fib::{CheckedIsa, EngineError, EngineOptions, Isa};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Parameters common to all CPU engines.
#[derive(Clone, Copy, Debug)]
pub struct Common {
    /// The instruction set of the lookup kernels.
    pub isa: CheckedIsa,
    /// The maximum bytes that lookups may read.
    pub table_bytes_max: u64,
    /// The placement of the tables.
    pub placement: Placement,
}

impl Common {
    /// The parameters of `options`, with the instruction set `isa`.
    #[must_use]
    pub const fn new(options: &EngineOptions, isa: CheckedIsa) -> Self {
        let placement = Placement { huge_pages: options.huge_pages, numa_node: options.numa_node };
        Self { isa, table_bytes_max: options.table_bytes_max, placement }
    }

    /// The parameters of `options`, with the instruction set that they name or else the best of this CPU.
    ///
    /// # Errors
    /// [`EngineError::Isa`] for an instruction set that this CPU lacks.
    pub fn with_best_isa(options: &EngineOptions) -> Result<Self, EngineError> {
        Ok(Self::new(options, options.isa.unwrap_or_else(Isa::detect).checked()?))
    }

    /// Refuses tables in which lookups read more than `table_bytes_max` bytes.
    ///
    /// # Errors
    /// [`EngineError::Full`].
    pub const fn check_bytes(&self, used: u64) -> Result<(), EngineError> {
        let limit = self.table_bytes_max;
        if used > limit { Err(EngineError::Full { what: "table bytes", used, limit }) } else { Ok(()) }
    }
}

/// A `name=value` pair.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'a> {
    /// The name as given.
    pub name: &'a str,
    /// The value as given.
    pub value: &'a str,
}

impl<'a> Parameter<'a> {
    /// The pairs of `options`, in their order.
    pub fn all(options: &'a EngineOptions) -> impl Iterator<Item = Self> {
        options.parameters.iter().map(|(name, value)| Self { name, value })
    }

    /// The error that refuses this value of `parameter`.
    #[must_use]
    pub fn refuse(self, parameter: &'static str, wanted: &'static str) -> EngineError {
        EngineError::Parameter { parameter, value: self.value.to_owned(), wanted }
    }

    /// The error that refuses a name unknown to the engine.
    #[must_use]
    pub fn refuse_name(self, wanted: &'static str) -> EngineError {
        let value = format!("{}={}", self.name, self.value);
        EngineError::Parameter { parameter: "engine parameter", value, wanted }
    }

    /// Parses the value of `parameter`, which must be within `range`.
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for any other value.
    pub fn within<T: FromStr + PartialOrd>(
        self,
        parameter: &'static str,
        range: &RangeInclusive<T>,
        wanted: &'static str,
    ) -> Result<T, EngineError> {
        let value = self.value.parse().ok().filter(|value| range.contains(value));
        value.ok_or_else(|| self.refuse(parameter, wanted))
    }

    /// As [`Self::within`]; `auto` gives `None`.
    pub fn auto_or_within<T: FromStr + PartialOrd>(
        self,
        parameter: &'static str,
        range: &RangeInclusive<T>,
        wanted: &'static str,
    ) -> Result<Option<T>, EngineError> {
        if self.value == "auto" { Ok(None) } else { self.within(parameter, range, wanted).map(Some) }
    }
}
