//! `--verify`: compares the result of each packet with the reference: sent or dropped, port, bytes.
//!
//! Packets that arrive are compared byte for byte. Missing ones are checked by count: each drop reason must match the reference's number,
//! and the rest must be counted as `tx_full`. A failed engine may cost any packet that reaches the lookup (`engine_stall`). While routes
//! change, any next hop in service between the feeding of a packet and its arrival is valid.

use super::deal::{FedFrame, TracePart};
use super::expected::{Expected, Pieces, VrfReferences};
use super::history::HopHistory;
use super::reference::{Reference, Verdict, checked};
use crate::datapath::{DropReason, Drops};
use crate::forwarder::updates::VrfUpdate;
use crate::notice::post;
use fib::MacAddr;
use rustc_hash::FxHashMap;
use std::sync::Arc;

const SHOWN: u64 = 5;

pub(crate) struct Verifier {
    tables: Arc<VrfReferences>,
    history: Option<HopHistory>,
    /// Most fragments of each frame that some route during the updates fragments.
    fragments_max: FxHashMap<usize, u64>,
    scratch: Vec<u8>,
    mismatches: u64,
    checked: u64,
    unseen: Unseen,
}

#[derive(Debug, Default)]
struct Unseen {
    wanted: Drops,
    /// Packets that should have been sent.
    missing: u64,
    /// Packets with a changing route, and fragments: any drop reason is valid.
    unsure: u64,
    /// Fragments that arrived more often than their packets were fed.
    more_than_fed: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verified {
    pub(crate) checked: u64,
    pub(crate) mismatches: u64,
}

impl Verifier {
    pub(crate) fn new(tables: Arc<VrfReferences>) -> Self {
        Self {
            tables,
            history: None,
            fragments_max: FxHashMap::default(),
            scratch: Vec::new(),
            mismatches: 0,
            checked: 0,
            unseen: Unseen::default(),
        }
    }

    /// For routes that the stream `updates.0` changes in `updates.1` passes, and the frames of `part`.
    pub(crate) fn with_updates(
        mut tables: VrfReferences,
        part: &TracePart,
        updates: (&[VrfUpdate], u64),
    ) -> anyhow::Result<Self> {
        let history = HopHistory::new(updates.0, updates.1, &mut tables, part)?;
        let fragments_max = fragments_max(&history, &tables, part);
        Ok(Self { history: Some(history), fragments_max, ..Self::new(Arc::new(tables)) })
    }

    /// Checks packet `sequence`, made from the frame, which left by `port` with these bytes.
    ///
    /// `updates`: how many were certainly in service when it was fed, and how many may have been when it arrived.
    pub(super) fn sent(
        &mut self,
        sequence: u64,
        FedFrame { part, frame }: FedFrame<'_>,
        port: usize,
        bytes: &[u8],
        updates: (u64, u64),
    ) {
        let TracePart { trace, vrf_of, expected: Some(expected), .. } = part else { return };
        let original = trace.frame(frame);
        expected.sent[frame] += 1;
        self.checked += 1;
        let verdict = expected.verdicts[frame];
        let (reference, hops) = &self.tables.vrfs[vrf_of[frame]];
        let steady = self.history.as_ref().is_none_or(|history| !history.has_changes(frame));
        let mut is_right = |verdict| {
            let pieces = expected.pieces.get_mut(&frame).filter(|_| verdict == expected.verdicts[frame]);
            is_right(reference, verdict, (original, pieces), (port, bytes), &mut self.scratch)
        };
        if steady && is_right(verdict) {
            return;
        }
        if let Some(history) = &self.history
            && let Ok(checked) = checked(original)
            && history
                .next_hops(frame, updates.0, updates.1)
                .any(|id| is_right(reference.verdict_by(original, checked, id, hops)))
        {
            return;
        }
        self.mismatches += 1;
        if self.mismatches <= SHOWN {
            post(format_args!(
                "mismatch: packet {sequence} (frame {} of the trace) left by port {port}{}; the oracle says {verdict:?}{}",
                part.first + frame + 1,
                bytes.first_chunk().map_or_else(String::new, |mac| format!(" to {}", MacAddr(*mac))),
                self.in_between(frame, updates)
            ));
        }
    }

    /// Counts a packet that left after all mbufs of its pool were free: it left twice, or `Mempool::is_whole` was wrong.
    pub(crate) fn came_too_late(&mut self, sequence: u64) {
        self.checked += 1;
        self.mismatches += 1;
        if self.mismatches <= SHOWN {
            post(format_args!(
                "mismatch: packet {sequence} left after all packets fed with it had left or were dropped"
            ));
        }
    }

