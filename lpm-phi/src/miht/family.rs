//! One family's table while lookups run: two copies, of which readers see one.
//!
//! A delta goes to the spare copy, which is then published for new batches. The other copy gets the same delta when the next one arrives,
//! after a grace period that has mostly passed by then. Both copies end up equal word for word. A delta is refused before anything
//! changes: the maximum room that it can need is reserved before it is applied.

use super::params::{MihtParams, Order};
use super::table::{MihtRoom, MihtTable, TableWriter};
use super::words::{IndexKey, TrieKey};
use fib::{Change, Details, EngineError, NextHopId, Prefix, RibTable};
use lpm_core::copies::Copies;
use lpm_core::engine::{Budget, FibTable, Routes};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Both copies of a family's table, for the one writer.
pub(super) struct MihtFamily<K: TrieKey, W: IndexKey> {
    order: Order,
    tables: Arc<Copies<MihtTable<K, W>>>,
    writers: [TableWriter; 2],
    /// Changes that the spare copy lacks.
    missing: Vec<Change<K>>,
}

impl<K: TrieKey, W: IndexKey> MihtFamily<K, W> {
    fn live(&self) -> (&MihtTable<K, W>, &TableWriter) {
        (self.tables.live(), &self.writers[self.tables.live_number()])
    }

    fn spare(&mut self) -> (&MihtTable<K, W>, &mut TableWriter) {
        (self.tables.spare(), &mut self.writers[self.tables.spare_number()])
    }

    /// Returns whether `routes` more routes with `keys` more index keys fit.
    fn holds(&self, keys: usize, routes: usize) -> bool {
        let (table, writer) = self.live();
        let need = MihtRoom::for_routes(writer.tree.keys() + keys, writer.routes() + routes, self.order);
        table.room().holds(need)
    }
}

fn keys_of<K: TrieKey, W: IndexKey>(routes: &[(Prefix<K>, NextHopId)], k: u8) -> usize {
    let long = routes.iter().filter(|(prefix, _)| prefix.len() >= k);
    let mut keys: Vec<W> = long.map(|(prefix, _)| prefix.address().index(k)).collect();
    keys.dedup();
    keys.len()
}

impl<K: TrieKey, W: IndexKey> FibTable<K> for MihtFamily<K, W> {
    type Params = MihtParams;
    type Shared = Copies<MihtTable<K, W>>;
    type Size = (MihtRoom, Order);

    fn size(
        routes: &[(Prefix<K>, NextHopId)],
        params: &MihtParams,
        budget: Budget,
    ) -> Result<(MihtRoom, Order), EngineError> {
        let order = K::order(params);
        let room = MihtRoom::for_routes(keys_of::<K, W>(routes, order.k), routes.len(), order);
        Ok((if budget.has_reserve() { room.with_reserve() } else { room }, order))
    }

    fn size_bytes((room, order): &(MihtRoom, Order)) -> u64 {
        MihtTable::<K, W>::bytes_for(*room, *order)
    }

    fn build(
        (room, order): (MihtRoom, Order),
        mut routes: Routes<K>,
        params: &MihtParams,
    ) -> Result<Self, EngineError> {
        let empty = || MihtTable::new(order, room, params.common.placement);
        let tables = Copies::new([empty()?, empty()?]);
        let mut writer = TableWriter::new::<K>(order);
        writer.fill(tables.live(), &mut routes);
        writer.copy(tables.live(), tables.spare());
        let writers = [writer.clone(), writer];
        Ok(Self { order, tables: Arc::new(tables), writers, missing: Vec::new() })
    }

    fn shared(&self) -> &Arc<Copies<MihtTable<K, W>>> {
        &self.tables
    }

    fn bytes(&self) -> u64 {
        self.live().0.bytes()
    }

    fn writer_bytes(&self) -> u64 {
        let missing = (self.missing.capacity() * size_of::<Change<K>>()) as u64;
        self.bytes() + missing + self.writers.iter().map(TableWriter::bytes).sum::<u64>()
    }

    fn details(&self) -> Details {
        let (table, writer) = self.live();
        let [suffix, short] = writer.tries.levels();
        Details::from([
            ("index_keys", writer.tree.keys().into()),
            ("index_levels", table.tree.root().1.into()),
            ("index_nodes", writer.tree.nodes().into()),
            ("trie_nodes", writer.tries.nodes().into()),
            ("suffix_levels_max", suffix.0.into()),
            ("suffix_levels_mean", suffix.1.into()),
            ("short_levels_max", short.0.into()),
            ("short_levels_mean", short.1.into()),
        ])
        .of_family(K::FAMILY)
    }

