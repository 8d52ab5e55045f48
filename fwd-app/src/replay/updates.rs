//! `--updates`: routes change while packets flow.
//!
//! [`Updater`] runs on a thread of its own and applies the stream to RIB, egress table and engine at a rate or at the
//! stream's own times. [`History`] is made before, when results are to be verified: which next hops each frame of the trace
//! can have after which update, so that the verifier knows what was right between the feeding of a packet and its arrival.

use super::reference::{Reference, checked};
use super::trace::Trace;
use crate::datapath::check::Destination;
use crate::datapath::{EgressPort, EgressTable};
use crate::tables::Tables;
use anyhow::Context as _;
use arc_swap::ArcSwap;
use fib::feed::{self, Update};
use fib::{IpPrefix, NextHopId, NextHopTable};
use rustc_hash::FxHashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Updates a delta at most: no reader waits long for news.
const UPDATES_PER_DELTA: usize = 1024;
/// How often the clock is looked at when nothing is due.
const TICK: Duration = Duration::from_micros(200);

/// How far the updates are, as the feeder and the sink see it.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    begun: AtomicU64,
    done: AtomicU64,
    stop: AtomicBool,
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

/// What each frame's next hop is, by updates applied.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// By frame: from which update on (1 is the first) which next hop. Frames that never change are not here.
    changes: FxHashMap<usize, Vec<(u64, NextHopId)>>,
    /// What next hops mean once all updates are in.
    pub(crate) hops: NextHopTable,
}

impl History {
    /// Applies the stream at `path` to the reference and notes what changes for the frames of `trace`.
    ///
    /// # Errors
    /// `FeedError` for the file, `NextHopError` for an id that means something else.
    pub(crate) fn new(
        path: &Path,
        reference: &mut Reference,
        trace: &Trace,
        hops: &NextHopTable,
    ) -> anyhow::Result<Self> {
        let mut v4: Vec<(u32, usize)> = Vec::new();
        let mut v6: Vec<(u128, usize)> = Vec::new();
        for i in 0..trace.len() {
            match checked(trace.frame(i)).map(|checked| checked.destination) {
                Ok(Destination::V4(key)) => v4.push((key, i)),
                Ok(Destination::V6(key)) => v6.push((key, i)),
                Err(_) => {}
            }
        }
        v4.sort_unstable();
        v6.sort_unstable();
        let mut history = Self { changes: FxHashMap::default(), hops: hops.clone() };
        for (number, update) in (1..).zip(feed::updates(path, None)?) {
            let update = update?;
            let id = update.next_hop(&mut history.hops)?;
            // Before and after, for the frames whose destination the prefix covers: a longer prefix may hide the change.
            match update.prefix {
                IpPrefix::V4(prefix) => {
                    let covered = within(&v4, prefix.address(), prefix.last_address());
                    let before = next_hops(reference, covered, Destination::V4);
                    reference.oracle_mut().v4.set(prefix, id);
                    history.note_all(
                        number,
                        covered,
                        &before,
                        &next_hops(reference, covered, Destination::V4),
                    );
                }
                IpPrefix::V6(prefix) => {
                    let covered = within(&v6, prefix.address(), prefix.last_address());
                    let before = next_hops(reference, covered, Destination::V6);
                    reference.oracle_mut().v6.set(prefix, id);
                    history.note_all(
                        number,
                        covered,
                        &before,
                        &next_hops(reference, covered, Destination::V6),
                    );
                }
            }
        }
        Ok(history)
    }

    fn note_all<K>(
        &mut self,
        number: u64,
        covered: &[(K, usize)],
        before: &[NextHopId],
        after: &[NextHopId],
    ) {
        for (((_, frame), before), after) in covered.iter().zip(before).zip(after) {
            self.note(*frame, number, *before, *after);
        }
    }

    fn note(&mut self, frame: usize, number: u64, before: NextHopId, after: NextHopId) {
        if before != after {
            self.changes.entry(frame).or_insert_with(|| vec![(0, before)]).push((number, after));
        }
    }

    /// The next hops that a frame can have had while `low` to `high` updates were in service; empty when it never changes.
    pub(crate) fn next_hops(&self, frame: usize, low: u64, high: u64) -> impl Iterator<Item = NextHopId> {
        let changes = self.changes.get(&frame).map_or(&[][..], Vec::as_slice);
        let first = changes.partition_point(|(number, _)| *number <= low).saturating_sub(1);
        let end = changes.partition_point(|(number, _)| *number <= high);
        changes[first..end.max(first)].iter().map(|(_, id)| *id)
    }

    /// Whether a frame's next hop ever changes.
    pub(crate) fn has_changes(&self, frame: usize) -> bool {
        self.changes.contains_key(&frame)
    }
}

/// The next hops of all keys of a list.
fn next_hops<K: Copy>(
    reference: &Reference,
    keys: &[(K, usize)],
    destination: impl Fn(K) -> Destination,
) -> Vec<NextHopId> {
    keys.iter().map(|(key, _)| reference.next_hop(destination(*key))).collect()
}

/// The part of a sorted list whose keys lie in `first..=last`.
fn within<K: Ord + Copy>(keys: &[(K, usize)], first: K, last: K) -> &[(K, usize)] {
    let start = keys.partition_point(|(key, _)| *key < first);
    let end = keys.partition_point(|(key, _)| *key <= last);
    &keys[start..end.max(start)]
}

