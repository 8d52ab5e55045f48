//! For tests, with the feature `testing`: which thread frees memory that lookups read. [`crate::memory`] records the drop of table memory;
//! other values contain a [`Witness`].

/// Records when the value that contains it is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    #[cfg(any(test, feature = "testing"))]
    what: &'static str,
}

impl Witness {
    /// `what` names the containing value in tests.
    #[must_use]
    #[cfg_attr(not(any(test, feature = "testing")), expect(unused_variables, reason = "for tests alone"))]
    pub const fn new(what: &'static str) -> Self {
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

    /// `None` until the first call of [`take_recorded`].
    static NOTES: Mutex<Option<Vec<(&'static str, ThreadId)>>> = Mutex::new(None);

    pub(crate) fn note(what: &'static str) {
        if let Some(notes) = NOTES.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            notes.push((what, current().id()));
        }
    }

    /// The drops since the last call, with their threads. The first call starts the recording.
    pub fn take_recorded() -> Vec<(&'static str, ThreadId)> {
        NOTES.lock().unwrap_or_else(PoisonError::into_inner).replace(Vec::new()).unwrap_or_default()
    }
}
