//! One family's table under running lookups: two copies, of which readers see one.
//!
//! A delta goes to the copy that no reader is in, which then becomes the one that new batches read. The other copy gets the same
//! delta when the next one comes, after a grace period that is mostly over by then; so a delta seldom waits for a batch, and
//! never for a reader that idles. What both copies went through is the same, so both are the same word for word.
//!
//! A table that must grow is built anew, both copies of it, and put in the old one's place with one store.
//!
//! A delta is refused before anything is changed: the room that it can need at most is there before it is applied.

use super::params::Order;
use super::search::{self, CHUNK};
use super::table::{Room, Table, TableWriter};
use super::words::{IndexKey, TrieKey};
use crate::copies::Copies;
use crate::memory::Placement;
use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use fib::{Change, EngineError, NextHopId, Prefix, RibTable};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Two copies of a table.
type Tables<K, W> = Copies<Table<K, W>>;

/// Where readers find the table.
type Place<K, W> = ArcSwap<Tables<K, W>>;
/// A reader's hold on it.
type Held<K, W> = Cache<Arc<Place<K, W>>, Arc<Tables<K, W>>>;

/// A family's writing side, whatever the width of its index keys.
pub(super) trait FamilyWriter<K: TrieKey>: Send {
    /// Plans `changes`, which lead to `routes`. With `afresh` the table is rebuilt in any case, which gives back the room that it no longer
    /// needs.
    fn plan(&mut self, changes: &[Change<K>], routes: &RibTable<K>, afresh: bool);
    /// Bytes of the planned table before rounding to pages.
    fn planned_bytes(&self, with_reserve: bool) -> u64;
    /// Makes the memory of the planned table; returns its bytes.
    fn allocate(&mut self, with_reserve: bool) -> Result<u64, EngineError>;
    /// Forgets the plan.
    fn abandon(&mut self);
    /// Puts what was planned in service. `grace` returns when no batch is running that began before it was called.
    fn commit(&mut self, changes: &[Change<K>], grace: &mut dyn FnMut());
    /// A reading side.
    fn reader(&self) -> Box<dyn FamilyReader<K>>;
    /// Routes.
    fn routes(&self) -> u64;
    /// Bytes of the copy that lookups read.
    fn table_bytes(&self) -> u64;
    /// Bytes that lookups do not read.
    fn writer_bytes(&self) -> u64;
    /// Figures of the structure.
    fn figures(&self) -> Figures;
}

/// A family's reading side. It is asked within an epoch only.
pub(super) trait FamilyReader<K: TrieKey>: Send {
    /// Answers the first `out.len()` keys of `keys`.
    fn answer(&mut self, keys: K::Arrays<'_>, out: &mut [NextHopId]);
}

/// What a table is made of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    /// Index keys.
    pub(super) keys: usize,
    /// Levels of the index tree.
    pub(super) tree_levels: u32,
    /// Nodes of the index tree.
    pub(super) tree_nodes: usize,
    /// Routes shorter than an index key.
    pub(super) trie_nodes: usize,
    /// The deepest and the mean level of a suffix in its trie, then of a short prefix in theirs.
    pub(super) trie_levels: [(f64, f64); 2],
}

/// What a delta needs.
#[derive(Debug)]
enum Plan<K: TrieKey, W: IndexKey> {
    /// Nothing.
    Nothing,
    /// The room that is there.
    InPlace,
    /// Another table, for these routes.
    Replace { routes: Vec<(Prefix<K>, NextHopId)>, room: Room, tables: Option<Arc<Tables<K, W>>> },
}

/// The writer of one family.
pub(super) struct Family<K: TrieKey, W: IndexKey> {
    order: Order,
    placement: Placement,
    shared: Arc<Place<K, W>>,
    tables: Arc<Tables<K, W>>,
    writers: [TableWriter; 2],
    /// What the copy that is not in service lacks.
    missing: Vec<Change<K>>,
    plan: Plan<K, W>,
}

/// Two empty copies.
fn two<K: TrieKey, W: IndexKey>(
    order: Order,
    room: Room,
    placement: Placement,
) -> Result<Tables<K, W>, EngineError> {
    Ok(Copies::new([Table::new(order, room, placement)?, Table::new(order, room, placement)?]))
}

