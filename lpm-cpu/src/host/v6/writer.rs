//! The writer's side of an IPv6 table of one width: pushes routes to leaves and updates in place.

use super::shape::{LEVELS_MAX, NodeCount};
use super::table::NodeTable;
use super::{Form, HostSize6};
use crate::chunks::Chunks;
use crate::codes::HopCodes;
use crate::host::default_route::{split_changes, split_routes};
use crate::pushing::Draw;
use fib::{Change, EngineError, NextHopId, Prefix6, RibTable};
use lpm_core::memory::Placement;
use lpm_core::publish::Publish as _;
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

/// The owner of an entry that leads to a node. An entry without a route, or with the default route alone, has owner 0.
const LINK: u8 = u8::MAX;

struct NodeLevel {
    nodes: Chunks,
    /// For each node, the number of routes that end in it and of nodes directly below it. At 0, all of its entries are equal.
    uses: Vec<u32>,
}

impl NodeLevel {
    fn new(room: u32) -> Self {
        Self { nodes: Chunks::new(room), uses: vec![0; room as usize] }
    }
}

/// The length of the run of equal owners at the front of `owners`. A short route covers millions.
fn run_len(owners: &[u8]) -> usize {
    let Some(first) = owners.first() else { return 0 };
    let (blocks, _) = owners.as_chunks::<16>();
    let whole = blocks.iter().take_while(|block| **block == [*first; 16]).count() * 16;
    whole + owners[whole..].iter().take_while(|owner| *owner == first).count()
}

/// The heir of a route that only the default route covers.
const BARE: (u8, NextHopId) = (0, NextHopId::NONE);

fn heir(prefix: Prefix6, routes: &RibTable<u128>) -> (u8, NextHopId) {
    routes.used_above(prefix).filter(|(len, _)| *len > 0).unwrap_or(BARE)
}

pub(super) struct NodeWriter<const BITS: u32> {
    table: Arc<NodeTable<BITS>>,
    codes: HopCodes,
    /// The length of the route that owns each entry.
    owners: Vec<u8>,
    levels: Vec<NodeLevel>,
    is_short: bool,
    /// Whether lookups in flight may have loaded the previous default route.
    is_default_new: bool,
    changes: Vec<Change<u128>>,
}

impl<const BITS: u32> NodeWriter<BITS> {
    /// A table of `routes`, in order, for which `size` must have room.
    pub(super) fn build(
        HostSize6 { form, shape, codes }: HostSize6,
        routes: &[(Prefix6, NextHopId)],
        placement: Placement,
    ) -> Result<Self, EngineError> {
        let table = Arc::new(NodeTable::zeroed(shape, codes, form == Form::Codes16, placement)?);
        let shape = &table.shape;
        let mut levels: Vec<_> = (0..shape.levels()).map(|level| NodeLevel::new(shape.room(level))).collect();
        levels[0].nodes.allocate(); // the top
        let owners = vec![0; shape.entries()];
        let codes = match &table.ids {
            Some(_) => HopCodes::indexed(codes - 1, "next hops of the IPv6 table"),
            None => HopCodes::Ids(codes - 1),
        };
        let (is_short, is_default_new, changes) = (false, false, Vec::new());
        let mut writer = Self { table, codes, owners, levels, is_short, is_default_new, changes };
        let (default, routes) = split_routes(routes);
        for (prefix, next_hop) in routes {
            writer.take_code(*next_hop);
            writer.announce(*prefix, *next_hop, true);
        }
        writer.table.default.publish(default.get());
        writer.codes.check().map(|()| writer)
    }

    pub(super) const fn table(&self) -> &Arc<NodeTable<BITS>> {
        &self.table
    }

    pub(super) fn writer_bytes(&self) -> u64 {
        let level = |level: &NodeLevel| level.nodes.bytes() + level.uses.len() as u64 * 4;
        self.owners.len() as u64 + self.levels.iter().map(level).sum::<u64>()
    }

    pub(super) fn nodes_used(&self) -> impl Iterator<Item = u64> {
        self.levels.iter().map(|level| level.nodes.used())
    }

    fn take_code(&mut self, next_hop: NextHopId) {
        self.codes.acquire(self.table.ids.as_deref().unwrap_or_default(), next_hop);
    }

    pub(super) fn admits(&self, changes: &[Change<u128>]) -> bool {
        let (_, changes) = split_changes(changes);
        if !self.codes.fit(changes) {
            return false;
        }
        let shape = &self.table.shape;
        let mut new = NodeCount::default();
        for change in changes.iter().filter(|change| change.adds()) {
            let (level, _) = self.nearest(change.prefix);
            new.add(shape, change.prefix, level);
        }
        // An owed grace period ends before the update.
        let available = |nodes: &Chunks| {
            if self.is_short { nodes.available_after_grace() } else { nodes.available() }
        };
        self.levels.iter().zip(&new.nodes).all(|(level, new)| *new == 0 || *new <= available(&level.nodes))
    }

    /// The last existing node on the path to the end of `prefix`: its level and number.
    fn nearest(&self, prefix: Prefix6) -> (usize, u32) {
        let shape = &self.table.shape;
        let last = shape.level_of(prefix.len());
        let (mut level, mut node) = (0, 0);
        while level < last {
            let entry = self.table.entries.get(shape.place(level, node, prefix.address()));
            let Some(below) = self.table.node(entry) else { break };
            (level, node) = (level + 1, below);
        }
        (level, node)
    }