/// What the updater has done in the end.
pub(crate) struct Updated {
    /// The tables as they are now.
    pub(crate) tables: Tables,
    /// Updates applied.
    pub(crate) updates: u64,
    /// Deltas that reached the engine.
    pub(crate) deltas: u64,
    /// Why it ended early, if it did.
    pub(crate) error: Option<anyhow::Error>,
}

/// Applies an update stream on a thread of its own.
pub(crate) struct Updater {
    thread: JoinHandle<Updated>,
    applied: Arc<Applied>,
}

/// What the updater needs besides the tables.
pub(crate) struct Stream {
    /// The update file.
    pub(crate) path: PathBuf,
    /// Updates a second; the stream's own times when `None`.
    pub(crate) rate: Option<u64>,
    /// Where lcores look for what next hops mean.
    pub(crate) egress: Arc<ArcSwap<EgressTable>>,
    /// The ports that next hops may name.
    pub(crate) ports: Vec<EgressPort>,
}

impl Updater {
    /// Starts applying.
    pub(crate) fn start(tables: Tables, stream: Stream, applied: Arc<Applied>) -> Self {
        let theirs = Arc::clone(&applied);
        let thread = std::thread::spawn(move || {
            let mut updated = Updated { tables, updates: 0, deltas: 0, error: None };
            let result = run(&mut updated, &stream, &theirs);
            updated.error = result.err();
            updated
        });
        Self { thread, applied }
    }

    /// Stops after the delta that is being applied, and gives the tables back.
    ///
    /// # Errors
    /// When the thread broke an invariant and is gone.
    pub(crate) fn stop(self) -> anyhow::Result<Updated> {
        self.applied.stop.store(true, Ordering::Release);
        self.thread.join().map_err(|_| anyhow::anyhow!("the thread that applies updates has panicked"))
    }
}

fn run(updated: &mut Updated, stream: &Stream, applied: &Applied) -> anyhow::Result<()> {
    let mut updates = feed::updates(&stream.path, None)?.peekable();
    let start = Instant::now();
    let mut first_s = None;
    while !applied.stop.load(Ordering::Acquire) {
        let now_s = start.elapsed().as_secs_f64();
        let mut pending = 0;
        while pending < UPDATES_PER_DELTA {
            let Some(next) = updates.peek() else { break };
            let due_s = match (stream.rate, next) {
                #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
                (Some(rate), _) => (updated.updates + pending as u64) as f64 / rate as f64,
                (None, Ok(update)) => update.time_s - *first_s.get_or_insert(update.time_s),
                (None, Err(_)) => 0.0,
            };
            if due_s > now_s {
                break;
            }
            let Some(update) = updates.next().transpose()? else { break };
            apply(updated, &update).with_context(|| format!("update {}", updated.updates + 1))?;
            pending += 1;
        }
        if pending == 0 {
            if updates.peek().is_none() {
                return Ok(());
            }
            std::thread::sleep(TICK);
            continue;
        }
        push(updated, stream, applied, pending as u64)?;
    }
    Ok(())
}

fn apply(updated: &mut Updated, update: &Update) -> anyhow::Result<()> {
    let Tables { rib, hops, .. } = &mut updated.tables;
    update.apply(rib, hops)?;
    Ok(())
}

/// Brings what changed into service: first what new next hops mean, then the engine.
fn push(updated: &mut Updated, stream: &Stream, applied: &Applied, pending: u64) -> anyhow::Result<()> {
    applied.begun.store(updated.updates + pending, Ordering::Release);
    let tables = &mut updated.tables;
    let delta = tables.rib.take_delta();
    if !delta.is_empty() {
        // Ids that the table computes by itself (bare ones) need no new table.
        let known = stream.egress.load().named();
        if tables.hops.iter().filter(|(_, hop)| **hop != fib::NextHop::Bare).count() != known {
            stream.egress.store(Arc::new(EgressTable::new(&tables.hops, &stream.ports)?));
        }
        tables.generation = tables.engine.apply(&delta)?;
        updated.deltas += 1;
    }
    updated.updates += pending;
    applied.done.store(updated.updates, Ordering::Release);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_had_the_next_hops_of_the_updates_in_between() {
        let id = NextHopId::from_answer;
        let mut history = History::default();
        for (number, before, after) in [(3, 1, 2), (5, 2, 2), (7, 2, 4), (9, 4, 1)] {
            history.note(0, number, id(before), id(after));
        }
        let of = |low, high| history.next_hops(0, low, high).map(NextHopId::get).collect::<Vec<_>>();
        assert_eq!(of(0, 2), [1]);
        assert_eq!(of(0, 3), [1, 2]);
        assert_eq!(of(3, 6), [2]);
        assert_eq!(of(4, 9), [2, 4, 1]);
        assert_eq!(of(100, 100), [1]);
        assert_eq!(history.next_hops(1, 0, 9).count(), 0);
        assert!(history.has_changes(0) && !history.has_changes(1));
    }

    #[test]
    fn keys_within_a_prefix() {
        let keys = [(1, 10), (3, 11), (3, 12), (9, 13)];
        assert_eq!(within(&keys, 2, 8), [(3, 11), (3, 12)]);
        assert_eq!(within(&keys, 10, 20), []);
    }
}
