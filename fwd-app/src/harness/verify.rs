//! `--verify`: each packet's result against the oracle: sent or dropped, by which port, with which bytes.
//!
//! Packets that arrive are compared byte for byte with what the reference makes of them. Packets that do not arrive are
//! judged in sum: each reason must have dropped as many as the oracle says, and packets missing beyond that must be
//! counted as `tx_full`. An engine that failed may have cost any packet that came as far as the lookup: those are counted as
//! `engine_stall`, whatever the oracle says of them. While routes change, any next hop that was in service between the feeding of a
//! packet and its arrival is right.

use super::history::History;
use super::reference::{Reference, Verdict, checked};
use super::trace::Trace;
use crate::datapath::{DropReason, Drops};
use crate::forwarder::updates::VrfUpdate;
use crate::notice::post;
use fib::{MacAddr, NextHopTable};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Mismatches that are described in notices; the rest is only counted.
const SHOWN: u64 = 5;

/// The references of all VRFs.
pub(crate) struct VrfReferences {
    /// By the number of the VRF: its routes, and what its next hops mean.
    pub(super) vrfs: Vec<(Reference, NextHopTable)>,
    /// The number of the VRF that each frame of the trace comes in.
    pub(super) vrf_of: Arc<[usize]>,
}

impl VrfReferences {
    /// `vrfs` by number; frame `i` of the trace comes in VRF `vrf_of[i]`.
    pub(crate) fn new(vrfs: Vec<(Reference, NextHopTable)>, vrf_of: Arc<[usize]>) -> Self {
        Self { vrfs, vrf_of }
    }

    /// Those of a frame of the trace.
    fn of(&self, frame: usize) -> &(Reference, NextHopTable) {
        &self.vrfs[self.vrf_of[frame]]
    }
}

/// See the module.
pub(crate) struct Verifier {
    tables: VrfReferences,
    /// By frame of the trace, with the routes as loaded.
    verdicts: Vec<Verdict>,
    /// What the updates change, if there are any.
    history: Option<Arc<History>>,
    /// Frames that came whole so far, by frame of the trace: sent packets.
    sent: Vec<u64>,
    /// Frames of the trace that leave as fragments with the routes as loaded: each fragment, and how often it came.
    pieces: FxHashMap<usize, Vec<(Vec<u8>, u64)>>,
    /// Frames of the trace that leave as fragments by a route that updates change: the most fragments of each.
    fragments_max: FxHashMap<usize, u64>,
    scratch: Vec<u8>,
    mismatches: u64,
    checked: u64,
}

/// Which packet: its number over all loops, and its frame of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) sequence: u64,
    pub(crate) frame: usize,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verified {
    /// Packets whose result was checked.
    pub(crate) checked: u64,
    /// Packets whose result was wrong.
    pub(crate) mismatches: u64,
}

impl Verifier {
    /// For `trace` and the routes of `tables`, which the update stream changes as often as `updates` says.
    ///
    /// # Errors
    /// As [`History::new`].
    pub(crate) fn new(
        mut tables: VrfReferences,
        trace: &Trace,
        updates: Option<(&[VrfUpdate], u64)>,
    ) -> anyhow::Result<Self> {
        let verdict = |frame| {
            let (reference, hops) = tables.of(frame);
            reference.verdict(trace.frame(frame), hops)
        };
        let verdicts: Vec<_> = (0..trace.len()).map(verdict).collect();
        let pieces = |(frame, verdict): (usize, &Verdict)| {
            let Verdict::Fragments { port, destination, ip_at, mtu_bytes } = *verdict else { return None };
            let (reference, _) = tables.of(frame);
            let pieces = reference.fragments(trace.frame(frame), port, destination, ip_at, mtu_bytes);
            Some((frame, pieces.into_iter().map(|piece| (piece, 0)).collect()))
        };
        let pieces = verdicts.iter().enumerate().filter_map(pieces).collect();
        let history = updates
            .map(|(updates, loops)| History::new(updates, loops, &mut tables, trace))
            .transpose()?
            .map(Arc::new);
        let fragments_max = history
            .as_ref()
            .map_or_else(FxHashMap::default, |history| fragments_max(history, &tables, trace));
        let (sent, scratch) = (vec![0; trace.len()], Vec::new());
        Ok(Self {
            tables,
            verdicts,
            history,
            sent,
            pieces,
            fragments_max,
            scratch,
            mismatches: 0,
            checked: 0,
        })
    }

