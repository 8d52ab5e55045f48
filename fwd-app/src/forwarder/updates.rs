//! `--updates`: a stream of route changes that VRFs apply while packets flow.
//!
//! It is read before the first packet, so an error in it ends no run, and later changes of the file have no effect.

use crate::forwarder::Forwarder;
use crate::notice::warn;
use anyhow::Context as _;
use fib::feed::{self, Update};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Progress of the updates, shared by the feeder and the sink.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    begun: AtomicU64,
    done: AtomicU64,
}

impl Applied {
    /// Updates that are certainly in service.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// Updates that may be in service.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct VrfUpdate {
    pub(crate) vrf: usize,
    pub(crate) update: Update,
}

/// Reads the update streams of VRFs, by number, into one: ordered by time, or interleaved when a rate is given.
///
/// # Errors
/// `FeedError` for a file. A truncated MRT file is only a warning.
pub(crate) fn load(streams: &[(usize, PathBuf)], has_rate: bool) -> anyhow::Result<Arc<[VrfUpdate]>> {
    let mut all = Vec::new();
    for (vrf, path) in streams {
        let updates = load_one(path)?.into_iter().enumerate();
        all.extend(updates.map(|(at, update)| (at, VrfUpdate { vrf: *vrf, update })));
    }
    // Stable sorts keep the order within a stream.
    if has_rate {
        all.sort_by_key(|(at, _)| *at);
    } else if streams.len() > 1 {
        all.sort_by(|(_, one), (_, other)| one.update.time_s.total_cmp(&other.update.time_s));
    }
    Ok(all.into_iter().map(|(_, update)| update).collect())
}

fn load_one(path: &Path) -> anyhow::Result<Vec<Update>> {
    let mut stream = feed::updates(path, None)?;
    let updates = stream.by_ref().collect::<Result<Vec<_>, _>>()?;
    if let Some(cut) = stream.truncated() {
        warn(format_args!("{}: {cut}; the {} updates before it are applied", path.display(), updates.len()));
    }
    Ok(updates)
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct UpdateSpec {
    /// Updates a second; `None` uses the recorded times.
    pub(crate) rate: Option<u64>,
    /// How often the stream is applied.
    pub(crate) loops: u64,
    /// Most updates in one delta for the engine.
    pub(crate) per_commit: u64,
}

pub(crate) struct UpdateStream {
    updates: Arc<[VrfUpdate]>,
    spec: UpdateSpec,
    applied: Arc<Applied>,
    start: Option<Instant>,
    taken: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Worked,
    Idle,
    /// All updates are in service.
    Ended,
}

impl UpdateStream {
    pub(crate) fn new(updates: Arc<[VrfUpdate]>, spec: UpdateSpec, applied: Arc<Applied>) -> Self {
        Self { updates, spec, applied, start: None, taken: 0 }
    }

    /// Applies the updates that are due, at most one commit.
    ///
    /// # Errors
    /// The first update that a VRF refuses, or the engine's refusal. The updates of this turn are not retried.
    pub(crate) fn apply_due(&mut self, forwarder: &mut Forwarder) -> anyhow::Result<Turn> {
        let now_s = self.start.get_or_insert_with(Instant::now).elapsed().as_secs_f64();
        let UpdateSpec { rate, loops, per_commit } = self.spec;
        let total = (self.updates.len() as u64).saturating_mul(loops);
        let (first, end) = (self.taken, total.min(self.taken + per_commit));
        while self.taken < end && due_s(&self.updates, rate, self.taken) <= now_s {
            let at = usize::try_from(self.taken % self.updates.len() as u64).unwrap_or(0);
            self.taken += 1;
            let VrfUpdate { vrf, update } = &self.updates[at];
            forwarder.vrf_mut(*vrf).update(update).with_context(|| format!("update {}", self.taken))?;
        }
        if self.taken == first {
            return Ok(if first == total { Turn::Ended } else { Turn::Idle });
        }
        self.applied.begun.store(self.taken, Ordering::Release);
        forwarder.commit_updates()?;
        self.applied.done.store(self.taken, Ordering::Release);
        Ok(Turn::Worked)
    }
}

/// When update `number` of a looped stream is due, in seconds from the start. `number` counts over all loops. At recorded times, a loop
/// begins one mean gap after the last update of the loop before.
#[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
fn due_s(updates: &[VrfUpdate], rate: Option<u64>, number: u64) -> f64 {
    if let Some(rate) = rate {
        return number as f64 / rate as f64;
    }
    let (Some(first), Some(last)) = (updates.first(), updates.last()) else { return 0.0 };
    let count = updates.len() as u64;
    let at = usize::try_from(number % count).unwrap_or(0);
    let first_s = first.update.time_s;
    let span_s = last.update.time_s - first_s;
    let loop_s = span_s + span_s / (count - 1).max(1) as f64;
    updates[at].update.time_s - first_s + (number / count) as f64 * loop_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_are_due_by_rate_or_by_their_own_times() {
        let prefix = "192.0.2.0/24".parse().unwrap();
        let at = |time_s| VrfUpdate {
            vrf: 0,
            update: Update { time_s, prefix, action: feed::Action::Withdraw, peer: None },
        };
        let updates = [at(100.0), at(101.0), at(104.0)];
        let due = |rate| (0..7).map(|number| due_s(&updates, rate, number)).collect::<Vec<_>>();
        assert_eq!(due(None), [0.0, 1.0, 4.0, 6.0, 7.0, 10.0, 12.0]);
        assert_eq!(due(Some(2)), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]);
    }
}
