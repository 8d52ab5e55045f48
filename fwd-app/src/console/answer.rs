//! Answers to requests. Anything that serializes and has a text form is one: the same value feeds text and JSON.
//!
//! The forwarder only gathers the value. The thread of the control socket writes it, as text or as JSON, whichever the client asked
//! for, and gives up at a limit of bytes. A list of any length is answered in parts, each of which has the request for the next one.

use crate::console::grammar::request::Request;
use serde::Serialize;
use std::fmt::{self, Display};
use std::io::Write;

/// The answer to a request.
pub(crate) struct Answer {
    value: Box<dyn Shown + Send>,
    /// Of a list.
    part: Option<ListPart>,
}

/// What comes after some lines of a list.
struct ListPart {
    /// The request for the lines after them; `None` when they are the last.
    next: Option<Request>,
}

impl Answer {
    /// `value`, whose text form is that of `Display`.
    pub(crate) fn new(value: impl Serialize + Display + Send + 'static) -> Self {
        Self { value: Box::new(value), part: None }
    }

    /// Some lines of a list, and the request for those after them unless they are the last. In JSON each line is a value of its own.
    pub(crate) fn part<T: Serialize + Display + Send + 'static>(
        lines: Vec<T>,
        next: Option<Request>,
    ) -> Self {
        Self { value: Box::new(ListLines(lines)), part: Some(ListPart { next }) }
    }

    /// The same, of a list whose next part is asked for by what `ask` makes of the request.
    pub(crate) fn asking_by(mut self, ask: impl FnOnce(Request) -> Request) -> Self {
        if let Some(part) = &mut self.part {
            part.next = part.next.take().map(ask);
        }
        self
    }

    /// Whether it is a part of a list.
    pub(super) fn is_part(&self) -> bool {
        self.part.is_some()
    }

    /// The line that asks for the next part of a list.
    pub(super) fn next_line(&self) -> Option<String> {
        Some(self.part.as_ref()?.next.as_ref()?.to_string())
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

    /// Writes the value as JSON; of a list, a string that has a value on each line.
    ///
    /// # Errors
    /// When `out` takes no more, or the value cannot be written as JSON.
    pub(super) fn json(&self, out: &mut dyn Write) -> serde_json::Result<()> {
        self.value.json(out)
    }

    /// Writes the text form as a JSON string.
    ///
    /// # Errors
    /// When `out` takes no more.
    pub(super) fn text(&self, out: &mut dyn Write) -> serde_json::Result<()> {
        self.value.text(out)
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
    /// The client may only ask for what changes nothing.
    #[error("this user may read only: show, route get, route list; see --ctl-group")]
    ReadOnly,
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

/// Lines of a list.
struct ListLines<T>(Vec<T>);

impl<T: Display> Display for ListLines<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl<T: Serialize> Serialize for ListLines<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&JsonLines(&self.0))
    }
}

struct JsonLines<'a, T>(&'a [T]);

impl<T: Serialize> Display for JsonLines<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|line| writeln!(f, "{}", serde_json::to_string(line).map_err(|_| fmt::Error)?))
    }
}

#[derive(Serialize)]
struct Done;

impl Display for Done {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}
