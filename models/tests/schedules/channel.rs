//! The part of `crossbeam_channel` that the protocols use, over a lock of the checker.

use crate::check::{InjectedFault, is};
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError, thread};
use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

struct ChannelState<T> {
    queue: VecDeque<T>,
    room: usize,
    senders: usize,
    receivers: usize,
}

pub(crate) struct Sender<T>(Arc<Mutex<ChannelState<T>>>);
pub(crate) struct Receiver<T>(Arc<Mutex<ChannelState<T>>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TryRecvError {
    Empty,
    Disconnected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecvTimeoutError {
    Timeout,
    Disconnected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrySendError<T> {
    Full(T),
    Disconnected(T),
}

thread_local! {
    // All threads of a model run on one thread.
    static FULL: Cell<usize> = const { Cell::new(0) };
}

/// Messages for which channels had no room, since the last call.
pub(crate) fn full() -> usize {
    FULL.take()
}

impl<T> TrySendError<T> {
    pub(crate) fn into_inner(self) -> T {
        match self {
            Self::Full(message) | Self::Disconnected(message) => message,
        }
    }
}

pub(crate) fn bounded<T>(room: usize) -> (Sender<T>, Receiver<T>) {
    let room = if is(InjectedFault::NarrowChannels) { 3 } else { room };
    let state = ChannelState { queue: VecDeque::new(), room, senders: 1, receivers: 1 };
    let state = Arc::new(Mutex::new(state));
    (Sender(Arc::clone(&state)), Receiver(state))
}

pub(crate) fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    bounded(usize::MAX)
}

/// Ignores poison, since a thread may panic while it holds a channel.
fn lock<T>(state: &Mutex<ChannelState<T>>) -> MutexGuard<'_, ChannelState<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Sender<T> {
    pub(crate) fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let mut state = lock(&self.0);
        if state.receivers == 0 {
            Err(TrySendError::Disconnected(message))
        } else if state.queue.len() >= state.room {
            FULL.set(FULL.get() + 1);
            Err(TrySendError::Full(message))
        } else {
            state.queue.push_back(message);
            Ok(())
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).queue.is_empty()
    }

    /// As [`Self::try_send`]: no sender here waits for room.
    pub(crate) fn send(&self, message: T) -> Result<(), TrySendError<T>> {
        self.try_send(message)
    }
}

impl<T> Receiver<T> {
    pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut state = lock(&self.0);
        let none = if state.senders == 0 { TryRecvError::Disconnected } else { TryRecvError::Empty };
        state.queue.pop_front().ok_or(none)
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).queue.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.0).queue.len()
    }

    pub(crate) fn try_iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.try_recv().ok())
    }

    pub(crate) fn recv(&self) -> Result<T, RecvTimeoutError> {
        self.recv_timeout(Duration::ZERO)
    }

    pub(crate) fn recv_timeout(&self, _: Duration) -> Result<T, RecvTimeoutError> {
        loop {
            match self.try_recv() {
                Ok(message) => return Ok(message),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) => thread::yield_now(),
            }
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        lock(&self.0).senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        lock(&self.0).receivers += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        lock(&self.0).senders -= 1;
    }
}

impl<T> Drop for Receiver<T> {
    /// The last receiver drops the messages left in the channel.
    fn drop(&mut self) {
        let left = {
            let mut state = lock(&self.0);
            state.receivers -= 1;
            if state.receivers == 0 { std::mem::take(&mut state.queue) } else { VecDeque::new() }
        };
        drop(left);
    }
}