    /// Counts withdraws first, in the order of their application.
    fn admits(&self, changes: &[Change<K>], _: &RibTable<K>) -> bool {
        let added = changes.iter().filter(|change| change.adds());
        let (removed, count) =
            (changes.iter().filter(|change| change.withdraws()).count(), added.clone().count());
        if self.holds(count, count) {
            return true;
        }
        let table = self.live().0;
        let keys: BTreeSet<_> = added
            .filter(|change| change.prefix.len() >= table.k && !table.has_trie(change.prefix))
            .map(|change| change.prefix.address().index::<W>(table.k))
            .collect();
        self.holds(keys.len(), count.saturating_sub(removed))
    }

    fn owes_grace(&self) -> bool {
        !self.missing.is_empty()
    }

    fn grace_over(&mut self) {
        let missing = std::mem::take(&mut self.missing);
        let (table, writer) = self.spare();
        writer.apply(table, &missing);
        self.missing = missing;
        self.missing.clear();
    }

    fn update(&mut self, changes: &[Change<K>], _: &RibTable<K>, _: &dyn Fn()) {
        let (table, writer) = self.spare();
        writer.apply(table, changes);
        self.missing.extend_from_slice(changes);
        self.tables.flip();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::{EngineOptions, Prefix4, Rib};
    use std::sync::atomic::{AtomicU64, Ordering};

    type Family4 = MihtFamily<u32, u32>;

    struct FollowedFamily {
        rib: Rib,
        params: MihtParams,
        family: Family4,
    }

    impl FollowedFamily {
        fn new(order: Order) -> Self {
            let params =
                MihtParams { v4: order, ..MihtParams::from_options(&EngineOptions::default()).unwrap() };
            let family = Self::build_family(&[], &params);
            Self { rib: Rib::plain(), params, family }
        }

        fn build_family(routes: &[(Prefix4, NextHopId)], params: &MihtParams) -> Family4 {
            let size = Family4::size(routes, params, Budget::Ample).unwrap();
            Family4::build(size, routes.to_vec(), params).unwrap()
        }

        /// Sets routes and commits them. Returns whether the table was rebuilt.
        fn apply(&mut self, routes: impl Iterator<Item = (Prefix4, u32)>) -> bool {
            routes.for_each(|(prefix, next_hop)| {
                self.rib.v4.set(prefix, NextHopId::from_answer(next_hop));
            });
            let (family, params) = (&mut self.family, &self.params);
            let applied: Result<_, EngineError> = self.rib.commit(|delta, rib| {
                let fits = family.admits(&delta.v4, &rib.v4);
                if fits {
                    family.grace_over();
                    family.update(&delta.v4, &rib.v4, &|| {});
                } else {
                    *family = Self::build_family(&rib.v4.used().collect::<Vec<_>>(), params);
                }
                Ok(!fits)
            });
            applied.unwrap()
        }
    }

    #[test]
    fn both_copies_stay_the_same_word_for_word() {
        let order = Order { k: 16, m: 4 };
        let mut followed = FollowedFamily::new(order);
        let mut replaced = 0;
        for step in 0..200_u32 {
            let route = |n: u32| {
                let at = step.wrapping_mul(17) + n * 3;
                let prefix = Prefix4::truncating(at.wrapping_mul(0x9e37_79b9), 12 + (at % 21) as u8);
                (prefix, (step + n) % 5)
            };
            replaced += usize::from(followed.apply((0..40).map(route)));
        }
        let mut family = followed.family;
        assert!(replaced < 20, "{replaced} of 200 small deltas rebuilt the table");
        family.grace_over();
        let [a, b] = family.tables.both();
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let same = a.words().iter().zip(b.words()).all(|(a, b)| word(a) == word(b));
        assert!(same, "nodes of the tries");
        assert_eq!(a.short().root, b.short().root);
        assert_eq!(a.tree.root(), b.tree.root());
        let entries = |copy: usize| {
            let mut entries = Vec::new();
            family.writers[copy]
                .tree
                .for_each(&family.tables.both()[copy].tree, |key, root| entries.push((key, root)));
            entries
        };
        assert_eq!(entries(0), entries(1));
        assert_eq!(family.writers[0].routes(), family.writers[1].routes());
    }

    #[test]
    fn room_that_withdraws_leave_is_room() {
        let order = Order { k: 16, m: 16 };
        let mut followed = FollowedFamily::new(order);
        let route = |at: u32, next_hop: u32| (Prefix4::truncating(at << 8, 24), next_hop);
        assert!(followed.apply((0..3000).map(|at| route(at, 1))));
        assert!(!followed.apply((0..3000).map(|at| route(at, 2))), "changed next hops need no room");
        let moved = (0..1000).map(|at| route(at, 0)).chain((3000..4000).map(|at| route(at, 3)));
        assert!(!followed.apply(moved), "as many come as go");
        assert_eq!(followed.family.live().1.routes(), 3000);
    }
}
