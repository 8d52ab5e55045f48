//! Commits changes to the engine, and retries refused ones.
//!
//! An event of a feed, a link or a gateway only marks prefixes. [`Vrf::drain`] selects their winners, sets them in the RIB and commits:
//! newly marked prefixes at once, large sets in parts ([`super::walk`]). Changes by files, the control socket and addresses go into the RIB
//! at once.
//!
//! An engine refuses a delta as a whole, without naming a route. The RIB is then rolled back. Files and the control socket get the error
//! and lose their changes; routes of feeds and addresses stay candidates, since these do not repeat them. A prefix whose winner is not in
//! the RIB is *refused*. Refused prefixes are retried in groups, one group a commit, apart from other changes, which they would otherwise
//! get refused. A refused group is halved, so that in the end only single routes are refused. Withdrawals are not delayed.
//!
//! A turn tries one group. After [`TRIES`] groups or [`ROUND_MAX`], the rest waits for [`PAUSE`] and goes first in the next round. When no
//! group is left, all refused prefixes form one group again.

use super::Vrf;
use super::candidates::Winner;
use super::feeds::interfaces::Interfaces;
use crate::notice;
use fib::{Generation, IpPrefix, NextHopId, Rib};
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most prefixes of a commit, besides freshly marked ones.
const PREFIXES_PER_COMMIT: usize = 1 << 14;
/// Most groups tried in a round. One refused route among ten thousand takes 28.
const TRIES: u32 = 64;
/// Duration of a round, without its last group: an engine may need a second to find that a table does not fit.
const ROUND_MAX: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(5);

/// Prefixes that may have a new winner.
#[derive(Debug)]
pub(crate) struct Marked {
    /// The last `fresh` ones were marked singly since the last [`Self::take`].
    prefixes: Vec<IpPrefix>,
    fresh: usize,
    /// How many others one commit takes.
    pub(super) per_commit: usize,
}

impl Default for Marked {
    fn default() -> Self {
        Self { prefixes: Vec::new(), fresh: 0, per_commit: PREFIXES_PER_COMMIT }
    }
}

impl Marked {
    pub(crate) fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Marks a prefix for the next commit.
    pub(super) fn mark(&mut self, prefix: IpPrefix) {
        self.prefixes.push(prefix);
        self.fresh += 1;
    }

    /// Marks many prefixes; singly marked ones go first.
    pub(super) fn mark_all(&mut self, mut prefixes: Vec<IpPrefix>) {
        if prefixes.is_empty() {
            return;
        }
        let mut fresh = self.prefixes.split_off(self.prefixes.len() - self.fresh);
        if !self.prefixes.is_empty() {
            // Repeated marking must not grow the list.
            prefixes.append(&mut self.prefixes);
            prefixes.sort_unstable();
            prefixes.dedup();
        }
        prefixes.append(&mut fresh);
        self.prefixes = prefixes;
    }

    /// How many prefixes can be marked and still all fit into the next commit.
    pub(super) fn room(&self) -> usize {
        self.per_commit.saturating_sub(self.prefixes.len() - self.fresh)
    }

    pub(super) fn take(&mut self) -> Vec<IpPrefix> {
        let count = std::mem::take(&mut self.fresh) + self.per_commit;
        let taken = self.prefixes.split_off(self.prefixes.len().saturating_sub(count));
        if self.prefixes.is_empty() {
            self.prefixes = Vec::new(); // it may have been as long as a full table
        }
        taken
    }
}

/// Prefixes whose winner the engine has refused, and when to retry them.
#[derive(Debug)]
pub(crate) struct Refused {
    prefixes: FxHashSet<IpPrefix>,
    /// Groups still to be tried.
    groups: VecDeque<Vec<IpPrefix>>,
    round: Option<Round>,
    pub(super) round_max: Duration,
    /// When the next round begins.
    pub(super) due: Option<Instant>,
    /// The last refusal, and the number of refused prefixes at the last notice.
    why: String,
    noticed: usize,
}