impl<K: TrieKey, W: IndexKey> Family<K, W> {
    /// An empty table.
    pub(super) fn new(order: Order, placement: Placement) -> Result<Self, EngineError> {
        let tables = Arc::new(two(order, Room::of(0, 0, order).with_reserve(), placement)?);
        Ok(Self {
            order,
            placement,
            shared: Arc::new(ArcSwap::new(Arc::clone(&tables))),
            tables,
            writers: [TableWriter::new::<K>(order), TableWriter::new::<K>(order)],
            missing: Vec::new(),
            plan: Plan::Nothing,
        })
    }

    /// The copy in service, and its writer's view.
    fn active(&self) -> (&Table<K, W>, &TableWriter) {
        (self.tables.live(), &self.writers[self.tables.live_number()])
    }

    /// Whether `routes` more routes behind `keys` more index keys fit.
    fn holds(&self, keys: usize, routes: usize) -> bool {
        let (table, writer) = self.active();
        let need = Room::of(writer.tree.keys() + keys, writer.routes() + routes, self.order);
        table.room().holds(need)
    }

    /// Whether `changes` fit the room that is there, withdraws first.
    fn fits(&self, changes: &[Change<K>]) -> bool {
        let added = changes.iter().filter(|change| change.adds());
        let (removed, count) =
            (changes.iter().filter(|change| change.withdraws()).count(), added.clone().count());
        if self.holds(count, count) {
            return true;
        }
        let table = self.active().0;
        let keys: BTreeSet<_> = added
            .filter(|change| change.prefix.len() >= table.k && !table.has_trie(change.prefix))
            .map(|change| change.prefix.address().index::<W>(table.k))
            .collect();
        self.holds(keys.len(), count.saturating_sub(removed))
    }

    /// The index keys that `routes`, sorted, have.
    fn keys_of(&self, routes: &[(Prefix<K>, NextHopId)]) -> usize {
        let k = self.order.k;
        let mut keys: Vec<W> = routes
            .iter()
            .filter(|route| route.0.len() >= k)
            .map(|route| route.0.address().index(k))
            .collect();
        keys.dedup();
        keys.len()
    }

    /// Fills both copies of new tables and puts them in service.
    fn replace(&mut self, tables: Arc<Tables<K, W>>, mut routes: Vec<(Prefix<K>, NextHopId)>) {
        let mut writer = TableWriter::new::<K>(self.order);
        writer.fill(tables.live(), &mut routes);
        writer.copy(tables.live(), tables.spare());
        self.writers = [writer.clone(), writer];
        self.missing = Vec::new();
        self.tables = tables;
        self.shared.store(Arc::clone(&self.tables));
    }
}

impl<K: TrieKey, W: IndexKey> FamilyWriter<K> for Family<K, W> {
    fn plan(&mut self, changes: &[Change<K>], routes: &RibTable<K>, afresh: bool) {
        self.plan = if !afresh && changes.is_empty() {
            Plan::Nothing
        } else if !afresh && self.fits(changes) {
            Plan::InPlace
        } else {
            let routes: Vec<_> = routes.used().collect();
            let room = Room::of(self.keys_of(&routes), routes.len(), self.order);
            Plan::Replace { routes, room, tables: None }
        };
    }

    fn planned_bytes(&self, with_reserve: bool) -> u64 {
        match &self.plan {
            Plan::Replace { room, .. } => {
                let room = if with_reserve { room.with_reserve() } else { *room };
                Table::<K, W>::bytes_for(room, self.order)
            }
            _ => self.table_bytes(),
        }
    }

    fn allocate(&mut self, with_reserve: bool) -> Result<u64, EngineError> {
        let Plan::Replace { room, tables, .. } = &mut self.plan else { return Ok(self.table_bytes()) };
        let room = if with_reserve { room.with_reserve() } else { *room };
        *tables = None; // a larger one that was tried before
        let made = tables.insert(Arc::new(two(self.order, room, self.placement)?));
        Ok(made.live().bytes())
    }

    fn abandon(&mut self) {
        self.plan = Plan::Nothing;
    }

