//! Whose route of a prefix is in the RIB.
//!
//! Routes that follow from the addresses of ports are preferred to those added over the control socket, and these to all others. The
//! route files with their updates, and each feed, come after them in the order of the command line.
//!
//! The RIB holds the routes of the files; what others say lies beside it. So a file's route is kept here only when another source
//! has the same prefix, and a forwarder without other sources has two empty tables.

use fib::{IpPrefix, NextHopId};
use rustc_hash::FxHashMap;

/// A source that the RIB does not hold by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The addresses of ports.
    Own,
    /// The control socket.
    Ctl,
    /// The route files and their updates, of prefixes that another source has, too.
    Files,
}

/// What an entry was before the changes since the last commit.
#[derive(Debug)]
struct Undo {
    origin: Origin,
    prefix: IpPrefix,
    before: NextHopId,
}

/// The routes of ports' addresses and of the control socket, and those routes of files that share a prefix with another source.
#[derive(Debug, Default)]
pub(super) struct Origins {
    own: FxHashMap<IpPrefix, NextHopId>,
    ctl: FxHashMap<IpPrefix, NextHopId>,
    files: FxHashMap<IpPrefix, NextHopId>,
    undo: Vec<Undo>,
}

impl Origins {
    fn table(&mut self, origin: Origin) -> &mut FxHashMap<IpPrefix, NextHopId> {
        match origin {
            Origin::Own => &mut self.own,
            Origin::Ctl => &mut self.ctl,
            Origin::Files => &mut self.files,
        }
    }

    /// Sets a route, or removes it for [`NextHopId::NONE`]. Returns the one before.
    pub(super) fn replace(&mut self, origin: Origin, prefix: IpPrefix, id: NextHopId) -> NextHopId {
        let table = self.table(origin);
        let before = if id.is_none() { table.remove(&prefix) } else { table.insert(prefix, id) };
        before.unwrap_or_default()
    }

    /// As [`Self::replace`], but [`Self::roll_back`] takes it back.
    pub(super) fn set(&mut self, origin: Origin, prefix: IpPrefix, id: NextHopId) -> NextHopId {
        let before = self.replace(origin, prefix, id);
        self.undo.push(Undo { origin, prefix, before });
        before
    }

    /// The control socket's route of a prefix.
    pub(super) fn ctl(&self, prefix: IpPrefix) -> NextHopId {
        self.ctl.get(&prefix).copied().unwrap_or_default()
    }

    /// Whether this prefix follows from the address of a port.
    pub(super) fn has_own(&self, prefix: IpPrefix) -> bool {
        self.own.contains_key(&prefix)
    }

    /// The prefixes that follow from the addresses of ports.
    pub(super) fn own(&self) -> impl Iterator<Item = IpPrefix> {
        self.own.keys().copied()
    }

    /// The file's route of a prefix that another source has, too.
    pub(super) fn file(&self, prefix: IpPrefix) -> NextHopId {
        self.files.get(&prefix).copied().unwrap_or_default()
    }

    /// The route of a prefix that is preferred to those of files and feeds.
    pub(super) fn first(&self, prefix: IpPrefix) -> NextHopId {
        self.own.get(&prefix).or_else(|| self.ctl.get(&prefix)).copied().unwrap_or_default()
    }

    /// The next hops of all routes here.
    pub(super) fn ids(&self) -> impl Iterator<Item = NextHopId> {
        [&self.own, &self.ctl, &self.files].into_iter().flat_map(FxHashMap::values).copied()
    }

    /// How many routes the control socket has.
    pub(super) fn ctl_len(&self) -> usize {
        self.ctl.len()
    }

    /// The changes since the last commit are in service.
    pub(super) fn settle(&mut self) {
        self.undo.clear();
    }

    /// Takes the changes since the last commit back.
    pub(super) fn roll_back(&mut self) {
        while let Some(Undo { origin, prefix, before }) = self.undo.pop() {
            self.replace(origin, prefix, before);
        }
    }
}
