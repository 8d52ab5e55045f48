//! Why an engine is out of service, and how long it has kept a caller waiting.

use crate::sync::time::Instant;
use fib::{EngineError, NextHopId};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// Why an engine is out of service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It could not be made.
    Absent(EngineError),
    /// It returned an error.
    Failed {
        /// The call: `submit`, `collect`, `apply`, `adopt` or `reader`.
        during: &'static str,
        /// Its error.
        error: EngineError,
    },
    /// It returned too few or too many answers.
    Short {
        /// The number of keys.
        keys: usize,
        /// The number of answers.
        answers: usize,
    },
    /// It exceeded a time limit.
    Stalled {
        /// The call.
        during: &'static str,
        /// The limit, microseconds.
        limit_us: u64,
    },
    /// It gave a wrong answer.
    Wrong {
        /// The key.
        key: IpAddr,
        /// Its answer.
        answer: NextHopId,
        /// The next hop of the longest route.
        right: NextHopId,
    },
    /// It panicked, or its thread has ended.
    Died {
        /// The call.
        during: &'static str,
    },
}

impl Why {
    /// The reason for a call that took longer than `limit`.
    #[cold]
    #[must_use]
    pub fn stalled(during: &'static str, limit: Duration) -> Self {
        Self::Stalled { during, limit_us: u64::try_from(limit.as_micros()).unwrap_or(u64::MAX) }
    }

    /// Whether it is the refusal of a delta and not a defect.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Failed { error, .. }
            if !matches!(error, EngineError::Device { .. } | EngineError::NoDevice { .. }))
    }

    /// As an error of the engine `engine`.
    #[cold]
    #[must_use]
    pub fn into_error(self, engine: &'static str) -> EngineError {
        match self {
            Self::Absent(error) | Self::Failed { error, .. } => error,
            Self::Died { .. } => EngineError::Device { engine, reason: self.to_string(), lost: true },
            Self::Short { .. } | Self::Stalled { .. } | Self::Wrong { .. } => {
                EngineError::Device { engine, reason: self.to_string(), lost: false }
            }
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(error) => write!(f, "{error}"),
            Self::Failed { during, error } => write!(f, "{during} failed: {error}"),
            Self::Short { keys, answers } => write!(f, "collect gave {answers} answers to {keys} keys"),
            Self::Stalled { during, limit_us } => write!(f, "{during} took more than {limit_us} us"),
            Self::Wrong { key, answer, right } => {
                write!(f, "the answer for {key} was next hop {answer} instead of {right}")
            }
            Self::Died { during } => write!(f, "{during} broke an invariant of the engine"),
        }
    }
}

/// How long an engine has kept a caller waiting, from the first check on: an engine that answers at once costs no clock read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait(Option<Instant>);

impl Wait {
    /// Checks that less than `limit` has passed since the first check.
    ///
    /// # Errors
    /// [`Why::Stalled`].
    #[inline]
    pub fn check(&mut self, during: &'static str, limit: Duration) -> Result<(), Why> {
        if self.0.get_or_insert_with(Instant::now).elapsed() < limit {
            Ok(())
        } else {
            Err(Why::stalled(during, limit))
        }
    }
}

/// Checks that a reader returned as many answers as there are `keys`.
///
/// # Errors
/// [`Why::Failed`] and [`Why::Short`].
#[inline]
pub fn complete(answers: Result<&[NextHopId], EngineError>, keys: usize) -> Result<&[NextHopId], Why> {
    match answers {
        Ok(answers) if answers.len() == keys => Ok(answers),
        Ok(answers) => Err(Why::Short { keys, answers: answers.len() }),
        Err(error) => Err(Why::Failed { during: "collect", error }),
    }
}
