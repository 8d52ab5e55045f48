//! Changes of feeds that the engine refuses: the others of their commit go in, and they are tried again.
//!
//! An engine takes a delta or refuses it as a whole, and does not say because of which route. So the changes of a refused commit are tried
//! again in groups, each with a commit of its own. A group that is refused becomes two of half its size; what is left at last are the
//! routes that are refused by themselves, and all others are in service.
//!
//! Work is bounded: the control thread tries one group a turn, and does other work between two turns. After [`TRIES`] groups, or
//! [`ROUND_MAX`], it waits for [`PAUSE`]. The groups that are left are the first of the next round, so each has its turn. When none is left,
//! all changes that were refused are one group again. A route that waits here is not part of other commits, so it cannot have them
//! refused.

use crate::notice;
use fib::{IpPrefix, NextHopId};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Groups that are tried in a round, at most. One refused route among ten thousand takes 28.
const TRIES: u32 = 64;
/// How long a round takes, but for its last group: an engine may need a second to find that a table does not fit.
const ROUND_MAX: Duration = Duration::from_secs(1);
/// How long until the next round.
const PAUSE: Duration = Duration::from_secs(5);

/// Changes of feeds that the engine has refused, and those that it is about to get.
#[derive(Debug)]
pub(in crate::control::session) struct Retry {
    /// The route that the RIB should have, of each prefix whose change was refused.
    wanted: FxHashMap<IpPrefix, NextHopId>,
    /// Groups of these prefixes that are to be tried.
    groups: VecDeque<Vec<IpPrefix>>,
    round: Option<Round>,
    /// How long a round takes.
    pub(super) round_max: Duration,
    /// When the next round begins.
    pub(super) due: Option<Instant>,
    /// Changes of feeds since the last commit.
    told: Vec<(IpPrefix, NextHopId)>,
    /// Entries of `wanted` in whose place other sources have put a route since the last commit.
    replaced: Vec<(IpPrefix, NextHopId)>,
    /// The last refusal, and how many changes were refused when that was last a notice.
    why: String,
    noticed: usize,
}

/// What may still be tried.
#[derive(Debug)]
struct Round {
    tries_left: u32,
    end: Instant,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            wanted: FxHashMap::default(),
            groups: VecDeque::new(),
            round: None,
            round_max: ROUND_MAX,
            due: None,
            told: Vec::new(),
            replaced: Vec::new(),
            why: String::new(),
            noticed: 0,
        }
    }
}

impl Retry {
    /// The route that the RIB should have, if its change was refused.
    pub(super) fn wanted(&self, prefix: IpPrefix) -> Option<NextHopId> {
        self.wanted.get(&prefix).copied()
    }

    /// How many changes were refused and not taken since.
    pub(super) fn len(&self) -> usize {
        self.wanted.len()
    }

    /// The next hops that changes which were refused need.
    pub(super) fn ids(&self) -> impl Iterator<Item = NextHopId> {
        self.wanted.values().copied()
    }

    /// A change of a feed that is in the RIB now, and part of the next commit.
    pub(super) fn tell(&mut self, prefix: IpPrefix, id: NextHopId) {
        self.told.push((prefix, id));
    }

    /// The change of `prefix`, which was refused, is another one by now. It waits for its turn.
    pub(super) fn change(&mut self, prefix: IpPrefix, id: NextHopId) {
        self.wanted.insert(prefix, id);
    }

    /// The RIB has what the feeds say of `prefix`.
    pub(super) fn is_settled(&mut self, prefix: IpPrefix) {
        self.wanted.remove(&prefix);
    }

    /// Another source has put a route in the place of the one that waits, unless the next commit is refused.
    pub(super) fn replace(&mut self, prefix: IpPrefix) {
        self.replaced.extend(self.wanted.remove_entry(&prefix));
    }

    /// The changes since the last commit are in service.
    pub(in crate::control::session) fn settle(&mut self) {
        self.replaced.clear();
        for (prefix, _) in self.told.drain(..) {
            self.wanted.remove(&prefix);
        }
    }

    /// The changes since the last commit were refused.
    pub(in crate::control::session) fn refuse(&mut self, error: &anyhow::Error) {
        self.wanted.extend(self.replaced.drain(..));
        if self.told.is_empty() {
            return;
        }
        self.why = format!("{error:#}");
        // What is withdrawn first: it makes room.
        self.told.sort_by_key(|(_, id)| !id.is_none());
        if self.told.len() > 1 {
            let (first, second) = self.told.split_at(self.told.len() / 2);
            for half in [first, second] {
                self.groups.push_back(half.iter().map(|(prefix, _)| *prefix).collect());
            }
        }
        self.wanted.extend(self.told.drain(..));
        if self.due.is_none() {
            self.begin_round(Instant::now());
        }
    }

    /// All that was refused is tried again soon, since there is another engine.
    pub(in crate::control::session) fn hurry(&mut self) {
        if !self.wanted.is_empty() {
            self.groups.clear();
            (self.round, self.due) = (None, Some(Instant::now()));
        }
    }

    /// Whether there may be a group to try.
    pub(super) fn is_due(&self) -> bool {
        self.round.is_some() || self.due.is_some_and(|due| due <= Instant::now())
    }

    /// The prefixes of the next group to try, if it is time.
    pub(super) fn next_group(&mut self) -> Option<Vec<IpPrefix>> {
        let now = Instant::now();
        if self.due.take_if(|due| *due <= now).is_some() {
            self.begin_round(now);
            if self.groups.is_empty() {
                self.groups.push_back(self.wanted.keys().copied().collect());
            }
        }
        let round = self.round.as_mut()?;
        while round.tries_left > 0 && now < round.end {
            let Some(mut group) = self.groups.pop_front() else { break };
            group.retain(|prefix| self.wanted.contains_key(prefix));
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
        let refused = self.wanted.len();
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
