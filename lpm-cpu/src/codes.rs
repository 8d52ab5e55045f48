//! What stands for a next hop in the entries of a table: its code, for the writer.
//!
//! Where every next-hop id fits an entry, codes are the ids; else next hops are numbered ([`HopIndex`]), and a lookup ends with one more
//! load, from an array of ids by code.

use fib::{Change, EngineError, Key, NextHopId};
use lpm_core::hops::HopIndex;
use std::sync::atomic::AtomicU32;

/// The code of each next hop.
#[derive(Debug)]
pub(crate) enum HopCodes {
    /// Codes are ids up to this one.
    Ids(u32),
    /// Codes are indices.
    Indexed(HopIndex),
}

impl HopCodes {
    /// Indices from 1 to `code_max`, which 16 bits hold. `what` names the next hops in a refusal.
    pub(crate) fn indexed(code_max: u32, what: &'static str) -> Self {
        Self::Indexed(HopIndex::new(u16::try_from(code_max).unwrap_or(u16::MAX), what))
    }

    /// One route more has `next_hop`. `ids` is what lookups read.
    pub(crate) fn take(&mut self, ids: &[AtomicU32], next_hop: NextHopId) {
        if let Self::Indexed(index) = self {
            index.take(ids, next_hop);
        }
    }

    /// One route less has `next_hop`.
    pub(crate) fn release(&mut self, next_hop: NextHopId) {
        if let Self::Indexed(index) = self
            && let Some(code) = index.index(next_hop)
        {
            index.release(code);
        }
    }

    /// The code of a next hop; `None` for one that has none yet. That of "no route" is 0, unless it was taken as next hops are.
    pub(crate) fn find(&self, next_hop: NextHopId) -> Option<u32> {
        match self {
            Self::Ids(_) => Some(next_hop.get()),
            Self::Indexed(index) => {
                index.index(next_hop).map(u32::from).or_else(|| next_hop.is_none().then_some(0))
            }
        }
    }

    /// The code of "no route", or of a next hop that a route has. A next hop that found no code has that of "no route":
    /// [`Self::check`] then refuses the table.
    pub(crate) fn code(&self, next_hop: NextHopId) -> u32 {
        self.find(next_hop).or_else(|| self.find(NextHopId::NONE)).unwrap_or(0)
    }

    /// A code that no next hop has, if there is one. It stays unused.
    pub(crate) fn unused(&self) -> Option<u32> {
        match self {
            Self::Ids(_) => None,
            Self::Indexed(index) => index.unused().map(u32::from),
        }
    }

    /// Whether the next hops that `changes` bring can have codes.
    pub(crate) fn fit<K: Key>(&self, changes: &[Change<K>]) -> bool {
        let mut new = changes.iter().filter(|change| !change.withdraws()).map(|change| change.new);
        match self {
            Self::Ids(id_max) => new.all(|next_hop| next_hop.get() <= *id_max),
            Self::Indexed(index) => index.fits(changes.len(), new),
        }
    }

    /// Whether every next hop that was to have a code has one.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        match self {
            Self::Ids(_) => Ok(()),
            Self::Indexed(index) => index.check(),
        }
    }

    /// Whether a code waits for a grace period.
    pub(crate) fn has_limbo(&self) -> bool {
        matches!(self, Self::Indexed(index) if index.has_limbo())
    }

    /// A grace period is over.
    pub(crate) fn end_grace(&mut self) {
        if let Self::Indexed(index) = self {
            index.end_grace();
        }
    }
}
