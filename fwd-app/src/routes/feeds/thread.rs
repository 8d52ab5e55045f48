//! The thread of a feed: a bounded channel of change sets to the consumer, and counters that others may read.
//!
//! It waits for the consumer when the channel is full, and ends within [`POLL`] after it is stopped or the consumer is gone.

use super::{ChangeSet, FeedCounts, FeedEvent, FeedId};
use crate::threads::{await_end, spawn};
use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender};
use rustix::event::{PollFd, Timespec, poll};
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a waiting feed checks whether to end.
pub(super) const POLL: Duration = Duration::from_millis(100);

/// How long a feed waits for the kernel's links, at most.
const LINKS_WAIT: Duration = Duration::from_secs(5);

/// Held by the feed of the kernel's links until it has sent them.
pub(crate) type LinksUnread = Sender<Infallible>;
/// The other end, for the feeds whose routes name links.
pub(crate) type LinksRead = Receiver<Infallible>;

#[derive(Debug, Default)]
struct FeedShared {
    stop: AtomicBool,
    counts: Mutex<FeedCounts>,
}

pub(super) struct Outlet {
    feed: FeedId,
    sender: Sender<ChangeSet>,
    shared: Arc<FeedShared>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopped;

impl Outlet {
    pub(super) fn is_stopping(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    pub(super) fn wait_for(&self, links: &LinksRead) {
        let until = Instant::now() + LINKS_WAIT;
        let is_read = || links.recv_timeout(POLL) == Err(RecvTimeoutError::Disconnected);
        while !self.is_stopping() && !is_read() && Instant::now() < until {}
    }

    pub(super) fn count(&self, counts: FeedCounts) {
        *self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }

    /// Sends the events, if present, as one change set; waits while the channel is full.
    pub(super) fn send(&self, events: &mut Vec<FeedEvent>) -> Result<(), Stopped> {
        let events = std::mem::take(events);
        if events.is_empty() {
            return Ok(());
        }
        let mut set = ChangeSet { feed: self.feed, events };
        loop {
            match self.sender.send_timeout(set, POLL) {
                Ok(()) => return Ok(()),
                Err(SendTimeoutError::Timeout(back)) if !self.is_stopping() => set = back,
                Err(_) => return Err(Stopped),
            }
        }
    }
}

/// A running feed, as its owner sees it; dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct FeedThread {
    shared: Arc<FeedShared>,
    thread: Option<JoinHandle<()>>,
}

impl FeedThread {
    /// Starts the thread `name`, which runs `work` and sends change sets of `feed` to `sender`.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(super) fn start(
        name: &str,
        feed: FeedId,
        sender: Sender<ChangeSet>,
        work: impl FnOnce(&Outlet) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(FeedShared::default());
        let outlet = Outlet { feed, sender, shared: Arc::clone(&shared) };
        let thread = spawn(name, move || work(&outlet))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(crate) fn counts(&self) -> FeedCounts {
        *self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the thread has ended unasked, which happens only when its socket fails.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for FeedThread {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.thread.take().into_iter().for_each(await_end);
    }
}

/// Waits until one of `fds` is ready, until `until`, or for [`POLL`], whichever is first.
pub(super) fn wait(fds: &mut [PollFd<'_>], until: Option<Instant>) {
    let until = until.map_or(POLL, |until| until.saturating_duration_since(Instant::now()).min(POLL));
    let timeout = Timespec::try_from(until).ok();
    // A signal ends the wait early, which is harmless.
    let _ = poll(fds, timeout.as_ref());
}
