//! 8-bit codes of next hops in the paper's layout, from 1. A lookup returns a code, and the host resolves it. So an unused
//! code keeps its next hop until no lookup in flight can return it; if the next hop returns before, it gets the same code.

use crate::host::Answers;
use fib::loads::Loads;
use fib::{Change, EngineError, NextHopId};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The largest code, so the limit of next hops.
pub(super) const CODE_MAX: usize = 255;

/// Next hop of each code, shared with readers; 0 is "no route".
#[derive(Debug)]
pub(crate) struct CodeAnswers([AtomicU32; CODE_MAX + 1]);

impl CodeAnswers {
    fn store(&self, code: u32, next_hop: NextHopId) {
        let place = &self.0[code as usize];
        place.store(next_hop.get(), Ordering::Release);
        #[cfg(test)]
        fib::stores::report(fib::stores::Event::Stored(fib::loads::Place::from_ref(place)));
    }

    #[inline(always)]
    pub(crate) fn get<L: Loads>(&self, raw: u32, loads: &mut L) -> Result<NextHopId, L::Stop> {
        loads.word(&self.0[raw as usize & CODE_MAX]).map(NextHopId::from_answer)
    }
}

impl Answers<u32> for CodeAnswers {
    fn resolve(&self, _low: &[u64], answers: &mut [u32]) {
        for answer in answers {
            let Ok(next_hop) = self.get(*answer, &mut fib::loads::Plain);
            *answer = next_hop.get();
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct CodeUse {
    next_hop: NextHopId,
    routes: u32,
    /// With no routes, reusable once lookups before this update are over; 0 if the device never had it, `u64::MAX` while it does.
    unused_from: u64,
}

#[derive(Debug)]
pub(super) struct HopCodes {
    by_id: FxHashMap<NextHopId, u32>,
    /// Code `n` is at `n - 1`.
    uses: Vec<CodeUse>,
    over: u64,
    shared: Arc<CodeAnswers>,
}

impl HopCodes {
    pub(super) fn new() -> Self {
        let shared = Arc::new(CodeAnswers([const { AtomicU32::new(0) }; CODE_MAX + 1]));
        Self { by_id: FxHashMap::default(), uses: Vec::new(), over: 0, shared }
    }

    pub(super) fn shared(&self) -> Arc<CodeAnswers> {
        Arc::clone(&self.shared)
    }

    /// The code of a next hop; 0 is "no route".
    pub(super) fn code(&self, next_hop: NextHopId) -> u32 {
        self.by_id.get(&next_hop).copied().unwrap_or(0)
    }

    /// Counts changes: new next hops take codes before old ones release theirs. [`EngineError::Full`] leaves all unchanged.
    pub(super) fn count(&mut self, changes: &[Change<u32>]) -> Result<(), EngineError> {
        for (at, change) in changes.iter().enumerate() {
            if !change.withdraws() && !self.assign_code(change.new) {
                changes[..at].iter().for_each(|change| self.release(change.new));
                let what = "next hops of sail-gpu layout=paper, including those of lookups in flight";
                return Err(EngineError::Full { what, used: CODE_MAX as u64 + 1, limit: CODE_MAX as u64 });
            }
        }
        changes.iter().for_each(|change| self.release(change.old));
        Ok(())
    }

    fn assign_code(&mut self, next_hop: NextHopId) -> bool {
        if let Some(code) = self.by_id.get(&next_hop) {
            self.uses[*code as usize - 1].routes += 1;
            return true;
        }
        let over = self.over;
        let taken = CodeUse { next_hop, routes: 1, unused_from: 0 };
        let at = if self.uses.len() < CODE_MAX {
            self.uses.push(taken);
            self.uses.len() - 1
        } else if let Some(at) = self.uses.iter().position(|one| one.routes == 0 && one.unused_from <= over) {
            self.by_id.remove(&std::mem::replace(&mut self.uses[at], taken).next_hop);
            at
        } else {
            return false;
        };
        let code = u32::try_from(at + 1).unwrap_or(0);
        self.by_id.insert(next_hop, code);
        self.shared.store(code, next_hop);
        true
    }

    fn release(&mut self, next_hop: NextHopId) {
        if let Some(code) = self.by_id.get(&next_hop) {
            self.uses[*code as usize - 1].routes -= 1;
        }
    }

    pub(super) fn publish(&mut self, update: u64) {
        for one in &mut self.uses {
            if one.routes > 0 {
                one.unused_from = u64::MAX;
            } else if one.unused_from == u64::MAX {
                one.unused_from = update;
            }
        }
    }

    pub(super) fn reclaim(&mut self, update: u64) {
        self.over = self.over.max(update);
    }

    pub(super) fn bytes(&self) -> u64 {
        let by_id = self.by_id.capacity() * size_of::<(NextHopId, u32)>();
        (by_id + self.uses.capacity() * size_of::<CodeUse>() + size_of::<CodeAnswers>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::Prefix4;

    fn change(old: u32, new: u32) -> Change<u32> {
        let prefix = Prefix4::truncating(new << 8 | old, 32);
        let [old, new] = [old, new].map(NextHopId::from_answer);
        Change { prefix, old, new }
    }

    #[test]
    fn a_code_goes_to_another_next_hop_when_no_lookup_can_have_it() {
        let mut codes = HopCodes::new();
        let id = NextHopId::from_answer;
        let all: Vec<_> = (1..=255).map(|next_hop| change(0, 1000 + next_hop)).collect();
        codes.count(&all).unwrap();
        codes.publish(1);
        let Err(EngineError::Full { used, limit, .. }) = codes.count(&[change(1001, 7)]) else { panic!() };
        assert_eq!((used, limit), (256, 255));
        // The route's code is unused from the next update on, and reusable when that is over.
        codes.count(&[change(1001, 0)]).unwrap();
        assert!(codes.count(&[change(0, 7)]).is_err());
        codes.publish(2);
        codes.reclaim(1);
        assert!(codes.count(&[change(0, 7)]).is_err());
        codes.reclaim(2);
        let before = codes.code(id(1001));
        codes.count(&[change(0, 7)]).unwrap();
        assert_eq!((codes.code(id(7)), codes.code(id(1001))), (before, 0));
        // A code that the device never had is free at once.
        codes.count(&[change(7, 0)]).unwrap();
        codes.count(&[change(0, 8)]).unwrap();
        assert_eq!(codes.code(id(8)), before);
        let mut answers = [0, before];
        codes.shared().resolve(&[], &mut answers);
        assert_eq!(answers, [0, 8]);
    }

    #[test]
    fn a_next_hop_that_comes_back_has_its_code_again() {
        let mut codes = HopCodes::new();
        codes.count(&[change(0, 5), change(0, 6)]).unwrap();
        let code = codes.code(NextHopId::from_answer(5));
        codes.publish(1);
        codes.count(&[change(5, 0)]).unwrap();
        codes.publish(2);
        codes.count(&[change(0, 5)]).unwrap();
        codes.publish(3);
        codes.reclaim(3);
        assert_eq!(codes.code(NextHopId::from_answer(5)), code);
    }
}
