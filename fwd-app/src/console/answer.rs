//! Answers to requests. Anything that serializes and has a text form is one: the same value feeds text and JSON.
//!
//! The forwarder only gathers the value. The thread of the control socket writes it, as text or as JSON, whichever the client asked
//! for, and gives up at a limit of bytes.

use serde::Serialize;
use std::fmt::{self, Display};
use std::io::Write;

/// The answer to a request.
pub(crate) struct Answer(Box<dyn Shown + Send>);

impl Answer {
    /// `value`, whose text form is that of `Display`.
    pub(crate) fn new(value: impl Serialize + Display + Send + 'static) -> Self {
        Self(Box::new(value))
    }

    /// Done, and there is nothing to say: no text, and `null` in JSON.
    pub(crate) fn done() -> Self {
        Self::new(Done)
    }

    /// The value as JSON.
    pub(crate) fn value(&self) -> serde_json::Value {
        let mut json = Vec::new();
        // Values of this program can be written, and what was written can be read.
        self.json(&mut json).and_then(|()| serde_json::from_slice(&json)).unwrap_or_default()
    }

    /// Writes the value as JSON.
    ///
    /// # Errors
    /// When `out` takes no more, or the value cannot be written as JSON.
    pub(super) fn json(&self, out: &mut dyn Write) -> serde_json::Result<()> {
        self.0.json(out)
    }

    /// Writes the text form as a JSON string.
    ///
    /// # Errors
    /// When `out` takes no more.
    pub(super) fn text(&self, out: &mut dyn Write) -> serde_json::Result<()> {
        self.0.text(out)
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer")
    }
}

/// Why a request was refused: nothing has changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// This forwarder cannot do it, with the reason.
    #[error("{what}: {why}")]
    Unavailable {
        /// What was asked for.
        what: String,
        /// Why it cannot be done here.
        why: String,
    },
    /// It was tried and failed.
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
    /// Too many requests wait for the forwarder.
    #[error("the forwarder is busy: {waiting} requests wait; try again")]
    Busy {
        /// How many.
        waiting: usize,
    },
    /// The forwarder ended, or gave the request up, without an answer.
    #[error("the forwarder has ended without an answer")]
    Ended,
}

/// What an answer must be able to do, as a trait object.
trait Shown {
    fn json(&self, out: &mut dyn Write) -> serde_json::Result<()>;
    fn text(&self, out: &mut dyn Write) -> serde_json::Result<()>;
}

impl<T: Serialize + Display> Shown for T {
    fn json(&self, out: &mut dyn Write) -> serde_json::Result<()> {
        serde_json::to_writer(out, self)
    }

    fn text(&self, out: &mut dyn Write) -> serde_json::Result<()> {
        serde_json::to_writer(out, &Text(self))
    }
}

/// Serializes the text form, piece by piece.
struct Text<'a, T>(&'a T);

impl<T: Display> Serialize for Text<'_, T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self.0)
    }
}

#[derive(Serialize)]
struct Done;

impl Display for Done {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}
