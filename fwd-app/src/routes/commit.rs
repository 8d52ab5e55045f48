//! Brings changes into service, and tries again what the engine refuses.
//!
//! An event of a feed, a link or a gateway only marks prefixes. [`Vrf::drain`] chooses their winners, sets them in the RIB and commits.
//! Each turn takes the prefixes marked since the turn before, and some of the many that a failed interface concerns ([`super::walk`]). A change by a
//! file, the control socket or an address is in the RIB at once, and in service with the commit of its caller.
//!
//! An engine takes a delta or refuses it as a whole, and does not say because of which route. The RIB is then as it was before, and what
//! files and the control socket have said since the last commit is forgotten: who said it gets the error. Feeds and addresses say nothing
//! twice, so what they said stays said ([`Candidates`](super::candidates)). A prefix whose winner is not in the RIB is *refused*. Refused
//! prefixes are tried again in groups, one group a commit. A group that is refused becomes two of half its size; in the end
//! single routes are refused, and all others are in service. A withdrawal waits for no group.
//!
//! Work is bounded: the control thread tries one group a turn, and does other work between two turns. After [`TRIES`] groups, or
//! [`ROUND_MAX`], it waits for [`PAUSE`]. The groups that are left are the first of the next round, so each has its turn. When none is left,
//! all prefixes that were refused are one group again. A route that waits here is not part of other commits, so it cannot have them
//! refused.

use super::Vrf;
use super::candidates::Winner;
use super::feeds::interfaces::Interfaces;
use super::sources::{Unused, next_hop};
use super::vrf::Foreign;
use crate::notice;
use fib::{Generation, IpPrefix};
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Prefixes that are chosen for one commit, at most, of those that were marked before the last one.
const PREFIXES_PER_COMMIT: usize = 1 << 14;
/// Groups that are tried in a round, at most. One refused route among ten thousand takes 28.
const TRIES: u32 = 64;
/// How long a round takes, but for its last group: an engine may need a second to find that a table does not fit.
const ROUND_MAX: Duration = Duration::from_secs(1);
/// How long until the next round.
const PAUSE: Duration = Duration::from_secs(5);

/// What has changed since the last commit, and what the engine has refused.
#[derive(Debug)]
pub(super) struct Changes {
    /// Prefixes that may have another winner than the route in the RIB. The last `fresh` ones were marked since the last [`Vrf::drain`].
    marked: Vec<IpPrefix>,
    fresh: usize,
    /// How many of the others are chosen for one commit.
    pub(super) per_commit: usize,
    /// Prefixes with an entry among the candidates that were set in the RIB since the last commit.
    uncommitted: Vec<IpPrefix>,
    /// Changes that count as updates since the last commit.
    pub(super) updates: u64,
    /// The prefixes that follow from the addresses of ports.
    pub(super) own: Vec<IpPrefix>,
    /// Whether routes of feeds may have other next hops than before.
    pub(super) has_moved: bool,
    /// Routes without a port of which a warning is due, and whether there was one for a route and for a default route.
    pub(super) foreign: Vec<Foreign>,
    pub(super) has_noticed_foreign: [bool; 2],
    /// Whether it was said that routes of a family are left out.
    pub(super) has_noticed_family: bool,
    /// Prefixes whose winner is not in the RIB, since the engine has refused it.
    refused: FxHashSet<IpPrefix>,
    /// Groups of these prefixes that are to be tried.
    groups: VecDeque<Vec<IpPrefix>>,
    round: Option<Round>,
    /// How long a round takes.
    pub(super) round_max: Duration,
    /// When the next round begins.
    pub(super) due: Option<Instant>,
    /// Next hops that no route uses.
    pub(super) unused: Unused,
    /// The last refusal, and how many prefixes were refused when that was last a notice.
    why: String,
    noticed: usize,
}

/// What may still be tried.
#[derive(Debug)]
struct Round {
    tries_left: u32,
    end: Instant,
}

impl Changes {
    /// None yet, of a table of so many next hops.
    pub(super) fn new(hops: usize) -> Self {
        Self {
            unused: Unused::new(hops),
            marked: Vec::new(),
            fresh: 0,
            per_commit: PREFIXES_PER_COMMIT,
            uncommitted: Vec::new(),
            updates: 0,
            own: Vec::new(),
            has_moved: false,
            foreign: Vec::new(),
            has_noticed_foreign: [false; 2],
            has_noticed_family: false,
            refused: FxHashSet::default(),
            groups: VecDeque::new(),
            round: None,
            round_max: ROUND_MAX,
            due: None,
            why: String::new(),
            noticed: 0,
        }
    }

