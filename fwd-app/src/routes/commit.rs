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
use crate::notice;
use fib::{Generation, IpPrefix, NextHopId, Rib};
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

/// Prefixes that may have another winner than the route in the RIB.
#[derive(Debug)]
pub(crate) struct Marked {
    /// The last `fresh` ones were marked one at a time since some were taken.
    prefixes: Vec<IpPrefix>,
    fresh: usize,
    /// How many of the others are taken at once.
    pub(super) per_commit: usize,
}

impl Default for Marked {
    fn default() -> Self {
        Self { prefixes: Vec::new(), fresh: 0, per_commit: PREFIXES_PER_COMMIT }
    }
}

impl Marked {
    /// Whether prefixes wait.
    pub(crate) fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Marks a prefix, which waits for no other one.
    pub(super) fn mark(&mut self, prefix: IpPrefix) {
        self.prefixes.push(prefix);
        self.fresh += 1;
    }

    /// Marks many prefixes, which wait for those that are marked one at a time.
    pub(super) fn mark_all(&mut self, mut prefixes: Vec<IpPrefix>) {
        if prefixes.is_empty() {
            return;
        }
        let mut fresh = self.prefixes.split_off(self.prefixes.len() - self.fresh);
        if !self.prefixes.is_empty() {
            // Families that come and go make the list no longer.
            prefixes.append(&mut self.prefixes);
            prefixes.sort_unstable();
            prefixes.dedup();
        }
        prefixes.append(&mut fresh);
        self.prefixes = prefixes;
    }

    /// How many prefixes may be marked at once that the next commit takes all.
    pub(super) fn room(&self) -> usize {
        self.per_commit.saturating_sub(self.prefixes.len() - self.fresh)
    }

    /// Takes the prefixes of one commit.
    pub(super) fn take(&mut self) -> Vec<IpPrefix> {
        let count = std::mem::take(&mut self.fresh) + self.per_commit;
        let taken = self.prefixes.split_off(self.prefixes.len().saturating_sub(count));
        if self.prefixes.is_empty() {
            self.prefixes = Vec::new(); // it may have been as long as a full table
        }
        taken
    }
}

/// The prefixes whose winner the engine has refused, and when they are tried again.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Their winner is not in the RIB.
    prefixes: FxHashSet<IpPrefix>,
    /// Groups of these prefixes that are to be tried.
    groups: VecDeque<Vec<IpPrefix>>,
    round: Option<Round>,
    /// How long a round takes.
    pub(super) round_max: Duration,
    /// When the next round begins.
    pub(super) due: Option<Instant>,
    /// The last refusal, and how many prefixes were refused when that was last a notice.
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

/// The tries that are left.
#[derive(Debug)]
struct Round {
    tries_left: u32,
    end: Instant,
}

impl Refused {
    /// How many prefixes have a winner that the engine has refused.
    pub(crate) fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// These prefixes.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = IpPrefix> {
        self.prefixes.iter().copied()
    }

    /// All that was refused is tried again soon, since there is another engine.
    pub(super) fn hurry(&mut self) {
        if !self.prefixes.is_empty() {
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

    /// Begins a round, unless one is under way.
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
    /// Brings all changes into service: first the egress table with the new next hops, then the routes to them, so that no lcore
    /// gets an id that is not in its egress table. Returns the generation that has all changes.
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

    /// The changes since the last commit were refused, and the RIB is as it was before.
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
        // What is withdrawn first: it makes room.
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

    /// Puts the winner of a prefix into the RIB; in service after the next commit. A prefix that is refused waits for its turn, unless
    /// `at_once` or nothing is left to be forwarded. Returns whether the RIB had another route.
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
        // Its entry may end with the commit.
        self.uncommitted.push(prefix);
        is_other
    }

    /// Chooses the winners of marked prefixes and commits them, as many as one commit may hold, and tries a group of refused ones again if it
    /// is time. Returns whether there was anything to do.
    pub(crate) fn drain(&mut self, interfaces: Option<&Interfaces>) -> bool {
        let had_updates = self.updates > 0;
        self.commit_updates();
        let Self { rib, egress, candidates, .. } = self;
        if let Some(interfaces) = interfaces.filter(|_| std::mem::take(&mut egress.has_moved)) {
            candidates.routes.resolve_anew(|wanted| egress.next_hop(&wanted, interfaces));
            egress.neighbours_have_changed();
        }
        // Next hops that are new have an entry before it is asked whether they can forward.
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

    /// Tries a group of prefixes again that the engine has refused, if it is time.
    pub(super) fn try_again(&mut self) {
        let Some(group) = self.refused.next_group() else { return };
        for prefix in group {
            self.refused.prefixes.remove(&prefix);
            self.choose(prefix, true);
        }
        // Its refusal is a notice at the end of the round.
        drop(self.commit());
    }

    /// Sets a route in the RIB; [`NextHopId::NONE`] removes it. Returns the earlier one. All changes of the RIB go through here.
    pub(super) fn set_route(&mut self, prefix: IpPrefix, id: NextHopId) -> NextHopId {
        if let Some(building) = &mut self.engine.building {
            building.changed.insert(prefix);
        }
        self.rib.set(prefix, id)
    }

    /// The route of a prefix in the RIB.
    pub(super) fn route(&self, prefix: IpPrefix) -> NextHopId {
        route_in(&self.rib, prefix)
    }
}

/// The route of a prefix in a RIB.
pub(super) fn route_in(rib: &Rib, prefix: IpPrefix) -> NextHopId {
    match prefix {
        IpPrefix::V4(prefix) => rib.v4.get(prefix),
        IpPrefix::V6(prefix) => rib.v6.get(prefix),
    }
}
