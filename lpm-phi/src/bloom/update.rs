//! Applies a delta in place while lookups run, for either family.
//!
//! A table is a stack of *groups* of prefix lengths: group 0 is a direct lookup array, each further group a filter and a hash table over
//! prefixes expanded to its longest length. A lookup reads group 0 first and keeps its answer, then tries the other groups from the
//! deepest up, and returns the first match.
//!
//! **Every answer belongs to a generation that was current during the lookup.** Each expanded entry moves from its old to its final value
//! in one store, since the delta's RIB is in the final state and a group's changes are taken longest prefix first. Between groups the
//! order is:
//!
//! 1. additions and changes, deepest group first. Lookups that missed an added entry must end before the wider route that they fall back
//!    to changes: [`Grace`] records where entries were added since the last grace period, by earlier deltas too, and a grace period
//!    precedes the first store to a shallower hashed group there;
//! 2. a grace period, after which every lookup in flight has read the new group 0;
//! 3. deletions, shallowest group first, and within a group the shortest prefix first: the entries that a deletion uncovers are final.
//!
//! Stores to group 0 need no grace period: a lookup reads it first, so a lookup that reads the new value finds the entries added below
//! before.

use super::hash::H2_HALVES;
use crate::cpe::expand::entries;
use fib::{Change, Key, NextHopId, Prefix, RibTable};
use std::ops::RangeInclusive;

/// The limited resource in errors: next hops with an index in hash-table slots.
pub(crate) const HASHED_HOPS: &str = "distinct next hops behind hashed prefixes";

/// A table that can be changed while readers use it.
pub(crate) trait Store<K: Key> {
    type Place: Copy;

    fn groups(&self) -> &[RangeInclusive<u8>];

    /// Assigns the entries of group 0 that `prefix` covers and whose owners' lengths are in `from` to `to`, a length and a next hop.
    fn set_direct(&mut self, prefix: Prefix<K>, from: RangeInclusive<u8>, to: (u8, NextHopId));

    /// The place of `entry` in a hashed group, and the length of its owner if it exists.
    fn find(&self, group: usize, entry: Prefix<K>) -> (Self::Place, Option<u8>);

    /// Assigns `entry`, whose place was just found, to the owner `to`. Returns whether it is new.
    fn set(&mut self, group: usize, entry: Prefix<K>, place: Self::Place, to: (u8, NextHopId)) -> bool;

    fn remove(&mut self, group: usize, entry: Prefix<K>);

    /// Whether the routes of `group` are stored unexpanded in a separate table.
    fn is_deep(&self, _group: usize) -> bool {
        false
    }

    /// Sets a route of a deep group; `NONE` removes it. Returns whether the number of routes changed.
    fn set_deep(&mut self, _prefix: Prefix<K>, _next_hop: NextHopId) -> bool {
        false
    }

    /// For entries that no longer prefix of the group owns. Returns whether entries were added, which never happens in group 0.
    fn announce(&mut self, group: usize, prefix: Prefix<K>, next_hop: NextHopId) -> bool {
        let to = (prefix.len(), next_hop);
        if group == 0 {
            self.set_direct(prefix, 0..=prefix.len(), to);
            return false;
        }
        if self.is_deep(group) {
            return self.set_deep(prefix, next_hop);
        }
        let mut added = false;
        for entry in entries(prefix, *self.groups()[group].end()) {
            let (place, owner) = self.find(group, entry);
            if owner.is_none_or(|owner| owner <= prefix.len()) {
                added |= self.set(group, entry, place, to);
            }
        }
        added
    }

    /// Assigns the entries of `prefix` to `heir`. Without an heir they are added to `deletions`; group 0 always has one.
    fn withdraw(
        &mut self,
        group: usize,
        prefix: Prefix<K>,
        heir: Option<(u8, NextHopId)>,
        deletions: &mut Vec<Prefix<K>>,
    ) {
        if group == 0 {
            let heir = heir.unwrap_or((0, NextHopId::NONE));
            self.set_direct(prefix, prefix.len()..=prefix.len(), heir);
        } else if self.is_deep(group) {
            deletions.push(prefix);
        } else {
            for entry in entries(prefix, *self.groups()[group].end()) {
                match (self.find(group, entry), heir) {
                    ((_, owner), _) if owner != Some(prefix.len()) => {}
                    ((place, _), Some(heir)) => {
                        self.set(group, entry, place, heir);
                    }
                    (_, None) => deletions.push(entry),
                }
            }
        }
    }

    fn delete(&mut self, group: usize, entry: Prefix<K>) {
        if self.is_deep(group) {
            self.set_deep(entry, NextHopId::NONE);
        } else {
            self.remove(group, entry);
        }
    }
}

/// 64-bit words of [`Grace`]: a block's hash selects one of 512 bits.
const WORDS: usize = 8;

/// The blocks of addresses that gained entries since the last grace period. A block is the range of one entry of group 0, so that no
/// prefix of a hashed group is wider; two blocks with the same bit cost an unneeded grace period now and then.
#[derive(Debug, Default)]
pub(crate) struct Grace {
    blocks: [u64; WORDS],
    /// The deepest group that gained entries; 0 without any.
    deepest: usize,
}

