//! Parameters of engines: those that every engine on a CPU has, and how `name=value` pairs of the command line are read.

use crate::memory::Placement;
use fib::{CheckedIsa, EngineError, EngineOptions, Isa};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// What every engine on a CPU is told.
#[derive(Clone, Copy, Debug)]
pub struct Common {
    /// The instruction set of the lookup kernels.
    pub isa: CheckedIsa,
    /// Bytes that lookups may read at most.
    pub table_bytes_max: u64,
    /// Where the tables lie.
    pub placement: Placement,
}

impl Common {
    /// Those of `options`, with the instruction set `isa`.
    #[must_use]
    pub const fn new(options: &EngineOptions, isa: CheckedIsa) -> Self {
        let placement = Placement { huge_pages: options.huge_pages, numa_node: options.numa_node };
        Self { isa, table_bytes_max: options.table_bytes_max, placement }
    }

    /// Those of `options`, with the instruction set that they name, or else the best one there is.
    ///
    /// # Errors
    /// [`EngineError::Isa`] for an instruction set that this CPU lacks.
    pub fn with_best_isa(options: &EngineOptions) -> Result<Self, EngineError> {
        Ok(Self::new(options, options.isa.unwrap_or_else(Isa::detect).checked()?))
    }

    /// Refuses tables of which lookups read `used` bytes, if that is more than they may.
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
    /// The name that was given.
    pub name: &'a str,
    /// The value that was given.
    pub value: &'a str,
}

impl<'a> Parameter<'a> {
    /// The pairs of `options`, in their order.
    pub fn all(options: &'a EngineOptions) -> impl Iterator<Item = Self> {
        options.parameters.iter().map(|(name, value)| Self { name, value })
    }

    /// The refusal of this value of `parameter`.
    #[must_use]
    pub fn refuse(self, parameter: &'static str, wanted: &'static str) -> EngineError {
        EngineError::Parameter { parameter, value: self.value.to_owned(), wanted }
    }

    /// The refusal of a name that the engine does not know.
    #[must_use]
    pub fn refuse_name(self, wanted: &'static str) -> EngineError {
        let value = format!("{}={}", self.name, self.value);
        EngineError::Parameter { parameter: "engine parameter", value, wanted }
    }

    /// The value of `parameter`, within `range`.
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for one that is not.
    pub fn within<T: FromStr + PartialOrd>(
        self,
        parameter: &'static str,
        range: &RangeInclusive<T>,
        wanted: &'static str,
    ) -> Result<T, EngineError> {
        let value = self.value.parse().ok().filter(|value| range.contains(value));
        value.ok_or_else(|| self.refuse(parameter, wanted))
    }

    /// As [`Self::within`], and `None` for the word `auto`.
    ///
    /// # Errors
    /// As [`Self::within`].
    pub fn auto_or_within<T: FromStr + PartialOrd>(
        self,
        parameter: &'static str,
        range: &RangeInclusive<T>,
        wanted: &'static str,
    ) -> Result<Option<T>, EngineError> {
        if self.value == "auto" { Ok(None) } else { self.within(parameter, range, wanted).map(Some) }
    }
}