    fn in_between(&self, frame: usize, (low, high): (u64, u64)) -> String {
        let Some(history) = self.history.as_ref().filter(|history| history.has_changes(frame)) else {
            return String::new();
        };
        let ids: Vec<_> = history.next_hops(frame, low, high).map(|id| id.to_string()).collect();
        format!(", and between updates {low} and {high} next hops {}", ids.join(", "))
    }

    /// Accounts for the frames of `part` that did not arrive; all have left or were dropped. Frame `i` was fed `times(i)` times.
    pub(super) fn close(&mut self, part: &TracePart, times: impl Fn(usize) -> u64) {
        let Some(Expected { verdicts, sent, pieces }) = &part.expected else { return };
        let Unseen { wanted, missing, unsure, more_than_fed } = &mut self.unseen;
        for (frame, verdict) in verdicts.iter().enumerate() {
            let times = times(frame);
            let changes = self.history.as_ref().is_some_and(|history| history.has_changes(frame));
            match verdict {
                _ if changes => {
                    // Each fragment may be counted under a drop reason.
                    *unsure += match self.fragments_max.get(&frame) {
                        Some(fragments) => times * fragments,
                        None => times - sent[frame].min(times),
                    };
                }
                Verdict::Drop(reason) => wanted.add(*reason, times),
                Verdict::Fragments { .. } => {
                    let came = || pieces.get(&frame).into_iter().flatten().map(|(_, came)| *came);
                    // A lost packet counts once as received, or once per fragment.
                    let packets = times - came().min().unwrap_or(0).min(times);
                    let fragments: u64 = came().map(|came| times - came.min(times)).sum();
                    *missing += packets;
                    *unsure += fragments.saturating_sub(packets);
                    *more_than_fed += came().map(|came| came.saturating_sub(times)).sum::<u64>();
                }
                Verdict::Tx { .. } => *missing += times - sent[frame].min(times),
            }
        }
    }

    /// The result, after all parts are closed and `drops` is final.
    pub(crate) fn finish(mut self, drops: &Drops) -> Verified {
        let Unseen { mut wanted, missing, unsure, more_than_fed } = self.unseen;
        let wrong = misplaced(&wanted, missing, unsure, drops) + more_than_fed;
        if wrong > 0 {
            post(format_args!(
                "mismatch: {wrong} packets were dropped for a reason other than the oracle's, or were not counted"
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

/// Whether `verdict` turns the original frame `came.0` into `bytes` on `port`. `came.1`: the counted fragments by the route as loaded.
fn is_right(
    reference: &Reference,
    verdict: Verdict,
    came: (&[u8], Option<&mut Pieces>),
    (port, bytes): (usize, &[u8]),
    scratch: &mut Vec<u8>,
) -> bool {
    let (original, pieces) = came;
    match verdict {
        Verdict::Tx { port: wanted, destination, ip_at } if wanted == port => {
            reference.rewrite(original, port, destination, ip_at, scratch);
            scratch == bytes
        }
        Verdict::Fragments { port: wanted, destination, ip_at, mtu_bytes } if wanted == port => {
            let Some(pieces) = pieces else {
                // By a route other than the one loaded.
                let pieces = reference.fragments(original, port, destination, ip_at, mtu_bytes);
                return pieces.iter().any(|piece| piece == bytes);
            };
            let piece = pieces.iter_mut().find(|(piece, _)| piece == bytes);
            piece.is_some_and(|(_, came)| {
                *came += 1;
                true
            })
        }
        _ => false,
    }
}

fn fragments_max(history: &HopHistory, tables: &VrfReferences, part: &TracePart) -> FxHashMap<usize, u64> {
    let fragments = |frame: usize| {
        let (original, (reference, hops)) = (part.trace.frame(frame), &tables.vrfs[part.vrf_of[frame]]);
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
    (0..part.trace.len()).filter_map(fragments).collect()
}

/// Number of unsent packets with a wrong drop reason, or with none: `missing` should have been sent, `unsure` are valid under any reason.
/// One misplaced packet makes one reason too low and another too high; it counts once.
fn misplaced(wanted: &Drops, missing: u64, unsure: u64, drops: &Drops) -> u64 {
    let (full, stalled) = (drops.get(DropReason::TxFull), drops.get(DropReason::EngineStall));
    let by_route = |reason: &DropReason| !matches!(reason, DropReason::TxFull | DropReason::EngineStall);
    let counts = || {
        drops.iter().filter(|(reason, _)| by_route(reason)).map(|(reason, count)| (wanted.get(reason), count))
    };
    let more: u64 = counts().map(|(wanted, count)| count.saturating_sub(wanted)).sum();
    let fewer: u64 = counts().map(|(wanted, count)| wanted.saturating_sub(count)).sum();
    // `engine_stall` may explain deficits of other reasons; its remainder covers packets that should have been sent.
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
            // A stalled engine may cost a packet with a route, one without, and one whose lookup is not known.
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
