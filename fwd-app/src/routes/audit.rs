//! `--audit` of a VRF: whether a sampled answer was right.

use super::Vrf;
use crate::datapath::audit::AuditSample;
use fib::NextHopId;
use lpm_core::pair::{FIRST, Why};

/// The default for a GPU engine, whose table is in the memory of a device that the host does not check.
const DEVICE_ONE_IN: u32 = 65_536;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuditOutcome {
    Right,
    /// The next hop of the longest route, which the answer was not.
    Wrong(NextHopId),
    /// It may be the answer of another generation.
    Skipped,
}

impl Vrf {
    /// Samples one key in `one_in`, or none for 0; `None` selects the default of the engine.
    pub(crate) fn set_audit(&mut self, one_in: Option<u32>) {
        self.audit_wanted = one_in;
        self.follow_audit();
    }

    /// To be called when the engine has changed.
    pub(super) fn follow_audit(&self) {
        let suits = || if self.engine.spec.drives_gpu() { DEVICE_ONE_IN } else { 0 };
        self.audit.set_one_in(self.audit_wanted.unwrap_or_else(suits));
    }

    /// Puts the fallback in service, if there is one. Samples from before are not judged: they would count for the fallback.
    pub(crate) fn leave_engine(&self, why: Why) {
        if let Some(service) = &self.engine.failover {
            // It fails only for the last engine in service, and the fallback remains.
            self.audit.during(|| drop(service.fail(FIRST, why)));
        }
    }

    /// Compares an answer with the RIB, which has the routes of the engine if no change is pending. Stages that stop may still ask the
    /// previous engine, which gets no more changes.
    pub(crate) fn judge(&self, sample: &AuditSample) -> AuditOutcome {
        if self.rib.has_changes() || self.engine.retired.is_some() || !self.audit.is_certain(sample) {
            return AuditOutcome::Skipped;
        }
        let right = self.rib.longest(sample.key).map_or(NextHopId::NONE, |(_, id)| id);
        if right == sample.answer { AuditOutcome::Right } else { AuditOutcome::Wrong(right) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::EngineSpec;
    use crate::routes::test_vrf::vrf;

    fn id(value: u32) -> NextHopId {
        NextHopId::new(value).unwrap()
    }

    #[test]
    fn an_answer_is_judged_by_the_routes_it_was_made_from_or_not_at_all() {
        let mut vrf = vrf();
        let key = "10.85.170.165".parse().unwrap();
        let judge = |vrf: &Vrf, changes, answer| {
            vrf.judge(&AuditSample { vrf: 0, key, answer: id(answer), changes: [changes; 2] })
        };
        assert_eq!(judge(&vrf, 0, 64), AuditOutcome::Right);
        assert_eq!(judge(&vrf, 0, 1), AuditOutcome::Wrong(id(64)));
        vrf.set_route("10.85.170.165/32".parse().unwrap(), id(1));
        assert_eq!([64, 1].map(|answer| judge(&vrf, 0, answer)), [AuditOutcome::Skipped; 2], "it is pending");
        vrf.commit().unwrap();
        assert_eq!([64, 1].map(|answer| judge(&vrf, 0, answer)), [AuditOutcome::Skipped; 2], "it was before");
        assert_eq!(judge(&vrf, 2, 1), AuditOutcome::Right);
        assert_eq!(judge(&vrf, 2, 64), AuditOutcome::Wrong(id(1)));
        vrf.engine.retired = Some(EngineSpec::named("oracle").make_with_fallback().unwrap().engine);
        assert_eq!(judge(&vrf, 2, 64), AuditOutcome::Skipped);
    }

    #[test]
    fn the_rate_follows_the_engine_unless_it_is_set() {
        let mut vrf = vrf();
        assert_eq!(vrf.audit.one_in(), 0);
        vrf.engine.spec.name = "gamt".to_owned();
        vrf.follow_audit();
        assert_eq!(vrf.audit.one_in(), 65_536);
        for one_in in [7, 0] {
            vrf.set_audit(Some(one_in));
            assert_eq!(vrf.audit.one_in(), one_in);
        }
    }
}
