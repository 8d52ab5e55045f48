//! For tests: which thread frees what lookups read. Without the feature `testing` nothing here does anything.
//!
//! Table memory notes its own end ([`crate::memory`]); other values that readers hold have a [`Witness`].

/// Tells when the value that it is a field of is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    #[cfg(any(test, feature = "testing"))]
    what: &'static str,
}

impl Witness {
    /// For a value that tests call `what`.
    #[must_use]
    #[cfg_attr(not(any(test, feature = "testing")), expect(unused_variables, reason = "for tests alone"))]
    pub const fn of(what: &'static str) -> Self {
        Self {
            #[cfg(any(test, feature = "testing"))]
            what,
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl Drop for Witness {
    fn drop(&mut self) {
        note(self.what);
    }
}

#[cfg(not(any(test, feature = "testing")))]
#[inline(always)]
pub(crate) fn note(_what: &'static str) {}

#[cfg(any(test, feature = "testing"))]
pub use noted::*;

#[cfg(any(test, feature = "testing"))]
mod noted {
    use std::sync::{Mutex, PoisonError};
    use std::thread::{ThreadId, current};

    /// `None` while nobody listens.
    static NOTES: Mutex<Option<Vec<(&'static str, ThreadId)>>> = Mutex::new(None);

    /// Notes that this thread drops `what`.
    pub(crate) fn note(what: &'static str) {
        if let Some(notes) = NOTES.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            notes.push((what, current().id()));
        }
    }

    /// What was dropped since the last call, and by which threads. The first call begins to listen.
    pub fn take() -> Vec<(&'static str, ThreadId)> {
        NOTES.lock().unwrap_or_else(PoisonError::into_inner).replace(Vec::new()).unwrap_or_default()
    }
}