    /// A packet has left by `port` with these bytes.
    ///
    /// `updates`: how many were certainly in service when it was fed, and how many may have been when it came.
    pub(crate) fn sent(&mut self, at: Sent, original: &[u8], port: usize, bytes: &[u8], updates: (u64, u64)) {
        let Sent { sequence, frame } = at;
        self.sent[frame] += 1;
        self.checked += 1;
        let verdict = self.verdicts[frame];
        let steady = self.history.as_ref().is_none_or(|history| !history.has_changes(frame));
        if steady && self.is_right(frame, verdict, original, port, bytes) {
            return;
        }
        if let Some(history) = &self.history
            && let Ok(checked) = checked(original)
            && Arc::clone(history).next_hops(frame, updates.0, updates.1).any(|id| {
                let (reference, hops) = self.tables.of(frame);
                let verdict = reference.verdict_by(original, checked, id, hops);
                self.is_right(frame, verdict, original, port, bytes)
            })
        {
            return;
        }
        self.mismatches += 1;
        if self.mismatches <= SHOWN {
            post(format_args!(
                "mismatch: packet {sequence} (frame {} of the trace) left by port {port}{}; the oracle says {verdict:?}{}",
                frame + 1,
                bytes.first_chunk().map_or_else(String::new, |mac| format!(" to {}", MacAddr(*mac))),
                self.in_between(frame, updates)
            ));
        }
    }

    /// For a message: what was right while updates came.
    fn in_between(&self, frame: usize, (low, high): (u64, u64)) -> String {
        let Some(history) = self.history.as_ref().filter(|history| history.has_changes(frame)) else {
            return String::new();
        };
        let ids: Vec<_> = history.next_hops(frame, low, high).map(|id| id.to_string()).collect();
        format!(", and between updates {low} and {high} next hops {}", ids.join(", "))
    }

    fn is_right(
        &mut self,
        frame: usize,
        verdict: Verdict,
        original: &[u8],
        port: usize,
        bytes: &[u8],
    ) -> bool {
        let (reference, _) = self.tables.of(frame);
        match verdict {
            Verdict::Tx { port: wanted, destination, ip_at } if wanted == port => {
                reference.rewrite(original, port, destination, ip_at, &mut self.scratch);
                self.scratch == bytes
            }
            Verdict::Fragments { port: wanted, .. } if wanted == port && verdict == self.verdicts[frame] => {
                let pieces = self.pieces.get_mut(&frame);
                let piece = pieces.and_then(|pieces| pieces.iter_mut().find(|(piece, _)| piece == bytes));
                piece.is_some_and(|(_, came)| {
                    *came += 1;
                    true
                })
            }
            // By another route than the one loaded.
            Verdict::Fragments { port: wanted, destination, ip_at, mtu_bytes } if wanted == port => {
                let pieces = reference.fragments(original, port, destination, ip_at, mtu_bytes);
                pieces.iter().any(|piece| piece == bytes)
            }
            _ => false,
        }
    }

    /// The result, after `fed` packets were fed (a prefix of the loops of the trace) and `drops` counted.
    pub(crate) fn finish(mut self, fed: u64, drops: &Drops) -> Verified {
        let frames = self.verdicts.len() as u64;
        let mut wanted = Drops::default();
        let (mut missing, mut unsure, mut more_than_fed) = (0, 0, 0);
        for (frame, verdict) in self.verdicts.iter().enumerate() {
            let times = fed / frames + u64::from((frame as u64) < fed % frames);
            let changes = self.history.as_ref().is_some_and(|history| history.has_changes(frame));
            match verdict {
                _ if changes => {
                    // Each fragment may lie under a reason.
                    unsure += match self.fragments_max.get(&frame) {
                        Some(fragments) => times * fragments,
                        None => times - self.sent[frame].min(times),
                    };
                }
                Verdict::Drop(reason) => wanted.add(*reason, times),
                Verdict::Fragments { .. } => {
                    let came = || self.pieces.get(&frame).into_iter().flatten().map(|(_, came)| *came);
                    // A packet that is lost may count once, as what it came, or a fragment at a time.
                    let packets = times - came().min().unwrap_or(0).min(times);
                    let fragments: u64 = came().map(|came| times - came.min(times)).sum();
                    missing += packets;
                    unsure += fragments.saturating_sub(packets);
                    more_than_fed += came().map(|came| came.saturating_sub(times)).sum::<u64>();
                }
                Verdict::Tx { .. } => missing += times - self.sent[frame].min(times),
            }
        }
        let wrong = misplaced(&wanted, missing, unsure, drops) + more_than_fed;
        if wrong > 0 {
            post(format_args!(
                "mismatch: {wrong} packets were dropped for another reason than the oracle's, or not counted"
            ));
            wanted.add(DropReason::TxFull, missing);
            for (reason, count) in drops.iter().filter(|(reason, count)| wanted.get(*reason) != *count) {
                post(format_args!(
                    "mismatch: {reason}: {count} counted, {} by the oracle",
                    wanted.get(reason)
                ));
            }
        }
        self.mismatches += wrong;
        self.checked += drops.total();
        Verified { checked: self.checked, mismatches: self.mismatches }
    }
}

