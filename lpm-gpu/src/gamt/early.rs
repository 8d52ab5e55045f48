//! A second trie, built in the background while the first still has room, so that a delta rarely waits for a build.
//!
//! ```text
//! a level has used half of its head room, and reclaiming nodes does not help:
//! collect: the trie's routes, some in each delta -> thread: plan, build -> follow: make all later changes, too
//!          every change since the first slice ----------------------------^      -> a later delta adopts the trie
//! ```
//! The routes change between two slices. So the thread makes every change since the first slice once more, whether a slice has
//! it or not: the last change of a route is its state. A change has the leaf code that the first trie got, so the two tries
//! agree in every route, and adoption changes no answer. Marks of groups of longer routes are set at adoption. The thread owns
//! its trie and calls no driver. If it fails, the first trie stays, and a delta without room builds another, or is refused.

use super::build::build;
use super::merge;
use super::planner::ShapePlanner;
use super::shape::TrieShape;
use super::trie::{GamtTrie, TrieEntry};
use fib::EngineError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

/// A build begins when less than `1 / HEADROOM_SHARE` of a level's head room is left.
pub(super) const HEADROOM_SHARE: u32 = 2;

/// Least routes that a delta collects.
const ROUTES_MIN: usize = 1 << 14;

/// A delta collects this many routes for each of its changes: the copy is complete when a large table has grown by a sixteenth.
const ROUTES_A_CHANGE: usize = 16;

#[derive(Debug)]
enum EarlyStage {
    Idle,
    Collecting {
        next_slice: u32,
        entries: Vec<TrieEntry>,
    },
    Following(Follower),
    /// Until the next build.
    Failed,
}

#[derive(Debug)]
struct Follower {
    changes: Sender<Vec<TrieEntry>>,
    /// Deltas sent.
    sent: u64,
    progress: Arc<BuildProgress>,
    thread: JoinHandle<Result<GamtTrie, EngineError>>,
}

#[derive(Debug, Default)]
struct BuildProgress {
    /// Of the planned trie; 0 before the plan.
    words: AtomicU64,
    /// Deltas whose changes are made, and 1 for the trie itself.
    made: AtomicU64,
}

/// The second trie of a table and how far it is.
#[derive(Debug)]
pub(super) struct EarlyBuild {
    stage: EarlyStage,
    /// Changes that the thread does not have yet; those with code 0 withdraw.
    log: Vec<TrieEntry>,
    routes_min: usize,
    /// For tests: whether the trie counts as ready.
    ready: Option<bool>,
}

