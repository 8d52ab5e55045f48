//! `--audit`: compares sampled answers of the lcores with the RIB, between other work of the control thread.

use super::{Forwarder, vrf_label};
use crate::datapath::audit::{AuditRing, AuditSample, SAMPLES};
use crate::notice;
use crate::routes::audit::AuditOutcome;
use lpm_core::pair::Why;
use serde::Serialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct AuditCounts {
    /// Samples that were compared.
    pub(crate) checked: u64,
    /// Samples that were not compared: the routes had changed, or the control thread was late.
    pub(crate) skipped: u64,
    pub(crate) wrong: u64,
}

impl Forwarder {
    /// Calls [`Vrf::set_audit`](crate::routes::Vrf::set_audit) for all VRFs.
    pub(crate) fn set_audit(&mut self, one_in: Option<u32>) {
        self.vrfs.iter_mut().for_each(|vrf| vrf.set_audit(one_in));
    }

    /// Compares the samples of each stage, at most as many as fit its ring. Returns whether more may be waiting.
    pub(crate) fn audit(&mut self) -> bool {
        let running = self.running.clone();
        let mut is_left = false;
        for ring in running.audits() {
            let taken = std::iter::from_fn(|| ring.take()).take(SAMPLES);
            is_left |= taken.map(|sample| self.judge(&sample)).count() == SAMPLES;
        }
        is_left
    }

    fn judge(&mut self, sample: &AuditSample) {
        let AuditSample { vrf, key, answer, .. } = *sample;
        let (is_alone, vrf, counts) = (self.vrfs.len() == 1, &self.vrfs[vrf], &mut self.audited);
        let right = match vrf.judge(sample) {
            AuditOutcome::Skipped => return counts.skipped += 1,
            AuditOutcome::Right => return counts.checked += 1,
            AuditOutcome::Wrong(right) => right,
        };
        counts.checked += 1;
        counts.wrong += 1;
        let ports = self.ports.load();
        let hop = |id| match vrf.hops().get(id) {
            Some(hop) => format!("next hop {id} ({})", ports.shown(hop)),
            None if id.is_none() => "no route".to_owned(),
            None => format!("next hop {id}"),
        };
        let place = if is_alone { String::new() } else { format!("{}: ", vrf_label(&vrf.name)) };
        notice::error(format_args!(
            "{place}engine {} answered {key} wrong: {}, and right is {}",
            vrf.engine().info().name,
            hop(answer),
            hop(right)
        ));
        vrf.leave_engine(Why::Wrong { key, answer, right });
    }

    /// The counts of all VRFs since the start.
    pub(crate) fn audit_counts(&self) -> AuditCounts {
        let lost: u64 = self.running.audits().map(AuditRing::lost).sum();
        AuditCounts { skipped: self.audited.skipped + lost, ..self.audited }
    }
}