    /// Whether anything has changed since the last commit.
    pub(super) fn is_any(&self) -> bool {
        self.updates > 0 || !self.uncommitted.is_empty()
    }

    /// A prefix may have another winner than the route in the RIB.
    pub(super) fn mark(&mut self, prefix: IpPrefix) {
        self.marked.push(prefix);
        self.fresh += 1;
    }

    /// Marks many prefixes, which wait for those that are marked one at a time.
    pub(super) fn mark_all(&mut self, mut prefixes: Vec<IpPrefix>) {
        if prefixes.is_empty() {
            return;
        }
        let mut fresh = self.marked.split_off(self.marked.len() - self.fresh);
        if !self.marked.is_empty() {
            // Families that come and go make the list no longer.
            prefixes.append(&mut self.marked);
            prefixes.sort_unstable();
            prefixes.dedup();
        }
        prefixes.append(&mut fresh);
        self.marked = prefixes;
    }

    /// How many prefixes may be marked that are all chosen for the next commit.
    fn room(&self) -> usize {
        self.per_commit.saturating_sub(self.marked.len() - self.fresh)
    }

    /// The prefixes to choose for the next commit.
    fn take_marked(&mut self) -> Vec<IpPrefix> {
        let count = std::mem::take(&mut self.fresh) + self.per_commit;
        let taken = self.marked.split_off(self.marked.len().saturating_sub(count));
        if self.marked.is_empty() {
            self.marked = Vec::new(); // it may have been as long as a full table
        }
        taken
    }

    /// The prefixes whose winner the engine has refused.
    pub(super) fn refused(&self) -> impl ExactSizeIterator<Item = IpPrefix> {
        self.refused.iter().copied()
    }

    /// All that was refused is tried again soon, since there is another engine.
    pub(super) fn hurry(&mut self) {
        if !self.refused.is_empty() {
            self.groups.clear();
            (self.round, self.due) = (None, Some(Instant::now()));
        }
    }

    /// Whether there may be a group to try.
    pub(super) fn is_due(&self) -> bool {
        self.round.is_some() || self.due.is_some_and(|due| due <= Instant::now())
    }

    /// The prefixes of the next group to try, if it is time.
    fn next_group(&mut self) -> Option<Vec<IpPrefix>> {
        let now = Instant::now();
        if self.due.take_if(|due| *due <= now).is_some() {
            self.begin_round(now);
            if self.groups.is_empty() {
                self.groups.push_back(self.refused.iter().copied().collect());
            }
        }
        let round = self.round.as_mut()?;
        while round.tries_left > 0 && now < round.end {
            let Some(mut group) = self.groups.pop_front() else { break };
            group.retain(|prefix| self.refused.contains(prefix));
            if !group.is_empty() {
                round.tries_left -= 1;
                return Some(group);
            }
        }
        self.end_round(now);
        None
    }

    /// Begins a round, unless one is under way.
    fn begin_round(&mut self, now: Instant) {
        let round = Round { tries_left: TRIES, end: now + self.round_max };
        self.round.get_or_insert(round);
    }

    fn end_round(&mut self, now: Instant) {
        self.round = None;
        let refused = self.refused.len();
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
    /// Brings all changes into service: first the egress table with the new next hops, then the routes to them, so that no lcore
    /// gets an id that is not in its egress table. Returns the generation that has all changes.
    ///
    /// # Errors
    /// [`EgressError`](crate::datapath::EgressError) for a next hop that refers to a port which does not exist, and the engine's errors.
    /// The routes in service are then unchanged.
    pub(crate) fn commit(&mut self) -> anyhow::Result<Generation> {
        let egress = self.refresh_egress();
        let updates = std::mem::take(&mut self.changes.updates);
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
            let egress = self.refresh_egress();
            self.drop_unused_hops();
            egress?;
            return Err(error);
        }
        self.candidates.settle();
        for prefix in self.changes.uncommitted.drain(..) {
            if !self.changes.refused.contains(&prefix) {
                self.candidates.forget(prefix);
            }
        }
        self.tally.updates += updates;
        self.drop_unused_hops();
        let generation = self.engine.writer.generation();
        if updates > 0 {
            notice::debug(format_args!(
                "VRF {}: {updates} updates, generation {}",
                self.name(),
                generation.0
            ));
        }
        Ok(generation)
    }