    fn commit(&mut self, changes: &[Change<K>], grace: &mut dyn FnMut()) {
        match std::mem::replace(&mut self.plan, Plan::Nothing) {
            Plan::Replace { routes, tables: Some(tables), .. } => self.replace(tables, routes),
            Plan::InPlace => {
                let (table, writer) = (self.tables.spare(), &mut self.writers[self.tables.spare_number()]);
                if !self.missing.is_empty() {
                    grace(); // batches may still run that began before the copies changed places
                    writer.apply(table, &self.missing);
                }
                writer.apply(table, changes);
                self.missing.clear();
                self.missing.extend_from_slice(changes);
                self.tables.flip();
            }
            Plan::Replace { .. } | Plan::Nothing => {}
        }
    }

    fn reader(&self) -> Box<dyn FamilyReader<K>> {
        Box::new(Reader { tables: Cache::new(Arc::clone(&self.shared)) })
    }

    fn routes(&self) -> u64 {
        self.active().1.routes() as u64
    }

    fn table_bytes(&self) -> u64 {
        self.active().0.bytes()
    }

    fn writer_bytes(&self) -> u64 {
        let missing = (self.missing.capacity() * size_of::<Change<K>>()) as u64;
        self.table_bytes() + missing + self.writers.iter().map(TableWriter::bytes).sum::<u64>()
    }

    fn figures(&self) -> Figures {
        let (table, writer) = self.active();
        Figures {
            keys: writer.tree.keys(),
            tree_levels: table.tree.root().1,
            tree_nodes: writer.tree.nodes(),
            trie_nodes: writer.tries.nodes(),
            trie_levels: writer.tries.levels(),
        }
    }
}

/// A reader's way to a family's table.
struct Reader<K: TrieKey, W: IndexKey> {
    tables: Held<K, W>,
}

impl<K: TrieKey, W: IndexKey> FamilyReader<K> for Reader<K, W> {
    fn answer(&mut self, keys: K::Arrays<'_>, out: &mut [NextHopId]) {
        let table = self.tables.load().live();
        for (chunk, out) in out.chunks_mut(CHUNK).enumerate() {
            search::answer(table, |at| K::get(keys, chunk * CHUNK + at), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::{Prefix4, Rib};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A RIB, and the family that it is committed to.
    struct Followed {
        rib: Rib,
        family: Family<u32, u32>,
    }

    impl Followed {
        fn new(order: Order) -> Self {
            Self { rib: Rib::plain(), family: Family::new(order, Placement::default()).unwrap() }
        }

        /// Tells routes and applies what follows; whether the table was made anew.
        fn apply(&mut self, routes: impl Iterator<Item = (Prefix4, u32)>) -> bool {
            routes.for_each(|(prefix, next_hop)| {
                self.rib.v4.set(prefix, NextHopId::from_answer(next_hop));
            });
            let family = &mut self.family;
            let applied: Result<_, EngineError> = self.rib.commit(|delta, rib| {
                family.plan(&delta.v4, &rib.v4, false);
                let replaces = matches!(family.plan, Plan::Replace { .. });
                family.allocate(true)?;
                family.commit(&delta.v4, &mut || {});
                Ok(replaces)
            });
            applied.unwrap()
        }
    }

    #[test]
    fn both_copies_stay_the_same_word_for_word() {
        let order = Order { k: 16, m: 4 };
        let mut followed = Followed::new(order);
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
        assert!(replaced < 20, "{replaced} of 200 small deltas made a table anew");
        let spare = family.tables.spare_number();
        let missing = std::mem::take(&mut family.missing);
        family.writers[spare].apply(family.tables.spare(), &missing);
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
        let mut followed = Followed::new(order);
        let route = |at: u32, next_hop: u32| (Prefix4::truncating(at << 8, 24), next_hop);
        assert!(followed.apply((0..3000).map(|at| route(at, 1))));
        assert!(!followed.apply((0..3000).map(|at| route(at, 2))), "changed next hops need no room");
        let moved = (0..1000).map(|at| route(at, 0)).chain((3000..4000).map(|at| route(at, 3)));
        assert!(!followed.apply(moved), "as many come as go");
        assert_eq!(followed.family.routes(), 3000);
    }
}
