//! The `inf` of a leaf: a next hop (GAMT_T), or an entry of the next-hop table on the host (GAMT_S). In GAMT_S each route
//! has its own entry, and a new next hop is a store to that entry; the device is not written (section 3.3). That is only
//! correct for keys that still belong to the route. A lookup may have read the entry's number from a leaf that a longer
//! route has taken over since; if the entry changed then, the lookup would return a next hop that its key had in no
//! generation. So an entry records the update in which it last lost keys, and changes in place only when no lookup from
//! before that update is in flight; until then a changed route moves to a new entry, written to the device. An entry without
//! a route keeps its last next hop until no lookup in flight can have its number.

use super::code::{INF_MAX, inf, leaf};
use super::options::NextHops;
use fib::loads::Loads;
use fib::{EngineError, NextHopId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

const CHUNK: usize = 1 << 14;

/// The published next-hop table. It only grows, and never moves.
#[derive(Debug)]
pub(super) struct NextHopEntries {
    chunks: Box<[OnceLock<Box<[AtomicU32]>>]>,
}

impl NextHopEntries {
    fn new() -> Self {
        Self { chunks: (0..(INF_MAX as usize + 1) / CHUNK).map(|_| OnceLock::new()).collect() }
    }

    fn store(&self, entry: u32, next_hop: u32) {
        let entry = entry as usize;
        let chunk =
            self.chunks[entry / CHUNK].get_or_init(|| (0..CHUNK).map(|_| AtomicU32::new(0)).collect());
        chunk[entry % CHUNK].store(next_hop, Ordering::Release);
        #[cfg(test)]
        fib::stores::report(fib::stores::Event::Stored(fib::loads::Place::from_ref(&chunk[entry % CHUNK])));
    }

    /// The next hop of an entry; `NONE` if it was never set.
    #[inline(always)]
    pub(super) fn get<L: Loads>(&self, entry: u32, loads: &mut L) -> Result<NextHopId, L::Stop> {
        let entry = entry as usize;
        match self.chunks.get(entry / CHUNK).and_then(OnceLock::get) {
            Some(chunk) => loads.word(&chunk[entry % CHUNK]).map(NextHopId::from_answer),
            None => Ok(NextHopId::NONE),
        }
    }

    fn bytes(&self) -> u64 {
        let chunks = self.chunks.iter().filter(|chunk| chunk.get().is_some()).count();
        (chunks * CHUNK * 4 + size_of_val(&*self.chunks)) as u64
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Changed {
    pub(super) key: u64,
    pub(super) len: u8,
    pub(super) entry: u32,
}

#[derive(Debug)]
pub(super) struct HopEntries {
    /// Next hop of each entry, 0 without a route; entry 0 is "no route".
    next_hops: Vec<u32>,
    /// The update in which each entry last lost keys.
    lost: Vec<u64>,
    /// Any entry may have lost keys up to this update.
    all_lost: u64,
    free: Vec<u32>,
    /// Entries without a route, with the update that withdrew it.
    retired: VecDeque<(u64, u32)>,
    changed: Vec<Changed>,
    shared: Arc<NextHopEntries>,
}

#[derive(Debug)]
pub(super) enum Hops {
    /// Ids of next hops: GAMT_T.
    Together,
    /// Numbers of entries: GAMT_S.
    Apart(HopEntries),
}

impl Hops {
    pub(super) fn new(next_hops: NextHops) -> Self {
        match next_hops {
            NextHops::Together => Self::Together,
            NextHops::Apart => Self::Apart(HopEntries {
                next_hops: vec![0],
                lost: vec![0],
                all_lost: 0,
                free: Vec::new(),
                retired: VecDeque::new(),
                changed: Vec::new(),
                shared: Arc::new(NextHopEntries::new()),
            }),
        }
    }

    pub(super) fn next_hop(&self, code: u32) -> NextHopId {
        NextHopId::from_answer(match self {
            Self::Together => inf(code),
            Self::Apart(entries) => entries.next_hops[inf(code) as usize],
        })
    }

    /// The code for the leaves of a new route; [`EngineError::Full`] when all entries are in use.
    pub(super) fn code(&mut self, next_hop: NextHopId) -> Result<u32, EngineError> {
        match self {
            Self::Together => Ok(leaf(next_hop.get())),
            Self::Apart(entries) => entries.room_for(1).map(|()| leaf(entries.add(next_hop.get()))),
        }
    }

    pub(super) fn room_for(&self, routes: usize) -> Result<(), EngineError> {
        match self {
            Self::Together => Ok(()),
            Self::Apart(entries) => entries.room_for(routes),
        }
    }

    /// A longer route takes keys from the route with leaf code `code`.
    #[inline]
    pub(super) fn lose(&mut self, code: u32, update: u64) {
        if let Self::Apart(entries) = self {
            entries.lost[inf(code) as usize] = update;
        }
    }

    pub(super) fn lose_all(&mut self, update: u64) {
        if let Self::Apart(entries) = self {
            entries.all_lost = update;
        }
    }

    pub(super) fn retire(&mut self, code: u32, update: u64) {
        if let Self::Apart(entries) = self {
            entries.retire(inf(code), update);
        }
    }

    pub(super) fn reclaim(&mut self, update: u64) {
        if let Self::Apart(entries) = self {
            while let Some((_, entry)) = entries.retired.pop_front_if(|(retired, _)| *retired <= update) {
                entries.free.push(entry);
            }
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Together => 0,
            Self::Apart(entries) => {
                (entries.next_hops.capacity() * 4 + entries.lost.capacity() * 8) as u64
                    + entries.shared.bytes()
            }
        }
    }
}

impl HopEntries {
    pub(super) fn shared(&self) -> Arc<NextHopEntries> {
        Arc::clone(&self.shared)
    }

    /// Settling may move every changed route to one more entry.
    fn room_for(&self, routes: usize) -> Result<(), EngineError> {
        let used = self.next_hops.len() - self.free.len() + self.changed.len() + routes;
        let limit = INF_MAX as usize;
        if used > limit {
            return Err(EngineError::Full {
                what: "next-hop entries",
                used: used as u64,
                limit: limit as u64,
            });
        }
        Ok(())
    }

    /// A new entry, published at once: no lookup has its number.
    fn add(&mut self, next_hop: u32) -> u32 {
        let entry = if let Some(entry) = self.free.pop() {
            self.next_hops[entry as usize] = next_hop;
            entry
        } else {
            self.next_hops.push(next_hop);
            self.lost.push(0);
            u32::try_from(self.next_hops.len() - 1).unwrap_or(INF_MAX)
        };
        self.lost[entry as usize] = 0;
        self.shared.store(entry, next_hop);
        entry
    }

    fn retire(&mut self, entry: u32, update: u64) {
        self.next_hops[entry as usize] = 0;
        self.retired.push_back((update, entry));
    }

    /// Sets a route's next hop, to be published after [`Self::settle`]. Fails as [`Hops::code`].
    pub(super) fn change(&mut self, changed: Changed, next_hop: NextHopId) -> Result<(), EngineError> {
        self.room_for(1)?;
        self.next_hops[changed.entry as usize] = next_hop.get();
        self.changed.push(changed);
        Ok(())
    }

    /// Moves changed routes whose entry may not change in place to new entries, and returns them with their new codes. The
    /// others are left for `publish`. Lookups from before the end of update `reclaimed` are not in flight.
    pub(super) fn settle(&mut self, reclaimed: u64, update: u64) -> Vec<(Changed, u32)> {
        let mut moved = Vec::new();
        let mut changed = std::mem::take(&mut self.changed);
        changed.retain(|change| {
            let at = change.entry as usize;
            let next_hop = self.next_hops[at];
            if next_hop == 0 {
                return false; // withdrawn or moved in the meantime
            }
            if self.lost[at].max(self.all_lost) <= reclaimed {
                return true;
            }
            let entry = self.add(next_hop);
            self.retire(change.entry, update);
            moved.push((*change, leaf(entry)));
            false
        });
        self.changed = changed;
        moved
    }

    pub(super) fn publish(&mut self) -> u64 {
        let changed = std::mem::take(&mut self.changed);
        for change in &changed {
            let next_hop = self.next_hops[change.entry as usize];
            if next_hop != 0 {
                self.shared.store(change.entry, next_hop);
            }
        }
        changed.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(value: u32) -> NextHopId {
        NextHopId::new(value).unwrap()
    }

    fn get(shared: &NextHopEntries, entry: u32) -> NextHopId {
        let Ok(next_hop) = shared.get(entry, &mut fib::loads::Plain);
        next_hop
    }

    fn apart() -> HopEntries {
        let Hops::Apart(entries) = Hops::new(NextHops::Apart) else { panic!("asked for entries") };
        entries
    }

    #[test]
    fn a_route_that_lost_no_keys_changes_in_place_when_the_batch_is_published() {
        let mut entries = apart();
        let (shared, entry) = (entries.shared(), entries.add(5));
        entries.change(Changed { key: 0, len: 8, entry }, id(6)).unwrap();
        assert_eq!(get(&shared, entry), id(5), "the delta may still be taken back");
        assert!(entries.settle(0, 1).is_empty());
        assert_eq!(entries.publish(), 1);
        assert_eq!(get(&shared, entry), id(6));
        assert_eq!(get(&shared, INF_MAX), NextHopId::NONE);
    }

    #[test]
    fn a_route_that_lost_keys_moves_until_no_lookup_has_its_entry() {
        let mut hops = Hops::new(NextHops::Apart);
        let code = hops.code(id(5)).unwrap();
        hops.lose(code, 3);
        let Hops::Apart(entries) = &mut hops else { panic!("asked for entries") };
        let (shared, changed) = (entries.shared(), Changed { key: 0, len: 8, entry: inf(code) });
        entries.change(changed, id(6)).unwrap();
        let moved = entries.settle(2, 4);
        let [(_, new)] = moved[..] else { panic!("{moved:?}") };
        assert_eq!(entries.publish(), 0);
        assert_eq!((get(&shared, inf(code)), get(&shared, inf(new))), (id(5), id(6)));
        assert_eq!(hops.next_hop(new), id(6));
        // Update 4 must be over for all lookups before the old entry is used again.
        hops.reclaim(3);
        assert_ne!(hops.code(id(7)).unwrap(), code);
        hops.reclaim(4);
        assert_eq!(hops.code(id(7)).unwrap(), code);
        assert_eq!(get(&shared, inf(code)), id(7));
    }

    #[test]
    fn together_the_leaf_is_the_next_hop() {
        let mut hops = Hops::new(NextHops::Together);
        let code = hops.code(id(9)).unwrap();
        assert_eq!((inf(code), hops.next_hop(code), hops.bytes()), (9, id(9), 0));
    }
}