impl Default for Refused {
    fn default() -> Self {
        Self {
            prefixes: FxHashSet::default(),
            groups: VecDeque::new(),
            round: None,
            round_max: ROUND_MAX,
            due: None,
            why: String::new(),
            noticed: 0,
        }
    }
}

#[derive(Debug)]
struct Round {
    tries_left: u32,
    end: Instant,
}

impl Refused {
    pub(crate) fn len(&self) -> usize {
        self.prefixes.len()
    }

    pub(super) fn prefixes(&self) -> impl Iterator<Item = IpPrefix> {
        self.prefixes.iter().copied()
    }

    /// Retries all refused prefixes soon, since the engine was replaced.
    pub(super) fn hurry(&mut self) {
        if !self.prefixes.is_empty() {
            self.groups.clear();
            (self.round, self.due) = (None, Some(Instant::now()));
        }
    }

    pub(super) fn is_due(&self) -> bool {
        self.round.is_some() || self.due.is_some_and(|due| due <= Instant::now())
    }

    /// The next group to try, if a round is running or due.
    fn next_group(&mut self) -> Option<Vec<IpPrefix>> {
        let now = Instant::now();
        if self.due.take_if(|due| *due <= now).is_some() {
            self.begin_round(now);
            if self.groups.is_empty() {
                self.groups.push_back(self.prefixes().collect());
            }
        }
        let round = self.round.as_mut()?;
        while round.tries_left > 0 && now < round.end {
            let Some(mut group) = self.groups.pop_front() else { break };
            group.retain(|prefix| self.prefixes.contains(prefix));
            if !group.is_empty() {
                round.tries_left -= 1;
                return Some(group);
            }
        }
        self.end_round(now);
        None
    }

    fn begin_round(&mut self, now: Instant) {
        let round = Round { tries_left: TRIES, end: now + self.round_max };
        self.round.get_or_insert(round);
    }

    fn end_round(&mut self, now: Instant) {
        self.round = None;
        let refused = self.prefixes.len();
        if refused == 0 {
            self.groups.clear();
        } else {
            self.due = Some(now + PAUSE);
            if refused != self.noticed {
                let (why, seconds) = (&self.why, PAUSE.as_secs());
                notice::warn(format_args!(
                    "{why}; {refused} changes of feeds are refused, and tried again every {seconds} s"
                ));
            }
        }
        self.noticed = refused;
    }
}

impl Vrf {
    /// Commits all changes: first the egress table with the new next hops, then the routes to them, so that no lcore gets an id that its
    /// egress table lacks. Returns the generation that includes all changes.
    ///
    /// # Errors
    /// [`EgressError`](crate::datapath::EgressError) for a next hop that refers to a port which does not exist, and the engine's errors.
    /// The routes in service are then unchanged.
    pub(crate) fn commit(&mut self) -> anyhow::Result<Generation> {
        let egress = self.egress.refresh(&self.rib, &mut self.candidates);
        let updates = std::mem::take(&mut self.updates);
        let Self { rib, engine, tally, .. } = self;
        let result = rib.commit(|delta, rib| {
            egress?;
            if !delta.is_empty() {
                engine.writer.apply(delta, rib)?;
                tally.deltas += 1;
            }
            anyhow::Ok(())
        });
        if let Err(error) = result {
            self.take_back(&error);
            // Gateways may have been resolved by routes that are not in service.
            let egress = self.egress.refresh(&self.rib, &mut self.candidates);
            self.egress.drop_unused(&self.rib, &mut self.candidates);
            egress?;
            return Err(error);
        }
        self.candidates.settle();
        for prefix in self.uncommitted.drain(..) {
            if !self.refused.prefixes.contains(&prefix) {
                self.candidates.forget(prefix);
            }
        }
        self.tally.updates += updates;
        self.egress.drop_unused(&self.rib, &mut self.candidates);
        let generation = self.engine.writer.generation();
        if updates > 0 {
            notice::debug(format_args!("VRF {}: {updates} updates, generation {}", self.name, generation.0));
        }
        Ok(generation)
    }