    /// The changes since the last commit were refused, and the RIB is as it was before.
    fn take_back(&mut self, error: &anyhow::Error) {
        self.candidates.roll_back();
        let mut refused = Vec::new();
        for prefix in std::mem::take(&mut self.changes.uncommitted) {
            let Some(Winner { id, .. }) = self.candidates.winner(prefix) else { continue };
            if id == self.route(prefix) {
                self.changes.refused.remove(&prefix);
                self.candidates.forget(prefix);
            } else if self.changes.refused.insert(prefix) {
                refused.push((prefix, id));
            }
        }
        if refused.is_empty() {
            return;
        }
        let changes = &mut self.changes;
        changes.why = format!("{error:#}");
        // What is withdrawn first: it makes room.
        refused.sort_by_key(|(_, id)| !id.is_none());
        if refused.len() > 1 {
            let (first, second) = refused.split_at(refused.len() / 2);
            for half in [first, second] {
                changes.groups.push_back(half.iter().map(|(prefix, _)| *prefix).collect());
            }
        }
        if changes.due.is_none() {
            changes.begin_round(Instant::now());
        }
    }

    /// Puts a winner into the RIB; in service after the next commit. A prefix that is refused waits for its turn, unless `at_once` or nothing
    /// is left to be forwarded. Returns whether the RIB had another route.
    pub(super) fn put(&mut self, prefix: IpPrefix, winner: Winner, at_once: bool) -> bool {
        let is_other = winner.id != self.route(prefix);
        if !is_other || at_once || winner.id.is_none() {
            self.changes.refused.remove(&prefix);
        } else if self.changes.refused.contains(&prefix) {
            return false;
        }
        if is_other {
            self.notice(prefix, &winner);
            self.set_route(prefix, winner.id);
        }
        // Its entry may end with the commit.
        self.changes.uncommitted.push(prefix);
        is_other
    }

    /// Puts the winner of a prefix into the RIB. Returns whether that had another route.
    pub(super) fn choose(&mut self, prefix: IpPrefix, at_once: bool) -> bool {
        self.candidates.winner(prefix).is_some_and(|winner| self.put(prefix, winner, at_once))
    }

    /// Chooses the winners of marked prefixes and commits them, as many as one commit may hold, and tries a group of refused ones again if it
    /// is time. Returns whether there was anything to do.
    pub(crate) fn drain(&mut self, interfaces: Option<&Interfaces>) -> bool {
        let had_updates = self.has_updates();
        self.commit_updates();
        if let Some(interfaces) = interfaces.filter(|_| std::mem::take(&mut self.changes.has_moved)) {
            let Self { hops, candidates, .. } = self;
            candidates.resolve_anew(|wanted| next_hop(&wanted, interfaces, hops));
            self.neighbours_have_changed();
        }
        // Next hops that are new have an entry before it is asked whether they can forward.
        self.refresh_stale_egress();
        self.changes.mark_all(self.candidates.walk(self.changes.room()));
        let marked = self.changes.take_marked();
        for prefix in &marked {
            self.candidates.drop_swept(*prefix);
            self.changes.updates += u64::from(self.choose(*prefix, false));
        }
        let has_changes = !marked.is_empty() || self.changes.is_any();
        if has_changes
            && let Err(error) = self.commit()
            && self.changes.refused().len() == 0
        {
            notice::warn(format_args!("{error:#}"));
        }
        let is_due = self.changes.is_due();
        self.try_again();
        had_updates || has_changes || is_due || self.has_marked()
    }

    /// Whether prefixes wait to be chosen.
    pub(crate) fn has_marked(&self) -> bool {
        !self.changes.marked.is_empty() || self.candidates.is_walking()
    }

    /// Whether prefixes wait to be chosen because of another order of sources.
    pub(crate) fn is_reordering(&self) -> bool {
        // A turn of a walk finds no more prefixes than the turn chooses.
        self.candidates.is_reordering()
    }

    /// Tries a group of prefixes again that the engine has refused, if it is time.
    pub(super) fn try_again(&mut self) {
        let Some(group) = self.changes.next_group() else { return };
        for prefix in group {
            self.changes.refused.remove(&prefix);
            self.choose(prefix, true);
        }
        // Its refusal is a notice at the end of the round.
        drop(self.commit());
    }
}