/// The most fragments of each frame of `trace` that leaves as fragments by any of the routes that `history` has for it.
fn fragments_max(history: &History, tables: &VrfReferences, trace: &Trace) -> FxHashMap<usize, u64> {
    let fragments = |frame: usize| {
        let (original, (reference, hops)) = (trace.frame(frame), tables.of(frame));
        let checked = checked(original).ok()?;
        let ids = history.next_hops(frame, 0, u64::MAX);
        let counts = ids.filter_map(|id| match reference.verdict_by(original, checked, id, hops) {
            Verdict::Fragments { port, destination, ip_at, mtu_bytes } => {
                Some(reference.fragments(original, port, destination, ip_at, mtu_bytes).len() as u64)
            }
            _ => None,
        });
        counts.max().map(|count| (frame, count))
    };
    (0..trace.len()).filter_map(fragments).collect()
}

/// How many packets that were not sent lie under a wrong reason, or under none.
///
/// `wanted`: those that the oracle drops, by reason. `missing`: those that the oracle sends. `unsure`: those whose route changed, which
/// may lie under any reason. A reason that took too few is the other side of one that took too many: each packet counts once.
fn misplaced(wanted: &Drops, missing: u64, unsure: u64, drops: &Drops) -> u64 {
    let (full, stalled) = (drops.get(DropReason::TxFull), drops.get(DropReason::EngineStall));
    let by_route = |reason: &DropReason| !matches!(reason, DropReason::TxFull | DropReason::EngineStall);
    let counts = || {
        drops.iter().filter(|(reason, _)| by_route(reason)).map(|(reason, count)| (wanted.get(reason), count))
    };
    let more: u64 = counts().map(|(wanted, count)| count.saturating_sub(wanted)).sum();
    let fewer: u64 = counts().map(|(wanted, count)| wanted.saturating_sub(count)).sum();
    // What a reason lacks the engine may have cost; the rest of what the engine cost was to be sent.
    let to_send = full + stalled.saturating_sub(fewer);
    let lost = fewer.saturating_sub(stalled) + missing.saturating_sub(to_send);
    lost.max((more + to_send.saturating_sub(missing)).saturating_sub(unsure))
}

#[cfg(test)]
mod tests {
    use super::*;
    use DropReason::{EngineStall, NoRoute, TtlExpired, TxFull};

    fn drops(counts: &[(DropReason, u64)]) -> Drops {
        let mut drops = Drops::default();
        for (reason, count) in counts {
            drops.add(*reason, *count);
        }
        drops
    }

    #[test]
    fn packets_lie_under_the_reason_that_dropped_them() {
        let wanted = drops(&[(NoRoute, 10), (TtlExpired, 5)]);
        for (missing, unsure, counted, wrong) in [
            (0, 0, &[(NoRoute, 10), (TtlExpired, 5)][..], 0),
            (0, 0, &[(NoRoute, 11), (TtlExpired, 4)], 1),
            (0, 0, &[(NoRoute, 9), (TtlExpired, 5)], 1),
            (3, 0, &[(NoRoute, 10), (TtlExpired, 5), (TxFull, 3)], 0),
            (3, 0, &[(NoRoute, 10), (TtlExpired, 5)], 3),
            (3, 0, &[(NoRoute, 13), (TtlExpired, 5)], 3),
            (0, 4, &[(NoRoute, 13), (TtlExpired, 6)], 0),
            (0, 4, &[(NoRoute, 15), (TtlExpired, 5)], 1),
            // The engine may cost a packet that has a route, one that has none, and one that nobody knows.
            (3, 0, &[(NoRoute, 8), (TtlExpired, 5), (EngineStall, 5)], 0),
            (3, 0, &[(NoRoute, 8), (TtlExpired, 5), (EngineStall, 4), (TxFull, 1)], 0),
            (3, 2, &[(NoRoute, 8), (TtlExpired, 5), (EngineStall, 7)], 0),
            (3, 0, &[(NoRoute, 8), (TtlExpired, 5), (EngineStall, 4)], 1),
            (3, 0, &[(NoRoute, 9), (TtlExpired, 5), (EngineStall, 5)], 1),
        ] {
            assert_eq!(
                misplaced(&wanted, missing, unsure, &drops(counted)),
                wrong,
                "{missing} {unsure} {counted:?}"
            );
        }
    }
}
