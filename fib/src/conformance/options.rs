//! The suite's arguments from the tests of an engine: how to make it, and how thoroughly to test it.

use crate::{EngineError, EngineWriter};

/// Makes an empty engine under test.
pub type MakeEngine<'a> = &'a dyn Fn() -> Result<Box<dyn EngineWriter>, EngineError>;

/// How thorough the suite is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The seed of every random case.
    pub seed: u64,
    /// Tables of full size and at least twenty times the deltas: minutes instead of seconds.
    pub full: bool,
    /// The engine has a table for IPv4 only: it gets no IPv6 routes, and answers IPv6 keys with "no route".
    pub ipv4_only: bool,
    /// The longest IPv4 prefixes that the engine gets.
    pub len_v4_max: u8,
    /// A quick run divides the number of random deltas by this.
    pub one_delta_in: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 20_240_101, full: false, ipv4_only: false, len_v4_max: 32, one_delta_in: 1 }
    }
}

impl Options {
    /// The defaults, with `full` set when the environment variable `FWD_CONFORMANCE` is `full`.
    #[must_use]
    pub fn from_env() -> Self {
        let full = std::env::var_os("FWD_CONFORMANCE").is_some_and(|value| value == "full");
        Self { full, ..Self::default() }
    }

    /// For an engine with a table for IPv4 only.
    #[must_use]
    pub fn ipv4_only(self) -> Self {
        Self { ipv4_only: true, ..self }
    }

    /// For an engine that holds IPv4 prefixes up to /24 only, and whose updates are slow.
    #[must_use]
    pub fn slow_updates_to_24(self) -> Self {
        Self { len_v4_max: 24, ..self.slow_updates() }
    }

    /// For an engine whose updates are slow: it writes millions of entries for a short prefix, or is two engines.
    #[must_use]
    pub fn slow_updates(self) -> Self {
        Self { one_delta_in: 2, ..self }
    }

    /// For an engine that shares its update code with one that runs every group in full length; mostly it is another kernel.
    #[must_use]
    pub fn lookups_alone(self) -> Self {
        Self { one_delta_in: 8, ..self }
    }

    /// As [`Self::lookups_alone`], with a table for IPv4 only.
    #[must_use]
    pub fn ipv4_lookups_alone(self) -> Self {
        self.ipv4_only().lookups_alone()
    }

    /// `quick` rounds, fewer for an engine that gets fewer deltas, or twenty times as many in a full run.
    pub(super) fn rounds(self, quick: usize) -> usize {
        if self.full { quick * 20 } else { quick.div_ceil(self.one_delta_in) }
    }

    pub(super) fn is_short(self) -> bool {
        !self.full && self.one_delta_in > 2
    }

    pub(super) fn some(self, count: u32) -> u32 {
        if self.is_short() { count / 8 } else { count }
    }

    pub(super) fn cases<T>(self, cases: &[T]) -> impl Iterator<Item = &T> {
        cases.iter().step_by(if self.is_short() { 3 } else { 1 })
    }
}
