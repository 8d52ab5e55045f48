//! Prefixes whose winner the engine has refused, and when to retry them.
//!
//! An engine refuses a delta as a whole, without naming a route; the RIB is then rolled back. Files and the control socket get the error and
//! lose their changes; routes of feeds and addresses stay candidates, since these do not repeat them. Prefixes whose winner is not in the RIB
//! are retried in groups, one group a commit, apart from other changes, which would be refused with them. A refused group is halved, so that
//! in the end only single routes are refused. Withdrawals are not delayed. After [`TRIES`] groups or [`ROUND_MAX`], the rest waits for
//! [`PAUSE`] and goes first in the next round. When no group is left, all refused prefixes form one group again.

use crate::notice;
use fib::IpPrefix;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most groups tried in a round. One refused route among ten thousand takes 28.
const TRIES: u32 = 64;
/// Duration of a round, without its last group: an engine may need a second to find that a table does not fit.
const ROUND_MAX: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Refused {
    pub(super) prefixes: FxHashSet<IpPrefix>,
    pub(super) groups: VecDeque<Vec<IpPrefix>>,
    round: Option<Round>,
    pub(super) round_max: Duration,
    /// When the next round begins.
    pub(super) due: Option<Instant>,
    /// The last refusal, and the number of refused prefixes at the last notice.
    pub(super) why: String,
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
    pub(super) fn retry_now(&mut self) {
        if !self.prefixes.is_empty() {
            self.groups.clear();
            (self.round, self.due) = (None, Some(Instant::now()));
        }
    }

    pub(super) fn is_due(&self) -> bool {
        self.round.is_some() || self.due.is_some_and(|due| due <= Instant::now())
    }

    /// The next group to try, if a round is running or due.
    pub(super) fn next_group(&mut self) -> Option<Vec<IpPrefix>> {
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

    pub(super) fn begin_round(&mut self, now: Instant) {
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
