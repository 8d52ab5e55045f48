//! How far a stream has come, and which of its work uses page-locked memory.

use super::error::GpuError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(super) struct StreamProgress {
    /// Number of the last work enqueued. Written only by the stream's owner.
    issued: AtomicU64,
    /// All work up to this number is done, and the host sees its writes.
    done: AtomicU64,
}

impl StreamProgress {
    /// The next work number, taken before the call that enqueues. It counts even if enqueueing fails, because the call may have succeeded
    /// in part.
    #[inline]
    pub(super) fn issue(&self) -> u64 {
        let number = self.issued.load(Ordering::Relaxed) + 1;
        self.issued.store(number, Ordering::Release);
        number
    }

    #[inline]
    pub(super) fn issued(&self) -> u64 {
        self.issued.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn is_over(&self, number: u64) -> bool {
        self.done() >= number
    }

    #[inline]
    pub(super) fn set_done(&self, number: u64) {
        self.done.fetch_max(number, Ordering::AcqRel);
    }
}

#[derive(Default)]
pub(super) struct Uses {
    stream: Option<Arc<StreamProgress>>,
    number: u64,
}

impl Uses {
    /// Records that work `number` of `stream` uses the memory. Uses on other streams must be done.
    #[inline]
    pub(super) fn note(&mut self, stream: &Arc<StreamProgress>, number: u64) -> Result<(), GpuError> {
        match &self.stream {
            Some(last) if Arc::ptr_eq(last, stream) => {}
            _ if self.is_over() => self.stream = Some(Arc::clone(stream)),
            _ => return Err(GpuError::Busy),
        }
        self.number = number;
        Ok(())
    }

    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.stream.as_ref().is_none_or(|stream| stream.is_over(self.number))
    }
}
