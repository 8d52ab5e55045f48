//! Next-hop codes: the value in a table's entries that stands for a next hop, as the writer assigns it.
//!
//! If every next-hop id fits an entry, codes are the ids. Otherwise next hops are numbered ([`HopIndex`]), and lookups load ids by code.

use fib::{Change, EngineError, Key, NextHopId};
use lpm_core::hops::HopIndex;
use std::sync::atomic::AtomicU32;

#[derive(Debug)]
pub(crate) enum HopCodes {
    /// Codes are ids up to this limit.
    Ids(u32),
    Indexed(HopIndex),
}

impl HopCodes {
    /// Indices from 1 to `code_max`, which must fit 16 bits. `what` names the next hops in errors.
    pub(crate) fn indexed(code_max: u32, what: &'static str) -> Self {
        Self::Indexed(HopIndex::new(u16::try_from(code_max).unwrap_or(u16::MAX), what))
    }

    pub(crate) fn acquire(&mut self, ids: &[AtomicU32], next_hop: NextHopId) {
        if let Self::Indexed(index) = self {
            index.acquire(ids, next_hop);
        }
    }

    pub(crate) fn release(&mut self, next_hop: NextHopId) {
        if let Self::Indexed(index) = self
            && let Some(code) = index.index(next_hop)
        {
            index.release(code);
        }
    }

    /// The code of a next hop, or `None` if it has none yet. "No route" has code 0 unless it was taken like a next hop.
    pub(crate) fn find(&self, next_hop: NextHopId) -> Option<u32> {
        match self {
            Self::Ids(_) => Some(next_hop.get()),
            Self::Indexed(index) => {
                index.index(next_hop).map(u32::from).or_else(|| next_hop.is_none().then_some(0))
            }
        }
    }

    /// A next hop without a code gets the code of "no route"; [`Self::check`] then refuses the table.
    pub(crate) fn code(&self, next_hop: NextHopId) -> u32 {
        self.find(next_hop).or_else(|| self.find(NextHopId::NONE)).unwrap_or(0)
    }

    /// A code without a next hop, if one is left. It stays unused.
    pub(crate) fn unused(&self) -> Option<u32> {
        match self {
            Self::Ids(_) => None,
            Self::Indexed(index) => index.unused().map(u32::from),
        }
    }

    pub(crate) fn fit<K: Key>(&self, changes: &[Change<K>]) -> bool {
        let mut new = changes.iter().filter(|change| !change.withdraws()).map(|change| change.new);
        match self {
            Self::Ids(id_max) => new.all(|next_hop| next_hop.get() <= *id_max),
            Self::Indexed(index) => index.fits(changes.len(), new),
        }
    }

    /// Refuses a table in which a next hop found no code.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        match self {
            Self::Ids(_) => Ok(()),
            Self::Indexed(index) => index.check(),
        }
    }

    pub(crate) fn has_limbo(&self) -> bool {
        matches!(self, Self::Indexed(index) if index.has_limbo())
    }

    pub(crate) fn end_grace(&mut self) {
        if let Self::Indexed(index) = self {
            index.end_grace();
        }
    }
}