    /// The node in which `prefix` ends. Creates missing nodes on the path.
    fn reach(&mut self, prefix: Prefix6) -> u32 {
        let (mut level, mut node) = self.nearest(prefix);
        let last = self.table.shape.level_of(prefix.len());
        while level < last {
            node = self.split(level, node, self.table.shape.place(level, node, prefix.address()));
            level += 1;
        }
        node
    }

    /// Splits the entry at `at` in a node of `level`: a node of the next level, filled with the entry's value, replaces it.
    fn split(&mut self, level: usize, node: u32, at: usize) -> u32 {
        let below = self.levels[level + 1].nodes.allocate() - 1;
        let entries = self.table.shape.node(level + 1, below);
        let entry = self.table.entries.get(at);
        let owner = std::mem::replace(&mut self.owners[at], LINK);
        self.owners[entries.clone()].fill(owner);
        self.table.entries.fill(entries, entry);
        self.table.entries.set(at, self.table.link(below));
        self.levels[level].uses[node as usize] += 1;
        below
    }

    fn draw(&mut self, level: usize, range: Range<usize>, draw: Draw) {
        let mut at = range.start;
        while at < range.end {
            let owner = self.owners[at];
            let run = at..at + run_len(&self.owners[at..range.end]);
            at = run.end;
            if owner == LINK {
                for at in run {
                    if let Some(node) = self.table.node(self.table.entries.get(at)) {
                        self.draw(level + 1, self.table.shape.node(level + 1, node), draw);
                    }
                }
            } else if let Some(owner) = draw.owner_after(owner) {
                self.owners[run.clone()].fill(owner);
                self.table.entries.fill(run, draw.code);
            }
        }
    }

    fn announce(&mut self, prefix: Prefix6, next_hop: NextHopId, is_new: bool) {
        let (level, node) = (self.table.shape.level_of(prefix.len()), self.reach(prefix));
        self.levels[level].uses[node as usize] += u32::from(is_new);
        let draw = Draw::announce(prefix.len(), self.codes.code(next_hop));
        self.draw(level, self.table.shape.covered(node, prefix), draw);
    }

    fn withdraw(&mut self, prefix: Prefix6, heir: (u8, NextHopId)) {
        let (level, node) = self.nearest(prefix);
        self.levels[level].uses[node as usize] -= 1;
        let draw = Draw::withdraw(prefix.len(), (heir.0, self.codes.code(heir.1)));
        self.draw(level, self.table.shape.covered(node, prefix), draw);
    }

    /// Frees the nodes that only the withdrawn `prefix` needed: the value of their entries replaces the link to them.
    fn merge(&mut self, prefix: Prefix6) {
        let shape = &self.table.shape;
        let last = shape.level_of(prefix.len());
        // Each node on the path, and the index of the link to it.
        let mut path = [(0, 0); LEVELS_MAX];
        let mut level = 0;
        while level < last {
            let at = shape.place(level, path[level].0, prefix.address());
            let Some(below) = self.table.node(self.table.entries.get(at)) else { break };
            level += 1;
            path[level] = (below, at);
        }
        while level > 0 && self.levels[level].uses[path[level].0 as usize] == 0 {
            let (node, at) = path[level];
            let first = shape.node(level, node).start;
            self.owners[at] = self.owners[first];
            self.table.entries.set(at, self.table.entries.get(first));
            let nodes = &mut self.levels[level].nodes;
            nodes.free(node + 1);
            self.is_short |= nodes.is_short();
            level -= 1;
            self.levels[level].uses[path[level].0 as usize] -= 1;
        }
    }

    /// Freed nodes wait until they are needed: a grace period for each would make every update wait for lookups.
    pub(super) fn owes_grace(&self) -> bool {
        self.is_short || self.is_default_new || self.codes.has_limbo()
    }

    pub(super) fn grace_over(&mut self) {
        (self.is_short, self.is_default_new) = (false, false);
        self.levels.iter_mut().for_each(|level| level.nodes.end_grace());
        self.codes.end_grace();
    }

    /// `synchronize` waits for a grace period.
    pub(super) fn update(
        &mut self,
        changes: &[Change<u128>],
        routes: &RibTable<u128>,
        synchronize: &dyn Fn(),
    ) {
        let (default, changes) = split_changes(changes);
        let mut sorted = std::mem::take(&mut self.changes);
        sorted.extend_from_slice(changes);
        sorted.sort_unstable_by_key(|change| Reverse(change.prefix.len()));
        sorted.iter().filter(|change| !change.withdraws()).for_each(|change| self.take_code(change.new));
        // If the default route changes too, addresses lose their routes after that change and a grace period.
        let mut bare = false;
        for change in &sorted {
            if !change.withdraws() {
                self.announce(change.prefix, change.new, change.adds());
            } else if let heir @ (1.., _) = heir(change.prefix, routes) {
                self.withdraw(change.prefix, heir);
            } else if default.is_none() {
                self.withdraw(change.prefix, BARE);
            } else {
                bare = true;
            }
        }
        if let Some(default) = default {
            self.table.default.publish(default.new.get());
            self.is_default_new = !bare;
        }
        if bare {
            synchronize();
            let withdrawn = sorted.iter().filter(|change| change.withdraws());
            for change in withdrawn.filter(|change| heir(change.prefix, routes) == BARE) {
                self.withdraw(change.prefix, BARE);
            }
        }
        // All entries of a node without uses are equal only from here on.
        sorted.iter().filter(|change| change.withdraws()).for_each(|change| self.merge(change.prefix));
        sorted.iter().filter(|change| !change.adds()).for_each(|change| self.codes.release(change.old));
        sorted.clear();
        self.changes = sorted;
    }
}