    /// Rolls back after the engine refused the changes since the last commit; the RIB is rolled back already.
    fn take_back(&mut self, error: &anyhow::Error) {
        self.candidates.roll_back();
        let mut refused = Vec::new();
        for prefix in std::mem::take(&mut self.uncommitted) {
            let Some(Winner { id, .. }) = self.candidates.winner(prefix) else { continue };
            if id == self.route(prefix) {
                self.refused.prefixes.remove(&prefix);
                self.candidates.forget(prefix);
            } else if self.refused.prefixes.insert(prefix) {
                refused.push((prefix, id));
            }
        }
        if refused.is_empty() {
            return;
        }
        self.refused.why = format!("{error:#}");
        // Withdrawals first: they make room.
        refused.sort_by_key(|(_, id)| !id.is_none());
        if refused.len() > 1 {
            let (first, second) = refused.split_at(refused.len() / 2);
            for half in [first, second] {
                self.refused.groups.push_back(half.iter().map(|(prefix, _)| *prefix).collect());
            }
        }
        if self.refused.due.is_none() {
            self.refused.begin_round(Instant::now());
        }
    }

    /// Puts the winner of a prefix into the RIB, for the next commit. A refused prefix waits for its retry, unless `at_once` or the winner
    /// has no next hop. Returns whether the RIB has changed.
    pub(super) fn choose(&mut self, prefix: IpPrefix, at_once: bool) -> bool {
        let Some(winner) = self.candidates.winner(prefix) else { return false };
        let is_other = winner.id != self.route(prefix);
        if !is_other || at_once || winner.id.is_none() {
            self.refused.prefixes.remove(&prefix);
        } else if self.refused.prefixes.contains(&prefix) {
            return false;
        }
        if is_other {
            self.notice(prefix, &winner);
            self.set_route(prefix, winner.id);
        }
        // The commit may drop its entry.
        self.uncommitted.push(prefix);
        is_other
    }

    /// Commits the winners of marked prefixes, as many as fit into one commit, and retries a group of refused ones if due. Returns whether
    /// there was work.
    pub(crate) fn drain(&mut self, interfaces: Option<&Interfaces>) -> bool {
        let had_updates = self.updates > 0;
        self.commit_updates();
        let Self { rib, egress, candidates, .. } = self;
        if let Some(interfaces) = interfaces.filter(|_| std::mem::take(&mut egress.has_moved)) {
            candidates.routes.resolve_anew(|wanted| egress.next_hop(&wanted, interfaces));
            egress.neighbours_have_changed();
        }
        // New next hops need an entry before the candidates ask whether they can forward.
        egress.refresh_if_stale(rib, candidates);
        let marked = candidates.take_marked();
        for prefix in &marked {
            self.updates += u64::from(self.choose(*prefix, false));
        }
        let has_changes = !marked.is_empty() || self.updates > 0 || !self.uncommitted.is_empty();
        if has_changes
            && let Err(error) = self.commit()
            && self.refused.len() == 0
        {
            notice::warn(format_args!("{error:#}"));
        }
        let is_due = self.refused.is_due();
        self.try_again();
        had_updates || has_changes || is_due || self.candidates.has_pending()
    }

    /// Retries a group of refused prefixes, if due.
    pub(super) fn try_again(&mut self) {
        let Some(group) = self.refused.next_group() else { return };
        for prefix in group {
            self.refused.prefixes.remove(&prefix);
            self.choose(prefix, true);
        }
        // The end of the round reports a refusal.
        drop(self.commit());
    }

    /// Sets a route in the RIB; [`NextHopId::NONE`] removes it. Returns the previous one. Every change of the RIB passes here.
    pub(super) fn set_route(&mut self, prefix: IpPrefix, id: NextHopId) -> NextHopId {
        if let Some(building) = &mut self.engine.building {
            building.changed.insert(prefix);
        }
        self.rib.set(prefix, id)
    }

    pub(super) fn route(&self, prefix: IpPrefix) -> NextHopId {
        route_in(&self.rib, prefix)
    }
}

pub(super) fn route_in(rib: &Rib, prefix: IpPrefix) -> NextHopId {
    match prefix {
        IpPrefix::V4(prefix) => rib.v4.get(prefix),
        IpPrefix::V6(prefix) => rib.v6.get(prefix),
    }
}