impl EarlyBuild {
    pub(super) fn new() -> Self {
        Self { stage: EarlyStage::Idle, log: Vec::new(), routes_min: ROUTES_MIN, ready: None }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn set_pace(&mut self, routes_min: usize, ready: Option<bool>) {
        (self.routes_min, self.ready) = (routes_min, ready);
    }

    /// Records a change of the first trie: the new code of a route, 0 for none.
    #[inline]
    pub(super) fn note(&mut self, change: TrieEntry) {
        if matches!(self.stage, EarlyStage::Collecting { .. } | EarlyStage::Following(_)) {
            self.log.push(change);
        }
    }

    /// Gives the thread the changes of a delta.
    pub(super) fn send(&mut self) {
        if let EarlyStage::Following(follower) = &mut self.stage
            && !self.log.is_empty()
        {
            follower.sent += 1;
            // Fails only if the thread has, which is found when the trie is wanted.
            let _ = follower.changes.send(std::mem::take(&mut self.log));
        }
    }

    /// After a delta of `changes` changes that left `trie`: begins or continues to collect its routes, about `routes`, then
    /// starts the thread. `groups` lists the /64s of longer routes.
    pub(super) fn advance(
        &mut self,
        (trie, routes): (&GamtTrie, usize),
        changes: usize,
        planner: &ShapePlanner,
        groups: impl FnOnce() -> Vec<TrieEntry>,
    ) {
        if matches!(self.stage, EarlyStage::Idle) && trie.wants_build(HEADROOM_SHARE) {
            self.stage = EarlyStage::Collecting { next_slice: 0, entries: Vec::with_capacity(routes) };
        }
        let EarlyStage::Collecting { next_slice, entries } = &mut self.stage else { return };
        let enough = entries.len() + self.routes_min.max(changes.saturating_mul(ROUTES_A_CHANGE));
        while *next_slice < trie.slices() && entries.len() < enough {
            trie.collect_slice(*next_slice, entries);
            *next_slice += 1;
        }
        if *next_slice == trie.slices() {
            let copy = RoutesCopy {
                entries: std::mem::take(entries),
                groups: groups(),
                log: std::mem::take(&mut self.log),
            };
            let follower = Follower::start(planner.clone(), copy, trie.shape().clone());
            self.stage = follower.map_or(EarlyStage::Failed, EarlyStage::Following);
        }
    }

    pub(super) fn is_following(&self) -> bool {
        matches!(self.stage, EarlyStage::Following(_))
    }

    fn is_ready(&self) -> bool {
        let EarlyStage::Following(follower) = &self.stage else { return false };
        let has_caught_up = || follower.progress.made.load(Ordering::Acquire) == follower.sent + 1;
        self.ready.unwrap_or_else(|| has_caught_up() || follower.thread.is_finished())
    }

    /// Words of the trie that [`Self::take_ready`] returns.
    pub(super) fn ready_words(&self) -> Option<u64> {
        let EarlyStage::Following(follower) = &self.stage else { return None };
        self.is_ready().then(|| follower.progress.words.load(Ordering::Relaxed))
    }

    /// Whether the second trie has a plan of more than `words_max` words.
    pub(super) fn exceeds(&self, words_max: u64) -> bool {
        let EarlyStage::Following(follower) = &self.stage else { return false };
        follower.progress.words.load(Ordering::Relaxed) > words_max
    }

    /// The second trie if it is built and has caught up.
    pub(super) fn take_ready(&mut self) -> Option<GamtTrie> {
        if self.is_ready() { self.finish() } else { None }
    }

    /// The second trie if the thread was started, once it is built and has all changes sent.
    pub(super) fn finish(&mut self) -> Option<GamtTrie> {
        self.send();
        match std::mem::replace(&mut self.stage, EarlyStage::Failed) {
            EarlyStage::Following(Follower { changes, thread, .. }) => {
                drop(changes);
                thread.join().ok()?.ok()
            }
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// The first trie was replaced. The thread sees that the sender is gone, and ends.
    pub(super) fn restart(&mut self) {
        self.stage = EarlyStage::Idle;
        self.log = Vec::new();
    }

    /// Bytes of routes and changes, without the second trie.
    pub(super) fn bytes(&self) -> u64 {
        let entries =
            if let EarlyStage::Collecting { entries, .. } = &self.stage { entries.capacity() } else { 0 };
        ((entries + self.log.capacity()) * size_of::<TrieEntry>()) as u64
    }
}

struct RoutesCopy {
    entries: Vec<TrieEntry>,
    groups: Vec<TrieEntry>,
    /// The changes since the first slice.
    log: Vec<TrieEntry>,
}

impl Follower {
    /// `None` if the system refuses a thread.
    fn start(planner: ShapePlanner, copy: RoutesCopy, shape: TrieShape) -> Option<Self> {
        let (changes, todo) = channel::<Vec<TrieEntry>>();
        let progress = Arc::new(BuildProgress::default());
        let shared = Arc::clone(&progress);
        // It inherits this thread's CPU set, which excludes the lcores.
        let work = move || {
            let RoutesCopy { entries, groups, log } = copy;
            let entries = merge::entries(entries, groups);
            let shape = planner.plan(&entries, Some(&shape))?;
            shared.words.store(shape.words, Ordering::Relaxed);
            let mut trie = build(shape, &entries)?;
            drop(entries);
            make(&mut trie, &log)?;
            drop(log);
            shared.made.store(1, Ordering::Release);
            // Until the sender is gone.
            for changes in todo {
                make(&mut trie, &changes)?;
                shared.made.fetch_add(1, Ordering::Release);
            }
            Ok(trie)
        };
        let thread = Builder::new().name("rebuild".into()).spawn(work).ok()?;
        Some(Self { changes, sent: 0, progress, thread })
    }
}

/// Makes `changes` in order, and skips those without an effect.
fn make(trie: &mut GamtTrie, changes: &[TrieEntry]) -> Result<(), EngineError> {
    for TrieEntry { key, len, code } in changes.iter().copied() {
        let place = if code == 0 {
            trie.find(key, len)
        } else {
            Some(trie.find_or_make(key, len).ok_or_else(no_offset)?)
        };
        match place {
            Some(place) if trie.code(place) == code => {}
            Some(place) if code == 0 => trie.remove(place),
            Some(place) => trie.put(place, code),
            None => {}
        }
    }
    Ok(())
}

/// The error of a trie in which a level has no offset left.
pub(super) fn no_offset() -> EngineError {
    let limit = super::code::LEVEL_UNITS_MAX;
    EngineError::Full { what: "units of a level", used: limit + 1, limit }
}
