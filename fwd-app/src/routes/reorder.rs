//! Another order of sources while packets flow: the winner of each prefix is chosen anew, a slice in each turn.
//!
//! What sources say from then on is weighed by the new order. The routes in service follow in order of their prefixes, so a slice needs no
//! list of them: the next one starts after the prefix at which the one before ended. A route gives way to another one in one delta, so
//! that no address is without a route between. When the engine refuses a slice, the order becomes what it was before, and the routes with
//! it.

use super::Vrf;
use super::candidates::SourceId;
use fib::{IpPrefix, Prefix};

/// How many routes are looked at in a turn: some milliseconds of work, with an engine that has all of them to change.
const SLICE: usize = 1 << 14;

/// The routes of all VRFs on their way to what another order of sources makes of them.
pub(crate) struct Reordering {
    /// The order before, for when the engine refuses the new one.
    before: Vec<SourceId>,
    /// The VRF that is next.
    number: usize,
    /// The prefix of it after which the next slice starts; `None` at its start.
    after: Option<IpPrefix>,
    pub(super) slice: usize,
    /// How many routes have changed.
    changed: u64,
    /// Why the order becomes that of before.
    refusal: Option<anyhow::Error>,
}

impl Reordering {
    /// The order of `vrfs` is `order` from now on, in place of `before`; [`Self::turn`] brings the routes into service.
    pub(crate) fn new(order: &[SourceId], before: Vec<SourceId>, vrfs: &mut [Vrf]) -> Self {
        vrfs.iter_mut().for_each(|vrf| vrf.candidates.set_order(order));
        Self { before, number: 0, after: None, slice: SLICE, changed: 0, refusal: None }
    }

    /// The order before.
    pub(crate) fn before(&self) -> &[SourceId] {
        &self.before
    }

    /// Does a slice of the work. Returns how many routes have changed when all is done.
    ///
    /// # Errors
    /// As [`Vrf::commit`], when the order and the routes are as before.
    pub(crate) fn turn(&mut self, vrfs: &mut [Vrf]) -> Option<anyhow::Result<u64>> {
        let Some(vrf) = vrfs.get_mut(self.number) else {
            return Some(self.refusal.take().map_or(Ok(self.changed), Err));
        };
        // What files have changed is committed before, so that a refusal is about the order.
        vrf.commit_updates();
        let (changed, ended_at) = vrf.choose_slice_again(self.after, self.slice);
        match vrf.commit() {
            Err(error) if self.refusal.is_none() => {
                vrfs.iter_mut().for_each(|vrf| vrf.candidates.set_order(&self.before));
                (self.refusal, self.number, self.after) = (Some(error), 0, None);
            }
            // On the way back what is refused is tried again by the VRF.
            result => {
                self.changed += if result.is_ok() { changed } else { 0 };
                self.number += usize::from(ended_at.is_none());
                self.after = ended_at;
            }
        }
        None
    }
}

impl Vrf {
    /// Chooses the winners anew of `count` prefixes after one, or from the first one on. Returns how many are others than the routes in
    /// service, and the last prefix, unless it was the last one of all.
    fn choose_slice_again(&mut self, after: Option<IpPrefix>, count: usize) -> (u64, Option<IpPrefix>) {
        let start = after.unwrap_or(IpPrefix::V4(Prefix::DEFAULT));
        let ahead = self.rib.starting_at(start).map(|(prefix, _)| prefix);
        let some: Vec<_> = ahead.filter(|prefix| Some(*prefix) != after).take(count).collect();
        let changed = some.iter().filter(|prefix| self.choose(**prefix, false)).count();
        (changed as u64, some.last().copied().filter(|_| some.len() == count))
    }
}