impl Grace {
    pub(crate) fn ended(&mut self) {
        *self = Self::default();
    }

    fn note(&mut self, group: usize, block: u32) {
        let (word, bit) = Self::place(block);
        self.blocks[word] |= bit;
        self.deepest = self.deepest.max(group);
    }

    /// Returns whether a lookup in flight may have missed an entry of a deeper group in `block` and fall back to `group`.
    fn is_owed(&self, group: usize, block: u32) -> bool {
        let (word, bit) = Self::place(block);
        self.deepest > group && self.blocks[word] & bit != 0
    }

    const fn place(block: u32) -> (usize, u64) {
        let hash = block.wrapping_mul(H2_HALVES[0]);
        (hash as usize >> 29, 1 << (hash >> 23 & 63))
    }
}

/// The block of `prefix`, which has at least `bits` bits: its first bits, at most 32.
#[expect(clippy::cast_possible_truncation, reason = "32 bits at most are left")]
fn block_of<K: Key>(prefix: Prefix<K>, bits: u8) -> u32 {
    (prefix.address().to_high_bits() >> (128 - u32::from(bits.clamp(1, 32)))) as u32
}

pub(crate) fn apply<K: Key, S: Store<K>>(
    store: &mut S,
    routes: &RibTable<K>,
    changes: &[Change<K>],
    grace: &mut Grace,
    synchronize: &dyn Fn(),
) {
    if changes.is_empty() {
        return; // the other family's delta
    }
    let mut changes = changes.to_vec();
    changes.sort_unstable_by_key(|change| std::cmp::Reverse(change.prefix.len()));
    let groups: Vec<_> = store.groups().to_vec();
    let mut deletions: Vec<Vec<Prefix<K>>> = vec![Vec::new(); groups.len()];
    let mut rest = &*changes;
    for (group, lengths) in groups.iter().enumerate().rev() {
        let count = rest.partition_point(|change| change.prefix.len() >= *lengths.start());
        let (mine, shorter) = rest.split_at(count);
        rest = shorter;
        for change in mine {
            let block = block_of(change.prefix, *groups[0].end());
            if group != 0 && grace.is_owed(group, block) {
                synchronize();
                grace.ended();
            }
            if change.withdraws() {
                let heir =
                    heir(routes, change.prefix, lengths).or((group == 0).then_some((0, NextHopId::NONE)));
                store.withdraw(group, change.prefix, heir, &mut deletions[group]);
            } else if store.announce(group, change.prefix, change.new) {
                grace.note(group, block);
            }
        }
    }
    if deletions.iter().all(Vec::is_empty) {
        return;
    }
    synchronize();
    grace.ended();
    for (group, entries) in deletions.into_iter().enumerate() {
        // Entries were collected longest first.
        for entry in entries.into_iter().rev() {
            store.delete(group, entry);
        }
    }
}

/// The longest route within `lengths` that covers `prefix` and is shorter.
fn heir<K: Key>(
    routes: &RibTable<K>,
    prefix: Prefix<K>,
    lengths: &RangeInclusive<u8>,
) -> Option<(u8, NextHopId)> {
    routes.used_above(prefix).filter(|(len, _)| lengths.contains(len))
}

/// Next hops of announced routes and of the heirs of withdrawn routes. `lengths_of` returns `None` for groups without next-hop indices.
pub(crate) fn hashed_next_hops<'a, K: Key>(
    routes: &'a RibTable<K>,
    changes: &'a [Change<K>],
    lengths_of: impl Fn(u8) -> Option<RangeInclusive<u8>> + 'a,
) -> impl Iterator<Item = NextHopId> + 'a {
    changes.iter().filter_map(move |change| {
        let lengths = lengths_of(change.prefix.len())?;
        if change.withdraws() {
            heir(routes, change.prefix, &lengths).map(|(_, next_hop)| next_hop)
        } else {
            Some(change.new)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::Prefix4;

    fn routes(prefixes: &[(u32, u8)]) -> Vec<(Prefix4, NextHopId)> {
        let mut routes: Vec<_> = prefixes
            .iter()
            .map(|(address, len)| (Prefix4::truncating(*address, *len), NextHopId::new(1).unwrap()))
            .collect();
        routes.sort_unstable();
        routes
    }

    #[test]
    fn an_heir_stays_within_the_group() {
        let mut table = RibTable::default();
        for (id, (prefix, _)) in (1..).zip(routes(&[(0, 20), (0, 22), (0, 24)])) {
            table.set(prefix, NextHopId::from_answer(id));
        }
        let mut rib = fib::Rib { v4: table, ..fib::Rib::new() };
        rib.take_delta();
        let table = rib.v4;
        assert_eq!(heir(&table, Prefix4::truncating(0, 24), &(21..=24)).unwrap().0, 22);
        assert_eq!(heir(&table, Prefix4::truncating(0, 22), &(21..=24)), None);
    }
}
