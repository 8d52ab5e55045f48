//! `--verify`: each packet's result against the oracle: sent or dropped, by which port, with which bytes.
//!
//! Packets that arrive are compared byte for byte with what the reference makes of them. Packets that do not arrive are
//! judged in sum: each reason must have dropped as many as the oracle says, and packets missing beyond that must be
//! counted as `tx_full`. While routes change, any next hop that was in service between the feeding of a packet and its
//! arrival is right.

use super::reference::{Reference, Verdict, checked};
use super::trace::Trace;
use super::updates::History;
use crate::datapath::{DropReason, Drops};
use fib::{MacAddr, NextHopTable};
use std::path::Path;
use std::sync::Arc;

/// Mismatches that are described on stderr; the rest is only counted.
const SHOWN: u64 = 5;

/// See the module.
pub(crate) struct Verifier {
    reference: Reference,
    hops: NextHopTable,
    /// By frame of the trace, with the routes as loaded.
    verdicts: Vec<Verdict>,
    /// What the updates change, if there are any.
    history: Option<Arc<History>>,
    /// Frames that came whole so far, by frame of the trace: sent packets.
    sent: Vec<u64>,
    scratch: Vec<u8>,
    mismatches: u64,
    checked: u64,
}

/// Which packet: its number over all loops, and its frame of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
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
    /// For `trace` and the routes that `reference` has, which the update stream changes.
    ///
    /// # Errors
    /// As [`History::new`], for the update stream in `updates`.
    pub(crate) fn new(
        mut reference: Reference,
        hops: &NextHopTable,
        trace: &Trace,
        updates: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let verdicts = super::reference::verdicts(&reference, trace, hops);
        let history = updates.map(|path| History::new(path, &mut reference, trace, hops)).transpose()?;
        let hops = history.as_ref().map_or_else(|| hops.clone(), |history| history.hops.clone());
        let (sent, history) = (vec![0; trace.len()], history.map(Arc::new));
        Ok(Self { reference, hops, verdicts, history, sent, scratch: Vec::new(), mismatches: 0, checked: 0 })
    }

    /// A packet has left by `port` with these bytes.
    ///
    /// `updates`: how many were certainly in service when it was fed, and how many may have been when it came.
    pub(crate) fn sent(&mut self, at: Seen, original: &[u8], port: usize, bytes: &[u8], updates: (u64, u64)) {
        let Seen { sequence, frame } = at;
        self.sent[frame] += 1;
        self.checked += 1;
        let verdict = self.verdicts[frame];
        let steady = self.history.as_ref().is_none_or(|history| !history.has_changes(frame));
        if steady && self.is_right(verdict, original, port, bytes) {
            return;
        }
        if let Some(history) = &self.history
            && let Ok(checked) = checked(original)
            && Arc::clone(history).next_hops(frame, updates.0, updates.1).any(|id| {
                let verdict = self.reference.verdict_by(checked, id, &self.hops);
                self.is_right(verdict, original, port, bytes)
            })
        {
            return;
        }
        self.mismatches += 1;
        if self.mismatches <= SHOWN {
            eprintln!(
                "fwd-app: mismatch: packet {sequence} (frame {} of the trace) left by port {port}{}; the oracle says {verdict:?}{}",
                frame + 1,
                bytes.first_chunk().map_or_else(String::new, |mac| format!(" to {}", MacAddr(*mac))),
                self.in_between(frame, updates)
            );
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

    fn is_right(&mut self, verdict: Verdict, original: &[u8], port: usize, bytes: &[u8]) -> bool {
        let Verdict::Tx { port: wanted, destination, ip_at } = verdict else { return false };
        if wanted != port {
            return false;
        }
        self.reference.rewrite(original, port, destination, ip_at, &mut self.scratch);
        self.scratch == bytes
    }

    /// The result, after `fed` packets were fed (a prefix of the loops of the trace) and `drops` counted.
    pub(crate) fn finish(mut self, fed: u64, drops: &Drops) -> Verified {
        let frames = self.verdicts.len() as u64;
        let mut wanted = Drops::default();
        let (mut missing, mut unsure) = (0, 0);
        for (frame, verdict) in self.verdicts.iter().enumerate() {
            let times = fed / frames + u64::from((frame as u64) < fed % frames);
            let changes = self.history.as_ref().is_some_and(|history| history.has_changes(frame));
            match verdict {
                _ if changes => unsure += times - self.sent[frame].min(times),
                Verdict::Drop(reason) => wanted.add(*reason, times),
                Verdict::Tx { .. } => missing += times - self.sent[frame].min(times),
            }
        }
        wanted.add(DropReason::TxFull, missing);
        // A reason that took too few is the other side of one that took too many: count each packet once. Packets whose
        // route changed may lie under any reason of a route.
        let more: u64 = drops.iter().map(|(reason, count)| count.saturating_sub(wanted.get(reason))).sum();
        let fewer: u64 = drops.iter().map(|(reason, count)| wanted.get(reason).saturating_sub(count)).sum();
        let wrong = more.saturating_sub(unsure).max(fewer);
        if wrong > 0 {
            eprintln!(
                "fwd-app: mismatch: {wrong} packets were dropped for another reason than the oracle's, or not counted"
            );
            for (reason, count) in drops.iter().filter(|(reason, count)| wanted.get(*reason) != *count) {
                eprintln!(
                    "fwd-app: mismatch: {reason}: {count} counted, {} by the oracle",
                    wanted.get(reason)
                );
            }
        }
        self.mismatches += wrong;
        self.checked += drops.total();
        Verified { checked: self.checked, mismatches: self.mismatches }
    }
}
